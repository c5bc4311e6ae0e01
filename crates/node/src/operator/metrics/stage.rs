//! A keyed stage as an operator: one partition's windows, and its values for the merge.
//!
//! For every record that it gets it sends one row ([`message`]). The records themselves reach the merge by another link,
//! so a stage copies only the fields that its queries read.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::{ArrayRef, BooleanArray, StringViewArray, new_null_array};
use arrow_schema::{DataType as ArrowType, Field as ArrowField, SchemaRef};
use thalweg_flow::{CacheCounts, Command, Held, InputId, JudgedCounts, Operator, Output};
use thalweg_types::{Batch, DataType, Error, Micros, RecordPlace, Schema, Seqs};
use thalweg_window::plan::PlannedQuery;
use thalweg_window::query::Query;
use thalweg_window::stage::{Answers, CacheStats, Stage};

use super::super::late::{LateRecord, late_reason};
use super::durable::DurableStage;
use super::message::{self, Said};
use super::spec::plan_query;
use crate::queries::{FailingQueries, Present, QueryCommand};

/// The queries of a task that were added while the job ran, and the receiver of their failures.
pub(super) struct Added {
    operator: Arc<str>,
    failing: FailingQueries,
    /// By name, the text.
    texts: BTreeMap<String, String>,
}

impl Added {
    pub(super) fn new(operator: &Arc<str>, failing: &FailingQueries) -> Self {
        Self { operator: Arc::clone(operator), failing: failing.clone(), texts: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
    }

    fn report(&self, failed: &[(String, String)]) {
        for (name, said) in failed {
            if let Some(text) = self.texts.get(name) {
                self.failing.report(&self.operator, name, text, said);
            }
        }
    }
}

pub(super) struct StageOperator {
    pub(super) stage: Stage,
    pub(super) task: u32,
    /// Names of the fields of the records.
    fields: Vec<String>,
    /// Schema of the sent batches, made again when queries come or go.
    schema: Option<SchemaRef>,
    /// `None` where the job does not outlive its process.
    durable: Option<DurableStage>,
    judged: JudgedCounts,
    added: Added,
}

impl StageOperator {
    pub(super) fn new(
        stage: Stage,
        task: u32,
        input: &Schema,
        added: Added,
        durable: Option<DurableStage>,
    ) -> Self {
        let fields = input.names().map(str::to_owned).collect();
        Self { stage, task, fields, schema: None, durable, judged: JudgedCounts::default(), added }
    }

    fn schema(&mut self) -> SchemaRef {
        let stage = &self.stage;
        let schema = self.schema.get_or_insert_with(|| {
            let queries = stage.queries();
            message::schema(
                queries.map(|(name, data_type)| ArrowField::new(name, data_type.to_arrow(), true)).collect(),
            )
        });
        Arc::clone(schema)
    }

    /// Why records were refused as late; the newest record is known from here on. Order numbers are not looked up further
    /// down, where they may be forgotten.
    fn late(&mut self, answers: &Answers, batch: &Batch, out: &Output<'_>) -> ArrayRef {
        let place = |row: u32| out.place_of(batch.seq(batch.row(row as usize))).map(RecordPlace::from);
        let refused = if answers.late_refused { answers.late.as_slice() } else { &[] };
        let mut reasons: Vec<Option<String>> = vec![None; if refused.is_empty() { 0 } else { batch.len() }];
        let mut found: (Option<u32>, Option<RecordPlace>) = (None, self.stage.newest().cloned());
        for row in refused {
            let (now, mover) = answers.task_times.newest(*row);
            if mover != found.0 {
                found = (mover, mover.and_then(place));
            }
            reasons[*row as usize] = Some(late_reason(&LateRecord {
                time: batch.times()[batch.row(*row as usize) as usize],
                now,
                newest: found.1.as_ref(),
                lateness: self.stage.lateness(),
                is_closed: answers.closed.binary_search(row).is_ok(),
            }));
        }
        if let Some(mover) = answers.task_times.mover() {
            self.stage.set_newest(if found.0 == Some(mover) { found.1 } else { place(mover) });
        }
        if refused.is_empty() {
            return new_null_array(&ArrowType::Utf8View, batch.len());
        }
        Arc::new(StringViewArray::from_iter(reasons))
    }

    fn message(&mut self, answers: Answers, late: ArrayRef, batch: &Batch) -> Batch {
        let count = batch.len();
        let schema = self.schema();
        let misfits = match answers.misfits.is_empty() {
            true => new_null_array(&message::misfits().to_arrow(), count),
            false => self.misfits(&answers.misfits, count),
        };
        let said = Said { late, duplicate: marked(&answers.duplicate, count), misfits };
        let records = message::batch(schema, answers.values, said);
        let (times, seqs): (Vec<Micros>, Vec<u64>) =
            batch.row_numbers().map(|row| (batch.times()[row as usize], batch.seq(row))).unzip();
        Batch::new(batch.range(), records, times.into(), Seqs::Each(seqs.into()))
    }

    fn misfits(&self, misfits: &[(u32, u32, u32)], count: usize) -> ArrayRef {
        let queries: Vec<(&str, &DataType)> = self.stage.queries().collect();
        let mut lists = ListBuilder::new(StringViewBuilder::new());
        let mut next = misfits.iter().peekable();
        for row in 0..count as u32 {
            let mut is_any = false;
            while let Some((_, query, output)) = next.next_if(|(other, ..)| *other == row) {
                let (name, data_type) = queries[*query as usize];
                let DataType::Struct(fields) = data_type else { continue };
                lists.values().append_value(format!("{name}.{}", fields[*output as usize].name));
                is_any = true;
            }
            lists.append(is_any);
        }
        Arc::new(lists.finish())
    }

