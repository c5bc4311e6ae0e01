//! What is typed.

#[cfg(feature = "cluster")]
mod cluster;
#[cfg_attr(not(feature = "sql"), path = "args/no_sql.rs")]
mod sql;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use thalweg_node::drop_query::DropQuery;
use thalweg_node::skip::Skip;

#[cfg(feature = "cluster")]
pub(crate) use cluster::{Advertised, Asked, Cluster, Drain, ExplainUnit, Nodes, Shown};
pub(crate) use sql::Sql;

/// Exact answers about a stream, as of each of its records.
#[derive(Parser)]
#[command(name = "thalweg", version, about, disable_help_subcommand = true, after_help = MORE)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run jobs until their sources end or a signal stops them.
    Run(Run),
    /// Check a job file and print its graph and query plans.
    Check(Check),
    /// Print the plan of a job's queries, its cost and its worst cases.
    Explain(Explain),
    /// Print the JSON Schema of job files.
    Schema,
    /// Write generated records; the same seed gives the same records.
    Gen(Gen),
    /// Query the tables of jobs with SQL.
    Sql(Sql),
    /// Print the files that jobs keep on disk. Nothing is changed, and the job may be running.
    Inspect(Inspect),
    /// Read every byte that jobs keep on disk and check it against its checksums.
    Verify(Verify),
    /// Build lookup tables for joins.
    #[command(subcommand)]
    Table(Table),
    /// List the nodes of a cluster.
    #[cfg(feature = "cluster")]
    Nodes(Nodes),
    /// Look into a cluster.
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(Cluster),
    /// Take all units from a node of a cluster, and give it none from now on.
    #[cfg(feature = "cluster")]
    Drain(Drain),
    /// Print help: on a command, on job files and their types and keys, or a document.
    Help(Help),
    /// Answer the queries of the node that started this process.
    #[command(hide = true, name = WORKER)]
    SqlWorker,
}

const MORE: &str = "`thalweg help topics` lists all help: on commands, on job files with every source, format, operator, sink \
                    and key, and the documents.";

#[derive(clap::Args)]
pub(crate) struct Help {
    /// A command, a type, a key of job files, or a document; two words where one is not enough, as in `source file`.
    #[arg(value_name = "TOPIC")]
    pub(crate) words: Vec<String>,
}

/// What a node calls itself with to have queries run.
pub(crate) const WORKER: &str = "sql-worker";

#[derive(Subcommand)]
pub(crate) enum Table {
    /// Build a lookup table of names by address from CSV files, for `lookup_join`.
    BuildLookup(BuildLookup),
}

#[derive(clap::Args)]
pub(crate) struct BuildLookup {
    /// CSV files, plain or gzip. The last of several rows for one address counts.
    #[arg(value_name = "CSV", required = true)]
    pub(crate) sources: Vec<PathBuf>,
    /// The table to write. An existing one is replaced when the new one is complete.
    #[arg(long, value_name = "TABLE")]
    pub(crate) out: PathBuf,
    /// The character between two cells.
    #[arg(long, default_value = ",")]
    pub(crate) delimiter: String,
    /// The first line names the columns.
    #[arg(long)]
    pub(crate) header: bool,
    /// The column with the address, from 1.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) address_column: usize,
    /// The column with the name, from 1.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) name_column: usize,
    /// How many lines may be unreadable. They are left out, and the first ones are reported.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) max_bad: u64,
    /// Memory for sorting.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = thalweg_types::parse_size)]
    pub(crate) memory: u64,
}

/// What both look at.
const KEPT: &str = "A data directory, a job's folder in it, a journal, order log, commit log, reservoir or state, or a lookup table";

