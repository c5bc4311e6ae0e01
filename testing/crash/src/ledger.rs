//! State that must never change again once it was seen after a kill: commits, the order, and what sinks had committed.
//!
//! After a power cut only state that was there after an earlier power cut has to be there: a kill shows what was
//! *written*, which the cut may take.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::disk::{Entry, Event, Found};

/// How the engine ended before the disk was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The kernel went on: written bytes are there.
    Process,
    /// What was not synced may be gone.
    Power,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    cycle: u64,
    /// All entries of the order log, those too that the engine has removed since.
    order: BTreeMap<u64, Entry>,
    /// The committed content of each sink.
    sinks: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    seen: Seen,
    /// As it was after the last power cut.
    synced: Seen,
}

/// Some records of a source that are together in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The order number of the first one.
    pub(super) order: u64,
    pub(super) source: usize,
    /// Of the source; all are of it.
    pub(super) partition: u32,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) arrival: i64,
}

/// What a job was given, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Run(Run),
    /// The wall clock, in microseconds since 1970.
    Tick(i64),
}

impl Ledger {
    /// Compares the disk with its earlier state, and remembers it.
    ///
    /// # Errors
    /// What has changed that must not.
    pub(super) fn note(&mut self, found: &Found, ending: Ending) -> Result<()> {
        if ending == Ending::Power {
            self.seen = self.synced.clone();
        }
        let seen = &mut self.seen;
        let cycle = found.commit.as_ref().map_or(0, |commit| commit.cycle);
        ensure!(cycle >= seen.cycle, "cycle {} was committed, the last one now is {cycle}", seen.cycle);
        seen.cycle = cycle;

        let mut last: Option<Entry> = None;
        for (number, entry) in &found.order {
            if let Some(before) = seen.order.get(number) {
                ensure!(
                    before == entry,
                    "record {number} of the order log was {before:?}, now it is {entry:?}"
                );
            }
            if let Some(last) = last {
                let end = last.start + last.count;
                ensure!(
                    end == entry.start,
                    "record {number} of the order log starts at {}, not {end}",
                    entry.start
                );
            }
            last = Some(*entry);
        }
        if let (Some((last, _)), Some((now, _))) = (seen.order.last_key_value(), found.order.last_key_value())
        {
            ensure!(last <= now, "the order log had {last} records more, now it ends with {now}");
        }
        seen.order.extend(&found.order);

        for (name, content) in &found.sinks {
            let before = seen.sinks.entry(name.clone()).or_default();
            let length = match &found.commit {
                Some(commit) => commit.length(name)?,
                None => 0,
            };
            ensure!(
                length >= before.len() && content.len() >= length,
                "sink {name} has {} bytes, {length} are committed now, {} were before",
                content.len(),
                before.len()
            );
            let same = before.iter().zip(content).take_while(|(one, other)| one == other).count();
            ensure!(
                same == before.len(),
                "sink {name} has changed at byte {same}, though {} were committed",
                before.len()
            );
            before.extend_from_slice(&content[before.len()..length]);
        }
        if ending == Ending::Power {
            self.synced = self.seen.clone();
        }
        Ok(())
    }

    /// The order of all records and ticks, from the first one on.
    ///
    /// # Errors
    /// Where a part of it was never seen, or a source's offsets are not dense.
    pub(super) fn steps(&self) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut ends: BTreeMap<usize, u64> = BTreeMap::new();
        for (index, (number, entry)) in self.seen.order.iter().enumerate() {
            ensure!(
                index as u64 == *number,
                "record {index} of the order log was removed before it was seen"
            );
            match entry.event {
                Event::Run { source, partition, offset, arrival } => {
                    let end = ends.entry(source).or_default();
                    ensure!(
                        *end == offset,
                        "the order names offset {offset} of source {source}, next was {end}"
                    );
                    *end += entry.count;
                    let (order, count) = (entry.start, entry.count);
                    steps.push(Step::Run(Run { order, source, partition, first: offset, count, arrival }));
                }
                Event::Tick(now) => steps.push(Step::Tick(now)),
                Event::Other => {}
            }
        }
        Ok(steps)
    }

    /// The records alone, as [`Ledger::steps`] has them.
    ///
    /// # Errors
    /// As there.
    pub(super) fn runs(&self) -> Result<impl Iterator<Item = Run>> {
        Ok(self.steps()?.into_iter().filter_map(|step| match step {
            Step::Run(run) => Some(run),
            Step::Tick(_) => None,
        }))
    }
}
