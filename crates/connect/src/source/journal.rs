//! Blocks as a journal keeps them: raw, as received, with their context from the source.
//!
//! A record of the journal is one block: version 1, flags 1, partition 4, first offset 8, count 4, arrival 8, then
//! parts by the flags (first line 8; preamble, code and reason of a refusal, each with its length 4), then the records,
//! to the end. All numbers are little-endian. The journal's frames have checksums; a record that does not fit this
//! layout is damaged all the same.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use thalweg_flow::{Payload, RawBlock};
use thalweg_types::{Error, Micros, Offset, format_size};

use super::BlockContext;
use super::cut::MAX_BLOCK;
use crate::format::{DEFAULT_MAX_RECORD, RecordFormat};

/// Persisted.
const VERSION: u8 = 2;

/// The version without an arrival, which is read.
const WITHOUT_ARRIVAL: u8 = 1;

const HAS_LINE: u8 = 1;
const HAS_PREAMBLE: u8 = 2;
const IS_REFUSED: u8 = 4;
const IS_TOLD: u8 = 8;

/// Flags that make a [`BlockContext`].
const OF_CONTEXT: u8 = HAS_LINE | HAS_PREAMBLE | IS_REFUSED;

/// Bytes of a record up to its count.
const RANGE: usize = 18;

/// Bytes of a record before the parts by its flags.
const HEAD: usize = RANGE + 8;

/// Bytes of the longest record of a journal: a block and its preamble at their longest, and 1 MiB for the head with
/// the reason of a refusal.
const MAX_BYTES: usize = 2 * DEFAULT_MAX_RECORD + (1 << 20);
const _: () = assert!(2 * MAX_BLOCK + HEAD + 8 + 3 * 4 < MAX_BYTES);

/// A block as a journal holds it.
pub struct JournalBlock {
    pub block: RawBlock,
    /// The job's clock when it was received; builds that wrote version 1 did not keep it.
    pub arrival: Option<Micros>,
    /// Answers may have been given to it as soon as it was durable.
    pub is_told: bool,
}

/// Writes blocks of one source into records of a journal, and makes them again.
pub struct BlockCodec {
    /// For preambles; a source without a format has none.
    format: Option<Arc<dyn RecordFormat>>,
}

impl BlockCodec {
    pub fn new(format: Option<Arc<dyn RecordFormat>>) -> Self {
        Self { format }
    }

    /// Bytes that a record of the journal may have.
    pub const MAX_BYTES: usize = MAX_BYTES;

    /// Checks that every record that the format accepts fits into a journal.
    ///
    /// # Errors
    /// Of class user if `max_record` is too large.
    pub fn check(&self) -> Result<(), Error> {
        let longest = self.format.as_ref().map_or(0, |format| format.max_record());
        if longest <= DEFAULT_MAX_RECORD {
            return Ok(());
        }
        let (most, longest) = (format_size(DEFAULT_MAX_RECORD as u64), format_size(longest as u64));
        Err(Error::user(format!("max_record: a journal takes records of at most {most}, got {longest}"))
            .with_hint(format!("lower max_record to {most}, or run the job without a data directory")))
    }

