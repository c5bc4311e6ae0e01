//! One file for each decoder.

pub mod chunk;
pub mod cluster_frame;
pub mod csv;
pub mod data_directory;
pub mod expression;
pub mod frame;
pub mod hbase_answer;
pub mod http;
pub mod job_file;
pub mod line_protocol;
pub mod log;
pub mod ndjson;
pub mod query;
mod records;
pub mod redis_answer;
pub mod sflow;
pub mod sql;
pub mod stored_state;
pub mod window;
