//! Who talks to whom, by SQL over HTTP, as a user asks it: the queries of Touloupas (2015, section 5.6) over the table of
//! `examples/ixp.yaml`, compared with DuckDB on the same Parquet files.
//!
//! A query of ours counts from its request to the last byte of its reply, with its process, its way and its text; DuckDB is
//! asked within its own process. Answers have to be equal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::exchange::{CORES, Exchange};
use super::report::{Report, Table, count, times};
use super::server::Server;
use super::{duckdb, median, pinned, process};
use thalweg_harness::Tally;
use thalweg_harness::http::Connection;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Small tables, asked twice: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Rows of the tables, one after the other
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 5_000_000])]
    rows: Vec<u64>,
    /// Times that a query is asked at least; the median counts
    #[arg(long, default_value_t = 9)]
    repeat: usize,
    /// Clients that ask at once, in the second table
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    clients: Vec<usize>,
    /// A folder on the disk that tables are read from; the build folder if there is none
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// A query is asked again for so long.
const SECONDS: f64 = 1.0;

/// A day, which all rows are spread over, in microseconds.
const DAY: u64 = 86_400_000_000;

/// A query, what it is called, and what ours answers it from.
struct Query {
    name: &'static str,
    title: &'static str,
    from: &'static str,
    sql: &'static str,
}

const QUERIES: [Query; 5] = [
    Query { name: "count", title: "count(*)", from: "rollup", sql: "SELECT count(*) FROM flows" },
    Query {
        name: "as",
        title: "top 10 AS pairs",
        from: "rollup",
        sql: "SELECT src_asn, dst_asn, sum(packets) AS packets FROM flows GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
    },
    Query {
        name: "hour",
        title: "the same, of one hour",
        from: "rollup",
        sql: "SELECT src_asn, dst_asn, sum(packets) AS packets FROM flows WHERE time >= TIMESTAMP '2026-01-01 12:00:00' AND time < TIMESTAMP '2026-01-01 13:00:00' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
    },
    Query {
        name: "port",
        title: "the same, of port 443",
        from: "rows",
        sql: "SELECT src_asn, dst_asn, sum(packets) AS packets FROM flows WHERE dst_port = 443 GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
    },
    Query {
        name: "names",
        title: "top 10 name pairs",
        from: "rows",
        sql: "SELECT src_name, dst_name, sum(packets) AS packets FROM flows GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
    },
];

/// How it is asked.
#[derive(Clone, Copy)]
struct How {
    clients: usize,
    /// Times that each client asks.
    repeat: usize,
    /// It goes on for so long at least, so that a query of a millisecond is not measured by nine.
    seconds: f64,
}

/// What one query came to.
#[derive(Clone, Debug)]
struct Answer {
    ms: f64,
    slowest: f64,
    rows: u64,
    /// Sum of the last column.
    sum: i128,
}

impl Answer {
    fn must_equal(&self, other: &Self) -> Result<()> {
        ensure!((self.rows, self.sum) == (other.rows, other.sum), "answers differ: {self:?} and {other:?}");
        Ok(())
    }
}

/// A node with the example's table.
struct Stored {
    server: Server,
    /// Paths of the Parquet files with its rows, one a line, for the peer.
    listed: PathBuf,
    /// Rows a second at which the example has filled it, and bytes of a row on the disk.
    rate: f64,
    bytes: f64,
}

impl Stored {
    fn fill(exchange: &Exchange, rows: u64) -> Result<Self> {
        let data_dir = exchange.folder().join("stored");
        let _ = std::fs::remove_dir_all(&data_dir);
        let set =
            [format!("sources.switches.count={rows}"), format!("sources.switches.gap={}us", DAY / rows)];
        let mut command = exchange.command("ixp.yaml", &set);
        command.arg("--data-dir").arg(&data_dir);
        let figures = process::run(command)?.figures("rate")?;
        ensure!(figures.number("answers")? == rows as f64, "not {rows} rows but {figures:?} came out");

        let mut files = Vec::new();
        find_rows(&data_dir, &mut files)?;
        let mut paths = String::new();
        let mut bytes = 0;
        for file in &files {
            writeln!(paths, "{}", file.display())?;
            bytes += std::fs::metadata(file)?.len();
        }
        let listed = exchange.folder().join("files");
        std::fs::write(&listed, paths).context("list the files")?;

        // The example ends with its samples: a door for more keeps the node.
        let door = [
            "sources.door={type: http, schema: {n: int64}}".to_owned(),
            "sinks.door={type: \"null\", input: door}".to_owned(),
        ];
        let command = exchange.command("ixp.yaml", &[&set[..], &door[..]].concat());
        let server = Server::start_command_in(exchange.folder(), command, &data_dir)?;
        Ok(Self { server, listed, rate: figures.number("rate")?, bytes: bytes as f64 / rows as f64 })
    }

