//! Joins with tables in flight: records go on with the values of the rows that some of their fields lead to.
//!
//! `on: { src: src_addr, dst: dst_addr }` asks the table twice for each record, and adds its fields under the names
//! `src_FIELD` and `dst_FIELD`; a table with several keys takes a list of fields. Every record goes on; where the table has no
//! row for it, the added fields are null. A kind of table is a plug-in in one file: it reads its own keys, says what the table
//! holds, and opens it.
//!
//! Tables are loaded again when their files change. A batch is joined with one table as a whole; which one
//! that is, is not part of the order, and records that are replayed after a crash are joined with the table of that
//! time.

mod lookup;
mod member;
mod range;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use thalweg_connect::{JobPath, OptionKind};
use thalweg_enrich::BadLines;
use thalweg_enrich::join::{Found, JoinShape, JoinTable};
use thalweg_flow::{InputId, Operator, Output, TableCounts};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema};

use crate::job_file::keys::{KeySpec, Shape};

use super::{Loads, NamedOutput, OperatorCheck, Prepared, TEXTS, Tasks};

pub(super) use lookup::LookupJoinPlugin;
pub(super) use member::MemberJoinPlugin;
pub(super) use range::RangeJoinPlugin;

const ON: KeySpec = KeySpec::new(
    "on",
    Shape::Keys,
    "prefixes of the added fields, and for each the field or fields to look up",
)
.required();

const SCHEMA: KeySpec =
    KeySpec::new("schema", Shape::Fields, "columns of the table and their types, in the order of the file")
        .required();

const TAKE: KeySpec = KeySpec::new("take", TEXTS, "fields of the table to add; all, if absent");

const BAD_LINES: KeySpec = KeySpec::new(
    "bad_lines",
    Shape::Option(OptionKind::Choice(&["skip", "refuse"])),
    "`skip` leaves out lines that cannot be read, with a warning, and refuses a file in which they are many (ten and above 1 %, or more than the good ones); `refuse` refuses a file with any",
)
.default("skip");

fn bad_lines(check: &OperatorCheck<'_>) -> BadLines {
    match check.options().text("bad_lines") {
        Some("refuse") => BadLines::Refuse,
        _ => BadLines::Skip,
    }
}

/// Opens a table for all tasks of an operator.
type OpenTable = Arc<dyn Fn() -> Result<Arc<dyn JoinTable>, Error> + Send + Sync>;

/// The keys that a plug-in has read.
struct Plan {
    shape: JoinShape,
    open: OpenTable,
    loads: Loads,
}

/// Files of a table that is only read.
fn read_only(files: Vec<PathBuf>, open: &OpenTable) -> Loads {
    let open = Arc::clone(open);
    Loads { files, probe: Arc::new(move || open().map(drop)) }
}

/// Keys of the records under one prefix.
struct Side {
    /// Places of the key fields.
    keys: Vec<usize>,
}

/// The path of a required key.
fn path_of(check: &OperatorCheck<'_>, key: &str) -> JobPath {
    check.options().path(key).cloned().unwrap_or_default()
}

/// Checks `on`, and makes the operator.
fn prepare(check: &OperatorCheck<'_>, plan: Plan) -> Option<Prepared> {
    let input = &check.input().schema;
    let mut fields = input.fields().to_vec();
    let mut sides = Vec::new();
    let mut is_fine = true;
    for (prefix, keys) in check.keys("on", input)? {
        if keys.len() != plan.shape.keys.len() {
            let names: Vec<&str> = plan.shape.keys.iter().map(|key| key.name.as_str()).collect();
            let message = format!(
                "\"on\" gives {prefix:?} {} fields, and the table has the keys {}",
                keys.len(),
                names.join(", ")
            );
            check.error(
                "on",
                message,
                Some(format!("{prefix}: [{}]", vec!["field"; names.len()].join(", "))),
            );
            is_fine = false;
            continue;
        }
        for (place, key) in keys.iter().zip(&plan.shape.keys) {
            let field = &input.fields()[*place];
            if field.data_type != key.data_type {
                let message = format!(
                    "\"on\" asks for {:?} of type {}, and key {:?} of the table is of type {}",
                    field.name, field.data_type, key.name, key.data_type
                );
                check.error("on", message, Some("a `map` before this gives it the right type".to_owned()));
                is_fine = false;
            }
        }
        for value in &plan.shape.values {
            let name = format!("{prefix}_{}", value.name.replace('.', "_"));
            if fields.iter().any(|field| field.name == name) {
                let message = format!("the join adds the field {name:?}, which is there already");
                check.error("on", message, Some("choose another prefix, or what to `take`".to_owned()));
                is_fine = false;
            }
            fields.push(Field { name, ..value.clone() }.nullable());
        }
        sides.push(Side { keys });
    }
    if !is_fine {
        return None;
    }
    let schema = Schema::new(fields);
    let outputs = vec![NamedOutput { name: "records".to_owned(), schema: schema.clone() }];
    let sides: Arc<[Side]> = sides.into();
    let open = plan.open;
    // Tasks are made at once, and share the table.
    let shared: Mutex<Option<Arc<dyn JoinTable>>> = Mutex::new(None);
    let prepared = Prepared::one(1, outputs, Tasks::Declared, move |_| {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let table = match &*shared {
            Some(table) => Arc::clone(table),
            None => Arc::clone(shared.insert(open()?)),
        };
        let (schema, sides) = (schema.clone(), Arc::clone(&sides));
        Ok(Box::new(JoinOperator { table, schema, sides, now: 0, lookups: 0, misses: 0 }))
    });
    Some(Prepared { loads: Some(plan.loads), ..prepared })
}

