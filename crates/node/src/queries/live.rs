//! Queries of a running job: adding, dropping and reading them through commands in the job's order.
//!
//! A command is numbered like a record, so every task of a part takes a query on or off at the same place, and a present
//! value is as of one place of the order.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, new_null_array,
};
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_expr::Expr;
use thalweg_flow::{Command, Job};
use thalweg_types::{
    Batch, DataType, Error, Field, Micros, Schema, SeqRange, Seqs, hash_columns, partition_of,
};

use super::{Queries, QueryChange, QueryCommand, QueryError, QueryPlan, QueryText};

/// A task that does not answer a command within this time is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// The queries of one operator of a running job.
pub struct LiveQueries {
    operator: Arc<str>,
    /// The operator as it was started.
    queries: Arc<dyn Queries>,
    parts: Vec<LivePart>,
    /// Held while a query is added or dropped, which takes as long as the job needs, so that two requests do not
    /// interleave.
    changing: Mutex<()>,
    /// Held for moments.
    running: Mutex<Vec<Live>>,
    /// Held for moments.
    dropped: Mutex<Vec<DroppedQuery>>,
}

/// A part of the operator in the graph.
#[derive(Clone, Debug)]
pub(crate) struct LivePart {
    pub(crate) node: Arc<str>,
    pub(crate) tasks: u32,
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

#[derive(Clone)]
struct Live {
    query: QueryText,
    plan: QueryPlan,
}

impl LiveQueries {
    /// Those that the job starts with.
    ///
    /// # Errors
    /// Where one of them has no plan, which a checked job has none of.
    pub(crate) fn new(
        operator: &Arc<str>,
        queries: &Arc<dyn Queries>,
        parts: Vec<LivePart>,
    ) -> Result<Self, Error> {
        let plan = |query: QueryText| match queries.plan(&query.name, &query.text) {
            Ok(plan) => Ok(Live { query, plan }),
            Err(error) => Err(Error::internal(format!("plan query {:?}: {error}", query.name))),
        };
        let running = queries.list().into_iter().map(plan).collect::<Result<_, _>>()?;
        Ok(Self {
            operator: Arc::clone(operator),
            queries: Arc::clone(queries),
            parts,
            changing: Mutex::default(),
            running: Mutex::new(running),
            dropped: Mutex::default(),
        })
    }

    /// Names and texts of the queries that run now.
    pub fn list(&self) -> Vec<(String, String)> {
        self.running().iter().map(|live| (live.query.name.clone(), live.query.text.clone())).collect()
    }

    fn running(&self) -> MutexGuard<'_, Vec<Live>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a query; its answers begin with the next record, and carry `since` until its window has filled.
    ///
    /// # Errors
    /// Where the name is taken, the text is no query over the operator's records, or no stage of the job can run it.
    pub fn add(&self, job: &Job, name: &str, sql: &str) -> Result<(), QueryError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.running().iter().any(|live| live.query.name == name) {
            return Err(QueryError::Exists { name: name.to_owned() });
        }
        let plan = self.queries.plan(name, sql)?;
        let query = QueryText { name: name.to_owned(), text: sql.to_owned(), is_added: true };
        let change = self.change(name, Some(sql), None);
        self.ask_all(job, plan.part, &change, |reply| QueryCommand::Add {
            name: name.to_owned(),
            text: sql.to_owned(),
            reply,
        })?;
        self.running().push(Live { query, plan });
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
        let (part, command) = match (&change.text, found) {
            (Some(text), Err(_)) => {
                let plan = self.queries.plan(&name, text).map_err(|_| {
                    Error::user(format!(
                        "query {name:?} was added to operator {:?} while the job ran, and does not fit it any more",
                        change.operator
                    ))
                    .with_hint(format!(
                        "change the job file back, or start without the query: --drop-query {}/{name}",
                        change.operator
                    ))
                })?;
                let part = plan.part;
                let query = QueryText { name: name.clone(), text: text.clone(), is_added: true };
                self.running().push(Live { query, plan });
                (part, QueryCommand::Add { name, text: text.clone(), reply: mpsc::channel().0 })
            }
            (None, Ok(Live { query, plan })) if change.is_of(&query.text, self.queries.as_ref()) => {
                self.running().retain(|live| live.query.name != name);
                (plan.part, QueryCommand::Drop { name, reply: mpsc::channel().0 })
            }
            _ => return Ok(Command::nothing()),
        };
        Ok(Command { operator: Arc::clone(&self.parts[part].node), body: Arc::new(command), record: None })
    }

