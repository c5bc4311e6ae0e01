//! How many keys rows have passed at each operator, and what of that cannot be spread over nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use thalweg_flow::Partitioning;

use super::Refusal;
use super::entry::check_node;
use super::parts::Exit;
use crate::job_file::{CheckedInput, CheckedJob, CheckedOperator, CheckedSink, Endpoint, NodeRef, Spread};
use crate::operator::{PartInput, Tasks};

/// How many keys are above each operator, its own included, and in which order they are.
///
/// Keys of which none reads what another makes are in line, too: rows for a later one pass through the stages before it. So
/// a record is one message at the door, and counts for all of them or for none.
pub(super) struct Levels {
    /// By operator.
    pub(super) of: Vec<usize>,
    /// Operators with a key, in the order of their levels: the first has level 1.
    pub(super) keyed: Vec<usize>,
}

/// What the units of a stage read.
pub(super) struct Stream {
    pub(super) endpoint: Endpoint,
    /// The input by which it is read in the job; the first one.
    pub(super) input: CheckedInput,
    /// Places of the fields by which rows are spread.
    pub(super) key: Vec<usize>,
    /// The operator that reads it, where that is in a later stage.
    pub(super) for_later: Option<usize>,
}

impl Levels {
    pub(super) fn of(job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Self {
        let mut levels = Self { of: vec![usize::MAX; job.operators.len()], keyed: Vec::new() };
        let mut left: Vec<usize> = (0..job.operators.len()).collect();
        while !left.is_empty() {
            // Inputs come before those that read them.
            left.retain(|place| {
                let operator = &job.operators[*place];
                let is_placed = levels.has_inputs(operator);
                if is_placed && !is_keyed(operator) {
                    levels.of[*place] = levels.level_of(job, operator, refusals);
                }
                !is_placed || is_keyed(operator)
            });
            // Nothing passes through an operator of several keys, so it comes last.
            let is_ready = |place: &usize| levels.has_inputs(&job.operators[*place]);
            let is_one = |place: &usize| job.operators[*place].prepared.links.is_none();
            let mut ready = left.iter().filter(|place| is_ready(place));
            let Some(next) = ready.clone().find(|place| is_one(place)).or_else(|| ready.next()).copied()
            else {
                break;
            };
            levels.keyed.push(next);
            levels.of[next] = levels.keyed.len();
            left.retain(|place| *place != next);
        }
        levels
    }

    fn has_inputs(&self, operator: &CheckedOperator) -> bool {
        operator.inputs.iter().all(|input| self.level(input.endpoint.node) < usize::MAX)
    }

    /// The level of an operator without a key.
    fn level_of(&self, job: &CheckedJob, operator: &CheckedOperator, refusals: &mut Vec<Refusal>) -> usize {
        let level = |input: &CheckedInput| self.level(input.endpoint.node);
        let greatest = operator.inputs.iter().map(level).max().unwrap_or(0);
        if let Some(input) = operator.inputs.iter().find(|input| level(input) < greatest) {
            refusals.push(Refusal::new(
                format!(
                    "operator {:?} has no key, and reads {:?}, which is above the key of {:?}, and rows that are below it",
                    operator.name, input.name, job.operators[self.keyed[greatest - 1]].name
                ),
                "let it read one side alone",
            ));
        }
        greatest
    }

    /// What the units of each stage read: first the inputs of its operator with the key, of which `keys` has the fields, then
    /// what passes through for later ones. The first stage is that of level 1.
    pub(super) fn streams(
        &self,
        job: &CheckedJob,
        keys: &[Vec<Vec<usize>>],
        refusals: &mut Vec<Refusal>,
    ) -> Vec<Vec<Stream>> {
        let read_by = |level: usize| {
            let place = self.keyed[level - 1];
            let operator = &job.operators[place];
            operator.inputs.iter().enumerate().map(move |(number, input)| {
                let first = operator.prepared.links.as_ref().and_then(|links| links.keys.first());
                let key = first.or_else(|| keys[level - 1].get(number)).cloned().unwrap_or_default();
                (place, input, key)
            })
        };
        let mut all = Vec::with_capacity(self.keyed.len());
        for level in 1..=self.keyed.len() {
            let own = read_by(level).map(|(_, input, key)| Stream {
                endpoint: input.endpoint,
                input: input.clone(),
                key,
                for_later: None,
            });
            let mut streams: Vec<Stream> = own.collect();
            // One without a key has one partition.
            let is_spread = streams.iter().any(|stream| !stream.key.is_empty());
            for (place, input, key) in (level + 1..=self.keyed.len()).flat_map(read_by) {
                let endpoint = input.endpoint;
                let is_made = self.level(endpoint.node) < level;
                if is_made && streams.iter().all(|stream| stream.endpoint != endpoint) {
                    let key = if is_spread { key } else { Vec::new() };
                    streams.push(Stream { endpoint, input: input.clone(), key, for_later: Some(place) });
                }
            }
            let operator = &job.operators[self.keyed[level - 1]];
            let later = streams.iter().find_map(|stream| stream.for_later);
            if let Some(later) = later.filter(|_| operator.prepared.links.is_some()) {
                refusals.push(Refusal::new(
                    format!(
                        "operator {:?} has several keys, and rows for operator {:?} would have to pass through its stages",
                        operator.name, job.operators[later].name
                    ),
                    "give one of them a job of its own",
                ));
            }
            all.push(streams);
        }
        all
    }

    /// A record counts where its one message is. Where doors send it, no two operators may read rows of it apart from each
    /// other: it could count for one of them alone.
    pub(super) fn check_doors(&self, job: &CheckedJob, first: &[Stream], refusals: &mut Vec<Refusal>) {
        for (number, stream) in first.iter().enumerate() {
            let Some(later) = stream.for_later else { continue };
            let made_of = sources_of(job, stream.endpoint);
            let other =
                first[..number].iter().find(|other| !sources_of(job, other.endpoint).is_disjoint(&made_of));
            if let Some(other) = other {
                refusals.push(Refusal::new(
                    format!(
                        "operator {:?} reads {:?}, and operator {:?} reads {:?}, which are made of the same records above any \
                         key: a record could count for one of them alone",
                        job.operators[self.keyed[0]].name,
                        other.input.name,
                        job.operators[later].name,
                        stream.input.name
                    ),
                    "let both read the same rows, and put what differs below their keys",
                ));
            }
        }
    }

    /// How many keys rows have passed that come from a node.
    pub(super) fn level(&self, node: NodeRef) -> usize {
        match node {
            NodeRef::Source(_) => 0,
            NodeRef::Operator(place) => self.of[place],
        }
    }

    /// Operators of a level.
    pub(super) fn at(&self, level: usize) -> Vec<usize> {
        (0..self.of.len()).filter(|place| self.of[*place] == level).collect()
    }

    pub(super) fn sinks_at(&self, job: &CheckedJob, level: usize) -> Vec<CheckedSink> {
        let is_here =
            |sink: &&CheckedSink| sink.node.is_none() && self.level(sink.inputs[0].endpoint.node) == level;
        job.sinks.iter().filter(is_here).cloned().collect()
    }

    pub(super) fn check_sink(&self, job: &CheckedJob, sink: &CheckedSink, refusals: &mut Vec<Refusal>) {
        if let Some(input) = sink.inputs.iter().find(|input| self.level(input.endpoint.node) == 0) {
            refusals.push(Refusal::new(
                format!(
                    "sink {:?} reads {:?}, which is above the key of {:?}",
                    sink.name, input.name, job.operators[self.keyed[0]].name
                ),
                "let it read the keyed operator, or an operator below it",
            ));
        } else if sink
            .inputs
            .iter()
            .any(|input| self.level(input.endpoint.node) != self.level(sink.inputs[0].endpoint.node))
        {
            refusals.push(Refusal::new(
                format!("sink {:?} reads rows from both sides of a key", sink.name),
                "give each of its inputs a sink of its own",
            ));
        }
    }

    /// The sinks that a node writes.
    pub(super) fn exit(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Option<Exit> {
        let at_nodes = || job.sinks.iter().filter_map(|sink| Some((sink, sink.node.as_ref()?)));
        let (CheckedSink { name: first, .. }, node) = at_nodes().next()?;
        for (sink, other) in at_nodes() {
            let name = &sink.name;
            if check_node(|| format!("sink {name:?} is written"), other, refusals) && other != node {
                refusals.push(Refusal::new(
                    format!(
                        "sink {first:?} is written at node {node:?}, and sink {name:?} at node {other:?}"
                    ),
                    "give them the same `node`, or jobs of their own",
                ));
            }
            if sink.plugin.name() == "table" || sink.plugin.writes_for_units(&sink.options).unwrap_or(false) {
                refusals.push(Refusal::new(
                    format!(
                        "sink {name:?} is of type {}, which the units write wherever they are, and names node {other:?}",
                        sink.plugin.name()
                    ),
                    "leave out `node`",
                ));
            }
            let above = sink.inputs.iter().find(|input| {
                let level = self.level(input.endpoint.node);
                level > 0 && level < self.keyed.len()
            });
            if let Some(input) = above {
                refusals.push(Refusal::new(
                    format!(
                        "sink {name:?} is written at node {other:?}, and reads {:?}, which is above the key of {:?}",
                        input.name,
                        job.operators[self.keyed[self.keyed.len() - 1]].name
                    ),
                    "let it read an operator below the last key",
                ));
            }
        }
        if job.operators.iter().any(|operator| operator.name == *first)
            || job.sources.iter().any(|source| source.name == *first)
        {
            refusals.push(Refusal::new(
                format!("sink {first:?} is written at a node, and something else of the job has its name"),
                "give the sink another name: its stage is called by it",
            ));
        }
        let (name, node) = (Arc::clone(first), Arc::clone(node));
        let sinks = at_nodes().map(|(sink, _)| sink.clone()).collect();
        Some(Exit { name, node, sinks, inputs: Vec::new() })
    }

    /// What doors answer with, where that is below a key.
    pub(super) fn reply(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) -> Option<Endpoint> {
        let doors = (0..job.sources.len()).filter(|source| job.sources[*source].plugin.is_door());
        let mut replies: Vec<Endpoint> =
            doors.map(|source| job.reply_of(source)).filter(|reply| self.level(reply.node) > 0).collect();
        replies.dedup();
        if replies.len() > 1 {
            refusals.push(Refusal::new(
                "sources have replies from different operators",
                "give them the same `reply`, or a job of their own",
            ));
        }
        let reply = replies.first().copied()?;
        let NodeRef::Operator(place) = reply.node else { return Some(reply) };
        let is_before = |other: &usize| self.keyed.contains(other) && self.of[*other] < self.of[place];
        let mut before = above(job, place).into_iter().filter(is_before);
        if let Some(other) = before.find(|other| job.operators[*other].prepared.answers.is_none()) {
            refusals.push(Refusal::new(
                format!(
                    "replies come from operator {:?}, and operator {:?} above it does not answer each record",
                    job.operators[place].name, job.operators[other].name
                ),
                "let `reply` of the source name an operator that is not below it",
            ));
        }
        Some(reply)
    }

    /// Rows that were made of one record have positions of their own in the next stage, so ids would take all but the first
    /// for duplicates (cluster rules, 5).
    pub(super) fn check_ids(&self, job: &CheckedJob, refusals: &mut Vec<Refusal>) {
        let Some(source) = job.sources.iter().find(|source| source.id.is_some()) else { return };
        let mut before = self.keyed.iter().flat_map(|place| above(job, *place));
        let makes_several =
            |place: &usize| self.keyed.contains(place) && job.operators[*place].prepared.answers.is_none();
        if let Some(place) = before.find(makes_several) {
            refusals.push(Refusal::new(
                format!(
                    "source {:?} has an `id`, and operator {:?}, which may make several rows of one record, is above \
                     another key",
                    source.name, job.operators[place].name
                ),
                "leave out `id`, or put the operator into a job of its own",
            ));
        }
    }
}

/// The operators whose rows come to one, in whatever ways.
fn above(job: &CheckedJob, place: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut left = vec![place];
    while let Some(place) = left.pop() {
        for input in &job.operators[place].inputs {
            if let NodeRef::Operator(place) = input.endpoint.node
                && found.insert(place)
            {
                left.push(place);
            }
        }
    }
    found
}

/// The sources whose records rows are made of.
fn sources_of(job: &CheckedJob, endpoint: Endpoint) -> BTreeSet<usize> {
    let endpoints = comes_to(job, endpoint.node).into_iter().chain([endpoint]);
    let source = |endpoint: Endpoint| match endpoint.node {
        NodeRef::Source(place) => Some(place),
        NodeRef::Operator(_) => None,
    };
    endpoints.filter_map(source).collect()
}

/// The outputs that come to an operator, in whatever ways.
pub(super) fn comes_to(job: &CheckedJob, node: NodeRef) -> Vec<Endpoint> {
    let NodeRef::Operator(place) = node else { return Vec::new() };
    let operators = above(job, place).into_iter().chain([place]);
    operators.flat_map(|place| &job.operators[place].inputs).map(|input| input.endpoint).collect()
}

fn is_keyed(operator: &CheckedOperator) -> bool {
    operator.prepared.judges()
        || operator.prepared.takes_partitions
        || operator.prepared.parts.iter().any(|part| part.tasks == Tasks::Partitions)
}

/// By input of an operator, the fields by which its rows are spread; of one that is a chain, none.
pub(super) fn keys_of(operator: &CheckedOperator, refusals: &mut Vec<Refusal>) -> Vec<Vec<usize>> {
    if operator.prepared.links.is_some() {
        if operator.union.is_some() {
            refusals.push(Refusal::new(
                format!("operator {:?} has several keys and several inputs", operator.name),
                "put a `union` before it",
            ));
        }
        return Vec::new();
    }
    one_key_of(operator).unwrap_or_else(|refusal| {
        refusals.push(refusal);
        Vec::new()
    })
}

fn one_key_of(operator: &CheckedOperator) -> Result<Vec<Vec<usize>>, Refusal> {
    let mut keys: Vec<Option<Vec<usize>>> = vec![None; operator.inputs.len()];
    let mut is_split = false;
    let inputs = operator.prepared.parts.iter().filter(|part| part.judges || part.tasks == Tasks::Partitions);
    for input in inputs.flat_map(|part| &part.inputs) {
        let (port, columns) = match input {
            PartInput::Outer { port, partitioning: Partitioning::Key(columns) } => (*port, columns.clone()),
            PartInput::Outer { port, partitioning: Partitioning::Global } => (*port, Vec::new()),
            PartInput::Declared { port } => match operator.inputs.get(*port).map(|input| &input.spread) {
                Some(Some(Spread::Key(columns))) => (*port, columns.clone()),
                Some(Some(Spread::Global)) => (*port, Vec::new()),
                _ => return Err(spread_otherwise(operator)),
            },
            PartInput::Outer { .. } => return Err(spread_otherwise(operator)),
            PartInput::Part { .. } => continue,
        };
        // A union before the operator makes its one port of all inputs.
        let ports = if operator.union.is_some() { 0..keys.len() } else { port..port + 1 };
        for known in keys.get_mut(ports).into_iter().flatten() {
            is_split |= known.as_ref().is_some_and(|known| *known != columns);
            known.get_or_insert_with(|| columns.clone());
        }
    }
    if is_split {
        return Err(Refusal::new(
            format!("operator {:?} has several keys, and one may so far", operator.name),
            "split it into operators of jobs of their own, or run the job on one node, without --cluster",
        ));
    }
    Ok(keys.into_iter().map(Option::unwrap_or_default).collect())
}

fn spread_otherwise(operator: &CheckedOperator) -> Refusal {
    Refusal::new(
        format!("the rows of operator {:?} are not spread by a key", operator.name),
        "spread its input by a key: `partition: key(FIELD)`",
    )
}
