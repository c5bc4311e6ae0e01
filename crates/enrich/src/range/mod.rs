//! Ranges of addresses, sorted, in memory.
