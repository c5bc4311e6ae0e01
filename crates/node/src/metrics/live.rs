//! Queries of a running job: adding, dropping and reading them through commands in the job's order.
//!
//! A command is numbered like a record, so every task of a stage takes a query on or off at the same place, and a present
//! value is as of one place of the order.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, new_null_array,
};
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_expr::{Expr, SqlErrors};
use thalweg_flow::{Command, Job};
use thalweg_types::{
    Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs, hash_columns, partition_of,
};
use thalweg_window::plan::PlannedQuery;
use thalweg_window::query::{Draft, Query};

use crate::drop_query::DropQuery;

use super::{MetricsSpec, StageChoice, StageCommand, bind_query, choose_stage, fields_of, refuse_name};

/// A task that does not answer a command within this time is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a query was not added, dropped or read.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("there is no query {name:?}")]
    Missing { name: String, known: Vec<String> },
    #[error("query {name:?} exists already")]
    Exists { name: String },
    #[error("{0}")]
    Sql(SqlErrors),
    #[error("{0}")]
    Failed(Error),
}

impl From<Error> for QueryError {
    fn from(error: Error) -> Self {
        QueryError::Failed(error)
    }
}

/// A present value as the control plane shows it.
#[derive(Clone, Debug)]
pub struct PresentValue {
    /// The GROUP BY fields as they print.
    pub key: serde_json::Map<String, serde_json::Value>,
    /// The query's object, as in an answer.
    pub values: serde_json::Value,
    /// Task time; `None` where no record has come.
    pub as_of: Option<Micros>,
}

/// The queries of one running `metrics` operator.
pub struct LiveQueries {
    spec: Arc<MetricsSpec>,
    /// Tasks of each keyed stage.
    partitions: u32,
    /// Held while a query is added or dropped, which takes as long as the job needs, so that two requests do not
    /// interleave.
    changing: Mutex<()>,
    /// Held for moments.
    queries: Mutex<Vec<Live>>,
    /// Held for moments.
    dropped: Mutex<Vec<DroppedQuery>>,
}

/// A query that failed, and was dropped for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedQuery {
    pub name: String,
    pub text: String,
    /// What failed.
    pub said: String,
}

/// Most dropped queries that are remembered for the live graph; the oldest is forgotten for another.
const MOST_DROPPED: usize = 32;

/// A query that was added to a running job or dropped from it, as order log and commit records hold it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct QueryChange {
    pub operator: String,
    pub query: String,
    /// `None`: dropped.
    pub text: Option<String>,
    /// The query of the job file that was dropped, perhaps before another one got its name: a job file that gives the
    /// name to a third one has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
}

impl QueryChange {
    /// Whether it is made to the query of this text: the job file has it, and it was dropped.
    pub(crate) fn is_of(&self, text: &str) -> bool {
        let Some(dropped) = &self.dropped else { return self.text.is_none() };
        let fingerprint = |text: &str| Query::parse(text).map(|query| query.fingerprint()).ok();
        dropped == text || fingerprint(dropped) == fingerprint(text)
    }

    /// What is left of the change in a start without some queries: nothing of one that was added, but that another was
    /// dropped for it.
    pub(crate) fn without(&self, dropped: &[DropQuery]) -> Option<Self> {
        if self.text.is_none() || !dropped.iter().any(|dropped| dropped.is(&self.operator, &self.query)) {
            return Some(self.clone());
        }
        tracing::warn!(
            operator = self.operator.as_str(),
            query = self.query.as_str(),
            "dropped a query that was added"
        );
        self.dropped.is_some().then(|| Self { text: None, ..self.clone() })
    }

