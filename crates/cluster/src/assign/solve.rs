//! The steps of an assignment, over numbers.

use std::collections::BTreeSet;

use super::Settings;
use super::problem::{Held, Problem, Task};
use crate::control::{Cause, Choice, Why};
use crate::rules::{Rule, holds};

/// Where a unit is to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Chosen {
    pub(super) active: Option<usize>,
    pub(super) target: Option<usize>,
    pub(super) replicas: Vec<usize>,
    pub(super) why: Option<Why>,
}

impl Chosen {
    /// The node that has the unit in the end.
    fn owner(&self) -> Option<usize> {
        self.target.or(self.active)
    }
}

/// Receivers that a step looks at before it gives a donor up, so that rows of nodes on one host cost no square of nodes.
const TRIES: usize = 16;

/// The place of each unit, and whether there would have been more moves than may be at once.
pub(super) fn solve(problem: &Problem<'_>, settings: &Settings) -> (Vec<Chosen>, bool) {
    let mut solver = Solver::new(problem, settings);
    let orphans = solver.keep();
    let under_way = solver.moves;
    solver.place(orphans);
    solver.drain();
    if holds(Rule::SharesAreEven) {
        solver.balance();
    }
    solver.fill_replicas();
    // Moves that are under way end with events of their own.
    let more = solver.moves >= solver.settings.at_once && solver.moves > under_way;
    (solver.chosen, more)
}

struct Solver<'a> {
    problem: &'a Problem<'a>,
    settings: Settings,
    chosen: Vec<Chosen>,
    /// Weight by node, of units and replicas that it has in the end.
    loads: Vec<i64>,
    /// Nodes that receive, by budget left.
    room: BTreeSet<(i64, usize)>,
    /// Units and replicas on their way, by node; units that leave, by node; moves in all.
    into: Vec<usize>,
    out_of: Vec<usize>,
    moves: usize,
}

impl<'a> Solver<'a> {
    fn new(problem: &'a Problem<'a>, settings: &Settings) -> Self {
        let nodes = problem.nodes.len();
        let room = problem.nodes.iter().enumerate().filter(|(_, node)| node.receives);
        let settings = if holds(Rule::FewAtOnce) {
            *settings
        } else {
            Settings { at_once: usize::MAX, into: usize::MAX, out_of: usize::MAX, ..*settings }
        };
        Self {
            problem,
            settings,
            chosen: vec![Chosen::default(); problem.tasks.len()],
            loads: vec![0; nodes],
            room: room.map(|(at, node)| (node.budget, at)).collect(),
            into: vec![0; nodes],
            out_of: vec![0; nodes],
            moves: 0,
        }
    }

    /// Step 1: what stays. Returns units without a node, with the cause.
    fn keep(&mut self) -> Vec<(usize, Cause)> {
        let mut orphans = Vec::new();
        for (at, task) in self.problem.tasks.iter().enumerate() {
            let mut chosen = Chosen::default();
            let keeps = |node: usize| task.is_able(node) && !task.banned.contains(&node);
            let active = task.active.filter(|_| holds(Rule::KeepWhatYouHave));
            chosen.replicas = task.replicas.iter().copied().filter(|node| keeps(*node)).collect();
            chosen.replicas.retain(|node| !self.problem.nodes[*node].drains);
            let target = task.target.filter(|node| keeps(*node) && self.problem.nodes[*node].receives);
            match active {
                Some(active) if keeps(active) => match target {
                    Some(target) if task.is_ready(target) => {
                        let drains = self.problem.nodes[active].drains;
                        let cause = if drains { Cause::Drain } else { Cause::Balance };
                        chosen.active = Some(target);
                        chosen.why = Some(Why { cause, choice: Choice::CaughtUp });
                    }
                    Some(target) => {
                        chosen.active = Some(active);
                        chosen.target = Some(target);
                        self.into[target] += 1;
                        self.out_of[active] += 1;
                        self.moves += 1;
                    }
                    None => chosen.active = Some(active),
                },
                Some(active) if !task.is_able(active) => orphans.push((at, Cause::Gone)),
                Some(_) => orphans.push((at, Cause::Trouble)),
                None if task.is_old => orphans.push((at, Cause::Gone)),
                None => orphans.push((at, Cause::New)),
            }
            if let Some(owner) = chosen.owner() {
                self.add(owner, task.weight);
            }
            self.keep_replicas(at, chosen);
        }
        orphans
    }

