//! `run`: jobs from start to end.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use thalweg_flow::{JobState, JobStats, LatencyCounts};
use thalweg_node::drop_query::DropQuery;
use thalweg_node::skip::Skip;
use thalweg_node::{
    CheckedJob, CycleFigures, Diagnostics, JobEnd, JobFile, Node, NodeOptions, RunningJob, Summary,
};
use thalweg_storage::{failed_sync, handles};
use thalweg_types::{Class, Error};

use crate::Outcome;
use crate::args::Run;
use crate::listen::Door;
use crate::output::{Failure, talk, with_hint};
use crate::progress::Progress;
use crate::signals::Signals;

/// How long jobs that were ordered to end at once may take for it: one may be in a call that does not come back, as a
/// write to a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often progress is drawn and signals are looked at; the end of a job is seen at once.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: Run, mut options: NodeOptions) -> Outcome {
    handles::raise();
    let signals = Signals::watch();
    if let Some(folder) = &args.data_dir {
        options = options.data_dir(folder);
    }
    if let Some(workers) = args.workers {
        options = options.workers(usize::from(workers));
    }
    // Without an HTTP listener no client could read.
    options = options.read_only_when_full(args.listen.is_some()).begin_anew(args.begin_anew);
    let jobs = check_all(&args, &options.check_options())?;
    let mut sources = jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
    if args.listen.is_none()
        && let Some((job, source)) = sources.find(|(_, source)| source.plugin.is_door())
    {
        return Err(Failure::Usage(with_hint(
            &format!(
                "source {:?} of job {:?} takes records over HTTP, and this run does not serve it",
                source.name, job.name
            ),
            Some("add --listen 8080, or another port or address"),
        )));
    }
    for skip in &args.skips {
        if !jobs.iter().any(|job| job.sources.iter().any(|source| *source.name == *skip.source)) {
            return Err(Failure::Usage(format!(
                "error: --skip {}@{}: no job has a source {:?}",
                skip.source, skip.offset, skip.source
            )));
        }
    }
    for dropped in &args.dropped {
        let operators = jobs.iter().flat_map(|job| &job.operators);
        let mut with_queries = operators.filter(|operator| operator.prepared.queries.is_some());
        if !with_queries.any(|operator| *operator.name == *dropped.operator) {
            return Err(Failure::Usage(format!(
                "error: --drop-query {dropped}: no job has an operator {:?} with queries",
                dropped.operator
            )));
        }
    }

    let node = Arc::new(options.open().map_err(|error| Failure::at_start(&error))?);
    let door = args.listen.map(|address| Door::open(address, &node, &args)).transpose()?;
    #[cfg(feature = "cluster")]
    if let (Some(address), Some(door)) = (&args.cluster, &door) {
        return crate::cluster::run(&node, address, &args, &jobs, door, &signals);
    }
    let mut running = start_all(&node, jobs, (args.skips, args.dropped), &signals, door.as_ref())?;
    if let Some(door) = &door {
        door.ready();
    }
    let progress = Progress::start(args.quiet);
    let ends = wait(&node, &mut running, &signals, &progress, door.as_ref());
    progress.finish();
    if let Some(door) = door {
        door.close();
    }
    let (summary, outcome) = conclude(&node, &running, &ends, signals.count());
    // What sources have to say at their end comes before the last line.
    drop((running, node));
    talk(&summary);
    outcome
}

