//! Files of frames: rows on their way to Parquet.
//!
//! Layout: magic 8, format version 2, zeros 34, checksum of these 44 bytes 4, then frames (`storage::frame`), each with one Arrow IPC stream
//! (schema, one record batch without compression, end) and zeros up to a multiple of 64 bytes after its header. So all
//! buffers are aligned in the file, and a map of it is the columns themselves.
//!
//! Invariants
//! * A file is appended to, then left alone; how much of it counts is said elsewhere, and bytes after that are never
//!   read.
//! * What was appended can be read at once, from the map.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use bytes::Bytes;
use thalweg_storage::frame::{Chain, FRAME_HEADER, FrameReader};
use thalweg_storage::{File, Fs, OpenMode};
use thalweg_types::Error;

use crate::failed;
use crate::position::Extent;

/// Persisted.
const MAGIC: &[u8; 8] = b"thlgrow\n";
const VERSION: u16 = 1;
const HEADER: usize = 48;
/// Where the header's checksum is. Older builds left it zero, and do not look at it.
const CHECKSUM: usize = 44;
const ALIGNMENT: usize = 64;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FrameFile {
    number: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    chain: Chain,
    pub bytes: u64,
    pub rows: u64,
}

impl FrameFile {
    pub(crate) fn create(fs: &dyn Fs, path: PathBuf, number: u64) -> Result<Self, Error> {
        let file = fs.open(&path, OpenMode::Create).map_err(|error| failed("create", &path, error))?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32fast::hash(&header[..CHECKSUM]);
        header[CHECKSUM..].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&header, 0).map_err(|error| failed("write", &path, error))?;
        let chain = Chain::new(number);
        Ok(Self { number, path, file, chain, bytes: HEADER as u64, rows: 0 })
    }

    /// How much of it there is now.
    pub(crate) fn extent(&self) -> Extent {
        Extent { number: self.number, bytes: self.bytes, rows: self.rows }
    }

    /// What has to be synced so that all that was appended is durable.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes rows, and gives them back as a map of the file.
    pub(crate) fn append(&mut self, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let frame = self.encode(rows)?;
        self.file.write_all_at(&frame, self.bytes).map_err(|error| failed("write", &self.path, error))?;
        let payload = self.bytes + FRAME_HEADER as u64;
        let length = frame.len() - FRAME_HEADER;
        let map = self.file.map(payload, length).map_err(|error| failed("read", &self.path, error))?;
        let mapped = decode(map).map_err(|what| damaged(&self.path, self.bytes, &what))?;
        self.bytes += frame.len() as u64;
        self.rows += rows.num_rows() as u64;
        Ok(mapped)
    }

    fn encode(&mut self, rows: &RecordBatch) -> Result<Vec<u8>, Error> {
        let encoding = |error| Error::internal("write rows as Arrow IPC").with_source(error);
        let mut frame = Vec::with_capacity(rows.get_array_memory_size() + 4096);
        frame.resize(FRAME_HEADER, 0);
        let mut writer = StreamWriter::try_new(&mut frame, rows.schema_ref()).map_err(encoding)?;
        writer.write(rows).map_err(encoding)?;
        writer.finish().map_err(encoding)?;
        drop(writer);
        frame.resize(frame.len().next_multiple_of(ALIGNMENT), 0);
        self.chain.seal(&mut frame);
        Ok(frame)
    }
}

/// Rows of a file of frames, of which the first `bytes` count.
///
/// # Errors
/// The disk's errors; of class corrupt, with file and byte, if bytes have changed.
pub(crate) fn read(fs: &dyn Fs, path: &Path, number: u64, bytes: u64) -> Result<Vec<RecordBatch>, Error> {
    let file = fs.open(path, OpenMode::Read).map_err(|error| failed("open", path, error))?;
    let length = usize::try_from(bytes).unwrap_or(usize::MAX);
    let map = file.map(0, length).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            damaged(path, bytes, "the file is shorter than what was committed")
        }
        _ => failed("read", path, error),
    })?;
    let header = map.get(..HEADER).filter(|header| header.starts_with(MAGIC));
    let Some(header) = header else { return Err(damaged(path, 0, "this is no file of a table's rows")) };
    let stored = &header[CHECKSUM..];
    if stored != [0; HEADER - CHECKSUM] && stored != crc32fast::hash(&header[..CHECKSUM]).to_le_bytes() {
        return Err(damaged(path, 8, "the checksum of its header is another one"));
    }
    let version = u16::from_le_bytes([header[8], header[9]]);
    if version > VERSION {
        return Err(Error::user(format!(
            "{path:?} has format version {version}, this program reads up to {VERSION}"
        ))
        .with_hint("run the version that wrote it, or a newer one"));
    }
    if version == 0 {
        return Err(damaged(path, 8, "it has format version 0, which does not exist"));
    }
    let mut frames = FrameReader::new(&map, HEADER, Chain::new(number));
    let mut batches = Vec::new();
    loop {
        match frames.next_frame() {
            Ok(None) => return Ok(batches),
            Ok(Some(frame)) => {
                let rows = decode(map.slice_ref(frame.payload));
                batches.push(rows.map_err(|what| damaged(path, frame.pos, &what))?);
            }
            Err(error) => return Err(damaged(path, frames.position(), &error.to_string())),
        }
    }
}

fn damaged(path: &Path, byte: u64, what: &str) -> Error {
    Error::corrupt(format!("{path:?} is damaged at byte {byte}: {what}"))
        .with_hint("put the file back from a copy; rows that are in Parquet files are not touched by this")
}

/// The one batch of an IPC stream. Its columns are slices of `stream`.
fn decode(stream: Bytes) -> Result<RecordBatch, String> {
    let mut decoder = StreamDecoder::new();
    let mut buffer = Buffer::from(stream);
    match decoder.decode(&mut buffer) {
        Ok(Some(batch)) => Ok(batch),
        Ok(None) => Err("a frame without rows".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