    /// Replicas that share no host with the active or each other stay.
    fn keep_replicas(&mut self, at: usize, mut chosen: Chosen) {
        let task = &self.problem.tasks[at];
        let mut hosts: Vec<usize> =
            chosen.active.iter().chain(&chosen.target).map(|node| self.problem.nodes[*node].host).collect();
        chosen.replicas.truncate(task.replicas_wanted);
        chosen.replicas.retain(|node| {
            let host = self.problem.nodes[*node].host;
            let is_free = !hosts.contains(&host) || !holds(Rule::HostsDiffer);
            hosts.push(host);
            is_free && chosen.active != Some(*node) && chosen.target != Some(*node)
        });
        for node in &chosen.replicas {
            if !task.is_ready(*node) {
                self.into[*node] += 1;
            }
            self.add(*node, task.weight);
        }
        self.chosen[at] = chosen;
    }

    /// Step 2: units without a node, the heaviest first.
    fn place(&mut self, mut orphans: Vec<(usize, Cause)>) {
        orphans.sort_by_key(|(at, _)| (-self.problem.tasks[*at].weight, *at));
        for (at, cause) in orphans {
            let task = &self.problem.tasks[at];
            // A node in trouble works on as far as it can: it is left in small steps.
            let still = task.active.filter(|active| cause == Cause::Trouble && task.is_able(*active));
            let may_move = still.is_none() || self.moves < self.settings.at_once;
            let mut found = self.choose(at, may_move, |_, _| true);
            if found.is_none() && still.is_none() {
                // A copy that sends is worth more than those that follow on the hosts that are left.
                for replica in std::mem::take(&mut self.chosen[at].replicas) {
                    self.into[replica] -= usize::from(!task.is_ready(replica));
                    self.add(replica, -task.weight);
                }
                found = self.choose(at, true, |_, _| true).or_else(|| self.choose_banned(at));
            }
            match (found, still) {
                (Some((node, choice)), _) => {
                    self.moves += usize::from(still.is_some());
                    self.give(at, node, Why { cause, choice });
                }
                (None, Some(active)) => {
                    self.chosen[at].active = Some(active);
                    self.add(active, task.weight);
                }
                (None, None) => {}
            }
        }
    }

    /// Makes a node the active of a unit that has none; it may have been a replica.
    fn give(&mut self, at: usize, node: usize, why: Why) {
        let task = &self.problem.tasks[at];
        let chosen = &mut self.chosen[at];
        chosen.active = Some(node);
        chosen.why = Some(why);
        let before = chosen.replicas.len();
        chosen.replicas.retain(|replica| *replica != node);
        if chosen.replicas.len() == before {
            self.add(node, task.weight);
        } else {
            // It is on its way no more: an active catches up by itself, and says no word of it.
            self.into[node] -= usize::from(!task.is_ready(node));
        }
    }

    /// Step 3: units of nodes to be drained.
    fn drain(&mut self) {
        if !holds(Rule::DrainedLoseUnits) {
            return;
        }
        for at in 0..self.chosen.len() {
            let Chosen { active: Some(active), target: None, .. } = self.chosen[at] else { continue };
            if !self.problem.nodes[active].drains || self.out_of[active] >= self.settings.out_of {
                continue;
            }
            if self.moves >= self.settings.at_once {
                return;
            }
            let limit = self.settings.into;
            let may = |solver: &Self, node: usize| {
                let follows = solver.chosen[at].replicas.contains(&node);
                follows || solver.into[node] < limit || solver.problem.tasks[at].is_ready(node)
            };
            if let Some((node, choice)) = self.choose(at, true, may) {
                self.send(at, active, node, Cause::Drain, choice);
            }
        }
    }

