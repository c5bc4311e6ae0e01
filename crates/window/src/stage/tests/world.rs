//! A disk, a back end and a commit record around a stage, and crashes that leave of them what a power cut would.

use std::collections::BTreeMap;
use std::sync::Mutex;

use thalweg_storage::{ChunkBudget, ChunkId, ChunkStore, ChunkStoreOptions, IoPool, MemFs};
use thalweg_types::Origin;

use super::*;
use crate::stage::{GroupReader, Manifest, StageHandover};

/// Which queries a stage has from which record on.
pub(super) type History = Vec<(usize, Vec<(String, String)>)>;

/// What the last commit record names.
#[derive(Clone, Default)]
pub(super) struct Commit {
    /// Records before the marker.
    pub(super) position: usize,
    history: History,
    pub(super) manifest: Vec<u8>,
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What has been written, committed or not, as a back end would answer with it.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>);

impl GroupReader for Written {
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let entries = self.0.lock().unwrap();
        Ok(keys.iter().map(|key| entries.get(*key).cloned()).collect())
    }
}

impl Written {
    /// Changes all values of a kind.
    pub(super) fn damage(&self, kind: u8, damage: fn(&mut Vec<u8>)) {
        let mut entries = self.0.lock().unwrap();
        entries.iter_mut().filter(|(key, _)| key[0] == kind).for_each(|(_, value)| damage(value));
    }
}

/// How groups may leave memory and come back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) memory: usize,
    /// Groups come back on their first use and not all at once.
    pub(super) is_lazy: bool,
}

pub(super) struct World {
    fs: MemFs,
    pub(super) queries: Vec<(String, String)>,
    pub(super) options: StageOptions,
    /// Chunks are rolled into new files at this size, so that old ones can be deleted.
    pub(super) file_bytes: u64,
    pub(super) commit: Option<Commit>,
    pub(super) stage: Stage,
    pub(super) position: usize,
    cycle: u64,
    /// What the stage's queries were until now.
    pub(super) history: History,
    /// Markers whose cycle is not committed, with the records before them.
    markers: Vec<(u64, usize, History)>,
    /// Handed over and not committed.
    pub(super) waiting: Vec<StageHandover>,
    /// How many of them are written.
    written_count: usize,
    pub(super) written: Written,
    pub(super) bound: Option<Bound>,
    /// Entries that a scan which began at the last restart is still to bring: as they were then.
    scan: Vec<(Vec<u8>, Vec<u8>)>,
}

fn store(fs: &MemFs, file_bytes: u64, committed: Option<std::ops::Range<ChunkId>>) -> ChunkStore {
    let options = ChunkStoreOptions { committed, file_bytes, ..ChunkStoreOptions::new(1) };
    ChunkStore::open(Arc::new(fs.clone()), "/chunks", IoPool::inline(), ChunkBudget::new(1 << 20), options)
        .unwrap()
}

fn fresh(fs: &MemFs, queries: &[(String, String)], options: &StageOptions, file_bytes: u64) -> Stage {
    let mut stage = Stage::new(&schema(), options.clone(), store(fs, file_bytes, None));
    let planned: Vec<_> =
        queries.iter().map(|(name, text)| stage.plan(name, &Query::parse(text).unwrap()).unwrap()).collect();
    stage.add_queries(&planned).unwrap();
    stage
}

/// Drops the queries that are gone, then adds the new ones.
fn change(stage: &mut Stage, from: &[(String, String)], to: &[(String, String)]) {
    for (name, _) in from.iter().filter(|query| !to.contains(query)) {
        assert!(stage.drop_query(name));
    }
    let planned: Vec<_> = to
        .iter()
        .filter(|query| !from.contains(query))
        .map(|(name, text)| stage.plan(name, &Query::parse(text).unwrap()).unwrap())
        .collect();
    stage.add_queries(&planned).unwrap();
}

/// A stage of its own that has had the same queries at the same records, and has never been interrupted.
pub(super) fn reference(history: &History, options: &StageOptions, records: &[Record]) -> (Stage, usize) {
    let mut stage = fresh(&MemFs::new(), &history[0].1, options, 600);
    let mut position = 0;
    for pair in history.windows(2) {
        let to = pair[1].0;
        if position < to {
            stage.answer(&batch(&records[position..to], position as u64)).unwrap();
            position = to;
        }
        change(&mut stage, &pair[0].1, &pair[1].1);
    }
    (stage, position)
}

impl World {
    pub(super) fn new(queries: &[(String, String)], options: &StageOptions) -> Self {
        let (fs, file_bytes) = (MemFs::new(), 600);
        let stage = fresh(&fs, queries, options, file_bytes);
        Self {
            fs,
            queries: queries.to_vec(),
            options: options.clone(),
            file_bytes,
            commit: None,
            stage,
            position: 0,
            cycle: 0,
            history: vec![(0, queries.to_vec())],
            markers: Vec::new(),
            waiting: Vec::new(),
            written_count: 0,
            written: Written::default(),
            bound: None,
            scan: Vec::new(),
        }
    }

    /// Bounds the memory of groups, from now on and after each crash.
    pub(super) fn bounded(mut self, bound: Option<Bound>) -> Self {
        self.bound = bound;
        self.bind();
        self
    }

    /// Bounds the stage that there is.
    pub(super) fn bind(&mut self) {
        if let Some(bound) = self.bound {
            self.stage.bound(bound.memory, Arc::new(self.written.clone()));
        }
    }

