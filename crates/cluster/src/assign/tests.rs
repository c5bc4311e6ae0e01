//! Plans for small clusters, and for many at random.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use fastrand::Rng;

use super::*;
use crate::control::{Beat, Cause, Choice, Name, Record, Report, Stage, Text, Why};
use crate::fold::tests::kit::{Log, beat, drain, gap, join, leave, name, process, spec, unit};
use crate::fold::{STATE_EVERY, TROUBLE_LASTS};

const SETTINGS: Settings = Settings { at_once: 8, into: 2, out_of: 4, tolerance: 16 };

/// A unit, its active before and after, and why.
type Move = (Unit, Option<Name>, Option<Name>, Option<Why>);

/// A cluster whose nodes do what plans say at once, and whose leader plans while there is something to plan.
struct Cluster {
    log: Log,
    live: BTreeSet<String>,
    settings: Settings,
    /// Load and bytes that actives report.
    loads: BTreeMap<Unit, (u64, u64)>,
    /// Most units that were on their way in one plan.
    in_flight: usize,
    /// Units whose active changed, with the reason, plan by plan.
    moves: Vec<Move>,
}

impl Cluster {
    fn new(nodes: &[&str]) -> Self {
        let mut cluster = Self {
            log: Log::new(),
            live: BTreeSet::new(),
            settings: SETTINGS,
            loads: BTreeMap::new(),
            in_flight: 0,
            moves: Vec::new(),
        };
        for node in nodes {
            cluster.joins(node, None, 1);
        }
        cluster
    }

    fn joins(&mut self, node: &str, host: Option<&str>, capacity: u32) {
        let mut join = join(node, self.log.end());
        join.capacity = capacity;
        if let Some(host) = host {
            join.host = Text::new(host).unwrap();
        }
        self.log.counts(Record::Join(join));
        self.live.insert(node.to_owned());
        self.beat(node, &[], &[]);
    }

    fn beat(&mut self, node: &str, reports: &[Report], trouble: &[Unit]) {
        let mut beat = beat(node, self.log.end());
        beat.reports = reports.to_vec();
        beat.trouble = trouble.iter().cloned().collect();
        self.log.counts(Record::Beat(beat));
    }

    /// One plan, after which each live node beats.
    fn plan(&mut self) {
        let state = self.log.state();
        let leader = state.by_age()[0].clone();
        let process = Process { incarnation: state.member(&leader).unwrap().incarnation, name: leader };
        let plan = propose(state, &process, &self.settings);
        self.check(&plan);
        for (unit, placement) in &plan.units {
            let before = state.unit(unit).and_then(|known| known.planned.clone());
            if before != placement.active {
                self.moves.push((unit.clone(), before, placement.active.clone(), placement.why));
            }
        }
        let in_flight = plan.units.values().filter(|placement| placement.target.is_some()).count();
        self.in_flight = self.in_flight.max(in_flight);
        self.log.counts(Record::Plan(plan));
    }

    /// Nodes report what they have; those that follow have caught up.
    fn report(&mut self) {
        for node in self.live.clone() {
            let state = self.log.state();
            let has = state.units().filter(|(_, known)| known.has(&name(&node)));
            let reports: Vec<Report> = has
                .map(|(unit, _)| {
                    let (load, bytes) = self.loads.get(unit).copied().unwrap_or_default();
                    Report { unit: unit.clone(), load, bytes, position: self.log.end(), ready: true }
                })
                .collect();
            for part in reports.chunks(200) {
                self.beat(&node, part, &[]);
            }
            if reports.is_empty() {
                self.beat(&node, &[], &[]);
            }
        }
    }

    fn settle(&mut self) {
        self.moves.clear();
        self.in_flight = 0;
        for _ in 0..200 {
            self.report();
            if !self.has_to_plan() {
                return;
            }
            self.plan();
        }
        panic!("there is always something to plan: {:?}", self.log.state().events());
    }

    /// The units that a node has by the plan in force.
    fn units_of(&self, node: &str) -> Vec<Unit> {
        let has = self.log.state().units().filter(|(_, known)| known.planned == Some(name(node)));
        has.map(|(unit, _)| unit.clone()).collect()
    }

    fn has_to_plan(&self) -> bool {
        let state = self.log.state();
        let leader = state.by_age()[0].clone();
        let incarnation = state.member(&leader).unwrap().incarnation;
        state.may_plan(&Process { incarnation, name: leader })
    }

    /// Makes the leader look at the plan again.
    fn review(&mut self) {
        self.log.now += 10_000_000;
        for _ in 0..STATE_EVERY / 10_000_000 {
            self.log.now += 10_000_000;
            self.report();
            if self.has_to_plan() {
                break;
            }
        }
        self.settle();
    }

