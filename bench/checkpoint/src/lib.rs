//! Checkpoints as S4 measured them (Vallés, 2012, chapter 4): of all operations 90 % write a value of 1 KiB and 10 % read
//! one by its key, over keys that are there already.
//!
//! * [`Workload`]: which key comes next and what its value is, functions of a seed.
//! * [`Store`]: what the workload is run on; a new one is a type and a line in a list of [`Kind`]s.
//! * [`backend`]: our back ends as stores.
//! * [`run`]: one configuration, one line of `key=value` pairs.
//! * [`rebuild`]: how long our `indexed` back end takes to open.
//!
//! Other systems are stores in `bench/peers/stores`, which uses this library, so that all do the same work. What is
//! compared with what is chosen by `cargo xtask bench part-state`.

#![deny(unsafe_code)]

#[cfg(feature = "ours")]
pub mod backend;
mod process;
#[cfg(feature = "ours")]
pub mod rebuild;
pub mod run;
mod store;
mod workload;

pub use store::{Kind, Place, Store};
pub use workload::{Operation, Workload};
