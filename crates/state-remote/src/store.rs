//! What a store on another machine has to be able to do for the state of one task. How cycles come of it is described
//! in [`crate::backend`].
//!
//! A task has a *space* of its own there: a head, a log of parts, and rows.
//! * The **head** has the owner of the space and the cycle of the rows. It changes by compare-and-set alone.
//! * A **part** holds some changes of a cycle, packed. Parts are written once and dropped.
//! * A **row** is the value of a key.
//!
//! Calls block, each for one bounded request or a few, and may be repeated: the second time changes nothing.

use std::fmt;
use std::sync::Arc;

use crate::wait::Outcome;

/// The names of a space: its owner, and its own number, which no other space has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// `JOB/OPERATOR/TASK`.
    pub(crate) task: Arc<str>,
    pub(crate) identity: u64,
    pub(crate) number: u64,
}

/// A part of the log. `owner` wrote it: what another process has left under the same cycle is another part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartName {
    pub(crate) cycle: u64,
    pub(crate) owner: u64,
    pub(crate) number: u32,
}

/// What one request carries at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Rows that are changed by one request.
    pub(crate) keys: usize,
    /// Bytes of the changes in one request; a larger one goes alone.
    pub(crate) bytes: usize,
    /// Keys that are read by one request.
    pub(crate) read_keys: usize,
    /// Bytes of these keys.
    pub(crate) read_bytes: usize,
    /// Bytes of a key.
    pub(crate) max_key: usize,
    /// Bytes of a key and its value.
    pub(crate) max_pair: usize,
}

/// A row's new value, as it is stored; `None` takes it away.
pub(crate) type RowChange<'a> = (&'a [u8], Option<Vec<u8>>);

/// A key and its stored value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// The head as it is stored, and the values of keys in their order.
pub(crate) type Read = (Option<Vec<u8>>, Vec<Option<Vec<u8>>>);

/// The space of one task.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    fn limits(&self) -> Limits;

    fn head(&self) -> Outcome<Option<Vec<u8>>>;

    /// Puts `new` in the place of `before`, or if there is no head; returns whether it is there.
    fn set_head(&self, before: Option<&[u8]>, new: &[u8]) -> Outcome<bool>;

    fn put_part(&self, name: PartName, bytes: &[u8]) -> Outcome<()>;

    /// Names of all parts.
    fn parts(&self) -> Outcome<Vec<PartName>>;

    fn part(&self, name: PartName) -> Outcome<Option<Vec<u8>>>;

    fn drop_parts(&self, names: &[PartName]) -> Outcome<()>;

    /// Makes rows those of `cycle`, as many as one request takes. A change that comes late, after one of a newer
    /// cycle, changes nothing. `false` where the head is not `head` any more.
    fn apply(&self, head: &[u8], cycle: u64, changes: &[RowChange<'_>]) -> Outcome<bool>;

    /// Values of as many keys as one request takes, and the head as it was no later than they.
    fn get_many(&self, keys: &[&[u8]]) -> Outcome<Read>;

    /// How many rows there are, where the store knows that without a look at each.
    fn count(&self) -> Outcome<Option<u64>>;

    /// All rows, each once, in some order.
    fn rows(&self) -> Box<dyn Rows + '_>;

    /// Removes the space and everything in it.
    fn remove(&self) -> Outcome<()>;
}

/// A walk over the rows.
pub(crate) trait Rows {
    /// Some rows that have not come yet; `None` after the last. After an error the same call may be made again.
    fn next(&mut self) -> Outcome<Option<Vec<Pair>>>;
}

/// A server in which spaces are.
pub(crate) trait Server: Send + Sync + fmt::Debug {
    fn space(&self, space: Space) -> Arc<dyn Store>;
}
