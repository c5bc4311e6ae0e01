//! Queries of a stage: how they are put into its plan and taken out again while it runs.
//!
//! Not here: the plan of one query (`crate::plan`), queries that go on with a checkpoint's state (`matching`, `restore`).

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringViewBuilder};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::Fields;
use thalweg_expr::Bound;
use thalweg_types::{DataType, Error, Field, Micros};

use super::leaf::{Leaf, is_ordered};
use super::nodes::ValuesOf;
use super::outputs::OutputState;
use super::plan::Plan;
use super::records::Records;
use super::{Arg, Filter, Grouping, LeafNode, Window};
use crate::agg::Call;
use crate::pieces::Shelf;
use crate::plan::{Clamp, PlannedQuery};
use crate::query::Window as WindowKind;
use crate::slots::put;

pub(super) struct QueryState {
    pub(super) name: String,
    /// Of the query as it is written; what the plan makes of it depends on the schema, too.
    pub(super) fingerprint: String,
    /// In the order of the query.
    pub(super) calls: Vec<CallState>,
    pub(super) clamps: Vec<Clamp>,
    pub(super) outputs: Vec<OutputState>,
    /// Fields of the query's object.
    pub(super) fields: Fields,
    pub(super) data_type: DataType,
    /// What its expressions cannot compute is null, and does not fail the stage.
    pub(super) is_guarded: bool,
}

impl QueryState {
    /// What follows the outputs of a query, for each record: the time from which all of them count, until their windows
    /// have filled, and the names of those that do not yet, where that are not all.
    pub(super) fn since_columns(&self, task_times: &[Micros]) -> Vec<ArrayRef> {
        let outputs = self.outputs.as_slice();
        let wanted = self.fields.len() - outputs.len();
        let filling = |now: Micros, output: &OutputState| {
            self.calls[output.calls.clone()].iter().filter_map(|call| call.filling(now)).max()
        };
        let mut columns: Vec<ArrayRef> = Vec::new();
        if wanted > 0 {
            let latest = |now: &Micros| outputs.iter().filter_map(|output| filling(*now, output)).max();
            let values: Int64Array = task_times.iter().map(latest).collect();
            columns.push(Arc::new(values.reinterpret_cast::<TimestampMicrosecondType>()));
        }
        if wanted > 1 {
            let mut lists = ListBuilder::new(StringViewBuilder::new());
            for now in task_times {
                let is_filling = |output: &OutputState| filling(*now, output).is_some();
                let count = outputs.iter().filter(|output| is_filling(output)).count();
                let is_some = count > 0 && count < outputs.len();
                for (output, field) in outputs.iter().zip(&self.fields).filter(|_| is_some) {
                    if is_filling(output) {
                        lists.values().append_value(field.name());
                    }
                }
                lists.append(is_some);
            }
            columns.push(Arc::new(lists.finish()));
        }
        columns
    }
}

/// Where an aggregate's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallState {
    pub(super) leaf: usize,
    /// Of the leaf.
    pub(super) call: usize,
    pub(super) since: Option<Since>,
}

impl CallState {
    /// From when it counts, while its window has not filled since.
    pub(super) fn filling(&self, now: Micros) -> Option<Micros> {
        let (since, fill) = self.since.filter(|(since, _)| *since != UNTOLD)?;
        fill.is_none_or(|fill| now.saturating_sub(fill) < since).then_some(since)
    }
}

/// The time from which an aggregate counts where it has not seen all records, and how long until its window has filled then
/// (`None`: never).
pub(super) type Since = (Micros, Option<Micros>);

/// The time from which a stage counts that began without its history, before its first record sets it.
pub(super) const UNTOLD: Micros = Micros::MIN;

/// What no query of a plan uses any more.
#[derive(Default)]
pub(super) struct Unread {
    pub(super) groupings: Vec<Grouping>,
    pub(super) leaves: Vec<LeafNode>,
}

