//! What filters and arguments give for a batch: columns, which rows went beyond a bound, and what failed.
//!
//! Expressions are evaluated before anything else is done with a batch. A row that went beyond a bound of expressions is
//! null, and its answer names every output that needed it. A mistake of ours in an expression, an error or a panic, ends
//! the stage, but for queries that are *guarded*: for those it is as if the row had gone beyond a bound, and the caller
//! hears which query it was. Whether a row fails hangs on the row alone, so answers are a function of the records still.
//!
//! Not here: the removal of failing queries from the plan (by the node, with a command in the job's order).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::BooleanBuffer;
use thalweg_expr::{Bound, Longest, SqlError, Values};
use thalweg_types::{Batch, DataType, Error, TextLengths};

use super::nodes::ValuesOf;
use super::plan::Plan;
use super::queries::{CallState, QueryState};
use super::{Arg, Filter, Grouping};
use crate::agg::{Call, output_type};
use crate::judge::Verdicts;

/// Bytes of text and blobs that the arguments and answers of one call may have, as far as that is known before: a
/// batch that would have more is to be given in pieces.
const ANSWER_BYTES: usize = 16 << 20;

/// Bytes of texts that expressions may read and make in one call, likewise: a few milliseconds, in which no other task of
/// the worker has its turn.
const WORK_BYTES: usize = 2 << 20;

/// Filters, arguments and keys of a batch, by their place in the layout.
#[derive(Default)]
pub(super) struct Evaluated {
    pub(super) columns: BTreeMap<usize, ArrayRef>,
    pub(super) filters: BTreeMap<usize, BooleanBuffer>,
    /// Columns of the keys of each grouping, by its place; none where there is no grouping.
    pub(super) keys: Vec<Vec<ArrayRef>>,
    /// Rows without a value, where there are some.
    misfits: BTreeMap<usize, Vec<u32>>,
    failed: BTreeMap<usize, SqlError>,
}

impl Evaluated {
    fn values(
        &mut self,
        place: usize,
        bound: &Bound,
        is_guarded: bool,
        input: &RecordBatch,
    ) -> Result<Values, Error> {
        let mut values = match is_guarded {
            true => bound.values_or_nulls(input),
            false => bound.values(input).map_err(|error| failed(&error))?,
        };
        if !values.misfits.is_empty() {
            let misfits = self.misfits.entry(place).or_default();
            misfits.append(&mut values.misfits);
            // The keys of a grouping have one place.
            misfits.sort_unstable();
            misfits.dedup();
        }
        if let Some(error) = values.failure.take() {
            self.failed.insert(place, error);
        }
        Ok(values)
    }
}

pub(super) fn failed(error: &SqlError) -> Error {
    Error::user(format!("evaluate an expression: {error}"))
}

impl Plan {
    /// As [`super::Stage::guard_query`].
    pub(super) fn guard_query(&mut self, name: &str) {
        for query in self.queries.iter_mut().filter(|query| query.name == name) {
            query.is_guarded = true;
        }
        self.set_guards();
    }

    /// Says of filters, arguments and groupings whether only guarded queries have them.
    pub(super) fn set_guards(&mut self) {
        let mut open: Vec<usize> = Vec::new();
        for call in self.queries.iter().filter(|query| !query.is_guarded).flat_map(|query| &query.calls) {
            open.extend(self.filter_of(call));
            open.extend(self.arg_of(call));
            open.extend(self.group_of(call));
        }
        for filter in self.filters.iter_mut().flatten() {
            filter.is_guarded = !open.contains(&filter.layout);
        }
        for grouping in self.groupings.iter_mut().flatten() {
            grouping.is_guarded = !open.contains(&grouping.layout);
        }
        for arg in &mut self.args {
            arg.is_guarded = !open.contains(&arg.layout);
        }
    }

    /// Layout column of an aggregate's filter.
    fn filter_of(&self, call: &CallState) -> Option<usize> {
        let filter = self.leaves.get(call.leaf)?.filter?;
        self.filters[filter].as_ref().map(|filter| filter.layout)
    }

    /// Layout column of an aggregate's argument.
    fn arg_of(&self, call: &CallState) -> Option<usize> {
        let leaf = &self.leaves.get(call.leaf)?.leaf;
        leaf.calls[call.call].arg_index.map(|arg| leaf.args[arg])
    }

