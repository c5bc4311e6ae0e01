//! One file of chunks: its header, its name, and how it is read again after a stop or a crash.
//!
//! Layout (little-endian): magic 8, format 2, zero 2, task 8, first chunk 8, checksum 4, then chunks
//! ([`crate::chunk`]). Identity and first chunk are in the first bytes (the latter in the name, too), so that a
//! misplaced file is found on open. Each chunk's head holds the checksum of the head before it, the first the one
//! of the header: a chain over heads, which hold the checksums of their columns, so that a file can be checked
//! for order and completeness without reading its columns.
//!
//! Bytes that are not a whole chunk are judged by earlier promises:
//! * in a file with a successor everything was synced before the successor was made: damage;
//! * below what a commit names: damage;
//! * in the last file, with a whole chunk of this file after it: damage, unless a commit says that nothing there
//!   counts (after a power cut later pages may have arrived before earlier ones);
//! * else a torn tail, which is cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use memchr::memmem;

use crate::chunk::head::{self, ChunkHead};
use crate::chunk::{ChunkInfo, CodecError};
use crate::{ChunkError, ChunkId, File, Fs, OpenMode};

const MAGIC: [u8; 8] = *b"\xf7ThChnk\n";
const FORMAT: u16 = 1;
/// The place of the format in a file.
pub(crate) const FORMAT_AT: u64 = 8;
pub(super) const HEADER: u64 = 32;

const PREFIX: &str = "chunks-";
const SUFFIX: &str = ".thc";

/// Bytes that are read to get at a head: heads of some 300 columns come with one call.
const HEAD_READ: usize = 4096;

/// The header of a file and its checksum, with which the chain begins.
pub(super) fn header(task: u64, first: ChunkId) -> ([u8; HEADER as usize], u32) {
    let mut bytes = [0; HEADER as usize];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..20].copy_from_slice(&task.to_le_bytes());
    bytes[20..28].copy_from_slice(&first.0.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    (bytes, crc)
}

/// The format of a whole header that is of a newer one: every format has its magic first, then its number, and ends its
/// header with a checksum at the same place.
pub(crate) fn newer_format(header: &[u8], magic: &[u8; 8], newest: u16) -> Option<u16> {
    let (content, checksum) = header.split_last_chunk()?;
    let format = content.strip_prefix(magic)?.first_chunk().map(|format| u16::from_le_bytes(*format))?;
    (format > newest && crc32fast::hash(content) == u32::from_le_bytes(*checksum)).then_some(format)
}

/// The task that a file says it is of; `None` where its header is not whole.
pub(super) fn task_of(fs: &dyn Fs, dir: &Path, first: ChunkId) -> Result<Option<u64>, ChunkError> {
    let path = path(dir, first);
    let file = fs.open(&path, OpenMode::Read).map_err(ChunkError::io("open", &path))?;
    let mut found = [0; HEADER as usize];
    if file.len().map_err(ChunkError::io("read", &path))? < HEADER {
        return Ok(None);
    }
    file.read_exact_at(&mut found, 0).map_err(ChunkError::io("read", &path))?;
    let task = found[12..20].try_into().map(u64::from_le_bytes).ok();
    Ok(task.filter(|task| header(*task, first).0 == found))
}

pub(super) fn path(dir: &Path, first: ChunkId) -> PathBuf {
    dir.join(format!("{PREFIX}{:020}{SUFFIX}", first.0))
}

/// The first chunk that a file's name promises; `None` for other files.
pub(super) fn first_of(name: &str) -> Option<ChunkId> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(ChunkId))?
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// First chunk of the file, which names it.
    pub(super) file: ChunkId,
    pub(super) pos: u64,
    pub(super) head_len: u32,
    pub(super) len: u64,
}

/// What is no whole chunk, and where.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) pos: u64,
    /// Bytes from there to the end of the file.
    pub(super) bytes: u64,
    fault: CodecError,
    /// A whole chunk of this file follows it.
    followed: bool,
}

impl Tail {
    pub(super) fn into_damage(self, path: &Path, id: ChunkId) -> ChunkError {
        ChunkError::codec(self.fault, path, self.pos, id, "")
    }

    pub(super) fn is_followed(&self) -> bool {
        self.followed
    }
}

/// A file as it was found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) file: Arc<dyn File>,
    pub(super) chunks: Vec<(ChunkHead, Place)>,
    /// Checksums with which the chain goes on after each chunk; the first is the header's.
    pub(super) chain: Vec<u32>,
    /// `None` where the file ends with a whole chunk.
    pub(super) tail: Option<Tail>,
}

/// How much of a file a scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Heads only.
    Heads,
    /// Heads, and the checksum of every column.
    Columns,
}