#[derive(clap::Args)]
pub(crate) struct Inspect {
    #[arg(value_name = "PATH", help = KEPT)]
    pub(crate) path: PathBuf,
    /// Print order entries and journal blocks one per line: all, or the records of the log from FROM to before TO.
    #[arg(long, value_name = "FROM..TO", num_args = 0..=1, default_missing_value = "..", value_parser = parse_range)]
    pub(crate) entries: Option<Range<u64>>,
    /// Print journal blocks with their raw bytes.
    #[arg(long)]
    pub(crate) raw: bool,
    /// One JSON object per line, for each thing and each of its entries.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct Verify {
    #[arg(value_name = "PATH", help = KEPT)]
    pub(crate) path: PathBuf,
    /// One JSON object per thing and line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args)]
pub(crate) struct Run {
    /// Job files, YAML or JSON. With --listen there may be none: jobs can come over HTTP.
    #[arg(required_unless_present = "listen", value_name = "JOB")]
    pub(crate) jobs: Vec<PathBuf>,
    /// Folder for state, journals and tables. Without it the job uses a temporary one, which is removed at the end.
    #[arg(long, value_name = "D")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Serve HTTP on this address, or on this port of the loopback. Requests that start, stop or change jobs need the token
    /// in D/admin.token.
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Let job files that come over HTTP read and write files in this folder; may be given several times. Without it they may
    /// name no path. Job files on the command line may name any.
    #[arg(long = "allow-path", value_name = "PATH", requires = "listen")]
    pub(crate) allow_paths: Vec<PathBuf>,
    /// Let job files that come over HTTP refer to the secret in this environment variable; may be given several times.
    #[arg(long = "allow-env", value_name = "NAME", requires = "listen")]
    pub(crate) allow_env: Vec<String>,
    /// Run the jobs on all nodes of a cluster, which meet at these brokers of Kafka: kafka://HOST:PORT,HOST:PORT?replication=3.
    /// Further options are partitions (a power of two) and prefix, with which names of topics begin.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL", requires_all = ["node", "data_dir", "listen"])]
    pub(crate) cluster: Option<thalweg_node::cluster::ClusterAddress>,
    /// The name of this node in its cluster.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub(crate) node: Option<String>,
    /// Where other nodes of the cluster reach this one, if not at the address of --listen: a tunnel, a port forward or a proxy
    /// that leads there and decides who may use it. Nodes send it HTTP, without TLS and without a token.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    pub(crate) advertise: Option<Advertised>,
    /// The machine of this node, if it is not the one whose name the system has: copies of the same state are on different
    /// ones.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "ID", requires = "cluster")]
    pub(crate) host_id: Option<String>,
    /// How much work this node takes, compared with others of its cluster.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "N", requires = "cluster", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) capacity: u32,
    /// Keep snapshots of units in this folder, which all nodes of the cluster share: file:///PATH. A node without a unit's data
    /// takes it from there, and what no snapshot needs is deleted from the topics of stages.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL", requires = "cluster")]
    pub(crate) snapshots: Option<thalweg_node::cluster::StoreAddress>,
    /// Worker threads; as many as there are cores by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,
    /// Replace a value of the job file for this run, such as sources.payments.path=x.csv.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// Print no progress, only the summary.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Skip this record, which stops the job; it is written to rejects.
    #[arg(long = "skip", value_name = "SOURCE@OFFSET")]
    pub(crate) skips: Vec<Skip>,
    /// Delete the state that Redis or HBase has of a job whose data directory knows nothing of it, and begin anew. Without
    /// this such a job does not start: its data directory may be lost, or be another one.
    #[arg(long = "begin-anew", requires = "data_dir")]
    pub(crate) begin_anew: bool,
    /// Start without this query, which stops the job. A query that was added over HTTP is dropped for good, one of the job
    /// file for this run.
    #[arg(long = "drop-query", value_name = "OPERATOR/NAME")]
    pub(crate) dropped: Vec<DropQuery>,
}

#[derive(clap::Args)]
pub(crate) struct JobArgs {
    /// A job file, YAML or JSON.
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,
    /// Replace a value of the job file, such as sources.payments.path=x.csv.
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) overrides: Vec<String>,
}

