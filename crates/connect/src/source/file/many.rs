//! Files that are read once, each to its end: one after the other, or in the order of the merge by time.
//!
//! A file is a partition, by its number in the order in which it was first there; offsets count the records of all. The
//! order log says of each run which file it is from, so a replay gives the same again whatever files have come
//! meanwhile.
//!
//! A job that goes on knows a file by its path, and by its contents if it was moved; one that it does not
//! know is read from its beginning, so the next day's file may take the place of the one of the day before. A file that
//! was read and is not named any more stays known.

use std::collections::HashSet;
use std::sync::Arc;

use thalweg_flow::{Poll, RawBlock, ReplayRun, ScoutReader, Source, SourcePosition, SourceProgress, Wanted};
use thalweg_types::{Error, Micros, Offset, PartitionId};
use tracing::{info, warn};

use super::super::FILE_CHANGED;
use super::super::cut::{BlockContext, Cut};
use super::known::Look;
use super::one::{self, FileSource, Found};
use super::place::{self, FilePlace, Place};
use crate::JobPath;
use crate::format::RecordFormat;
use crate::paths::{files_of, is_open};

pub(super) struct FilesSource {
    format: Arc<dyn RecordFormat>,
    goes_on: bool,
    /// By their numbers.
    files: Vec<OneFile>,
    /// The paths may match several files, however many there are now: rejects say which one.
    is_several: bool,
    next: Offset,
    is_draining: bool,
}

struct OneFile {
    path: JobPath,
    /// The same, for rejects.
    label: Arc<str>,
    bytes: u64,
    reading: Reading,
    /// All of it was read, in this run or before.
    is_done: bool,
    /// Nothing more is read of it in this run.
    is_over: bool,
}

enum Reading {
    /// Not open; where reading goes on.
    Closed(Option<Place>),
    Open(Box<FileSource>),
}

impl OneFile {
    fn new(path: JobPath) -> Self {
        let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let label = path.to_string_lossy().as_ref().into();
        Self { path, label, bytes, reading: Reading::Closed(None), is_done: false, is_over: false }
    }

    fn place(&self) -> Option<Place> {
        match &self.reading {
            Reading::Closed(place) => place.clone(),
            Reading::Open(file) => Place::of_bytes(&file.position().place).filter(|place| place.cut.byte > 0),
        }
    }

    fn open(&mut self, format: &Arc<dyn RecordFormat>, goes_on: bool) -> Result<&mut FileSource, Error> {
        if let Reading::Closed(place) = &self.reading {
            self.reading = Reading::Open(Box::new(open(&self.path, format, goes_on, place.as_ref())?));
        }
        match &mut self.reading {
            Reading::Open(file) => Ok(file),
            Reading::Closed(_) => Err(Error::internal("a file was opened and is closed")),
        }
    }

    fn close(&mut self) {
        self.reading = Reading::Closed(self.place());
    }

    /// Closes it at its end, for this run.
    fn end(&mut self) {
        if let Reading::Open(file) = &self.reading {
            self.is_done = file.unfinished() == 0;
        }
        self.close();
        self.is_over = true;
    }
}

/// Opens a file where reading goes on; at its beginning with its header, so that a wrong one is found.
fn open(
    path: &JobPath,
    format: &Arc<dyn RecordFormat>,
    goes_on: bool,
    place: Option<&Place>,
) -> Result<FileSource, Error> {
    let mut file = FileSource::open(path.clone(), Arc::clone(format), None, goes_on)?;
    match place {
        Some(place) => file.go_on(place.clone())?,
        None => file.read_first()?,
    }
    Ok(file)
}