    fn ours(&self, query: &Query, how: How) -> Result<Answer> {
        let client = || -> Result<Vec<(f64, u64, i128)>> {
            let mut connection = Connection::open(self.server.address())?;
            let mut runs = Vec::new();
            let mut begun = Instant::now();
            // The first one does not count.
            let mut is_warm = false;
            while runs.len() < how.repeat || begun.elapsed().as_secs_f64() < how.seconds {
                let asked = Instant::now();
                let (status, body) = connection.post("/v1/sql?format=csv", &[query.sql.as_bytes()])?;
                let took = asked.elapsed();
                let text = String::from_utf8_lossy(body);
                if status == 429 {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                ensure!(status == 200, "{} was answered {status}: {text}", query.sql);
                let (rows, sum) = rows_and_sum(&text)?;
                if is_warm {
                    runs.push((took.as_secs_f64() * 1e3, rows, sum));
                } else {
                    (is_warm, begun) = (true, Instant::now());
                }
            }
            Ok(runs)
        };
        let runs: Vec<Result<_>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..how.clients).map(|_| scope.spawn(client)).collect();
            clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect()
        });
        let runs = runs.into_iter().collect::<Result<Vec<_>>>()?.concat();
        let (_, rows, sum) = *runs.first().context("no run was asked for")?;
        ensure!(
            runs.iter().all(|run| (run.1, run.2) == (rows, sum)),
            "{} gave different answers",
            query.name
        );
        let times: Vec<f64> = runs.iter().map(|run| run.0).collect();
        let slowest = times.iter().copied().fold(0.0, f64::max);
        Ok(Answer { ms: median(times), slowest, rows, sum })
    }

    fn duckdb(&self, queries: &[Query], how: How) -> Result<Vec<Answer>> {
        let mut command = pinned(Some(CORES), &duckdb::python()?);
        command.arg(duckdb::scripts().join("topn.py")).arg("--files").arg(&self.listed);
        command.args(["--threads", "2", "--repeat", &how.repeat.to_string()]);
        command.args(["--clients", &how.clients.to_string(), "--seconds", &how.seconds.to_string()]);
        command.args(queries.iter().map(|query| format!("{}={}", query.name, query.sql)));
        let finished = process::run(command)?;
        let answer = |query: &Query| {
            let line = finished.figures_where("query", query.name)?;
            Ok(Answer {
                ms: line.number("median_ms")?,
                slowest: line.number("most_ms")?,
                rows: line.text("rows")?.parse().context("rows")?,
                sum: line.text("answer")?.parse().context("answer")?,
            })
        };
        queries.iter().map(answer).collect()
    }
}

