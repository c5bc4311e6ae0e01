//! What is typed after `thalweg sql`.

use std::path::PathBuf;

use thalweg_sql::{Addresses, Compression, Format};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("where").required(true).args(["data_dir", "server"])))]
pub(crate) struct Sql {
    /// One statement that reads: SELECT, WITH, SHOW TABLES, DESCRIBE, EXPLAIN; - reads it from standard input.
    #[arg(value_name = "STATEMENT")]
    pub(crate) statement: String,
    /// A data directory: rows that are committed; jobs may be running on it.
    #[arg(long, value_name = "D")]
    pub(crate) data_dir: Option<PathBuf>,
    /// A running node, such as http://127.0.0.1:8080: rows that are not committed yet, too.
    #[arg(long, visible_alias = "node", value_name = "URL")]
    pub(crate) server: Option<String>,
    /// How rows are written.
    #[arg(long, default_value = "table", value_parser = Format::ALL.map(|(name, _)| name))]
    pub(crate) format: String,
    /// Of --format arrow: compression of the buffers.
    #[arg(long, value_parser = Compression::ALL.map(|(name, _)| name))]
    pub(crate) compression: Option<String>,
    /// Of --format arrow: the type of addresses, 16 bytes by default.
    #[arg(long, value_parser = Addresses::ALL.map(|(name, _)| name))]
    pub(crate) addresses: Option<String>,
    /// Memory for sorting, grouping and joining; a node has its own limit.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = thalweg_types::parse_size)]
    pub(crate) memory: u64,
    /// How long the query may take; a node has its own limit.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = thalweg_types::parse_duration)]
    pub(crate) timeout: i64,
}
