//! One round: fresh input, then starts and ends of the engine until the input is through, then the recount.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::counts::Counts;
use super::decide::{Disturbance, Effect, Injection, Means, Moment, Tuning};
use super::disk::Found;
use super::engine::{Engine, Files, LOOK};
use super::jobs::{Job, Make, Setting};
use super::ledger::{Ending, Ledger};
use super::power::Power;
use thalweg_harness::random::Random;

/// The engine has to be through within this time, or to end after an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a job that may go on without room is watched for whether it does.
const GRACE: Duration = Duration::from_secs(1);

/// What all rounds share.
pub(super) struct Harness<'a> {
    pub(super) binary: &'a Path,
    /// Emptied for each round.
    pub(super) folder: PathBuf,
    pub(super) means: Means,
    pub(super) power: Option<Power>,
    pub(super) seed: u64,
}

/// How one run of the engine ended.
enum End {
    /// By itself, with everything done.
    Finished,
    /// It was killed, by a signal of ours or at a call.
    Killed {
        at_call: bool,
    },
    /// It gave up after an error of ours.
    Failed,
    /// It did not start, as what the job reads from or writes to was away.
    Refused,
    Cut,
}

struct Round<'a> {
    harness: &'a Harness<'a>,
    job: Box<dyn Job>,
    /// Inputs, the job file, what the engine says.
    folder: PathBuf,
    data: PathBuf,
}

impl Harness<'_> {
    /// Runs one round of a job, and counts. The decisions go to `decisions`.
    ///
    /// # Errors
    /// What was wrong.
    pub(super) fn round(
        &self,
        name: &str,
        make: &Make,
        number: u64,
        counts: &mut Counts,
        decisions: &mut Vec<String>,
    ) -> Result<()> {
        let random = Random::new(self.seed).of(name, number);
        let folder = fresh(&self.folder.join("round"))?;
        let disk = match &self.power {
            Some(power) => {
                let disk = fresh(&power.path().join("round"))?;
                power.sync()?;
                disk
            }
            None => folder.clone(),
        };
        let setting = Setting {
            binary: self.binary,
            folder: &folder,
            disk: &disk,
            random: random.of("input", 0),
            round: number,
            power: self.power.is_some(),
        };
        let job = make(&setting)?;
        let mut round = Round { harness: self, job, folder, data: disk.join("data") };
        let mut ledger = Ledger::default();
        let mut last: Option<Found> = None;
        for start in 0.. {
            let mut random = random.of("start", start);
            let tuning = Tuning::decide(&mut random);
            let is_disturbed = round.job.is_disturbed() && start < round.job.disturbed_starts();
            let disturbance = match (is_disturbed, round.job.commits_elsewhere()) {
                (false, _) => Disturbance::None,
                (true, true) => Disturbance::decide_near_commits(&mut random, self.means, start + number),
                (true, false) => Disturbance::decide(&mut random, self.means),
            };
            decisions.push(format!("start {start}: {disturbance}; {tuning:?}"));
            if let Some(last) = &last {
                counts.restarts += 1;
                counts.recovered += u64::from(last.commit.as_ref().is_some_and(|commit| commit.cycle > 0));
                counts.followed += u64::from(last.to_follow() > 0);
            }
            round.job.starting()?;
            let end = round.run(&tuning, &disturbance, &mut random, counts)?;
            round.job.stopped()?;
            let ending = match end {
                End::Cut => {
                    if let Some(power) = &self.power {
                        power.restore()?;
                    }
                    Ending::Power
                }
                _ => Ending::Process,
            };
            let found = Found::read(&round.data.join("jobs/crash"), round.job.sinks())?;
            ledger.note(&found, ending)?;
            match end {
                End::Finished => {
                    counts.records += round.job.recount(&found, &ledger)?;
                    counts.rounds += 1;
                    counts.outages.add(round.job.outages());
                    counts.repeats += round.job.repeats();
                    return Ok(());
                }
                End::Killed { at_call } => {
                    counts.kills += 1;
                    counts.at_calls += u64::from(at_call);
                    counts.before_records += u64::from(at_call && disturbance.is_before_record());
                    counts.after_records += u64::from(at_call && disturbance.is_after_record());
                }
                End::Failed => counts.errors += 1,
                End::Refused => counts.refused += 1,
                End::Cut => counts.cuts += 1,
            }
            let cycle = |found: &Found| found.commit.as_ref().map(|commit| commit.cycle);
            let before = last.as_ref().and_then(cycle).filter(|cycle| *cycle > 0);
            counts.nested += u64::from(before.is_some() && before == cycle(&found));
            last = Some(found);
        }
        Ok(())
    }
}

