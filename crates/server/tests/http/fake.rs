//! A node that acts by script.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use thalweg_connect::{Answering, Ingress, SubmitError, Submitted, write_error};
use thalweg_flow::{
    AgentCounts, AgentStats, CacheCounts, ClockStats, DatagramCounts, DatagramStats, JudgedCounts,
    LatencyCounts, TableCounts,
};
use thalweg_node::CheckedJob;
use thalweg_node::cluster_view::{
    self, Change, ClusterFigures, ClusterSnapshot, ClusterView, DoorFigures, FollowerSnapshot, GapSnapshot,
    KeyOf, MemberSnapshot, NodeFigures, NotDone, PlacedJobSnapshot, PlanSnapshot, ReportSnapshot,
    StageSnapshot, UnitFigures, UnitLabels, UnitSnapshot,
};
use thalweg_server::control::{
    Control, ControlError, FailedJob, FileFormat, Found, KeyField, Kind, Mistake, Present, QueryPath,
    Readiness, Stop, StopSummary, TextKind,
};
use thalweg_server::snapshot::{
    Commits, Failure, JobSnapshot, LinkSnapshot, OperatorSnapshot, QuerySnapshot, SourceSnapshot, State,
    TaskSnapshot,
};
use thalweg_types::{Error, Offset};

/// How the source treats a body.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Mode {
    /// Lines that are JSON are answered with themselves and a number, others rejected.
    #[default]
    Answer,
    /// As `Answer`, once the test allows it.
    Hold,
    Full,
    Draining,
    TooLarge,
    /// The job stops before it answers.
    Stop,
}

#[derive(Default)]
pub(crate) struct FakeNode {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<Inner>,
    changed: Condvar,
}

/// Lines, and how many of them are answers.
type Lines = (Vec<u8>, u64);

struct Inner {
    mode: Mode,
    readiness: Readiness,
    failed: Vec<FailedJob>,
    unopened: Vec<String>,
    held: Vec<(Answering, Lines)>,
    jobs: Vec<String>,
    queries: Vec<String>,
    snapshot: JobSnapshot,
    cluster: Option<Arc<dyn ClusterView>>,
    /// Calls of `job` wait while this is set.
    is_hanging: bool,
    hanging: usize,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            mode: Mode::Answer,
            readiness: Readiness::Ready,
            failed: Vec::new(),
            unopened: Vec::new(),
            held: Vec::new(),
            jobs: vec!["payments".to_owned()],
            queries: vec!["card_1h".to_owned()],
            snapshot: payments(),
            cluster: None,
            is_hanging: false,
            hanging: 0,
        }
    }
}

impl FakeNode {
    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.shared.state.lock().unwrap());
        self.shared.changed.notify_all();
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.change(|inner| inner.mode = mode);
    }

    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        self.change(|inner| inner.readiness = readiness);
    }

    pub(crate) fn set_failed(&self, failed: Vec<FailedJob>) {
        self.change(|inner| inner.failed = failed);
    }

    pub(crate) fn set_unopened(&self, jobs: &[&str]) {
        self.change(|inner| inner.unopened = jobs.iter().map(|job| (*job).to_owned()).collect());
    }

    pub(crate) fn set_snapshot(&self, snapshot: impl FnOnce(&mut JobSnapshot)) {
        self.change(|inner| snapshot(&mut inner.snapshot));
    }

    /// From now on it is node `a` of a cluster, with node `b`.
    pub(crate) fn join_cluster(&self) {
        self.change(|inner| inner.cluster = Some(Arc::new(FakeCluster::default())));
    }

    /// Calls of `job` do not come back until this is taken back.
    pub(crate) fn set_hanging(&self, is_hanging: bool) {
        self.change(|inner| inner.is_hanging = is_hanging);
    }

    /// Waits until `count` bodies are held.
    pub(crate) fn wait_for_held(&self, count: usize) {
        self.wait_until(|inner| inner.held.len() >= count);
    }

    /// Waits until a call hangs.
    pub(crate) fn wait_for_hanging(&self) {
        self.wait_until(|inner| inner.hanging > 0);
    }

    fn wait_until(&self, is_so: impl Fn(&Inner) -> bool) {
        let inner = self.shared.state.lock().unwrap();
        let waited =
            self.shared.changed.wait_timeout_while(inner, Duration::from_secs(20), |inner| !is_so(inner));
        assert!(!waited.unwrap().1.timed_out(), "requests should have come");
    }

    pub(crate) fn release(&self) {
        let held = std::mem::take(&mut self.shared.state.lock().unwrap().held);
        for (answering, (lines, accepted)) in held {
            answering.answer(lines, accepted);
        }
    }
}