impl Plan {
    /// Adds queries of which some aggregates are in the plan already. Groups of an open cycle are written before.
    pub(super) fn add_outputs(
        &mut self,
        queries: &[(&PlannedQuery, Vec<Option<CallState>>)],
        records: &mut Records,
    ) -> Result<(), Error> {
        let since_record = (records.count > 0).then_some(records.count);
        let mut leaves: Vec<(LeafKey, Vec<Call>, Vec<usize>)> = Vec::new();
        let mut states = Vec::new();
        for (query, kept) in queries {
            if self.query(&query.name).is_some() {
                return Err(Error::user(format!("query {:?} exists already", query.name)));
            }
            if let Some(kept) = kept.iter().copied().collect::<Option<Vec<_>>>() {
                states.push((None, Self::query_state(query, kept)));
                continue;
            }
            let filter = self.filter(query.filter.as_ref(), since_record);
            let grouping = (!query.group_by.is_empty()).then(|| self.grouping(&query.group_by));
            let key = LeafKey { kind: query.window, delay: query.delay, filter, grouping };
            let place = leaves.iter().position(|(other, ..)| *other == key).unwrap_or_else(|| {
                leaves.push((key, Vec::new(), Vec::new()));
                leaves.len() - 1
            });
            let since = records.since_now(query);
            let mut states_of_calls = Vec::new();
            for (planned, kept) in query.calls.iter().zip(kept) {
                if let Some(kept) = kept {
                    states_of_calls.push(*kept);
                    continue;
                }
                let arg = planned.arg.as_ref().map(|value| self.arg(value));
                let (_, calls, args) = &mut leaves[place];
                let arg_index = arg.map(|arg| {
                    args.iter().position(|other| *other == arg).unwrap_or_else(|| {
                        args.push(arg);
                        args.len() - 1
                    })
                });
                let arg_type = planned.arg.as_ref().map(|value| value.data_type().clone());
                let call = Call { function: planned.function, arg: arg_type, arg_index };
                let call = calls.iter().position(|other| *other == call).unwrap_or_else(|| {
                    calls.push(call);
                    calls.len() - 1
                });
                states_of_calls.push(CallState { leaf: NO_LEAF, call, since });
            }
            states.push((Some(place), Self::query_state(query, states_of_calls)));
        }
        if leaves.iter().any(|(key, calls, _)| is_ordered(key.kind, calls)) {
            // Rows that are there get nulls; a query added now sees none of them.
            self.layout.add_seq();
        }
        records.reservoir.set_layout(self.layout.of_reservoir());
        let mut places = Vec::new();
        for (key, calls, args) in leaves {
            let window = self.window(key.kind, key.delay, records)?;
            let types: Vec<_> = args.iter().map(|arg| self.layout.data_type(*arg).clone()).collect();
            // Windows of records forget by count, which hangs on no order of the store.
            let are_values_groups = !matches!(key.kind, WindowKind::Rows(_));
            let id = self.take_id();
            let shelf = Shelf::new(id, 0, Arc::clone(&self.pieces));
            let leaf = Leaf::new(key.kind, calls, args, &types, are_values_groups, shelf)?;
            let values = leaf.valued().into_iter().map(|arg| {
                self.values_grouping(ValuesOf { grouping: key.grouping, arg, filter: key.filter })
            });
            let values = values.collect();
            let node = LeafNode { id, window, filter: key.filter, grouping: key.grouping, values, leaf };
            places.push(put(&mut self.leaves.nodes, node));
        }
        records.reservoir.set_layout(self.layout.of_reservoir());
        self.queries.extend(states.into_iter().map(|(place, mut state)| {
            for call in state.calls.iter_mut().filter(|call| call.leaf == NO_LEAF) {
                call.leaf = place.map_or(NO_LEAF, |place: usize| places[place]);
            }
            state
        }));
        self.set_guards();
        Ok(())
    }

