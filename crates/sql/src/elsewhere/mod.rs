//! Rows of a table that other nodes of a cluster have, asked for over HTTP while the query runs.
//!
//! Each [`Share`] is one question, `POST /v1/sql` with a `SELECT` of the columns that are read, and one stream of Arrow
//! batches. Its headers name the plan and the partitions; the node that is asked answers with the rows of exactly these, or
//! refuses. So each row comes once, whatever the control log says meanwhile.
//!
//! What is asked for are rows ([`scan`]) or, where all of the question has a text ([`text`]), groups with their sums and
//! counts ([`Groups`]), which the other node computes as it does for its own clients: with its rollups.

pub(crate) mod text;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_cast::display::FormatOptions;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DataFusionError;
use datafusion::datasource::TableType;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures_util::stream::try_unfold;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use thalweg_table::{Share, Snapshot};
use thalweg_types::{Error, Retry};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::text::quoted;
use crate::bounds::Bounds;
use crate::fault::ours;

/// The plan by which another node is asked.
const PLAN: &str = "thalweg-plan";

/// The header of a question to another node that says of which rows it is: `STAGE:PARTITION,PARTITION,…`.
pub const PARTITIONS: &str = "thalweg-partitions";

/// How long a node may take until its next bytes come. It waits for its records first, and has its own limit on queries.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much is read of an answer that is an error.
const LARGEST_ERROR: usize = 64 << 10;

/// Which rows are asked for.
pub(crate) struct Wanted<'a> {
    /// The table, or a rollup of it.
    pub(crate) table: String,
    /// Its column with the event time.
    pub(crate) time: &'a str,
    pub(crate) bounds: Bounds,
    pub(crate) filters: &'a [Expr],
    pub(crate) limit: Option<usize>,
}

/// A plan that asks all shares of a snapshot for these columns of `schema`. Conditions that have a text go along, and all are
/// checked again here.
pub(crate) fn scan(
    snapshot: &Snapshot,
    schema: &SchemaRef,
    projection: Option<&Vec<usize>>,
    Wanted { table, time, bounds, filters, limit }: Wanted<'_>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let wanted = match projection {
        Some(places) => Arc::new(schema.project(places)?),
        None => Arc::clone(schema),
    };
    let mut columns: Vec<String> = wanted.fields().iter().map(|field| quoted(field.name())).collect();
    if columns.is_empty() {
        // A query that only counts rows reads no column.
        columns.push(quoted(time));
    }
    let in_bounds = text::of_bounds(time, schema, bounds);
    let mut conditions = in_bounds.unwrap_or_default();
    conditions.extend(filters.iter().filter_map(|filter| text::of(filter, schema)));
    let mut sql = select(&columns, &snapshot.name.job, &table, &conditions);
    // With conditions, the rows that count are known here alone.
    if let Some(limit) = limit.filter(|_| filters.is_empty()) {
        let _ = write!(sql, " LIMIT {limit}");
    }
    let asked = ask_all(snapshot, &sql, &wanted);
    Ok(Arc::new(StreamingTableExec::try_new(wanted, asked, None, [], false, limit)?))
}

fn select(columns: &[String], job: &str, table: &str, conditions: &[String]) -> String {
    let mut sql = format!("SELECT {} FROM {}.{}", columns.join(", "), quoted(job), quoted(table));
    if !conditions.is_empty() {
        let _ = write!(sql, " WHERE {}", conditions.join(" AND "));
    }
    sql
}

/// The same question to each node.
fn ask_all(snapshot: &Snapshot, sql: &str, schema: &SchemaRef) -> Vec<Arc<dyn PartitionStream>> {
    let sql: Arc<str> = sql.into();
    let ask = |share: &Share| {
        let (share, sql, schema) = (share.clone(), Arc::clone(&sql), Arc::clone(schema));
        Arc::new(Asked { share, sql, schema }) as Arc<dyn PartitionStream>
    };
    snapshot.elsewhere.iter().map(ask).collect()
}

/// Groups of rows that other nodes have: keys, and values that add up.
#[derive(Debug)]
pub(crate) struct Groups {
    snapshot: Arc<Snapshot>,
    sql: String,
    schema: SchemaRef,
}

impl Groups {
    /// `keys` and `values` are texts, in the order of the columns of `schema`; `conditions` say all that rows have to meet.
    pub(crate) fn new(
        snapshot: Arc<Snapshot>,
        keys: &[String],
        values: &[String],
        conditions: &[String],
        schema: SchemaRef,
    ) -> Self {
        let columns = [keys, values].concat();
        let mut sql = select(&columns, &snapshot.name.job, &snapshot.name.table, conditions);
        if !keys.is_empty() {
            let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
            let _ = write!(sql, " GROUP BY {}", places.join(", "));
        }
        Self { snapshot, sql, schema }
    }
}

#[async_trait]
impl TableProvider for Groups {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let asked = ask_all(&self.snapshot, &self.sql, &self.schema);
        let schema = Arc::clone(&self.schema);
        Ok(Arc::new(StreamingTableExec::try_new(schema, asked, projection, [], false, limit)?))
    }
}

