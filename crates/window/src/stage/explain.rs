//! What a stage's plan costs and what may pile up, as `explain` prints it.
//!
//! Not here: how it is printed (the node), what a running stage has in memory (`cache`).

use std::fmt::Write as _;

use arrow_schema::DataType;
use thalweg_types::{Micros, format_duration};

use super::Grouping;
use super::plan::Plan;
use super::records::Records;
use crate::groups::Groups;
use crate::query::Window as WindowKind;

/// A stage's plan in words and figures. Bytes are before compression and without allocator overhead.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// The tree `window -> filter -> group by -> aggregates`, one indented line each.
    pub tree: Vec<String>,
    /// Distances from task time at which cursors are, and their readers.
    pub cursors: Vec<(Micros, Vec<String>)>,
    /// Bytes that a record takes in the reservoir, 0 where the plan needs none.
    pub bytes_per_record: usize,
    /// Bytes that a live group takes, by GROUP BY.
    pub bytes_per_group: Vec<(String, usize)>,
    /// What may pile up beyond that.
    pub worst_cases: Vec<String>,
    /// State that grows without bound.
    pub warnings: Vec<String>,
}

fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Boolean => 1,
        DataType::UInt32 => 4,
        DataType::Decimal256(..) => 32,
        DataType::Decimal128(..)
        | DataType::FixedSizeBinary(_)
        | DataType::Utf8View
        | DataType::BinaryView => 16,
        _ => 8,
    }
}

impl Plan {
    /// Explains the plan, over these records.
    pub(super) fn explain(&self, records: &Records) -> Explanation {
        let mut explanation = Explanation::default();
        if records.is_stored {
            explanation.bytes_per_record = self.layout.used().map(width).sum();
        }
        for (index, window) in self.leaves.windows.iter().enumerate() {
            let Some(window) = window else { continue };
            let delay = if window.delay > 0 {
                format!(" delayed by {}", format_duration(window.delay))
            } else {
                String::new()
            };
            explanation.tree.push(format!("window {}{delay}", window.kind));
            self.explain_leaves(index, window.kind, &mut explanation);
        }
        self.explain_cursors(records, &mut explanation);
        let groupings = self.groupings.iter().enumerate();
        let is_own = |grouping: &Option<Grouping>| grouping.as_ref().is_some_and(|it| it.values_of.is_none());
        for index in groupings.filter(|(_, grouping)| is_own(grouping)).map(|(index, _)| index) {
            // The group's place in the table; then whatever the aggregates of this GROUP BY keep.
            let table = Groups::BYTES_PER_GROUP;
            let leaves: usize = self
                .leaves
                .iter()
                .filter(|node| node.grouping == Some(index))
                .map(|node| node.leaf.bytes_per_group())
                .sum();
            explanation.bytes_per_group.push((self.group_text(Some(index)), table + leaves));
        }
        explanation
    }

    fn explain_leaves(&self, window: usize, kind: WindowKind, explanation: &mut Explanation) {
        for (place, node) in self.leaves.nodes.iter().enumerate() {
            let Some(node) = node.as_ref().filter(|node| node.window == window) else { continue };
            let mut depth = 1;
            if let Some(filter) = node.filter {
                let text = self.filters[filter].as_ref().map_or("", |filter| filter.fingerprint.as_str());
                explanation.tree.push(format!("{}filter {text}", "  ".repeat(depth)));
                depth += 1;
            }
            let group = self.group_text(node.grouping);
            explanation.tree.push(format!("{}group by {group}", "  ".repeat(depth)));
            depth += 1;
            for query in &self.queries {
                let outputs = query.outputs.iter().zip(&query.fields).flat_map(|(output, field)| {
                    query.calls[output.calls.clone()].iter().map(move |call| (call, field))
                });
                let calls: Vec<_> = outputs.filter(|(call, _)| call.leaf == place).collect();
                if calls.is_empty() {
                    continue;
                }
                for (call, field) in calls {
                    let call = &node.leaf.calls[call.call];
                    let mut line = format!("{}{}", "  ".repeat(depth), call.function);
                    if let Some(arg) = call.arg_index {
                        let _ = write!(line, " of {}", self.layout.name(node.leaf.args[arg]));
                    }
                    let _ = write!(line, " -> {}.{}", query.name, field.name());
                    explanation.tree.push(line);
                }
                let grows = match kind {
                    WindowKind::Infinite => Some("never forgets a group"),
                    WindowKind::Rows(_) => Some("keeps the last records of every group ever seen"),
                    _ => None,
                };
                if let Some(grows) = grows.filter(|_| node.grouping.is_some()) {
                    explanation.warnings.push(format!(
                        "query {} ({kind}) {grows}: its state grows with the number of distinct {group}",
                        query.name
                    ));
                }
                for case in node.leaf.worst_cases() {
                    explanation.worst_cases.push(format!("query {}: {case}", query.name));
                }
            }
        }
    }

    fn explain_cursors(&self, records: &Records, explanation: &mut Explanation) {
        for (id, offset) in records.reservoir.cursors() {
            let mut readers = Vec::new();
            for window in self.leaves.windows.iter().flatten() {
                if window.head == Some(id) {
                    readers.push(format!(
                        "head of {} delayed by {}",
                        window.kind,
                        format_duration(window.delay)
                    ));
                }
                if window.tail == Some(id) {
                    readers.push(format!("tail of {}", window.kind));
                }
            }
            explanation.cursors.push((offset, readers));
        }
    }

    fn group_text(&self, grouping: Option<usize>) -> String {
        let Some(grouping) = grouping.and_then(|grouping| self.groupings[grouping].as_ref()) else {
            return "nothing (one group)".to_owned();
        };
        self.input.key_names(&grouping.keys).join(", ")
    }
}
