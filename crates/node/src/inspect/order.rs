//! The order log: its range, and whether its entries follow each other.

use std::path::{Path, PathBuf};

use thalweg_flow::{OrderEntry, OrderEvent};
use thalweg_storage::log::{LogPosition, LogSummary};
use thalweg_types::{Error, Offset, SeqRange};

use super::report::{Damage, LogLook, OrderLook, Thing, What, thing};
use super::{Found, Looker};
use crate::durable::of_run;
use crate::durable::order::{self, Block};
use crate::durable::record::CommitRecord;

/// Where a journal ends.
#[derive(Clone, Debug)]
pub(super) struct JournalEnd {
    /// Behind its last record.
    pub(super) offset: Offset,
    /// Its last file, and the byte after its last frame; its folder if there is no file.
    pub(super) path: PathBuf,
    pub(super) byte: Option<u64>,
}

/// What an order log names of a journal after the last commit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// The last run of a block, and the offset after it.
    written: Option<(LogPosition, Offset)>,
    /// The same of those that were synced in the journal before they were named.
    synced: Option<(LogPosition, Offset)>,
}

impl Reach {
    /// Holds it against the journal, which was read later and so has all that was there when this was.
    pub(super) fn check(&self, source: &str, end: Option<&JournalEnd>, order: &mut Thing) {
        let is_short = |(_, named): &(LogPosition, Offset)| end.is_none_or(|end| *named > end.offset);
        if let Some((position, named)) = self.synced.filter(is_short) {
            let (path, byte, ends) = match end {
                Some(end) => {
                    (end.path.clone(), end.byte, format!("the journal ends with offset {}", end.offset))
                }
                None => (order.path.clone(), None, "there is no journal".to_owned()),
            };
            let message = format!(
                "{ends}, and {position} of the order log names offsets of source {source:?} up to {named}, which had been \
                 synced"
            );
            order.damage.push(Damage { path, pos: byte, message });
        } else if let (Some((position, named)), Some(end)) = (self.written.filter(is_short), end) {
            order.notes.push(format!(
                "{position} names offsets of source {source:?} up to {named}, its journal ends at {}: none of that was \
                 acknowledged as synced, and the next start cuts the order log where it begins",
                end.offset
            ));
        }
    }
}

impl Looker {
    /// The order log in a folder, and its reach by the number of the source; with the job's commit record it is
    /// checked against that, and with the run of its commit log its owner is known.
    pub(super) fn order(
        &self,
        path: &Path,
        run: Option<u64>,
        last: Option<&CommitRecord>,
    ) -> (Thing, Vec<Reach>) {
        let mut found = Found::default();
        let identity = run.map(|run| of_run(order::identity(), run));
        let Some(summary) = self.log(path, identity, &mut found) else {
            return (thing(path, "order log", None, What::Unread, found), Vec::new());
        };
        let mut look = OrderLook {
            log: LogLook::of(&summary),
            numbers: None,
            runs: 0,
            records: 0,
            ticks: 0,
            commands: 0,
            cycles: None,
            has_ended: false,
        };
        let sources = last.map_or(0, |last| last.sources.len());
        let mut check = Check { path, last, reach: vec![Reach::default(); sources] };
        if let Err(error) = self.walk_order(path, &summary, &mut look, &mut check, &mut found) {
            // The entries before the damage were read; the log's report has the damage already.
            if found.damage.is_empty() {
                found.trouble.push(error.chain());
            }
        }
        if let Some(last) = last {
            check.bounds(last, &summary, &look, &mut found);
        }
        (thing(path, "order log", None, What::Order(look), found), check.reach)
    }