    fn record(&self) -> bytes::Bytes {
        // Names and texts are always JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// # Errors
    /// Where the bytes are no change.
    pub(crate) fn of_record(record: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(record)
            .map_err(|error| Error::corrupt("the order log holds an unknown command").with_source(error))
    }
}

#[derive(Clone)]
struct Live {
    name: String,
    /// As written.
    text: String,
    stage: usize,
    planned: PlannedQuery,
    is_added: bool,
}

impl MetricsSpec {
    /// The stage that runs a query.
    ///
    /// # Errors
    /// Where none can.
    pub(super) fn stage_for(&self, query: &PlannedQuery) -> Result<usize, QueryError> {
        let keys: Vec<Vec<usize>> = self.stages.iter().map(|stage| stage.keys.clone()).collect();
        let found = match choose_stage(&keys, &query.group_by) {
            StageChoice::Keyed(stage) => Some(stage),
            StageChoice::Global => keys.iter().position(Vec::is_empty),
            StageChoice::Nowhere => None,
        };
        found.ok_or_else(|| {
            let labels: Vec<&str> = self.stages.iter().map(|stage| stage.label.as_str()).collect();
            let message = format!(
                "expected a query that groups by a key of a running stage ({}), got one that does not",
                labels.join(", ")
            );
            QueryError::Failed(Error::user(message).with_hint(
                "stages are fixed while a job runs: add the key to partition_by, or [] for queries without GROUP BY, \
                 and start the job again",
            ))
        })
    }
}

impl LiveQueries {
    /// Those that the job starts with.
    pub fn new(spec: &Arc<MetricsSpec>, partitions: u32) -> Self {
        let queries = spec.stages.iter().enumerate().flat_map(|(stage, queries)| {
            queries.queries.iter().map(move |query| {
                let planned = PlannedQuery::bind(&query.name, &query.query, &spec.input)
                    .expect("queries of a checked job are bound");
                let (name, text, is_added) = (query.name.clone(), query.text.clone(), query.is_added);
                Live { name, text, stage, planned, is_added }
            })
        });
        let queries = Mutex::new(queries.collect());
        let (changing, dropped) = (Mutex::default(), Mutex::default());
        Self { spec: Arc::clone(spec), partitions, changing, queries, dropped }
    }

    /// Names and texts of the queries that run now.
    pub fn list(&self) -> Vec<(String, String)> {
        self.queries().iter().map(|query| (query.name.clone(), query.text.clone())).collect()
    }

    fn queries(&self) -> MutexGuard<'_, Vec<Live>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a query; its answers begin with the next record, and carry `since` until its window has filled.
    ///
    /// # Errors
    /// Where the name is taken, the text is no query over the operator's records, or no stage of the job can run it.
    pub fn add(&self, job: &Job, name: &str, sql: &str) -> Result<(), QueryError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let spec = &self.spec;
        if self.queries().iter().any(|query| query.name == name) || spec.input.field(name).is_some() {
            return Err(QueryError::Exists { name: name.to_owned() });
        }
        // What a job file would not take the job could not go on with.
        if let Some((what, hint)) = refuse_name(name, &spec.input) {
            return Err(QueryError::Failed(Error::user(what).with_hint(hint)));
        }
        let operator = format!("operator {:?}", spec.name);
        let (query, _, planned) =
            bind_query(&operator, name, sql, &spec.input, &spec.above).map_err(QueryError::Sql)?;
        let stage = self.spec.stage_for(&planned)?;
        let command = |reply| StageCommand::Add { name: name.to_owned(), query: Box::new(query), reply };
        let change = QueryChange {
            operator: self.spec.name.to_string(),
            query: name.to_owned(),
            text: Some(sql.to_owned()),
            dropped: None,
        };
        let replies = self.ask(job, stage, Some(&change), command)?;
        for _ in 0..self.tasks(stage) {
            receive(&replies)??;
        }
        let (name, text) = (name.to_owned(), sql.to_owned());
        self.queries().push(Live { name, text, stage, planned, is_added: true });
        Ok(())
    }

    /// Makes the command of a change again that the order log holds; one that does nothing where the job file has been
    /// changed since so that the name is another query's.
    ///
    /// # Errors
    /// Of class user where the job has been changed so that it has no place for the query.
    pub(crate) fn again(&self, change: &QueryChange) -> Result<Command, Error> {
        let name = change.query.clone();
        let found = self.find(&name);
        let (stage, command) = match (&change.text, found) {
            (Some(text), Err(_)) => {
                let unfit = || {
                    Error::user(format!(
                        "query {name:?} was added to operator {:?} while the job ran, and does not fit it any more",
                        change.operator
                    ))
                    .with_hint(format!(
                        "change the job file back, or start without the query: --drop-query {}/{name}",
                        change.operator
                    ))
                };
                let (query, _) = Draft::read(text).bind(&self.spec.input).map_err(|_| unfit())?;
                let planned = PlannedQuery::bind(&name, &query, &self.spec.input).map_err(|_| unfit())?;
                let stage = self.spec.stage_for(&planned).map_err(|_| unfit())?;
                let live = Live { name: name.clone(), text: text.clone(), stage, planned, is_added: true };
                self.queries().push(live);
                (stage, StageCommand::Add { name, query: Box::new(query), reply: mpsc::channel().0 })
            }
            (None, Ok(Live { stage, text, .. })) if change.is_of(&text) => {
                self.queries().retain(|query| query.name != name);
                (stage, StageCommand::Drop { name, reply: mpsc::channel().0 })
            }
            _ => return Ok(Command::nothing()),
        };
        Ok(Command { operator: self.operator_of(stage), body: Arc::new(command), record: None })
    }