/// Starts the jobs one after the other, on a thread that is left behind where a start does not end: a job's files may
/// be on a disk that does not answer.
fn start_all(
    node: &Arc<Node>,
    jobs: Vec<CheckedJob>,
    (skips, dropped): (Vec<Skip>, Vec<DropQuery>),
    signals: &Signals,
    door: Option<&Door>,
) -> Result<Vec<Arc<RunningJob>>, Failure> {
    let mut running = Vec::new();
    let names: Vec<Arc<str>> = jobs.iter().map(|job| Arc::clone(&job.name)).collect();
    let (tell, told) = std::sync::mpsc::channel();
    let on_thread = Arc::clone(node);
    let spawned = std::thread::Builder::new().name("start".to_owned()).spawn(move || {
        for job in jobs {
            let outcome = on_thread.start_without(job, &skips, &dropped);
            let has_failed = outcome.is_err();
            if tell.send(outcome).is_err() || has_failed {
                break;
            }
        }
    });
    spawned.map_err(|error| Failure::Run(format!("error: start a thread that opens jobs: {error}")))?;
    let mut asked = 0;
    for name in names {
        let started = loop {
            match told.recv_timeout(LOOK) {
                Ok(started) => break started,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(Error::internal("opening it panicked"));
                }
            }
            let count = signals.count();
            if count > asked && asked == 0 {
                talk(&format!("job {name:?} is being opened, and ends then; a second signal ends at once"));
                node.drain();
                if let Some(door) = door {
                    door.drain();
                }
            }
            if count > 1 {
                leave(node, &[&name]);
            }
            asked = count;
        };
        let started = started.map_err(|error| Failure::at_start(&error.context(format!("job {name:?}"))))?;
        for (source, address) in started.addresses() {
            talk(&format!("source {source:?} of job {name:?} listens on {address}"));
        }
        if let Some(door) = door {
            door.add(&started);
        }
        running.push(started);
    }
    Ok(running)
}

/// Ends the process although these jobs do not end, as a kill does: committed results are kept.
fn leave(node: &Node, jobs: &[&str]) -> ! {
    talk(&format!("ending although these jobs do not: {}", jobs.join(", ")));
    if node.is_temporary() {
        let _ = std::fs::remove_dir_all(node.data_dir());
    }
    std::process::exit(1);
}

/// Checks every job file, and reports the mistakes of all of them.
fn check_all(args: &Run, options: &thalweg_node::CheckOptions) -> Result<Vec<CheckedJob>, Failure> {
    let mut jobs: Vec<CheckedJob> = Vec::new();
    let mut mistakes = Vec::new();
    for path in &args.jobs {
        match JobFile::read(path, &args.overrides).and_then(|file| file.check(options)) {
            Ok(job) => jobs.push(job),
            Err(found) => mistakes.extend(found.0),
        }
    }
    if !mistakes.is_empty() {
        return Err(Diagnostics(mistakes).into());
    }
    for (index, job) in jobs.iter().enumerate() {
        if jobs[..index].iter().any(|other| other.name == job.name) {
            return Err(Failure::Usage(format!("error: two jobs are called {:?}", job.name)));
        }
        for warning in job.warnings.iter().filter(|_| !args.quiet) {
            talk(warning.to_string().trim_end());
        }
    }
    Ok(jobs)
}

