//! A leaf of the plan: the aggregates of one window, filter and GROUP BY, and the schedule that they run.
//!
//! A leaf knows groups by their slots (`crate::groups`).
//!
//! Not here: aggregates (`crate::agg`), the records of `ROWS n` (`rows`), which leaves there are (`leaves`).

use std::sync::Arc;

use arrow_array::UInt32Array;
use arrow_select::take::take;
use thalweg_types::Micros;

use super::nodes::Face;
use super::rows::RowsRing;
use super::stream::{Columns, Elements, Gathered, Selection};
use crate::agg::{self, Aggregate, Call, Leaving, NO_GROUP, Occurrences, Steps, Stream};
use crate::image::{Malformed, Reader, put_signed};
use crate::pieces::{Pieced, Shelf};
use crate::query::Window as WindowKind;
use crate::slots::{cut, grow};

/// What a leaf needs to know of a batch.
pub(super) struct Turn<'a> {
    /// Task time after each record.
    pub(super) task_times: &'a [Micros],
    /// Of the window.
    pub(super) delay: Micros,
    /// Group that each record reads.
    pub(super) groups: &'a [u32],
    /// Rows that enter the window, before its filter.
    pub(super) entering: &'a Elements,
    /// … of these the ones that pass the filter.
    pub(super) entered: &'a Selection,
    /// Rows that leave, if a cursor gives them.
    pub(super) leaving: Option<(&'a Elements, &'a Selection)>,
}

pub(super) struct Leaf {
    pub(super) kind: WindowKind,
    pub(super) calls: Vec<Call>,
    /// Layout column of each argument; `Call::arg_index` counts these.
    pub(super) args: Vec<usize>,
    /// Whether an aggregate depends on the order of elements.
    pub(super) is_ordered: bool,
    /// Bytes of the longest text or blob that came in.
    pub(super) longest: usize,
    pub(super) aggregates: Vec<Box<dyn Aggregate>>,
    /// For `TUMBLING`: the window that each group's state is of.
    stamps: Vec<i64>,
    rows: Option<RowsRing>,
    slots: usize,
    /// Where pieces of its lists are.
    pub(super) shelf: Arc<Shelf>,
}

/// Whether a leaf depends on the order of elements, so that it needs their times and arrival numbers.
pub(super) fn is_ordered(kind: WindowKind, calls: &[Call]) -> bool {
    matches!(kind, WindowKind::Rows(_)) || calls.iter().any(|call| call.function.is_ordered())
}

/// Stamp of a group whose state is empty whatever the window.
const NO_STAMP: i64 = i64::MIN;

impl Leaf {
    pub(super) fn new(
        kind: WindowKind,
        calls: Vec<Call>,
        args: Vec<usize>,
        arg_types: &[arrow_schema::DataType],
        are_values_groups: bool,
        shelf: Shelf,
    ) -> Result<Self, thalweg_types::Error> {
        let leaving = match kind {
            WindowKind::Tumbling(span) => Leaving::Together(span),
            WindowKind::Infinite => Leaving::Never,
            WindowKind::Sliding(_) | WindowKind::Rows(_) => Leaving::OneByOne,
        };
        let mut aggregates = agg::plan_in(&calls, leaving, are_values_groups)?;
        let shelf = Arc::new(shelf);
        aggregates.iter_mut().for_each(|aggregate| aggregate.set_shelf(&shelf));
        let rows = match kind {
            WindowKind::Rows(limit) => Some(RowsRing::new(limit, arg_types, Arc::clone(&shelf))),
            _ => None,
        };
        let (is_ordered, stamps) = (is_ordered(kind, &calls), Vec::new());
        Ok(Self { kind, calls, args, is_ordered, longest: 0, aggregates, stamps, rows, slots: 0, shelf })
    }

    /// The aggregates whose values are groups of their own.
    fn occurrences(&self) -> impl Iterator<Item = &Occurrences> {
        self.aggregates.iter().filter_map(|aggregate| aggregate.occurrences())
    }

    fn occurrences_mut(&mut self, number: usize) -> &mut Occurrences {
        let mut all = self.aggregates.iter_mut().filter_map(|aggregate| aggregate.occurrences_mut());
        all.nth(number).expect("a face of the leaf")
    }

    /// State that may be in pieces.
    fn pieced(&self) -> impl Iterator<Item = &dyn Pieced> {
        let rows = self.rows.iter().map(|rows| rows as &dyn Pieced);
        self.aggregates.iter().filter_map(|aggregate| aggregate.pieced()).chain(rows)
    }