/// One share of a scan.
struct Asked {
    share: Share,
    sql: Arc<str>,
    schema: SchemaRef,
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { node, stage, partitions, .. } = &self.share;
        write!(f, "{} of {stage} at {node}", partitions.len())
    }
}

impl PartitionStream for Asked {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let Self { share, sql, schema } = self;
        let begin = Reading::Begin { share: share.clone(), sql: Arc::clone(sql) };
        let wanted = Arc::clone(schema);
        let rows = try_unfold(begin, move |reading| {
            let wanted = Arc::clone(&wanted);
            async move {
                let next = reading.next(&wanted).await.map_err(ours)?;
                Ok(next.map(|(batch, rest)| (batch, Reading::On(rest))))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows))
    }
}

enum Reading {
    Begin { share: Share, sql: Arc<str> },
    On(Answer),
}

/// An answer on its way.
struct Answer {
    share: Share,
    body: Incoming,
    decoder: StreamDecoder,
    /// Bytes that came and are not read.
    left: Buffer,
}

impl Reading {
    async fn next(self, wanted: &SchemaRef) -> Result<Option<(RecordBatch, Answer)>, Error> {
        let mut answer = match self {
            Reading::Begin { share, sql } => ask(share, sql).await?,
            Reading::On(answer) => answer,
        };
        loop {
            if let Some(batch) = answer.decode()? {
                return Ok(Some((fitted(&answer.share, &batch, wanted)?, answer)));
            }
            let frame = timeout(PATIENCE, answer.body.frame()).await;
            let frame =
                frame.map_err(|_| failed(&answer.share, &format!("nothing came for {PATIENCE:?}")))?;
            match frame.transpose().map_err(|error| failed(&answer.share, &error.to_string()))? {
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        answer.left = Buffer::from(bytes);
                    }
                }
                None => {
                    answer.decoder.finish().map_err(|error| failed(&answer.share, &error.to_string()))?;
                    return Ok(None);
                }
            }
        }
    }
}

impl Answer {
    fn decode(&mut self) -> Result<Option<RecordBatch>, Error> {
        let decoded = self.decoder.decode(&mut self.left);
        decoded.map_err(|error| failed(&self.share, &format!("its rows cannot be read: {error}")))
    }
}

const STRICT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// The columns that were wanted, in their types.
fn fitted(share: &Share, batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, Error> {
    let wrong = |what: &dyn fmt::Display| failed(share, &format!("its rows have other columns: {what}"));
    let column = |(place, field): (usize, &Arc<arrow_schema::Field>)| {
        let column =
            batch.columns().get(place).ok_or_else(|| wrong(&format!("{:?} is missing", field.name())))?;
        match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            // A value that the type does not have is an error.
            false => cast_with_options(column, field.data_type(), &STRICT).map_err(|error| wrong(&error)),
        }
    };
    let columns = wanted.fields().iter().enumerate().map(column).collect::<Result<_, Error>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options).map_err(|error| wrong(&error))
}

/// Sends the question, and waits for the head of the answer.
async fn ask(share: Share, sql: Arc<str>) -> Result<Answer, Error> {
    let partitions: Vec<String> = share.partitions.iter().map(u32::to_string).collect();
    let answer = async {
        let said = |error: &dyn fmt::Display| failed(&share, &error.to_string());
        let stream = TcpStream::connect(&*share.address).await.map_err(|error| said(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| said(&error))?;
        // It ends with the answer, or when that is not read any more.
        tokio::spawn(connection);
        let request = Request::post("/v1/sql?format=arrow")
            .header(header::HOST, &*share.address)
            .header(header::CONTENT_TYPE, "text/plain")
            .header(PLAN, share.plan)
            .header(PARTITIONS, format!("{}:{}", share.stage, partitions.join(",")))
            .body(Full::new(Bytes::from(sql.to_string())))
            .map_err(|error| said(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| said(&error))?;
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let text = Limited::new(body, LARGEST_ERROR).collect().await.map(|body| body.to_bytes());
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Err(failed(&share, &format!("{}: {}", head.status, text.trim())))
    };
    let body = timeout(PATIENCE, answer)
        .await
        .unwrap_or_else(|_| Err(failed(&share, &format!("no answer within {PATIENCE:?}"))))?;
    Ok(Answer { share, body, decoder: StreamDecoder::new(), left: Buffer::from(Vec::<u8>::new()) })
}

/// The error for rows that do not come: units may be on their way.
fn failed(share: &Share, why: &str) -> Error {
    let Share { node, address, plan, stage, partitions } = share;
    Error::external(format!(
        "node {node:?} at {address} has rows of {} partitions of stage {stage:?} by plan {plan}, and does not give them: {why}",
        partitions.len()
    ))
    .with_retry(Retry::WithBackoff)
    .with_hint("ask again: if it has gone, others have its units soon")
}
