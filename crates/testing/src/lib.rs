//! What tests of several crates share.

pub mod allocation;
pub mod logs;
pub mod semantics;
