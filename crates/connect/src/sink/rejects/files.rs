//! The files of rejects, and how they make room.
//!
//! `rejects-N.ndjson`, one after the other: a file that would become larger than a part of the limit is followed by
//! the next. Where all of them together are too large, the oldest goes: its records stay counted, and are not kept. In
//! a durable job it goes when a commit record names a file that came after, so that none is missed after a crash.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_flow::CyclePart;
use thalweg_storage::{RealFs, make_dir};
use thalweg_types::Error;

use super::super::tail::{KnownBy, Tail, failed};
use super::counts::RejectCounts;

/// The kept rejects are in about this many files.
const PARTS: u64 = 8;

/// A file takes so much at least, however little is allowed.
const LEAST: u64 = 1 << 10;

pub(super) struct Files {
    folder: Arc<Path>,
    most: u64,
    counts: RejectCounts,
    is_durable: bool,
    /// The number of the file that is written.
    pub(super) number: u64,
    file: Option<Tail>,
    /// Earlier files that are there, with their lengths.
    earlier: BTreeMap<u64, u64>,
    /// Those that were closed since the last marker.
    closed: Vec<Tail>,
    /// Those that make room with the next commit.
    leaving: Vec<PathBuf>,
    has_warned: bool,
}

impl Files {
    /// The files of a folder that has `earlier` ones.
    pub(super) fn new(folder: &Path, most: u64, counts: RejectCounts, is_durable: bool, number: u64) -> Self {
        Self {
            folder: folder.into(),
            most,
            counts,
            is_durable,
            number,
            file: None,
            earlier: BTreeMap::new(),
            closed: Vec::new(),
            leaving: Vec::new(),
            has_warned: false,
        }
    }

    /// Notes the files of earlier runs, whose numbers are below the present one.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn find_earlier(&mut self) -> Result<(), Error> {
        for number in numbers(&self.folder)?.into_iter().filter(|number| *number < self.number) {
            let path = path_of(&self.folder, number);
            let bytes = std::fs::metadata(&path).map_err(|error| failed("look at", &path, error))?.len();
            self.earlier.insert(number, bytes);
        }
        Ok(())
    }

    /// Goes on with a file of which `bytes` bytes were committed, which identify it.
    ///
    /// # Errors
    /// Where it is not there, or the disk says something.
    pub(super) fn resume(&mut self, bytes: u64, known: KnownBy) -> Result<(), Error> {
        if bytes > 0 {
            self.file = Some(Tail::resume(&path_of(&self.folder, self.number), bytes, known)?);
        }
        Ok(())
    }

    /// The oldest file that is kept.
    pub(super) fn oldest(&self) -> u64 {
        self.earlier.keys().next().copied().unwrap_or(self.number)
    }

    pub(super) fn known_by(&self) -> KnownBy {
        self.file.as_ref().map(Tail::known_by).unwrap_or_default()
    }

    pub(super) fn len(&self) -> u64 {
        self.file.as_ref().map_or(0, Tail::len)
    }

    /// Whether `waiting` more bytes belong in the next file. A line is never split, and a file has one at least.
    pub(super) fn is_full(&self, waiting: usize) -> bool {
        let written = self.len() + waiting as u64;
        written >= (self.most / PARTS).max(LEAST)
    }

    /// # Errors
    /// If a file cannot be written.
    pub(super) fn append(&mut self, lines: &[u8]) -> Result<(), Error> {
        let file = match &mut self.file {
            Some(open) => open,
            empty => {
                let folder = &self.folder;
                make_dir(&RealFs, folder).map_err(|error| failed("create", folder, error))?;
                empty.insert(Tail::create(&path_of(folder, self.number))?)
            }
        };
        file.append(lines)
    }

    /// Begins the next file, and has the oldest ones make room for it.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn rotate(&mut self) -> Result<(), Error> {
        let Some(file) = self.file.take() else { return Ok(()) };
        self.earlier.insert(self.number, file.len());
        self.number += 1;
        if self.is_durable {
            self.closed.push(file);
        }
        let part = (self.most / PARTS).max(LEAST);
        while self.earlier.values().sum::<u64>() + part > self.most
            && let Some((number, bytes)) = self.earlier.pop_first()
        {
            self.counts.add_removed(bytes);
            let path = path_of(&self.folder, number);
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!(
                    path = %path.display(),
                    max_bytes = self.most,
                    "rejects have passed their limit: the oldest files are removed, and their records only counted"
                );
            }
            match self.is_durable {
                true => self.leaving.push(path),
                false => remove(&path)?,
            }
        }
        Ok(())
    }

    /// The part of a cycle that makes all files durable which were written since the last one.
    pub(super) fn part(&mut self, position: Vec<u8>) -> Box<dyn CyclePart> {
        let mut files: Vec<Box<dyn CyclePart>> =
            self.closed.drain(..).map(|mut file| file.part(Vec::new(), None)).collect();
        files.extend(self.file.as_mut().map(|file| file.part(Vec::new(), None)));
        Box::new(FilesPart { files, position, leaving: std::mem::take(&mut self.leaving) })
    }

    /// # Errors
    /// If a file cannot be synced.
    pub(super) fn sync(&self) -> Result<(), Error> {
        self.closed.iter().chain(&self.file).try_for_each(Tail::sync)
    }
}

struct FilesPart {
    files: Vec<Box<dyn CyclePart>>,
    position: Vec<u8>,
    leaving: Vec<PathBuf>,
}

impl CyclePart for FilesPart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        for file in &mut self.files {
            file.prepare()?;
        }
        Ok(std::mem::take(&mut self.position))
    }

    fn committed(self: Box<Self>) -> Result<(), Error> {
        self.leaving.iter().try_for_each(|path| remove(path))
    }
}

/// Removes a file that may be gone already.
///
/// # Errors
/// If a file cannot be removed.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|error| failed("remove", path, error)),
    }
}

pub(super) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("rejects-{number}.ndjson"))
}

/// Numbers of the files in the folder.
///
/// # Errors
/// If the folder cannot be read.
pub(super) fn numbers(folder: &Path) -> Result<Vec<u64>, Error> {
    let failed = |error| failed("read folder", folder, error);
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let number = |name: &str| name.strip_prefix("rejects-")?.strip_suffix(".ndjson")?.parse::<u64>().ok();
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry.map_err(failed)?.file_name().to_str().and_then(number));
    }
    Ok(numbers)
}