    /// As [`Leaf::pieced`].
    pub(super) fn pieced_mut(&mut self) -> impl Iterator<Item = &mut dyn Pieced> {
        let rows = self.rows.iter_mut().map(|rows| rows as &mut dyn Pieced);
        self.aggregates.iter_mut().filter_map(|aggregate| aggregate.pieced_mut()).chain(rows)
    }

    pub(super) fn is_pieced(&self) -> bool {
        self.pieced().next().is_some()
    }

    /// Numbers of pieces are below it, those of a cycle that begins now included.
    pub(super) fn next_piece(&self) -> u32 {
        let most: usize = self.pieced().map(Pieced::most_numbers).sum();
        self.shelf.next().saturating_add(u32::try_from(most).unwrap_or(u32::MAX))
    }

    /// Whether all pieces came that groups in memory say they have.
    pub(super) fn has_all_pieces(&self) -> bool {
        self.pieced().all(Pieced::has_all)
    }

    /// Places in the layout of the arguments whose values are groups of their own.
    pub(super) fn valued(&self) -> Vec<usize> {
        self.occurrences().filter_map(Aggregate::arg).map(|arg| self.args[arg]).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.aggregates.iter().map(|aggregate| aggregate.bytes()).sum::<usize>()
            + self.stamps.capacity() * size_of::<i64>()
            + self.rows.as_ref().map_or(0, RowsRing::bytes)
    }

    pub(super) fn bytes_per_group(&self) -> usize {
        let stamp = if let WindowKind::Tumbling(_) = self.kind { size_of::<i64>() } else { 0 };
        stamp + self.aggregates.iter().map(|aggregate| aggregate.bytes_per_group()).sum::<usize>()
    }

    /// What may pile up per group beyond [`Leaf::bytes_per_group`].
    pub(super) fn worst_cases(&self) -> Vec<String> {
        let mut cases: Vec<String> =
            self.aggregates.iter().filter_map(|aggregate| aggregate.worst_case()).collect();
        if let WindowKind::Rows(limit) = self.kind {
            cases.push(format!("up to {limit} records of every group"));
        }
        cases
    }

    /// The part of [`Leaf::bytes`] that slots of a face take.
    pub(super) fn bytes_of(&self, face: Face) -> usize {
        match face {
            Face::Groups => self.bytes() - self.occurrences().map(Occurrences::value_bytes).sum::<usize>(),
            Face::Values(number) => self.occurrences().nth(number).map_or(0, Occurrences::value_bytes),
        }
    }

    pub(super) fn grow(&mut self, face: Face, slots: usize) {
        match face {
            Face::Groups => self.grow_groups(slots),
            Face::Values(number) => self.occurrences_mut(number).grow_values(slots),
        }
    }

    fn grow_groups(&mut self, slots: usize) {
        if slots <= self.slots {
            return;
        }
        self.slots = slots;
        for aggregate in &mut self.aggregates {
            aggregate.grow(slots);
        }
        if let WindowKind::Tumbling(_) = self.kind {
            grow(&mut self.stamps, slots, || NO_STAMP);
        }
        if let Some(rows) = &mut self.rows {
            rows.grow(slots);
        }
    }

    /// Gives back slots from `slots` on, whose groups were all forgotten.
    pub(super) fn cut(&mut self, face: Face, slots: usize) {
        if let Face::Values(number) = face {
            return self.occurrences_mut(number).cut_values(slots);
        }
        if slots >= self.slots {
            return;
        }
        self.slots = slots;
        for aggregate in &mut self.aggregates {
            aggregate.cut(slots);
        }
        cut(&mut self.stamps, slots);
        if let Some(rows) = &mut self.rows {
            rows.cut(slots);
        }
    }

    /// Whether the slot is one that the leaf has state for.
    pub(super) fn knows(&self, face: Face, slot: u32) -> bool {
        match face {
            Face::Groups => (slot as usize) < self.slots,
            Face::Values(number) => self.occurrences().nth(number).is_some_and(|all| all.knows_value(slot)),
        }
    }

    /// Forgets a group whose slot is free again.
    pub(super) fn forget(&mut self, face: Face, group: u32) {
        if let Face::Values(number) = face {
            return self.occurrences_mut(number).forget_value(group);
        }
        if !self.knows(face, group) {
            return;
        }
        for aggregate in &mut self.aggregates {
            aggregate.forget(group);
        }
        if let Some(stamp) = self.stamps.get_mut(group as usize) {
            *stamp = NO_STAMP;
        }
        if let Some(rows) = &mut self.rows {
            rows.forget(group);
        }
    }