struct Door(Arc<Shared>);

impl Ingress for Door {
    fn submit(&self, body: Bytes, reply: bool) -> Result<Submitted, SubmitError> {
        let source_name = || "payments".to_owned();
        let mut inner = self.0.state.lock().unwrap();
        match inner.mode {
            Mode::Full => return Err(SubmitError::Full { source_name: source_name() }),
            Mode::Draining => return Err(SubmitError::Draining { source_name: source_name() }),
            Mode::TooLarge => {
                return Err(SubmitError::TooLarge {
                    source_name: source_name(),
                    bytes: body.len(),
                    bound: 4,
                });
            }
            Mode::Answer | Mode::Hold | Mode::Stop => {}
        }
        let text = std::str::from_utf8(&body).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            return Err(SubmitError::Empty);
        }
        let records = lines.len() as u64;
        if (reply, inner.mode) == (false, Mode::Answer) {
            return Ok(Submitted { records, replies: None });
        }
        let mut answers = (Vec::new(), 0);
        for (number, line) in lines.iter().enumerate().filter(|_| reply) {
            answers.1 += u64::from(answer(number, line, &mut answers.0));
        }
        let (answering, replies) = Answering::new(records);
        match inner.mode {
            Mode::Answer => answering.answer(answers.0, answers.1),
            Mode::Hold => inner.held.push((answering, answers)),
            _ => drop(answering),
        }
        self.0.changed.notify_all();
        Ok(Submitted { records, replies: Some(replies) })
    }
}

/// Appends the line of a record; whether it was accepted.
fn answer(number: usize, line: &str, out: &mut Vec<u8>) -> bool {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(mut record)) => {
            record.insert("card_1h".to_owned(), json!({ "n": number + 1 }));
            out.extend_from_slice(format!("{}\n", Value::Object(record)).as_bytes());
            true
        }
        _ => {
            write_error("parse", &format!("{line:?} is no JSON object"), Some("quote names"), out);
            false
        }
    }
}

impl FakeNode {
    fn find(&self, job: &str) -> Result<JobSnapshot, ControlError> {
        let inner = self.shared.state.lock().unwrap();
        if !inner.jobs.iter().any(|other| other == job) {
            return Err(ControlError::NotFound {
                kind: Kind::Job,
                name: job.to_owned(),
                known: inner.jobs.clone(),
            });
        }
        Ok(JobSnapshot { name: job.to_owned(), ..inner.snapshot.clone() })
    }

    fn find_operator(&self, path: &QueryPath) -> Result<(), ControlError> {
        self.find(&path.job)?;
        if path.operator == "features" {
            return Ok(());
        }
        let known = vec!["features".to_owned()];
        Err(ControlError::NotFound { kind: Kind::Operator, name: path.operator.clone(), known })
    }

    fn find_query(&self, path: &QueryPath) -> Result<(), ControlError> {
        self.find_operator(path)?;
        let known = self.shared.state.lock().unwrap().queries.clone();
        if known.contains(&path.query) {
            return Ok(());
        }
        Err(ControlError::NotFound { kind: Kind::Query, name: path.query.clone(), known })
    }
}

impl Control for FakeNode {
    fn failed(&self) -> Vec<FailedJob> {
        self.shared.state.lock().unwrap().failed.clone()
    }

    fn unopened(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().unopened.clone()
    }

    fn readiness(&self) -> Readiness {
        self.shared.state.lock().unwrap().readiness
    }

    fn ingress(&self, job: &str, source: &str) -> Result<Arc<dyn Ingress>, ControlError> {
        self.find(job)?;
        match source {
            "payments" => Ok(Arc::new(Door(Arc::clone(&self.shared)))),
            "ended" => Err(ControlError::Conflict {
                message: "job \"payments\" has failed".to_owned(),
                hint: Some("start it again".to_owned()),
            }),
            "full" => Err(ControlError::ReadOnly {
                job: "payments".to_owned(),
                failure: "write \"d/x\"".to_owned(),
                hint: Some("make room".to_owned()),
            }),
            _ => Err(ControlError::NotFound {
                kind: Kind::Source,
                name: source.to_owned(),
                known: vec!["payments".to_owned()],
            }),
        }
    }

    fn jobs(&self) -> Vec<JobSnapshot> {
        let names = self.shared.state.lock().unwrap().jobs.clone();
        names.iter().filter_map(|name| self.find(name).ok()).collect()
    }

