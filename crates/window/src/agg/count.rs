//! `count(*)` and `count(x)` where no sum of the same argument counts along.

use arrow_buffer::NullBuffer;

use super::output::{Writer, repeat};
use super::walk::{Walk, walk};
use super::{Aggregate, Column, NO_GROUP, Steps, Stream};
use crate::image::{Malformed, Reader, put};
use crate::slots::{cut, grow};
use crate::warm::warm;

/// Number of elements, or of those that are not null.
pub(super) struct Count {
    calls: Vec<usize>,
    /// `None` counts every element.
    arg: Option<usize>,
    counts: Vec<u64>,
}

impl Count {
    pub(super) fn new(calls: Vec<usize>, arg: Option<usize>) -> Self {
        Self { calls, arg, counts: Vec::new() }
    }

    fn nulls<'a>(&self, stream: &Stream<'a>) -> Option<&'a NullBuffer> {
        self.arg?;
        stream.argument();
        stream.argument_nulls()
    }
}

struct Tour<'a> {
    counts: &'a mut [u64],
    added: &'a [u32],
    removed: &'a [u32],
    added_nulls: Option<&'a NullBuffer>,
    removed_nulls: Option<&'a NullBuffer>,
    out: Writer<i64>,
}

impl Walk for Tour<'_> {
    const CAN_MASK: bool = true;

    #[inline(always)]
    fn touch(&mut self, groups: &[u32]) {
        // A million bytes are in the second cache anyway.
        if self.counts.len() > 1 << 17 {
            warm(groups.iter().map(|group| self.counts[*group as usize]));
        }
    }

    fn reset(&mut self, group: u32) {
        self.counts[group as usize] = 0;
    }

    #[inline(always)]
    fn add(&mut self, element: usize) {
        let counts = self.added_nulls.is_none_or(|nulls| nulls.is_valid(element));
        self.counts[self.added[element] as usize] += u64::from(counts);
    }

    #[inline(always)]
    fn remove(&mut self, element: usize) {
        self.remove_if(element, true);
    }

    #[inline(always)]
    fn remove_if(&mut self, element: usize, really: bool) {
        let counts = really & self.removed_nulls.is_none_or(|nulls| nulls.is_valid(element));
        self.counts[self.removed[element] as usize] -= u64::from(counts);
    }

    #[inline(always)]
    fn read(&mut self, step: usize, group: u32) {
        let count = if group == NO_GROUP { 0 } else { self.counts[group as usize] };
        self.out.set(step, count as i64, true);
    }
}

impl Aggregate for Count {
    fn calls(&self) -> &[usize] {
        &self.calls
    }

    fn arg(&self) -> Option<usize> {
        self.arg
    }

    fn grow(&mut self, groups: usize) {
        grow(&mut self.counts, groups, || 0);
    }

    fn cut(&mut self, groups: usize) {
        cut(&mut self.counts, groups);
    }

    fn reset(&mut self, group: u32) {
        self.counts[group as usize] = 0;
    }

    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column> {
        let mut tour = Tour {
            added: added.groups,
            removed: removed.groups,
            added_nulls: self.nulls(added),
            removed_nulls: self.nulls(removed),
            counts: &mut self.counts,
            out: Writer::new(steps.groups.len()),
        };
        walk(steps, added, removed, &mut tour);
        repeat(&tour.out.into_int64(), self.calls.len())
    }

    fn read(&self, group: u32) -> Vec<Column> {
        let mut out = Writer::new(1);
        out.set(0, if group == NO_GROUP { 0 } else { self.counts[group as usize] as i64 }, true);
        repeat(&out.into_int64(), self.calls.len())
    }

    fn touch(&self, groups: &[u32]) {
        warm(groups.iter().map(|group| self.counts[*group as usize]));
    }

    fn save(&self, group: u32, out: &mut Vec<u8>) {
        put(out, self.counts[group as usize]);
    }

    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.counts[group as usize] = image.number("count")?;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }

    fn bytes_per_group(&self) -> usize {
        size_of::<u64>()
    }

    fn worst_case(&self) -> Option<String> {
        None
    }
}
