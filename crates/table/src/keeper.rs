//! The keeper of a table: a thread that makes Parquet of full files of frames, merges small files, drops old ones, and takes
//! files that nobody needs any more off the disk.
//!
//! It touches committed rows only, and changes nothing but the files in which they are; so it needs no part in cycles,
//! and what it had not finished at a crash it begins anew. It is the manifest's only writer.
//! Its queue is the list of full files; how long that may grow is up to the writer ([`MOST_FROZEN`]).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use thalweg_connect::Expired;
use thalweg_types::{Error, Micros, format_timestamp};

use crate::clock::TableClock;
use crate::manifest::{Change, Entry, Manifest};
use crate::parquet::{self, Writer};
use crate::rollup::Roller;
use crate::table::Table;
use crate::{StoredFile, folder};

/// Committed files of frames that may wait; the writer stops at this number until one is done.
pub(crate) const MOST_FROZEN: usize = 4;

/// Small files of one partition that are worth merging.
const MERGE: usize = 8;

/// How often it looks after merging, retention and what can go, while nothing else happens.
const IDLE: Duration = Duration::from_secs(1);

/// How long a file stays after it is no more part of the table, for readers of other processes.
const PARQUET_GRACE: Duration = Duration::from_secs(60);
const FRAMES_GRACE: Duration = Duration::from_secs(10);

/// Holds the keeper's thread. When the last clone goes, the keeper makes Parquet of the full files that are committed, and ends;
/// the last holder waits for that.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Running>);

struct Running {
    sender: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    /// Tells the keeper to look.
    pub(crate) fn wake(&self) {
        if let Some(sender) = &*self.0.sender.lock().unwrap_or_else(PoisonError::into_inner) {
            // Full: it has been notified, and has not looked yet.
            _ = sender.try_send(());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the keeper of a table panicked");
        }
    }
}

/// Starts the keeper of a table.
///
/// # Errors
/// If no thread can be had.
pub(crate) fn start(table: Arc<Table>, manifest: Manifest) -> Result<Handle, Error> {
    let (sender, receiver) = bounded(1);
    let clock = manifest.contents.clock.clone().unwrap_or_default();
    let mut keeper =
        Keeper { table, manifest, doomed: Vec::new(), frames: Vec::new(), clock, is_told_of_ahead: false };
    let thread = std::thread::Builder::new().name(format!("table {}", keeper.table.name.table));
    let thread = thread
        .spawn(move || keeper.run(&receiver))
        .map_err(|error| Error::external("start the keeper of a table").with_source(error))?;
    let running = Running { sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) };
    Ok(Handle(Arc::new(running)))
}

struct Keeper {
    table: Arc<Table>,
    manifest: Manifest,
    /// Files that are no more part of the table, and since when.
    doomed: Vec<(Instant, Arc<StoredFile>)>,
    frames: Vec<(Instant, PathBuf)>,
    clock: TableClock,
    is_told_of_ahead: bool,
}

impl Keeper {
    fn run(&mut self, receiver: &Receiver<()>) {
        if let Err(error) = self.work(receiver) {
            let mut shared = self.table.lock();
            shared.failed = Some((error.class(), error.chain(), error.hint().map(str::to_owned)));
            if let Some(writer) = &shared.writer {
                writer.wake();
            }
        }
    }

    fn work(&mut self, receiver: &Receiver<()>) -> Result<(), Error> {
        self.build_rollups()?;
        loop {
            while self.seal_next()? {}
            let ended = match receiver.recv_timeout(IDLE) {
                Err(RecvTimeoutError::Disconnected) => true,
                Ok(()) | Err(RecvTimeoutError::Timeout) => false,
            };
            if ended {
                while self.seal_next()? {}
                self.expire()?;
                while self.merge_next(true)? {}
                self.unlink(true);
                return Ok(());
            }
            if self.merge_next(false)? {
                // Looks after full files first.
                continue;
            }
            self.expire()?;
            self.unlink(false);
        }
    }

