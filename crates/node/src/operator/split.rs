//! `split`: one record per piece of a text; the other fields go with each.
//!
//! Pieces stand between runs of white space, or between occurrences of `separator`; empty ones are left out. Null has
//! no pieces.

use thalweg_connect::OptionKind;
use thalweg_flow::{Emit, Get, RecordOperator, Row, Set};
use thalweg_types::{DataType, Error, Field, Schema};

use crate::job_file::keys::{KeySpec, Shape};

use super::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};

pub struct Split;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("field", Shape::Field, "field of the text").required(),
    KeySpec::new("into", Shape::Option(OptionKind::Text), "field of the piece, which takes the text's place")
        .required(),
    KeySpec::new(
        "separator",
        Shape::Option(OptionKind::Text),
        "what stands between pieces; absent: white space",
    ),
    KeySpec::new("lower", Shape::Option(OptionKind::Bool), "whether pieces are put into lower case")
        .default("false"),
];

impl OperatorPlugin for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn doc(&self) -> &'static str {
        "makes one record of each piece of a text"
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let input = &check.input().schema;
        let text: Option<Get<Option<String>>> = check.get("field", input);
        let separator = check.options().text("separator").map(str::to_owned);
        if separator.as_ref().is_some_and(String::is_empty) {
            check.error(
                "separator",
                "\"separator\" is empty",
                Some("leave it out to split at white space".to_owned()),
            );
        }
        let (text, into) = (text?, check.options().text("into")?);
        if input.field(into).is_some_and(|(place, _)| place != text.place()) {
            check.error(
                "into",
                format!("the input has a field {into:?}"),
                Some("give the piece another name".to_owned()),
            );
        }
        let piece = Field::new(into, DataType::String);
        let fields: Vec<Field> = input
            .fields()
            .iter()
            .enumerate()
            .map(|(place, field)| if place == text.place() { piece.clone() } else { field.clone() })
            .collect();
        let schema = Schema::new(fields);
        let piece = check.accept("into", Set::of(&schema, into))?;
        let lower = check.options().flag("lower").unwrap_or(false);
        if check.failed.get() {
            return None;
        }
        let outputs = vec![NamedOutput { name: "pieces".to_owned(), schema }];
        Some(Prepared::per_record(check, outputs, Tasks::Declared, move |_| {
            Ok(Splitter { text, piece, separator: separator.clone(), lower })
        }))
    }
}

struct Splitter {
    text: Get<Option<String>>,
    piece: Set<String>,
    separator: Option<String>,
    lower: bool,
}

impl RecordOperator for Splitter {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let Some(text) = record.get(self.text) else { return Ok(()) };
        match &self.separator {
            None => text.split_whitespace().try_for_each(|piece| self.send(piece, record, out)),
            Some(separator) => text
                .split(separator.as_str())
                .filter(|piece| !piece.is_empty())
                .try_for_each(|piece| self.send(piece, record, out)),
        }
    }
}

impl Splitter {
    fn send(&self, piece: &str, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let sent = out.record(0).copy(record);
        match self.lower {
            true => sent.set(self.piece, &piece.to_lowercase()).send(),
            false => sent.set(self.piece, piece).send(),
        }
    }
}