    fn job(&self, job: &str) -> Result<JobSnapshot, ControlError> {
        if job == "panics" {
            panic!("as the test asks");
        }
        let mut inner = self.shared.state.lock().unwrap();
        inner.hanging += 1;
        self.shared.changed.notify_all();
        let mut inner = self.shared.changed.wait_while(inner, |inner| inner.is_hanging).unwrap();
        inner.hanging -= 1;
        drop(inner);
        self.find(job)
    }

    fn start(&self, job: &str, file: &str, format: FileFormat) -> Result<JobSnapshot, ControlError> {
        if self.find(job).is_ok() {
            return Err(ControlError::Exists { kind: Kind::Job, name: job.to_owned() });
        }
        let expected = if file.trim_start().starts_with('{') { FileFormat::Json } else { FileFormat::Yaml };
        assert_eq!(format, expected);
        if let Some(at) = file.find("tpye") {
            let mut first = Mistake::at(file, Some(at..at + 4), "no key \"tpye\"");
            first.hint = Some("did you mean \"type\"?".to_owned());
            let second = Mistake::at(file, Some(0..4), "no sinks");
            return Err(ControlError::Mistakes { of: TextKind::JobFile, mistakes: vec![first, second] });
        }
        if file.contains("port: 80") {
            return Err(Error::external("listen on port 80").into());
        }
        self.change(|inner| inner.jobs.push(job.to_owned()));
        self.find(job)
    }

    fn replace(
        &self,
        job: &str,
        file: &str,
        format: FileFormat,
    ) -> Result<(JobSnapshot, bool), ControlError> {
        let was_there = self.find(job).is_ok();
        if was_there {
            self.stop(job, Stop::Drain)?;
        }
        Ok((self.start(job, file, format)?, was_there))
    }

    fn stop(&self, job: &str, how: Stop) -> Result<StopSummary, ControlError> {
        self.find(job)?;
        self.change(|inner| inner.jobs.retain(|other| other != job));
        Ok(StopSummary {
            state: if how == Stop::Drain { State::Done } else { State::Aborted },
            records: 1_000,
            answers: 990,
            rejects: 10,
            elapsed: Duration::from_secs(4),
        })
    }

    fn present(&self, query: &QueryPath, key: &[KeyField], _: Option<Offset>) -> Result<Found, ControlError> {
        self.find_query(query)?;
        match key {
            [KeyField { name, value }] if name == "card" => {
                let mut key = Map::new();
                key.insert("card".to_owned(), json!(value));
                Ok(Found::Here(Present {
                    key,
                    values: json!({ "spent": 12.25, "n": 4 }),
                    as_of: Some(1_329_929_188_967_032),
                }))
            }
            _ => Err(Error::user("the key of query \"card_1h\" is card")
                .with_hint("for example ?card=c1")
                .into()),
        }
    }

    fn add_query(&self, query: &QueryPath, sql: &str) -> Result<(), ControlError> {
        self.find_operator(query)?;
        if self.find_query(query).is_ok() {
            return Err(ControlError::Exists { kind: Kind::Query, name: query.query.clone() });
        }
        if let Some(at) = sql.find("sume") {
            let mut mistake = Mistake::at(sql, Some(at..at + 4), "no aggregate \"sume\"");
            mistake.expected = Some("an aggregate".to_owned());
            mistake.hint = Some("did you mean \"sum\"?".to_owned());
            return Err(ControlError::Mistakes { of: TextKind::Query, mistakes: vec![mistake] });
        }
        self.change(|inner| inner.queries.push(query.query.clone()));
        Ok(())
    }

    fn drop_query(&self, query: &QueryPath) -> Result<(), ControlError> {
        self.find_query(query)?;
        self.change(|inner| inner.queries.retain(|other| *other != query.query));
        Ok(())
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterView>> {
        self.shared.state.lock().unwrap().cluster.clone()
    }
}

/// Two nodes with two units of one job; a drain of `b` takes effect at once.
#[derive(Default)]
struct FakeCluster {
    drains: Mutex<bool>,
}

impl FakeCluster {
    fn member(&self, name: &str) -> MemberSnapshot {
        MemberSnapshot {
            name: name.to_owned(),
            host: format!("host-{name}"),
            capacity: 1,
            address: "127.0.0.1:8080".to_owned(),
            semantics: vec![1],
            plans: name == "a",
            drains: name == "b" && *self.drains.lock().unwrap(),
            beat_age: (name == "a").then_some(Duration::from_millis(125)),
            units_active: 1,
            units_followed: 0,
        }
    }
}

impl ClusterView for FakeCluster {
    fn has_read(&self) -> bool {
        true
    }

    fn doors(&self) -> Vec<(String, bool)> {
        vec![("pay".to_owned(), true)]
    }

