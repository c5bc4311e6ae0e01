//! The bytes of a file: as they are, or unpacked where it is packed by gzip.
//!
//! A packed file is recognized by its first bytes, whatever its name. All of its members are read in order. A place in
//! it is one of the unpacked bytes; to go to one, all before it is unpacked. So a caller that looks at the bytes before
//! a place and then reads on from there hands over how far it has come ([`Input::go_on`]): that unpacks the file once.

use std::cell::RefCell;
use std::fs::{File, Metadata};
use std::io::{BufReader, Error, ErrorKind, Read, Result, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use super::known::BEFORE;

/// How every gzip member begins: its mark, and the only method there is.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// Packed bytes that are read at once.
const PACKED_READ: usize = 64 << 10;

/// Unpacked bytes that are kept, so that a look at some of them is not the end of reading before them.
const KEPT: usize = 2 * BEFORE;

/// An open file that is read from some place on.
pub(in crate::source) struct Input {
    file: Arc<File>,
    unpacked: Option<Unpacked>,
}

/// Reads a file from a place on, whatever others do with it.
struct From {
    file: Arc<File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The contents of a packed file, read from its beginning.
struct Unpacked {
    packed: MultiGzDecoder<BufReader<From>>,
    /// How many bytes were unpacked.
    end: u64,
    /// The last of them.
    kept: Vec<u8>,
    /// The next byte that is given: among those that are kept, or the one after them.
    at: u64,
}

impl Unpacked {
    fn new(file: &Arc<File>) -> Self {
        let packed = BufReader::with_capacity(PACKED_READ, From { file: Arc::clone(file), at: 0 });
        Self { packed: MultiGzDecoder::new(packed), end: 0, kept: Vec::new(), at: 0 }
    }

    /// Whether it can go to a place without beginning anew.
    fn reaches(&self, place: u64) -> bool {
        place >= self.end - self.kept.len() as u64
    }

    /// Goes to a place that it reaches.
    fn go_to(&mut self, place: u64) -> Result<()> {
        self.at = place.min(self.end);
        let count = place - self.at;
        match std::io::copy(&mut self.by_ref().take(count), &mut std::io::sink())? {
            skipped if skipped < count => Err(Error::from(ErrorKind::UnexpectedEof)),
            _ => Ok(()),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(KEPT)..];
        let too_many = (self.kept.len() + bytes.len()).saturating_sub(KEPT);
        self.kept.drain(..too_many);
        self.kept.extend_from_slice(bytes);
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut kept = &self.kept[self.kept.len() - (self.end - self.at) as usize..];
        if !kept.is_empty() {
            let count = kept.read(buffer)?;
            self.at += count as u64;
            return Ok(count);
        }
        let count = self.packed.read(buffer)?;
        self.keep(&buffer[..count]);
        self.end += count as u64;
        self.at = self.end;
        Ok(count)
    }
}

impl Input {
    /// # Errors
    /// Where its first bytes cannot be read.
    pub(in crate::source) fn new(file: File, metadata: &Metadata) -> Result<Self> {
        let file = Arc::new(file);
        let is_packed = metadata.is_file() && {
            let mut begin = [0; GZIP.len()];
            match (From { file: Arc::clone(&file), at: 0 }).read_exact(&mut begin) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
                result => result.map(|()| begin == GZIP)?,
            }
        };
        let unpacked = is_packed.then(|| Unpacked::new(&file));
        Ok(Self { file, unpacked })
    }

    pub(in crate::source) fn file(&self) -> &File {
        &self.file
    }

    pub(in crate::source) fn is_packed(&self) -> bool {
        self.unpacked.is_some()
    }

    /// Bytes of the file that were read, if that is not the place in its contents.
    pub(in crate::source) fn packed_bytes(&self) -> Option<u64> {
        self.unpacked.as_ref().map(|unpacked| unpacked.packed.get_ref().get_ref().at)
    }

    /// The contents of the file, from anywhere.
    pub(in crate::source) fn contents(&self) -> Contents {
        let unpacked = self.is_packed().then(|| RefCell::new(Unpacked::new(&self.file)));
        Contents { file: Arc::clone(&self.file), unpacked }
    }

    /// The next bytes; 0 at the end.
    ///
    /// # Errors
    /// Where they cannot be read, or unpacked.
    pub(in crate::source) fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        match &mut self.unpacked {
            None => (&*self.file).read(buffer),
            Some(unpacked) => unpacked.read(buffer),
        }
    }

    /// # Errors
    /// As for [`Input::read`].
    pub(in crate::source) fn go_to(&mut self, place: u64) -> Result<()> {
        match &mut self.unpacked {
            None => (&*self.file).seek(SeekFrom::Start(place)).map(drop),
            Some(there) => {
                *there = Unpacked::new(&self.file);
                there.go_to(place)
            }
        }
    }

    /// As [`Input::go_to`], from where its contents were looked at.
    ///
    /// # Errors
    /// As for [`Input::read`].
    pub(in crate::source) fn go_on(&mut self, place: u64, contents: Contents) -> Result<()> {
        match contents.unpacked.map(RefCell::into_inner) {
            Some(mut there) if there.reaches(place) => {
                there.go_to(place)?;
                self.unpacked = Some(there);
                Ok(())
            }
            _ => self.go_to(place),
        }
    }
}

