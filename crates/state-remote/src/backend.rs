//! Cycles in a store that knows neither files nor transactions: a log of parts before the rows.
//!
//! * `write` packs the changes of a cycle into parts, each acknowledged as durable by the store, and keeps them in memory.
//! * `prepare` looks whether the space is still ours, and names the parts.
//! * `committed` *folds*: it makes the rows those of the cycle, says so in the head, and drops the parts. Until then the
//!   rows are those of the last committed cycle.
//! * Opening folds what the commit record names, and drops every other part ([`crate::open`]).
//!
//! So undoing costs nothing, and the rows never hold changes that may have to be undone. A request without a received
//! answer is made again, and changes nothing the second time. One that a dead process left on its way, and that
//! arrives late, changes nothing either: parts bear their owner, and rows are changed under a head or by a newer cycle.
//!
//! Reads take the newest value in memory, and rows otherwise, with the head before them: a server that came back
//! without writes that it had acknowledged is found then, and the job stops.
//!
//! Memory: the changes of cycles that are not folded, of which there are two at most in a job.
//!
//! Invariants
//! * The rows are those of `folded`, or some of them are already those of the next pending cycle.
//! * What is pending is in memory until the rows have it.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use thalweg_state::{Backend, BackendStats, Changes, Cycles, StateError, StoreFault, Version, Visit};

use crate::head::Head;
use crate::pack::{self, Packer};
use crate::store::{PartName, RowChange, Space, Store};
use crate::version::{Logged, Named};
use crate::wait::{Outcome, Patience, Trouble, Work};

/// What to do where the server has lost something.
pub(crate) const LOST: &str = "see that the server keeps what it acknowledges (docs/operations.md) and bring back its data; or \
                               remove the job's folder and start with --begin-anew, from nothing";

/// The last change of each key in a cycle.
pub(crate) type ByKey = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

/// State of one task in a store.
#[derive(Debug)]
pub(crate) struct RemoteBackend {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) patience: Arc<Patience>,
    pub(crate) space: Space,
    pub(crate) dir: PathBuf,
    pub(crate) owner: u64,
    /// Locked by the one thread that writes, for the length of a call, and before `shared`.
    pub(crate) writer: Mutex<Writer>,
    /// Locked for moments.
    pub(crate) shared: RwLock<Shared>,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) cycles: Cycles,
    pub(crate) poison: Option<String>,
}

/// What readers look at.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Oldest first.
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) folded: Option<u64>,
    /// How many rows there are; where the store does not count, 1 if there are some, or may be.
    pub(crate) rows: u64,
}

/// A cycle that is in the log and not in the rows.
#[derive(Debug)]
pub(crate) struct Pending {
    cycle: u64,
    parts: u32,
    changes: Arc<ByKey>,
    /// Keys with a value among the changes, and bytes of all.
    live: u64,
    bytes: u64,
}

impl Pending {
    fn measure(&mut self) {
        self.live = self.changes.values().flatten().count() as u64;
        let bytes =
            self.changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, |value| value.len()));
        self.bytes = bytes.sum::<usize>() as u64;
    }
}

/// Lays changes over those of before.
pub(crate) fn gather(into: &mut ByKey, changes: &Changes) {
    for change in changes {
        into.insert(change.key.into(), change.value.map(Into::into));
    }
}

impl RemoteBackend {
    fn shared(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared_mut(&self) -> RwLockWriteGuard<'_, Shared> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn well(&self) -> Result<MutexGuard<'_, Writer>, StateError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match &writer.poison {
            Some(reason) => Err(StateError::Poisoned { dir: self.dir.clone(), reason: reason.clone() }),
            None => Ok(writer),
        }
    }

    /// Remembers a failure that waiting does not mend.
    fn note<T>(writer: &mut Writer, result: Result<T, StateError>) -> Result<T, StateError> {
        if let Err(error) = &result {
            writer.poison = Some(error.to_string());
        }
        result
    }

