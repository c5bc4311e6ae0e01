//! From a datagram that is sent to its rows in an answer of SQL, through `examples/ixp.yaml`: three joins, a table with
//! three rollups, a data directory and commits.
//!
//! The sender keeps a schedule, and a datagram's time counts from when it was meant to be sent: a sender or a collector that
//! falls behind is charged for every wait (coordinated omission). Meanwhile one connection asks for the newest datagram
//! again and again; a datagram is seen with the first answer that is not below its number. Rows enter a table in the order of
//! arrival, so a reader that sees a number sees all before it, but for those that were lost, which are counted in the
//! end.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::exchange::Exchange;
use super::figures::Figures;
use super::process;
use super::report::{Report, Table, count, cpu_per_record};
use super::server::Server;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use thalweg_harness::Tally;
use thalweg_harness::http::Connection;
use thalweg_harness::project::{self, Profile};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A few seconds of each: shows that everything works
    #[arg(long)]
    quick: bool,
    /// Samples per second
    #[arg(long, value_delimiter = ',', default_values_t = [2_800, 100_000])]
    rates: Vec<u32>,
    /// Seconds of each rate
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

/// What is asked, in milliseconds.
const ASKED_P50: u64 = 250;
const ASKED_P99: u64 = 1_000;

/// The mean that Touloupas (2015) measured at 2.8 k samples a second, in milliseconds.
const SEED_MEAN: u64 = 1_161;

/// Samples of a datagram.
const SAMPLES: u64 = thalweg_bench_sflow::SAMPLES as u64;

/// Between an answer and the next query.
const PAUSE: Duration = Duration::from_millis(10);

/// A datagram that is not seen so long after the last one was sent is lost.
const GRACE: Duration = Duration::from_secs(5);

/// How far a sender may be from the rate that it was asked for.
const NEAR: f64 = 0.01;

const NEWEST: &str = "SELECT max(datagram) FROM flows WHERE time >= now() - INTERVAL '10 seconds'";

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut report = Report::new("freshness", "From a datagram to an answer of SQL");
    report.say(&format!(
        "`examples/ixp.yaml` with datagrams of {SAMPLES} samples over UDP, joined with networks, names and members, into a table with three rollups that commits every second, on a node that is asked every {} ms by HTTP: `{NEWEST}`. The table has one more column, for the number of the datagram.",
        PAUSE.as_millis()
    ));
    report.say("Times count from the intended time of sending to the end of the first answer that has the datagram; sender, node and client share the machine.");
    let bench = Bench::new(Profile::Release)?;
    let seconds = if options.quick { 3 } else { options.seconds };
    let mut table = Table::new([
        "samples/s",
        "sent",
        "lost",
        "mean",
        "p50",
        "p90",
        "p99",
        "max",
        "query p50",
        "query p99",
        "CPU a sample",
    ]);
    let mut late = Vec::new();
    for rate in &options.rates {
        let run = bench.run(*rate, f64::from(seconds))?;
        let (ages, queries) = (run.ages(), run.queries());
        let age = |quantile| milliseconds(ages.value_at_quantile(quantile));
        let query = |quantile| milliseconds(queries.value_at_quantile(quantile));
        let mean = milliseconds(ages.mean() as u64);
        table.row([
            count(f64::from(*rate)),
            count(run.schedule.datagrams as f64),
            run.lost.to_string(),
            mean,
            age(0.5),
            age(0.9),
            age(0.99),
            milliseconds(ages.max()),
            query(0.5),
            query(0.99),
            cpu_per_record(run.cpu, (run.schedule.datagrams * SAMPLES) as f64),
        ]);
        if (run.sent_rate / f64::from(*rate) - 1.0).abs() > NEAR {
            late.push(format!(
                "The sender came to {} samples a second instead of {rate}.",
                count(run.sent_rate)
            ));
        }
    }
    let none = || "–".to_owned();
    let asked = |limit| format!("< {limit} ms");
    table.row([
        "asked at 100 k".to_owned(),
        none(),
        none(),
        none(),
        asked(ASKED_P50),
        none(),
        asked(ASKED_P99),
        none(),
        none(),
        none(),
        none(),
    ]);
    report.table(&table);
    report.say(&format!("Touloupas (2015) measured {SEED_MEAN} ms on average at 2.8 k samples a second."));
    report.say("`sent` and `lost` are datagrams. CPU is that of the node, without the processes that answer queries.");
    late.iter().for_each(|line| report.say(line));
    report.finish(options.quick)
}

/// A short run: every datagram is seen, and none before it was sent.
pub(crate) fn smoke(tally: &mut Tally) -> Result<()> {
    let outcome = Bench::new(Profile::Dev)?.run(2_000, 1.0).and_then(|run| {
        let ages = run.ages();
        ensure!(run.lost == 0, "{} of {} datagrams were lost", run.lost, run.schedule.datagrams);
        ensure!(ages.len() == run.schedule.datagrams, "{} datagrams were seen", ages.len());
        ensure!(ages.min() > 0, "a datagram was seen before it was sent");
        Ok(())
    });
    tally.check("freshness: every datagram is seen by SQL, and none before it is sent", outcome);
    Ok(())
}

struct Bench {
    sender: PathBuf,
    exchange: Exchange,
}

impl Bench {
    fn new(profile: Profile) -> Result<Self> {
        let thalweg = project::thalweg(profile)?;
        let sender = project::build("thalweg-bench-sflow", "sflow", profile)?;
        let exchange = Exchange::make(&thalweg, &project::scratch("bench-freshness")?)?;
        Ok(Self { sender, exchange })
    }

