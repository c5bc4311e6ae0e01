//! Keyed elements: S4's processing elements, with state that outlives a crash.
//!
//! An [`Element`] holds the state of one key and sees the records of that key alone. [`Elements`] runs them as an
//! operator: it finds the element of each record's key, makes one on first sight, keeps them in a bounded cache over
//! a back end, hands over what changed in a cycle, has them emit by count or time, and ends those that nothing has
//! touched for long. Without key fields there is one element per task.
//!
//! Time is *task time*: the largest event time of all records that the task has taken, whatever their input. A record
//! moves it before its element sees it. Duplicates and late records are not taken (`judge`), by the rules of the
//! streams of their inputs.
//!
//! Order of the output
//! * What an element emits for a record, or as output after a number of them, is at that record.
//! * Wakes are before the record that moved task time to them: by due time, then as they were asked for.
//! * Output by time is at a tick, in the order in which elements were first touched since their last output.
//!
//! Invariants
//! * What is emitted is a function of the order alone. Batches, the size of the cache, what it let go of, what a scan
//!   brought, where cycles end and restarts change nothing: whether an element has expired is decided by its saved time when it is
//!   looked at, and all lists of elements that wait for something are state themselves (`lists`).
//! * An element that was changed is in the hand-over of its cycle, as it was at the marker.
//!
//! Cost: the elements of a batch's records are looked up together before the first of them is called, so that a record costs
//! little more than its element's own work, however many keys there are. What elements hold is measured once for a batch.
//!
//! Not here: where the back end comes from (the node opens it), users' elements.

mod ahead;
mod entry;
mod judge;
mod lists;
mod operator;
mod position;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use thalweg_state::{Backend, StateError, Version};
use thalweg_types::{Error, Micros, Offset, Seq};

use crate::{Emit, NewRecord, Packed, Row};

pub use judge::{InputRules, LateAt, LateRecords};
pub use operator::Elements;
use position::Manifest;

/// What is known of one key. `Shared` is what all elements of a type have in common, such as places of fields.
///
/// An `Err` or a panic stops the job and names operator, task and record; an error names the key too.
///
/// ```
/// use thalweg_flow::{Element, Get, Packed, Row, Set, Turn};
/// use thalweg_types::{Error, Value};
///
/// /// The largest value of each device; emits when it grows.
/// struct Peak { value: f64 }
///
/// struct PeakFields { value: Get<f64>, device: Set<Value>, peak: Set<f64> }
///
/// impl Element for Peak {
///     type Shared = PeakFields;
///
///     fn create(_: &PeakFields, _: Packed<'_>) -> Self {
///         Self { value: f64::NEG_INFINITY }
///     }
///
///     fn process(&mut self, fields: &PeakFields, record: Row<'_>, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
///         let value = record.get(fields.value);
///         if value <= self.value {
///             return Ok(());
///         }
///         self.value = value;
///         turn.keyed(0, &[fields.device])?.set(fields.peak, value).send()
///     }
///
///     fn save(&self, into: &mut Vec<u8>) {
///         into.extend_from_slice(&self.value.to_le_bytes());
///     }
///
///     fn load(_: &PeakFields, bytes: &[u8]) -> Result<Self, Error> {
///         let bytes = bytes.try_into().map_err(|_| Error::corrupt("a peak is not 8 bytes"))?;
///         Ok(Self { value: f64::from_le_bytes(bytes) })
///     }
/// }
/// ```
pub trait Element: Sized + Send {
    type Shared: Send + Sync;

    /// The first record of a key has come, or the first one after the element was forgotten.
    fn create(shared: &Self::Shared, key: Packed<'_>) -> Self;

    /// A record of its key; [`Row::port`] says by which input.
    ///
    /// # Errors
    /// Stops the job.
    fn process(
        &mut self,
        shared: &Self::Shared,
        record: Row<'_>,
        turn: &mut Turn<'_, '_>,
    ) -> Result<(), Error>;

    /// Its output is due by [`OutputPolicy`].
    ///
    /// # Errors
    /// Stops the job.
    fn output(&mut self, shared: &Self::Shared, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let _ = (shared, turn);
        Ok(())
    }

    /// Task time has reached a time that was asked for with [`Turn::wake_at`], perhaps by an element of this key that
    /// has been forgotten since.
    ///
    /// # Errors
    /// Stops the job.
    fn wake(&mut self, shared: &Self::Shared, due: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let _ = (shared, due, turn);
        Ok(())
    }

    /// Appends all that [`Element::load`] needs for an equal element.
    fn save(&self, into: &mut Vec<u8>);

    /// # Errors
    /// If `save` did not make the bytes.
    fn load(shared: &Self::Shared, bytes: &[u8]) -> Result<Self, Error>;

    /// Bytes that it holds on the heap, in addition to itself. Asked once for all records of a batch.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// What an element is given with a call: its key, the time, and where it puts what it emits.
pub struct Turn<'a, 'e> {
    emit: &'a mut Emit<'e>,
    key: Packed<'a>,
    task_time: Micros,
    asked: &'a mut Asked,
}

/// What an element asked for in its turn.
#[derive(Default)]
struct Asked {
    wakes: Vec<Micros>,
    forget: bool,
}

impl<'a> Turn<'a, '_> {
    /// The values of the key fields.
    pub fn key(&self) -> Packed<'a> {
        self.key
    }