    fn snapshot(&self, job: Option<&str>) -> Result<ClusterSnapshot, NotDone> {
        if let Some(name) = job.filter(|name| *name != "pay") {
            return Err(NotDone::NoJob { name: name.to_owned(), known: vec!["pay".to_owned()] });
        }
        let whole = UnitSnapshot {
            job: "pay".to_owned(),
            stage: "features".to_owned(),
            active: Some("a".to_owned()),
            since: Some(7),
            why: Some("new: most budget".to_owned()),
            from: Some("b".to_owned()),
            followers: vec![FollowerSnapshot {
                node: "b".to_owned(),
                takes_over: true,
                position: Some(90),
                ready: false,
            }],
            report: Some(ReportSnapshot { rows_per_second: 5, bytes: 600, position: 100, ready: true }),
            trouble: vec!["c".to_owned()],
            gaps: vec![GapSnapshot {
                stage: "cards".to_owned(),
                partition: 3,
                through: "12.3+1".to_owned(),
                read: 99,
            }],
            failure: Some("operator \"features\" task 0: no".to_owned()),
            explanation: "unit pay/features/0 is at a\n".to_owned(),
            ..UnitSnapshot::default()
        };
        let bare = UnitSnapshot { partition: 1, job: "pay".to_owned(), ..UnitSnapshot::default() };
        Ok(ClusterSnapshot {
            node: "a".to_owned(),
            prefix: "thalweg".to_owned(),
            read: 40,
            plan: Some(PlanSnapshot { offset: 7, author: Some("a".to_owned()) }),
            unplanned: 1,
            members: vec![self.member("a"), self.member("b")],
            jobs: vec![PlacedJobSnapshot {
                name: "pay".to_owned(),
                spec: 1,
                semantics: 1,
                stages: vec![StageSnapshot { name: "features".to_owned(), partitions: 2, replicas: 0 }],
            }],
            units: vec![whole, bare],
            units_left_out: 0,
        })
    }

    fn figures(&self) -> NodeFigures {
        let labels = |partition: &str| UnitLabels {
            job: "pay".to_owned(),
            stage: "features".to_owned(),
            partition: partition.to_owned(),
        };
        let read = UnitFigures {
            active: true,
            position: 100,
            lag: Some(12),
            lag_seconds: Some(Duration::from_millis(1_500)),
            rows: 300,
            duplicates: 4,
            gaps: 2,
            state_bytes: 600,
            commit_age: Some(Duration::from_secs(3)),
            snapshot_position: Some(40),
            snapshot_age: Some(Duration::from_secs(70)),
            ..UnitFigures::default()
        };
        NodeFigures {
            cluster: ClusterFigures {
                members: 2,
                plan: Some(7),
                beat_age: Some(Duration::from_millis(125)),
                units_active: 1,
                units_followed: 1,
                restore_bytes_left: 9,
                omitted: 0,
            },
            doors: vec![(
                "pay".to_owned(),
                DoorFigures { rows: 310, unknown: 6, dropped: 1, ..DoorFigures::default() },
            )],
            units: vec![(labels("0"), read), (labels("1"), UnitFigures::default())],
        }
    }

    fn drain(&self, node: &str, on: bool) -> Result<MemberSnapshot, NotDone> {
        match node {
            "b" => *self.drains.lock().unwrap() = on,
            "slow" => {
                let error = Error::external("the control log says nothing");
                return Err(error.with_retry(thalweg_types::Retry::OutcomeUnknown).into());
            }
            _ => {
                let known = vec!["a".to_owned(), "b".to_owned()];
                return Err(NotDone::NoNode { name: node.to_owned(), known });
            }
        }
        Ok(self.member(node))
    }

    fn run(&self, _: &CheckedJob, _: Change) -> Result<bool, NotDone> {
        panic!("the control of these tests has jobs of its own")
    }

    fn stop(&self, _: &str) -> Result<(), NotDone> {
        panic!("the control of these tests has jobs of its own")
    }

    fn change_query(&self, _: &str, _: &str, _: &str, _: Option<&str>) -> Result<(), NotDone> {
        panic!("the control of these tests has queries of its own")
    }

    fn present(
        &self,
        _: &str,
        _: &str,
        _: &str,
        _: &[KeyOf],
        _: Option<Offset>,
    ) -> Result<cluster_view::Present, NotDone> {
        panic!("the control of these tests has queries of its own")
    }

