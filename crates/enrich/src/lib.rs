//! Tables that streams are joined with in flight.
//!
//! * [`join`]: what all of them have in common.
//! * [`range`]: ranges of addresses, sorted, in memory.
//! * [`lookup`]: names by address in files larger than memory.
//! * [`watch`]: a table that is loaded again when its files change.

mod bad_lines;
pub mod join;
pub mod lookup;
pub mod member;
pub mod range;
mod text;
pub mod watch;

pub use bad_lines::BadLines;