    /// Takes a query out of the plan, with whatever only it used.
    pub(super) fn drop_query(&mut self, name: &str, records: &mut Records) -> Unread {
        let mut unread = Unread::default();
        let Some(place) = self.queries.iter().position(|query| query.name == name) else { return unread };
        for CallState { leaf, .. } in self.queries.remove(place).calls {
            let mut calls = self.queries.iter().flat_map(|query| &query.calls);
            if !calls.any(|call| call.leaf == leaf) {
                unread.leaves.extend(self.leaves.nodes[leaf].take());
            }
        }
        if !unread.leaves.is_empty() {
            unread.groupings = self.drop_unread(records);
        }
        self.set_guards();
        unread
    }

    /// Takes out of the plan the parts that no leaf reads any more, so that queries that come and go leave nothing.
    fn drop_unread(&mut self, records: &mut Records) -> Vec<Grouping> {
        let leaves: Vec<&LeafNode> = self.leaves.nodes.iter().flatten().collect();
        let (mut columns, mut dropped) = (Vec::new(), Vec::new());
        for (place, slot) in self.filters.iter_mut().enumerate() {
            if !leaves.iter().any(|node| node.filter == Some(place)) {
                columns.extend(slot.take().map(|filter| filter.layout));
            }
        }
        for (place, slot) in self.groupings.iter_mut().enumerate() {
            if !leaves.iter().any(|node| node.face(Some(place)).is_some()) {
                let Some(grouping) = slot.take() else { continue };
                columns.push(grouping.layout);
                dropped.push(grouping);
            }
        }
        self.args.retain(|arg| {
            let is_read = leaves.iter().any(|node| node.leaf.args.contains(&arg.layout));
            columns.extend((!is_read).then_some(arg.layout));
            is_read
        });
        let is_ordered = leaves.iter().any(|node| node.leaf.is_ordered);
        for (place, slot) in self.leaves.windows.iter_mut().enumerate() {
            if !leaves.iter().any(|node| node.window == place) {
                *slot = None;
            }
        }
        for (id, _) in records.reservoir.cursors() {
            let is_read = |window: &Window| [window.head, window.tail].contains(&Some(id));
            if !self.leaves.windows.iter().flatten().any(is_read) {
                records.reservoir.drop_cursor(id);
            }
        }
        columns.into_iter().for_each(|column| self.layout.free(column));
        if !is_ordered {
            self.layout.free_seq();
        }
        records.reservoir.set_layout(self.layout.of_reservoir());
        dropped
    }

    fn query_state(query: &PlannedQuery, calls: Vec<CallState>) -> QueryState {
        let DataType::Struct(mut fields) = query.data_type() else {
            unreachable!("a query's type is a struct")
        };
        let [since, since_of] = PlannedQuery::since_fields();
        let told = &calls[..query.outputs.last().map_or(0, |output| output.calls.end)];
        fields.extend(told.iter().any(|call| call.since.is_some()).then_some(since));
        // Where a time is all that differs, an output may be full before another.
        fields.extend(told.iter().any(|call| call.since != told[0].since).then_some(since_of));
        let arrow: Fields = fields.iter().map(Field::to_arrow).collect();
        QueryState {
            name: query.name.clone(),
            fingerprint: query.fingerprint.clone(),
            outputs: query.outputs.iter().map(|output| OutputState::new(query, output)).collect(),
            calls,
            clamps: query.clamps.clone(),
            fields: arrow,
            data_type: DataType::Struct(fields),
            is_guarded: false,
        }
    }

    /// Calls that wait for the time of the first record count from it.
    pub(super) fn tell_begin(&mut self, first: Micros) {
        for call in self.queries.iter_mut().flat_map(|query| &mut query.calls) {
            if let Some((since @ UNTOLD, _)) = &mut call.since {
                *since = first;
            }
        }
    }