    fn check(&self, plan: &Plan) {
        let state = self.log.state();
        for (unit, placement) in &plan.units {
            let host = |name: &Name| state.member(name).unwrap().host.clone();
            let copies: Vec<_> = placement.active.iter().chain(&placement.replicas).map(host).collect();
            let hosts: BTreeSet<_> = copies.iter().collect();
            assert_eq!(hosts.len(), copies.len(), "{unit}: {placement:?}");
            let may = |name: &Name| state.bound_to(unit).is_none_or(|bound| bound == name);
            assert!(placement.active.iter().all(may), "{unit}: {placement:?}");
            let is_nobodys = !state.members().any(|(name, _)| may(name));
            assert!(placement.active.is_some() || is_nobodys, "{unit}");
        }
    }

    fn counts(&self) -> Vec<String> {
        let count = |node: &String| {
            let has =
                self.log.state().units().filter(|(_, known)| known.planned.as_ref() == Some(&name(node)));
            format!("{node} {}", has.count())
        };
        self.live.iter().map(count).collect()
    }
}

fn fraud(partitions: u32, replicas: u32) -> Record {
    Record::Spec(spec(1, partitions, replicas))
}

#[test]
fn units_are_spread_by_capacity() {
    let mut cluster = Cluster::new(&["alpha", "beta"]);
    cluster.joins("gamma", None, 2);
    cluster.log.counts(fraud(16, 0));
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 4", "beta 4", "gamma 8"]);
    let first = Why { cause: Cause::New, choice: Choice::Budget };
    assert!(cluster.moves.iter().all(|(_, from, _, why)| from.is_none() && *why == Some(first)));
}

#[test]
fn a_node_that_joins_gets_its_share_and_nothing_else_moves() {
    for nodes in 1..6_usize {
        for partitions in [8, 64, 256] {
            let names = ["alpha", "beta", "gamma", "delta", "epsilon"];
            let mut cluster = Cluster::new(&names[..nodes]);
            cluster.log.counts(fraud(partitions, 0));
            cluster.settle();
            cluster.joins("zeta", None, 1);
            cluster.settle();
            assert!(cluster.moves.iter().all(|(_, _, to, _)| *to == Some(name("zeta"))));
            let mut units: Vec<_> = cluster.moves.iter().map(|(unit, ..)| unit).collect();
            units.dedup();
            assert_eq!(units.len(), cluster.moves.len(), "each once");
            let share = partitions as usize / (nodes + 1);
            // Shares may differ by a sixteenth.
            let moves = cluster.moves.len();
            assert!(
                moves <= share && moves + share / 16 + 1 >= share,
                "{nodes} nodes, {partitions}: {moves} of {share}"
            );
            if share < 16 {
                assert_eq!(moves, share);
            }
            assert!(cluster.in_flight <= SETTINGS.into, "a node catches up with few at once");
        }
    }
}

#[test]
fn of_a_node_that_leaves_only_its_own_units_move() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma", "delta"]);
    cluster.log.counts(fraud(64, 0));
    cluster.settle();
    cluster.log.counts(leave("beta"));
    cluster.live.remove("beta");
    cluster.settle();
    assert_eq!(cluster.moves.len(), 16);
    assert!(cluster.moves.iter().all(|(_, from, ..)| *from == Some(name("beta"))));
    let mut counts = cluster.counts();
    counts.sort();
    assert_eq!(counts, ["alpha 21", "delta 21", "gamma 22"]);
}

#[test]
fn a_node_to_be_drained_loses_its_units_to_those_that_have_caught_up() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma"]);
    cluster.log.counts(fraud(32, 0));
    cluster.settle();
    cluster.log.counts(drain("gamma", true));
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 16", "beta 16", "gamma 0"]);
    let why = Some(Why { cause: Cause::Drain, choice: Choice::CaughtUp });
    assert!(cluster.moves.iter().all(|(_, from, _, reason)| *from == Some(name("gamma")) && *reason == why));
    assert!(cluster.in_flight <= 4, "{} at once", cluster.in_flight);
    cluster.log.counts(drain("gamma", false));
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 11", "beta 11", "gamma 10"]);
}