    /// Step 3: from the node that has most above its budget to the one that has least, while that makes shares more even.
    fn balance(&mut self) {
        let slack = self.problem.mean / i64::from(self.settings.tolerance.max(1));
        let mut units: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.problem.nodes.len()];
        for (at, chosen) in self.chosen.iter().enumerate() {
            if let Chosen { active: Some(active), target: None, .. } = chosen {
                units[*active].insert(at);
            }
        }
        while self.moves < self.settings.at_once {
            let Some((at, from, to)) = self.best_move(&units, slack) else { return };
            units[from].remove(&at);
            let choice = if self.problem.tasks[at].is_ready(to) { Choice::CaughtUp } else { Choice::Budget };
            self.send(at, from, to, Cause::Balance, choice);
        }
    }

    fn best_move(&self, units: &[BTreeSet<usize>], slack: i64) -> Option<(usize, usize, usize)> {
        for (least, from) in &self.room {
            if self.room.last().is_none_or(|(most, _)| most - least <= slack) {
                return None;
            }
            if self.out_of[*from] >= self.settings.out_of {
                continue;
            }
            for (most, to) in self.room.iter().rev().take(TRIES) {
                let gap = most - least - slack;
                if gap <= 0 {
                    break;
                }
                let candidates = units[*from].iter().copied().filter(|at| {
                    let task = &self.problem.tasks[*at];
                    let has_room = self.into[*to] < self.settings.into || task.is_ready(*to);
                    task.weight < gap
                        && has_room
                        && self.can(*at, *to, false)
                        && !self.chosen[*at].replicas.contains(to)
                });
                // Data first; then the one that closes the gap best; then the one with least to copy.
                let best = candidates.min_by_key(|at| {
                    let task = &self.problem.tasks[*at];
                    (task.class(*to), ((most - least) / 2 - task.weight).abs(), *at)
                });
                if let Some(at) = best {
                    return Some((at, *from, *to));
                }
            }
        }
        None
    }

    /// Moves a unit: at once to a node that has caught up, else by way of a target.
    fn send(&mut self, at: usize, from: usize, to: usize, cause: Cause, choice: Choice) {
        let task = &self.problem.tasks[at];
        self.moves += 1;
        self.add(from, -task.weight);
        let chosen = &mut self.chosen[at];
        let before = chosen.replicas.len();
        chosen.replicas.retain(|replica| *replica != to);
        let was_replica = chosen.replicas.len() < before;
        if task.is_ready(to) || !holds(Rule::CaughtUpFirst) {
            chosen.active = Some(to);
            chosen.why = Some(Why { cause, choice });
        } else {
            chosen.target = Some(to);
            self.into[to] += usize::from(!was_replica);
            self.out_of[from] += 1;
        }
        if !was_replica {
            self.add(to, task.weight);
        }
    }

    /// Step 4.
    fn fill_replicas(&mut self) {
        for at in 0..self.chosen.len() {
            let task = &self.problem.tasks[at];
            while self.chosen[at].replicas.len() < task.replicas_wanted && self.chosen[at].active.is_some() {
                let limit = self.settings.into;
                let may = |solver: &Self, node: usize| {
                    let chosen = &solver.chosen[at];
                    let host = solver.problem.nodes[node].host;
                    let others = chosen.active.iter().chain(&chosen.target).chain(&chosen.replicas);
                    let mut others = others.map(|other| solver.problem.nodes[*other].host);
                    let is_new = !others.any(|other| other == host) || !holds(Rule::HostsDiffer);
                    let is_other = chosen.active != Some(node)
                        && chosen.target != Some(node)
                        && !chosen.replicas.contains(&node);
                    is_new
                        && is_other
                        && (solver.into[node] < limit || solver.problem.tasks[at].is_ready(node))
                };
                let Some((node, _)) = self.choose(at, true, may) else { break };
                self.chosen[at].replicas.push(node);
                self.into[node] += usize::from(!task.is_ready(node));
                self.add(node, task.weight);
            }
        }
    }

    /// The node that a unit goes to, in the order of preference.
    fn choose(
        &self,
        at: usize,
        may_move: bool,
        may: impl Fn(&Self, usize) -> bool,
    ) -> Option<(usize, Choice)> {
        if !may_move {
            return None;
        }
        let task = &self.problem.tasks[at];
        if holds(Rule::DataIsPreferred) {
            let fits = |node: usize| {
                let Some(left) = self.left(node) else { return false };
                left + (self.problem.nodes[node].budget / 16).max(task.weight) >= task.weight
            };
            let held = task.held(&self.chosen[at].replicas).filter(|(class, held)| {
                let is_free = *class == Class::Ready || fits(held.node);
                is_free && self.can(at, held.node, false) && may(self, held.node)
            });
            let best = held.min_by_key(|(class, held)| {
                let position = if *class == Class::Stale { held.position } else { 0 };
                (*class, std::cmp::Reverse(position), std::cmp::Reverse(self.left(held.node)), held.node)
            });
            if let Some((class, held)) = best {
                return Some((held.node, class.choice()));
            }
        }
        let most = || self.room.iter().rev().map(|(_, node)| *node);
        let least = || self.room.iter().map(|(_, node)| *node);
        let fits = |node: &usize| self.can(at, *node, false) && may(self, *node);
        let node = if holds(Rule::SharesAreEven) { most().find(fits) } else { least().find(fits) };
        node.map(|node| (node, Choice::Budget))
    }

    /// A node for a unit that all nodes have named as in trouble.
    fn choose_banned(&self, at: usize) -> Option<(usize, Choice)> {
        let node = self.room.iter().rev().map(|(_, node)| *node).find(|node| self.can(at, *node, true));
        node.map(|node| (node, Choice::Budget))
    }

    /// Whether a unit may be at a node, and on its host with the replicas that it has.
    fn can(&self, at: usize, node: usize, even_if_banned: bool) -> bool {
        let task = &self.problem.tasks[at];
        let host = self.problem.nodes[node].host;
        let is_other = |replica: &usize| *replica != node && self.problem.nodes[*replica].host == host;
        let is_free = !self.chosen[at].replicas.iter().any(is_other) || !holds(Rule::HostsDiffer);
        self.problem.nodes[node].receives
            && is_free
            && task.is_able(node)
            && (even_if_banned || !task.banned.contains(&node))
    }

    fn left(&self, node: usize) -> Option<i64> {
        let of = &self.problem.nodes[node];
        of.receives.then(|| of.budget - self.loads[node])
    }

    fn add(&mut self, node: usize, weight: i64) {
        if let Some(left) = self.left(node) {
            self.room.remove(&(left, node));
            self.room.insert((left - weight, node));
        }
        self.loads[node] += weight;
    }
}

