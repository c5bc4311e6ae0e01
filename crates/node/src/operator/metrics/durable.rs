//! A stage that outlives its process: its state goes to the task's back end, and is restored from there.
//!
//! At a marker the stage freezes the changed groups. It is written out in slices: some at once, some after each batch
//! and tick that follows, so that no marker holds the task up. When a cycle is whole it goes to the commit thread,
//! which waits for the chunks, writes the changes to the back end, and names both.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_flow::{CyclePart, Output};
use thalweg_state::{Backend, Block, Changes, Filling, Version, write_changes};
use thalweg_storage::{ChunkId, ChunkStore, ChunkStoreOptions};
use thalweg_types::Error;
use thalweg_window::stage::{GroupReader, Manifest, Stage, StageHandover, is_group};

use super::spec::{MetricsSpec, StageQuery, StageSpec, plan_stage, task_options};
use crate::job_file::Recovery;
use crate::operator::{TaskContext, TaskResume};

/// Groups that are written at the marker itself, which is all of them where little has changed: some tens of microseconds.
const AT_MARKER: usize = 100;
/// Groups that are written after a batch, in addition to one for each of its records.
const AFTER_BATCH: usize = 64;
/// Groups that are written at a tick, when nothing else may come for a while: about a millisecond.
const AT_TICK: usize = 4_000;

/// Memory of a cycle's changes that is kept for the next.
const KEPT_CHANGES: usize = 32 << 20;

/// For how long groups of a scan are taken over at a tick, when a record may be about to come.
const FILL_AT_TICK: Duration = Duration::from_millis(4);

/// The durable side of a stage's task.
pub(super) struct DurableStage {
    backend: Arc<dyn Backend>,
    progress: Arc<Progress>,
    /// What the stage knows of it.
    told_written: u64,
    told_committed: u64,
    is_open: bool,
    /// Whether the end of the cycle was asked for.
    is_hastened: bool,
    /// Brings groups in after a lazy start.
    filling: Option<Filling>,
}

/// Cycles that the commit thread is done with. Relaxed: nothing is published with it; the stage learns what it may
/// forget, and what it may delete.
struct Progress {
    /// The last one whose changes can be read back.
    written: AtomicU64,
    committed: AtomicU64,
    /// Changes that have been written, for their memory.
    spare: Mutex<Option<Changes>>,
}

impl Progress {
    fn spare(&self) -> MutexGuard<'_, Option<Changes>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's groups, read back from its back end.
struct Groups(Arc<dyn Backend>);

impl GroupReader for Groups {
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(self.0.get_many(keys)?)
    }
}

impl DurableStage {
    fn new(backend: Arc<dyn Backend>, cycle: u64) -> Self {
        let (written, committed) = (AtomicU64::new(cycle), AtomicU64::new(cycle));
        let progress = Arc::new(Progress { written, committed, spare: Mutex::default() });
        Self {
            backend,
            progress,
            told_written: cycle,
            told_committed: cycle,
            is_open: false,
            is_hastened: false,
            filling: None,
        }
    }

    /// Memory in which the back end finds keys.
    pub(super) fn index_bytes(&self) -> u64 {
        self.backend.stats().index_bytes
    }

    pub(super) fn begin(&mut self, stage: &mut Stage, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        // The sequencer waits for the parts of a cycle before it marks the next, but for the last one.
        self.finish(stage, out)?;
        stage.begin_cycle(cycle)?;
        self.is_open = true;
        self.is_hastened = false;
        self.go_on(stage, AT_MARKER, out)
    }

    pub(super) fn after_batch(
        &mut self,
        stage: &mut Stage,
        records: usize,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        self.go_on(stage, AFTER_BATCH + records, out)?;
        if stage.is_over_memory() {
            out.hold_sources();
        }
        if stage.wants_cycle() && !self.is_hastened {
            self.is_hastened = true;
            out.hasten_cycle();
        }
        self.fill(stage, Duration::ZERO)
    }

    /// Takes over a block of groups from the scan, and others for as long as `time` has not passed.
    fn fill(&mut self, stage: &mut Stage, time: Duration) -> Result<(), Error> {
        if self.filling.is_none() {
            return Ok(());
        }
        let began = Instant::now();
        while let Some(filling) = &mut self.filling {
            let wants_more = match filling.poll() {
                Block::Entries(entries) => {
                    stage.fill(entries.iter().filter_map(|change| Some((change.key, change.value?))))?
                }
                Block::NotYet => return Ok(()),
                Block::Failed(error) => return Err(error),
                Block::End => false,
            };
            if !wants_more {
                self.filling = None;
                stage.end_fill();
            }
            if began.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn at_tick(&mut self, stage: &mut Stage, out: &mut Output<'_>) -> Result<(), Error> {
        self.go_on(stage, AT_TICK, out)?;
        self.fill(stage, FILL_AT_TICK)
    }

    pub(super) fn finish(&mut self, stage: &mut Stage, out: &mut Output<'_>) -> Result<(), Error> {
        self.go_on(stage, usize::MAX, out)
    }

    fn go_on(&mut self, stage: &mut Stage, budget: usize, out: &mut Output<'_>) -> Result<(), Error> {
        let written = self.progress.written.load(Ordering::Relaxed);
        if written > self.told_written {
            self.told_written = written;
            stage.written(written);
            if let Some(changes) = self.progress.spare().take() {
                stage.reuse(changes);
            }
        }
        let committed = self.progress.committed.load(Ordering::Relaxed);
        if committed > self.told_committed {
            self.told_committed = committed;
            stage.committed(committed);
        }
        if self.is_open
            && let Some(handover) = stage.hand_over_some(budget)?
        {
            self.is_open = false;
            let cycle = handover.cycle;
            let part = StagePart {
                cycle,
                handover: Some(handover),
                backend: Arc::clone(&self.backend),
                progress: Arc::clone(&self.progress),
            };
            out.hand_over(cycle, Box::new(part));
        }
        Ok(())
    }
}

struct StagePart {
    cycle: u64,
    handover: Option<StageHandover>,
    backend: Arc<dyn Backend>,
    progress: Arc<Progress>,
}

impl CyclePart for StagePart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        let Some(mut handover) = self.handover.take() else {
            return Err(Error::internal("a part of a cycle was prepared twice"));
        };
        // In parallel with the steps below, which wait for the disk, too.
        handover.sync.begin();
        write_changes(self.backend.as_ref(), self.cycle, &handover.changes)?;
        // Before others are notified, who look for it then. Memory that a cycle did not fill by half, or a lot of it,
        // is freed.
        let (used, memory) = (handover.changes.byte_len(), handover.changes.capacity());
        *self.progress.spare() = (memory <= KEPT_CHANGES && used >= memory / 2).then_some(handover.changes);
        self.progress.written.store(self.cycle, Ordering::Relaxed);
        let version = self.backend.prepare(self.cycle)?;
        handover.sync.wait()?;
        Ok(Position { version, manifest: handover.manifest }.to_bytes())
    }

