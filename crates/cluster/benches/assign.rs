//! Plans for large clusters: how long they take, how many units they move, and how large their records are.
//!
//! `cargo bench -p thalweg-cluster --bench assign`
//!
//! One item is a unit. The bound is 100 ms for 10,000 units on 500 nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use divan::Bencher;
use divan::counter::ItemsCount;
use expect_test::{Expect, expect};
use fastrand::Rng;
use thalweg_cluster::assign::{Settings, propose};
use thalweg_cluster::control::{
    self, Beat, Incarnation, Join, Leave, MAX_REPORTS, Name, Plan, Process, Record, Report, Spec, Stage,
    StateRecord, Text, Unit,
};
use thalweg_cluster::fold::State;

/// Sizes of clusters: nodes, and the partitions of the stages of their job.
const SMALL: (usize, &[u32]) = (5, &[64]);
const LARGE: (usize, &[u32]) = (500, &[4_096, 4_096, 1_024, 512, 256, 16]);

/// Plans that the benchmark makes.
const CASES: [&str; 6] = ["first", "settled", "leaves", "joins", "loads", "loads, all at once"];

static IS_MEASURED: LazyLock<bool> = LazyLock::new(|| std::env::args().any(|argument| argument == "--bench"));

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn process(node: usize) -> Process {
    Process { name: name(&format!("node-{node:03}")), incarnation: Incarnation(node as u64) }
}

struct Cluster {
    state: State,
    settings: Settings,
}

impl Cluster {
    fn new((nodes, stages): (usize, &[u32])) -> Self {
        let mut cluster = Self { state: State::new(), settings: Settings::default() };
        for node in 0..nodes {
            cluster.join(node);
        }
        let stages = stages
            .iter()
            .enumerate()
            .map(|(number, partitions)| (name(&format!("stage-{number}")), Stage::new(*partitions, 0)));
        let (job, text) = (name("fraud"), String::new());
        cluster.add(Record::Spec(Spec { job, number: 1, semantics: 1, stages: stages.collect(), text }));
        cluster
    }

    fn add(&mut self, record: Record) {
        let offset = self.state.next();
        let applied = self.state.apply(offset, offset as i64 * 1_000, &record);
        assert_eq!(applied.void, None);
    }

    fn join(&mut self, node: usize) {
        let process = process(node);
        let (host, address) = (Text::new(&format!("host-{node}")), Text::new("10.0.0.1:8080"));
        self.add(Record::Join(Join {
            process: process.clone(),
            read: self.state.next(),
            host: host.expect("a text"),
            capacity: 1,
            address: address.expect("a text"),
            semantics: BTreeSet::from([1]),
            newest: 1,
        }));
        self.beat(node, Vec::new());
    }

    fn beat(&mut self, node: usize, reports: Vec<Report>) {
        let (trouble, dropped) = (BTreeSet::new(), BTreeSet::new());
        let (process, read) = (process(node), self.state.next());
        self.add(Record::Beat(Beat { process, read, trouble, reports, dropped, gaps: Vec::new() }));
    }

    fn propose(&self) -> Plan {
        propose(&self.state, &process(0), &self.settings)
    }

    /// Actives report loads: some units have ten times that of others.
    fn report(&mut self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let mut of: BTreeMap<Name, Vec<Report>> = BTreeMap::new();
        for (unit, known) in self.state.units() {
            let load = if random.u8(..) < 25 { 10_000 } else { random.u64(500..1_500) };
            let Some(active) = &known.planned else { continue };
            let report = Report { unit: unit.clone(), load, bytes: 1 << 24, position: 1_000, ready: true };
            of.entry(active.clone()).or_default().push(report);
        }
        for (node, reports) in of {
            let node = node.as_str()[5..].parse().expect("a number");
            for part in reports.chunks(MAX_REPORTS) {
                self.beat(node, part.to_vec());
            }
        }
    }
}