    /// Reads, for the sake of the cache, what [`Leaf::save`] reads first of each of these groups or values.
    pub(super) fn touch(&self, face: Face, groups: &[u32]) {
        if face == Face::Groups && groups.iter().all(|group| (*group as usize) < self.slots) {
            self.aggregates.iter().for_each(|aggregate| aggregate.touch(groups));
        }
    }

    /// Appends the state of a group or value that the leaf knows to its image.
    pub(super) fn save(&self, face: Face, group: u32, out: &mut Vec<u8>) {
        if let Face::Values(number) = face {
            return self.occurrences().nth(number).iter().for_each(|all| all.save_value(group, out));
        }
        if let Some(stamp) = self.stamps.get(group as usize) {
            put_signed(out, *stamp);
        }
        for aggregate in &self.aggregates {
            aggregate.save(group, out);
        }
        if let Some(rows) = &self.rows {
            rows.save(group, out);
        }
    }

    /// Restores the bytes of [`Leaf::save`] into a group whose state is empty.
    pub(super) fn load(&mut self, face: Face, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        if let Face::Values(number) = face {
            return self.occurrences_mut(number).load_value(group, image);
        }
        self.grow_groups(group as usize + 1);
        if let Some(stamp) = self.stamps.get_mut(group as usize) {
            *stamp = image.signed("window of a group")?;
        }
        for aggregate in &mut self.aggregates {
            aggregate.load(group, image)?;
        }
        if let Some(rows) = &mut self.rows {
            rows.load(group, image)?;
        }
        self.longest = self.longest.max(image.longest());
        Ok(())
    }

    /// The present values of a group, one column per call. `head` is task time less the window's delay.
    pub(super) fn read(&self, group: u32, head: Micros) -> Vec<agg::Column> {
        let is_stale = match self.kind {
            WindowKind::Tumbling(span) if group != NO_GROUP => {
                self.stamps[group as usize] != head.div_euclid(span)
            }
            _ => false,
        };
        self.by_call(|aggregate| aggregate.read(if is_stale { NO_GROUP } else { group }))
    }

    /// Columns of all aggregates, put in the order of the leaf's calls.
    fn by_call(&self, mut columns: impl FnMut(&dyn Aggregate) -> Vec<agg::Column>) -> Vec<agg::Column> {
        let mut ordered: Vec<Option<agg::Column>> = vec![None; self.calls.len()];
        for aggregate in &self.aggregates {
            for (call, column) in aggregate.calls().iter().zip(columns(aggregate.as_ref())) {
                ordered[*call] = Some(column);
            }
        }
        ordered.into_iter().map(|column| column.expect("every call has an aggregate")).collect()
    }

    /// One column per call, one value per record of the batch.
    ///
    /// `columns` are those of the stage; the arrival numbers are left out where no aggregate needs them.
    pub(super) fn run(&mut self, turn: &Turn<'_>, columns: Columns<'_>) -> Vec<agg::Column> {
        let columns = Columns { seq: columns.seq.filter(|_| self.is_ordered), ..columns };
        if let WindowKind::Tumbling(span) = self.kind {
            return self.run_tumbling(turn, columns, span);
        }
        let gather = |elements: &Elements, selection: &Selection| {
            Gathered::new(elements, selection, &columns, &self.args)
        };
        let added = gather(turn.entering, turn.entered);
        let adds = turn.entered.counts(turn.entering);
        if let Some(rows) = &mut self.rows {
            let (removed, removes) = rows.push(&added, adds);
            return self.apply(
                &Schedule { adds, removes: &removes, groups: turn.groups, resets: None },
                &added,
                &removed,
            );
        }
        match turn.leaving {
            Some((elements, selection)) => {
                let removed = gather(elements, selection);
                let schedule =
                    Schedule { adds, removes: selection.counts(elements), groups: turn.groups, resets: None };
                self.apply(&schedule, &added, &removed)
            }
            None => {
                let removes = vec![0; turn.groups.len()];
                let schedule = Schedule { adds, removes: &removes, groups: turn.groups, resets: None };
                self.apply(&schedule, &added, &Gathered::empty(self.args.len()))
            }
        }
    }

    /// Values of a face enter and leave that their groups count already.
    pub(super) fn replay_values(&mut self, number: usize, turn: &Turn<'_>, columns: Columns<'_>) {
        let columns = Columns { has_times: true, seq: None, group: None, ..columns };
        let added = Gathered::new(turn.entering, turn.entered, &columns, &[]);
        let removed = match turn.leaving {
            Some((elements, selection)) => Gathered::new(elements, selection, &columns, &[]),
            None => Gathered::empty(0),
        };
        self.occurrences_mut(number).replay(&stream(&added, None, 0), &stream(&removed, None, 0));
    }

