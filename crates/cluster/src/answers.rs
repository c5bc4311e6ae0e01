//! Answers on their way back to a door: one message for the records of one incarnation of it.
//!
//! Layout (little-endian): magic 3, version 1, CRC-32 of all other bytes 4, incarnation 8, number of answers as a varint;
//! then of each its request less that of the one before, zigzag, the length of its line, and the line. A request is a
//! number that the door gave, and a line a record as JSON, without its end; an empty line says that the record has no answer.
//!
//! A message without answers is a *refusal*: a unit has dropped rows of this incarnation, as rows before them have not come,
//! and takes none of it any more. The door goes on as another one.
//!
//! Both are sent and forgotten: nothing hangs on their arrival.

use crate::frame::varint;

/// Persisted for as long as a topic keeps messages.
const MAGIC: [u8; 3] = *b"\xf7TA";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 4;
const BODY: usize = 8;

/// Answers for one incarnation of a door, as they grow.
#[derive(Debug)]
pub struct AnswersBuilder {
    bytes: Vec<u8>,
    count: u64,
    last: u64,
}

impl AnswersBuilder {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), count: 0, last: 0 }
    }

    /// Adds the answer to a request.
    pub fn push(&mut self, request: u64, line: &[u8]) {
        varint::put_signed(request.wrapping_sub(self.last) as i64, &mut self.bytes);
        varint::put(line.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(line);
        self.last = request;
        self.count += 1;
    }

    /// Bytes of the answers so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The message for this incarnation; without answers a refusal.
    pub fn finish(self, incarnation: u64) -> Vec<u8> {
        let mut message = Vec::with_capacity(BODY + 18 + self.bytes.len());
        message.extend_from_slice(&MAGIC);
        message.push(VERSION);
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(&incarnation.to_le_bytes());
        varint::put(self.count, &mut message);
        message.extend_from_slice(&self.bytes);
        let checksum = checksum(&message);
        message[CHECKSUM_AT..BODY].copy_from_slice(&checksum.to_le_bytes());
        message
    }
}

impl Default for AnswersBuilder {
    fn default() -> Self {
        Self::new()
    }
}

fn checksum(message: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&message[..CHECKSUM_AT]);
    hasher.update(&message[BODY..]);
    hasher.finalize()
}

/// The answers of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<'a> {
    pub incarnation: u64,
    /// Requests and their lines.
    pub answers: Vec<(u64, &'a [u8])>,
}

/// A message that holds no answers that this program can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} bytes are no answers for a door{}", bytes, if *.is_newer { ": a newer version wrote them" } else { "" })]
pub struct NoAnswers {
    pub bytes: usize,
    pub is_newer: bool,
}

impl<'a> Answers<'a> {
    /// Whether a unit takes no rows of this incarnation any more.
    pub fn is_refusal(&self) -> bool {
        self.answers.is_empty()
    }

    /// # Errors
    /// Where the message is damaged, another one, or of a newer version.
    pub fn parse(message: &'a [u8]) -> Result<Self, NoAnswers> {
        let none = |is_newer| NoAnswers { bytes: message.len(), is_newer };
        let rest = message.strip_prefix(&MAGIC).ok_or_else(|| none(false))?;
        let written = message.get(CHECKSUM_AT..BODY).and_then(|bytes| bytes.try_into().ok());
        let written = written.map(u32::from_le_bytes).ok_or_else(|| none(false))?;
        if rest[0] > VERSION {
            return Err(none(true));
        }
        if written != checksum(message) {
            return Err(none(false));
        }
        Self::read(&message[BODY..]).ok_or_else(|| none(false))
    }

    fn read(rest: &'a [u8]) -> Option<Self> {
        let (incarnation, mut rest) = rest.split_first_chunk::<8>()?;
        let count = varint::take(&mut rest)?;
        let mut answers = Vec::new();
        let mut last = 0_u64;
        for _ in 0..count {
            last = last.wrapping_add(varint::take_signed(&mut rest)? as u64);
            let length = usize::try_from(varint::take(&mut rest)?).ok()?;
            let (line, after) = rest.split_at_checked(length)?;
            answers.push((last, line));
            rest = after;
        }
        rest.is_empty().then_some(Self { incarnation: u64::from_le_bytes(*incarnation), answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_and_every_changed_or_missing_byte_is_found() {
        let answers: [(u64, &[u8]); 4] = [(7, b"{}"), (3, b""), (u64::MAX, b"{\"n\":1}"), (0, b"x")];
        let mut builder = AnswersBuilder::new();
        assert!(builder.is_empty());
        answers.iter().for_each(|(request, line)| builder.push(*request, line));
        assert!(!builder.is_empty() && builder.len() > 10);
        let message = builder.finish(99);
        let parsed = Answers::parse(&message).unwrap();
        assert_eq!(parsed, Answers { incarnation: 99, answers: answers.to_vec() });
        assert!(!parsed.is_refusal());
        for at in 0..message.len() {
            let mut bad = message.clone();
            bad[at] ^= 0x10;
            assert!(Answers::parse(&bad).is_err(), "byte {at}");
            assert!(Answers::parse(&message[..at]).is_err(), "cut to {at}");
        }
        let mut newer = message;
        newer[3] = VERSION + 1;
        assert!(Answers::parse(&newer).unwrap_err().is_newer);
        let refusal = AnswersBuilder::new().finish(1);
        let refusal = Answers::parse(&refusal).unwrap();
        assert_eq!((refusal.incarnation, refusal.is_refusal()), (1, true));
    }
}