    fn walk_order(
        &self,
        path: &Path,
        summary: &LogSummary,
        look: &mut OrderLook,
        check: &mut Check<'_>,
        found: &mut Found,
    ) -> Result<(), Error> {
        let mut reader =
            summary.read(std::sync::Arc::clone(&self.fs), path, summary.first()..summary.next())?;
        while let Some((position, bytes)) = reader.next_record()? {
            let block = order::block_of(bytes);
            let entry = match order::decode(bytes) {
                Ok(entry) => entry,
                Err(error) => {
                    check.misfit(look, position, error.message(), found);
                    break;
                }
            };
            if let Some((_, end)) = look.numbers
                && end != entry.range.start
            {
                let message = format!("expected an entry from number {end} on, got {}", entry.range.start);
                check.misfit(look, position, &message, found);
                break;
            }
            count(look, &entry);
            check.entry(look, position, &entry, block, found);
        }
        Ok(())
    }
}

fn count(look: &mut OrderLook, entry: &OrderEntry) {
    let SeqRange { start, end } = entry.range;
    look.numbers = Some((look.numbers.map_or(start, |(first, _)| first), end));
    match &entry.event {
        OrderEvent::Run { .. } => {
            look.runs += 1;
            look.records += entry.range.len();
        }
        OrderEvent::Tick { .. } => look.ticks += 1,
        OrderEvent::Cycle { number } => {
            look.cycles = Some((look.cycles.map_or(*number, |(first, _)| first), *number));
        }
        OrderEvent::Command { .. } => look.commands += 1,
        OrderEvent::End => {}
    }
    look.has_ended = matches!(entry.event, OrderEvent::End);
}

struct Check<'a> {
    path: &'a Path,
    last: Option<&'a CommitRecord>,
    /// By number of the source.
    reach: Vec<Reach>,
}

impl Check<'_> {
    fn misfit(&self, look: &OrderLook, position: LogPosition, message: &str, found: &mut Found) {
        let path = look.log.segment_of(position.0).unwrap_or_else(|| self.path.to_owned());
        found.misfit(path, format!("{position}: {message}"));
    }

    /// One entry against the commit record.
    fn entry(
        &mut self,
        look: &OrderLook,
        position: LogPosition,
        entry: &OrderEntry,
        block: Block,
        found: &mut Found,
    ) {
        let Some(last) = self.last else { return };
        if position.0 == last.order && entry.range.start != last.next {
            let message = format!(
                "the commit of cycle {} goes on with number {}, the entry begins with {}",
                last.cycle, last.next, entry.range.start
            );
            self.misfit(look, position, &message, found);
        }
        if position.0 + 1 == last.order
            && last.cycle > 0
            && entry.event != (OrderEvent::Cycle { number: last.cycle })
        {
            let message = format!("expected the marker of cycle {}, got {:?}", last.cycle, entry.event);
            self.misfit(look, position, &message, found);
        }
        let OrderEvent::Run { source, offset, .. } = entry.event else { return };
        let Some(reach) = self.reach.get_mut(source) else {
            self.misfit(look, position, &format!("source {source} is in no commit record"), found);
            return;
        };
        // What is before may have left the journal.
        if position.0 >= last.order {
            let named = Some((position, offset.saturating_add(entry.range.len())));
            reach.written = named;
            if block == Block::Synced {
                reach.synced = named;
            }
        }
    }

    /// The ends of the log against the commit record.
    fn bounds(&self, last: &CommitRecord, summary: &LogSummary, look: &OrderLook, found: &mut Found) {
        let (first, next) = (summary.first().0, summary.next().0);
        if !found.damage.is_empty() {
            return;
        }
        if last.order < first || last.order > next {
            let message = format!(
                "the commit of cycle {} goes on with record {}, the log holds {first} up to before {next}",
                last.cycle, last.order
            );
            found.damage.push(Damage::of_bounds(&look.log, self.path, last.order, message));
        } else if last.order == next
            && let Some((_, end)) = look.numbers
            && end != last.next
        {
            let message = format!(
                "the commit of cycle {} goes on with number {}, the log ends before {end}",
                last.cycle, last.next
            );
            self.misfit(look, summary.next(), &message, found);
        }
    }
}
