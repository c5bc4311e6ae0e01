//! Nodes of our own: the rows that they exchange through partitions of a log, who is there, and who has which work.
//!
//! Neither transactions nor membership make the exchange exact: positions do. What a sender emits is a function of
//! its input, and each row has the position from which it was made. Two nodes that work on the same partition send
//! the same rows, and the receiver drops those that it has.
//!
//! * [`frame`]: one message of rows, as bytes.
//! * [`answers`]: answers on their way back to who waits for them.
//! * [`positions`]: where a row is, and which rows a receiver counts.
//! * [`times`]: the time by which a stage judges rows that others send to it.
//! * [`control`]: the records of the control log, as JSON.
//! * [`fold`]: members and the plan in force, as a function of that log.
//! * [`assign`]: which node has which unit: the plan that answers a state.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
//!
//! Not here: the logs themselves, when a frame or a record is sent, what a stage does with its rows.

#![deny(unsafe_code)]

pub mod answers;
pub mod assign;
pub mod control;
pub mod fold;
pub mod frame;
pub mod positions;
mod rules;
pub mod times;

#[cfg(test)]
mod real_data;