    /// Layout column of the group numbers that an aggregate uses.
    fn group_of(&self, call: &CallState) -> Option<usize> {
        let grouping = self.leaves.get(call.leaf)?.grouping?;
        self.groupings[grouping].as_ref().map(|grouping| grouping.layout)
    }

    /// Evaluates every filter, argument and key over the columns that the plan reads.
    pub(super) fn evaluate(&mut self, input: &RecordBatch) -> Result<Evaluated, Error> {
        let mut evaluated = Evaluated::default();
        for filter in self.filters.iter().flatten() {
            let Filter { condition, is_guarded, layout, .. } = filter;
            let bits = match condition {
                Some(condition) => {
                    let values = naming(
                        || self.having(*layout),
                        || evaluated.values(*layout, condition, *is_guarded, input),
                    )?;
                    values.conditions().map_err(|error| failed(&error))?
                }
                None => BooleanBuffer::new_set(input.num_rows()),
            };
            evaluated.filters.insert(*layout, bits);
        }
        for arg in &self.args {
            let Arg { value: Some(value), is_guarded, layout, .. } = arg else { continue };
            let values =
                naming(|| self.having(*layout), || evaluated.values(*layout, value, *is_guarded, input))?;
            evaluated.columns.insert(*layout, values.array);
        }
        for grouping in &self.groupings {
            let mut columns = Vec::new();
            for key in grouping.iter().flat_map(|grouping| &grouping.keys) {
                let Some(Grouping { layout, is_guarded, .. }) = grouping else { continue };
                columns.push(match key.as_column() {
                    Some(column) => Arc::clone(input.column(column)),
                    None => {
                        let values = || evaluated.values(*layout, key, *is_guarded, input);
                        naming(|| self.having(*layout), values)?.array
                    }
                });
            }
            evaluated.keys.push(columns);
        }
        for (place, grouping) in self.groupings.iter().enumerate() {
            let Some(ValuesOf { grouping, arg, .. }) = grouping.as_ref().and_then(|it| it.values_of) else {
                continue;
            };
            let mut columns = grouping.map_or_else(Vec::new, |grouping| evaluated.keys[grouping].clone());
            columns.extend(evaluated.columns.get(&arg).cloned());
            evaluated.keys[place] = columns;
        }
        self.note_texts(&evaluated);
        Ok(evaluated)
    }

    /// Keeps the length of the longest text that each leaf has been given.
    fn note_texts(&mut self, evaluated: &Evaluated) {
        for (layout, column) in &evaluated.columns {
            let longest = TextLengths::of(column).map_or(0, TextLengths::longest_of_all);
            if longest > 0 {
                let leaves = self.leaves.nodes.iter_mut().flatten().map(|node| &mut node.leaf);
                leaves.filter(|leaf| leaf.args.contains(layout)).for_each(|leaf| {
                    leaf.longest = leaf.longest.max(longest);
                });
            }
        }
    }

    /// Adds what went beyond a bound to `misfits`, for records that were added to the query or would have been.
    pub(super) fn name_misfits(
        &self,
        evaluated: &Evaluated,
        verdicts: &Verdicts,
        misfits: &mut Vec<(u32, u32, u32)>,
    ) {
        if evaluated.misfits.is_empty() {
            return;
        }
        let of = |layout: usize| evaluated.misfits.get(&layout).map_or(&[][..], Vec::as_slice);
        let accepted =
            |row: &&u32| verdicts.accepted.as_ref().is_none_or(|accepted| accepted[**row as usize]);
        let calls = self.queries.iter().enumerate().flat_map(|(query, state)| {
            let outputs = state.outputs.iter().enumerate();
            outputs.flat_map(move |(place, output)| {
                let calls = state.calls[output.calls.clone()].iter();
                calls.map(move |call| (query as u32, place as u32, call))
            })
        });
        for (query, place, call) in calls {
            let filter = self.filter_of(call);
            let refused = filter.map_or(&[][..], of).iter().filter(accepted);
            misfits.extend(refused.map(|row| (*row, query, place)));
            // A record without its key is answered by the group of null, whether it is added or not.
            let lost = self.group_of(call).map_or(&[][..], of);
            misfits.extend(lost.iter().map(|row| (*row, query, place)));
            let passes = filter.and_then(|filter| evaluated.filters.get(&filter));
            let passes = |row: &&u32| passes.is_none_or(|bits| bits.value(**row as usize));
            let rows = self.arg_of(call).map_or(&[][..], of).iter().filter(accepted).filter(passes);
            misfits.extend(rows.map(|row| (*row, query, place)));
        }
    }

