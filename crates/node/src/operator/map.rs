//! `map`: records with other fields, each computed by an expression.
//!
//! `select: { total: price * quantity }` alone gives records of these fields. With `keep: all` or
//! `keep: [card, ts]` the named fields of the input come first; a selected field of the same name takes the kept
//! one's place.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use thalweg_expr::{Bound, Longest};
use thalweg_flow::{InputId, Operator, Output};
use thalweg_types::{Batch, Error, Field, Schema};

use crate::diagnostic::nearest;
use crate::job_file::keys::{KeySpec, Shape};

use super::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, TEXTS, Tasks};

pub struct Map;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("select", Shape::Expressions, "fields to compute").required(),
    KeySpec::new(
        "keep",
        TEXTS,
        "fields of the input to keep, before the computed ones: `all`, or a list; none, if absent",
    ),
];

impl OperatorPlugin for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn doc(&self) -> &'static str {
        "computes new fields from expressions"
    }

    fn page(&self) -> &'static str {
        include_str!("map.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let input = &check.input().schema;
        let selected = check.expressions("select", input);
        let kept = self.kept(check, input);
        let (selected, kept) = (selected?, kept?);

        let mut fields = Vec::new();
        let mut columns = Vec::new();
        for place in kept {
            fields.push(input.fields()[place].clone());
            columns.push(Column::Kept(place));
        }
        for (name, expression) in selected {
            let mut field = Field::new(&name, expression.data_type().clone());
            field.nullable = expression.nullable();
            match fields.iter().position(|kept: &Field| kept.name == name) {
                Some(place) => {
                    fields[place] = field;
                    columns[place] = Column::Computed(expression);
                }
                None => {
                    fields.push(field);
                    columns.push(Column::Computed(expression));
                }
            }
        }
        let schema = Schema::new(fields);
        let columns: Arc<[Column]> = columns.into();
        let outputs = vec![NamedOutput { name: "records".to_owned(), schema: schema.clone() }];
        let makes_texts = |column: &Column| matches!(column, Column::Computed(value) if value.makes_texts());
        let apart = columns.iter().any(makes_texts);
        let name = Arc::clone(check.name());
        let prepared = Prepared::one(1, outputs, Tasks::Declared, move |_| {
            let (name, schema, columns) = (Arc::clone(&name), schema.clone(), Arc::clone(&columns));
            Ok(Box::new(MapOperator { name, schema, columns, apart, misfits: 0 }))
        });
        Some(Prepared { apart, ..prepared })
    }
}

impl Map {
    fn kept(&self, check: &OperatorCheck<'_>, input: &Schema) -> Option<Vec<usize>> {
        let Some(names) = check.options().list("keep") else { return Some(Vec::new()) };
        if names == ["all"] && input.field("all").is_none() {
            return Some((0..input.fields().len()).collect());
        }
        let mut places = Vec::new();
        for name in names {
            match input.field(name) {
                Some((place, _)) if places.contains(&place) => {}
                Some((place, _)) => places.push(place),
                None => {
                    let hint = nearest(name, input.names()).map(|near| format!("did you mean {near:?}?"));
                    check.error("keep", format!("\"keep\" names no field of the input: {name:?}"), hint);
                    return None;
                }
            }
        }
        Some(places)
    }
}

enum Column {
    Kept(usize),
    Computed(Bound),
}

/// Bytes of texts that one call makes at most, where more than a record is given.
const MADE_AT_ONCE: usize = 16 << 20;

/// Bytes of texts that one call reads and makes by all operators, likewise: no other task of the worker has its turn
/// meanwhile.
const WORK_AT_ONCE: usize = 2 << 20;

struct MapOperator {
    name: Arc<str>,
    schema: Schema,
    columns: Arc<[Column]>,
    /// Some texts may be much longer than the texts that they are made of.
    apart: bool,
    /// Values that went beyond a bound so far.
    misfits: u64,
}

impl MapOperator {
    /// Says that values are null: for the first one, and then each time there are twice as many.
    fn tell_misfits(&mut self, expression: &str, count: usize) {
        let before = self.misfits;
        self.misfits += count as u64;
        if self.misfits.checked_ilog2() != before.checked_ilog2() {
            tracing::warn!(
                operator = &*self.name,
                expression,
                values = self.misfits,
                "values of an expression went beyond its bounds and are null"
            );
        }
    }
}

impl Operator for MapOperator {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let batch = batch.compact();
        let mut columns = Vec::with_capacity(self.columns.len());
        for column in Arc::clone(&self.columns).iter() {
            columns.push(match column {
                Column::Kept(place) => Arc::clone(batch.column(*place)),
                Column::Computed(expression) => {
                    let values = expression.values(batch.records()).map_err(Error::from)?;
                    if !values.misfits.is_empty() {
                        self.tell_misfits(expression.fingerprint(), values.misfits.len());
                    }
                    values.array
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        let records = RecordBatch::try_new_with_options(Arc::clone(self.schema.arrow()), columns, &options)
            .map_err(|error| {
            Error::internal("an expression gave a column of another type").with_source(error)
        })?;
        out.emit(0, batch.with_records(records));
        Ok(())
    }

    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        if !self.apart {
            return batch.len();
        }
        Longest::new(batch.records().columns().iter().collect(), batch).rows_within(|longest| {
            let (mut made, mut work) = (0_usize, 0_usize);
            for column in self.columns.iter() {
                let Column::Computed(expression) = column else { continue };
                let sizes = expression.text_sizes(longest);
                made = made.saturating_add(sizes.made);
                work = work.saturating_add(sizes.work);
            }
            (MADE_AT_ONCE / made.max(1)).min(WORK_AT_ONCE / work.max(1))
        })
    }
}
