//! How many tasks everything has, and whether the links between them fit.
//!
//! A stateless operator that does not say has as many tasks as its input, so that whole chains run without a
//! queue between; a keyed one has its partitions; a union, a sink and a reader of `global` have one.

use crate::operator::Tasks;

use super::Context;
use super::input::{CheckedInput, NodeRef, Spread};
use super::operator::{CheckedGraph, CheckedOperator};
use super::source::CheckedSource;

pub(super) fn check(context: &Context<'_>, sources: &mut [Option<CheckedSource>], graph: &mut CheckedGraph) {
    adopt(sources, &graph.operators);
    let source_tasks = |place: usize| sources[place].as_ref().map_or(1, |source| source.tasks);
    let operators = &mut graph.operators;
    for place in 0..operators.len() {
        let (above, rest) = operators.split_at_mut(place);
        let operator = &mut rest[0];
        let upstream = |input: &CheckedInput| match input.endpoint.node {
            NodeRef::Source(source) => source_tasks(source),
            NodeRef::Operator(operator) => above[operator].output_tasks(),
        };
        operator.tasks = match operator.union {
            // The union before it has one task.
            Some(_) => operator.parallelism.unwrap_or(1),
            None => count(operator, upstream),
        };
        for input in &operator.inputs {
            let tasks = if operator.union.is_some() { 1 } else { operator.declared_tasks() };
            check_link(context, &format!("operator {:?}", operator.name), tasks, input, upstream(input));
        }
    }
    for sink in graph.sinks.iter().flatten() {
        for input in &sink.inputs {
            let upstream = match input.endpoint.node {
                NodeRef::Source(source) => source_tasks(source),
                NodeRef::Operator(operator) => operators[operator].output_tasks(),
            };
            check_link(context, &format!("sink {:?}", sink.name), 1, input, upstream);
        }
    }
}

impl CheckedOperator {
    /// Tasks of the part that reads inputs as declared.
    pub(crate) fn declared_tasks(&self) -> u32 {
        let declared = self.prepared.parts.iter().find(|part| {
            part.inputs.iter().any(|input| matches!(input, crate::operator::PartInput::Declared { .. }))
        });
        declared.map_or(1, |part| self.part_tasks(part.tasks))
    }

    /// Tasks of the part that emits.
    pub(crate) fn output_tasks(&self) -> u32 {
        self.prepared.parts.last().map_or(1, |part| self.part_tasks(part.tasks))
    }

    pub(crate) fn part_tasks(&self, tasks: Tasks) -> u32 {
        match tasks {
            Tasks::Declared => self.tasks,
            Tasks::One => 1,
            Tasks::Partitions => self.partitions,
        }
    }
}

/// A source that does not say how many tasks decode has as many as an operator that reads it `forward`.
fn adopt(sources: &mut [Option<CheckedSource>], operators: &[CheckedOperator]) {
    for operator in operators {
        for input in &operator.inputs {
            if let (NodeRef::Source(place), Some(Spread::Forward), Some(tasks)) =
                (input.endpoint.node, &input.spread, operator.parallelism)
                && let Some(source) = &mut sources[place]
                && source.declared_tasks.is_none()
            {
                source.tasks = tasks;
            }
        }
    }
}

fn count(operator: &CheckedOperator, upstream: impl Fn(&CheckedInput) -> u32) -> u32 {
    if operator.inputs.iter().any(|input| matches!(input.spread, Some(Spread::Key(_)))) {
        return operator.partitions;
    }
    if let Some(tasks) = operator.parallelism {
        return tasks;
    }
    if operator.inputs.iter().all(|input| matches!(input.spread, Some(Spread::Global))) {
        return 1;
    }
    operator.inputs.iter().map(upstream).max().unwrap_or(1)
}

fn check_link(context: &Context<'_>, what: &str, tasks: u32, input: &CheckedInput, upstream: u32) {
    match input.spread {
        Some(Spread::Forward) if tasks != upstream => context
            .report
            .at(
                input.spread_span,
                format!(
                    "{what} reads {:?} forward, but {tasks} and {upstream} are not equally many tasks",
                    input.name
                ),
            )
            .expected(format!("{upstream}, as many tasks as {:?} has", input.name))
            .hint("give both the same `parallelism`, or use shuffle")
            .report(),
        Some(Spread::Global) if tasks > 1 => context
            .report
            .at(input.spread_span, format!("{what} reads {:?} global, but has {tasks} tasks", input.name))
            .expected("one task, since global gives every record to the first")
            .hint("leave out `parallelism`, or use shuffle")
            .report(),
        _ => {}
    }
}