    fn obey(&mut self, command: &QueryCommand) {
        // The asking thread may have gone meanwhile: an answer without a receiver is not a failure.
        match command {
            QueryCommand::Add { name, text, reply } => {
                let _ = reply.send(self.add(name, text));
            }
            QueryCommand::Drop { name, reply } => {
                self.stage.drop_query(name);
                self.added.texts.remove(name);
                self.schema = None;
                let _ = reply.send(Ok(()));
            }
            QueryCommand::Read { name, task, key, reply } => {
                if *task == self.task {
                    let _ = reply.send(self.read(name, key));
                }
            }
        }
    }

    fn add(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let query = Query::parse(text)
            .map_err(|error| Error::user(format!("query {name:?}: {}", error.render(text))))?;
        let planned = plan_query(&mut self.stage, name, &query)?;
        self.stage.add_queries(&[planned])?;
        self.stage.guard_query(name);
        self.added.add(name, text);
        self.schema = None;
        Ok(())
    }

    fn read(&mut self, name: &str, key: &[(String, ArrayRef)]) -> Result<Present, Error> {
        let missing = || Error::user(format!("no query {name:?}"));
        let fields = self.stage.group_fields(name).ok_or_else(missing)?;
        let ordered: Vec<ArrayRef> = fields
            .iter()
            .map(|place| {
                let field = &self.fields[*place];
                let found = key.iter().find(|(other, _)| other == field);
                found.map(|(_, value)| Arc::clone(value)).ok_or_else(|| {
                    Error::user(format!("query {name:?} needs a value for each field of its GROUP BY"))
                })
            })
            .collect::<Result<_, _>>()?;
        let present = self.stage.read(name, &ordered)?.ok_or_else(missing)?;
        let data_type = self.stage.queries().find(|(other, _)| *other == name).ok_or_else(missing)?.1;
        let data_type = with_since(data_type, &present.values);
        Ok(Present { data_type, values: present.values, as_of: present.as_of })
    }
}

/// A query's type, with `since` where its column has it.
fn with_since(query: &DataType, values: &ArrayRef) -> DataType {
    let mut data_type = query.clone();
    if let (DataType::Struct(fields), ArrowType::Struct(stored)) = (&mut data_type, values.data_type()) {
        let since = stored.len().saturating_sub(fields.len());
        fields.extend(PlannedQuery::since_fields().into_iter().take(since));
    }
    data_type
}

/// A column that is true at the given rows, and null elsewhere.
fn marked(rows: &[u32], count: usize) -> ArrayRef {
    if rows.is_empty() {
        return new_null_array(&ArrowType::Boolean, count);
    }
    let mut flags = vec![None; count];
    for row in rows {
        flags[*row as usize] = Some(true);
    }
    Arc::new(BooleanArray::from(flags))
}

impl Operator for StageOperator {
    fn process(&mut self, _input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        if let Some(first) = batch.row_numbers().next() {
            out.working_on(batch.seq(first));
        }
        let answers = self.stage.answer(&batch)?;
        self.judged.late += answers.late.len() as u64;
        self.judged.duplicates += answers.duplicate.len() as u64;
        self.added.report(&answers.failed);
        let late = self.late(&answers, &batch, out);
        let answers = self.message(answers, late, &batch);
        out.emit(0, answers);
        match &mut self.durable {
            Some(durable) => durable.after_batch(&mut self.stage, batch.len(), out),
            None => Ok(()),
        }
    }

    fn tick(&mut self, _now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        match &mut self.durable {
            Some(durable) => durable.at_tick(&mut self.stage, out),
            None => Ok(()),
        }
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        match &mut self.durable {
            Some(durable) => durable.begin(&mut self.stage, cycle, out),
            None => Ok(()),
        }
    }

    fn takes_part(&self) -> bool {
        self.durable.is_some()
    }

    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        match &mut self.durable {
            Some(durable) => durable.finish(&mut self.stage, out),
            None => Ok(()),
        }
    }

    fn command(&mut self, command: &Command, _out: &mut Output<'_>) -> Result<(), Error> {
        if let Some(command) = command.body.downcast_ref::<QueryCommand>() {
            self.obey(command);
        }
        if let Some(Held(time)) = command.body.downcast_ref() {
            self.stage.hold(*time);
        }
        Ok(())
    }

    fn rows_at_once(&mut self, batch: &Batch) -> usize {
        self.stage.rows_at_once(batch)
    }

    fn task_time(&self) -> Option<Micros> {
        self.stage.task_time()
    }

    fn state_bytes(&self) -> usize {
        self.stage.state_bytes()
    }

    fn judged_counts(&self) -> Option<JudgedCounts> {
        Some(self.judged)
    }

    fn cache_counts(&self) -> Option<CacheCounts> {
        let stats = self.stage.cache_stats()?;
        let index_bytes = self.durable.as_ref().map_or(0, DurableStage::index_bytes);
        let CacheStats { resident, cold, ids, cold_ids, hits, misses, filled, evictions, key_bytes, .. } =
            stats;
        Some(CacheCounts {
            keys: resident + ids,
            stored: resident + cold + ids + cold_ids,
            key_bytes: key_bytes + index_bytes,
            hits,
            misses,
            filled,
            evictions,
        })
    }
}
