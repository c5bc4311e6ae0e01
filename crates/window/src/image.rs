//! State as bytes: what a checkpoint keeps of groups, rows, ids and plans.
//!
//! Numbers are varints (seven bits a byte, the lowest first; signed ones zigzag), so that small ones, which most are,
//! take one byte. Wide sums are two's complement without the bytes that only repeat the sign.
//!
//! Invariants
//! * Reading any bytes ends with a value or [`Malformed`], never a panic, and what it allocates is bounded by the bytes
//!   at hand.
//! * What is sealed ([`seal`]) carries a checksum of its key and its bytes, so that a value under another key is refused
//!   as well as one with a bit flipped.
//!
//! Not here: what the bytes mean (each state's own `save` and `load`), where they are kept (a back end).

use thalweg_types::Error;

/// Bytes that differ from those that were written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, got {got} (byte {pos})")]
pub struct Malformed {
    /// Position from the first byte of the value.
    pub pos: usize,
    pub what: &'static str,
    pub expected: String,
    pub got: String,
    /// A newer build wrote them, and they are whole.
    pub is_newer: bool,
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        if malformed.is_newer {
            return Error::user(format!("checkpoint of a newer build: {malformed}"))
                .with_hint("run the build that wrote it, or a newer one");
        }
        Error::corrupt(format!("damage in a checkpoint: {malformed}"))
            .with_hint("restore the data directory from a copy, or start the job anew in an empty one")
    }
}

/// Appends an unsigned number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let (mut bytes, mut len) = ([0; MOST_DIGITS], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

/// Bytes of the longest number: seven bits in each.
const MOST_DIGITS: usize = 10;

/// Appends a signed number.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends bytes after their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a two's complement integer of little-endian bytes, as short as its value allows.
pub(crate) fn put_wide(out: &mut Vec<u8>, bytes: &[u8]) {
    let sign = if bytes.last().is_some_and(|top| top >> 7 == 1) { 0xff } else { 0 };
    let mut len = bytes.len();
    // Bytes that only repeat the sign, word by word.
    while let Some(word) = bytes[..len].last_chunk() {
        let differs = u64::from_le_bytes(*word) ^ u64::from_le_bytes([sign; 8]);
        len -= differs.leading_zeros() as usize / 8;
        if differs != 0 {
            break;
        }
    }
    while len > 0 && bytes[len - 1] == sign {
        len -= 1;
    }
    // The bit at the top is the sign's.
    let says_sign = bytes[..len].last().map_or(sign == 0, |top| top >> 7 == sign >> 7);
    put_bytes(out, &bytes[..len + usize::from(!says_sign)]);
}

/// A place in bytes that are not trusted.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The longest of the byte strings that were read.
    longest: usize,
    /// Version of the layout of what the bytes are a part of; the newest where nobody says so.
    version: u8,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self::of_version(bytes, u8::MAX)
    }

    /// Of a part of a value, the layout of which has a version of its own.
    pub(crate) fn of_version(bytes: &'a [u8], version: u8) -> Self {
        Self { bytes, at: 0, longest: 0, version }
    }

    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// An error at the present place.
    pub(crate) fn malformed(
        &self,
        what: &'static str,
        expected: impl std::fmt::Display,
        got: impl std::fmt::Display,
    ) -> Malformed {
        let (expected, got) = (expected.to_string(), got.to_string());
        Malformed { pos: self.at, what, expected, got, is_newer: false }
    }

    /// Bytes of the longest byte string that was read so far.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let Some(taken) = self.bytes[self.at..].get(..len) else {
            return Err(self.malformed(
                what,
                format_args!("{len} bytes"),
                format_args!("{} bytes", self.left()),
            ));
        };
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn flag(&mut self, what: &'static str) -> Result<bool, Malformed> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.malformed(what, "0 or 1", other)),
        }
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed(what, "a number of 64 bits", "more"))
    }

    pub(crate) fn signed(&mut self, what: &'static str) -> Result<i64, Malformed> {
        let value = self.number(what)?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number that fits 32 bits.
    pub(crate) fn word(&mut self, what: &'static str) -> Result<u32, Malformed> {
        let value = self.number(what)?;
        u32::try_from(value).map_err(|_| self.malformed(what, "a number of 32 bits", value))
    }

    /// How many things follow, each of which takes at least a byte.
    pub(crate) fn count(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let count = self.number(what)?;
        self.fits(count, what)
    }

    /// A number of things that follow, each of which takes at least a byte.
    pub(crate) fn fits(&self, count: u64, what: &'static str) -> Result<usize, Malformed> {
        let fits = usize::try_from(count).ok().filter(|count| *count <= self.left());
        fits.ok_or_else(|| self.malformed(what, format_args!("at most {}", self.left()), count))
    }

    /// A number below `bound`: a place in a list.
    pub(crate) fn place(&mut self, bound: usize, what: &'static str) -> Result<usize, Malformed> {
        let place = self.number(what)?;
        let fits = usize::try_from(place).ok().filter(|place| *place < bound);
        fits.ok_or_else(|| self.malformed(what, format_args!("below {bound}"), place))
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.count(what)?;
        self.longest = self.longest.max(len);
        self.take(len, what)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let bytes = self.bytes(what)?;
        std::str::from_utf8(bytes).map_err(|error| self.malformed(what, "UTF-8", error))
    }

    /// What [`put_wide`] wrote, in `N` bytes.
    pub(crate) fn wide<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(what)?;
        if bytes.len() > N {
            return Err(self.malformed(what, format_args!("at most {N} bytes"), bytes.len()));
        }
        let sign = if bytes.last().is_some_and(|top| top >> 7 == 1) { 0xff } else { 0 };
        let mut array = [sign; N];
        array[..bytes.len()].copy_from_slice(bytes);
        Ok(array)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.left() == 0
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    pub(crate) fn finish(&self, what: &'static str) -> Result<(), Malformed> {
        match self.left() {
            0 => Ok(()),
            left => Err(self.malformed(what, "its end", format_args!("{left} bytes more"))),
        }
    }
}

