//! The JSON that leaves the node. `/openapi.json` has the schemas of these types, made from their fields and comments, and
//! of groups of figures from the tables of those.

pub(crate) mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use thalweg_connect::DeliveryCounts;
use thalweg_flow::{
    AgentCounts, AgentStats, CacheCounts, ClockStats, DatagramCounts, DatagramStats, JudgedCounts,
    LatencyCounts, PartitionCounts, TableCounts,
};
use thalweg_types::format_timestamp;

use crate::control;
use crate::figures::groups::{Commits, JobFigures, Kernel, LinkFigures, OperatorFigures, SourceFigures};
use crate::figures::{Shown, rounded};
use crate::rates::Base;
use crate::snapshot::{JobSnapshot, LinkSnapshot, OperatorSnapshot, SourceSnapshot, State, TaskSnapshot};

#[derive(JsonSchema, Serialize)]
pub(crate) struct Accepted {
    /// Records.
    pub(crate) accepted: u64,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Status {
    pub(crate) status: &'static str,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<Job>,
}

/// The body of every error.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorBody {
    pub(crate) error: Failed,
}

#[derive(JsonSchema, Serialize)]
#[schemars(inline)]
pub(crate) struct Failed {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// What belongs to the code: known names, mistakes, routes; or null.
    pub(crate) detail: Value,
    pub(crate) hint: Option<String>,
    #[schemars(schema_with = "retry")]
    pub(crate) retry: &'static str,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Present {
    query: String,
    /// The GROUP BY fields.
    key: Map<String, Value>,
    /// The query's object, as in an answer.
    #[schemars(schema_with = "object_or_null")]
    values: Value,
    /// Task time, RFC 3339 in UTC; null before the first record.
    #[schemars(extend("format" = "date-time"))]
    as_of: Option<String>,
}

