//! Rows between nodes of our own, which exchange them through partitions of a log.
//!
//! Neither transactions nor membership make the exchange exact: positions do. What a sender emits is a function of
//! its input, and each row has the position from which it was made. Two nodes that work on the same partition send
//! the same rows, and the receiver drops those that it has.
//!
//! * [`frame`]: one message of rows, as bytes.
//! * [`answers`]: answers on their way back to who waits for them.
//! * [`positions`]: where a row is, and which rows a receiver counts.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
//!
//! Not here: the log itself, when a frame is sent, what a stage does with its rows.

#![deny(unsafe_code)]

pub mod answers;
pub mod frame;
pub mod positions;