    fn fault(&self, fault: StoreFault, message: String, hint: &str) -> StateError {
        self.patience.fault(fault, message, hint)
    }

    pub(crate) fn damaged(&self, what: &str, expected: &str, got: &str) -> StateError {
        let message = format!("{what} of task {}: expected {expected}, got {got}", self.space.task);
        self.fault(StoreFault::Damaged, message, LOST)
    }

    /// Whether the space is ours, and its rows are no older than we made them.
    fn check_head(&self, bytes: Option<&[u8]>, at_least: Option<u64>) -> Result<(), StateError> {
        let Some(bytes) = bytes else { return Err(self.damaged("head", "one", "none")) };
        let Some(head) = Head::of_bytes(bytes, &self.space.task) else {
            return Err(self.damaged("head", "one of this task", "other bytes"));
        };
        if head.owner != self.owner {
            let message =
                format!("state of task {}: another process has opened it meanwhile", self.space.task);
            let hint = "run a job in one process, and never from two copies of a data directory";
            return Err(self.fault(StoreFault::TakenOver, message, hint));
        }
        if head.folded < at_least {
            let text = |cycle: Option<u64>| cycle.map_or("none".to_owned(), |cycle| format!("cycle {cycle}"));
            return Err(self.damaged("rows", &text(at_least), &text(head.folded)));
        }
        Ok(())
    }

    fn head(&self, folded: Option<u64>) -> Vec<u8> {
        Head { owner: self.owner, folded }.to_bytes(&self.space.task)
    }

    fn check_sizes(&self, changes: &Changes) -> Result<(), StateError> {
        let limits = self.store.limits();
        for change in changes {
            let pair = change.key.len() + change.value.map_or(0, <[u8]>::len);
            let (what, bytes, max) = if change.key.len() > limits.max_key {
                ("a key", change.key.len(), limits.max_key)
            } else {
                ("a value with its key", pair, limits.max_pair)
            };
            if bytes > max {
                return Err(StateError::TooLarge { what, bytes: bytes as u64, max: max as u64 });
            }
        }
        Ok(())
    }

    /// Puts changes into the log, from part `next` on; the part after them.
    fn log(&self, cycle: u64, next: u32, changes: &Changes) -> Result<u32, StateError> {
        let most = self.store.limits().bytes;
        let mut number = next;
        let mut packer = Packer::new();
        let mut put = |packer: &mut Packer| {
            let name = PartName { cycle, owner: self.owner, number };
            number += 1;
            let part = packer.finish();
            self.patience.until_done(Work::Write, "write", || self.store.put_part(name, &part))
        };
        for change in changes {
            let bytes = pack::CHANGE + change.key.len() + change.value.map_or(0, <[u8]>::len);
            if !packer.is_empty() && packer.len() + bytes > most {
                put(&mut packer)?;
            }
            packer.push(change);
        }
        if !packer.is_empty() {
            put(&mut packer)?;
        }
        Ok(number)
    }

    /// Makes the rows those of a cycle.
    pub(crate) fn fold(&self, cycle: u64, changes: &ByKey) -> Result<(), StateError> {
        let limits = self.store.limits();
        let head = self.head(self.shared().folded);
        let mut rows: Vec<RowChange<'_>> = Vec::new();
        let mut bytes = 0;
        for (key, value) in changes {
            let stored = value.as_ref().map(|value| pack::stored(key, value));
            let more = key.len() + stored.as_ref().map_or(0, Vec::len);
            if rows.len() == limits.keys || !rows.is_empty() && bytes + more > limits.bytes {
                self.apply(&head, cycle, &rows)?;
                rows.clear();
                bytes = 0;
            }
            bytes += more;
            rows.push((key, stored));
        }
        if !rows.is_empty() {
            self.apply(&head, cycle, &rows)?;
        }
        let new = self.head(Some(cycle));
        let is_set = self
            .patience
            .until_done(Work::Write, "set the head", || self.store.set_head(Some(&head), &new))?;
        if !is_set {
            return Err(self.why_not_ours());
        }
        let counted = self.patience.until_done(Work::Write, "count", || self.store.count())?;
        let has_values = changes.values().any(Option::is_some);
        let mut shared = self.shared_mut();
        shared.folded = Some(cycle);
        shared.rows = counted.unwrap_or(shared.rows.max(u64::from(has_values)));
        if shared.pending.front().is_some_and(|pending| pending.cycle == cycle) {
            shared.pending.pop_front();
        }
        Ok(())
    }

