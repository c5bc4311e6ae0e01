//! The merge of a `metrics` operator: each record with the values that its stages sent, in the order of the records.
//!
//! Input 0 is the records, input 1 + i stage i, each grouped by task. A task of a stage answers its records in order, so
//! the row of an answer follows from which task a record went to: by its order number where numbers are dense, else by
//! hashing the key again (records from several inputs may share a number).
//!
//! Late records that a stage refused go to rejects here, once per record whatever the number of stages: each stage says why,
//! as each of its tasks has a time of its own.
//!
//! Queries come and go while a job runs. Answers leave in two shapes: as they are declared, with the queries of the job
//! file, for everything that is bound to a schema; and as they are, for readers that look at each batch. They are one
//! batch where they do not differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, new_null_array};
use arrow_schema::{DataType as ArrowType, Field as ArrowField, Fields, Schema as ArrowSchema, SchemaRef};
use thalweg_connect::format::Encoder;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_flow::{InputId, InputOrder, Operator, Output};
use thalweg_types::{
    Batch, Error, Reject, RejectsBuilder, Seq, SeqRange, Seqs, hash_columns, partition_of, reason_in_file,
};

use super::super::AnswerCount;
use super::super::late::refused_by;
use super::message::{self, Heard};
use super::scatter::{Part, scatter, widest};
use super::spec::MetricsSpec;
use super::told::{self, Passing, Told};

pub(super) struct Merge {
    spec: Arc<MetricsSpec>,
    /// How many tasks each stage has.
    tasks: Vec<u32>,
    /// Records that have had their answer.
    answered: AnswerCount,
    records: Vec<Batch>,
    /// By stage, with the task that each came from.
    answers: Vec<Vec<(u32, Batch)>>,
    /// Makes the raw text of late records.
    encoder: Box<dyn Encoder>,
    layout: Option<Arc<Layout>>,
    /// The last late record, whose line has the original bytes: lines about records made of it need no second copy.
    told: Option<Seq>,
    passing: Passing,
}

/// Output of answers as they are declared.
const DECLARED: usize = 0;
pub(super) const REJECTS: usize = 1;
/// Output of answers with the queries that run now.
pub(super) const LIVE: usize = 2;

/// The places of fields in answers, for the stages' schemas that it was made for.
struct Layout {
    stages: Vec<SchemaRef>,
    /// Of answers with the queries that run now.
    schema: SchemaRef,
    /// Stage and column of each of these: in the order of the job file, later ones after them.
    queries: Vec<(usize, usize)>,
    /// The declared shape, where it is another.
    declared: Option<Declared>,
}

struct Declared {
    schema: SchemaRef,
    /// How many fields are the record's own.
    own: usize,
    /// By declared query, which of those that run now it is; `None` where it was dropped.
    queries: Vec<Option<usize>>,
}

/// Where the answers of one stage go: for each batch the rows of its records.
struct Placed<'a> {
    batch: &'a Batch,
    rows: Vec<u32>,
}

impl Merge {
    pub(super) fn new(spec: Arc<MetricsSpec>, tasks: Vec<u32>, answered: AnswerCount) -> Result<Self, Error> {
        let answers = spec.stages.iter().map(|_| Vec::new()).collect();
        let encoder = Ndjson.encoder(&spec.input, &Options::default())?;
        let passing = Passing::of(&spec.input);
        Ok(Self {
            spec,
            tasks,
            answered,
            records: Vec::new(),
            answers,
            encoder,
            layout: None,
            told: None,
            passing,
        })
    }