/// How good the data of a node is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Ready,
    Follows,
    Stale,
    Nothing,
}

impl Class {
    fn choice(self) -> Choice {
        match self {
            Class::Ready => Choice::CaughtUp,
            Class::Follows => Choice::Replica,
            Class::Stale => Choice::Stale,
            Class::Nothing => Choice::Budget,
        }
    }
}

impl Task {
    /// Whether a node could send at once.
    fn is_ready(&self, node: usize) -> bool {
        self.holders.iter().any(|held| held.node == node && held.ready)
    }

    fn class(&self, node: usize) -> Class {
        let follows = self.target == Some(node) || self.replicas.contains(&node);
        match self.holders.iter().find(|held| held.node == node) {
            Some(held) if held.ready => Class::Ready,
            _ if follows => Class::Follows,
            Some(_) => Class::Stale,
            None => Class::Nothing,
        }
    }

    /// Nodes with data: those that report some, and those that follow.
    fn held<'a>(&'a self, replicas: &'a [usize]) -> impl Iterator<Item = (Class, Held)> + 'a {
        let follows = self.target.iter().chain(replicas);
        let silent = follows.filter(|node| !self.holders.iter().any(|held| held.node == **node));
        let silent = silent.map(|node| Held { node: *node, position: 0, ready: false });
        self.holders.iter().copied().chain(silent).map(|held| (self.class(held.node), held))
    }
}
