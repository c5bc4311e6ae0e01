//! The columns of a table: which fields of the input are stored, under which names, and the parts that are taken out of
//! them first.
//!
//! Fields of an answer's queries become columns named `QUERY.FIELD`, as in CSV, and a list one text.
//! What a privacy switch takes away is gone before anything is written.

use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{Buffer, ScalarBuffer};
use thalweg_types::{Batch, DataType, Error, Field, Micros, Schema, TimeUnit, ip_network};

use crate::spec::{Spec, Truncate};

/// Name of the column with the event time where the input has no timestamp.
const TIME: &str = "time";

/// How the columns of a table are had from the batches of its input.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    schema: Schema,
    time: usize,
    unit: TimeUnit,
    sources: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    from: Origin,
    truncate: Option<Truncate>,
}

#[derive(Clone, Debug)]
enum Origin {
    /// The records' event times.
    EventTime,
    Field(usize),
    /// A field of a query's values.
    Within(usize, usize),
}

impl Columns {
    /// # Errors
    /// A mistake in the options, with the key that it belongs to.
    pub(crate) fn new(input: &Schema, spec: &Spec) -> Result<Self, (&'static str, Error)> {
        let mut all: Vec<(Field, Origin)> = Vec::new();
        for (place, field) in input.fields().iter().enumerate() {
            match &field.data_type {
                DataType::Struct(fields) => {
                    for (inner, value) in fields.iter().enumerate() {
                        let name = format!("{}.{}", field.name, value.name);
                        let field = Field::new(name, stored_type(&value.data_type)).nullable();
                        all.push((field, Origin::Within(place, inner)));
                    }
                }
                data_type => {
                    let stored =
                        Field { data_type: stored_type(data_type), omit_null: false, ..field.clone() };
                    all.push((stored, Origin::Field(place)));
                }
            }
        }
        let time = time_column(&mut all, spec.time.as_deref())?;
        let known = |name: &String| all.iter().any(|(field, _)| field.name == *name);
        let unknown = |name: &str| {
            let names: Vec<&str> = all.iter().map(|(field, _)| field.name.as_str()).collect();
            Error::user(format!("{name:?} is no column of the input"))
                .with_hint(format!("its columns are {}", names.join(", ")))
        };
        for (key, names) in [("columns", &spec.columns), ("drop", &spec.drop)] {
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Err((key, unknown(name)));
            }
        }
        let is_kept = |name: &String| {
            (spec.columns.is_empty() || spec.columns.contains(name)) && !spec.drop.contains(name)
        };
        if !is_kept(&time) {
            let error = Error::user(format!("column {time:?} has the event time"))
                .with_hint("a table keeps it; `time` names another timestamp field");
            return Err((if spec.drop.contains(&time) { "drop" } else { "columns" }, error));
        }
        for truncate in &spec.truncate {
            match all.iter().find(|(field, _)| field.name == truncate.column) {
                None => return Err(("truncate", unknown(&truncate.column))),
                Some((field, _)) if field.data_type != DataType::Ip => {
                    let error =
                        Error::user(format!("column {:?} is of type {}", truncate.column, field.data_type));
                    return Err((
                        "truncate",
                        error.with_hint("addresses, columns of type ip, are truncated"),
                    ));
                }
                Some(_) => {}
            }
        }
        let kept: Vec<(Field, Origin)> = all.into_iter().filter(|(field, _)| is_kept(&field.name)).collect();
        let place = kept.iter().position(|(field, _)| field.name == time).unwrap_or_default();
        let DataType::Timestamp(unit) = kept[place].0.data_type else {
            return Err(("time", Error::internal("the time column is a timestamp")));
        };
        let sources = kept.iter().map(|(field, from)| Column {
            from: from.clone(),
            truncate: spec.truncate.iter().find(|truncate| truncate.column == field.name).cloned(),
        });
        let sources = sources.collect();
        let fields: Vec<Field> = kept.into_iter().map(|(field, _)| field).collect();
        Ok(Self { schema: Schema::new(fields), time: place, unit, sources })
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Place of the column with the event time.
    pub(crate) fn time(&self) -> usize {
        self.time
    }