/// Waits for all jobs, draining them at the first signal and ending them at the second, or as soon as a sync has failed.
///
/// Jobs that are started by HTTP meanwhile are waited for too; a node that was started without a job waits for a
/// signal. So does one with a job that a request has stopped, one with a job that is read-only, or one with a job that
/// is being opened, such as a read-only one that is started again.
fn wait(
    node: &Node,
    running: &mut Vec<Arc<RunningJob>>,
    signals: &Signals,
    progress: &Progress,
    door: Option<&Door>,
) -> Vec<JobEnd> {
    let (mut asked, mut is_over) = (0, false);
    let mut aborted_at: Option<Instant> = None;
    let began_empty = running.is_empty();
    let mut ends: Vec<Option<JobEnd>> = vec![None; running.len()];
    let mut is_told = vec![false; running.len()];
    loop {
        // Looked at first: jobs that are opened by then are in the list.
        let is_opening = node.is_opening();
        if door.is_some() {
            for job in node.list() {
                if !running.iter().any(|known| Arc::ptr_eq(known, &job)) {
                    // One that was being opened when the signal came.
                    if asked > 0 {
                        job.drain();
                    }
                    if asked > 1 {
                        job.abort();
                    }
                    running.push(job);
                    ends.push(None);
                    is_told.push(false);
                }
            }
        }
        match ends.iter().position(Option::is_none) {
            Some(next) => ends[next] = running[next].wait_timeout(LOOK),
            None if (began_empty || is_opening || door.is_some_and(Door::has_stopped_jobs))
                && asked == 0
                && failed_sync().is_none() =>
            {
                std::thread::sleep(LOOK);
            }
            None => break,
        }
        // Told when it happens: other jobs may run for long.
        for (job, is_told) in running.iter().zip(&mut is_told).filter(|(_, is_told)| !**is_told) {
            if let JobState::Failed(failure) = job.state() {
                *is_told = true;
                let hint = failure.error.as_ref().and_then(|error| error.hint.as_deref());
                talk(&with_hint(&format!("job {:?}: {failure}", job.name()), hint));
                if job.is_read_only() {
                    talk(&format!(
                        "job {:?} takes no records any more, and is only read, until the process ends",
                        job.name()
                    ));
                }
            }
        }
        let count = signals.count();
        if count > asked {
            if asked == 0 {
                talk("draining; a second signal ends at once");
                if let Some(door) = door {
                    door.drain();
                }
                running.iter().for_each(|job| job.drain());
            }
            if count > 1 {
                running.iter().for_each(|job| job.abort());
                aborted_at.get_or_insert_with(Instant::now);
            }
            asked = count;
        }
        if aborted_at.is_some_and(|at| at.elapsed() > PATIENCE) {
            let left = running.iter().zip(&ends).filter(|(_, end)| end.is_none());
            let jobs: Vec<&str> = left.map(|(job, _)| &**job.name()).collect();
            leave(node, &jobs);
        }
        // Other jobs may have lost writes in the same way, without an error.
        if let Some(said) = failed_sync() {
            if !is_over {
                is_over = true;
                let what = format!("{said}: the process ends, as the state of the disk is unknown");
                let hint =
                    "look for the cause (disk, mount), then start again: what was acknowledged is kept";
                talk(&with_hint(&what, Some(hint)));
                if let Some(door) = door {
                    door.drain();
                }
            }
            running.iter().for_each(|job| job.abort());
        }
        // The reader of standard output has gone (`| head`): nobody waits for the rest. A job that goes on at its last
        // commit ends there, as a cycle that was not read is not committed.
        for job in running.iter() {
            if job.sinks().iter().any(|(_, report)| report.is_output_closed()) {
                if node.is_temporary() { job.drain() } else { job.abort() }
            }
        }
        progress.draw(running);
    }
    ends.into_iter().flatten().collect()
}

/// The summary, which is the last line, and the exit code.
fn conclude(node: &Node, running: &[Arc<RunningJob>], ends: &[JobEnd], signals: usize) -> (String, Outcome) {
    for (job, end) in running.iter().zip(ends) {
        if end.summary.rejects > 0 {
            tell_rejects(node, job);
        }
        for (name, report) in job.sinks() {
            if let Some(digest) = report.digest() {
                talk(&format!("sink {name}: records={} digest={digest:016x}", report.records()));
            }
        }
        if let Some(cycles) = job.cycles() {
            talk(&format!("commits of job {}: {}", job.name(), told(cycles, &job.stats())));
        }
        if running.len() > 1 {
            talk(&format!("job {}: {}", job.name(), end.summary));
        }
    }
    if node.is_temporary() {
        talk("state was kept in a temporary folder, which is gone now; --data-dir D keeps it");
    }
    let total = ends.iter().fold(Summary::default(), |total, end| total.and(end.summary));
    // What was ended from outside has not had all of its input.
    let ended = running.iter().zip(ends).filter(|(_, end)| signals == 0 && end.state == JobState::Done);
    let refused: Vec<String> = ended.flat_map(|(job, _)| too_many_rejects(job)).collect();
    let summary = match refused.is_empty() {
        true => total.to_string(),
        false => format!(
            "{total} error={:?}",
            format!("{}; `reject_limit` of a source says how many are all right", refused.join(", "))
        ),
    };
    if ends.iter().any(|end| end.class() == Some(Class::Corrupt)) {
        return (summary, Err(Failure::Damaged(String::new())));
    }
    let failed = failed_sync().is_some() || ends.iter().any(|end| end.failure().is_some());
    let aborted = signals > 1 && ends.iter().any(|end| end.state == JobState::Aborted);
    let is_good = !failed && !aborted && refused.is_empty();
    (summary, if is_good { Ok(()) } else { Err(Failure::Run(String::new())) })
}