impl FilesSource {
    /// # Errors
    /// Where a file cannot be opened, or begins with a header that does not fit.
    pub(super) fn open(
        paths: &[JobPath],
        format: Arc<dyn RecordFormat>,
        goes_on: bool,
    ) -> Result<Self, Error> {
        let mut files: Vec<OneFile> = files_of(paths)?.into_iter().map(OneFile::new).collect();
        let is_one = files.len() == 1;
        for file in &mut files {
            file.open(&format, goes_on)?;
            if !is_one {
                file.close();
            }
        }
        let is_several = !is_one || paths.iter().any(is_open);
        Ok(Self { format, goes_on, files, is_several, next: 0, is_draining: false })
    }

    /// Records of a file as a block of all files.
    fn block(&mut self, number: usize, mut cut: Cut) -> RawBlock {
        let (first, count) = (self.next, cut.count);
        self.next += u64::from(count);
        if (self.is_several || self.files.len() > 1)
            && let Some(own) = &cut.context
        {
            let file = Some(Arc::clone(&self.files[number].label));
            cut.context = Some(Arc::new(BlockContext { file, ..(**own).clone() }));
        }
        RawBlock { partition: number as PartitionId, first, count, payload: cut.into_payload() }
    }

    /// Which of the files that are named now each of those that were known is, by their places in the two lists.
    fn paired(&self, known: &[FilePlace]) -> Result<Vec<Option<usize>>, Error> {
        let named = &self.files;
        let by_path =
            |known: &FilePlace| named.iter().position(|file| Some(&*file.path) == known.path.as_deref());
        let mut pairs: Vec<Option<usize>> = known.iter().map(by_path).collect();
        let taken: HashSet<usize> = pairs.iter().copied().flatten().collect();
        for (number, file) in named.iter().enumerate().filter(|(number, _)| !taken.contains(number)) {
            let mut unpaired = known.iter().zip(&mut pairs).filter(|(_, pair)| pair.is_none()).peekable();
            if unpaired.peek().is_none() {
                break;
            }
            let contents = one::open(&file.path)?.0.contents();
            for (known, pair) in unpaired {
                // An earlier build had one file, and it is this one or none.
                let is_only = known.path.is_none() && named.len() == 1;
                let is_it = match &known.place {
                    _ if is_only => true,
                    Some(place) if place.begin.len > 0 => {
                        matches!(place.look(&contents), Ok(Look::Same))
                    }
                    _ => false,
                };
                if is_it {
                    *pair = Some(number);
                    if let Some(path) = &known.path {
                        info!(path = %file.path.display(), former = %path.display(), "a file was moved, going on in it");
                    }
                    break;
                }
            }
        }
        Ok(pairs)
    }

    /// Gives records of a file from its place on, `count` at most.
    fn give(&mut self, partition: PartitionId, count: u64, max_bytes: usize) -> Result<RawBlock, Error> {
        let number = partition as usize;
        let Some(file) = self.files.get_mut(number) else {
            return Err(Error::user(format!(
                "{count} records were read after the last commit from file {} of the source, and there are {} now",
                number + 1,
                self.files.len()
            ))
            .with_hint(FILE_CHANGED));
        };
        let file = file.open(&self.format, self.goes_on)?;
        let cut = file.find_again(self.next, count, max_bytes)?;
        Ok(self.block(number, cut))
    }
}

