//! The fold of one node: where it begins, what it reads, when it has to stop.

use thalweg_types::{Class, Error, Micros, Offset};

use super::State;
use super::apply::{Applied, Change, Void};
use crate::control::{self, ControlError, Decoded, NEWEST, Record, StateRecord};
use crate::rules::{Rule, holds};

/// Why a node can no longer follow the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The log has neither a usable State record nor its first record.
    #[error(
        "control log begins at offset {first} and has no state that could be gone on from, expected offset 0"
    )]
    NoBeginning { first: Offset },
    /// The node and the author of the State record disagree: one of them has computed otherwise.
    #[error(
        "state as of offset {at} differs from the one recorded at offset {offset} by {by}, first in {field}"
    )]
    Differs { at: Offset, offset: Offset, by: String, field: String },
    /// The log has been raised to a version that this build does not know.
    #[error("control log has version {version} from offset {offset} on, expected at most {newest}")]
    TooNew { version: u32, offset: Offset, newest: u32 },
    /// The caller gave records out of order.
    #[error("control log was read at offset {got}, expected {next} or later")]
    OutOfOrder { next: Offset, got: Offset },
}

impl Stop {
    /// Whose turn it is.
    pub fn class(&self) -> Class {
        match self {
            Stop::NoBeginning { .. } | Stop::Differs { .. } => Class::Corrupt,
            Stop::TooNew { .. } => Class::User,
            Stop::OutOfOrder { .. } => Class::Internal,
        }
    }

    /// A remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Stop::NoBeginning { .. } => Some(
                "records were deleted too early: keep two states in this topic, or begin with a new prefix",
            ),
            Stop::Differs { .. } => Some(
                "see which build each node runs; a node that is started anew begins with the recorded state",
            ),
            Stop::TooNew { .. } => Some("run the build that the other nodes run, or a newer one"),
            Stop::OutOfOrder { .. } => None,
        }
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        let converted = Error::new(stop.class(), stop.to_string());
        match stop.hint() {
            Some(hint) => converted.with_hint(hint),
            None => converted,
        }
    }
}

/// A fold that reads the log message by message.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    pub(super) state: State,
    /// The state as of the last cut, until it is recorded and compared.
    cut: Option<Box<State>>,
}

/// Begins to read a log whose first record is at `first`, at the newest of its State records whose following records are
/// all there; a log without one is read from offset 0.
///
/// `states` are State records, in the order of the log; those of the newest two are enough. A caller finds them by reading
/// once through the log ([`control::decode`]).
///
/// # Errors
/// [`Stop::NoBeginning`]: what came before is unknown. [`Stop::TooNew`].
pub fn begin(first: Offset, states: impl IntoIterator<Item = StateRecord>) -> Result<Fold, Stop> {
    let usable = |record: &StateRecord| record.state.next >= first;
    let newest = states.into_iter().filter(usable).max_by_key(|record| record.state.next);
    let state = match newest {
        Some(record) => record.state,
        None if first == 0 || !holds(Rule::LogHasBeginning) => State::new(),
        None => return Err(Stop::NoBeginning { first }),
    };
    if state.version > NEWEST {
        return Err(Stop::TooNew { version: state.version, offset: state.next, newest: NEWEST });
    }
    Ok(Fold { cut: state.cut.map(|_| Box::new(state.clone())), state })
}

impl Fold {
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state as of the last cut: what a State record has to say ([`State::may_record`]).
    pub fn cut(&self) -> Option<&State> {
        self.cut.as_deref()
    }

    /// Takes the message at `offset`, which the broker appended at `appended` (microseconds since 1970). Bytes that are no
    /// record are void, for every node alike; the error is for the node's own log.
    ///
    /// # Errors
    /// The node has to stop: [`Stop::Differs`], [`Stop::TooNew`], [`Stop::OutOfOrder`].
    pub fn take(
        &mut self,
        offset: Offset,
        appended: Micros,
        message: &[u8],
    ) -> Result<(Applied, Option<ControlError>), Stop> {
        match control::decode(message) {
            Ok(Decoded::Record(record)) => Ok((self.apply(offset, appended, &record)?, None)),
            Ok(Decoded::Newer { version, .. }) if holds(Rule::NewerIsVoid) => {
                Ok((self.pass(offset, appended, Void::Newer { version })?, None))
            }
            Ok(Decoded::Newer { version, .. }) => Err(Stop::TooNew { version, offset, newest: NEWEST }),
            Err(error) => Ok((self.pass(offset, appended, Void::Unreadable)?, Some(error))),
        }
    }

    /// Takes a record that was read already.
    ///
    /// # Errors
    /// As [`Fold::take`].
    pub fn apply(&mut self, offset: Offset, appended: Micros, record: &Record) -> Result<Applied, Stop> {
        self.in_order(offset)?;
        let applied = self.state.apply(offset, appended, record);
        for change in &applied.changes {
            match (change, record) {
                (Change::Version { to }, _) if *to > NEWEST => {
                    return Err(Stop::TooNew { version: *to, offset, newest: NEWEST });
                }
                (Change::Recorded { at }, Record::State(recorded)) => self.compare(*at, offset, recorded)?,
                _ => {}
            }
        }
        self.keep(&applied);
        Ok(applied)
    }

    fn pass(&mut self, offset: Offset, appended: Micros, void: Void) -> Result<Applied, Stop> {
        self.in_order(offset)?;
        let applied = self.state.pass(offset, appended, void);
        self.keep(&applied);
        Ok(applied)
    }

    fn in_order(&self, offset: Offset) -> Result<(), Stop> {
        if offset < self.state.next {
            return Err(Stop::OutOfOrder { next: self.state.next, got: offset });
        }
        Ok(())
    }

    fn keep(&mut self, applied: &Applied) {
        if applied.cut {
            self.cut = Some(Box::new(self.state.clone()));
        }
    }

    fn compare(&self, at: Offset, offset: Offset, recorded: &StateRecord) -> Result<(), Stop> {
        let Some(own) = self.cut.as_deref() else { return Ok(()) };
        if *own == recorded.state || !holds(Rule::StateIsCompared) {
            return Ok(());
        }
        let field = own.first_difference(&recorded.state);
        Err(Stop::Differs { at, offset, by: recorded.process.to_string(), field })
    }
}

impl State {
    /// The first field in which two states differ, with the key if it is a map.
    fn first_difference(&self, other: &State) -> String {
        fn key<K: Ord + std::fmt::Display, V: PartialEq>(
            ours: &std::collections::BTreeMap<K, V>,
            theirs: &std::collections::BTreeMap<K, V>,
        ) -> Option<String> {
            let keys = ours.keys().chain(theirs.keys());
            keys.filter(|key| ours.get(key) != theirs.get(key)).min().map(ToString::to_string)
        }
        if let Some(name) = key(&self.members, &other.members) {
            return format!("member {name}");
        }
        if let Some(job) = key(&self.jobs, &other.jobs) {
            return format!("job {job}");
        }
        if let Some(unit) = key(&self.units, &other.units) {
            return format!("unit {unit}");
        }
        let field = if self.plan != other.plan {
            "the plan in force"
        } else if self.events != other.events {
            "events"
        } else if self.age != other.age {
            "log time"
        } else {
            "counters"
        };
        field.to_owned()
    }
}