/// Reads a file's header and heads; `mode` is how it stays open.
pub(super) fn scan(
    fs: &dyn Fs,
    dir: &Path,
    task: u64,
    first: ChunkId,
    depth: Depth,
    mode: OpenMode,
) -> Result<Scan, ChunkError> {
    let path = path(dir, first);
    let file = fs.open(&path, mode).map_err(ChunkError::io("open", &path))?;
    let read =
        |buffer: &mut [u8], pos| file.read_exact_at(buffer, pos).map_err(ChunkError::io("read", &path));
    let len = file.len().map_err(ChunkError::io("read", &path))?;
    let (expected, crc) = header(task, first);
    let (mut chunks, mut chain) = (Vec::new(), vec![crc]);
    let mut found = vec![0; usize::try_from(len.min(HEADER)).unwrap_or(0)];
    read(&mut found, 0)?;
    let mut fault = None;
    let mut pos = HEADER;
    if let Some(found) = newer_format(&found, &MAGIC, FORMAT) {
        let what = "a chunk file";
        return Err(ChunkError::NewerFormat { path, pos: FORMAT_AT, what, found, newest: FORMAT });
    }
    if found != expected {
        let at = found.iter().zip(&expected).take_while(|(byte, expected)| byte == expected).count();
        fault = Some(CodecError::Damaged {
            pos: at as u64,
            what: "header of the chunk file",
            expected: format!("{:02x}", expected[at]),
            got: found.get(at).map_or("the end".to_owned(), |byte| format!("{byte:02x}")),
        });
        pos = 0;
    }
    let mut buffer = Vec::new();
    while fault.is_none() && pos < len {
        let number = first.0 + chunks.len() as u64;
        let wanted = Wanted { task, number: Some(number), previous: chain.last().copied() };
        match chunk_at(&read, pos, len, wanted, depth, &mut buffer)? {
            Ok(head) => {
                let place = Place { file: first, pos, head_len: head.head_len, len: head.total_len() };
                pos += place.len;
                chain.push(head.crc);
                chunks.push((head, place));
            }
            Err(error @ CodecError::NewerFormat { .. }) => {
                return Err(ChunkError::codec(error, &path, pos, ChunkId(number), ""));
            }
            Err(error) => fault = Some(error),
        }
    }
    let tail = match fault {
        None => None,
        Some(fault) => {
            let followed = whole_chunk_follows(&read, pos, len, task, first)?;
            Some(Tail { pos, bytes: len - pos, fault, followed })
        }
    };
    Ok(Scan { file, chunks, chain, tail })
}

/// What a chunk must say of itself.
#[derive(Clone, Copy)]
struct Wanted {
    task: u64,
    number: Option<u64>,
    previous: Option<u32>,
}

/// The chunk at `pos`: the outer error is the disk's, the inner one the damage of the bytes.
fn chunk_at(
    read: &impl Fn(&mut [u8], u64) -> Result<(), ChunkError>,
    pos: u64,
    len: u64,
    wanted: Wanted,
    depth: Depth,
    buffer: &mut Vec<u8>,
) -> Result<Result<ChunkHead, CodecError>, ChunkError> {
    let rest = len - pos;
    buffer.resize(usize::try_from(rest.min(HEAD_READ as u64)).unwrap_or(0), 0);
    read(buffer, pos)?;
    let head_len = match head::head_len(buffer) {
        Ok(head_len) => head_len,
        Err(error) => return Ok(Err(error)),
    };
    if head_len > buffer.len() && head_len as u64 <= rest {
        buffer.resize(head_len, 0);
        read(buffer, pos)?;
    }
    let head = match ChunkHead::parse(buffer) {
        Ok(head) => head,
        Err(error) => return Ok(Err(error)),
    };
    let damaged = |pos: u64, what, expected: String, got: String| {
        Ok(Err(CodecError::Damaged { pos, what, expected, got }))
    };
    let ChunkInfo { task, number, previous, .. } = head.info;
    if task != wanted.task {
        return damaged(12, "task", wanted.task.to_string(), task.to_string());
    }
    if let Some(wanted) = wanted.number
        && number != wanted
    {
        return damaged(20, "chunk number", wanted.to_string(), number.to_string());
    }
    if let Some(wanted) = wanted.previous
        && previous != wanted
    {
        return damaged(
            28,
            "checksum of the previous head",
            format!("{wanted:#010x}"),
            format!("{previous:#010x}"),
        );
    }
    if head.total_len() > rest {
        return damaged(
            u64::from(head.head_len),
            "chunk body",
            head.total_len().to_string(),
            rest.to_string(),
        );
    }
    if depth == Depth::Columns {
        for entry in &head.columns {
            let at = u64::from(head.head_len) + entry.offset;
            buffer.resize(entry.len as usize, 0);
            read(buffer, pos + at)?;
            let crc = crc32fast::hash(buffer);
            if crc != entry.crc {
                return damaged(
                    at,
                    "column checksum",
                    format!("{:#010x}", entry.crc),
                    format!("{crc:#010x}"),
                );
            }
        }
    }
    Ok(Ok(head))
}

/// Whether a whole chunk of this file is anywhere from `pos` on, the damaged one's own place included.
///
/// Reads the rest of the file at once: it is the end of one file, and this happens after a crash only. A head's
/// checksum must be right before its columns are read, so foreign bytes cannot make that repeat.
fn whole_chunk_follows(
    read: &impl Fn(&mut [u8], u64) -> Result<(), ChunkError>,
    pos: u64,
    len: u64,
    task: u64,
    first: ChunkId,
) -> Result<bool, ChunkError> {
    let mut rest = vec![0; usize::try_from(len - pos).unwrap_or(0)];
    read(&mut rest, pos)?;
    let wanted = Wanted { task, number: None, previous: None };
    let mut buffer = Vec::new();
    for at in memmem::find_iter(&rest, &head::MAGIC) {
        let found = chunk_at(read, pos + at as u64, len, wanted, Depth::Columns, &mut buffer)?;
        if found.is_ok_and(|head| head.info.number >= first.0) {
            return Ok(true);
        }
    }
    Ok(false)
}