/// The table's columns, `keys` apart from the values that are taken. `None` after a mistake.
fn split_columns(
    check: &OperatorCheck<'_>,
    columns: &Schema,
    keys: &[&str],
) -> Option<(Vec<Field>, Vec<Field>)> {
    let mut found = Vec::new();
    for key in keys {
        match columns.field(key) {
            Some((_, field)) => found.push(field.clone()),
            None => {
                let names = columns.names().collect::<Vec<_>>().join(", ");
                let message =
                    format!("\"schema\" has no column {key:?}, by which the table is asked; it has {names}");
                check.error("schema", message, None);
                return None;
            }
        }
    }
    let mut values: Vec<Field> =
        columns.fields().iter().filter(|field| !keys.contains(&field.name.as_str())).cloned().collect();
    if let Some(wanted) = check.options().list("take") {
        let mut taken = Vec::new();
        for name in wanted {
            match values.iter().find(|field| field.name == *name) {
                Some(field) => taken.push(field.clone()),
                None => {
                    let near =
                        crate::diagnostic::nearest(name, values.iter().map(|field| field.name.as_str()));
                    let hint = near.map(|near| format!("did you mean {near:?}?"));
                    check.error("take", format!("\"take\" names no value of the table: {name:?}"), hint);
                    return None;
                }
            }
        }
        values = taken;
    }
    if values.is_empty() {
        check.error("schema", "the table has no column but its keys, so the join would add nothing", None);
        return None;
    }
    const KINDS: [DataType; 5] =
        [DataType::String, DataType::UInt64, DataType::Int64, DataType::Float64, DataType::Bool];
    for field in &values {
        if !KINDS.contains(&field.data_type) {
            let message = format!("column {:?} is of type {}", field.name, field.data_type);
            check.error(
                "schema",
                message,
                Some("a table's values are string, uint64, int64, float64 or bool".to_owned()),
            );
            return None;
        }
    }
    Some((found, values))
}

struct JoinOperator {
    table: Arc<dyn JoinTable>,
    schema: Schema,
    sides: Arc<[Side]>,
    /// The last tick.
    now: Micros,
    lookups: u64,
    misses: u64,
}

impl Operator for JoinOperator {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let batch = batch.compact();
        let mut columns = batch.records().columns().to_vec();
        let keys = |side: &Side| side.keys.iter().map(|place| Arc::clone(batch.column(*place))).collect();
        let sides: Vec<Vec<ArrayRef>> = self.sides.iter().map(keys).collect();
        for Found { columns: added, misses } in self.table.look_up(&sides)? {
            self.lookups += batch.len() as u64;
            self.misses += misses;
            columns.extend(added);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        let records = RecordBatch::try_new_with_options(Arc::clone(self.schema.arrow()), columns, &options)
            .map_err(|error| {
            Error::internal("a table gave other columns than it should").with_source(error)
        })?;
        out.emit(0, batch.with_records(records));
        Ok(())
    }

    fn tick(&mut self, now: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        self.now = now;
        self.table.poll(now);
        Ok(())
    }

    fn table_counts(&self) -> Option<TableCounts> {
        let metrics = self.table.metrics(self.now);
        Some(TableCounts {
            lookups: self.lookups,
            misses: self.misses,
            age_seconds: metrics.map(|metrics| metrics.age_seconds as u64),
            reloads: metrics.map_or(0, |metrics| metrics.reload_count),
            failed_reloads: metrics.map_or(0, |metrics| metrics.failed_reload_count),
        })
    }
}
