//! Numbers, texts and addresses as XDR writes them (RFC 4506): big-endian, in units of four bytes.
//!
//! Nothing is read beyond the end of the slice: a value that does not fit is `None`. One of variable length is padded
//! to four bytes; the padding of the last item may be missing, as several agents send it.

/// Reads a slice from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Xdr<'a> {
    rest: &'a [u8],
}

/// An address as `::ffff:a.b.c.d` or IPv6; `None` inside an [`Xdr::address`] of the unknown type.
pub(crate) type Address = [u8; 16];

impl<'a> Xdr<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `N` bytes as they are.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn f32(&mut self) -> Option<f32> {
        self.array().map(f32::from_be_bytes)
    }

    /// A MAC address, which takes eight bytes.
    pub(super) fn mac(&mut self) -> Option<[u8; 6]> {
        self.array::<8>().map(|[a, b, c, d, e, f, ..]| [a, b, c, d, e, f])
    }

    pub(super) fn v4(&mut self) -> Option<Address> {
        self.array().map(from_v4)
    }

    pub(super) fn v6(&mut self) -> Option<Address> {
        self.array()
    }

    /// A type and an address of that type. The inner `None` is the type "unknown", which has no bytes.
    #[inline]
    pub(super) fn address(&mut self) -> Option<Option<Address>> {
        match self.u32()? {
            0 => Some(None),
            1 => self.v4().map(Some),
            2 => self.v6().map(Some),
            _ => None,
        }
    }

    /// The next `length` bytes and their padding.
    #[inline]
    pub(super) fn padded(&mut self, length: usize) -> Option<&'a [u8]> {
        let bytes = self.rest.get(..length)?;
        // Cannot overflow: `length` is within the slice.
        let padded = length.next_multiple_of(4).min(self.rest.len());
        self.rest = &self.rest[padded..];
        Some(bytes)
    }

    /// A length and that many bytes.
    pub(super) fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.padded(length)
    }

    /// A list of numbers, not copied.
    pub(super) fn numbers(&mut self) -> Option<Numbers<'a>> {
        let count = self.u32()? as usize;
        let bytes = self.rest.get(..count.checked_mul(4)?)?;
        self.rest = &self.rest[bytes.len()..];
        Some(Numbers(bytes))
    }
}

/// An IPv4 address in the form that all addresses of Thalweg have.
#[inline]
pub(crate) fn from_v4([a, b, c, d]: [u8; 4]) -> Address {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Numbers of four bytes each.
#[derive(Clone, Debug)]
pub(super) struct Numbers<'a>(&'a [u8]);

impl Iterator for Numbers<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }
}

/// One piece of a list of tagged pieces: samples of a datagram, records of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    /// Enterprise in the upper 20 bits, format in the lower 12.
    pub(super) tag: u32,
    pub(super) body: &'a [u8],
    /// It claims to be longer than the rest: the body ends where the bytes do.
    pub(super) is_cut: bool,
}

/// Walks tagged pieces (tag 4, length 4, body padded to four bytes), as many as were announced or are there.
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    xdr: Xdr<'a>,
    left: u32,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(xdr: Xdr<'a>, announced: u32) -> Self {
        Self { xdr, left: announced }
    }

    /// How many were announced and have not come.
    pub(super) fn left(&self) -> u32 {
        self.left
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        if self.left == 0 {
            return None;
        }
        let tag = self.xdr.u32()?;
        let length = self.xdr.u32()? as usize;
        self.left -= 1;
        let is_cut = length > self.xdr.rest().len();
        let body = self.xdr.padded(length.min(self.xdr.rest().len()))?;
        Some(Piece { tag, body, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let bytes = [0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e'];
        let mut xdr = Xdr::new(&bytes);
        assert_eq!(xdr.opaque(), Some(&b"abcde"[..]), "the last item needs no padding");
        assert!(xdr.is_empty());
        assert_eq!(Xdr::new(&bytes[..8]).opaque(), None);
        assert_eq!(Xdr::new(&[0xff; 12]).opaque(), None);
        assert_eq!(Xdr::new(&[0xff; 12]).numbers().map(Iterator::count), None);
        assert_eq!(Xdr::new(&[0, 0, 0, 1, 1, 2, 3]).address(), None);
        assert_eq!(Xdr::new(&[0, 0, 0, 3, 1, 2, 3, 4]).address(), None, "there is no type 3");
        assert_eq!(Xdr::new(&[0, 0, 0, 0]).address(), Some(None));
    }

    #[test]
    fn a_piece_that_is_too_long_is_cut_and_the_rest_is_missing() {
        let mut bytes = Vec::new();
        for (length, body) in [(5_u32, &b"abcde\0\0\0"[..]), (100, b"rest")] {
            bytes.extend(7_u32.to_be_bytes());
            bytes.extend(length.to_be_bytes());
            bytes.extend(body);
        }
        let mut pieces = Pieces::new(Xdr::new(&bytes), 3);
        let read: Vec<(&[u8], bool)> = pieces.by_ref().map(|piece| (piece.body, piece.is_cut)).collect();
        assert_eq!(read, [(&b"abcde"[..], false), (b"rest", true)]);
        assert_eq!(pieces.left(), 1);
    }
}