#[test]
fn a_unit_goes_to_a_replica_then_to_the_newest_stale_data() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma", "delta"]);
    cluster.log.counts(fraud(8, 1));
    cluster.settle();
    let of = |cluster: &Cluster, partition| cluster.log.state().unit(&unit(partition)).unwrap().clone();
    let before: Vec<_> = (0..8).map(|partition| of(&cluster, partition)).collect();
    assert!(before.iter().all(|known| known.replicas.len() == 1));
    cluster.log.counts(leave("alpha"));
    cluster.live.remove("alpha");
    cluster.plan();
    for (partition, before) in (0..8).zip(&before) {
        let now = of(&cluster, partition);
        if before.planned == Some(name("alpha")) {
            assert_eq!(now.planned.as_ref(), before.replicas.first(), "{partition}");
            assert_eq!(now.why, Some(Why { cause: Cause::Gone, choice: Choice::CaughtUp }));
        } else {
            assert_eq!(now.planned, before.planned);
        }
    }
    cluster.settle();
    assert!((0..8).all(|partition| of(&cluster, partition).replicas.len() == 1));

    let mut cluster = Cluster::new(&["alpha", "beta", "gamma", "delta"]);
    cluster.log.counts(fraud(4, 0));
    cluster.settle();
    let stale = |position| Report { unit: unit(0), load: 0, bytes: 0, position, ready: false };
    let owner = of(&cluster, 0).planned.unwrap();
    let others: Vec<String> = cluster.live.iter().filter(|node| name(node) != owner).cloned().collect();
    for (node, position) in others.iter().zip([500, 900, 700]) {
        cluster.beat(node, &[stale(position)], &[]);
    }
    cluster.log.counts(leave(owner.as_str()));
    cluster.live.remove(owner.as_str());
    cluster.settle();
    assert_eq!(of(&cluster, 0).planned, Some(name(&others[1])));
    assert_eq!(of(&cluster, 0).why, Some(Why { cause: Cause::Gone, choice: Choice::Stale }));
}

#[test]
fn copies_are_on_different_hosts_and_there_are_fewer_where_hosts_are_few() {
    let mut cluster = Cluster::new(&[]);
    for (node, host) in [("alpha", "one"), ("beta", "one"), ("gamma", "two"), ("delta", "two")] {
        cluster.joins(node, Some(host), 1);
    }
    cluster.log.counts(fraud(16, 2));
    cluster.settle();
    for (_, known) in cluster.log.state().units() {
        assert_eq!(known.replicas.len(), 1);
    }
    cluster.joins("epsilon", Some("three"), 1);
    cluster.settle();
    for (_, known) in cluster.log.state().units() {
        assert_eq!(known.replicas.len(), 2);
    }
    // Without replicas nodes of one host share all units.
    let mut cluster = Cluster::new(&[]);
    cluster.joins("alpha", Some("one"), 1);
    cluster.log.counts(fraud(8, 0));
    cluster.settle();
    cluster.joins("beta", Some("one"), 1);
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 4", "beta 4"]);
}

#[test]
fn units_in_trouble_are_taken_away_first_and_not_given_back_for_a_minute() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma"]);
    cluster.log.counts(fraud(8, 0));
    cluster.settle();
    let mine = cluster.units_of("beta");
    cluster.beat("beta", &[], &mine);
    cluster.plan();
    assert_eq!(cluster.counts()[1], "beta 0");
    let why = cluster.log.state().unit(&mine[0]).unwrap().why;
    assert_eq!(why, Some(Why { cause: Cause::Trouble, choice: Choice::Budget }));
    // Shares ask for them to come back; within the minute others go there.
    let limit = cluster.log.state().log_time() + TROUBLE_LASTS;
    cluster.settle();
    assert!(cluster.log.state().log_time() < limit);
    for unit in &mine {
        assert_ne!(cluster.log.state().active(unit), Some(&name("beta")));
    }
    assert_eq!(cluster.counts()[1], "beta 2");
}

#[test]
fn a_node_may_leave_once_the_only_other_one_is_out_of_trouble() {
    let mut cluster = Cluster::new(&["alpha", "beta"]);
    cluster.joins("gamma", None, 1);
    cluster.log.counts(fraud(6, 0));
    cluster.settle();
    let mine = cluster.units_of("beta");
    cluster.beat("beta", &[], &mine);
    let limit = cluster.log.state().log_time() + TROUBLE_LASTS;
    cluster.settle();
    for node in ["gamma", "alpha"] {
        cluster.log.counts(drain(node, true));
        cluster.settle();
    }
    assert!(cluster.log.state().log_time() < limit);
    assert_eq!(cluster.counts(), ["alpha 2", "beta 4", "gamma 0"], "beta may not have them yet");
    while cluster.log.state().log_time() < limit {
        assert!(!cluster.has_to_plan(), "nothing has changed");
        cluster.log.now += 10_000_000;
        cluster.report();
    }
    assert!(cluster.log.state().events().is_empty());
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 0", "beta 6", "gamma 0"]);
}