    fn apply(&self, head: &[u8], cycle: u64, rows: &[RowChange<'_>]) -> Result<(), StateError> {
        let is_ours =
            self.patience.until_done(Work::Write, "fold", || self.store.apply(head, cycle, rows))?;
        if is_ours { Ok(()) } else { Err(self.why_not_ours()) }
    }

    /// The head is not what we left there.
    fn why_not_ours(&self) -> StateError {
        let head = match self.patience.until_done(Work::Write, "look at the head", || self.store.head()) {
            Ok(head) => head,
            Err(error) => return error,
        };
        match self.check_head(head.as_deref(), self.shared().folded) {
            Err(error) => error,
            Ok(()) => self.damaged("head", "the one that was set", "one of a newer cycle"),
        }
    }

    /// Reads rows, as many as one request takes.
    fn read(&self, keys: &[&[u8]], at_least: Option<u64>) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        let found = self.patience.until_done(Work::Read, "read", || {
            let (head, values) = self.store.get_many(keys)?;
            self.check_head(head.as_deref(), at_least).map_err(Trouble::Lasting)?;
            Ok(values)
        })?;
        if found.len() != keys.len() {
            return Err(self.damaged("answer", &format!("{} values", keys.len()), &found.len().to_string()));
        }
        let decode = |(key, stored): (&&[u8], Option<Vec<u8>>)| match stored {
            Some(stored) => self.value(key, stored).map(Some),
            None => Ok(None),
        };
        keys.iter().zip(found).map(decode).collect()
    }

    fn value(&self, key: &[u8], stored: Vec<u8>) -> Result<Vec<u8>, StateError> {
        let bytes = stored.len();
        pack::value_of(key, stored).ok_or_else(|| {
            self.damaged(&format!("value of key {key:02x?}"), "its checksum", &format!("{bytes} other bytes"))
        })
    }

    /// The pending changes, newest first.
    fn pending(&self) -> (Vec<Arc<ByKey>>, Option<u64>) {
        let shared = self.shared();
        (shared.pending.iter().rev().map(|pending| Arc::clone(&pending.changes)).collect(), shared.folded)
    }

    fn look_at_head(&self, at_least: Option<u64>) -> Outcome<()> {
        let head = self.store.head()?;
        self.check_head(head.as_deref(), at_least).map_err(Trouble::Lasting)
    }
}

impl Backend for RemoteBackend {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StateError> {
        Ok(self.get_many(&[key])?.pop().flatten())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StateError> {
        self.reads.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let mut values = vec![None; keys.len()];
        let mut missing = Vec::new();
        let (pending, folded) = self.pending();
        for (at, key) in keys.iter().enumerate() {
            match pending.iter().find_map(|changes| changes.get(*key)) {
                Some(value) => values[at] = value.as_ref().map(|value| value.to_vec()),
                None => missing.push(at),
            }
        }
        let limits = self.store.limits();
        let mut rest = missing.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |at: &&usize| {
                bytes += keys[**at].len();
                bytes <= limits.read_bytes
            };
            let count = rest.iter().take(limits.read_keys).take_while(fits).count().max(1);
            let (now, later) = rest.split_at(count);
            let asked: Vec<&[u8]> = now.iter().map(|at| keys[*at]).collect();
            for (at, value) in now.iter().zip(self.read(&asked, folded)?) {
                values[*at] = value;
            }
            rest = later;
        }
        Ok(values)
    }