    /// `TUMBLING`: nothing leaves one by one; a group's state is forgotten when it is next touched in a newer window.
    ///
    /// With a delay a step may add records of groups other than the one it reads, so every addition becomes a step of
    /// its own, whose answer is dropped.
    fn run_tumbling(&mut self, turn: &Turn<'_>, columns: Columns<'_>, span: Micros) -> Vec<agg::Column> {
        let times = turn.entering.times();
        let window_at = |step: usize| turn.task_times[step].saturating_sub(turn.delay).div_euclid(span);
        let entered = if turn.entered.len(turn.entering) == 0 {
            turn.entered.clone()
        } else {
            let mut wanted =
                turn.entered.places.as_ref().map(|places| places.values().iter().copied().peekable());
            Selection::keep(turn.entering, |step, place| {
                let is_wanted = match &mut wanted {
                    None => true,
                    Some(places) => places.next_if_eq(&(place as u32)).is_some(),
                };
                // A record of an earlier window that comes late belongs to none that is open.
                is_wanted && times[place] >= window_at(step).saturating_mul(span)
            })
        };
        let columns = Columns { has_times: !columns.values.is_empty(), ..columns };
        let added = Gathered::new(turn.entering, &entered, &columns, &self.args);
        let (mut adds, mut groups, mut resets, mut answers) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut element = 0;
        for (step, count) in entered.counts(turn.entering).iter().enumerate() {
            let window = window_at(step);
            let mut touch = |group: u32, add: u32| {
                adds.push(add);
                groups.push(group);
                let is_stale = group != NO_GROUP && self.stamps[group as usize] != window;
                if is_stale {
                    self.stamps[group as usize] = window;
                }
                resets.push(is_stale);
            };
            let mut own = 0;
            for _ in 0..*count {
                let group = added.groups()[element];
                element += 1;
                if *count == 1 && group == turn.groups[step] {
                    own = 1;
                } else {
                    touch(group, 1);
                }
            }
            touch(turn.groups[step], own);
            answers.push((groups.len() - 1) as u32);
        }
        let removes = vec![0; groups.len()];
        let schedule = Schedule { adds: &adds, removes: &removes, groups: &groups, resets: Some(&resets) };
        let mut columns = self.apply(&schedule, &added, &Gathered::empty(self.args.len()));
        if answers.len() < groups.len() {
            let rows = UInt32Array::from(answers);
            for column in &mut columns {
                column.values = take(&column.values, &rows, None).expect("answers are among the steps");
                let of_answers = |step: &u32| rows.values().binary_search(step).ok().map(|row| row as u32);
                column.errors = column.errors.iter().filter_map(of_answers).collect();
            }
        }
        columns
    }

    fn apply(&mut self, schedule: &Schedule<'_>, added: &Gathered, removed: &Gathered) -> Vec<agg::Column> {
        let steps = Steps {
            adds: schedule.adds,
            removes: schedule.removes,
            groups: schedule.groups,
            resets: schedule.resets,
        };
        if let [aggregate] = self.aggregates.as_mut_slice()
            && aggregate.calls().is_sorted()
        {
            let arg = aggregate.arg();
            return aggregate.run(&steps, &stream(added, arg, 0), &stream(removed, arg, 0));
        }
        let mut ordered: Vec<Option<agg::Column>> = vec![None; self.calls.len()];
        let mut face = 0;
        for aggregate in &mut self.aggregates {
            let arg = aggregate.arg();
            let columns = aggregate.run(&steps, &stream(added, arg, face), &stream(removed, arg, face));
            face += usize::from(aggregate.occurrences().is_some());
            for (call, column) in aggregate.calls().iter().zip(columns) {
                ordered[*call] = Some(column);
            }
        }
        ordered.into_iter().map(|column| column.expect("every call has an aggregate")).collect()
    }
}

struct Schedule<'a> {
    adds: &'a [u32],
    removes: &'a [u32],
    groups: &'a [u32],
    resets: Option<&'a [bool]>,
}

/// `face`: number of the values whose slots are wanted.
fn stream(gathered: &Gathered, arg: Option<usize>, face: usize) -> Stream<'_> {
    Stream {
        slots: gathered.slots(face),
        groups: gathered.groups(),
        times: gathered.times(),
        seqs: gathered.seqs(),
        values: arg.and_then(|arg| gathered.values[arg].as_ref()),
    }
}
