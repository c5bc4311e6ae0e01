//! Little-endian fields of fixed width, read with a check of the length.

/// Reads fields one after the other; `None` where the bytes end.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Bytes with the checksum of all before it at their end; the bytes before it if it holds.
///
/// # Errors
/// The checksum that is there, and that of the bytes.
pub fn checked(bytes: &[u8]) -> Result<&[u8], (u32, u32)> {
    let (content, stored) = bytes.split_last_chunk::<4>().ok_or((0, bytes.len() as u32))?;
    let (stored, actual) = (u32::from_le_bytes(*stored), crc32fast::hash(content));
    if stored == actual { Ok(content) } else { Err((stored, actual)) }
}

/// Appends the checksum of `bytes` to them.
pub fn seal(bytes: &mut Vec<u8>) {
    let crc = crc32fast::hash(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}
