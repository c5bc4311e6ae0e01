//! Opening a store's folder after a stop or a crash, and removing it.
//!
//! The end of each file is judged in [`super::file`]; here files are put in order and bytes that do not count are cut:
//! newest first, each step synced, so that a crash in between leaves a folder that opens the same way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{self, Depth, Place, Scan};
use super::writer::{Active, Writer, unlink};
use super::{ChunkMeta, ChunkStoreOptions};
use crate::chunk::ChunkHead;
use crate::schemas::{self, SchemaFile};
use crate::{ChunkError, ChunkId, Fs, OpenMode, SchemaRegistry, make_dir};

pub(super) struct Recovered {
    pub(super) writer: Writer,
    pub(super) schemas: SchemaRegistry,
    pub(super) index: Vec<ChunkMeta>,
    pub(super) places: Vec<Place>,
    pub(super) next: ChunkId,
}

pub(super) fn open(
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    options: &ChunkStoreOptions,
) -> Result<Recovered, ChunkError> {
    make_dir(fs.as_ref(), &dir).map_err(ChunkError::io("create", &dir))?;
    let names = fs.list(&dir).map_err(ChunkError::io("list", &dir))?;
    let mut files: Vec<ChunkId> = names.iter().filter_map(|name| file::first_of(name)).collect();
    files.sort_unstable();
    let (schemas, schema_file) = SchemaFile::open(fs.as_ref(), &dir, options.task)?;

    let committed = options.committed.clone();
    if let Some(committed) = &committed {
        // Files that begin after the commit hold nothing that counts, whatever is in them.
        let behind: Vec<ChunkId> =
            files.iter().rev().copied().filter(|first| *first >= committed.end).collect();
        files.truncate(files.len() - behind.len());
        if !behind.is_empty() {
            tracing::info!(dir = %dir.display(), files = behind.len(), "removed chunk files that no commit names");
        }
        unlink(fs.as_ref(), &dir, &behind)?;
    }

    let mut recovery = Recovery {
        fs: fs.as_ref(),
        dir: &dir,
        options,
        schemas: &schemas,
        index: Vec::new(),
        places: Vec::new(),
        next: None,
        active: None,
    };
    for (place, first) in files.iter().enumerate() {
        recovery.add_file(*first, place + 1 == files.len())?;
    }
    let Recovery { index, places, active, .. } = recovery;

    let found = index.first().map(|meta| meta.id);
    let mut next = index.last().map_or(ChunkId(0), |meta| ChunkId(meta.id.0 + 1));
    if let Some(active) = &active
        && index.is_empty()
    {
        next = active.first;
    }
    if let Some(committed) = committed {
        let damage = |expected: String, got: String| ChunkError::Damaged {
            path: dir.clone(),
            pos: 0,
            what: "chunks that the commit names",
            expected,
            got,
        };
        if committed.start < committed.end {
            if next < committed.end {
                return Err(damage(
                    format!("up to before {}", committed.end),
                    format!("up to before {next}"),
                ));
            }
            if found.is_none_or(|found| found > committed.start) {
                let got = found.map_or("none".to_owned(), |found| format!("from {found} on"));
                return Err(damage(format!("from {} on", committed.start), got));
            }
        } else {
            next = next.max(committed.end);
        }
    }
    // A file without chunks that would not begin where its name says cannot be appended to.
    let active = match active {
        Some(active) if index.is_empty() && active.first != next => {
            unlink(fs.as_ref(), &dir, &[active.first])?;
            None
        }
        active => active,
    };
    let mut writer = Writer {
        fs,
        dir,
        file_bytes: options.file_bytes,
        schemas: schema_file,
        active,
        // What a killed process wrote may not be synced.
        is_dirty: true,
        is_name_dirty: true,
    };
    // Without a file only the commit would know the next number, and a store opened without one would begin at 0 again.
    if writer.active.is_none() && next > ChunkId(0) {
        writer.create(options.task, next)?;
        writer.sync()?;
    }
    Ok(Recovered { writer, schemas, index, places, next })
}

struct Recovery<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    options: &'a ChunkStoreOptions,
    schemas: &'a SchemaRegistry,
    index: Vec<ChunkMeta>,
    places: Vec<Place>,
    /// The chunk with which the next file must begin.
    next: Option<ChunkId>,
    active: Option<Active>,
}

