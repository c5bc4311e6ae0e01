//! The records of an order log or a journal, one by one.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use thalweg_connect::source::{BlockCodec, BlockContext, JournalBlock};
use thalweg_flow::{OrderEvent, Payload};
use thalweg_storage::Fs;
use thalweg_storage::log::{self, LogPosition};
use thalweg_types::{Error, Micros, Offset, PartitionId, Seq};

use super::{Thing, What};
use crate::durable::order;

/// A record of a log, read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    Run {
        record: u64,
        number: Seq,
        count: u64,
        source: u64,
        partition: PartitionId,
        offset: Offset,
        arrival: Micros,
    },
    Tick {
        record: u64,
        number: Seq,
        now: Micros,
    },
    Cycle {
        record: u64,
        number: Seq,
        cycle: u64,
    },
    /// A command, with the work that a replay repeats.
    Command {
        record: u64,
        number: Seq,
        text: Option<String>,
    },
    End {
        record: u64,
        number: Seq,
    },
    /// A block of a journal.
    Block {
        record: u64,
        partition: PartitionId,
        offset: Offset,
        count: u64,
        bytes: u64,
        /// The job's clock when it was received; builds that wrote version 1 of the block did not keep it.
        #[serde(skip_serializing_if = "Option::is_none")]
        arrival: Option<Micros>,
        /// Code and reason, of records that were refused on arrival.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
}

/// Gives every record of a thing's log in `range` to `visit`, a block with its bytes; none where it has no such
/// records. Records that are not there any more are passed over.
///
/// # Errors
/// Damage, the disk's errors, and what `visit` says.
pub fn entries<E: From<Error>>(
    fs: &Arc<dyn Fs>,
    thing: &Thing,
    range: &Range<u64>,
    mut visit: impl FnMut(&Entry, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if !matches!(thing.what, What::Order(_) | What::Journal(_)) {
        return Ok(());
    }
    let summary = log::inspect(fs.as_ref(), &thing.path).map_err(Error::from)?;
    let (first, next) = (summary.first().0, summary.next().0);
    let (from, to) = (range.start.clamp(first, next), range.end.clamp(first, next));
    let bounds = LogPosition(from)..LogPosition(to.max(from));
    let mut reader = summary.read(Arc::clone(fs), &thing.path, bounds).map_err(Error::from)?;
    while let Some((position, bytes)) = reader.next_record().map_err(Error::from)? {
        match thing.what {
            What::Order(_) => visit(&order_entry(position.0, bytes)?, &[])?,
            _ => {
                let (entry, payload) = block(position.0, bytes)?;
                visit(&entry, &payload)?;
            }
        }
    }
    Ok(())
}

fn order_entry(record: u64, bytes: &[u8]) -> Result<Entry, Error> {
    let entry = order::decode(bytes)?;
    let number = entry.range.start;
    Ok(match entry.event {
        OrderEvent::Run { source, partition, offset, arrival } => {
            let (count, source) = (entry.range.len(), source as u64);
            Entry::Run { record, number, count, source, partition, offset, arrival }
        }
        OrderEvent::Tick { now } => Entry::Tick { record, number, now },
        OrderEvent::Cycle { number: cycle } => Entry::Cycle { record, number, cycle },
        OrderEvent::Command { record: text } => {
            let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
            Entry::Command { record, number, text }
        }
        OrderEvent::End => Entry::End { record, number },
    })
}

fn block(record: u64, bytes: &[u8]) -> Result<(Entry, Bytes), Error> {
    let JournalBlock { block, arrival, .. } = BlockCodec::new(None).decode(&Bytes::copy_from_slice(bytes))?;
    let (data, context) = match block.payload {
        Payload::Bytes { data, context } => (data, context),
        _ => (Bytes::new(), None),
    };
    let refused = context.as_ref().and_then(|context| {
        let (code, reason) = context.downcast_ref::<BlockContext>()?.refused.as_ref()?;
        Some(format!("{code}: {reason}"))
    });
    let entry = Entry::Block {
        record,
        partition: block.partition,
        offset: block.first,
        count: u64::from(block.count),
        bytes: data.len() as u64,
        arrival,
        refused,
    };
    Ok((entry, data))
}