    /// The rows of a batch as they are stored. Columns without a value may be of any kind.
    pub(crate) fn store(&self, batch: &Batch) -> RecordBatch {
        let batch = batch.compact();
        let columns = self.sources.iter().enumerate().map(|(place, source)| {
            let column = match source.from {
                Origin::EventTime => self.event_times(&batch),
                Origin::Field(field) => text_of_list(batch.column(field)),
                Origin::Within(field, inner) => text_of_list(&within(batch.column(field), inner)),
            };
            match &source.truncate {
                Some(truncate) => truncated(&column, truncate),
                // A record without a time of its own has that at which it was numbered.
                None if place == self.time && column.null_count() > 0 => self.event_times(&batch),
                None => column,
            }
        });
        let columns: Vec<ArrayRef> = columns.collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
        RecordBatch::try_new_with_options(Arc::clone(self.schema.arrow()), columns, &options)
            .expect("columns are made in the order of the schema")
    }

    fn event_times(&self, batch: &Batch) -> ArrayRef {
        let times =
            batch.times().iter().map(|time: &Micros| self.unit.from_micros(*time).unwrap_or(i64::MAX));
        self.unit.column(ScalarBuffer::from(times.collect::<Vec<i64>>()), None)
    }
}

/// What a field is stored as: lists become a text.
fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(_) | DataType::Struct(_) => DataType::String,
        other => other.clone(),
    }
}

/// The column with the event time; one is put first where the input has no timestamp.
fn time_column(all: &mut Vec<(Field, Origin)>, named: Option<&str>) -> Result<String, (&'static str, Error)> {
    let is_time = |field: &Field| matches!(field.data_type, DataType::Timestamp(_));
    if let Some(name) = named {
        return match all.iter().find(|(field, _)| field.name == name) {
            Some((field, _)) if is_time(field) => Ok(name.to_owned()),
            Some((field, _)) => {
                let error = Error::user(format!("column {name:?} is of type {}", field.data_type));
                Err(("time", error.with_hint("the event time is a timestamp")))
            }
            None => Err(("time", Error::user(format!("{name:?} is no field of the input")))),
        };
    }
    let times: Vec<&str> =
        all.iter().filter(|(field, _)| is_time(field)).map(|(field, _)| field.name.as_str()).collect();
    match times.as_slice() {
        [] if all.iter().any(|(field, _)| field.name == TIME) => {
            let error =
                Error::user("the input has a field `time` that is no timestamp, and no timestamp field");
            Err(("time", error.with_hint("give that field another name, in a `project` before the table")))
        }
        [] => {
            all.insert(0, (Field::new(TIME, DataType::Timestamp(TimeUnit::Micro)), Origin::EventTime));
            Ok(TIME.to_owned())
        }
        [one] => Ok((*one).to_owned()),
        several => match several.iter().find(|name| matches!(**name, TIME | "ts" | "timestamp")) {
            Some(name) => Ok((*name).to_owned()),
            None => {
                let error = Error::user("the input has several timestamps, and none is called `time`");
                Err(("time", error.with_hint(format!("name one of {}", several.join(", ")))))
            }
        },
    }
}

/// A field of a struct column; null where the struct is.
fn within(column: &ArrayRef, inner: usize) -> ArrayRef {
    let values = column.as_struct();
    let field = values.column(inner);
    let Some(outer) = values.nulls() else { return Arc::clone(field) };
    let nulls = arrow_buffer::NullBuffer::union(field.nulls(), Some(outer));
    let data = field.to_data().into_builder().nulls(nulls).build();
    data.map_or_else(|_| Arc::clone(field), arrow_array::make_array)
}

/// Lists of texts as one text, their items divided by commas; other columns as they are.
fn text_of_list(column: &ArrayRef) -> ArrayRef {
    let Some(lists) = column.as_list_opt::<i32>() else { return Arc::clone(column) };
    let mut texts = StringViewBuilder::with_capacity(lists.len());
    for list in lists.iter() {
        match list {
            None => texts.append_null(),
            Some(items) => match items.as_string_view_opt() {
                Some(items) => texts.append_value(items.iter().flatten().collect::<Vec<_>>().join(",")),
                None => texts.append_value(""),
            },
        }
    }
    Arc::new(texts.finish())
}

/// Addresses without the bits after their prefix.
fn truncated(column: &ArrayRef, truncate: &Truncate) -> ArrayRef {
    let Some(addresses) = column.as_fixed_size_binary_opt() else { return Arc::clone(column) };
    let mut bytes = Vec::with_capacity(addresses.len() * 16);
    for row in 0..addresses.len() {
        let mut word = [0; 16];
        word.copy_from_slice(addresses.value(row));
        bytes.extend_from_slice(&ip_network(word, truncate.ipv4.into(), truncate.ipv6.into()));
    }
    Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(bytes), addresses.nulls().cloned()))
}