    /// Makes Parquet of the oldest full file, if it is committed.
    fn seal_next(&mut self) -> Result<bool, Error> {
        let (extent, batches) = match self.table.lock().frozen.front() {
            Some(frozen) if frozen.is_committed => (frozen.extent, frozen.batches.clone()),
            _ => return Ok(false),
        };
        let begun = Instant::now();
        let mut change = self.manifest.contents.change();
        self.write(&mut change, folder::ROWS, &batches)?;
        let mut rolled: Vec<Roller<'_>> = Vec::new();
        for (place, plan) in self.table.plans.iter().enumerate() {
            // A coarser rollup is the sum of a finer one that has all its keys and sums.
            let finer = (0..place).rev().find(|finer| plan.is_made_of(&self.table.plans[*finer]));
            let mut roller = Roller::new(plan)?;
            match finer {
                Some(finer) => roller.add_groups(&rolled[finer])?,
                None => batches.iter().try_for_each(|rows| roller.add(rows))?,
            }
            self.write(&mut change, &plan.spec.name, &[roller.finish()?])?;
            rolled.push(roller);
        }
        drop(rolled);
        change.clock = self.seen_by_clock(&batches)?;
        change.sealed = extent.number + 1;
        change.last_sealed = Some(extent);
        let (rows, bytes) = change
            .add
            .iter()
            .filter(|entry| entry.part == folder::ROWS)
            .fold((0, 0), |(rows, bytes), entry| (rows + entry.rows, bytes + entry.bytes));
        self.commit(change)?;
        self.frames.push((Instant::now(), folder::frames(&self.table.dir, extent.number)));
        tracing::debug!(table = %self.table.name, rows, bytes, millis = begun.elapsed().as_millis() as u64, "sealed");
        Ok(true)
    }

    /// Writes rows as files of a part, which the change adds.
    fn write(&self, change: &mut Change, part: &str, batches: &[RecordBatch]) -> Result<(), Error> {
        let writer = Writer {
            fs: self.table.fs.as_ref(),
            table: &self.table.dir,
            codec: self.table.spec.codec,
            partition: self.table.spec.partition,
        };
        let entries = writer.write(part, self.table.time(), batches, change.next)?;
        change.next += entries.len() as u64;
        change.add.extend(entries);
        Ok(())
    }

    fn commit(&mut self, change: Change) -> Result<(), Error> {
        self.manifest.commit(change)?;
        let mut shared = self.table.lock();
        let gone = shared.take_over(&self.table, &self.manifest.contents);
        if let Some(writer) = &shared.writer {
            writer.wake();
        }
        drop(shared);
        self.doomed.extend(gone.into_iter().map(|file| (Instant::now(), file)));
        Ok(())
    }

    /// Makes rollups that are new of the rows that were sealed before.
    fn build_rollups(&mut self) -> Result<(), Error> {
        for place in 0..self.table.plans.len() {
            let table = Arc::clone(&self.table);
            let plan = &table.plans[place];
            if self.manifest.contents.built.contains(&plan.spec.name) {
                continue;
            }
            let sealed: Vec<Entry> = self.entries(folder::ROWS).cloned().collect();
            tracing::info!(table = %table.name, rollup = plan.spec.name, files = sealed.len(), "making a rollup of the rows there are");
            let mut change = self.manifest.contents.change();
            for entry in &sealed {
                let mut roller = Roller::new(plan)?;
                self.read(entry)?.iter().try_for_each(|rows| roller.add(rows))?;
                self.write(&mut change, &plan.spec.name, &[roller.finish()?])?;
            }
            change.built.insert(plan.spec.name.clone());
            self.commit(change)?;
        }
        Ok(())
    }

    fn entries(&self, part: &str) -> impl Iterator<Item = &Entry> {
        self.manifest.contents.files.values().filter(move |entry| entry.part == part)
    }

    fn read(&self, entry: &Entry) -> Result<Vec<RecordBatch>, Error> {
        let path = folder::parquet(&self.table.dir, &entry.part, &entry.partition, entry.number);
        parquet::read(self.table.fs.as_ref(), &path, entry)
    }