    fn change(&self, name: &str, text: Option<&str>, dropped: Option<String>) -> QueryChange {
        QueryChange {
            operator: self.operator.to_string(),
            query: name.to_owned(),
            text: text.map(str::to_owned),
            dropped,
        }
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
            Ok(live) if live.query.is_added && live.query.text == text => live,
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

    fn drop_live(&self, job: &Job, Live { query, plan }: Live) -> Result<(), QueryError> {
        let QueryText { name, text, .. } = query;
        let change = self.change(&name, None, Some(text));
        self.ask_all(job, plan.part, &change, |reply| QueryCommand::Drop { name: name.clone(), reply })?;
        self.running().retain(|live| live.query.name != name);
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
        let plan = self.find(name)?.plan;
        let columns = key_columns(name, &plan.key, key)?;
        let task = plan.task_of_columns(&columns, self.parts[plan.part].tasks);
        let named = plan.key.iter().map(|field| field.name.clone()).zip(columns.iter().cloned()).collect();
        let (reply, replies) = mpsc::channel();
        self.send(
            job,
            plan.part,
            None,
            QueryCommand::Read { name: name.to_owned(), task, key: named, reply },
        )?;
        let present = receive(&replies)??;
        let key = to_json(&Schema::new(plan.key), columns)?;
        let schema = Schema::new(vec![Field::new(name, present.data_type).nullable()]);
        let mut values = to_json(&schema, vec![present.values])?;
        let values = values.remove(name).unwrap_or_default();
        Ok(PresentValue { key, values, as_of: present.as_of })
    }

    fn find(&self, name: &str) -> Result<Live, QueryError> {
        let running = self.running();
        running.iter().find(|live| live.query.name == name).cloned().ok_or_else(|| QueryError::Missing {
            name: name.to_owned(),
            known: running.iter().map(|live| live.query.name.clone()).collect(),
        })
    }

    /// Gives every task of a part a command that changes its queries, and waits until all have taken it.
    fn ask_all(
        &self,
        job: &Job,
        part: usize,
        change: &QueryChange,
        command: impl FnOnce(mpsc::Sender<Result<(), Error>>) -> QueryCommand,
    ) -> Result<(), QueryError> {
        let (reply, replies) = mpsc::channel();
        self.send(job, part, Some(change), command(reply))?;
        for _ in 0..self.parts[part].tasks {
            receive(&replies)??;
        }
        Ok(())
    }

    fn send(
        &self,
        job: &Job,
        part: usize,
        change: Option<&QueryChange>,
        command: QueryCommand,
    ) -> Result<(), Error> {
        job.command(Command {
            operator: Arc::clone(&self.parts[part].node),
            body: Arc::new(command),
            record: change.map(QueryChange::record),
        })
    }
}

impl QueryPlan {
    /// The task of `tasks` that has a group; `key` as of [`LiveQueries::read`].
    ///
    /// # Errors
    /// Where the key does not fit the GROUP BY of the query.
    #[cfg(feature = "cluster")]
    pub(crate) fn task_of(
        &self,
        query: &str,
        key: &[(String, Option<String>)],
        tasks: u32,
    ) -> Result<u32, QueryError> {
        Ok(self.task_of_columns(&key_columns(query, &self.key, key)?, tasks))
    }

    fn task_of_columns(&self, key: &[ArrayRef], tasks: u32) -> u32 {
        let split_by: Vec<ArrayRef> = self.split_by.iter().map(|place| Arc::clone(&key[*place])).collect();
        partition_of(hash_columns(&split_by, 1)[0], tasks)
    }
}

/// One-row columns of the fields of a query's key, of their values as text.
fn key_columns(
    query: &str,
    fields: &[Field],
    key: &[(String, Option<String>)],
) -> Result<Vec<ArrayRef>, QueryError> {
    let wanted: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let is_fit =
        key.len() == wanted.len() && wanted.iter().all(|name| key.iter().any(|(other, _)| other == name));
    if !is_fit {
        let given: Vec<&str> = key.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::user(format!(
            "expected a value for each field of the GROUP BY of query {query:?} ({}), got {}",
            if wanted.is_empty() { "it has none".to_owned() } else { wanted.join(", ") },
            if given.is_empty() { "none".to_owned() } else { given.join(", ") },
        ))
        .with_hint(format!(
            "ask with ?{}",
            wanted.iter().map(|name| format!("{name}=…")).collect::<Vec<_>>().join("&")
        ))
        .into());
    }
    let values = fields.iter().map(|field| {
        let (_, text) = key.iter().find(|(name, _)| *name == field.name).expect("all names have been found");
        one_row(text.as_deref(), field)
    });
    values.collect()
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
