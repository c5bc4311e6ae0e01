//! `sql`: a query over the tables of a data directory, or of a running node; and the processes that queries run in.

use std::io::{ErrorKind, Read, Write, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_node::tables::CommittedTables;
use thalweg_sql::{Addresses, Compression, Format, Limits, Sql as Queries};
use thalweg_table::Catalog;
use thalweg_types::Error;

use crate::Outcome;
use crate::args::Sql;
use crate::client;
use crate::output::{Failure, with_hint};

pub(crate) fn sql(args: &Sql) -> Outcome {
    let text = match args.statement.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::Usage(format!("error: read the query from standard input: {error}")))?,
        text => text.to_owned(),
    };
    let format = format(args)?;
    match (&args.data_dir, &args.server) {
        (Some(data_dir), None) => of_directory(args, format, data_dir, &text),
        (None, Some(node)) => of_node(args, node, &text),
        // clap asks for one of them.
        _ => Err(Failure::Usage("error: expected --data-dir or --server".to_owned())),
    }
}

fn format(args: &Sql) -> Result<Format, Failure> {
    // clap takes no other names.
    match Format::named(&args.format).unwrap_or(Format::Table) {
        Format::Arrow(mut how) => {
            how.compression = args.compression.as_deref().and_then(Compression::named).unwrap_or_default();
            how.addresses = args.addresses.as_deref().and_then(Addresses::named).unwrap_or_default();
            Ok(Format::Arrow(how))
        }
        _ if args.compression.is_some() || args.addresses.is_some() => {
            Err(Failure::Usage("error: --compression and --addresses need --format arrow".to_owned()))
        }
        other => Ok(other),
    }
}

fn of_directory(args: &Sql, format: Format, data_dir: &Path, text: &str) -> Outcome {
    let failed = |error: Error| Failure::at_start(&error);
    let tables = CommittedTables::open(data_dir).map_err(failed)?;
    let limits = Limits {
        memory: args.memory,
        time: Duration::from_micros(args.timeout.unsigned_abs()),
        // Nothing else runs here that a query could hold up.
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        queries: 1,
        ..Limits::default()
    };
    let queries = over(Arc::new(tables), limits, false).map_err(failed)?;
    for bytes in queries.ask_blocking(text, format).map_err(failed)?.blocking() {
        stdout().lock().write_all(&bytes.map_err(failed)?)?;
    }
    Ok(stdout().lock().flush()?)
}

/// Queries over tables, in processes of their own. `is_node`: they come at any time, and several at once.
///
/// # Errors
/// If the system gives no threads.
#[cfg(target_os = "linux")]
pub(crate) fn over(tables: Arc<dyn Catalog>, limits: Limits, is_node: bool) -> Result<Queries, Error> {
    use thalweg_sql::{Program, Setup, Workers};
    let program = Program::this(&[crate::args::WORKER]);
    Workers::start(tables, Setup { program, limits, is_node }).map(Queries::from)
}

/// As on Linux, in this process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn over(tables: Arc<dyn Catalog>, limits: Limits, _: bool) -> Result<Queries, Error> {
    thalweg_sql::Engine::new(tables, limits).map(Queries::from)
}

/// The process that a query runs in.
#[cfg(target_os = "linux")]
pub(crate) fn work() -> Outcome {
    thalweg_sql::worker::run().map_err(|error| Failure::at_start(&error))
}

/// As on Linux, where there are such processes.
#[cfg(not(target_os = "linux"))]
pub(crate) fn work() -> Outcome {
    Err(Failure::Usage("error: queries run in no process of their own on this system".to_owned()))
}

fn of_node(args: &Sql, node: &str, text: &str) -> Outcome {
    let mut url = format!("{}/v1/sql?format={}", client::address(node), args.format);
    for (name, value) in [("compression", &args.compression), ("addresses", &args.addresses)] {
        if let Some(value) = value {
            url += &format!("&{name}={value}");
        }
    }
    let request = client::client(None)?.post(&url).header("content-type", "text/plain");
    let mut response = request.body(text.to_owned()).send().map_err(client::unreached)?;
    let status = response.status();
    if !status.is_success() {
        let body = response.text().unwrap_or_default();
        return Err(client::refused(status.as_u16(), &body));
    }
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = match response.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => {
                let hint = "it failed while its rows were sent; ask again";
                return Err(Failure::Run(with_hint("the node broke the reply off", Some(hint))));
            }
        };
        stdout().lock().write_all(&bytes[..count])?;
    }
    Ok(stdout().lock().flush()?)
}