impl Round<'_> {
    fn run(
        &mut self,
        tuning: &Tuning,
        disturbance: &Disturbance,
        random: &mut Random,
        counts: &mut Counts,
    ) -> Result<End> {
        let path = self.folder.join("job.json");
        std::fs::write(&path, format!("{:#}\n", self.job.job_file(tuning)))?;
        let mut arguments: Vec<String> = vec!["run".to_owned(), path.display().to_string()];
        wait_until_free(&self.data.join("lock"));
        arguments.extend(["--data-dir".to_owned(), self.data.display().to_string(), "--quiet".to_owned()]);
        arguments.extend(["--workers".to_owned(), tuning.workers.to_string()]);
        if self.job.is_served() {
            arguments.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        let job = self.data.join("jobs/crash");
        let files = Files { job: &job, sinks: self.job.sinks(), journals: self.job.journals() };
        let injection = match disturbance {
            Disturbance::Call(injection, _) => Some(injection),
            _ => None,
        };
        let injected = injection.map(|injection| (injection, &files));
        let mut engine = Engine::start(self.harness.binary, &arguments, &self.folder, injected)?;
        let mut watch = Watch::new(self.job.sinks(), job.join("commit.log"));
        let mut is_ready = false;
        let mut is_asked = false;
        loop {
            if let Some(status) = engine.ended()? {
                if self.is_refusal(status, &engine) {
                    return Ok(End::Refused);
                }
                counts.at_work += u64::from(watch.worked.is_some() && !status.success());
                return judge(status, injection, &engine);
            }
            if !is_ready && (!self.job.is_served() || engine.address().is_some()) {
                self.job.started(&engine)?;
                is_ready = true;
            }
            if is_ready {
                self.job.feed()?;
            }
            watch.look();
            if disturbance.moment().is_some_and(|moment| is_due(moment, engine.started, &watch)) {
                counts.at_work += u64::from(watch.worked.is_some());
                return self.end(&mut engine, disturbance, random);
            }
            // A process that has written something hears signals.
            if is_ready && !is_asked && self.job.is_drained() && self.job.is_fed() && watch.worked.is_some() {
                engine.drain();
                is_asked = true;
            }
            if !is_asked && lacks_room(injection) && engine.is_only_read() {
                engine.drain();
                is_asked = true;
            }
            if engine.started.elapsed() > PATIENCE {
                let said = engine.said();
                engine.kill()?;
                bail!("the engine was not through within {PATIENCE:?}; it said: {said}");
            }
            thread::sleep(LOOK);
        }
    }

    /// Whether the engine has ended because a service is away, as it may when it starts, and has said so.
    fn is_refusal(&self, status: ExitStatus, engine: &Engine) -> bool {
        let said = engine.said();
        let is_told = said.contains("error: ") && said.contains(" = hint: ") && !said.contains("panicked");
        status.code() == Some(1) && is_told && self.job.may_refuse(&said)
    }

    /// Ends a run as it was decided, now that its moment has come.
    fn end(&self, engine: &mut Engine, disturbance: &Disturbance, random: &mut Random) -> Result<End> {
        match (disturbance, &self.harness.power) {
            (Disturbance::PowerCut(_, how), Some(power)) => {
                power.cut(*how)?;
                // It gets to see that syncs fail, and must not take them for done.
                thread::sleep(random.time(Duration::from_millis(5)));
                engine.kill()?;
                Ok(End::Cut)
            }
            (Disturbance::Call(injection, _), _) if engine.was_injected() => {
                // The call came just now. The missing room may not be needed yet.
                if lacks_room(Some(injection)) && !engine.ends_within(GRACE)? {
                    if !engine.is_only_read() {
                        engine.kill()?;
                        return Ok(End::Killed { at_call: false });
                    }
                    engine.drain();
                }
                let status = engine.wait(PATIENCE)?;
                judge(status, Some(injection), engine)
            }
            _ => {
                let status = engine.kill()?;
                // It may have been through by itself at the same moment; the next start shows that.
                ensure!(
                    status.signal() == Some(libc::SIGKILL) || status.success(),
                    "the engine ended with {status}; it said: {}",
                    engine.said()
                );
                Ok(End::Killed { at_call: false })
            }
        }
    }
}