/// Sources of a job with so many rejects that its answers cannot be taken as those of its input, if the job file does
/// not set a limit.
fn too_many_rejects(job: &RunningJob) -> Vec<String> {
    let rejects = job.rejects().of_run();
    let stats = job.stats();
    let with_records = job.checked().sources.iter().zip(&stats.sources);
    let unlimited = with_records.filter(|(source, _)| source.reject_limit.is_none());
    let refused = unlimited.filter_map(|(source, stats)| {
        let count = *rejects.get(&*source.name)?;
        let is_much = count as f64 > MOST_REJECTS * stats.records as f64;
        let is_much = is_much && (count >= FEW_REJECTS || (count > 1 && count == stats.records));
        is_much.then(|| format!("{count} of {} records of source {} are rejects", stats.records, source.name))
    });
    refused.collect()
}

/// The share of a source's records that may be rejects where nothing else is said.
const MOST_REJECTS: f64 = 0.01;

/// Fewer say little about a share, unless they are all of several records.
const FEW_REJECTS: u64 = 10;

/// How many commits there were, for how long their markers stopped a task, and the most processor time of one.
fn told(cycles: CycleFigures, stats: &JobStats) -> String {
    let tasks = || stats.operators.iter().flat_map(|operator| &operator.tasks);
    let markers: LatencyCounts = tasks().map(|task| &task.markers).sum();
    let marker_cpu: LatencyCounts = tasks().map(|task| &task.marker_cpu).sum();
    let milliseconds =
        |times: &LatencyCounts, share| times.quantile(share).unwrap_or_default().as_secs_f64() * 1e3;
    format!(
        "last={} held_back={} marker_p99_ms={:.2} marker_max_ms={:.2} marker_cpu_max_ms={:.2}",
        cycles.committed,
        cycles.held_back,
        milliseconds(&markers, 0.99),
        milliseconds(&markers, 1.0),
        milliseconds(&marker_cpu, 1.0)
    )
}

/// Reports where the rejects are, and their reasons.
fn tell_rejects(node: &Node, job: &RunningJob) {
    let removed = job.rejects().removed();
    if removed.files > 0 {
        talk(&format!(
            "rejects of job {}: the oldest {} files, {} bytes, made room for newer ones (rejects: max_bytes)",
            job.name(),
            removed.files,
            removed.bytes
        ));
    }
    for (source, codes) in job.rejects().by_source() {
        let codes: Vec<String> = codes.iter().map(|(code, count)| format!("{code}: {count}")).collect();
        let place = match node.is_temporary() {
            true => String::new(),
            false => format!(", see {}", job.folder().rejects().display()),
        };
        let first =
            job.rejects().first_of(&source).map_or(String::new(), |first| format!("; the first: {first}"));
        // A record without a source, emitted after the end of the input, counts under the operator that made it.
        let is_operator = job.checked().operators.iter().any(|operator| *operator.name == *source);
        let kind = if is_operator { "operator" } else { "source" };
        talk(&format!("rejects of {kind} {source}: {}{place}{first}", codes.join(", ")));
    }
}

#[cfg(test)]
#[path = "../../node/tests/support/bang.rs"]
mod bang;

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use super::bang::Bang;
    use super::*;

    const JOB: &str = "
name: poison
sources:
  a: { type: file, path: DIR/a.csv, format: csv, schema: { n: string } }
operators:
  op: { type: bang, input: a }
sinks:
  out: { type: file, input: op, path: DIR/out.csv, format: csv }
";

    #[test]
    fn an_operator_that_panics_is_named_with_its_record_and_ends_with_code_one() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.csv"), "n\none\nbang\nthree\n").unwrap();
        let data = folder.path().join("D");
        let node = Node::builder().data_dir(data).workers(1).operator(Bang).open().unwrap();
        let text = JOB.replace("DIR", &folder.path().display().to_string());
        let job = JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
        let job = job.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let running = [node.start(job, &[]).unwrap()];
        let ends = [running[0].wait_timeout(Duration::from_secs(60)).expect("the job ends")];

        let told = ends[0].failure().unwrap_or_else(|| panic!("{:?}", ends[0].state)).to_string();
        for part in ["operator \"op\"", "at record a@1 panicked: ", "bang is no text"] {
            assert!(told.contains(part), "{part:?} is missing in {told}");
        }
        let failure = conclude(&node, &running, &ends, 0).1.expect_err("the job has failed");
        assert_eq!(failure.tell(), ExitCode::from(1));
    }
}
