//! Tables that streams are joined with in flight.
//!
//! * [`range`]: ranges of addresses, sorted, in memory.
//! * [`lookup`]: names by address in files larger than memory.

pub mod lookup;
pub mod range;