    fn operator_of(&self, stage: usize) -> Arc<str> {
        format!("{}/{}", self.spec.name, self.spec.stages[stage].label).into()
    }

    /// Drops a query; the next answer is without it.
    ///
    /// # Errors
    /// If there is no query of that name.
    pub fn drop(&self, job: &Job, name: &str) -> Result<(), QueryError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.find(name)?;
        self.drop_live(job, live)
    }

    /// Drops a query that was added and fails, where the name is still that query's.
    ///
    /// # Errors
    /// Where the job does not take the command.
    pub(super) fn drop_failed(
        &self,
        job: &Job,
        name: &str,
        text: &str,
        said: &str,
    ) -> Result<(), QueryError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let live = match self.find(name) {
            Ok(live) if live.is_added && live.text == text => live,
            _ => return Ok(()),
        };
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.retain(|other| other.name != name);
        if dropped.len() >= MOST_DROPPED {
            dropped.remove(0);
        }
        dropped.push(DroppedQuery { name: name.to_owned(), text: text.to_owned(), said: said.to_owned() });
        std::mem::drop(dropped);
        self.drop_live(job, live)
    }

    /// Queries that failed and were dropped by themselves since the start, the latest last.
    pub fn dropped(&self) -> Vec<DroppedQuery> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn drop_live(&self, job: &Job, Live { name, stage, text, .. }: Live) -> Result<(), QueryError> {
        let name = name.as_str();
        let change = QueryChange {
            operator: self.spec.name.to_string(),
            query: name.to_owned(),
            text: None,
            dropped: Some(text),
        };
        let command = |reply| StageCommand::Drop { name: name.to_owned(), reply };
        let replies = self.ask(job, stage, Some(&change), command)?;
        for _ in 0..self.tasks(stage) {
            receive(&replies)??;
        }
        self.queries().retain(|query| query.name != name);
        Ok(())
    }

    /// The present values of a query for one group; `key` names the GROUP BY fields with their values as text, `None`
    /// for null.
    ///
    /// # Errors
    /// Where there is no such query or the key does not fit its GROUP BY.
    pub fn read(
        &self,
        job: &Job,
        name: &str,
        key: &[(String, Option<String>)],
    ) -> Result<PresentValue, QueryError> {
        let live = self.find(name)?;
        let columns = self.key_columns(&live, key)?;
        let stage_keys: Vec<ArrayRef> = self.spec.stages[live.stage]
            .keys
            .iter()
            .map(|field| {
                let found = columns.iter().find(|(other, _)| other == field);
                Arc::clone(&found.expect("a query groups by the key of its stage").1)
            })
            .collect();
        let task = partition_of(hash_columns(&stage_keys, 1)[0], self.tasks(live.stage));
        let shown = columns.clone();
        let command = |reply| StageCommand::Read { name: name.to_owned(), task, key: columns, reply };
        let replies = self.ask(job, live.stage, None, command)?;
        let present = receive(&replies)??;
        let fields: Vec<Field> =
            shown.iter().map(|(field, _)| self.spec.input.fields()[*field].clone()).collect();
        let key = to_json(&Schema::new(fields), shown.into_iter().map(|(_, column)| column).collect())?;
        let schema =
            Schema::new(vec![Field::new(name, data_type_of(&live.planned, &present.values)).nullable()]);
        let mut values = to_json(&schema, vec![present.values])?;
        let values = values.remove(name).unwrap_or_default();
        Ok(PresentValue { key, values, as_of: present.as_of })
    }

    /// One-row columns of the fields that GROUP BY reads.
    fn key_columns(
        &self,
        live: &Live,
        key: &[(String, Option<String>)],
    ) -> Result<Vec<(usize, ArrayRef)>, QueryError> {
        let fields = fields_of(&live.planned.group_by);
        let wanted: Vec<&str> =
            fields.iter().map(|field| self.spec.input.fields()[*field].name.as_str()).collect();
        let is_fit =
            key.len() == wanted.len() && wanted.iter().all(|name| key.iter().any(|(other, _)| other == name));
        if !is_fit {
            let given: Vec<&str> = key.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Error::user(format!(
                "expected a value for each field of the GROUP BY of query {:?} ({}), got {}",
                live.name,
                if wanted.is_empty() { "it has none".to_owned() } else { wanted.join(", ") },
                if given.is_empty() { "none".to_owned() } else { given.join(", ") },
            ))
            .with_hint(format!(
                "ask with ?{}",
                wanted.iter().map(|name| format!("{name}=…")).collect::<Vec<_>>().join("&")
            ))
            .into());
        }
        fields
            .iter()
            .map(|field| {
                let described = &self.spec.input.fields()[*field];
                let (_, text) =
                    key.iter().find(|(name, _)| *name == described.name).expect("all names have been found");
                Ok((*field, one_row(text.as_deref(), described)?))
            })
            .collect()
    }

    fn find(&self, name: &str) -> Result<Live, QueryError> {
        let queries = self.queries();
        queries.iter().find(|query| query.name == name).cloned().ok_or_else(|| QueryError::Missing {
            name: name.to_owned(),
            known: queries.iter().map(|query| query.name.clone()).collect(),
        })
    }

    fn tasks(&self, stage: usize) -> u32 {
        if self.spec.stages[stage].keys.is_empty() { 1 } else { self.partitions }
    }

    fn ask<T>(
        &self,
        job: &Job,
        stage: usize,
        change: Option<&QueryChange>,
        command: impl FnOnce(mpsc::Sender<T>) -> StageCommand,
    ) -> Result<Receiver<T>, QueryError> {
        let (reply, replies) = mpsc::channel();
        job.command(Command {
            operator: self.operator_of(stage),
            body: Arc::new(command(reply)),
            record: change.map(QueryChange::record),
        })?;
        Ok(replies)
    }
}

