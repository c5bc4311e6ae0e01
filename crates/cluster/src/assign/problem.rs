//! The state as numbers: nodes and units by index, weights and budgets.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_types::Offset;

use crate::control::{Name, Text};
use crate::fold::{Member, State, UnitState};
use crate::rules::{Rule, holds};

/// The weight of all units together; half of it is by load, a quarter by bytes, a quarter by number.
const ALL: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct Problem<'a> {
    /// Members, by name.
    pub(super) nodes: Vec<Node<'a>>,
    /// Units, in their order.
    pub(super) tasks: Vec<Task>,
    /// The mean budget of nodes that receive.
    pub(super) mean: i64,
}

#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) name: &'a Name,
    /// Hosts by number.
    pub(super) host: usize,
    /// Whether it may get units that it does not have.
    pub(super) receives: bool,
    /// Whether it has the units that the plan in force gives to its name.
    pub(super) keeps: bool,
    pub(super) drains: bool,
    /// The weight that it should have; 0 if it does not receive.
    pub(super) budget: i64,
}

#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) weight: i64,
    /// Whether it has had an active before.
    pub(super) is_old: bool,
    /// Nodes of the plan in force that are members.
    pub(super) active: Option<usize>,
    pub(super) target: Option<usize>,
    pub(super) replicas: Vec<usize>,
    pub(super) replicas_wanted: usize,
    pub(super) holders: Vec<Held>,
    /// Nodes that named it as in trouble.
    pub(super) banned: Vec<usize>,
    /// Nodes that do not compute its semantic version.
    pub(super) unable: Vec<usize>,
    /// The only node that may have it, where there is only one: `Some(None)` if that is no member.
    pub(super) bound: Option<Option<usize>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) node: usize,
    pub(super) position: Offset,
    pub(super) ready: bool,
}

impl Task {
    /// Whether a node could ever have it.
    pub(super) fn is_able(&self, node: usize) -> bool {
        !self.unable.contains(&node) && self.bound.is_none_or(|bound| bound == Some(node))
    }
}

impl<'a> Problem<'a> {
    pub(super) fn of(state: &'a State) -> Self {
        let mut hosts: BTreeMap<&Text, usize> = BTreeMap::new();
        let mut nodes: Vec<Node<'_>> = Vec::with_capacity(state.members.len());
        let mut capacities = Vec::with_capacity(state.members.len());
        // Where all are to be drained there is nobody to take their units: they keep them, and get those that are nobody's.
        let all_drain = !state.members.values().any(|member| !member.drains && has_beaten(member));
        for (name, member) in &state.members {
            let next = hosts.len();
            let host = *hosts.entry(&member.host).or_insert(next);
            let drains = member.drains && !all_drain;
            let receives = !drains && has_beaten(member);
            let keeps = member.keeps_units();
            capacities.push(if receives { i128::from(member.capacity) } else { 0 });
            nodes.push(Node { name, host, receives, keeps, drains, budget: 0 });
        }
        let tasks = tasks(state, &nodes);
        // Replicas that find no host of their own are no work.
        let hosts: BTreeSet<usize> =
            nodes.iter().filter(|node| node.receives).map(|node| node.host).collect();
        let copies = |task: &Task| (1 + task.replicas_wanted).min(hosts.len()).max(1) as i128;
        let work: i128 = tasks.iter().map(|task| i128::from(task.weight) * copies(task)).sum();
        let capacity: i128 = capacities.iter().sum();
        for (node, own) in nodes.iter_mut().zip(&capacities) {
            node.budget = i64::try_from(work * own / capacity.max(1)).unwrap_or(i64::MAX);
        }
        let receivers = capacities.iter().filter(|capacity| **capacity > 0).count();
        let mean = i64::try_from(work / (receivers.max(1) as i128)).unwrap_or(i64::MAX);
        Self { nodes, tasks, mean }
    }
}

/// Whether a process has shown that it does not fail at its start.
fn has_beaten(member: &Member) -> bool {
    member.has_beaten() || !holds(Rule::BeatsBeforeUnits)
}

fn tasks(state: &State, nodes: &[Node<'_>]) -> Vec<Task> {
    let index: BTreeMap<&Name, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
    let find = |name: &Name| index.get(name).copied().filter(|node| nodes[*node].keeps);
    let shares = Shares::of(state);
    let ignores_trouble = is_everywhere(state);
    let mut unable: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (_, job) in state.jobs() {
        unable.entry(job.semantics).or_insert_with(|| {
            let members = state.members.values().enumerate();
            members
                .filter(|(_, member)| !member.semantics.contains(&job.semantics))
                .map(|(at, _)| at)
                .collect()
        });
    }
    let task = |(unit, known): (&crate::control::Unit, &UnitState)| {
        let job = state.jobs.get(&unit.job);
        let stage = job.and_then(|job| job.stages.get(&unit.stage));
        let bans = known.bans.iter().filter(|(_, until)| **until > state.age && !ignores_trouble);
        let held = known.holders.iter().filter_map(|(name, holder)| {
            Some(Held { node: find(name)?, position: holder.position, ready: holder.ready })
        });
        Task {
            weight: shares.weight(known),
            is_old: known.since.is_some(),
            active: known.planned.as_ref().and_then(find),
            target: known.target.as_ref().and_then(find),
            replicas: known.replicas.iter().filter_map(find).collect(),
            replicas_wanted: stage.map_or(0, |stage| stage.replicas as usize),
            holders: held.collect(),
            banned: bans.filter_map(|(name, _)| find(name)).collect(),
            unable: job.and_then(|job| unable.get(&job.semantics)).cloned().unwrap_or_default(),
            bound: state.bound_to(unit).map(|name| index.get(name).copied()),
        }
    };
    state.units.iter().map(task).collect()
}

/// Whether more than half of the members name units as in trouble: then it is not the nodes, and to move units would only
/// copy their state from one to the next.
pub(super) fn is_everywhere(state: &State) -> bool {
    let troubled = state.members.values().filter(|member| member.names_trouble()).count();
    troubled * 2 > state.members.len()
}

/// Rows a second and bytes that every unit is charged with on top of its own, so that shares that differ by what is little
/// work for a node move nothing: some rows a second vary by chance, and state that small is copied in a moment.
const LITTLE_LOAD: u64 = 1_000;
const LITTLE_STATE: u64 = 16 << 20;

/// What each row a second, each byte and each unit weighs.
struct Shares {
    units: u128,
    load: u128,
    bytes: u128,
}

impl Shares {
    fn of(state: &State) -> Self {
        let sum = |value: fn(&UnitState) -> u128| state.units.values().map(value).sum();
        Self { units: state.units.len() as u128, load: sum(load), bytes: sum(bytes) }
    }

    fn weight(&self, unit: &UnitState) -> i64 {
        let by = |part: u64, value: u128, all: u128| (u128::from(part) * value).checked_div(all).unwrap_or(0);
        let weight = by(ALL / 4, 1, self.units)
            + by(ALL / 2, load(unit), self.load)
            + by(ALL / 4, bytes(unit), self.bytes);
        i64::try_from(weight).unwrap_or(i64::MAX).max(1)
    }
}

fn load(unit: &UnitState) -> u128 {
    u128::from(unit.load) + u128::from(LITTLE_LOAD)
}

fn bytes(unit: &UnitState) -> u128 {
    u128::from(unit.bytes) + u128::from(LITTLE_STATE)
}
