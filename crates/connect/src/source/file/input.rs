//! The bytes of a file: as they are, or unpacked where it is packed by gzip.
//!
//! A packed file is told by its first bytes, whatever its name. All of its members are read, one behind the other. A place in
//! it is one of the unpacked bytes; to go to one, all before it is unpacked again.

use std::fs::{File, Metadata};
use std::io::{BufReader, Error, ErrorKind, Read, Result, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

/// How every gzip member begins: its mark, and the only method there is.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// Packed bytes that are read at once.
const PACKED_READ: usize = 64 << 10;

/// An open file that is read from some place on.
pub(in crate::source) struct Input {
    file: Arc<File>,
    unpacked: Option<Unpacked>,
}

type Unpacked = MultiGzDecoder<BufReader<From>>;

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

fn unpacked(file: &Arc<File>) -> Unpacked {
    MultiGzDecoder::new(BufReader::with_capacity(PACKED_READ, From { file: Arc::clone(file), at: 0 }))
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
        let unpacked = is_packed.then(|| unpacked(&file));
        Ok(Self { file, unpacked })
    }

    pub(in crate::source) fn file(&self) -> &File {
        &self.file
    }

    pub(in crate::source) fn is_packed(&self) -> bool {
        self.unpacked.is_some()
    }

    /// Bytes of the file that were read, where that is not the place in what it holds.
    pub(in crate::source) fn packed_bytes(&self) -> Option<u64> {
        self.unpacked.as_ref().map(|unpacked| unpacked.get_ref().get_ref().at)
    }

    /// What the file holds, from anywhere.
    pub(in crate::source) fn contents(&self) -> Contents<'_> {
        Contents { file: &self.file, is_packed: self.is_packed() }
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
                *there = unpacked(&self.file);
                skip(there, place)
            }
        }
    }
}

/// What a file holds.
pub(in crate::source) struct Contents<'a> {
    file: &'a Arc<File>,
    is_packed: bool,
}

impl Contents<'_> {
    /// The bytes at a place, as many as are there.
    ///
    /// # Errors
    /// Where they cannot be read, or unpacked.
    pub(in crate::source) fn bytes_at(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len as usize);
        if self.is_packed {
            let mut unpacked = unpacked(self.file);
            match skip(&mut unpacked, at) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(bytes),
                result => result?,
            }
            unpacked.take(len).read_to_end(&mut bytes)?;
        } else {
            From { file: Arc::clone(self.file), at }.take(len).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Whether there are so many bytes.
    ///
    /// # Errors
    /// As for [`Contents::bytes_at`].
    pub(in crate::source) fn reaches(&self, place: u64) -> Result<bool> {
        if !self.is_packed {
            return Ok(self.file.metadata()?.len() >= place);
        }
        Ok(place == 0 || !self.bytes_at(place - 1, 1)?.is_empty())
    }
}

/// Reads on to a place that is `count` bytes further.
fn skip(unpacked: &mut Unpacked, count: u64) -> Result<()> {
    match std::io::copy(&mut unpacked.take(count), &mut std::io::sink())? {
        skipped if skipped < count => Err(Error::from(ErrorKind::UnexpectedEof)),
        _ => Ok(()),
    }
}
