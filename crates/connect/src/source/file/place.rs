//! Where reading goes on: the contents of [`thalweg_flow::SourcePosition::place`].

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use bytes::{Buf as _, Bytes};

use super::super::cut::CutPlace;
use super::MOST_HEADER;
use super::input::Contents;
use super::known::{BEFORE, BEGIN, KnownAt, Look, Print};

/// A place in a file, and how the file is recognized there: numbers, and a header's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cut: CutPlace,
    /// Of the beginning of the file.
    pub(super) begin: Print,
    /// Earlier builds do not say it.
    pub(super) inode: Option<(u64, u64)>,
    /// Of the bytes before the place. Earlier builds do not say it.
    pub(super) before: Print,
    pub(super) header: Option<Header>,
}

/// A header that records of the file are read with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) text: Bytes,
    /// The file itself does not have it, or may not.
    pub(super) is_former: bool,
}

impl Place {
    /// How a file compares with the one that was read up to here.
    pub(super) fn look(&self, file: &Contents) -> std::io::Result<Look> {
        let header = self.header.as_ref().filter(|header| !header.is_former);
        let known = KnownAt {
            place: self.cut.byte,
            begin: self.begin,
            is_full: self.begin.len >= BEGIN + header.map_or(0, |header| header.text.len() as u64),
            before: self.before,
        };
        let look = known.look(file)?;
        let is_told = self.before.len > 0 || self.cut.is_skipping || self.cut.byte == 0;
        if look == Look::Same && !is_told && !is_between_lines(file, self.cut.byte)? {
            return Ok(Look::Edited);
        }
        Ok(look)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let Self { cut, begin, inode, before, header } = self;
        let (device, number) = inode.unwrap_or_default();
        let (kind, text) = match header {
            None => (0, &[] as &[u8]),
            Some(Header { text, is_former: false }) => (1, &**text),
            Some(Header { text, is_former: true }) => (2, &**text),
        };
        let [byte, lines, is_skipping] = [cut.byte, cut.lines, u64::from(cut.is_skipping)];
        let words =
            [byte, lines, is_skipping, begin.len, begin.hash, device, number, before.len, before.hash, kind];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(text);
        bytes
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().take(10).map(|word| u64::from_le_bytes(*word)).collect();
        let [byte, lines, is_skipping, begin, hash] = *words.first_chunk()?;
        let (mut inode, mut before, mut header) = (None, Print::NONE, None);
        match words[5..] {
            [] => {}
            [device, number] => inode = Some((device, number)),
            [device, number, len, hash, kind] => {
                inode = Some((device, number)).filter(|inode| *inode != (0, 0));
                before = Print { len, hash };
                let text = Bytes::copy_from_slice(&bytes[10 * 8..]);
                header = (kind != 0).then_some(Header { text, is_former: kind == 2 });
            }
            _ => return None,
        }
        if before.len > byte.min(BEFORE as u64) || begin > BEGIN + MOST_HEADER {
            return None;
        }
        let cut = CutPlace { byte, lines, is_skipping: is_skipping != 0 };
        Some(Self { cut, begin: Print { len: begin, hash }, inode, before, header })
    }
}

/// Whether a record may end at a place of a file: earlier builds took a line for a record before it had its end.
fn is_between_lines(file: &Contents, byte: u64) -> std::io::Result<bool> {
    let before = file.bytes_at(byte.saturating_sub(3), 3.min(byte))?;
    let is_end = before == b"\xEF\xBB\xBF" || before.last().is_none_or(u8::is_ascii_whitespace);
    let behind = file.bytes_at(byte, 1)?;
    Ok(is_end || behind.first().is_none_or(|byte| matches!(byte, b'\n' | b'\r')))
}

/// A file among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    /// As it was named; `None` where an earlier build had one file and did not say which.
    pub(super) path: Option<PathBuf>,
    /// All of it was read, and nothing more is expected there.
    pub(super) is_done: bool,
    /// `None` where nothing of it was read.
    pub(super) place: Option<Place>,
}

/// The mark with which the places of several files begin, in place of a number of bytes.
const SEVERAL: [u8; 8] = [0xff; 8];

/// Version of the bytes after it.
const VERSION: u8 = 1;

/// Places of files, by their numbers.
pub(super) fn to_bytes<'a>(files: impl ExactSizeIterator<Item = (&'a Path, bool, &'a [u8])>) -> Vec<u8> {
    let mut bytes = SEVERAL.to_vec();
    bytes.push(VERSION);
    bytes.extend_from_slice(&(files.len() as u32).to_le_bytes());
    for (path, is_done, place) in files {
        bytes.push(u8::from(is_done));
        for text in [path.as_os_str().as_bytes(), place] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text);
        }
    }
    bytes
}

/// Places of files, or that of one file as a source of one has it. `None` for anything else.
pub(super) fn of_bytes(bytes: &[u8]) -> Option<Vec<FilePlace>> {
    let Some(mut rest) = bytes.strip_prefix(&SEVERAL) else {
        let place = Place::of_bytes(bytes)?;
        return Some(vec![FilePlace { path: None, is_done: false, place: Some(place) }]);
    };
    if rest.try_get_u8().ok()? != VERSION {
        return None;
    }
    let mut files = Vec::new();
    for _ in 0..rest.try_get_u32_le().ok()? {
        let is_done = rest.try_get_u8().ok()? != 0;
        let mut text = || {
            let len = rest.try_get_u32_le().ok()? as usize;
            let text = rest.get(..len)?;
            rest.advance(len);
            Some(text)
        };
        let path = PathBuf::from(std::ffi::OsString::from_vec(text()?.to_vec()));
        let place = match text()? {
            [] => None,
            place => Some(Place::of_bytes(place)?),
        };
        files.push(FilePlace { path: Some(path), is_done, place });
    }
    rest.is_empty().then_some(files)
}