impl Source for FilesSource {
    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        for number in 0..self.files.len() {
            let file = &mut self.files[number];
            let is_open = matches!(file.reading, Reading::Open(_));
            if file.is_over || (self.is_draining && !is_open) {
                continue;
            }
            let open = file.open(&self.format, self.goes_on)?;
            match open.find(max_bytes)? {
                Found::Cut(cut) => return Ok(Poll::Block(self.block(number, cut))),
                Found::Nothing(Poll::End) if self.is_draining => file.close(),
                Found::Nothing(Poll::End) => file.end(),
                Found::Nothing(later) => return Ok(later),
            }
        }
        Ok(Poll::End)
    }

    fn position(&self) -> SourcePosition {
        let places: Vec<Vec<u8>> = self
            .files
            .iter()
            .map(|file| file.place().map_or_else(Vec::new, |place| place.to_bytes()))
            .collect();
        let files = self.files.iter().zip(&places);
        let place = place::to_bytes(files.map(|(file, place)| (file.path.as_path(), file.is_done, &**place)));
        SourcePosition { next: self.next, place }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.next = position.next;
        if position.place.is_empty() {
            return Ok(());
        }
        let known = place::of_bytes(&position.place)
            .ok_or_else(|| Error::corrupt("the commit record holds no places in files"))?;
        let pairs = self.paired(&known)?;
        let some_path = self.files.first().map(|file| file.path.clone()).unwrap_or_default();
        let mut named: Vec<Option<OneFile>> = std::mem::take(&mut self.files).into_iter().map(Some).collect();
        let is_one = named.len() == 1;
        for (known, pair) in known.into_iter().zip(pairs) {
            // Of a file of which nothing is committed another one may take the place.
            let place = known.place.filter(|place| place.cut.byte > 0);
            let mut file = match pair.and_then(|pair| named[pair].take()) {
                Some(mut file) => {
                    if place.is_some() {
                        file.reading = Reading::Closed(place);
                        file.open(&self.format, self.goes_on)?;
                        if !is_one {
                            file.close();
                        }
                    }
                    file
                }
                None => {
                    let path = known.path.unwrap_or_default();
                    if place.is_some() && !known.is_done {
                        warn!(
                            path = %path.display(),
                            "a file was not read to its end and is no longer named: its remaining records are not read"
                        );
                    }
                    OneFile {
                        reading: Reading::Closed(place),
                        is_over: true,
                        ..OneFile::new(some_path.found(path))
                    }
                }
            };
            file.is_done = known.is_done;
            self.files.push(file);
        }
        self.files.extend(named.into_iter().flatten());
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        if run.first != self.next {
            return Err(Error::corrupt(format!(
                "the order log goes on with record {} of the files, expected {}",
                run.first, self.next
            )));
        }
        self.give(run.partition, run.count, max_bytes)
    }

    fn is_parted(&self) -> bool {
        self.files.len() > 1
    }

    fn scouts(&mut self) -> Result<Vec<ScoutReader>, Error> {
        let reader = |(number, file): (usize, &OneFile)| {
            let (path, place) = (file.path.clone(), file.place());
            let (format, goes_on) = (Arc::clone(&self.format), self.goes_on);
            let open = move || {
                let file = open(&path, &format, goes_on, place.as_ref())?;
                Ok(Box::new(file) as Box<dyn Source>)
            };
            ScoutReader { partition: number as PartitionId, open: Box::new(open) }
        };
        Ok(self.files.iter().enumerate().filter(|(_, file)| !file.is_over).map(reader).collect())
    }

    fn take(&mut self, wanted: &[Wanted], max_bytes: usize) -> Result<RawBlock, Error> {
        let Some(Wanted { partition, count }) = wanted.first() else {
            return Err(Error::internal("no records are wanted"));
        };
        self.give(*partition, *count, max_bytes)
    }

    fn finished(&mut self, partition: PartitionId) {
        if let Some(file) = self.files.get_mut(partition as usize) {
            file.end();
        }
    }

    fn drain(&mut self) {
        self.is_draining = true;
        for file in &mut self.files {
            if let Reading::Open(file) = &mut file.reading {
                file.drain();
            }
        }
    }

    fn progress(&self) -> Option<SourceProgress> {
        let (mut done, mut total) = (0, 0);
        for file in &self.files {
            let own = match &file.reading {
                Reading::Open(file) => file.progress(),
                Reading::Closed(_) => None,
            };
            let bytes = own.and_then(|own| own.total).unwrap_or(file.bytes);
            total += bytes;
            done += own.map_or(if file.is_over { bytes } else { 0 }, |own| own.done);
        }
        Some(SourceProgress { done, total: Some(total) })
    }
}
