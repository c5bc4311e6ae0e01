//! What a plan makes of a batch, once its expressions are evaluated: rows for the reservoir, then what leaves and queries
//! answer.
//!
//! Not here: expressions (`guard`), group numbers (`numbers`), the order of steps ([`Stage::answer`](super::Stage::answer)).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, StructArray, UInt32Array, UInt64Array};
use arrow_buffer::ScalarBuffer;
use smallvec::SmallVec;
use thalweg_types::{Error, LatePolicy};

use super::Answers;
use super::guard::{self, Evaluated};
use super::leaf::Turn;
use super::nodes::Face;
use super::plan::Plan;
use super::stream::{self, Columns, Selection, StreamId, Streams};
use crate::agg::Column;
use crate::judge::Verdicts;

impl Plan {
    /// Columns of the reservoir's layout for a batch.
    ///
    /// `arrivals` are the arrival numbers of its records, if the layout has a place for them.
    pub(super) fn layout_columns(
        &self,
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        groups: &[ScalarBuffer<u32>],
        arrivals: Option<Vec<u64>>,
    ) -> Arc<[ArrayRef]> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.layout.len()];
        columns[stream::TIME] = Some(Arc::new(Int64Array::new(verdicts.times.clone(), None)));
        if let (Some(seq), Some(arrivals)) = (self.layout.seq(), arrivals) {
            columns[seq] = Some(Arc::new(UInt64Array::from(arrivals)));
        }
        for (grouping, numbers) in self.groupings.iter().zip(groups) {
            let Some(grouping) = grouping else { continue };
            columns[grouping.layout] = Some(Arc::new(UInt32Array::new(numbers.clone(), None)));
        }
        for (layout, bits) in &evaluated.filters {
            columns[*layout] = Some(Arc::new(BooleanArray::new(bits.clone(), None)));
        }
        for (layout, column) in &evaluated.columns {
            columns[*layout] = Some(Arc::clone(column));
        }
        self.layout.filled(columns, verdicts.times.len())
    }

    /// Columns of every leaf, by leaf and call.
    pub(super) fn run_leaves(
        &mut self,
        streams: &Streams,
        verdicts: &Verdicts,
        groups: &[ScalarBuffer<u32>],
        count: usize,
    ) -> Vec<Vec<Column>> {
        let mut selections: HashMap<(StreamId, usize), Selection> = HashMap::new();
        let one_group = ScalarBuffer::from(vec![0_u32; count]);
        let mut values = Vec::with_capacity(self.leaves.nodes.len());
        for node in &mut self.leaves.nodes {
            let Some(node) = node else {
                values.push(Vec::new());
                continue;
            };
            let window = self.leaves.windows[node.window].as_ref().expect("a leaf's window is in the plan");
            let entering = window.head.map_or(StreamId::Batch, StreamId::Cursor);
            let leaving = window.tail.map(StreamId::Cursor);
            let filter = node.filter.and_then(|place| Some((place, self.filters[place].as_ref()?.layout)));
            if let Some((place, layout)) = filter {
                for id in [Some(entering), leaving].into_iter().flatten() {
                    selections
                        .entry((id, place))
                        .or_insert_with(|| Selection::filtered(streams.get(id), layout));
                }
            }
            let selected = |id| match filter {
                Some((place, _)) => &selections[&(id, place)],
                None => &Selection::ALL,
            };
            let grouping = node.grouping.and_then(|grouping| self.groupings[grouping].as_ref());
            node.leaf.grow(Face::Groups, grouping.map_or(1, |grouping| grouping.table.slots()));
            let mut layouts: SmallVec<[usize; 1]> = SmallVec::new();
            for (number, place) in node.values.iter().enumerate() {
                let Some(values) = &self.groupings[*place] else { continue };
                node.leaf.grow(Face::Values(number), values.table.slots());
                layouts.push(values.layout);
            }
            let turn = Turn {
                task_times: &verdicts.task_times,
                delay: window.delay,
                groups: node.grouping.map_or(&one_group, |grouping| &groups[grouping]),
                entering: streams.get(entering),
                entered: selected(entering),
                leaving: leaving.map(|id| (streams.get(id), selected(id))),
            };
            let group = grouping.map(|grouping| grouping.layout);
            let columns = Columns { group, seq: self.layout.seq(), has_times: false, values: &layouts };
            values.push(node.leaf.run(&turn, columns));
        }
        values
    }

    /// Answers of all queries; `late` is what was done with late records.
    pub(super) fn assemble(
        &self,
        values: &[Vec<Column>],
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        late: LatePolicy,
    ) -> Result<Answers, Error> {
        let count = verdicts.times.len();
        let mut misfits = Vec::new();
        let mut failed = self.failed_queries(evaluated);
        let mut answered = Vec::with_capacity(self.queries.len());
        for (index, query) in self.queries.iter().enumerate() {
            let calls: SmallVec<[_; 4]> =
                query.calls.iter().map(|call| &values[call.leaf][call.call]).collect();
            let mut columns: SmallVec<[ArrayRef; 4]> =
                calls.iter().map(|column| Arc::clone(&column.values)).collect();
            query.clamp(&mut columns, &verdicts.task_times);
            let mut outputs: Vec<ArrayRef> = Vec::with_capacity(query.fields.len());
            for (place, output) in query.outputs.iter().enumerate() {
                let made = guard::naming(
                    || vec![query.name.clone()],
                    || {
                        output
                            .values(&columns, count, query.is_guarded)
                            .map_err(|error| guard::failed(&error))
                    },
                )?;
                let errors = calls[output.calls.clone()].iter().flat_map(|column| &column.errors);
                let all = errors.chain(&made.misfits).map(|row| (*row, index as u32, place as u32));
                misfits.extend(all);
                failed.extend(made.failure.map(|error| (query.name.clone(), error.to_string())));
                outputs.push(made.array);
            }
            outputs.extend(query.since_columns(&verdicts.task_times));
            let object = StructArray::try_new_with_length(query.fields.clone(), outputs, None, count)
                .expect("columns have the query's types");
            answered.push(Arc::new(object) as ArrayRef);
        }
        self.name_misfits(evaluated, verdicts, &mut misfits);
        misfits.sort_unstable();
        misfits.dedup();
        Ok(Answers {
            values: answered,
            late: verdicts.late.clone(),
            closed: verdicts.closed.clone(),
            late_refused: late == LatePolicy::Reject,
            task_times: verdicts.over_batch(),
            duplicate: verdicts.duplicate.clone(),
            misfits,
            failed,
        })
    }
}