fn receive<T>(replies: &Receiver<T>) -> Result<T, QueryError> {
    replies.recv_timeout(PATIENCE).map_err(|_| {
        QueryError::Failed(
            Error::external("the job did not take the command in time")
                .with_hint("it has ended, or its sinks are slow: see its queue depths"),
        )
    })
}

/// A column of one value, read from text.
fn one_row(text: Option<&str>, field: &Field) -> Result<ArrayRef, QueryError> {
    let Some(text) = text else { return Ok(new_null_array(&field.data_type.to_arrow(), 1)) };
    if let (DataType::Timestamp(unit), Ok(count)) = (&field.data_type, text.parse::<i64>()) {
        let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![unit.to_micros(count)]));
        return arrow_cast::cast(&micros, &field.data_type.to_arrow())
            .map_err(|error| Error::user(format!("key field {:?}: {error}", field.name)).into());
    }
    let mistaken = || {
        QueryError::from(Error::user(format!(
            "key field {:?}: expected a value of type {}, got {text:?}",
            field.name, field.data_type
        )))
    };
    let quoted = text.replace('\'', "''");
    let schema = Schema::empty();
    let bound = Expr::parse(&format!("TRY_CAST('{quoted}' AS {})", field.data_type))
        .and_then(|expr| expr.bind(&schema))
        .map_err(|_| mistaken())?;
    let row = RecordBatch::try_new_with_options(
        Arc::clone(schema.arrow()),
        Vec::new(),
        &RecordBatchOptions::new().with_row_count(Some(1)),
    )
    .expect("a row without columns");
    let column = bound.evaluate(&row).map_err(|_| mistaken())?;
    if column.is_null(0) { Err(mistaken()) } else { Ok(column) }
}

/// A query's type, with `since` where its column has it.
fn data_type_of(query: &PlannedQuery, values: &ArrayRef) -> DataType {
    let DataType::Struct(mut fields) = query.data_type() else { unreachable!("a query's type is a struct") };
    if let arrow_schema::DataType::Struct(stored) = values.data_type() {
        let since = stored.len().saturating_sub(fields.len());
        fields.extend(PlannedQuery::since_fields().into_iter().take(since));
    }
    DataType::Struct(fields)
}

/// One row as JSON, as NDJSON answers print it.
fn to_json(
    schema: &Schema,
    columns: Vec<ArrayRef>,
) -> Result<serde_json::Map<String, serde_json::Value>, QueryError> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let records = RecordBatch::try_new_with_options(Arc::clone(schema.arrow()), columns, &options)
        .map_err(|error| Error::internal(format!("show a value: {error}")))?;
    let batch = Batch::new(SeqRange::new(0, 1), records, vec![0].into(), Seqs::Dense(0));
    let mut text = Vec::new();
    Ndjson.encoder(schema, &Options::default())?.encode_row(&batch, 0, &mut text);
    serde_json::from_slice(&text).map_err(|error| Error::internal(format!("show a value: {error}")).into())
}