impl Present {
    pub(crate) fn new(query: String, present: control::Present) -> Self {
        Self { query, key: present.key, values: present.values, as_of: present.as_of.map(format_timestamp) }
    }
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct AddedQuery {
    pub(crate) job: String,
    pub(crate) operator: String,
    pub(crate) name: String,
    pub(crate) query: String,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Summary {
    job: String,
    #[schemars(schema_with = "state")]
    state: &'static str,
    records: u64,
    answers: u64,
    rejects: u64,
    seconds: f64,
    /// Records per second.
    rate: f64,
}

impl Summary {
    pub(crate) fn new(job: String, summary: &control::StopSummary) -> Self {
        let seconds = summary.elapsed.as_secs_f64();
        Self {
            job,
            state: summary.state.as_str(),
            records: summary.records,
            answers: summary.answers,
            rejects: summary.rejects,
            seconds: rounded(seconds),
            rate: rounded(if seconds > 0.0 { summary.records as f64 / seconds } else { 0.0 }),
        }
    }
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Job {
    name: String,
    #[schemars(schema_with = "state")]
    state: &'static str,
    failure: Option<Failure>,
    #[serde(flatten)]
    figures: Shown<JobFigures>,
    records_per_second: f64,
    answers_per_second: f64,
    commits: Option<Shown<Commits>>,
    #[schemars(extend("format" = "date-time"))]
    tick: Option<String>,
    clock: Shown<ClockStats>,
    sources: Vec<Source>,
    operators: Vec<Operator>,
    links: Vec<Link>,
}

#[derive(JsonSchema, Serialize)]
struct Failure {
    operator: String,
    task: u32,
    record: Option<String>,
    message: String,
    panic: bool,
    hint: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct Source {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    figures: Shown<SourceFigures>,
    records_per_second: f64,
    bytes_per_second: f64,
    #[schemars(range(min = 0, max = 1))]
    busy_share: f64,
    ended: bool,
    progress: Option<Progress>,
    datagrams: Option<Datagrams>,
    /// For sources of topics: each partition.
    partitions: Option<Vec<Partition>>,
    address: Option<String>,
    /// Where to POST records.
    door: Option<String>,
    tasks: Vec<Task>,
}

#[derive(JsonSchema, Serialize)]
struct Datagrams {
    #[serde(flatten)]
    total: Shown<DatagramCounts>,
    #[serde(flatten)]
    kernel: Shown<Kernel>,
    senders: usize,
    worst_senders: Vec<Sender>,
    /// For sources of packet samples.
    agents: Option<Agents>,
    /// Parts of datagrams that this run read and does not know, by kind.
    left_out: BTreeMap<&'static str, u64>,
}

#[derive(JsonSchema, Serialize)]
struct Agents {
    count: usize,
    #[serde(flatten)]
    total: Shown<AgentCounts>,
    /// Samples that datagrams announce and do not hold.
    missing: u64,
    worst: Vec<Agent>,
}

#[derive(JsonSchema, Serialize)]
struct Agent {
    address: String,
    #[serde(flatten)]
    totals: Shown<AgentCounts>,
}

#[derive(JsonSchema, Serialize)]
struct Sender {
    address: String,
    #[serde(flatten)]
    counts: Shown<DatagramCounts>,
}

#[derive(JsonSchema, Serialize)]
struct Partition {
    /// `TOPIC[NUMBER]`.
    name: String,
    #[serde(flatten)]
    counts: Shown<PartitionCounts>,
}

#[derive(JsonSchema, Serialize)]
struct Progress {
    done: u64,
    total: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
struct Operator {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[schemars(schema_with = "role")]
    role: &'static str,
    #[serde(flatten)]
    figures: Shown<OperatorFigures>,
    records_in_per_second: f64,
    records_out_per_second: f64,
    #[schemars(range(min = 0, max = 1))]
    busy_share: f64,
    cache: Option<Shown<CacheCounts>>,
    judged: Option<Shown<JudgedCounts>>,
    table: Option<Shown<TableCounts>>,
    /// For sinks that write to topics.
    delivery: Option<Shown<DeliveryCounts>>,
    blocked: bool,
    /// Largest event time that has moved its windows.
    #[schemars(extend("format" = "date-time"))]
    task_time: Option<String>,
    /// From the numbering of records at the door to the end of the operator's work on them; records of the last second
    /// or two.
    latency: Option<Latency>,
    /// For how long cycle markers stopped a task, by the clock, since the start of the job.
    markers: Option<Latency>,
    /// The same in processor time.
    marker_cpu: Option<Latency>,
    queries: Vec<Query>,
    dropped_queries: Vec<Dropped>,
    tasks: Vec<Task>,
}

/// A query that failed and was dropped for that.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "DroppedQuery")]
struct Dropped {
    name: String,
    query: String,
    error: String,
}

#[derive(JsonSchema, Serialize)]
struct Query {
    name: String,
    query: String,
}

/// Up to an eighth above the true value, never below it.
#[derive(JsonSchema, Serialize)]
struct Latency {
    p50_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
}

#[derive(JsonSchema, Serialize)]
struct Task {
    worker: usize,
    records_in: u64,
    records_out: u64,
    batches_in: u64,
    #[schemars(range(min = 0, max = 1))]
    busy_share: f64,
    queued_bytes: u64,
    state_bytes: u64,
    blocked: bool,
}

#[derive(JsonSchema, Serialize)]
struct Link {
    from: String,
    output: usize,
    to: String,
    partitioning: String,
    #[serde(flatten)]
    figures: Shown<LinkFigures>,
    bytes_per_second: f64,
    chained: bool,
}

impl Job {
    /// With rates since `base`, or since the job's start if `base` is not of this run of the job.
    pub(crate) fn new(job: &JobSnapshot, base: Option<Base<'_>>) -> Self {
        let base = base.filter(|base| base.job.uptime <= job.uptime && base.job.records <= job.records);
        let since = Since {
            seconds: base.as_ref().map_or(job.uptime, |base| base.age).as_secs_f64(),
            job: base.as_ref().map(|base| base.job),
        };
        Self {
            name: job.name.clone(),
            state: job.state.as_str(),
            failure: job.failure.as_ref().map(|failure| Failure {
                operator: failure.operator.clone(),
                task: failure.task,
                record: failure.record.clone(),
                message: failure.message.clone(),
                panic: failure.panic,
                hint: failure.hint.clone(),
            }),
            figures: Shown(JobFigures::of(job)),
            records_per_second: since.rate(job.records, since.job.map(|old| old.records)),
            answers_per_second: since.rate(job.answers, since.job.map(|old| old.answers)),
            commits: job.commits.map(Shown),
            tick: job.tick.map(format_timestamp),
            clock: Shown(job.clock),
            sources: job.sources.iter().map(|source| since.source(job, source)).collect(),
            operators: job.operators.iter().map(|operator| since.operator(operator)).collect(),
            links: job.links.iter().map(|link| since.link(link)).collect(),
        }
    }
}

/// An earlier look at the same job.
struct Since<'a> {
    seconds: f64,
    job: Option<&'a JobSnapshot>,
}

impl Since<'_> {
    fn rate(&self, now: u64, then: Option<u64>) -> f64 {
        let more = now.saturating_sub(then.unwrap_or(0));
        rounded(if self.seconds > 0.0 { more as f64 / self.seconds } else { 0.0 })
    }

    /// Share of the time that a task was at work.
    fn share(&self, now: Duration, then: Option<Duration>) -> f64 {
        let more = now.saturating_sub(then.unwrap_or_default()).as_secs_f64();
        // Clocks are read at slightly different moments: a bit above 1 is 1.
        if self.seconds > 0.0 { rounded((more / self.seconds).min(1.0)) } else { 0.0 }
    }

    fn tasks(&self, tasks: &[TaskSnapshot], then: Option<&[TaskSnapshot]>) -> Vec<Task> {
        let with_place = tasks.iter().enumerate();
        with_place
            .map(|(place, task)| Task {
                worker: task.worker,
                records_in: task.records_in,
                records_out: task.records_out,
                batches_in: task.batches_in,
                busy_share: self
                    .share(task.busy, then.and_then(|then| then.get(place)).map(|task| task.busy)),
                queued_bytes: task.queued_bytes,
                state_bytes: task.state_bytes,
                blocked: task.blocked,
            })
            .collect()
    }

    fn source(&self, job: &JobSnapshot, source: &SourceSnapshot) -> Source {
        let then = self.job.and_then(|job| job.sources.iter().find(|other| other.name == source.name));
        let tasks = self.tasks(&source.tasks, then.map(|then| then.tasks.as_slice()));
        Source {
            name: source.name.clone(),
            kind: source.kind.clone(),
            figures: Shown(SourceFigures::of(source)),
            records_per_second: self.rate(source.records, then.map(|then| then.records)),
            bytes_per_second: self.rate(source.bytes, then.map(|then| then.bytes)),
            busy_share: mean_share(&tasks),
            ended: source.ended,
            progress: source.progress.map(|(done, total)| Progress { done, total }),
            datagrams: source.datagrams.as_ref().map(Datagrams::from),
            partitions: source.partitions.as_ref().map(|partitions| {
                let partition = |(name, counts): &(Arc<str>, PartitionCounts)| Partition {
                    name: name.to_string(),
                    counts: Shown(*counts),
                };
                partitions.iter().map(partition).collect()
            }),
            address: source.address.map(|address| address.to_string()),
            door: source
                .has_door
                .then(|| format!("/v1/jobs/{}/sources/{}", encoded(&job.name), encoded(&source.name))),
            tasks,
        }
    }

    fn operator(&self, operator: &OperatorSnapshot) -> Operator {
        let then = self.job.and_then(|job| job.operators.iter().find(|other| other.name == operator.name));
        let tasks = self.tasks(&operator.tasks, then.map(|then| then.tasks.as_slice()));
        let (records_in, records_out) = (operator.records_in(), operator.records_out());
        Operator {
            name: operator.name.clone(),
            kind: operator.kind.clone(),
            role: if operator.is_sink { "sink" } else { "operator" },
            figures: Shown(OperatorFigures::of(operator)),
            records_in_per_second: self.rate(records_in, then.map(OperatorSnapshot::records_in)),
            records_out_per_second: self.rate(records_out, then.map(OperatorSnapshot::records_out)),
            busy_share: mean_share(&tasks),
            cache: operator.cache().map(Shown),
            judged: operator.judged().map(Shown),
            table: operator.table().map(Shown),
            delivery: operator.delivery.map(Shown),
            blocked: tasks.iter().any(|task| task.blocked),
            task_time: operator.task_time.map(format_timestamp),
            latency: Latency::of(&match then {
                Some(then) => operator.latency.since(&then.latency),
                None => operator.latency.clone(),
            }),
            markers: Latency::of(&operator.markers),
            marker_cpu: Latency::of(&operator.marker_cpu),
            queries: operator
                .queries
                .iter()
                .map(|query| Query { name: query.name.clone(), query: query.text.clone() })
                .collect(),
            dropped_queries: operator
                .dropped
                .iter()
                .map(|query| Dropped {
                    name: query.name.clone(),
                    query: query.text.clone(),
                    error: query.said.clone(),
                })
                .collect(),
            tasks,
        }
    }

    fn link(&self, link: &LinkSnapshot) -> Link {
        let then = self.job.and_then(|job| {
            job.links
                .iter()
                .find(|other| other.from == link.from && other.to == link.to && other.output == link.output)
        });
        Link {
            from: link.from.clone(),
            output: link.output,
            to: link.to.clone(),
            partitioning: link.partitioning.clone(),
            figures: Shown(LinkFigures::of(link)),
            bytes_per_second: self.rate(link.bytes, then.map(|then| then.bytes)),
            chained: link.chained,
        }
    }
}

impl OperatorSnapshot {
    pub(crate) fn records_in(&self) -> u64 {
        self.tasks.iter().map(|task| task.records_in).sum()
    }

    pub(crate) fn cache(&self) -> Option<CacheCounts> {
        self.tasks.iter().filter_map(|task| task.cache).reduce(CacheCounts::plus)
    }

    pub(crate) fn judged(&self) -> Option<JudgedCounts> {
        self.tasks.iter().filter_map(|task| task.judged).reduce(JudgedCounts::plus)
    }

    pub(crate) fn table(&self) -> Option<TableCounts> {
        self.tasks.iter().filter_map(|task| task.table).reduce(TableCounts::plus)
    }

    pub(crate) fn records_out(&self) -> u64 {
        self.tasks.iter().map(|task| task.records_out).sum()
    }
}

impl Latency {
    fn of(counts: &LatencyCounts) -> Option<Self> {
        let seconds = |share| counts.quantile(share).map(|took| took.as_secs_f64());
        Some(Self { p50_seconds: seconds(0.5)?, p99_seconds: seconds(0.99)?, max_seconds: seconds(1.0)? })
    }
}

impl From<&DatagramStats> for Datagrams {
    fn from(datagrams: &DatagramStats) -> Self {
        let senders = datagrams
            .worst
            .iter()
            .map(|(address, counts)| Sender { address: address.to_string(), counts: Shown(*counts) });
        Self {
            total: Shown(datagrams.total),
            kernel: Shown(Kernel { kernel_drops: datagrams.kernel_drops }),
            senders: datagrams.senders,
            worst_senders: senders.collect(),
            agents: datagrams.agents.as_ref().map(Agents::from),
            left_out: datagrams.left_out.clone(),
        }
    }
}

impl From<&AgentStats> for Agents {
    fn from(agents: &AgentStats) -> Self {
        let worst = agents
            .worst
            .iter()
            .map(|(address, counts)| Agent { address: address.to_string(), totals: Shown(*counts) });
        Self {
            count: agents.agents,
            total: Shown(agents.total),
            missing: agents.missing,
            worst: worst.collect(),
        }
    }
}

fn mean_share(tasks: &[Task]) -> f64 {
    if tasks.is_empty() {
        return 0.0;
    }
    rounded(tasks.iter().map(|task| task.busy_share).sum::<f64>() / tasks.len() as f64)
}

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as part of a path.
fn encoded(name: &str) -> PercentEncode<'_> {
    utf8_percent_encode(name, RESERVED)
}

fn state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": State::ALL.map(State::as_str) })
}

fn role(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["operator", "sink"] })
}

fn retry(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["never", "with_backoff", "unknown"] })
}

fn object_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["object", "null"] })
}
