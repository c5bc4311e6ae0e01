//! SQL over the tables of jobs.
//!
//! [`Sql`] is what a node has: where it can (Linux), queries run in processes of their own ([`Workers`]), each with an
//! [`Engine`]; elsewhere, and in tests, in this one.
//!
//! [`Engine`] runs queries over the tables of a [`Catalog`](thalweg_table::Catalog), on threads of its own. The life of
//! a query: `statement` lets only reading statements pass; `admission` gives it one of the places; `session` plans it
//! over one snapshot per table (`names`, `stored`), with the functions, views and rules of this crate; `run` carries
//! its batches to a [`Reply`] through a short queue; [`output`] makes bytes of them.
//!
//! Invariants
//! * Nothing here writes, and no statement that would is planned.
//! * A query sees one snapshot of each table, taken when it first names it, and holds it to its end.
//! * No text of SQL ends, blocks or bloats a process that has [`Workers`].
//! * Queries that run, queries that wait, their memory, their time and the rows that wait for a reader are bounded.
//! * An answer from a rollup is the answer that the rows would give, to the bit (`rollup`).
//!
//! Not here: the files of rows and the maker of rollups (`thalweg-table`), SQL over streams (`thalweg-window`).

#![deny(unsafe_code)]

mod admission;
mod bounds;
#[cfg(target_os = "linux")]
mod cached;
mod elsewhere;
mod engine;
mod fault;
mod function;
mod interrupt;
mod limits;
mod names;
pub mod output;
mod percentile;
mod pieces;
mod reply;
mod rollup;
mod run;
mod service;
mod session;
mod shown;
mod statement;
mod stored;
mod table_function;
mod tally;
mod verified;
mod view;
mod whole;
#[cfg(target_os = "linux")]
mod wire;
#[cfg(target_os = "linux")]
pub mod worker;
#[cfg(target_os = "linux")]
mod workers;

pub use elsewhere::PARTITIONS;
pub use engine::Engine;
pub use limits::{Exceeded, Limits};
pub use output::{Addresses, Arrow, Chunks, Compression, Format, write};
pub use reply::Reply;
pub use service::Sql;
pub use statement::check;
#[cfg(target_os = "linux")]
pub use workers::{Counts, Program, Setup, Stopped, Workers};