/// Looks for signs of work.
struct Watch {
    /// The commit log, and files of sinks after it.
    paths: Vec<PathBuf>,
    lengths: Vec<Option<u64>>,
    /// When something was first seen to grow.
    worked: Option<Instant>,
    /// How often the commit log was seen to grow, and when it did last.
    commits: u64,
    committed: Option<Instant>,
}

impl Watch {
    fn new(sinks: &[(String, PathBuf)], commits: PathBuf) -> Self {
        let mut paths = vec![commits];
        paths.extend(sinks.iter().map(|(_, path)| path.clone()));
        let lengths = paths.iter().map(|path| length(path)).collect();
        Self { paths, lengths, worked: None, commits: 0, committed: None }
    }

    fn look(&mut self) {
        let now = Instant::now();
        for (index, (path, last)) in self.paths.iter().zip(&mut self.lengths).enumerate() {
            let length = length(path);
            if length > *last {
                self.worked.get_or_insert(now);
                if index == 0 {
                    self.commits += 1;
                    self.committed = Some(now);
                }
            }
            *last = length;
        }
    }
}

fn length(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.len())
}

fn is_due(moment: Moment, started: Instant, watch: &Watch) -> bool {
    let since = |instant: Option<Instant>, time| instant.is_some_and(|instant| instant.elapsed() >= time);
    match moment {
        Moment::Started(time) => started.elapsed() >= time,
        Moment::Worked(time) => since(watch.worked, time),
        // Of a log that goes on growing, the last time may never be long ago: then it is late enough as well.
        Moment::Committed(count, time) => {
            watch.commits > count || (watch.commits == count && since(watch.committed, time))
        }
    }
}

/// Whether a call fails as if the disk were full: then a job that is served stays to be read.
fn lacks_room(injection: Option<&Injection>) -> bool {
    injection.is_some_and(|injection| injection.effect == Effect::Error("ENOSPC"))
}

/// What the end of a process means that we did not end ourselves.
fn judge(status: ExitStatus, injection: Option<&Injection>, engine: &Engine) -> Result<End> {
    let said = engine.said();
    match injection.map(|injection| injection.effect) {
        // A call that does not come back is not marked in what strace writes.
        Some(Effect::Kill) if status.signal() == Some(libc::SIGKILL) => Ok(End::Killed { at_call: true }),
        // Room that a log lays out ahead may be missing; then nothing is wrong until records need it.
        Some(Effect::Error("ENOSPC")) if status.success() && !engine.is_only_read() => Ok(End::Finished),
        Some(Effect::Error(error)) if engine.was_injected() => {
            explains(status, error, &said).with_context(|| format!("{injection:?}; it said: {said}"))?;
            Ok(End::Failed)
        }
        _ if status.success() => Ok(End::Finished),
        _ => bail!("the engine ended with {status}; it said: {said}"),
    }
}

/// An error has to end the engine with exit code 1, and to say what failed, where, why, and what to do.
fn explains(status: ExitStatus, error: &str, said: &str) -> Result<()> {
    ensure!(status.code() == Some(1), "exit code 1 is expected after {error}, it was {status}");
    let reason = match error {
        "EIO" => "(os error 5)",
        "ENOSPC" if said.contains("disk full") => "disk full",
        "ENOSPC" => "(os error 28)",
        "EACCES" => "(os error 13)",
        _ => bail!("no expectation for the error {error}"),
    };
    for part in ["error: ", "\"", reason, " = hint: "] {
        ensure!(said.contains(part), "{part:?} is missing in the message about {error}");
    }
    ensure!(!said.contains("panicked"), "a panic after {error}");
    Ok(())
}

/// An empty folder.
fn fresh(folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder.to_owned())
}

/// Waits until no process holds the lock: a process that was killed under strace may still be on its way out.
fn wait_until_free(lock: &Path) {
    let Ok(file) = std::fs::File::options().append(true).open(lock) else { return };
    let until = Instant::now() + Duration::from_secs(30);
    while file.try_lock().is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}