/// Parquet files of rows, not of rollups.
fn find_rows(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let kind = path.parent().and_then(Path::parent).and_then(Path::file_name);
        if path.is_dir() {
            find_rows(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "parquet")
            && kind.is_some_and(|kind| kind == "rows")
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// Of a CSV answer whose last column has whole numbers.
fn rows_and_sum(text: &str) -> Result<(u64, i128)> {
    let mut rows = 0;
    let mut sum = 0;
    for line in text.lines().skip(1) {
        let last = line.rsplit(',').next().unwrap_or_default();
        sum += last.parse::<i128>().with_context(|| format!("no number at the end of {line:?}"))?;
        rows += 1;
    }
    Ok((rows, sum))
}

fn milliseconds(ms: f64) -> String {
    match ms {
        100.0.. => format!("{ms:.0} ms"),
        10.0.. => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = options.dir.clone().map_or_else(|| project::scratch("bench-topn"), Ok)?;
    let exchange = Exchange::make(&project::thalweg(Profile::Release)?, &folder)?;
    let mut report = Report::new("topn", "Who talks to whom, by SQL");
    report.say("The table of `examples/ixp.yaml`, a day whatever its rows, with its three rollups. Ours is asked by HTTP (`POST /v1/sql`, CSV) on a node that runs the job, from the request to the last byte; DuckDB is asked in its own process, with two threads, over the Parquet files of the rows. Medians.");
    let (repeat, seconds) = if options.quick { (2, 0.0) } else { (options.repeat.max(1), SECONDS) };
    let mut whole = Table::new(["query", "rows", "ours", "from", "DuckDB, rows", "ours of DuckDB's"]);
    let mut filled = Table::new(["rows", "filled at", "bytes a row"]);
    let mut several =
        Table::new(["clients and query", "ours", "slowest", "DuckDB, rows", "slowest", "ours of DuckDB's"]);
    let mut skipped = None;
    for (place, rows) in options.rows.iter().enumerate() {
        let rows = if options.quick { rows / 100 } else { *rows };
        let stored = Stored::fill(&exchange, rows)?;
        let ratio = |ours: &Answer, theirs: Option<&Answer>| {
            theirs.map_or("–".to_owned(), |theirs| times(ours.ms / theirs.ms))
        };
        let print = |theirs: Option<&Answer>, figure: fn(&Answer) -> f64| {
            theirs.map_or("–".to_owned(), |theirs| milliseconds(figure(theirs)))
        };
        let how = How { clients: 1, repeat, seconds };
        let theirs = stored.duckdb(&QUERIES, how).map_err(|reason| skipped = Some(reason)).ok();
        for (at, query) in QUERIES.iter().enumerate() {
            let ours = stored.ours(query, how)?;
            let theirs = theirs.as_ref().map(|answers| &answers[at]);
            theirs.map_or(Ok(()), |theirs| ours.must_equal(theirs))?;
            whole.row([
                query.title.to_owned(),
                count(rows as f64),
                milliseconds(ours.ms),
                query.from.to_owned(),
                print(theirs, |answer| answer.ms),
                ratio(&ours, theirs),
            ]);
        }
        filled.row([count(rows as f64), format!("{}/s", count(stored.rate)), format!("{:.1}", stored.bytes)]);
        if place + 1 == options.rows.len() {
            for clients in &options.clients {
                let how = How { clients: *clients, repeat, seconds: 0.0 };
                for query in [&QUERIES[1], &QUERIES[3]] {
                    let ours = stored.ours(query, how)?;
                    let theirs =
                        stored.duckdb(std::slice::from_ref(query), how).ok().and_then(|mut all| all.pop());
                    several.row([
                        format!("{clients}, {}", query.title),
                        milliseconds(ours.ms),
                        milliseconds(ours.slowest),
                        print(theirs.as_ref(), |answer| answer.ms),
                        print(theirs.as_ref(), |answer| answer.slowest),
                        ratio(&ours, theirs.as_ref()),
                    ]);
                }
            }
        }
        stored.server.stop()?;
    }
    report.heading("By size of the table");
    report.table(&whole);
    report.table(&filled);
    report.heading("Several at once");
    report.say("Each client asks again as soon as it has its answer, of the largest table. Ours lets some queries run at once, the others wait.");
    report.table(&several);
    if let Some(reason) = skipped {
        report.say(&format!("Skipped: DuckDB: {reason:#}."));
    }
    report.finish(options.quick)
}

/// The benchmark in tiny: rollups and rows give the same answers. (With DuckDB every run of the benchmark compares.)
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let rows = 20_000;
    let exchange = Exchange::make(&project::thalweg(Profile::Dev)?, &project::scratch("bench-topn")?)?;
    let stored = Stored::fill(&exchange, rows)?;
    let how = How { clients: 2, repeat: 2, seconds: 0.01 };
    let outcome = stored.ours(&QUERIES[0], how).and_then(|answer| {
        ensure!(answer.sum == i128::from(rows), "{} rows instead of {rows}", answer.sum);
        Ok(())
    });
    tally.check("topn: the node has all rows of the example", outcome);
    // A condition on a column that no rollup has is answered from rows.
    let from_rows = Query {
        sql: "SELECT src_asn, dst_asn, sum(packets) AS packets FROM flows WHERE frame_length >= 0 GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10",
        ..QUERIES[4]
    };
    let outcome =
        stored.ours(&QUERIES[1], how).and_then(|rollup| rollup.must_equal(&stored.ours(&from_rows, how)?));
    tally.check("topn: rollups and rows agree", outcome);
    stored.server.stop()
}

#[test]
fn an_answer_is_its_rows_and_the_sum_of_its_last_column() {
    assert_eq!(rows_and_sum("a,b\n1,20\n2,22\n").unwrap(), (2, 42));
    assert!(rows_and_sum("a\nx\n").is_err());
}
