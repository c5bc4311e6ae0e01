//! A source's journal: which of its records it holds, and whether its blocks follow each other.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_connect::source::BlockCodec;
use thalweg_flow::Payload;
use thalweg_storage::log::{LogPosition, LogSummary};
use thalweg_types::Error;

use super::order::JournalEnd;
use super::report::{Damage, JournalLook, LogLook, Thing, What, thing};
use super::{Found, Looker, Whose, source_name};
use crate::durable::record::CommittedSource;
use crate::durable::{journal, of_run, place_in_journal};

/// Record of its journal with which a source goes on: the only place that has eight bytes.
pub(super) fn place_of(source: &CommittedSource) -> Option<u64> {
    if source.place.0.is_empty() {
        return None;
    }
    place_in_journal(&source.place).ok().map(|place| place.0)
}

impl Looker {
    /// The journal in a folder, and where it ends; with the job's name and what its commit record
    /// says of the source it is held against that.
    pub(super) fn journal(
        &self,
        path: &Path,
        committed: Option<(&Whose, &CommittedSource)>,
    ) -> (Thing, Option<JournalEnd>) {
        let mut found = Found::default();
        let folder = path.file_name().map(|name| source_name(&name.to_string_lossy()));
        let of = committed.map(|(_, source)| source.name.clone()).or(folder);
        let identity =
            committed.map(|(whose, source)| of_run(journal::identity(&whose.job, &source.name), whose.run));
        let Some(summary) = self.log(path, identity, &mut found) else {
            return (thing(path, "journal", of, What::Unread, found), None);
        };
        let mut look = JournalLook { log: LogLook::of(&summary), offsets: None, payload_bytes: 0 };
        let source = committed.map(|(_, source)| source);
        if let Err(error) = self.walk_journal(path, &summary, source, &mut look, &mut found)
            && found.damage.is_empty()
        {
            found.trouble.push(error.chain());
        }
        if let Some(source) = source
            && found.damage.is_empty()
        {
            check_ends(path, &summary, source, &look, &mut found);
        }
        let offset = look.offsets.map(|(_, end)| end).or(source.map(|source| source.next));
        let last = summary.segments.last();
        let end = offset.map(|offset| JournalEnd {
            offset,
            path: last.map_or(path, |last| &last.path).to_owned(),
            byte: last.map(|last| last.bytes),
        });
        (thing(path, "journal", of, What::Journal(look), found), end)
    }

    fn walk_journal(
        &self,
        path: &Path,
        summary: &LogSummary,
        source: Option<&CommittedSource>,
        look: &mut JournalLook,
        found: &mut Found,
    ) -> Result<(), Error> {
        let codec = BlockCodec::new(None);
        let goes_on = source.and_then(place_of).map(LogPosition);
        let mut reader = summary.read(Arc::clone(&self.fs), path, summary.first()..summary.next())?;
        while let Some((position, bytes)) = reader.next_record()? {
            let mut misfit = |message: String| {
                let path = look.log.segment_of(position.0).unwrap_or_else(|| path.to_owned());
                found.misfit(path, format!("{position}: {message}"));
            };
            let block = match codec.decode(&Bytes::copy_from_slice(bytes)) {
                Ok(left) => left.block,
                Err(error) => {
                    misfit(error.message().to_owned());
                    break;
                }
            };
            if let Some((_, end)) = look.offsets
                && end != block.first
            {
                misfit(format!("expected a block from offset {end} on, got {}", block.first));
                break;
            }
            if let Some(source) = source
                && goes_on == Some(position)
                && block.first != source.next
            {
                misfit(format!(
                    "the commit goes on with offset {}, the block begins with {}",
                    source.next, block.first
                ));
            }
            let first = look.offsets.map_or(block.first, |(first, _)| first);
            look.offsets = Some((first, block.first + u64::from(block.count)));
            if let Payload::Bytes { data, .. } = &block.payload {
                look.payload_bytes += data.len() as u64;
            }
        }
        Ok(())
    }
}

/// The ends of a journal against the commit record.
fn check_ends(
    path: &Path,
    summary: &LogSummary,
    source: &CommittedSource,
    look: &JournalLook,
    found: &mut Found,
) {
    let (first, next) = (summary.first().0, summary.next().0);
    // Before its first commit the source is at its first position.
    let Some(place) = place_of(source).or(source.place.0.is_empty().then_some(0)) else { return };
    let file = look.log.segment_of(place).unwrap_or_else(|| path.to_owned());
    if place < first || place > next {
        let message =
            format!("the commit goes on with record {place}, the journal holds {first} up to before {next}");
        found.damage.push(Damage::of_bounds(&look.log, path, place, message));
    } else if place == next
        && let Some((_, end)) = look.offsets
        && end != source.next
    {
        found.misfit(
            file,
            format!("the commit goes on with offset {}, the journal ends before {end}", source.next),
        );
    }
}