#[test]
fn where_most_nodes_are_in_trouble_nothing_moves_for_it() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma"]);
    cluster.log.counts(fraud(8, 0));
    cluster.settle();
    for node in ["alpha", "beta"] {
        let units = cluster.units_of(node);
        cluster.beat(node, &[], &units);
    }
    cluster.moves.clear();
    cluster.plan();
    assert_eq!(cluster.moves, []);
}

#[test]
fn a_node_that_has_not_beaten_or_does_not_compute_the_version_gets_nothing() {
    let mut cluster = Cluster::new(&["alpha"]);
    cluster.log.counts(Record::Join(join("beta", cluster.log.end())));
    cluster.log.counts(fraud(8, 0));
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 8"]);
    let mut older = join("gamma", cluster.log.end());
    older.semantics = BTreeSet::from([7]);
    cluster.log.counts(Record::Join(older));
    cluster.live.insert("gamma".to_owned());
    cluster.beat("gamma", &[], &[]);
    cluster.settle();
    assert_eq!(cluster.counts(), ["alpha 8", "gamma 0"]);
}

#[test]
fn heavy_units_count_for_more_and_shares_differ_by_a_unit_at_most() {
    let mut random = Rng::with_seed(7);
    for case in 0..60 {
        let names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"];
        let mut cluster = Cluster::new(&[]);
        for node in &names[..random.usize(2..6)] {
            cluster.joins(node, None, random.u32(1..4));
        }
        cluster.log.counts(fraud(64, 0));
        for partition in 0..64 {
            let load = if random.u8(..) < 32 { random.u64(0..10_000) } else { random.u64(0..1_000) };
            cluster.loads.insert(unit(partition), (load, random.u64(0..1 << 30)));
        }
        cluster.settle();
        cluster.review();
        let problem = problem::Problem::of(cluster.log.state());
        let mut over: Vec<i64> = problem.nodes.iter().map(|node| -node.budget).collect();
        let mut least = vec![i64::MAX; over.len()];
        for task in &problem.tasks {
            let active = task.active.unwrap();
            over[active] += task.weight;
            least[active] = least[active].min(task.weight);
        }
        let slack = problem.mean / 16;
        for from in 0..over.len() {
            for to in 0..over.len() {
                let gap = over[from] - over[to];
                assert!(least[from] == i64::MAX || gap <= least[from] + slack, "case {case}: {gap}");
            }
        }
        // Settled is settled.
        let plan = propose(cluster.log.state(), &process("alpha"), &SETTINGS);
        for (unit, placement) in &plan.units {
            assert_eq!(placement.active, cluster.log.state().unit(unit).unwrap().planned);
            assert_eq!(placement.target, None);
        }
    }
}

#[test]
fn rates_and_states_that_differ_by_little_move_nothing() {
    let mut random = Rng::with_seed(11);
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma"]);
    cluster.log.counts(fraud(16, 0));
    cluster.settle();
    for round in 0..30 {
        for partition in 0..16 {
            cluster.loads.insert(unit(partition), (random.u64(0..100), random.u64(0..1 << 20)));
        }
        cluster.review();
        assert_eq!(cluster.moves, [], "round {round}");
    }
    let has = cluster.log.state().units().filter(|(_, known)| known.planned == Some(name("gamma")));
    let of_gamma: BTreeSet<Unit> = has.map(|(unit, _)| unit.clone()).collect();
    cluster.log.counts(leave("gamma"));
    cluster.live.remove("gamma");
    cluster.settle();
    let moved: BTreeSet<Unit> = cluster.moves.iter().map(|(unit, ..)| unit.clone()).collect();
    assert_eq!(moved, of_gamma);
    assert_eq!(cluster.moves.len(), moved.len(), "each once");
}

#[track_caller]
fn explained(cluster: &Cluster, partition: u32, expected: &Expect) {
    let explanation = explain(cluster.log.state(), &unit(partition)).unwrap();
    expected.assert_eq(&explanation.to_string());
}

