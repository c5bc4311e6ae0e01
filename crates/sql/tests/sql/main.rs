//! The engine over tables that are written here by hand.

mod answers;
mod fake;
mod limits;
mod outputs;
