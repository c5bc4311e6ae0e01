//! Rules of the fold, one after the other, and all of them in schedules at random.

pub(crate) mod kit;
mod log;
mod model;
mod rules;