    /// The largest event time that the task has seen.
    pub fn task_time(&self) -> Micros {
        self.task_time
    }

    /// Begins a record on an output; as [`Emit::record`].
    pub fn record(&mut self, port: usize) -> NewRecord<'_> {
        self.emit.record(port)
    }

    /// Begins a record on an output and sets its key fields, in the order of the key.
    ///
    /// # Errors
    /// If the key is damaged.
    pub fn keyed(
        &mut self,
        port: usize,
        fields: &[crate::Set<thalweg_types::Value>],
    ) -> Result<NewRecord<'_>, Error> {
        self.key.set(self.emit.record(port), fields)
    }

    /// Emits a record as it is; as [`Emit::forward`].
    ///
    /// # Errors
    /// If the output has other fields.
    pub fn forward(&mut self, port: usize, record: Row<'_>) -> Result<(), Error> {
        self.emit.forward(port, record)
    }

    /// Source and offset of a record by its order number; as [`crate::Output::place_of`].
    pub fn place_of(&self, seq: Seq) -> Option<(Arc<str>, Offset)> {
        self.emit.place_of(seq)
    }

    /// Has [`Element::wake`] called when task time reaches `due`, or moves at all where it is there already. Every
    /// distinct time is a list in the manifest of each cycle: round up.
    pub fn wake_at(&mut self, due: Micros) {
        self.asked.wakes.push(due.max(self.task_time.saturating_add(1)));
    }

    /// Ends the element after this call; the next record of its key makes a new one.
    pub fn forget(&mut self) {
        self.asked.forget = true;
    }
}

/// When elements are asked for output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputPolicy {
    #[default]
    Never,
    /// Each time the key has got this number of records.
    Records(u64),
    /// At the first tick of each such span of the wall clock, counted from the epoch: the elements that were touched
    /// since their last output. In microseconds.
    Every(Micros),
}

/// How long an element stays that no record touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// In task time, microseconds.
    pub after: Micros,
    pub on: OnExpiry,
}

/// The treatment of an element whose time to live has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// It leaves memory once the back end has it, and comes back with the next record of its key. Without a back end
    /// it stays.
    Unload,
    /// It is gone; the next record of its key makes a new one. Output that was due by time, and its wakes, are
    /// gone with it.
    Forget,
}

/// When elements have their changes committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointPace {
    /// When cycles end anyway.
    #[default]
    Cycle,
    /// After this number of records of a task at the latest.
    Records(u64),
    /// After this much of the wall clock by ticks, in microseconds, at the latest.
    Every(Micros),
}

/// How elements are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementSettings {
    pub output: OutputPolicy,
    pub expiry: Option<Expiry>,
    pub checkpoint: CheckpointPace,
}

/// Where the elements of a task are kept.
pub struct ElementState {
    /// `None`: they live as long as the task.
    backend: Option<Arc<dyn Backend>>,
    cycle: u64,
    manifest: Manifest,
    /// Bytes of elements in memory.
    memory: usize,
    is_eager: bool,
    /// What waits for time is emitted at the end of the input.
    ends_with_input: bool,
}

impl ElementState {
    /// In memory alone and without a bound: the task takes no part in cycles. Elements that wait for time at the end of
    /// the input emit then.
    pub fn in_memory() -> Self {
        Self {
            backend: None,
            cycle: 0,
            manifest: Manifest::default(),
            memory: usize::MAX,
            is_eager: false,
            ends_with_input: true,
        }
    }

    /// In memory alone, in a job that is committed by cycles: elements that wait at the end are lost with the rest, as
    /// no cycle would have the records that are emitted after the last.
    pub fn unkept() -> Self {
        Self { ends_with_input: false, ..Self::in_memory() }
    }

    /// Over a back end. `cycle` is the last one committed, 0 for none, and `position` what the task's part of it said.
    /// `memory` bounds clean elements in memory, in bytes.
    ///
    /// # Errors
    /// If the position is damaged or of a newer build, and what `open` says.
    pub fn open(
        cycle: u64,
        position: Option<&[u8]>,
        memory: usize,
        open: impl FnOnce(Option<&Version>) -> Result<Box<dyn Backend>, StateError>,
    ) -> Result<Self, Error> {
        let position = position.map(position::split).transpose()?;
        let (version, manifest) = match position {
            Some((version, manifest)) => (Some(Version::from_bytes(version)), manifest),
            None => (None, Manifest::default()),
        };
        let backend = open(version.as_ref())?;
        Ok(Self { backend: Some(backend.into()), cycle, manifest, memory, ..Self::unkept() })
    }

    /// A scan of the back end brings elements in while the job works, until memory is full. Otherwise each comes on its
    /// first use.
    #[must_use]
    pub fn eager(self) -> Self {
        Self { is_eager: true, ..self }
    }
}
