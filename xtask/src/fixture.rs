//! `cargo xtask fixture NAME`: writes `fixtures/NAME`, data directories as the program of today writes them.
//!
//! A job that has everything in it is fed over HTTP and killed between two commits; what it leaves is packed, for each
//! back end that keeps its state in the data directory. `THALWEG_BINARY` names a program of another day.
//! The tests of the program go on from there (`crates/cli/tests/it/formats.rs`).

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use thalweg_harness::http::Connection;
use thalweg_harness::port;
use thalweg_harness::project::{self, Profile};
use thalweg_harness::serving::Serving;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder below `fixtures` that is made
    name: String,
}

/// Back ends, and the turns that are sent before the kill: two tasks seal chunks of 4,096 rows, and a file per key is
/// slow. State in a store on another machine is not in the folder.
const BACK_ENDS: [(&str, u64); 2] = [("indexed", 30), ("files", 5)];

/// Turns that are left for after it.
const AFTER: u64 = 3;

/// Records of a request to each source.
const PAYMENTS: u64 = 320;
const TICKS: u64 = 45;

/// Requests that are sent after the last commit.
const UNCOMMITTED: usize = 3;

/// No start and no commit takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let binary = project::thalweg(Profile::Dev)?;
    let folder = project::root().join("fixtures").join(&options.name);
    ensure!(!folder.exists(), "{} is there already: fixtures are never written again", folder.display());
    std::fs::create_dir_all(&folder)?;
    std::fs::copy(project::root().join("fixtures/job.yaml"), folder.join("job.yaml"))?;
    let most = BACK_ENDS.iter().map(|(_, before)| before + AFTER).max().unwrap_or_default();
    let requests: Vec<Value> = (0..most).flat_map(requests).collect();
    let mut lines = String::new();
    for request in &requests {
        writeln!(
            lines,
            "# {}\n{}",
            request["source"].as_str().unwrap_or_default(),
            records(request).trim_end()
        )?;
    }
    std::fs::write(folder.join("requests.txt"), lines)?;
    pack(&folder, "requests.txt.gz", &["gzip", "-9", "requests.txt"])?;
    let mut sent = json!({});
    for (back_end, turns) in BACK_ENDS {
        let (before, all) = (2 * turns as usize, 2 * (turns + AFTER) as usize);
        let added = (before - UNCOMMITTED) / 2;
        sent[back_end] = json!({ "before": before, "query_added": added, "all": all });
        let work = tempfile::tempdir().context("make a folder")?;
        leave(&binary, work.path(), &folder.join("job.yaml"), back_end, &requests[..before])?;
        let archive = folder.join(format!("{back_end}.tar.gz"));
        let archive = archive.to_string_lossy();
        pack(
            work.path(),
            &archive,
            &["tar", "--owner=0", "--group=0", "--numeric-owner", "-czf", &archive, "D", "out"],
        )?;
    }
    std::fs::write(folder.join("requests.json"), format!("{sent:#}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn pack(folder: &Path, what: &str, command: &[&str]) -> Result<()> {
    let status = Command::new(command[0]).args(&command[1..]).current_dir(folder).status();
    ensure!(status.context("start a packer")?.success(), "{what} was not packed");
    Ok(())
}

/// The requests of one turn.
fn requests(turn: u64) -> [Value; 2] {
    let payments: Vec<Value> = (turn * PAYMENTS..(turn + 1) * PAYMENTS).map(payment).collect();
    let ticks: Vec<Value> = (turn * TICKS..(turn + 1) * TICKS).map(tick).collect();
    [json!({ "source": "payments", "records": payments }), json!({ "source": "ticks", "records": ticks })]
}

const BEGIN: u64 = 1_700_000_000_000;

/// One of fifty has the id of an earlier one, some are out of order, one of 500 is late, and one of 999 does not fit.
fn payment(number: u64) -> Value {
    let cents = (number * 7_919 % 20_000) as i64 - 500;
    let late = if number % 500 == 499 { 300_000 } else { number % 7 * 900 };
    let id = if number.is_multiple_of(50) { number.saturating_sub(3) } else { number };
    let from = match number % 4 {
        0 => format!("2001:db8::{:x}", number % 65_536),
        _ => format!("192.0.2.{}", number % 256),
    };
    let cents = if number % 999 == 998 { json!("many") } else { json!(cents) };
    json!({
        "ts": BEGIN + number * 700 - late, "tx": format!("t{id}"), "card": format!("c{}", number * 7 % 23),
        "merchant": format!("m{}", number * number % 11), "cents": cents,
        "amount": (number * 7_919 % 20_000) as f64 / 100.0 - 5.0 + (number % 3) as f64 * 1e-9,
        "fee": format!("{}.{:02}", number % 97, number % 100), "from": from,
        "note": number.is_multiple_of(5).then(|| format!("n\u{e4}{number}")),
    })
}

fn tick(number: u64) -> Value {
    json!({ "ts": BEGIN + number * 5_000, "card": format!("c{}", number % 23), "level": number })
}

/// Runs the job into a kill.
fn leave(binary: &Path, folder: &Path, job: &Path, back_end: &str, requests: &[Value]) -> Result<()> {
    std::fs::create_dir(folder.join("out"))?;
    let mut node = start(binary, folder, job, back_end)?;
    let mut connection = Connection::open(node.address())?;
    // A program that knows no token has none.
    if folder.join("D/admin.token").exists() {
        connection = connection.with_token_of(&folder.join("D"))?;
    }
    let (before, last) = requests.split_at(requests.len() - UNCOMMITTED);
    for (number, request) in before.iter().enumerate() {
        if number == before.len() / 2 {
            add_query(&mut connection)?;
        }
        send(&mut connection, request)?;
    }
    wait_for_commit(&mut node, &mut connection)?;
    for request in last {
        send(&mut connection, request)?;
    }
    node.kill()?;
    Ok(())
}

/// The body of a request.
fn records(request: &Value) -> String {
    let records = request["records"].as_array().map_or(&[][..], Vec::as_slice);
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn send(connection: &mut Connection, request: &Value) -> Result<()> {
    let source = request["source"].as_str().unwrap_or_default();
    let lines = records(request);
    let (status, body) = connection.post(&format!("/v1/jobs/all/sources/{source}"), &[lines.as_bytes()])?;
    ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}

/// A query that the job file does not have.
fn add_query(connection: &mut Connection) -> Result<()> {
    let text = "SELECT count(*) AS n, max(cents) AS most FROM payments GROUP BY card OVER SLIDING 30 MINUTES";
    let path = "/v1/jobs/all/operators/features/queries/added";
    let (status, body) = connection.post_text(path, text.as_bytes())?;
    ensure!((200..300).contains(&status), "status {status}: {}", String::from_utf8_lossy(body));
    Ok(())
}

fn start(binary: &Path, folder: &Path, job: &Path, back_end: &str) -> Result<Serving> {
    let address = port::free_address()?;
    let mut command = Command::new(binary);
    command.current_dir(folder).arg("run").arg(job);
    command.args(["--data-dir", "D", "--listen", &address.to_string()]);
    command.args(["--set", &format!("state.backend={back_end}")]);
    let mut node = Serving::start(command, address, folder.join("stderr"), PATIENCE)?;
    node.wait_until_ready()?;
    Ok(node)
}

/// Waits for two commits from now on: the first may have begun before.
fn wait_for_commit(node: &mut Serving, connection: &mut Connection) -> Result<()> {
    let mut cycle = || -> Result<u64> {
        let (_, body) = connection.get("/v1/jobs/all")?;
        let job: Value = serde_json::from_slice(body)?;
        let cycle = job["last_cycle"].as_u64().or_else(|| job["commits"]["last"].as_u64());
        cycle.with_context(|| format!("no cycle in {job}"))
    };
    let until = cycle()? + 2;
    node.wait("committed", || Ok(cycle()? >= until))
}
