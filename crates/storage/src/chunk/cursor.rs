//! A place in foreign bytes: every step checks the remaining bytes and names the field that it reads.

use super::{CodecError, damaged};

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// Where `bytes` begins in the chunk, for messages.
    origin: u64,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], origin: u64) -> Self {
        Self { bytes, origin, at: 0 }
    }

    /// Position in the chunk.
    pub(super) fn pos(&self) -> u64 {
        self.origin + self.at as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], CodecError> {
        let rest = &self.bytes[self.at..];
        if rest.len() < len {
            return Err(damaged(
                self.pos(),
                what,
                format_args!("{len} bytes"),
                format_args!("{} bytes", rest.len()),
            ));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], CodecError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Result<u8, CodecError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Result<u16, CodecError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, CodecError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, CodecError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    pub(super) fn i64(&mut self, what: &'static str) -> Result<i64, CodecError> {
        Ok(i64::from_le_bytes(self.array(what)?))
    }
}
