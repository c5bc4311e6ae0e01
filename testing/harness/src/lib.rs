//! What the programs that test the whole of Thalweg share: `thalweg-crash`, `thalweg-hostile`, `thalweg-bench` and `xtask`.
//!
//! * [`project`]: folders of the repository, and how its programs are built.
//! * [`process`]: signals to groups of processes, and children that end with their parent; [`serving`]: a node in one;
//!   [`port`]: where such a process listens.
//! * [`http`]: a client with one connection; [`service`]: databases that tests talk to; [`way`]: connections that can be cut.
//! * [`random`]: decisions from a seed.
//! * [`Tally`]: what a suite came to; [`libtest`]: the same of `cargo test`.

pub mod http;
pub mod libtest;
pub mod port;
pub mod process;
pub mod project;
pub mod random;
pub mod service;
pub mod serving;
mod tally;
pub mod way;

pub use self::tally::Tally;