#[derive(clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Also check whether it can run on the nodes of a cluster with this address, and print how it is cut.
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL")]
    pub(crate) cluster: Option<thalweg_node::cluster::ClusterAddress>,
    /// Also check it against the state in this data directory: whether the job can go on with it, which queries would begin
    /// empty, and which state would be dropped. Nothing is changed, and the job may be running.
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Print this query alone.
    #[arg(value_name = "QUERY")]
    pub(crate) query: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct Gen {
    /// The kind of records: payments, readings or flows.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Seed of the generator.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// How many records.
    #[arg(long, default_value_t = 1000)]
    pub(crate) count: u64,
    /// Only the first fields of each record.
    #[arg(long, value_name = "N")]
    pub(crate) fields: Option<usize>,
    /// Output format: csv or ndjson.
    #[arg(long, default_value = "csv")]
    pub(crate) format: String,
    /// Payments: how many cards there are.
    #[arg(long)]
    pub(crate) cards: Option<u64>,
    /// Payments: how many merchants there are.
    #[arg(long)]
    pub(crate) merchants: Option<u64>,
    /// How uneven cards of payments or pairs of flows are; 0 is even, 1 is Zipf's law.
    #[arg(long)]
    pub(crate) zipf: Option<f64>,
    /// Payments: share of the records that go to one card.
    #[arg(long)]
    pub(crate) hot: Option<f64>,
    /// Event time from one record to the next, such as 4ms; of flows on average.
    #[arg(long, value_parser = thalweg_types::parse_duration)]
    pub(crate) gap: Option<i64>,
    /// Flows: date, or date and time, of the first record.
    #[arg(long, value_parser = parse_start)]
    pub(crate) start: Option<i64>,
    /// Flows: how many switches take samples.
    #[arg(long)]
    pub(crate) agents: Option<u64>,
    /// Flows: how many members the exchange has.
    #[arg(long)]
    pub(crate) members: Option<u64>,
    /// Flows: how many pairs of hosts talk.
    #[arg(long)]
    pub(crate) pairs: Option<u64>,
    /// Flows: how many IPv4 hosts there are.
    #[arg(long)]
    pub(crate) hosts: Option<u64>,
    /// Flows: write the tables of AS, names and members of this seed into a folder, instead of records.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tables: Option<PathBuf>,
}

/// Microseconds since the epoch of a date, or of date and time.
fn parse_start(text: &str) -> Result<i64, String> {
    thalweg_types::parse_timestamp(text)
        .and_then(|nanos| i64::try_from(nanos.div_euclid(1_000)).ok())
        .ok_or_else(|| "expected a date such as 2026-01-01 or 2026-01-01T08:00:00Z".to_owned())
}

/// `127.0.0.1:8080`, `[::]:8080`, or `8080` and `:8080` for the loopback.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text =
        text.strip_prefix("localhost").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1{port}"));
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix(':').unwrap_or(&text).parse::<u16>();
    match port {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => Err("expected an address such as 127.0.0.1:8080, or a port".to_owned()),
    }
}

/// `3..9`, `3..`, `..9`, `..`, or `3` for that one alone.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str, default| if text.is_empty() { Some(default) } else { text.parse::<u64>().ok() };
    let range = match text.split_once("..") {
        Some((from, to)) => number(from, 0).zip(number(to, u64::MAX)),
        None => text.parse().ok().and_then(|one: u64| Some((one, one.checked_add(1)?))),
    };
    match range {
        Some((from, to)) if from <= to => Ok(from..to),
        _ => {
            Err("expected numbers of records such as 3..9, 3.. or 3; PATH comes before --entries".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn ranges_are_open_at_either_end() {
        let all = u64::MAX;
        for (text, expected) in [("3..9", 3..9), ("3..", 3..all), ("..9", 0..9), ("..", 0..all), ("3", 3..4)]
        {
            assert_eq!(parse_range(text).unwrap(), expected, "{text}");
        }
        for text in ["", "9..3", "a..b", "D/jobs", "-1"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_alone_is_on_the_loopback() {
        for (text, expected) in [
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), expected);
        }
        assert!(parse_address("here").is_err());
    }
}