impl Recovery<'_> {
    fn add_file(&mut self, first: ChunkId, is_last: bool) -> Result<(), ChunkError> {
        let path = file::path(self.dir, first);
        if let Some(next) = self.next
            && next != first
        {
            return Err(ChunkError::Damaged {
                path,
                pos: 20,
                what: "first chunk of the file",
                expected: next.0.to_string(),
                got: first.0.to_string(),
            });
        }
        // With a commit, its chunks were synced: its heads suffice, the columns are checked when read.
        let committed = self.options.committed.as_ref().map(|committed| committed.end);
        let depth = if is_last && committed.is_none() { Depth::Columns } else { Depth::Heads };
        let mut scan = file::scan(self.fs, self.dir, self.options.task, first, depth, OpenMode::Write)?;
        let reached = ChunkId(first.0 + scan.chunks.len() as u64);
        if let Some(tail) = scan.tail.take() {
            let is_damage = !is_last
                || match committed {
                    Some(committed) => reached < committed,
                    None => tail.is_followed(),
                };
            if is_damage {
                return Err(tail.into_damage(&path, reached));
            }
            self.read_again(first, depth, tail.pos)?;
            tracing::warn!(path = %path.display(), pos = tail.pos, bytes = tail.bytes, "cut torn tail");
            if tail.pos == 0 {
                return unlink(self.fs, self.dir, &[first]);
            }
            self.cut(&scan, &path, tail.pos)?;
        }
        if let Some(committed) = committed
            && reached > committed
        {
            let kept = (committed.0 - first.0) as usize;
            let pos = scan.chunks[kept].1.pos;
            tracing::info!(
                path = %path.display(), pos, chunks = scan.chunks.len() - kept, "cut chunks that no commit names"
            );
            self.cut(&scan, &path, pos)?;
            scan.chunks.truncate(kept);
            scan.chain.truncate(kept + 1);
        }
        self.next = Some(ChunkId(first.0 + scan.chunks.len() as u64));
        let len = scan.chunks.last().map_or(file::HEADER, |(_, place)| place.pos + place.len);
        for (head, place) in scan.chunks {
            self.index.push(meta(&head, &place, self.schemas, &path)?);
            self.places.push(place);
        }
        let chain = scan.chain.last().copied().expect("the header's checksum begins the chain");
        self.active = Some(Active { file: scan.file, first, len, chain });
        Ok(())
    }

    /// Makes sure that a tail is torn on the disk and not by a bit that flipped on the way: cutting is for good.
    fn read_again(&self, first: ChunkId, depth: Depth, pos: u64) -> Result<(), ChunkError> {
        let again = file::scan(self.fs, self.dir, self.options.task, first, depth, OpenMode::Write)?;
        if again.tail.as_ref().map(|tail| tail.pos) == Some(pos) {
            return Ok(());
        }
        Err(reads_differ(file::path(self.dir, first), pos))
    }

    fn cut(&self, scan: &Scan, path: &Path, pos: u64) -> Result<(), ChunkError> {
        scan.file.truncate(pos).map_err(ChunkError::io("cut", path))?;
        scan.file.sync_data().map_err(ChunkError::io("sync", path))
    }
}

/// The index entry of a chunk, whose columns are those of its schema.
pub(super) fn meta(
    head: &ChunkHead,
    place: &Place,
    schemas: &SchemaRegistry,
    path: &Path,
) -> Result<ChunkMeta, ChunkError> {
    let stored = schemas.get(head.info.schema_id);
    let types = stored.map(|fields| fields.iter().map(|field| &field.data_type).collect::<Vec<_>>());
    let columns: Vec<_> = head.columns.iter().map(|entry| &entry.data_type).collect();
    if types.as_ref() != Some(&columns) {
        return Err(ChunkError::Damaged {
            path: path.to_owned(),
            pos: place.pos,
            what: "columns of the chunk's schema",
            expected: format!("schema {}: {types:?}", head.info.schema_id),
            got: format!("{columns:?}"),
        });
    }
    Ok(ChunkMeta {
        id: ChunkId(head.info.number),
        rows: head.rows,
        first_time: head.info.first_time,
        last_time: head.info.last_time,
        bytes: place.len,
        schema_id: head.info.schema_id,
    })
}

/// Two readings of a file gave different bytes: the disk, its cable or the memory is not to be trusted.
pub(crate) fn reads_differ(path: PathBuf, pos: u64) -> ChunkError {
    let (expected, got) = ("what the first reading gave".to_owned(), "something else".to_owned());
    ChunkError::Damaged { path, pos, what: "second reading", expected, got }
}

pub(super) fn discard(fs: &dyn Fs, dir: &Path) -> Result<(), ChunkError> {
    let names = match fs.list(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ChunkError::io("list", dir)(error)),
    };
    // The schemas last: chunks without them could not be opened any more, the other way round they can.
    let is_schemas = |name: &String| name.starts_with(schemas::FILE_NAME);
    for name in
        names.iter().filter(|name| !is_schemas(name)).chain(names.iter().filter(|name| is_schemas(name)))
    {
        let path = dir.join(name);
        fs.remove(&path).map_err(ChunkError::io("remove", path))?;
    }
    fs.remove_dir(dir).map_err(ChunkError::io("remove", dir))?;
    match dir.parent() {
        Some(parent) => fs.sync_dir(parent).map_err(ChunkError::io("sync", parent)),
        None => Ok(()),
    }
}
