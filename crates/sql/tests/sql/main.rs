//! The engine over tables that are written here by hand.

mod answers;
mod fake;
mod functions;
mod limits;
mod outputs;
mod percentiles;
mod rollups;
mod tops;
mod whole;