    /// The record of a block, but for its payload, which follows: so that the payload is not copied for it. `arrival`
    /// is the job's clock when it was received; `is_told` that answers may be given to it as soon as it is durable.
    ///
    /// # Errors
    /// For a payload that is not bytes.
    pub fn encode<'a>(
        &self,
        block: &'a RawBlock,
        arrival: Micros,
        is_told: bool,
        head: &mut Vec<u8>,
    ) -> Result<&'a [u8], Error> {
        let Payload::Bytes { data, context } = &block.payload else {
            return Err(Error::internal("a journal keeps blocks of bytes, got another"));
        };
        let context = context.as_ref().and_then(|context| context.downcast_ref::<BlockContext>());
        let first_line = context.and_then(|context| context.first_line);
        let preamble = context.and_then(|context| context.preamble_text.as_ref());
        let refused = context.and_then(|context| context.refused.as_ref());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        head.clear();
        head.push(VERSION);
        head.push(
            flag(first_line.is_some(), HAS_LINE)
                | flag(preamble.is_some(), HAS_PREAMBLE)
                | flag(refused.is_some(), IS_REFUSED)
                | flag(is_told, IS_TOLD),
        );
        head.extend_from_slice(&block.partition.to_le_bytes());
        head.extend_from_slice(&block.first.to_le_bytes());
        head.extend_from_slice(&block.count.to_le_bytes());
        head.extend_from_slice(&arrival.to_le_bytes());
        if let Some(line) = first_line {
            head.extend_from_slice(&line.to_le_bytes());
        }
        if let Some(preamble) = preamble {
            push_text(preamble, head);
        }
        if let Some((code, reason)) = refused {
            push_text(code.as_bytes(), head);
            push_text(reason.as_bytes(), head);
        }
        Ok(data)
    }

    /// The first offset and the count of the block in a record, without a look at the rest.
    ///
    /// # Errors
    /// If it is not the record of a block, or a newer build wrote it.
    pub fn range(record: &[u8]) -> Result<(Offset, u32), Error> {
        let mut head = record.get(..RANGE).ok_or_else(|| damaged("it is too short"))?;
        match head.get_u8() {
            VERSION | WITHOUT_ARRIVAL => {}
            0 => return Err(damaged("it has no version")),
            newer => {
                return Err(Error::user(format!(
                    "a record of the journal has version {newer}, and this build reads {VERSION}"
                ))
                .with_hint("run the build that wrote it, or a newer one"));
            }
        }
        head.advance(1 + 4);
        Ok((head.get_u64_le(), head.get_u32_le()))
    }

    /// The block in a record.
    ///
    /// # Errors
    /// If it is not the record of a block.
    pub fn decode(&self, record: &Bytes) -> Result<JournalBlock, Error> {
        let (first, count) = Self::range(record)?;
        let (version, flags) = (record[0], record[1]);
        let partition = record.slice(2..6).get_u32_le();
        let mut rest = record.slice(RANGE..);
        let arrival = if version == WITHOUT_ARRIVAL {
            None
        } else {
            Some(rest.try_get_i64_le().map_err(|_| damaged("its arrival is missing"))?)
        };
        let first_line = if flags & HAS_LINE != 0 {
            Some(rest.try_get_u64_le().map_err(|_| damaged("its line is missing"))?)
        } else {
            None
        };
        let preamble_text = if flags & HAS_PREAMBLE != 0 { Some(take_text(&mut rest)?) } else { None };
        let preamble = match (&preamble_text, &self.format) {
            (Some(text), Some(format)) => {
                let mut splitter = format.splitter();
                splitter.split(0, text, false)?;
                splitter.preamble()
            }
            _ => None,
        };
        let refused = if flags & IS_REFUSED != 0 {
            Some((take_string(&mut rest)?, take_string(&mut rest)?))
        } else {
            None
        };
        let context = (flags & OF_CONTEXT != 0).then(|| {
            let context =
                BlockContext { first_line, preamble, preamble_text, refused, ..BlockContext::default() };
            Arc::new(context) as Arc<dyn std::any::Any + Send + Sync>
        });
        let block = RawBlock { partition, first, count, payload: Payload::Bytes { data: rest, context } };
        Ok(JournalBlock { block, arrival, is_told: flags & IS_TOLD != 0 })
    }
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    // Bounded by the longest record, which is below 2^30.
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn take_text(rest: &mut Bytes) -> Result<Bytes, Error> {
    let length = rest.try_get_u32_le().map_err(|_| damaged("a length is missing"))? as usize;
    if length > rest.len() {
        return Err(damaged("a length reaches beyond its end"));
    }
    Ok(rest.split_to(length))
}

fn take_string(rest: &mut Bytes) -> Result<Cow<'static, str>, Error> {
    let text = take_text(rest)?;
    let text = std::str::from_utf8(&text).map_err(|_| damaged("a text is no UTF-8"))?;
    Ok(Cow::Owned(text.to_owned()))
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("a record of the journal is no block: {what}"))
}