    /// Guarded queries that failed, and their errors.
    pub(super) fn failed_queries(&self, evaluated: &Evaluated) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (layout, error) in &evaluated.failed {
            all.extend(self.having(*layout).into_iter().map(|name| (name, error.to_string())));
        }
        all
    }

    /// Names of the queries that have a filter, an argument or a grouping.
    fn having(&self, layout: usize) -> Vec<String> {
        let reads = |call: &CallState| {
            [self.filter_of(call), self.arg_of(call), self.group_of(call)].contains(&Some(layout))
        };
        let has = |query: &&QueryState| query.calls.iter().any(reads);
        self.queries.iter().filter(has).map(|query| query.name.clone()).collect()
    }

    /// As [`super::Stage::rows_at_once`].
    pub(super) fn rows_at_once(&self, batch: &Batch) -> usize {
        let is_text = |data_type: &DataType| matches!(data_type, DataType::String | DataType::Bytes);
        let values = || self.args.iter().filter_map(|arg| arg.value.as_ref());
        let conditions = || self.filters.iter().flatten().filter_map(|filter| filter.condition.as_ref());
        let keys = || self.groupings.iter().flatten().flat_map(|grouping| &grouping.keys);
        let has_texts = values().chain(conditions()).chain(keys()).any(Bound::has_texts);
        if !has_texts && !self.args.iter().any(|arg| is_text(&arg.data_type)) {
            return batch.len().max(1);
        }
        // Answers with texts: what the argument is, and the longest that was kept.
        let mut answered: Vec<(usize, usize)> = Vec::new();
        for call in self.queries.iter().flat_map(|query| &query.calls) {
            let Some(node) = self.leaves.get(call.leaf) else { continue };
            let Call { function, arg, .. } = &node.leaf.calls[call.call];
            if output_type(*function, arg.as_ref()).is_ok_and(|data_type| is_text(&data_type)) {
                answered.extend(self.arg_of(call).map(|arg| (arg, node.leaf.longest)));
            }
        }
        let columns = self.input.columns.iter().map(|column| batch.column(*column)).collect();
        Longest::new(columns, batch).rows_within(|longest| {
            let filters = conditions().map(|condition| condition.text_sizes(longest).work);
            let mut work = filters.fold(0, usize::saturating_add);
            // Texts that are made to be counted or kept are there for all rows, as those are that are answered.
            let mut made: BTreeMap<usize, usize> = BTreeMap::new();
            for arg in &self.args {
                let Some(value) = &arg.value else { continue };
                let sizes = value.text_sizes(longest);
                work = work.saturating_add(sizes.work);
                made.insert(arg.layout, sizes.made);
            }
            for grouping in self.groupings.iter().flatten() {
                for key in grouping.keys.iter().filter(|key| key.as_column().is_none()) {
                    let sizes = key.text_sizes(longest);
                    work = work.saturating_add(sizes.work);
                    let made = made.entry(grouping.layout).or_default();
                    *made = made.saturating_add(sizes.made);
                }
            }
            let answers =
                answered.iter().map(|(layout, known)| made.get(layout).copied().unwrap_or(0).max(*known));
            let bytes = made.values().copied().chain(answers).fold(0, usize::saturating_add);
            (ANSWER_BYTES / bytes.max(1)).min(WORK_BYTES / work.max(1))
        })
    }
}

/// Has a panic say which queries it is about, and how the job starts without them.
pub(super) fn naming<T>(
    queries: impl Fn() -> Vec<String>,
    evaluate: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let says = |what: &str| {
        let names = queries().iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        format!("query {names}: {what}")
    };
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(outcome) => outcome.map_err(|error| error.context(says("its expressions"))),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            match text {
                Some(text) => resume_unwind(Box::new(says(&text))),
                None => resume_unwind(payload),
            }
        }
    }
}