/// First byte of a sealed value, the last four of which are a checksum whatever its number. Persisted: another layout
/// gets another number.
pub(crate) const VERSION: u8 = 1;

/// Appends a value to `out`: the version of its layout, what `body` appends, a checksum of `key` and all that.
pub(crate) fn seal(version: u8, key: &[u8], out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(version);
    body(out);
    let crc = checksum(key, &out[start..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

/// The body of a sealed value.
///
/// # Errors
/// [`Malformed`] where the version is another or the checksum is not that of `key` and `value`.
pub(crate) fn open<'a>(key: &[u8], value: &'a [u8]) -> Result<Reader<'a>, Malformed> {
    open_to(VERSION, key, value).map(|(_, reader)| reader)
}

/// Version and body of a value whose layout has a version of its own, of which `newest` is the newest.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_to<'a>(newest: u8, key: &[u8], value: &'a [u8]) -> Result<(u8, Reader<'a>), Malformed> {
    let mut reader = Reader::new(value);
    let version = reader.byte("format version")?;
    let Some((body, crc)) = value.split_last_chunk::<4>().filter(|(body, _)| !body.is_empty()) else {
        return Err(reader.malformed("checksum", "4 bytes", format_args!("{} bytes", reader.left())));
    };
    let (expected, got) = (u32::from_le_bytes(*crc), checksum(key, body));
    if expected != got {
        return Err(reader.malformed(
            "checksum",
            format_args!("{expected:#010x}"),
            format_args!("{got:#010x}"),
        ));
    }
    if !(VERSION..=newest).contains(&version) {
        reader.at = 0;
        let malformed = reader.malformed("format version", newest, version);
        return Err(Malformed { is_newer: version > newest, ..malformed });
    }
    reader.bytes = body;
    Ok((version, reader))
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_types::Class;

    use super::*;

    proptest! {
        #[test]
        fn numbers_read_back(value: u64, shift in 0_u32..64, signed: i64, wide: i128, wide_shift in 0_u32..128) {
            let (value, signed, wide) = (value >> shift, signed >> shift, wide >> wide_shift);
            let mut out = Vec::new();
            put(&mut out, value);
            put_signed(&mut out, signed);
            put_wide(&mut out, &wide.to_le_bytes());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number("a").unwrap(), value);
            prop_assert_eq!(reader.signed("b").unwrap(), signed);
            prop_assert_eq!(i128::from_le_bytes(reader.wide("c").unwrap()), wide);
            reader.finish("image").unwrap();
        }

        #[test]
        fn any_flipped_bit_is_seen(body: Vec<u8>, key: Vec<u8>, place: prop::sample::Index, bit in 0_u32..8) {
            let mut out = Vec::new();
            seal(VERSION, &key, &mut out, |out| out.extend_from_slice(&body));
            prop_assert_eq!(open(&key, &out).unwrap().take(body.len(), "body").unwrap(), &body[..]);
            let place = place.index(out.len());
            out[place] ^= 1 << bit;
            prop_assert!(open(&key, &out).is_err());
        }
    }

    #[test]
    fn a_sealed_value_of_a_newer_build_is_told_from_damage() {
        let mut out = Vec::new();
        seal(VERSION, b"key", &mut out, |out| out.push(7));
        out[0] = VERSION + 1;
        let class = |out: &[u8]| Error::from(open(b"key", out).unwrap_err()).class();
        assert_eq!(class(&out), Class::Corrupt);
        let crc = checksum(b"key", &out[..2]);
        out[2..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(class(&out), Class::User);
        let error = Error::from(open(b"key", &out).unwrap_err());
        assert!(error.to_string().ends_with("format version: expected 1, got 2 (byte 0)"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("a newer one")));
    }

    #[test]
    fn small_wide_numbers_are_short() {
        let few = [(0_i128, 0), (1, 1), (-1, 1), (127, 1), (128, 2), (-128, 1), (-129, 2)];
        let many = [(1 << 63, 9), (-1 << 63, 8), (-1 << 64, 9), (i128::MAX, 16), (i128::MIN, 16)];
        for (value, bytes) in few.into_iter().chain(many) {
            let mut out = Vec::new();
            put_wide(&mut out, &value.to_le_bytes());
            assert_eq!(out.len(), 1 + bytes, "{value}");
            assert_eq!(i128::from_le_bytes(Reader::new(&out).wide("value").unwrap()), value);
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_at_hand_are_refused_before_anything_is_allocated() {
        let mut out = Vec::new();
        put(&mut out, u64::MAX);
        assert_eq!(Reader::new(&out).count("values").unwrap_err().expected, "at most 0");
        assert!(Reader::new(&[0x80; 12]).number("a number").is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number("n").is_err());
    }
}
