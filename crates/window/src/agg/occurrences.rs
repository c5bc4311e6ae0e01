//! `count(distinct x)` where each value in a group is itself a group, of the GROUP BY with `x` in addition (Gomes et al.,
//! *Railgun*, VLDB 2021, section 4.1.3, which keeps distinct values by group and value).
//!
//! So values are numbered, written, evicted and swept as other groups are, one by one, however many a group has. Here is
//! how often each is in the window, by its slot, and how many are, by the slot of the group.
//!
//! In a `TUMBLING` window nothing leaves: a count is of the window that its stamp names, and 0 in any other.
//!
//! Not here: the slots of values (`stage`), values as such (`distinct`, for windows of `ROWS`).

use thalweg_types::Micros;

use super::output::{Writer, repeat};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader, put, put_signed};
use crate::slots::{cut, grow};
use crate::warm::warm;

/// How often each value is in the window, and how many values are.
pub struct Occurrences {
    calls: Vec<usize>,
    arg: usize,
    /// Of the windows, for `TUMBLING`.
    span: Option<Micros>,
    /// Values in the window, by group.
    distinct: Vec<u64>,
    /// Occurrences in the window, by value.
    counts: Vec<u64>,
    /// For `TUMBLING`: the window that the count is of.
    stamps: Vec<i64>,
}

/// Stamp of a value that is in no window.
const NO_STAMP: i64 = i64::MIN;

impl Occurrences {
    pub(super) fn new(calls: Vec<usize>, arg: usize, span: Option<Micros>) -> Self {
        Self { calls, arg, span, distinct: Vec::new(), counts: Vec::new(), stamps: Vec::new() }
    }

    /// Slots of values below `slots` may be used from now on; new ones are empty.
    pub(crate) fn grow_values(&mut self, slots: usize) {
        grow(&mut self.counts, slots, || 0);
        if self.span.is_some() {
            grow(&mut self.stamps, slots, || NO_STAMP);
        }
    }

    /// Slots of values from `slots` on are used no more.
    pub(crate) fn cut_values(&mut self, slots: usize) {
        cut(&mut self.counts, slots);
        cut(&mut self.stamps, slots);
    }

    pub(crate) fn knows_value(&self, slot: u32) -> bool {
        (slot as usize) < self.counts.len()
    }

    /// The slot of a value is free again.
    pub(crate) fn forget_value(&mut self, slot: u32) {
        if let Some(count) = self.counts.get_mut(slot as usize) {
            *count = 0;
        }
        if let Some(stamp) = self.stamps.get_mut(slot as usize) {
            *stamp = NO_STAMP;
        }
    }

    /// Appends the state of a value to its image.
    pub(crate) fn save_value(&self, slot: u32, out: &mut Vec<u8>) {
        if let Some(stamp) = self.stamps.get(slot as usize) {
            put_signed(out, *stamp);
        }
        put(out, self.counts[slot as usize]);
    }

    /// Restores what [`Occurrences::save_value`] wrote into a slot that is empty.
    pub(crate) fn load_value(&mut self, slot: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.grow_values(slot as usize + 1);
        if let Some(stamp) = self.stamps.get_mut(slot as usize) {
            *stamp = image.signed("window of a value")?;
        }
        self.counts[slot as usize] = image.number("occurrences of a value")?;
        Ok(())
    }

    /// Heap bytes of the state of values.
    pub(crate) fn value_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>() + self.stamps.capacity() * size_of::<i64>()
    }

    /// Values enter and leave that their groups count already.
    pub(crate) fn replay(&mut self, added: &Stream<'_>, removed: &Stream<'_>) {
        for element in 0..added.slots.len() {
            self.enter(added, element);
        }
        for slot in removed.slots.iter().filter(|slot| **slot != NO_GROUP) {
            self.leave(*slot);
        }
    }

    /// Whether the value was not in the window before.
    #[inline(always)]
    fn enter(&mut self, added: &Stream<'_>, element: usize) -> bool {
        let slot = added.slots[element];
        if slot == NO_GROUP {
            return false;
        }
        let count = &mut self.counts[slot as usize];
        if let Some(span) = self.span {
            let window = added.times[element].div_euclid(span);
            if std::mem::replace(&mut self.stamps[slot as usize], window) != window {
                *count = 0;
            }
        }
        *count += 1;
        *count == 1
    }

    /// Whether the value is not in the window any more.
    #[inline(always)]
    fn leave(&mut self, slot: u32) -> bool {
        let count = &mut self.counts[slot as usize];
        assert!(*count > 0, "a value that leaves a window has entered it");
        *count -= 1;
        *count == 0
    }

    fn count(&self, group: u32) -> i64 {
        if group == NO_GROUP { 0 } else { self.distinct[group as usize] as i64 }
    }
}

struct Tour<'a> {
    state: &'a mut Occurrences,
    added: Stream<'a>,
    removed: Stream<'a>,
    out: Writer<i64>,
}

impl Walk for Tour<'_> {
    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.state.distinct[*group as usize]));
    }

    fn reset(&mut self, group: u32) {
        self.state.distinct[group as usize] = 0;
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        if self.state.enter(&self.added, element) {
            self.state.distinct[self.added.groups[element] as usize] += 1;
        }
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        let slot = self.removed.slots[element];
        if slot != NO_GROUP && self.state.leave(slot) {
            self.state.distinct[self.removed.groups[element] as usize] -= 1;
        }
    }

    #[inline(always)]
    fn read(&mut self, step: usize, group: u32) {
        self.out.set(step, self.state.count(group), true);
    }
}

impl Aggregate for Occurrences {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        Some(self.arg)
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.distinct, groups, || 0);
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.distinct, groups);
    }

    fn reset(&mut self, group: u32) {
        self.distinct[group as usize] = 0;
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let out = Writer::new(steps.groups.len());
        let calls = self.calls.len();
        let mut tour = Tour { state: self, added: *added, removed: *removed, out };
        walk(steps, added, removed, &mut tour);
        repeat(&tour.out.into_int64(), calls)
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = Writer::new(1);
        out.set(0, self.count(group), true);
        repeat(&out.into_int64(), self.calls.len())
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        put(out, self.distinct[group as usize]);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.distinct[group as usize] = image.number("distinct values")?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.distinct.capacity() * size_of::<u64>() + self.value_bytes()
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<u64>()
    }

    fn worst_case(&self) -> Option<String> {
        let bytes = crate::groups::Groups::BYTES_PER_GROUP + size_of::<u64>();
        Some(format!("count(distinct) keeps about {bytes} bytes per distinct value in the window, per group"))
    }

    fn occurrences(&self) -> Option<&Occurrences> {
        Some(self)
    }

    fn occurrences_mut(&mut self) -> Option<&mut Occurrences> {
        Some(self)
    }
}