    fn write(&self, cycle: u64, changes: &Changes) -> Result<(), StateError> {
        let mut writer = self.well()?;
        writer.cycles.check_write(cycle)?;
        self.check_sizes(changes)?;
        let parts = {
            let shared = self.shared();
            shared.pending.back().filter(|pending| pending.cycle == cycle).map_or(0, |pending| pending.parts)
        };
        let logged = self.log(cycle, parts, changes);
        let parts = Self::note(&mut writer, logged)?;
        let mut shared = self.shared_mut();
        if !changes.is_empty() {
            if shared.pending.back().is_none_or(|pending| pending.cycle != cycle) {
                shared.pending.push_back(Pending {
                    cycle,
                    parts,
                    changes: Arc::default(),
                    live: 0,
                    bytes: 0,
                });
            }
            if let Some(pending) = shared.pending.back_mut() {
                pending.parts = parts;
                gather(Arc::make_mut(&mut pending.changes), changes);
                pending.measure();
            }
        }
        drop(shared);
        writer.cycles.wrote(cycle);
        self.writes.fetch_add(changes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn prepare(&self, cycle: u64) -> Result<Version, StateError> {
        let mut writer = self.well()?;
        writer.cycles.check_prepare(cycle)?;
        let folded = self.shared().folded;
        let looked = self.patience.until_done(Work::Write, "look at the head", || self.look_at_head(folded));
        Self::note(&mut writer, looked)?;
        writer.cycles.did_prepare(cycle);
        let shared = self.shared();
        let logged =
            |pending: &Pending| Logged { cycle: pending.cycle, owner: self.owner, parts: pending.parts };
        let logged = shared.pending.iter().map(logged).collect();
        Ok(Named { space: self.space.number, cycle, folded: shared.folded, logged }.to_version())
    }

    fn committed(&self, cycle: u64) -> Result<(), StateError> {
        let mut writer = self.well()?;
        writer.cycles.check_committed(cycle)?;
        loop {
            let next = {
                let shared = self.shared();
                let front = shared.pending.front().filter(|pending| pending.cycle <= cycle);
                front.map(|pending| (pending.cycle, pending.parts, Arc::clone(&pending.changes)))
            };
            let Some((folding, parts, changes)) = next else { break };
            let folded = self.fold(folding, &changes).and_then(|()| {
                let name = |number| PartName { cycle: folding, owner: self.owner, number };
                let names: Vec<_> = (0..parts).map(name).collect();
                self.patience.until_done(Work::Write, "drop the log", || self.store.drop_parts(&names))
            });
            Self::note(&mut writer, folded)?;
        }
        writer.cycles.did_commit(cycle);
        Ok(())
    }

    fn scan(&self, visit: &mut Visit<'_>) -> Result<(), StateError> {
        drop(self.well()?);
        let (pending, folded) = self.pending();
        let is_newer =
            |count: usize, key: &[u8]| pending.iter().take(count).any(|newer| newer.contains_key(key));
        for (place, changes) in pending.iter().enumerate() {
            for (key, value) in changes.iter().filter(|(key, _)| !is_newer(place, key)) {
                if let Some(value) = value
                    && visit(key, value).is_break()
                {
                    return Ok(());
                }
            }
        }
        let mut rows = self.store.rows();
        loop {
            let some = self.patience.until_done(Work::Read, "scan", || rows.next())?;
            self.patience.until_done(Work::Read, "look at the head", || self.look_at_head(folded))?;
            let Some(some) = some else { return Ok(()) };
            for (key, stored) in some {
                if !is_newer(pending.len(), &key)
                    && visit(&key, &self.value(&key, stored)?) == ControlFlow::Break(())
                {
                    return Ok(());
                }
            }
        }
    }

    fn stats(&self) -> BackendStats {
        let shared = self.shared();
        BackendStats {
            keys: shared.rows + shared.pending.iter().map(|pending| pending.live).sum::<u64>(),
            index_bytes: shared.pending.iter().map(|pending| pending.bytes).sum(),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            ..BackendStats::default()
        }
    }
}
