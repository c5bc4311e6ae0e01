//! Runs the fuzz targets over mutated seeds: `thalweg-fuzz [--seconds N] [--seed N] [TARGET…]`.
//!
//! No coverage guides it, so it finds shallow mistakes fast and deep ones by luck; `fuzz/libfuzzer` is for those.
//! It stops at the first input that panics, allocates more at once than [`thalweg_fuzz::allocation_limit`], or
//! needs more processor time than [`TOO_LONG`], and leaves that input in a file. Equal seeds give equal inputs.
//!
//! `--list` prints the names of the targets, `--input FILE TARGET` runs one input without catching anything.

mod mutate;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use thalweg_fuzz::{TARGETS, Target, allocation_limit, regressions};
use thalweg_testing::allocation::{Counting, count};

use crate::mutate::Mutator;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Processor time of one input: one of a few hundred bytes takes microseconds. A disk that is slow to sync counts for
/// nothing.
const TOO_LONG: Duration = Duration::from_secs(2);

/// What the last panic said, and where.
static WHERE: Mutex<String> = Mutex::new(String::new());

struct Arguments {
    seconds: f64,
    seed: u64,
    input: Option<PathBuf>,
    targets: Vec<Target>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            return ExitCode::from(2);
        }
    };
    if let Some(path) = &arguments.input {
        return run_file(path, &arguments.targets);
    }
    panic::set_hook(Box::new(|info| {
        *WHERE.lock().expect("no panic while it is held") = info.to_string();
    }));
    let mut failed = false;
    for target in &arguments.targets {
        match fuzz(target, arguments.seconds, arguments.seed) {
            Ok(summary) => println!("{}: ok, {summary}", target.name),
            Err(failure) => {
                failed = true;
                println!("{}: FAILED, {failure}", target.name);
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// `None` where everything asked for has been printed.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments { seconds: 10.0, seed: 1, input: None, targets: Vec::new() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seconds" => arguments.seconds = number(&word, &value()?)?,
            "--seed" => arguments.seed = number(&word, &value()?)?,
            "--input" => arguments.input = Some(value()?.into()),
            "--list" => {
                TARGETS.iter().for_each(|target| println!("{}", target.name));
                return Ok(None);
            }
            name => match TARGETS.iter().find(|target| target.name == name) {
                Some(target) => arguments.targets.push(*target),
                None => {
                    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
                    return Err(format!("expected one of {}, got {name:?}", names.join(", ")));
                }
            },
        }
    }
    if arguments.targets.is_empty() {
        arguments.targets = TARGETS.to_vec();
    }
    Ok(Some(arguments))
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} takes a number, got {text:?}"))
}

fn run_file(path: &Path, targets: &[Target]) -> ExitCode {
    let [target] = targets else {
        eprintln!("error: --input needs one target");
        return ExitCode::from(2);
    };
    match std::fs::read(path) {
        Ok(input) => {
            (target.run)(&input);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: read {}: {error}", path.display());
            ExitCode::from(2)
        }
    }
}

/// Runs one target; `Err` describes the failing input.
fn fuzz(target: &Target, seconds: f64, seed: u64) -> Result<String, String> {
    // A stack overflow or an abort cannot be caught: the input is here then.
    let last = std::env::temp_dir().join(format!("thalweg-fuzz-{}-{}", target.name, std::process::id()));
    let file = File::create(&last).map_err(|error| format!("create {}: {error}", last.display()))?;
    println!("{}: the input at work is in {}", target.name, last.display());
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(seed, target.words, seeds.clone());
    let fixed = regressions(target).into_iter().map(|(_, input)| input).chain(seeds);
    let started = Instant::now();
    let (mut count, mut largest) = (0_u64, 0);
    let mut check = |input: &[u8]| -> Result<(), String> {
        file.set_len(0).and_then(|()| file.write_all_at(input, 0)).map_err(|error| error.to_string())?;
        largest = largest.max(run_one(target, input).map_err(|what| {
            format!("{what}\n  input: b\"{}\"\n  kept in {}", input.escape_ascii(), last.display())
        })?);
        count += 1;
        Ok(())
    };
    fixed.into_iter().try_for_each(|input| check(&input))?;
    while started.elapsed().as_secs_f64() < seconds {
        check(mutator.next_input())?;
    }
    drop(file);
    let _ = std::fs::remove_file(&last);
    Ok(format!(
        "{count} inputs in {:.1} s, largest allocation {} KiB",
        started.elapsed().as_secs_f64(),
        largest >> 10
    ))
}

/// Runs one input and gives the largest allocation that it caused, or says which promise it broke.
fn run_one(target: &Target, input: &[u8]) -> Result<usize, String> {
    let before = processor_time();
    let (outcome, counts) = count(|| panic::catch_unwind(|| (target.run)(input)));
    let largest = counts.largest;
    let took = processor_time().saturating_sub(before);
    if outcome.is_err() {
        return Err(WHERE.lock().expect("no panic while it is held").clone());
    }
    let limit = allocation_limit(target, input);
    if largest > limit {
        return Err(format!(
            "{largest} bytes were allocated at once for {} bytes of input, limit {limit}",
            input.len()
        ));
    }
    if took > TOO_LONG {
        return Err(format!(
            "it took {:.1} s of a processor for {} bytes of input",
            took.as_secs_f64(),
            input.len()
        ));
    }
    Ok(largest)
}

/// Of all threads of this process.
fn processor_time() -> Duration {
    // Only a time below zero is not a duration, and there is no such time.
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}
