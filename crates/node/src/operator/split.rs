//! `split`: one record per piece of a text; the other fields go with each.
//!
//! Pieces are between runs of white space, or between occurrences of `separator`; empty ones are left out. Null has
//! no pieces.
//!
//! The fields that go with each piece are as long as the sender makes them, and so is the number of pieces: a record of
//! a megabyte would be one of a terabyte. A record of more than [`MOST_PIECES`], or whose pieces would have more than
//! [`MOST_COPIED`] of other texts between them, goes to rejects, and few records are worked on at once where each makes
//! much.

use std::sync::Arc;

use thalweg_connect::OptionKind;
use thalweg_flow::{Emit, Get, RecordOperator, Row, Set};
use thalweg_types::{Batch, DataType, Error, Field, Schema, TextLengths, rejects_schema};

use super::reject::RejectLines;
use super::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};
use crate::job_file::keys::{KeySpec, Shape};

/// Pieces that a record may have.
const MOST_PIECES: usize = 1 << 20;

/// Bytes that the other texts of a record may have in all its pieces together.
const MOST_COPIED: usize = 256 << 20;

/// Bytes that the pieces of a call have, where it is given more than a record.
const AT_ONCE: usize = 16 << 20;

/// The size of a piece in addition to texts: a view, a time and a number.
const PIECE: usize = 32;

/// The output for rejects.
const REJECTS: usize = 1;

pub struct Split;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("field", Shape::Field, "field with the text").required(),
    KeySpec::new(
        "into",
        Shape::Option(OptionKind::Text),
        "field for the piece; it replaces the field with the text",
    )
    .required(),
    KeySpec::new(
        "separator",
        Shape::Option(OptionKind::Text),
        "separator between pieces; white space, if absent",
    ),
    KeySpec::new("lower", Shape::Option(OptionKind::Bool), "whether pieces are converted to lower case")
        .default("false"),
];

impl OperatorPlugin for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn doc(&self) -> &'static str {
        "makes one record for each piece of a text"
    }

    fn page(&self) -> &'static str {
        include_str!("split.md")
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
        let outputs = vec![
            NamedOutput { name: "pieces".to_owned(), schema },
            NamedOutput { name: "rejects".to_owned(), schema: rejects_schema() },
        ];
        let others = others(input, text.place()).ok()?;
        let (input, from) = (input.clone(), Arc::clone(check.name()));
        let prepared = Prepared::per_record(check, outputs, Tasks::Declared, move |_| {
            let rejects = RejectLines::new(Arc::clone(&from), REJECTS, vec![input.clone()])?;
            Ok(Splitter { text, piece, separator: separator.clone(), lower, others: others.clone(), rejects })
        });
        Some(Prepared { apart: true, rejects: Some(REJECTS), ..prepared })
    }
}

/// The texts that go with each piece.
#[derive(Clone, Default)]
struct Others {
    texts: Vec<Get<Option<String>>>,
    blobs: Vec<Get<Option<Vec<u8>>>>,
}

fn others(input: &Schema, text: usize) -> Result<Others, Error> {
    let mut others = Others::default();
    for (_, field) in input.fields().iter().enumerate().filter(|(place, _)| *place != text) {
        match field.data_type {
            DataType::String => others.texts.push(Get::of(input, &field.name)?),
            DataType::Bytes => others.blobs.push(Get::of(input, &field.name)?),
            _ => {}
        }
    }
    Ok(others)
}

impl Others {
    fn bytes(&self, record: Row<'_>) -> usize {
        let texts = self.texts.iter().filter_map(|text| record.get(*text)).map(str::len);
        texts.chain(self.blobs.iter().filter_map(|blob| record.get(*blob)).map(<[u8]>::len)).sum()
    }

    fn lengths<'a>(&self, batch: &'a Batch) -> Vec<TextLengths<'a>> {
        let places =
            self.texts.iter().map(|text| text.place()).chain(self.blobs.iter().map(|blob| blob.place()));
        places.filter_map(|place| TextLengths::of(batch.column(place))).collect()
    }
}

struct Splitter {
    text: Get<Option<String>>,
    piece: Set<String>,
    separator: Option<String>,
    lower: bool,
    others: Others,
    rejects: RejectLines,
}

impl RecordOperator for Splitter {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let Some(text) = record.get(self.text) else { return Ok(()) };
        let others = self.others.bytes(record);
        let is_too_much = |pieces: usize| pieces > MOST_PIECES || pieces.saturating_mul(others) > MOST_COPIED;
        if is_too_much(most_pieces(text.len())) {
            let mut pieces = 0_usize;
            self.each(text, |_| {
                pieces += 1;
                Ok(())
            })?;
            if is_too_much(pieces) {
                let reason = format!(
                    "expected at most {MOST_PIECES} pieces, and {MOST_COPIED} bytes of other texts in all of them together, got {pieces} with {others} bytes each"
                );
                return self.rejects.write(record, "too_many_pieces", &reason, out);
            }
        }
        self.each(text, |piece| {
            let sent = out.record(0).copy(record);
            match self.lower {
                true => sent.set(self.piece, &piece.to_lowercase()).send(),
                false => sent.set(self.piece, piece).send(),
            }
        })
    }

    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        let Some(texts) = TextLengths::of(batch.column(self.text.place())) else { return batch.len() };
        let others = self.others.lengths(batch);
        let mut bytes = 0_usize;
        for (index, row) in batch.row_numbers().enumerate() {
            let other: usize = others.iter().map(|lengths| lengths.at(row)).sum();
            bytes = bytes.saturating_add(most_pieces(texts.at(row)).saturating_mul(PIECE + other));
            if bytes > AT_ONCE {
                return index.max(1);
            }
        }
        batch.len()
    }
}

/// How many pieces a text may have.
fn most_pieces(bytes: usize) -> usize {
    bytes.div_ceil(2)
}

impl Splitter {
    fn each<'a>(&self, text: &'a str, send: impl FnMut(&'a str) -> Result<(), Error>) -> Result<(), Error> {
        match &self.separator {
            None => text.split_whitespace().try_for_each(send),
            Some(separator) => {
                text.split(separator.as_str()).filter(|piece| !piece.is_empty()).try_for_each(send)
            }
        }
    }
}