    /// Sends at a rate, and asks meanwhile.
    fn run(&self, rate: u32, seconds: f64) -> Result<Run> {
        let udp = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
        let server = Server::start_command(self.exchange.folder(), self.exchange.listening(udp)?)?;
        let before = server.counters()?;
        let mut asking = Asking::new(server.address())?;
        // The first query reads nothing, and takes longer than any other.
        asking.ask(NEWEST)?;
        let sending = send(&self.sender, udp, rate, seconds);
        let mut answers = Vec::new();
        while !sending.is_finished() {
            answers.push(asking.newest()?);
            thread::sleep(PAUSE);
        }
        let sent = sending.join().expect("sending does not panic")?;
        let schedule = Schedule::of(&sent, rate)?;
        let until = Instant::now() + GRACE;
        while answers.last().is_none_or(|answer| answer.newest < schedule.last()) && Instant::now() < until {
            answers.push(asking.newest()?);
            thread::sleep(PAUSE);
        }
        let arrived =
            asking.ask("SELECT count(DISTINCT datagram) FROM flows")?.context("a count has a row")?;
        let cpu = server.counters()?.since(&before).cpu;
        server.stop()?;
        let lost = schedule.datagrams.saturating_sub(arrived);
        Ok(Run { schedule, answers, lost, sent_rate: sent.number("rate")?, cpu })
    }
}

/// Starts the sender; what it says at its end.
fn send(sender: &Path, to: SocketAddr, rate: u32, seconds: f64) -> thread::JoinHandle<Result<Figures>> {
    let mut command = Command::new(sender);
    command.args(["--to", &to.to_string(), "--rate", &rate.to_string(), "--seconds", &seconds.to_string()]);
    thread::spawn(move || process::run(command)?.figures("begun"))
}

/// When datagrams were meant to be sent.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    /// Microseconds since 1970.
    begun: u64,
    datagrams: u64,
    rate: u32,
}

impl Schedule {
    fn of(sent: &Figures, rate: u32) -> Result<Self> {
        let begun = sent.text("begun")?.parse().context("begun is a time")?;
        Ok(Self { begun, datagrams: sent.number("datagrams")? as u64, rate })
    }

    fn last(&self) -> Option<u64> {
        self.datagrams.checked_sub(1)
    }

    /// The intended time of sending: when the samples before it have taken their time.
    fn due(&self, datagram: u64) -> u64 {
        self.begun + datagram * SAMPLES * 1_000_000 / u64::from(self.rate)
    }
}

/// One answer to [`NEWEST`].
#[derive(Clone, Copy, Debug)]
struct Answer {
    newest: Option<u64>,
    /// Microseconds since 1970.
    at: u64,
    took: Duration,
}

/// What came of one rate.
struct Run {
    schedule: Schedule,
    answers: Vec<Answer>,
    lost: u64,
    sent_rate: f64,
    /// Processor time of the node, but for the processes that answer queries.
    cpu: Duration,
}

impl Run {
    /// How old each datagram was when it was seen, in microseconds; those that never were count as lost alone.
    fn ages(&self) -> Histogram<u64> {
        let mut ages = histogram();
        let mut datagrams = (0..self.schedule.datagrams).peekable();
        for answer in &self.answers {
            while let Some(datagram) = datagrams.next_if(|datagram| answer.newest >= Some(*datagram)) {
                ages.saturating_record(answer.at.saturating_sub(self.schedule.due(datagram)));
            }
        }
        ages
    }

    /// How long answers took, in microseconds.
    fn queries(&self) -> Histogram<u64> {
        let mut times = histogram();
        for answer in &self.answers {
            times.saturating_record(answer.took.as_micros() as u64);
        }
        times
    }
}

/// Of microseconds, up to ten minutes.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("the bounds are in order")
}

/// The connection that asks.
struct Asking(Connection);

impl Asking {
    fn new(address: SocketAddr) -> Result<Self> {
        Connection::open(address).map(Self)
    }

    /// The only value of an answer; `None` where it is null.
    fn ask(&mut self, sql: &str) -> Result<Option<u64>> {
        let (status, body) = self.0.post("/v1/sql?format=csv", &[sql.as_bytes()])?;
        let text = String::from_utf8_lossy(body);
        ensure!(status == 200, "{sql} was answered {status}: {text}");
        let value = text.lines().nth(1).unwrap_or_default();
        if value.is_empty() {
            return Ok(None);
        }
        value.parse().map(Some).with_context(|| format!("{sql} was answered {text:?}"))
    }

    fn newest(&mut self) -> Result<Answer> {
        let asked = Instant::now();
        let newest = self.ask(NEWEST)?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        Ok(Answer { newest, at, took: asked.elapsed() })
    }
}

fn milliseconds(micros: u64) -> String {
    format!("{:.0} ms", micros as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_as_old_as_the_first_answer_that_has_it() {
        let answer = |newest, at| Answer { newest, at, took: Duration::ZERO };
        let run = Run {
            // A datagram every ten milliseconds.
            schedule: Schedule { begun: 1_000_000, datagrams: 4, rate: 700 },
            answers: vec![
                answer(None, 1_005_000),
                answer(Some(0), 1_015_000),
                answer(Some(2), 1_050_000),
                answer(Some(2), 1_070_000),
            ],
            lost: 1,
            sent_rate: 700.0,
            cpu: Duration::ZERO,
        };
        let ages = run.ages();
        let seen: Vec<u64> = ages.iter_recorded().map(|step| step.value_iterated_to() / 1_000).collect();
        assert_eq!(seen, [15, 30, 40], "the last one was never seen");
    }
}
