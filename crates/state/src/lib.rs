//! Where the bytes of checkpoints are kept: the state of one task, by key.
//!
//! * [`Changes`]: what a cycle changed, keys with values or tombstones, in one buffer.
//! * [`Backend`]: the contract of a back end, from a slice of changes to the version that a commit record names.
//! * [`indexed`] (the default): append-only segments under an index in memory. Written in sequence, read by place.
//! * [`files`]: one file per key, the baseline.
//! * [`memory`]: for tests of the crates above.
//! * [`registry`]: embedded back ends by the name that job files use. Those on other machines are in `state-remote`.
//! * [`Keyed`]: the values of a task in memory, a bounded cache over a back end.
//! * [`Filling`]: a background scan of a back end, to have state in memory again after a restart.
//!
//! Keys are bytes of any kind; the caller puts operator, group and subkey into them.
//! Three words for durability: *written* (in the kernel), *synced* (survives power loss), *committed* (named by a
//! commit record). A back end writes and syncs; commits, and the choice of keys that are worth memory, are above it.
//!
//! Not here: what the bytes mean, when a cycle ends, the commit record.

#![deny(unsafe_code)]

mod backend;
mod changes;
mod cycles;
mod error;
pub mod files;
mod fill;
pub mod indexed;
mod interrupt;
mod keyed;
pub mod memory;
pub mod registry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod wire;

pub use backend::{Backend, BackendStats, Version, Visit, write_changes};
pub use changes::{Change, Changes};
pub use cycles::Cycles;
pub use error::{StateError, StoreFault};
pub use fill::{Block, Filling};
pub use interrupt::Interrupt;
pub use keyed::{Codec, HandOver, Keyed, KeyedStats, Place, Slice};