    /// Writes the oldest cycle that is not written yet to the back end.
    pub(super) fn write(&mut self) {
        let Some(handover) = self.waiting.get(self.written_count) else { return };
        let mut entries = self.written.0.lock().unwrap();
        for thalweg_state::Change { key, value } in &handover.changes {
            match value {
                Some(value) => entries.insert(key.to_vec(), value.to_vec()),
                None => entries.remove(key),
            };
        }
        self.written_count += 1;
        self.stage.written(handover.cycle);
    }

    pub(super) fn answer(&mut self, records: &[Record], count: usize) -> (usize, Answers) {
        let from = self.position;
        let to = whole(records, records.len().min(from + count));
        self.position = to;
        (to - from, self.stage.answer(&batch(&records[from..to], from as u64)).unwrap())
    }

    /// The same where records that were made of one may come in parts.
    pub(super) fn answer_of(
        &mut self,
        records: &[Record],
        origins: &[Origin],
        count: usize,
    ) -> (usize, Answers) {
        let from = self.position;
        let to = records.len().min(from + count);
        self.position = to;
        let batch = batch(&records[from..to], from as u64);
        (to - from, self.stage.answer_of(&batch, &origins[from..to]).unwrap())
    }

    /// The scan brings some entries.
    pub(super) fn fill(&mut self, count: usize) -> bool {
        let left = self.scan.len().saturating_sub(count);
        let entries = self.scan.split_off(left);
        let wants_more = self.stage.fill(entries.iter().map(|(key, value)| (&key[..], &value[..]))).unwrap();
        if self.scan.is_empty() {
            self.stage.end_fill();
        }
        wants_more
    }

    /// A marker; one that is open is finished first.
    pub(super) fn begin(&mut self) {
        self.hand_over(usize::MAX);
        self.cycle += 1;
        self.stage.begin_cycle(self.cycle).unwrap();
        self.markers.push((self.cycle, self.position, self.history.clone()));
    }

    pub(super) fn hand_over(&mut self, budget: usize) {
        let handover = self.stage.hand_over_some(budget).unwrap();
        self.waiting.extend(handover);
    }

    /// Commits the oldest cycle that has been handed over.
    pub(super) fn commit(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        if self.written_count == 0 {
            self.write();
        }
        self.written_count -= 1;
        let handover = self.waiting.remove(0);
        handover.sync.wait().unwrap();
        let (cycle, position, history) = self.markers.remove(0);
        assert_eq!(cycle, handover.cycle);
        let mut commit = self.commit.take().unwrap_or_default();
        for thalweg_state::Change { key, value } in &handover.changes {
            match value {
                Some(value) => commit.entries.insert(key.to_vec(), value.to_vec()),
                None => commit.entries.remove(key),
            };
        }
        (commit.position, commit.manifest, commit.history) = (position, handover.manifest, history);
        self.commit = Some(commit);
        self.stage.committed(cycle);
        true
    }

    /// Gives a running stage other queries.
    pub(super) fn change(&mut self, queries: &[(String, String)]) {
        change(&mut self.stage, &self.queries, queries);
        self.queries = queries.to_vec();
        self.history.push((self.position, queries.to_vec()));
    }

    /// A power cut, and what a job does then: goes on from the last commit, or from the beginning.
    pub(super) fn crash(&mut self) -> Result<(), Error> {
        self.fs.crash();
        self.waiting.clear();
        self.written_count = 0;
        self.markers.clear();
        self.scan.clear();
        let entries = self.commit.as_ref().map(|commit| commit.entries.clone()).unwrap_or_default();
        self.written = Written(Arc::new(Mutex::new(entries)));
        let Some(commit) = &self.commit else {
            self.fs = MemFs::new();
            self.stage = fresh(&self.fs, &self.queries, &self.options, self.file_bytes);
            self.position = 0;
            self.history = vec![(0, self.queries.clone())];
            self.bind();
            return Ok(());
        };
        let manifest = Manifest::parse(&commit.manifest)?;
        self.cycle = manifest.cycle();
        let parsed: Vec<(&str, Query)> =
            self.queries.iter().map(|(name, text)| (name.as_str(), Query::parse(text).unwrap())).collect();
        let queries: Vec<(&str, &Query)> = parsed.iter().map(|(name, query)| (*name, query)).collect();
        let store = store(&self.fs, self.file_bytes, Some(manifest.chunks()));
        let mut restoring = Stage::restore(&schema(), self.options.clone(), store, manifest, &queries)?;
        if let Some(bound) = self.bound {
            restoring.bound(bound.memory, Arc::new(self.written.clone()));
        }
        if self.bound.is_some_and(|bound| bound.is_lazy) {
            restoring.load_lazily()?;
        } else {
            for (key, value) in &commit.entries {
                restoring.load(key, value)?;
            }
        }
        self.stage = restoring.finish()?;
        self.scan = commit.entries.clone().into_iter().collect();
        self.stage.begin_fill();
        self.position = commit.position;
        self.history.clone_from(&commit.history);
        self.history.push((self.position, self.queries.clone()));
        Ok(())
    }
}

/// `to` or after it, so that records with one order number are not torn apart: markers come between numbers.
pub(super) fn whole(records: &[Record], to: usize) -> usize {
    let shares = |at: usize| records[at].seq.is_some() && records[at - 1].seq == records[at].seq;
    (to..records.len()).find(|at| *at == 0 || !shares(*at)).unwrap_or(records.len())
}