    fn committed(self: Box<Self>) -> Result<(), Error> {
        self.backend.committed(self.cycle)?;
        self.progress.committed.store(self.cycle, Ordering::Relaxed);
        Ok(())
    }
}

/// What the commit record says of a stage: the back end's version with its length before it, and the stage's manifest.
struct Position {
    version: Version,
    manifest: Vec<u8>,
}

impl Position {
    fn to_bytes(&self) -> Vec<u8> {
        let version = self.version.as_bytes();
        // Versions have some dozens of bytes.
        let mut bytes = (version.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(version);
        bytes.extend_from_slice(&self.manifest);
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let (version, manifest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self { version: Version::from_bytes(version), manifest: manifest.to_vec() })
    }
}

/// What a part of a commit record says of a stage, where it is one of a stage.
pub(crate) fn manifest_in(part: &[u8]) -> Option<Manifest> {
    Manifest::parse(&Position::of_bytes(part)?.manifest).ok()
}

/// The chunks that a part of a commit record names, where it is one of a stage.
pub(crate) fn chunks_in(part: &[u8]) -> Option<Range<ChunkId>> {
    manifest_in(part).map(|manifest| manifest.chunks())
}

/// Opens a stage's task where the last commit left it, or begins it.
pub(super) fn open(
    context: &TaskContext<'_>,
    resume: &TaskResume,
    spec: &MetricsSpec,
    stage: &StageSpec,
) -> Result<(Stage, DurableStage), Error> {
    let queries: Vec<&StageQuery> = stage.queries.iter().collect();
    let services = context.services;
    let options = task_options(spec, services, stage.missed);
    let position = match &resume.position {
        None => None,
        Some(bytes) => Some(Position::of_bytes(bytes).ok_or_else(|| {
            Error::corrupt(format!("the commit record holds no checkpoint of task {}", context.info.index))
        })?),
    };
    let version = position.as_ref().map(|position| &position.version);
    let backend: Arc<dyn Backend> = services.backends.open(context, version)?.into();
    let mut durable = DurableStage::new(Arc::clone(&backend), resume.cycle);
    let Some(position) = position else {
        ChunkStore::discard(services.fs.as_ref(), &context.folder.join("reservoir"))?;
        let store = open_store(context, None)?;
        let mut stage = plan_stage(spec, &queries, store, options)?;
        if let Some(memory) = context.memory {
            stage.bound(memory, Arc::new(Groups(backend)));
        }
        return Ok((stage, durable));
    };
    let manifest = Manifest::parse(&position.manifest)?;
    let store = open_store(context, Some(&manifest))?;
    let named: Vec<_> = queries.iter().map(|query| (query.name.as_str(), &query.query)).collect();
    let mut restoring = Stage::restore(&spec.input, options, store, manifest, &named)?;
    // With a bound the stage begins with the groups that it needs, and a scan brings in others while memory lasts.
    if let Some(memory) = context.memory {
        restoring.bound(memory, Arc::new(Groups(Arc::clone(&backend))));
        restoring.load_lazily()?;
        let mut stage = restoring.finish()?;
        if services.state.recovery == Recovery::Eager {
            stage.begin_fill();
            durable.filling = Some(Filling::begin(backend, is_group)?);
        }
        return Ok((stage, durable));
    }
    let mut failure = None;
    backend.scan(&mut |key, value| match restoring.load(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok((restoring.finish()?, durable)),
    }
}

/// The task's chunks: those that a manifest names, or none.
pub(super) fn open_store(
    context: &TaskContext<'_>,
    manifest: Option<&Manifest>,
) -> Result<ChunkStore, Error> {
    let services = context.services;
    let mut options = ChunkStoreOptions::new(u64::from(context.info.index));
    options.committed = manifest.map(Manifest::chunks);
    Ok(ChunkStore::open(
        Arc::clone(&services.fs),
        context.folder.join("reservoir"),
        Arc::clone(&services.pool),
        Arc::clone(&services.chunks),
        options,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_and_what_is_cut_is_none() {
        let position = Position { version: Version::from_bytes(vec![1, 2, 3]), manifest: vec![9; 5] };
        let bytes = position.to_bytes();
        let again = Position::of_bytes(&bytes).unwrap();
        assert_eq!((again.version, again.manifest), (position.version, position.manifest));
        assert!((0..7).all(|len| Position::of_bytes(&bytes[..len]).is_none()));
    }
}
