//! Calls that fail, one by one: the first, the second, and so on, until a run makes no more of them.
//!
//! strace counts the calls of each thread, so a number may stand for one call in each of several; any of them has to do.

use anyhow::{Context, Result, ensure};

use super::job::{Bench, Place};
use thalweg_harness::project;

/// More calls than a run makes; where it makes more, the first ones are enough.
const MOST: u32 = 24;

pub(super) fn missing() -> Option<String> {
    (!project::has_or_gets("strace", "strace")).then(|| "there is no strace".to_owned())
}

/// How a call may fail, and the expected message.
struct Fault {
    syscall: &'static str,
    error: &'static str,
    /// Files with this in their path; empty for all.
    at: &'static str,
    says: &'static [&'static str],
    /// Room that a log lays out ahead may be missing, and a folder that is there need not be made.
    may_pass: bool,
}

pub(super) fn sync_fails(bench: &Bench) -> Result<()> {
    let says = &["sync", "(os error 5)", "\""];
    sweep(bench, &Fault { syscall: "fdatasync", error: "EIO", at: "", says, may_pass: false })?;
    sweep(
        bench,
        &Fault { syscall: "fsync", error: "EIO", at: "", says: &["(os error 5)", "\""], may_pass: false },
    )?;
    takes_all_jobs(bench).context("next to a job whose syncs succeed")
}

/// A sync that fails ends the process, also where another job has done nothing and would go on for good.
fn takes_all_jobs(bench: &Bench) -> Result<()> {
    let place = bench.place("neighbour")?;
    // With the first cycle, when the job has been started.
    let at = "answers.ndjson";
    let fault = Fault { syscall: "fdatasync", error: "EIO", at, says: &[], may_pass: false };
    let mut under = vec!["timeout".to_owned(), "60".to_owned()];
    under.extend(strace(&place, &fault, 1));
    let ended = bench.with_neighbour(&place, &under)?;
    ended.ends_with(1, &["the process ends", at, "(os error 5)"])?;
    bench.recovers(&place, &[])
}

pub(super) fn no_room(bench: &Bench) -> Result<()> {
    let says = &["\"", "space"];
    sweep(bench, &Fault { syscall: "pwrite64", error: "ENOSPC", at: "", says: &["\""], may_pass: true })?;
    sweep(bench, &Fault { syscall: "write", error: "ENOSPC", at: "answers.ndjson", says, may_pass: false })
}

pub(super) fn not_opened(bench: &Bench) -> Result<()> {
    let says = &["\"", "(os error 13)", "permissions"];
    sweep(bench, &Fault { syscall: "openat", error: "EACCES", at: "answers.ndjson", says, may_pass: false })?;
    sweep(
        bench,
        &Fault {
            syscall: "openat",
            error: "EACCES",
            at: "data/jobs/faults/commit.log",
            says,
            may_pass: false,
        },
    )
}

pub(super) fn not_renamed(bench: &Bench) -> Result<()> {
    let says = &["\"", "(os error 5)"];
    sweep(bench, &Fault { syscall: "rename", error: "EIO", at: "", says, may_pass: false })
}

/// Lets the first call of a run fail, then the second of another, and so on; after each everything has to come out.
fn sweep(bench: &Bench, fault: &Fault) -> Result<()> {
    let Fault { syscall, error, at, says, may_pass } = fault;
    let mut failed = 0;
    for nth in 1..=MOST {
        let place = bench.place(&format!("{syscall}-{error}-{}-{nth}", at.replace('/', "-")))?;
        let trace = place.folder.join("trace");
        let ended = bench.job(&place, &strace(&place, fault, nth))?;
        let trace = std::fs::read(&trace).context("read what strace has written")?;
        let was_injected = String::from_utf8_lossy(&trace).contains("(INJECTED)");
        if !was_injected {
            ended.ends_with(0, &[])?;
            break;
        }
        if !(*may_pass && ended.code == Some(0)) {
            ended.ends_with(1, says).with_context(|| format!("{error} from {syscall} {nth} {at}"))?;
            failed += 1;
        }
        bench.recovers(&place, &[]).with_context(|| format!("after {error} from {syscall} {nth} {at}"))?;
        std::fs::remove_dir_all(&place.folder)?;
    }
    ensure!(failed > 0, "no {syscall} failed");
    Ok(())
}

fn strace(place: &Place, fault: &Fault, nth: u32) -> Vec<String> {
    let Fault { syscall, error, at, .. } = fault;
    let mut words = vec!["strace".to_owned(), "-qq".to_owned(), "-f".to_owned(), "-o".to_owned()];
    words.push(place.folder.join("trace").display().to_string());
    if !at.is_empty() {
        words.extend(["-P".to_owned(), place.folder.join(at).display().to_string()]);
    }
    words.extend(["-e".to_owned(), format!("trace={syscall}"), "-e".to_owned()]);
    words.push(format!("inject={syscall}:error={error}:when={nth}"));
    words
}
