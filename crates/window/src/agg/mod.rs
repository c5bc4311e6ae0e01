//! Aggregates over windows: the values that records add and take away, and those that a window holds.
//!
//! The engine works out, for a batch of records, a *schedule*: which elements enter a window at each step, which
//! leave it, and whose value is read then. An [`Aggregate`] applies it column by column, in one loop of its own.
//! Its state is addressed by dense group numbers.
//!
//! Semantics
//! * Nulls are ignored by everything but `count(*)`. Without a value `sum`, `avg`, `min`, … are null, counts 0.
//! * Sums are exact: `sum` of float64 is correctly rounded, `avg`, `var` and `stddev` within 2 ulp (`avg` of integers
//!   and decimals correctly rounded), and all are a function of the values in the window, not of their history.
//!   A float64 sum that is zero is +0. Values above the largest double round to infinity.
//! * NaN and infinities leave with their record. While they are there: any NaN, or both infinities, make `sum`
//!   and `avg` NaN; one kind of infinity makes them that infinity; `var` and `stddev` are NaN.
//! * `var` and `stddev` of fewer than two values are null, `var_pop` and `stddev_pop` of one value are 0.
//! * A sum that its type does not hold is null and listed in [`Column::errors`]; it comes back when it fits again.
//! * `min`, `max`: NaN is above everything; −0 is given as 0. `count(distinct)`: one NaN, −0 equals 0.
//! * `first`, `last`, `prev` use the order of (event time, arrival).
//! * `quantile(x, q)`: the value of rank `floor(q · (n − 1))`, counted from 0 from the least one, within 1 %. Its caller
//!   keeps it between the least and the greatest value.
//!
//! Invariants (of the schedule)
//! * Elements may enter out of order. An element that leaves has entered, has not left or been reset since, and
//!   is the oldest of its group.
//! * Group numbers are below the argument of [`Aggregate::grow`].
//!
//! Not here: which elements enter and leave when (cursors), group numbers, queries.

mod best;
mod count;
mod distinct;
mod exact;
mod front;
mod function;
mod kind;
mod latest;
mod moments;
mod occurrences;
mod output;
mod plan;
mod quantile;
mod queue;
#[cfg(test)]
mod reference;
mod sketch;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;

use crate::image::{Malformed, Reader};
use crate::pieces::{Pieced, Shelf};

pub use function::{Function, output_type};
pub use occurrences::Occurrences;
pub use plan::{Call, plan};
pub(crate) use plan::{Leaving, plan_in};
pub(crate) use quantile::floats;

/// The group of a step that reads the value of an empty window.
pub const NO_GROUP: u32 = u32::MAX;

/// Elements that enter or leave a window, in the order in which they are applied.
///
/// (`times`, `seqs`) is the order of elements: event time, then arrival. No two elements have the same. Both may be
/// empty where no call's [`Function::is_ordered`].
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    pub groups: &'a [u32],
    pub times: &'a [i64],
    pub seqs: &'a [u64],
    /// The argument, one value per element; may be left out for `count(*)` alone, and where there are no elements.
    pub values: Option<&'a ArrayRef>,
    /// Slots of the values, for [`Aggregate::occurrences`] alone; [`NO_GROUP`] for null.
    pub slots: &'a [u32],
}

impl<'a> Stream<'a> {
    /// The values, one per element; `None` only if there are no elements.
    fn argument(&self) -> Option<&'a ArrayRef> {
        let values = self.values.map_or(0, |values| values.len());
        assert_eq!(values, self.groups.len(), "one value of the argument per element");
        self.values
    }

    fn argument_nulls(&self) -> Option<&'a NullBuffer> {
        self.values.and_then(|values| values.nulls()).filter(|nulls| nulls.null_count() > 0)
    }
}

/// What happens at each step: forget, add, remove, read, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    /// How many elements of the add stream enter.
    pub adds: &'a [u32],
    /// How many elements of the remove stream leave.
    pub removes: &'a [u32],
    /// The group that is read, or [`NO_GROUP`].
    pub groups: &'a [u32],
    /// Whether everything of the step's group is forgotten first.
    pub resets: Option<&'a [bool]>,
}

/// The values of one call.
#[derive(Clone, Debug)]
pub struct Column {
    /// Of the Arrow type of [`output_type`], one per step.
    pub values: ArrayRef,
    /// Steps whose value did not fit the type (their value is null), ascending.
    pub errors: Vec<u32>,
}

/// The state of one or several calls with the same argument, for all groups.
pub trait Aggregate: Send {
    /// The calls of the plan that this state answers, in the order of the columns of [`Aggregate::run`].
    fn calls(&self) -> &[usize];

    /// The [`Call::arg_index`] whose values the streams must carry; `None` for `count(*)` alone.
    fn arg(&self) -> Option<usize>;

    /// Group numbers below `groups` may be used from now on; new ones are empty.
    fn grow(&mut self, groups: usize);

    /// Numbers from `groups` on are used no more, and their groups are empty: gives back what they take.
    fn cut(&mut self, groups: usize);

    /// Empties a group, which goes on.
    fn reset(&mut self, group: u32);

    /// Forgets everything of a group that is out of memory from now on, or no more.
    fn forget(&mut self, group: u32) {
        self.reset(group);
    }

    /// From now on what is long may be cut into pieces, which are kept there.
    fn set_shelf(&mut self, _: &Arc<Shelf>) {}

    /// State that may be in pieces.
    fn pieced(&self) -> Option<&dyn Pieced> {
        None
    }

    /// As [`Aggregate::pieced`].
    fn pieced_mut(&mut self) -> Option<&mut dyn Pieced> {
        None
    }

    /// Applies a schedule; one column per call, one value per step.
    fn run(&mut self, steps: &Steps<'_>, added: &Stream<'_>, removed: &Stream<'_>) -> Vec<Column>;

    /// The present value of a group (or of [`NO_GROUP`]); one column of one row per call.
    fn read(&self, group: u32) -> Vec<Column>;

    /// Reads, for the sake of the cache, what [`Aggregate::save`] reads first of each of these groups.
    fn touch(&self, _groups: &[u32]) {}

    /// Appends the state of a group to its image, but for what is in pieces.
    fn save(&self, group: u32, out: &mut Vec<u8>);

    /// Restores a group, whose state here is empty, from the bytes of [`Aggregate::save`].
    ///
    /// # Errors
    /// Where the bytes are not an image; the group's state then means nothing.
    fn load(&mut self, group: u32, image: &mut Reader<'_>) -> Result<(), Malformed>;

    /// Heap bytes held now.
    fn bytes(&self) -> usize;

    /// Bytes that a group takes before anything that grows with its values.
    fn bytes_per_group(&self) -> usize;

    /// What may pile up, for `explain`; `None` where a group's bytes don't grow with its window.
    fn worst_case(&self) -> Option<String>;

    /// The state of values that are groups of their own.
    fn occurrences(&self) -> Option<&Occurrences> {
        None
    }

    /// As [`Aggregate::occurrences`].
    fn occurrences_mut(&mut self) -> Option<&mut Occurrences> {
        None
    }
}