    fn take_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id - 1
    }

    fn filter(&mut self, condition: Option<&Bound>, since_record: Option<u64>) -> Option<usize> {
        if condition.is_none() && since_record.is_none() {
            return None;
        }
        let mut fingerprint = condition.map_or("true", Bound::fingerprint).to_owned();
        if let Some(record) = since_record {
            // Rows that came before have no bit in this column, and so are in none of the query's windows.
            fingerprint = format!("{fingerprint} since record {record}");
        }
        let is_same =
            |filter: &Option<Filter>| filter.as_ref().is_some_and(|filter| filter.fingerprint == fingerprint);
        if let Some(place) = self.filters.iter().position(is_same) {
            return Some(place);
        }
        let layout = self.layout.add(filter_column(&fingerprint), arrow_schema::DataType::Boolean);
        Some(put(
            &mut self.filters,
            Filter { fingerprint, condition: condition.cloned(), is_guarded: false, layout },
        ))
    }

    fn arg(&mut self, value: &Bound) -> usize {
        if let Some(arg) = self.args.iter_mut().find(|arg| arg.fingerprint == value.fingerprint()) {
            arg.value.get_or_insert_with(|| value.clone());
            return arg.layout;
        }
        let layout = self.layout.add(value.fingerprint().to_owned(), value.data_type().to_arrow());
        self.args.push(Arg {
            fingerprint: value.fingerprint().to_owned(),
            data_type: value.data_type().clone(),
            value: Some(value.clone()),
            is_guarded: false,
            layout,
        });
        layout
    }

    fn grouping(&mut self, keys: &[Bound]) -> usize {
        // Those of a checkpoint may be in another order.
        let is_same =
            |grouping: &Option<Grouping>| grouping.as_ref().is_some_and(|grouping| grouping.is_by(keys));
        if let Some(place) = self.groupings.iter().position(is_same) {
            return place;
        }
        let mut keys = keys.to_vec();
        keys.sort_by(|a, b| (a.as_column(), a.fingerprint()).cmp(&(b.as_column(), b.fingerprint())));
        let id = self.take_id();
        let layout = self.layout.add(self.input.group_column(&keys), arrow_schema::DataType::UInt32);
        put(&mut self.groupings, Grouping::new(id, keys, layout, self.tag_key))
    }

    fn values_grouping(&mut self, values: ValuesOf) -> usize {
        let is_same = |grouping: &Option<Grouping>| {
            grouping.as_ref().is_some_and(|grouping| grouping.values_of == Some(values))
        };
        if let Some(place) = self.groupings.iter().position(is_same) {
            return place;
        }
        let id = self.take_id();
        let name = self.values_column(values, self.layout.name(values.arg));
        let layout = self.layout.add(name, arrow_schema::DataType::UInt32);
        let grouping = Grouping::new(id, Vec::new(), layout, self.tag_key);
        put(&mut self.groupings, Grouping { values_of: Some(values), ..grouping })
    }

    /// Name of the reservoir's column of the numbers of these values; `arg` is the argument's text.
    pub(super) fn values_column(&self, values: ValuesOf, arg: &str) -> String {
        let grouping = values.grouping.and_then(|place| self.groupings[place].as_ref());
        let filter = values.filter.and_then(|place| self.filters[place].as_ref());
        let by = grouping.map_or_else(String::new, |grouping| self.input.group_column(&grouping.keys));
        let filter = filter.map_or_else(String::new, |filter| filter_column(&filter.fingerprint));
        format!("values of {arg} {by} {filter}")
    }

    fn window(&mut self, kind: WindowKind, delay: Micros, records: &mut Records) -> Result<usize, Error> {
        let same = |window: &Option<Window>| {
            window.as_ref().is_some_and(|window| window.kind == kind && window.delay == delay)
        };
        if let Some(place) = self.leaves.windows.iter().position(same) {
            return Ok(place);
        }
        let now = records.task_time();
        let window = records.with_cursors(kind, delay, now)?;
        Ok(put(&mut self.leaves.windows, window))
    }
}

/// Name of the reservoir's column of a filter.
pub(super) fn filter_column(fingerprint: &str) -> String {
    format!("if {fingerprint}")
}

/// Leaf of an output on the way into the plan.
const NO_LEAF: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
struct LeafKey {
    kind: WindowKind,
    delay: Micros,
    filter: Option<usize>,
    grouping: Option<usize>,
}
