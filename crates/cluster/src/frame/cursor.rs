//! A place in foreign bytes: every step checks the bytes that are left, and names the field that it reads.

use std::fmt;

use super::varint;
use super::{FrameError, Part};

#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    part: Part,
    /// Where `bytes` begin in the part.
    origin: u64,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], part: Part, origin: u64) -> Self {
        Self { bytes, part, origin, at: 0 }
    }

    /// Position in the part.
    pub(super) fn pos(&self) -> u64 {
        self.origin + self.at as u64
    }

    /// Bytes that are not read yet.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error that something at `pos` is not as it has to be.
    pub(super) fn damaged(
        &self,
        pos: u64,
        what: &'static str,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> FrameError {
        FrameError::Damaged {
            part: self.part,
            pos,
            what,
            expected: expected.to_string(),
            got: got.to_string(),
        }
    }

    /// Fails unless all bytes are read.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.damaged(self.pos(), "end", "no more bytes", left)),
        }
    }

    /// Goes on to a position that is not before this one.
    pub(super) fn skip_to(&mut self, pos: u64, what: &'static str) -> Result<(), FrameError> {
        let len = usize::try_from(pos - self.pos()).unwrap_or(usize::MAX);
        self.take(len, what).map(|_| ())
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FrameError> {
        let Some(taken) = self.bytes[self.at..].get(..len) else { return Err(self.short_of(len, what)) };
        self.at += len;
        Ok(taken)
    }

    /// Apart, so that what is read for each value is small enough to be inlined.
    #[cold]
    fn short_of(&self, len: usize, what: &'static str) -> FrameError {
        let got = format_args!("{} bytes", self.left()).to_string();
        self.damaged(self.pos(), what, format_args!("{len} bytes"), got)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    #[inline]
    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, FrameError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    #[inline]
    pub(super) fn varint(&mut self, what: &'static str) -> Result<u64, FrameError> {
        let Some((value, len)) = varint::get(&self.bytes[self.at..]) else {
            return Err(self.no_varint(what));
        };
        self.at += len;
        Ok(value)
    }

    #[cold]
    fn no_varint(&self, what: &'static str) -> FrameError {
        if self.left() < varint::MOST && self.bytes[self.at..].iter().all(|byte| *byte >= 0x80) {
            return self.short_of(self.left() + 1, what);
        }
        self.damaged(self.pos(), what, "a number of 64 bits", "a longer one")
    }

    #[inline]
    pub(super) fn signed(&mut self, what: &'static str) -> Result<i64, FrameError> {
        Ok(varint::unfold(self.varint(what)?))
    }

    /// Reads as many signed numbers as a column has.
    #[inline]
    pub(super) fn each_signed(
        &mut self,
        count: usize,
        what: &'static str,
        mut see: impl FnMut(i64),
    ) -> Result<(), FrameError> {
        for _ in 0..count {
            let Some((value, len)) = varint::get(&self.bytes[self.at..]) else {
                return Err(self.no_varint(what));
            };
            self.at += len;
            see(varint::unfold(value));
        }
        Ok(())
    }

    /// Reads as many texts as a column has, each after its length; `see` gets their positions, too.
    #[inline]
    pub(super) fn each_text(
        &mut self,
        count: usize,
        what: &'static str,
        mut see: impl FnMut(&'a [u8], u64),
    ) -> Result<(), FrameError> {
        for _ in 0..count {
            let Some((len, taken)) = varint::get(&self.bytes[self.at..]) else {
                return Err(self.no_varint(what));
            };
            let rest = &self.bytes[self.at + taken..];
            let Some(text) = usize::try_from(len).ok().and_then(|len| rest.get(..len)) else {
                let most = format_args!("at most {}", rest.len());
                return Err(self.damaged(self.pos(), what, most, len));
            };
            self.at += taken;
            see(text, self.pos());
            self.at += text.len();
        }
        Ok(())
    }

    /// A number of 32 bits.
    pub(super) fn short(&mut self, what: &'static str) -> Result<u32, FrameError> {
        let pos = self.pos();
        let value = self.varint(what)?;
        u32::try_from(value).map_err(|_| self.damaged(pos, what, "a number of 32 bits", value))
    }

    /// A count between two bounds, which allocate nothing by themselves.
    pub(super) fn count(
        &mut self,
        what: &'static str,
        least: usize,
        most: usize,
    ) -> Result<usize, FrameError> {
        let pos = self.pos();
        let value = self.varint(what)?;
        let count = usize::try_from(value).ok().filter(|count| (least..=most).contains(count));
        count.ok_or_else(|| self.damaged(pos, what, format_args!("{least} to {most}"), value))
    }
}
