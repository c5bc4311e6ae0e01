//! Tables that streams are joined with in flight.
//!
//! * [`range`]: ranges of addresses, sorted, in memory.
//! * [`lookup`]: names by address in files larger than memory.
//! * [`watch`]: a table that is loaded again when its files change.

pub mod lookup;
pub mod range;
pub mod watch;