/// The state before one of [`CASES`].
fn case(size: (usize, &'static [u32]), case: &str) -> Cluster {
    let mut cluster = Cluster::new(size);
    if case == "first" {
        return cluster;
    }
    let plan = cluster.propose();
    cluster.add(Record::Plan(plan));
    match case {
        "leaves" => cluster.add(Record::Leave(Leave { process: process(size.0 - 1) })),
        "joins" => cluster.join(size.0),
        "loads" => cluster.report(1),
        "loads, all at once" => {
            cluster.report(1);
            let all = usize::MAX;
            cluster.settings = Settings { at_once: all, into: all, out_of: all, ..cluster.settings };
        }
        _ => {}
    }
    cluster
}

fn line(size: (usize, &'static [u32]), name: &str) -> String {
    let cluster = case(size, name);
    let plan = cluster.propose();
    let before: BTreeMap<&Unit, _> = cluster.state.units().collect();
    let moved =
        plan.units.iter().filter(|(unit, placement)| before[unit].planned != placement.active).count();
    let targets = plan.units.values().filter(|placement| placement.target.is_some()).count();
    let record = control::encode(&Record::Plan(plan)).expect("a plan within its bounds");
    let state = StateRecord { process: process(0), state: cluster.state };
    let state = control::encode(&Record::State(Box::new(state))).expect("a state within its bounds");
    format!(
        "{name:<18} {moved:>5} moved, {targets:>5} targets, plan of {:>6} bytes ({:08x}), state of {:>7}\n",
        record.len(),
        crc32fast::hash(&record),
        state.len()
    )
}

fn check() {
    let hold = |size: (usize, &'static [u32]), expected: &Expect| {
        let units: u32 = size.1.iter().sum();
        let mut table = format!("{} nodes, {units} units\n", size.0);
        for case in CASES {
            let _ = write!(table, "{}", line(size, case));
        }
        if *IS_MEASURED {
            println!("{table}");
        }
        expected.assert_eq(&table);
    };
    hold(
        SMALL,
        &expect![[r#"
            5 nodes, 64 units
            first                 64 moved,     0 targets, plan of    646 bytes (a4c59aff), state of    2284
            settled                0 moved,     0 targets, plan of    433 bytes (fcd3931a), state of    2770
            leaves                13 moved,     0 targets, plan of    487 bytes (f65863f1), state of    2593
            joins                  0 moved,     2 targets, plan of    461 bytes (a0bde7c1), state of    3014
            loads                  0 moved,     2 targets, plan of    475 bytes (f6d38ee5), state of    4235
            loads, all at once     0 moved,     2 targets, plan of    475 bytes (f6d38ee5), state of    4235
        "#]],
    );
    hold(
        LARGE,
        &expect![[r#"
            500 nodes, 10000 units
            first              10000 moved,     0 targets, plan of 121405 bytes (ff645459), state of  175192
            settled                0 moved,     0 targets, plan of  75591 bytes (6df86bba), state of  340085
            leaves                20 moved,     0 targets, plan of  75750 bytes (5d72b08c), state of  339902
            joins                  0 moved,     2 targets, plan of  75623 bytes (11cabfc3), state of  340341
            loads                  0 moved,    32 targets, plan of  76167 bytes (03735175), state of  605327
            loads, all at once     0 moved,   212 targets, plan of  79356 bytes (8964a611), state of  605327
        "#]],
    );
}

#[divan::bench(args = CASES)]
fn plan_small(bencher: Bencher<'_, '_>, name: &str) {
    bench(bencher, SMALL, name);
}

#[divan::bench(args = CASES)]
fn plan_large(bencher: Bencher<'_, '_>, name: &str) {
    bench(bencher, LARGE, name);
}

fn bench(bencher: Bencher<'_, '_>, size: (usize, &'static [u32]), name: &str) {
    let cluster = case(size, name);
    bencher.counter(ItemsCount::new(cluster.state.units().count())).bench_local(|| cluster.propose());
}

/// A beat of a cluster in which all live.
#[divan::bench(args = [5, 500])]
fn fold_beat(bencher: Bencher<'_, '_>, nodes: usize) {
    let mut cluster = Cluster::new((nodes, LARGE.1));
    let mut node = 0;
    bencher.counter(ItemsCount::new(1_usize)).bench_local(|| {
        node = (node + 1) % nodes;
        cluster.beat(node, Vec::new());
    });
}

fn main() {
    check();
    divan::main();
}
