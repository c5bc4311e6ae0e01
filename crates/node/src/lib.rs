//! Reads job files, builds their graphs and runs them.
//!
//! A job file goes through three steps, each of which can be used alone:
//! [`JobFile::read`] makes a tree with places of it, [`JobFile::check`] makes a [`CheckedJob`] or all its
//! mistakes as [`Diagnostics`], and [`Node::start`] runs it.
//!
//! * [`job_file`]: text to tree, `--set`, the key tables, the checks, the JSON Schema.
//! * [`operator`]: the traits of an operator of a job file, and the ones that come with this build.
//! * [`backends`]: where the tasks of a job keep their state.
//! * [`continuing`]: which queries go on with it, and which begin empty.
//! * [`cluster_view`]: a cluster, as one of its nodes sees it.
//! * [`queries`]: queries of operators, which come and go while a job runs.
//! * [`inspect`]: looks into the files of jobs on disk and checks them.
//! * [`mod@reference`]: all of it in Markdown, for `docs/jobs.md` and `thalweg help`.
//! * [`node`]: many jobs in one process, their data directories and summaries.

pub mod backends;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod cluster_view;
pub mod continuing;
pub mod data_dir;
pub mod describe;
pub mod diagnostic;
pub mod drop_query;
mod durable;
mod graph;
pub mod inspect;
pub mod job_file;
pub mod left_out;
pub mod memory;
mod node;
pub mod operator;
mod overlaps;
pub mod queries;
pub mod reference;
mod remote;
pub mod skip;
mod starting;
#[cfg(feature = "tables")]
pub mod tables;

pub use diagnostic::{Diagnostic, Diagnostics};
pub use durable::CycleFigures;
pub use graph::{Role, probe};
pub use job_file::{CheckOptions, CheckedJob, JobFile, json_schema};
pub use left_out::LeftOut;
pub use node::{JobEnd, Node, NodeOptions, RunningJob, Summary};
pub use operator::Operators;
pub use overlaps::{Overlap, overlaps};
pub use remote::Kind as StoreKind;
