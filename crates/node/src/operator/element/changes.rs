//! `changes`: lets a record pass when its value differs from the last one of its key, with that one as `previous`.
//!
//! Values are compared as keys are: null is a value, −0 equals 0, and NaN equals NaN.

use thalweg_flow::{Element, Packed, Packer, Row, Set, Turn};
use thalweg_types::{Error, Field, Value};

use crate::job_file::keys::{KeySpec, Shape};
use crate::operator::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, TEXTS};
use thalweg_connect::OptionKind;

use super::{CHECKPOINT, ElementPlan, KEY, ON_TTL, TTL, distinct, places, setters};

pub struct Changes;

const OPTIONS: &[KeySpec] = &[
    KEY,
    KeySpec::new("value", TEXTS, "fields to watch").required(),
    KeySpec::new("first", Shape::Option(OptionKind::Bool), "whether the first record of a key passes")
        .default("true"),
    TTL,
    ON_TTL,
    CHECKPOINT,
];

impl OperatorPlugin for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn doc(&self) -> &'static str {
        "passes a record when a value differs from the last one of its key; adds `previous`, or `previous_FIELD` if several fields are watched"
    }

    fn page(&self) -> &'static str {
        include_str!("changes.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn partitions_itself(&self) -> bool {
        true
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let plan = ElementPlan::read(check);
        let input = &check.input().schema;
        let names = check.options().list("value").unwrap_or_default();
        let watched = places(check, "value", names, input);
        let (plan, watched) = (plan?, watched?);
        if watched.is_empty() {
            check.error("value", "\"value\" names no field", None);
            return None;
        }
        let previous: Vec<Field> = watched
            .iter()
            .map(|place| {
                let field = &input.fields()[*place];
                let name = match watched.len() {
                    1 => "previous".to_owned(),
                    _ => format!("previous_{}", field.name),
                };
                Field::new(name, field.data_type.clone()).nullable()
            })
            .collect();
        let schema = distinct(check, input.fields().iter().chain(&previous).cloned().collect())?;
        let shared = Watch {
            value: check.accept("value", Packer::new(input, &watched))?,
            previous: check.accept("value", setters(&schema, &previous))?,
            first: check.options().flag("first").unwrap_or(true),
        };
        let outputs = vec![NamedOutput { name: "changes".to_owned(), schema }];
        let prepared = Prepared::elements::<Last>(check, plan, outputs, shared);
        Some(
            prepared.also_kept_by(|kept| {
                kept.fields("value", watched.iter().map(|place| &input.fields()[*place]))
            }),
        )
    }
}

struct Watch {
    value: Packer,
    previous: Vec<Set<Value>>,
    first: bool,
}

/// The last value; `None` before the first record.
struct Last(Option<Vec<u8>>);

impl Element for Last {
    type Shared = Watch;

    fn create(_: &Watch, _: Packed<'_>) -> Self {
        Self(None)
    }

    fn process(&mut self, watch: &Watch, record: Row<'_>, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let mut value = Vec::new();
        watch.value.pack_as_key(record, &mut value);
        if self.0.as_ref() == Some(&value) {
            return Ok(());
        }
        let previous = self.0.replace(value);
        if previous.is_none() && !watch.first {
            return Ok(());
        }
        let mut changed = turn.record(0).copy(record);
        if let Some(previous) = previous {
            let values = watch.value.unpack(&previous).values()?;
            for (field, value) in watch.previous.iter().zip(values) {
                changed = changed.set(*field, value);
            }
        }
        changed.send()
    }

    fn save(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.0.as_deref().unwrap_or_default());
    }

    fn load(_: &Watch, bytes: &[u8]) -> Result<Self, Error> {
        // Packed values of at least one field are not empty.
        Ok(Self((!bytes.is_empty()).then(|| bytes.to_vec())))
    }

    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Vec::capacity)
    }
}