/// The contents of a file.
pub(in crate::source) struct Contents {
    file: Arc<File>,
    /// As far as a packed file has been looked at.
    unpacked: Option<RefCell<Unpacked>>,
}

impl Contents {
    /// The bytes at a place, as many as are there.
    ///
    /// # Errors
    /// Where they cannot be read, or unpacked.
    pub(in crate::source) fn bytes_at(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len as usize);
        let Some(unpacked) = &self.unpacked else {
            From { file: Arc::clone(&self.file), at }.take(len).read_to_end(&mut bytes)?;
            return Ok(bytes);
        };
        let mut furthest = unpacked.borrow_mut();
        let mut other = (!furthest.reaches(at)).then(|| Unpacked::new(&self.file));
        let there = other.as_mut().unwrap_or(&mut *furthest);
        let went = there.go_to(at);
        let is_shorter = went.as_ref().is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof);
        if let Err(error) = went.and_then(|()| there.take(len).read_to_end(&mut bytes)) {
            // It would take an error for the end when it is asked again.
            *furthest = Unpacked::new(&self.file);
            return if is_shorter { Ok(bytes) } else { Err(error) };
        }
        if let Some(other) = other.take_if(|other| other.end > furthest.end) {
            *furthest = other;
        }
        Ok(bytes)
    }

    /// Whether there are as many bytes as asked for.
    ///
    /// # Errors
    /// As for [`Contents::bytes_at`].
    pub(in crate::source) fn reaches(&self, place: u64) -> Result<bool> {
        if self.unpacked.is_none() {
            return Ok(self.file.metadata()?.len() >= place);
        }
        Ok(place == 0 || !self.bytes_at(place - 1, 1)?.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|place| (place ^ (place >> 7)) as u8).collect()
    }

    /// A file of two members.
    fn packed(text: &[u8]) -> Input {
        let mut file = tempfile::tempfile().unwrap();
        for half in text.chunks(text.len() / 2 + 1) {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(half).unwrap();
            file.write_all(&encoder.finish().unwrap()).unwrap();
        }
        let metadata = file.metadata().unwrap();
        let input = Input::new(file, &metadata).unwrap();
        assert!(input.is_packed());
        input
    }

    #[test]
    fn a_packed_file_is_unpacked_once_to_know_it_again_and_to_read_on() {
        let text = text(300_000);
        let place = 200_000;
        let mut input = packed(&text);
        let contents = input.contents();
        let before = (place - BEFORE) as u64;
        assert_eq!(contents.bytes_at(0, 9).unwrap(), text[..9]);
        assert!(contents.reaches(place as u64).unwrap());
        assert_eq!(contents.bytes_at(before, BEFORE as u64).unwrap(), text[place - BEFORE..place]);
        assert_eq!(contents.bytes_at(place as u64, 1).unwrap(), text[place..=place]);
        assert_eq!(contents.bytes_at(5, 4).unwrap(), text[5..9], "the beginning again, which is near");
        let read = contents.unpacked.as_ref().unwrap().borrow().packed.get_ref().get_ref().at;
        assert!(contents.bytes_at(before, 9).unwrap() == text[place - BEFORE..][..9]);
        input.go_on(place as u64, contents).unwrap();
        assert_eq!(input.packed_bytes(), Some(read), "nothing more was unpacked");
        let mut rest = Vec::new();
        let mut buffer = [0; 10_000];
        while let count @ 1.. = input.read(&mut buffer).unwrap() {
            rest.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(rest, text[place..]);
    }

    #[test]
    fn a_packed_file_that_breaks_off_says_so_each_time() {
        let input = packed(&text(300_000));
        let half = input.file().metadata().unwrap().len() / 2 - 100;
        input.file().set_len(half).unwrap();
        let contents = input.contents();
        for _ in 0..2 {
            assert_eq!(contents.bytes_at(0, 300_000).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert!(contents.bytes_at(299_000, 1).unwrap().is_empty() && !contents.reaches(299_000).unwrap());
        }
    }

    proptest! {
        #[test]
        fn looks_at_a_packed_file_see_the_same_in_any_order(
            len in 2_usize..50_000,
            looks in proptest::collection::vec((0_u64..60_000, 0_u64..20_000), 1..12),
            place in 0_u64..60_000,
        ) {
            let text = text(len);
            let mut input = packed(&text);
            let contents = input.contents();
            let from = |at: u64| &text[len.min(at as usize)..];
            for (at, count) in looks {
                let expected = from(at);
                let expected = &expected[..expected.len().min(count as usize)];
                prop_assert_eq!(contents.bytes_at(at, count).unwrap(), expected);
            }
            let place = place.min(len as u64);
            input.go_on(place, contents).unwrap();
            let mut rest = vec![0; from(place).len() + 1];
            let mut filled = 0;
            while let count @ 1.. = input.read(&mut rest[filled..]).unwrap() {
                filled += count;
            }
            prop_assert_eq!(&rest[..filled], from(place));
        }
    }
}