    /// Rows of each batch of a stage among the records.
    fn place<'a>(&self, stage: usize, records: &Batch, answers: &'a [(u32, Batch)]) -> Vec<Placed<'a>> {
        let keys = &self.spec.stages[stage].keys;
        if keys.is_empty() {
            let mut from = 0;
            return answers
                .iter()
                .map(|(_, batch)| {
                    let rows = (from..from + batch.len() as u32).collect();
                    from += batch.len() as u32;
                    Placed { batch, rows }
                })
                .collect();
        }
        if let Seqs::Dense(first) = records.seqs() {
            return answers
                .iter()
                .map(|(_, batch)| {
                    let rows = (0..batch.len() as u32).map(|row| (batch.seq(row) - first) as u32).collect();
                    Placed { batch, rows }
                })
                .collect();
        }
        let columns: Vec<ArrayRef> = keys.iter().map(|key| Arc::clone(records.column(*key))).collect();
        let tasks = self.tasks[stage];
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); tasks as usize];
        for (row, hash) in hash_columns(&columns, records.len()).into_iter().enumerate() {
            rows_of[partition_of(hash, tasks) as usize].push(row as u32);
        }
        // A task may have sent several batches for the range: they are in order.
        let mut taken = vec![0; rows_of.len()];
        answers
            .iter()
            .map(|(task, batch)| {
                let from = taken[*task as usize];
                taken[*task as usize] += batch.len();
                Placed { batch, rows: rows_of[*task as usize][from..from + batch.len()].to_vec() }
            })
            .collect()
    }

    fn merge(&mut self, records: &Batch, out: &mut Output<'_>) {
        let count = records.len();
        let answers = std::mem::take(&mut self.answers);
        let placed: Vec<Vec<Placed<'_>>> =
            answers.iter().enumerate().map(|(stage, answers)| self.place(stage, records, answers)).collect();
        let schemas: Vec<SchemaRef> = placed.iter().map(|stage| schema_of(stage)).collect();
        let layout = self.layout(schemas, records);

        let all = records.records().columns();
        let mut columns: Vec<ArrayRef> =
            self.passing.own.iter().map(|place| Arc::clone(&all[*place])).collect();
        for (stage, column) in &layout.queries {
            columns.push(column_of(&placed[*stage], *column, count));
        }
        let mut refusals = self.late(&placed, count);
        let late =
            refusals.iter().map(|(row, refusals)| (*row, refusals.iter().map(|one| one.0.clone()).collect()));
        let late: BTreeMap<u32, Vec<String>> = late.collect();
        let said = Told { late, duplicate: self.duplicates(&placed), errors: misfits(&placed) };
        for (own, above) in said.in_order().iter().zip(self.passing.above.in_order()) {
            columns.push(told::lists(above.map(|place| &all[place]), own, count));
        }

        // One line in rejects for each record, whichever operator refused it first.
        if let Some(above) = self.passing.above.late {
            refusals.retain(|row, _| all[above].is_null(*row as usize));
        }
        if !refusals.is_empty() {
            out.emit(REJECTS, self.rejects(records, &refusals, out));
        }
        let declared = layout.declared.as_ref().map(|declared| declared.of(&columns, records, count));
        let live = answers_of(records, Arc::clone(&layout.schema), columns);
        out.emit(DECLARED, declared.unwrap_or_else(|| live.clone()));
        out.emit(LIVE, live);
        self.answered.add(count);
        self.answers = answers;
        for stage in &mut self.answers {
            stage.clear();
        }
    }

    fn layout(&mut self, stages: Vec<SchemaRef>, records: &Batch) -> Arc<Layout> {
        if let Some(known) = &self.layout
            && known.stages.len() == stages.len()
            && known.stages.iter().zip(&stages).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
        {
            return Arc::clone(known);
        }
        let mut queries: Vec<(usize, usize, usize)> = Vec::new();
        for (stage, schema) in stages.iter().enumerate() {
            for (column, field) in message::queries(schema) {
                let known = self.spec.order.iter().position(|name| name == field.name());
                queries.push((known.unwrap_or(usize::MAX), stage, column));
            }
        }
        queries.sort_unstable();
        let queries: Vec<(usize, usize)> =
            queries.into_iter().map(|(_, stage, column)| (stage, column)).collect();
        let running: Vec<&Arc<ArrowField>> =
            queries.iter().map(|(stage, column)| &stages[*stage].fields()[*column]).collect();

        let answers = self.spec.answers.arrow().fields();
        let (own, flags) = (self.passing.own.len(), answers.len() - Told::COUNT);
        let schema_of = |queries: &[&Arc<ArrowField>]| {
            let all = records.records().schema_ref().fields();
            let mut fields: Vec<Arc<ArrowField>> =
                self.passing.own.iter().map(|place| Arc::clone(&all[*place])).collect();
            fields.extend(queries.iter().map(|field| Arc::clone(field)));
            fields.extend(answers[flags..].iter().cloned());
            Arc::new(ArrowSchema::new(fields))
        };
        let wanted: Vec<&Arc<ArrowField>> = answers[own..flags].iter().collect();
        let is_declared = running.len() == wanted.len()
            && running.iter().zip(&wanted).all(|(is, wanted)| {
                is.name() == wanted.name()
                    && field_count(is.data_type()) == field_count(wanted.data_type())
                    && begins_with(is.data_type(), wanted.data_type())
            });
        let declared = (!is_declared).then(|| Declared {
            own,
            queries: wanted
                .iter()
                .map(|wanted| {
                    running.iter().position(|is| {
                        is.name() == wanted.name() && begins_with(is.data_type(), wanted.data_type())
                    })
                })
                .collect(),
            schema: schema_of(&wanted),
        });
        let schema = schema_of(&running);
        Arc::clone(self.layout.insert(Arc::new(Layout { schema, declared, queries, stages })))
    }

    /// By row, the stages that refused the record as late: label and reason.
    fn late(&self, placed: &[Vec<Placed<'_>>], count: usize) -> BTreeMap<u32, Vec<(String, String)>> {
        let mut late: BTreeMap<u32, Vec<(String, String)>> = BTreeMap::new();
        for (stage, placed) in placed.iter().enumerate() {
            for part in placed {
                let Some(reasons) = Heard::of(part.batch).late else { continue };
                for (index, row) in part.rows.iter().enumerate().filter(|(_, row)| (**row as usize) < count) {
                    if reasons.is_valid(index) {
                        let reason = reasons.value(index).to_owned();
                        late.entry(*row).or_default().push((self.label(stage), reason));
                    }
                }
            }
        }
        late
    }

    /// By row, labels of the stages that know the record's id.
    fn duplicates(&self, placed: &[Vec<Placed<'_>>]) -> BTreeMap<u32, Vec<String>> {
        let mut known: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for (stage, placed) in placed.iter().enumerate() {
            for part in placed {
                let Some(column) = Heard::of(part.batch).duplicate else { continue };
                for (_, row) in part.rows.iter().enumerate().filter(|(index, _)| column.is_valid(*index)) {
                    known.entry(*row).or_default().push(self.label(stage));
                }
            }
        }
        known
    }

    /// What answers call a stage.
    fn label(&self, stage: usize) -> String {
        let label = &self.spec.stages[stage].label;
        if self.passing.is_answer() { format!("{}.{label}", self.spec.name) } else { label.to_string() }
    }

    fn rejects(
        &mut self,
        records: &Batch,
        late: &BTreeMap<u32, Vec<(String, String)>>,
        out: &Output<'_>,
    ) -> Batch {
        let mut rejects = RejectsBuilder::default();
        for (row, stages) in late {
            let seq = records.seq(*row);
            let (source, offset) = out.place_of(seq).unwrap_or_else(|| (Arc::clone(&self.spec.from), 0));
            let received = out.received(seq);
            let (line, file) =
                received.as_ref().map_or((None, None), |received| (received.line, received.file.clone()));
            let raw = match received.filter(|_| self.told.replace(seq) != Some(seq)) {
                Some(received) => received.bytes,
                None => {
                    let mut raw = Vec::new();
                    self.encoder.encode_row(records, *row, &mut raw);
                    raw.truncate(raw.trim_ascii_end().len());
                    raw.into()
                }
            };
            let reason = reason_of(stages);
            let reason = reason_in_file(&reason, file.as_deref());
            let reject = Reject { source: &source, offset, line, code: "late", reason: &reason, raw: &raw };
            rejects.push(seq, records.times()[*row as usize], reject);
        }
        rejects.finish(records.range())
    }
}

/// The reasons of stages, each once with those that have it.
fn reason_of(stages: &[(String, String)]) -> String {
    let mut by: Vec<(&str, Vec<&str>)> = Vec::new();
    for (label, reason) in stages {
        match by.iter_mut().find(|(known, _)| known == reason) {
            Some((_, labels)) => labels.push(label),
            None => by.push((reason, vec![label])),
        }
    }
    let reasons: Vec<String> =
        by.into_iter().map(|(reason, labels)| refused_by(reason, &labels.join(", "))).collect();
    reasons.join("; ")
}

impl Declared {
    /// Answers as they are declared, of the columns as they are.
    fn of(&self, columns: &[ArrayRef], records: &Batch, count: usize) -> Batch {
        let own = self.own;
        let mut declared = columns[..own].to_vec();
        for (place, query) in self.queries.iter().enumerate() {
            let wanted = self.schema.field(own + place).data_type();
            declared.push(match query {
                Some(running) => without_rest(&columns[own + running], wanted),
                None => new_null_array(wanted, count),
            });
        }
        declared.extend_from_slice(&columns[columns.len() - Told::COUNT..]);
        answers_of(records, Arc::clone(&self.schema), declared)
    }
}

fn answers_of(records: &Batch, schema: SchemaRef, columns: Vec<ArrayRef>) -> Batch {
    let answers = RecordBatch::try_new(schema, columns).expect("answers have the columns of their schema");
    records.with_records(answers)
}

/// The schema of a stage's batches, whose tasks may differ in whether a query says `since`.
fn schema_of(stage: &[Placed<'_>]) -> SchemaRef {
    let Some((first, others)) = stage.split_first() else { return Arc::new(ArrowSchema::empty()) };
    let schema = first.batch.records().schema();
    let same = |other: &Placed<'_>| {
        let other = other.batch.records().schema_ref();
        Arc::ptr_eq(other, &schema) || *other == schema
    };
    if others.iter().all(same) {
        return schema;
    }
    let fields = schema.fields().iter().enumerate().map(|(column, field)| {
        let types = stage.iter().map(|part| part.batch.records().schema_ref().field(column).data_type());
        let structs: Vec<&Fields> = types
            .filter_map(
                |data_type| if let ArrowType::Struct(fields) = data_type { Some(fields) } else { None },
            )
            .collect();
        match structs.as_slice() {
            [] => Arc::clone(field),
            structs => {
                let fields = widest(structs.iter().copied()).clone();
                Arc::new(field.as_ref().clone().with_data_type(ArrowType::Struct(fields)))
            }
        }
    });
    Arc::new(ArrowSchema::new(fields.collect::<Fields>()))
}

fn field_count(query: &ArrowType) -> usize {
    if let ArrowType::Struct(fields) = query { fields.len() } else { 0 }
}

/// Whether a query's values are those of a declared one, perhaps with `since` after them.
fn begins_with(is: &ArrowType, wanted: &ArrowType) -> bool {
    let (ArrowType::Struct(is), ArrowType::Struct(wanted)) = (is, wanted) else { return false };
    is.len() >= wanted.len()
        && is
            .iter()
            .zip(wanted)
            .all(|(is, wanted)| is.name() == wanted.name() && is.data_type() == wanted.data_type())
}

/// A query's values as they are declared: without `since`.
fn without_rest(column: &ArrayRef, wanted: &ArrowType) -> ArrayRef {
    let ArrowType::Struct(fields) = wanted else { return Arc::clone(column) };
    let values = column.as_struct();
    if values.num_columns() == fields.len() {
        return Arc::clone(column);
    }
    let columns = values.columns()[..fields.len()].to_vec();
    Arc::new(StructArray::new(fields.clone(), columns, values.nulls().cloned()))
}

fn column_of(placed: &[Placed<'_>], column: usize, count: usize) -> ArrayRef {
    let parts: Vec<Part<'_>> =
        placed.iter().map(|placed| Part { array: placed.batch.column(column), rows: &placed.rows }).collect();
    scatter(&parts, count)
}

/// By row, names of values that did not fit.
fn misfits(placed: &[Vec<Placed<'_>>]) -> BTreeMap<u32, Vec<String>> {
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for part in placed.iter().flatten() {
        let Some(column) = Heard::of(part.batch).misfits else { continue };
        for (index, row) in part.rows.iter().enumerate().filter(|(index, _)| column.is_valid(*index)) {
            let items = column.value(index);
            let items = items.as_string_view();
            names.entry(*row).or_default().extend(items.iter().flatten().map(str::to_owned));
        }
    }
    names
}

impl Operator for Merge {
    fn process(&mut self, input: InputId, batch: Batch, _out: &mut Output<'_>) -> Result<(), Error> {
        match input.port.checked_sub(1) {
            None => self.records.push(batch),
            // Links cut batches where ranges of other inputs end: the batch is a run of rows of a larger batch, and
            // everything below takes row i of the columns for answer i.
            Some(stage) => self.answers[stage].push((input.task, batch.compact())),
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        let records = std::mem::take(&mut self.records);
        let records = match records.as_slice() {
            [] => return Ok(()),
            [one] => one.compact(),
            many => thalweg_flow::merge_batches(many, range)?,
        };
        self.merge(&records, out);
        Ok(())
    }

    fn input_order(&self) -> InputOrder {
        InputOrder::Grouped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_with_one_reason_are_named_together() {
        let of = |stages: &[(&str, &str)]| {
            let stages: Vec<_> = stages.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            reason_of(&stages)
        };
        assert_eq!(of(&[("card", "x"), ("global", "x")]), "x (refused by card, global)");
        assert_eq!(
            of(&[("card", "x"), ("shop", "y"), ("global", "x")]),
            "x (refused by card, global); y (refused by shop)"
        );
    }
}
