//! `inspect` and `verify`: the files that jobs keep on disk.

mod text;

use std::io::{Write, stdout};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thalweg_node::inspect::{self, Damage, Depth, Entry, Report};
use thalweg_storage::{Fs, RealFs};
use thalweg_types::Error;

use crate::Outcome;
use crate::args::{Inspect, Verify};
use crate::output::{Failure, talk, with_hint};
use crate::table;

pub(crate) fn inspect(args: &Inspect) -> Outcome {
    if let Some(outcome) = table::look(&args.path, false, args.json) {
        return outcome;
    }
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let report = look(&fs, &args.path, Depth::Look)?;
    let wants_entries = args.entries.is_some() || args.raw;
    let range = args.entries.clone().unwrap_or(0..u64::MAX);
    let mut out = stdout().lock();
    for thing in &report.things {
        if args.json {
            writeln!(out, "{}", json(thing)?)?;
        } else {
            write!(out, "{}", text::thing(thing))?;
        }
        // Damage has been reported, and entries after it cannot be read.
        if wants_entries && thing.damage.is_empty() {
            let mut entry = |entry: &Entry, bytes: &[u8]| -> Outcome {
                match (args.json, args.raw) {
                    (false, _) => writeln!(out, "  {}", text::entry(entry))?,
                    (true, false) => writeln!(out, "{}", json(entry)?)?,
                    (true, true) => writeln!(out, "{}", json(&with_bytes(entry, bytes))?)?,
                }
                if args.raw && !args.json && matches!(entry, Entry::Block { .. }) {
                    out.write_all(bytes)?;
                    if !bytes.ends_with(b"\n") {
                        out.write_all(b"\n")?;
                    }
                }
                Ok(())
            };
            inspect::entries(&fs, thing, &range, |found, bytes| entry(found, bytes).map_err(Stop))
                .map_err(|Stop(failure)| failure)?;
        }
    }
    out.flush()?;
    talk("no lock was taken: where a process is running on this, the ends of its files are in motion");
    judge(&report)
}

/// Either an error of the look or a failure of the output; both end it.
struct Stop(Failure);

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self(Failure::at_start(&error))
    }
}

pub(crate) fn verify(args: &Verify) -> Outcome {
    if let Some(outcome) = table::look(&args.path, true, args.json) {
        return outcome;
    }
    let fs: Arc<dyn Fs> = Arc::new(RealFs);
    let report = look(&fs, &args.path, Depth::Verify)?;
    let mut out = stdout().lock();
    for thing in &report.things {
        if args.json {
            let mut object = serde_json::to_value(thing).map_err(unwritten)?;
            object["verdict"] = text::verdict(thing).into();
            writeln!(out, "{object}")?;
        } else {
            write!(out, "{}", text::verified(thing))?;
        }
    }
    out.flush()?;
    judge(&report)
}

fn look(fs: &Arc<dyn Fs>, path: &std::path::Path, depth: Depth) -> Result<Report, Failure> {
    inspect::inspect(fs, path, depth).map_err(|error| Failure::at_start(&error))
}

/// Damage comes before read errors: an operator has to act on it.
fn judge(report: &Report) -> Outcome {
    let damage: Vec<&Damage> = report.things.iter().flat_map(|thing| &thing.damage).collect();
    if let Some(first) = damage.first() {
        let more = match damage.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let hint = "check the disk, and restore the folder from a copy";
        return Err(Failure::Damaged(with_hint(&format!("{}{more}", text::damage(first)), Some(hint))));
    }
    match report.things.iter().flat_map(|thing| &thing.trouble).next() {
        Some(trouble) => Err(Failure::Run(format!("error: {trouble}"))),
        None => Ok(()),
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(unwritten)
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::Run(format!("error: write as JSON: {error}"))
}

/// A block with its bytes, as text where they are.
fn with_bytes(entry: &Entry, bytes: &[u8]) -> serde_json::Value {
    let mut object = serde_json::to_value(entry).unwrap_or_default();
    if matches!(entry, Entry::Block { .. }) {
        match std::str::from_utf8(bytes) {
            Ok(text) => object["raw"] = text.into(),
            Err(_) => object["raw_base64"] = STANDARD.encode(bytes).into(),
        }
    }
    object
}
