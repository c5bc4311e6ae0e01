//! Jobs run by the runtime, from graphs built out of closures.

mod harness;

mod backpressure;
mod by_time;
mod control;
mod drained;
mod durable;
mod failure;
mod loom;
mod measure;
mod order;
mod pieces;
mod placement;
mod read_only;
mod received;
mod schedule;
mod told;