    /// Merges the small files of one partition, if it has enough of them. At the end two of a rollup are enough: summed up they
    /// become fewer rows, and no more files come.
    fn merge_next(&mut self, is_end: bool) -> Result<bool, Error> {
        let small = self.table.spec.seal_rows / 2;
        let parts =
            std::iter::once(folder::ROWS).chain(self.table.plans.iter().map(|plan| plan.spec.name.as_str()));
        for part in parts {
            let mut partitions: std::collections::BTreeMap<&str, Vec<&Entry>> = Default::default();
            for entry in self.entries(part).filter(|entry| entry.rows < small) {
                partitions.entry(&entry.partition).or_default().push(entry);
            }
            let enough = if is_end && part != folder::ROWS { 2 } else { MERGE };
            let Some(entries) = partitions.into_values().find(|entries| entries.len() >= enough) else {
                continue;
            };
            let mut rows = 0;
            let entries = entries.into_iter().take_while(|entry| {
                rows += entry.rows;
                rows <= 2 * small.max(1)
            });
            let entries: Vec<Entry> = entries.cloned().collect();
            if entries.len() < 2 {
                continue;
            }
            let part = part.to_owned();
            self.merge(&part, &entries)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn merge(&mut self, part: &str, entries: &[Entry]) -> Result<(), Error> {
        let mut change = self.manifest.contents.change();
        let table = Arc::clone(&self.table);
        let merged = match table.plans.iter().find(|plan| plan.spec.name == part) {
            None => {
                let batches: Vec<Vec<RecordBatch>> =
                    entries.iter().map(|entry| self.read(entry)).collect::<Result<_, _>>()?;
                batches.concat()
            }
            Some(plan) => {
                let mut roller = Roller::new(plan)?;
                for entry in entries {
                    self.read(entry)?.iter().try_for_each(|rows| roller.add(rows))?;
                }
                vec![roller.finish()?]
            }
        };
        self.write(&mut change, part, &merged)?;
        change.remove = entries.iter().map(|entry| entry.number).collect();
        tracing::debug!(table = %self.table.name, part, files = entries.len(), "merged");
        self.commit(change)
    }

    /// Looks at the clocks, where something is kept for a time only; the shortest such time.
    fn look_at_clocks(&mut self, clock: &mut TableClock) -> Option<Micros> {
        let retention = self.table.spec.shortest_retention()?;
        clock.look(self.table.clock.read(), retention);
        clock.begin(self.entries(folder::ROWS).map(|entry| (entry.last, entry.rows)).collect(), retention);
        Some(retention)
    }

    /// Lets the rows of a sealed file say what time it is; the clock as the manifest is to have it.
    fn seen_by_clock(&mut self, batches: &[RecordBatch]) -> Result<Option<TableClock>, Error> {
        let mut clock = std::mem::take(&mut self.clock);
        if let Some(retention) = self.look_at_clocks(&mut clock) {
            let mut times = Vec::new();
            for rows in batches {
                times.extend(parquet::times(self.table.time(), rows)?);
            }
            let newest = times.iter().copied().max().unwrap_or_default();
            let ahead = clock.seal(times, retention);
            if ahead > 0 && !std::mem::replace(&mut self.is_told_of_ahead, true) {
                tracing::warn!(
                    table = %self.table.name,
                    rows = ahead,
                    newest = format_timestamp(newest),
                    "rows are ahead of the wall clock: they are kept, and make no others old; `max_ahead` of a source refuses such records"
                );
            }
        }
        self.clock = clock;
        Ok(self.table.spec.shortest_retention().map(|_| self.clock.clone()))
    }

    /// Drops files whose rows are all older than the retention of their part, by the table's clock.
    fn expire(&mut self) -> Result<(), Error> {
        let mut clock = std::mem::take(&mut self.clock);
        let is_kept_for_a_time = self.look_at_clocks(&mut clock).is_some();
        self.clock = clock;
        let Some(now) = self.clock.now().filter(|_| is_kept_for_a_time) else { return Ok(()) };
        let spec = &self.table.spec;
        let rollups = spec.rollups.iter().map(|rollup| {
            (rollup.name.clone(), rollup.retention.map(|retention| retention.saturating_add(rollup.every)))
        });
        let parts: Vec<(String, Micros)> = [(folder::ROWS.to_owned(), spec.retention)]
            .into_iter()
            .chain(rollups)
            .filter_map(|(part, retention)| Some((part, now.saturating_sub(retention?))))
            .collect();
        let mut change = self.manifest.contents.change();
        let mut gone = Vec::new();
        for (part, bound) in parts {
            let old: Vec<&Entry> = self.entries(&part).filter(|entry| entry.last < bound).collect();
            let Some(last) = old.iter().map(|entry| entry.last).max() else { continue };
            let from = change.complete_from.entry(part.clone()).or_insert(i64::MIN);
            *from = (*from).max(last.saturating_add(1));
            change.remove.extend(old.iter().map(|entry| entry.number));
            let expired = Expired {
                rows: old.iter().map(|entry| entry.rows).sum(),
                files: old.len() as u64,
                bytes: old.iter().map(|entry| entry.bytes).sum(),
            };
            gone.push((part, bound, expired));
        }
        if gone.is_empty() {
            return Ok(());
        }
        change.clock = Some(self.clock.clone());
        self.commit(change)?;
        for (part, bound, expired) in gone {
            let Expired { rows, files, bytes } = expired;
            tracing::info!(
                table = %self.table.name,
                part,
                rows,
                files,
                bytes,
                before = format_timestamp(bound),
                now = format_timestamp(now),
                "deleted rows that are older than their retention"
            );
            self.table.report.add_expired(expired);
        }
        Ok(())
    }

    /// Takes files off the disk that no reader of this process has, and no other process should read any more.
    /// One that cannot be removed stays until the table is opened again.
    fn unlink(&mut self, is_end: bool) {
        let fs = Arc::clone(&self.table.fs);
        let is_due = |since: &Instant, grace| is_end || since.elapsed() >= grace;
        self.doomed.retain(|(since, file)| {
            let keep = !is_due(since, PARQUET_GRACE) || Arc::strong_count(file) > 1;
            if !keep {
                _ = fs.remove(&file.path);
            }
            keep
        });
        self.frames.retain(|(since, path)| {
            let keep = !is_due(since, FRAMES_GRACE);
            if !keep {
                _ = fs.remove(path);
            }
            keep
        });
    }
}
