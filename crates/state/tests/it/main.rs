//! The back ends from outside: one suite for all of them, and what only one of them promises.

mod beside;
mod damage;
mod faults;
mod harness;
mod keys;
mod look;
mod model;
mod space;
mod threads;