    #[cfg(feature = "sql")]
    fn tables_of(&self, _: Offset, text: &str) -> Result<Arc<dyn thalweg_table::Catalog>, Error> {
        Err(Error::user(format!("no part {text:?}")))
    }
}

/// A job with something in every field.
fn payments() -> JobSnapshot {
    let task = |worker| TaskSnapshot {
        records_in: 500,
        records_out: 490,
        batches_in: 20,
        busy: Duration::from_millis(2_500),
        queued_bytes: 64,
        state_bytes: 4_096,
        cache: Some(CacheCounts {
            keys: 40,
            stored: 200,
            key_bytes: 3_000,
            hits: 900,
            misses: 30,
            filled: 20,
            evictions: 10,
        }),
        judged: Some(JudgedCounts { late: 6, duplicates: 7 }),
        table: Some(TableCounts {
            lookups: 700,
            misses: 60,
            age_seconds: Some(50),
            reloads: 4,
            failed_reloads: 3,
        }),
        blocked: worker == 1,
        worker,
    };
    let mut latency = LatencyCounts::default();
    latency.add(Duration::from_micros(300), 980);
    latency.add(Duration::from_millis(2), 15);
    latency.add(Duration::from_millis(9), 5);
    let mut markers = LatencyCounts::default();
    markers.add(Duration::from_micros(70), 9);
    let mut marker_cpu = LatencyCounts::default();
    marker_cpu.add(Duration::from_micros(50), 9);
    let datagrams = DatagramCounts {
        datagrams: 100,
        records: 800,
        dropped_datagrams: 7,
        dropped_records: 70,
        refused_datagrams: 3,
    };
    let partition = thalweg_flow::PartitionCounts {
        records: 900,
        position: 950,
        end: 1_000,
        lag: 50,
        lag_seconds: Duration::from_secs(2),
        in_flight: 25,
        missing: 4,
        tombstones: 2,
        empty: 1,
    };
    let agent = AgentCounts { datagrams: 90, samples: 800, lost: 6, malformed: 5, unknown: 4, netflow: 2 };
    JobSnapshot {
        name: "payments".to_owned(),
        state: State::Running,
        failure: Some(Failure {
            operator: "features".to_owned(),
            task: 1,
            record: Some("payments@17".to_owned()),
            message: "value out of range".to_owned(),
            panic: false,
            hint: None,
        }),
        uptime: Duration::from_secs(10),
        records: 1_000,
        answers: 990,
        rejects: 10,
        rejects_removed: 0,
        last_cycle: 9,
        commits: Some(Commits { cycle: 8, took: Duration::from_millis(12), ..Commits::default() }),
        tick: Some(1_700_000_000_000_000),
        clock: ClockStats { ahead: -2_500_000, jumps: 3 },
        sources: vec![SourceSnapshot {
            name: "payments".to_owned(),
            kind: "http".to_owned(),
            records: 1_000,
            bytes: 80_000,
            rejects: 10,
            progress: Some((80_000, None)),
            ended: false,
            blocked: false,
            has_door: true,
            address: None,
            lag: Some(Duration::from_millis(1_500)),
            connections: None,
            partitions: Some(vec![("t[0]".into(), partition)]),
            datagrams: Some(DatagramStats {
                total: datagrams,
                senders: 2,
                worst: vec![("10.0.0.7".parse().unwrap(), datagrams)],
                kernel_drops: Some(11),
                left_out: [("cut", 2)].into(),
                agents: Some(AgentStats {
                    total: agent,
                    agents: 1,
                    missing: 5,
                    worst: vec![("10.0.0.8".parse().unwrap(), agent)],
                }),
            }),
            tasks: vec![task(0)],
        }],
        operators: vec![OperatorSnapshot {
            name: "features".to_owned(),
            kind: "metrics".to_owned(),
            is_sink: false,
            queries: vec![QuerySnapshot { name: "card_1h".to_owned(), text: "SELECT …".to_owned() }],
            dropped: Vec::new(),
            task_time: Some(1_700_000_000_000_000),
            lag: Some(Duration::from_millis(2_500)),
            latency,
            markers,
            marker_cpu,
            expired: Some(thalweg_connect::Expired { rows: 7, files: 2, bytes: 900 }),
            delivery: Some(thalweg_connect::DeliveryCounts {
                acknowledged: 980,
                retried: 3,
                in_flight: 700,
                unaddressed: 1,
                transactions: 12,
                transaction_time: Duration::from_millis(90),
                longest_transaction: Duration::from_millis(20),
            }),
            tasks: vec![task(0), task(1)],
        }],
        links: vec![LinkSnapshot {
            from: "payments".to_owned(),
            output: 0,
            to: "features".to_owned(),
            partitioning: "key(card)".to_owned(),
            bytes: 90_000,
            queued_bytes: 128,
            high_watermark_hits: 3,
            chained: false,
        }],
    }
}