#[test]
fn a_unit_is_explained() {
    let mut cluster = Cluster::new(&["alpha"]);
    cluster.log.counts(fraud(2, 0));
    explained(
        &cluster,
        0,
        &expect![[r#"
        unit fraud/card/0 is nobody's; there is no plan yet
        next: no node was chosen; the next plan, by alpha, gives it to a node that receives units
    "#]],
    );
    cluster.settle();
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is at alpha by the plan at offset 4
            why: new: most budget
            next: alpha keeps it until 12 beats of the others come without one of it, it leaves or is drained, names the unit as in trouble, or has more than its share
        "#]],
    );
    cluster.joins("beta", None, 1);
    cluster.plan();
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is at alpha since the plan at offset 4; the one at 8 is in force
            why: new: most budget
            next: beta takes over once it has caught up; it has reported no data yet
        "#]],
    );
    cluster.settle();
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is at beta by the plan at offset 11
            why: balance: caught up; it was at alpha
            next: beta keeps it until 12 beats of the others come without one of it, it leaves or is drained, names the unit as in trouble, or has more than its share
        "#]],
    );
    cluster.joins("gamma", None, 1);
    cluster.settle();
    cluster.beat("beta", &[], &[unit(0)]);
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is at beta since the plan at offset 11; the one at 19 is in force
            why: balance: caught up; it was at alpha
            next: beta names it as in trouble: the next plan takes it away if another node may have it
        "#]],
    );
    cluster.plan();
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is at gamma by the plan at offset 24
            why: trouble: most budget; it was at beta
            next: gamma keeps it until 12 beats of the others come without one of it, it leaves or is drained, names the unit as in trouble, or has more than its share
            next: beta named it as in trouble and may not have it for 59 s more
        "#]],
    );
    cluster.log.counts(leave("gamma"));
    cluster.log.counts(drain("alpha", true));
    explained(
        &cluster,
        0,
        &expect![[r#"
            unit fraud/card/0 is nobody's by the plan at offset 24
            why: trouble: most budget; it was at beta
            next: gamma is no member; the next plan, by alpha, gives it to a node that receives units
            next: beta named it as in trouble and may not have it for 59 s more
        "#]],
    );
    explained(
        &cluster,
        1,
        &expect![[r#"
            unit fraud/card/1 is at alpha since the plan at offset 4; the one at 24 is in force
            why: new: most budget
            next: alpha is to be drained: it moves once few enough others do
        "#]],
    );
    assert_eq!(explain(cluster.log.state(), &unit(2)), None);
}

#[test]
fn a_unit_that_waits_for_rows_is_explained_and_so_is_the_one_that_sent_them() {
    let mut cluster = Cluster::new(&["alpha"]);
    cluster.log.counts(fraud(2, 0));
    cluster.settle();
    let end = cluster.log.end();
    cluster.log.counts(Record::Beat(Beat { gaps: vec![gap(0, 1)], ..beat("alpha", end) }));
    let said = |partition| explain(cluster.log.state(), &unit(partition)).unwrap().to_string();
    let receiver = "gap: rows of fraud/card/1 after mark 12.3+1 have not come by offset 99\n";
    assert!(said(0).contains(receiver), "{}", said(0));
    let sender = "gap: fraud/card/0 has not got its rows after mark 12.3+1 by offset 99\n";
    assert!(said(1).contains(sender), "{}", said(1));
}

#[test]
fn a_unit_that_is_bound_to_a_node_is_there_or_nowhere() {
    let mut cluster = Cluster::new(&["alpha", "beta", "gamma"]);
    let mut bound = spec(1, 1, 0);
    bound.stages.get_mut(&name("card")).unwrap().node = Some(name("delta"));
    bound.stages.insert(name("shop"), Stage::new(8, 0));
    cluster.log.counts(Record::Spec(bound.clone()));
    cluster.settle();
    let of = |cluster: &Cluster| cluster.log.state().active(&unit(0)).cloned();
    assert_eq!(of(&cluster), None);
    let explained = |cluster: &Cluster| explain(cluster.log.state(), &unit(0)).unwrap().to_string();
    let text = explained(&cluster);
    assert!(text.contains("binds it to node delta"), "{text}");

    cluster.joins("delta", None, 1);
    cluster.settle();
    assert_eq!(of(&cluster), Some(name("delta")));
    // Whatever becomes of it, no other node gets it, and the rest moves as ever.
    cluster.beat("delta", &[], &[unit(0)]);
    cluster.settle();
    assert_eq!(of(&cluster), Some(name("delta")), "in trouble");
    cluster.log.counts(drain("delta", true));
    cluster.settle();
    assert_eq!(of(&cluster), Some(name("delta")), "to be drained");
    assert_eq!(cluster.counts()[1], "beta 3");
    cluster.log.counts(leave("delta"));
    cluster.live.remove("delta");
    cluster.settle();
    assert_eq!(of(&cluster), None, "gone");

    // The job may name another one.
    bound.number = 2;
    bound.stages.get_mut(&name("card")).unwrap().node = Some(name("beta"));
    cluster.log.counts(Record::Spec(bound));
    cluster.settle();
    assert_eq!(of(&cluster), Some(name("beta")));
}
