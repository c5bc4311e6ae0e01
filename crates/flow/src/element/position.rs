//! What the commit record keeps of a task of elements.
//!
//! Little-endian: format (1), length of the back end's version (4), version, manifest. The manifest: task time (8),
//! last tick (8), both the least number for none; next number of a list (8); how many inputs (4), and of each the time
//! below which all is late (8), the least number before the first record; then lists up to the end, each with its use
//! (1: output, 2: wake, 3: idle, 4: ids), due time (8; of ids what they are, as in their keys), number (8), first piece (4)
//! and end (4).
//!
//! Format 1 has no inputs, and neither it nor format 2 has the newest record.

use std::sync::Arc;

use thalweg_state::HandOver;
use thalweg_types::{Error, Micros, RecordPlace};

use super::lists::{List, Lists};
use crate::CyclePart;

const FORMAT: u8 = 3;
/// Read, and not written any more.
const WITHOUT_BOUNDS: u8 = 1;
/// The same.
const WITHOUT_NEWEST: u8 = 2;
const NONE: Micros = Micros::MIN;

// Persisted, do not renumber.
const PENDING: u8 = 1;
const WAKE: u8 = 2;
const IDLE: u8 = 3;
const IDS: u8 = 4;

/// The version and the manifest in a position.
pub(super) fn split(bytes: &[u8]) -> Result<(&[u8], Manifest), Error> {
    let damaged =
        || Error::corrupt(format!("{} bytes in the commit record are no position of elements", bytes.len()));
    let (format, rest) = bytes.split_first().ok_or_else(damaged)?;
    if !(WITHOUT_BOUNDS..=FORMAT).contains(format) {
        return Err(Error::user(format!(
            "elements were committed in format {format}, and this build reads {WITHOUT_BOUNDS} to {FORMAT}"
        ))
        .with_hint("run the build that wrote it, or a newer one"));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
    let (version, manifest) =
        rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)?;
    Ok((version, Manifest::decode(manifest, *format)?))
}

/// What a task of elements knows in addition to its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) time: Option<Micros>,
    pub(super) now: Option<Micros>,
    /// By input, the time below which all was late.
    pub(super) bounds: Vec<Micros>,
    /// The record that moved task time to where it is.
    pub(super) newest: Option<RecordPlace>,
    pub(super) lists: Lists,
}

impl Manifest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.time.unwrap_or(NONE).to_le_bytes());
        bytes.extend_from_slice(&self.now.unwrap_or(NONE).to_le_bytes());
        bytes.extend_from_slice(&self.lists.next_id.to_le_bytes());
        // Inputs are written one by one into a job file.
        bytes.extend_from_slice(&(self.bounds.len() as u32).to_le_bytes());
        for bound in &self.bounds {
            bytes.extend_from_slice(&bound.to_le_bytes());
        }
        // Names of sources are written into a job file, and none is empty.
        let source = self.newest.as_ref().map_or("", |newest| &newest.source);
        bytes.extend_from_slice(&(source.len() as u32).to_le_bytes());
        bytes.extend_from_slice(source.as_bytes());
        if let Some(newest) = &self.newest {
            bytes.extend_from_slice(&newest.offset.to_le_bytes());
        }
        let pending = self.lists.pending.iter().map(|list| (PENDING, 0, *list));
        let wakes = self.lists.wakes.iter().map(|(due, list)| (WAKE, *due, *list));
        let idle = self.lists.idle.iter().map(|(due, list)| (IDLE, *due, *list));
        let ids = self.lists.ids.iter().map(|(mark, list)| (IDS, mark.cast_signed(), *list));
        for (purpose, due, List { id, first, end }) in pending.chain(wakes).chain(idle).chain(ids) {
            bytes.push(purpose);
            bytes.extend_from_slice(&due.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8], format: u8) -> Result<Self, Error> {
        let mut manifest = Self::default();
        let mut rest = bytes;
        manifest.read(&mut rest, format).filter(|()| rest.is_empty()).ok_or_else(|| {
            let (length, at) = (bytes.len(), bytes.len() - rest.len());
            Error::corrupt(format!(
                "manifest of elements in the commit record: damaged at byte {at} of {length}"
            ))
        })?;
        Ok(manifest)
    }

    fn read(&mut self, rest: &mut &[u8], format: u8) -> Option<()> {
        let time = |bytes| Some(Micros::from_le_bytes(bytes)).filter(|time| *time != NONE);
        self.time = time(take(rest)?);
        self.now = time(take(rest)?);
        self.lists.next_id = u64::from_le_bytes(take(rest)?);
        if format > WITHOUT_BOUNDS {
            for _ in 0..u32::from_le_bytes(take(rest)?) {
                self.bounds.push(Micros::from_le_bytes(take(rest)?));
            }
        }
        if format > WITHOUT_NEWEST {
            let length = u32::from_le_bytes(take(rest)?) as usize;
            let (name, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            if !name.is_empty() {
                let source = std::str::from_utf8(name).ok()?.into();
                self.newest = Some(RecordPlace { source, offset: u64::from_le_bytes(take(rest)?) });
            }
        }
        while !rest.is_empty() {
            let [purpose] = take(rest)?;
            let due = Micros::from_le_bytes(take(rest)?);
            let list = List {
                id: u64::from_le_bytes(take(rest)?),
                first: u32::from_le_bytes(take(rest)?),
                end: u32::from_le_bytes(take(rest)?),
            };
            let before = match purpose {
                PENDING => self.lists.pending.replace(list),
                WAKE => self.lists.wakes.insert(due, list),
                IDLE => self.lists.idle.insert(due, list),
                IDS => self.lists.ids.insert(due.cast_unsigned(), list),
                _ => return None,
            };
            if before.is_some() {
                return None;
            }
        }
        Some(())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*taken)
}

/// A task's part of a cycle.
pub(super) struct ElementPart {
    pub(super) changes: HandOver,
    pub(super) manifest: Arc<[u8]>,
}

impl CyclePart for ElementPart {
    fn prepare(&mut self) -> Result<Vec<u8>, Error> {
        let version = self.changes.prepare()?;
        let version = version.as_bytes();
        let mut position = Vec::with_capacity(5 + version.len() + self.manifest.len());
        position.push(FORMAT);
        // Some dozens of bytes, by the contract of back ends.
        position.extend_from_slice(&(version.len() as u32).to_le_bytes());
        position.extend_from_slice(version);
        position.extend_from_slice(&self.manifest);
        Ok(position)
    }

    fn committed(self: Box<Self>) -> Result<(), Error> {
        Ok(self.changes.committed()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> impl Strategy<Value = Manifest> {
        let newest = prop::option::of(("[a-zé]{1,9}", any::<u64>()));
        (any::<Option<i64>>(), prop::collection::vec(any::<i64>(), 0..4), newest, any::<u64>()).prop_map(
            |(time, bounds, newest, next_id)| Manifest {
                time: time.filter(|time| *time != NONE),
                now: None,
                bounds,
                newest: newest.map(|(source, offset)| RecordPlace { source: source.into(), offset }),
                lists: Lists { next_id, ..Lists::default() },
            },
        )
    }

    /// As an earlier build wrote it.
    fn earlier(manifest: &Manifest, format: u8) -> Vec<u8> {
        let mut bytes = Manifest { newest: None, ..manifest.clone() }.encode();
        bytes.truncate(bytes.len() - 4);
        if format == WITHOUT_BOUNDS {
            bytes.drain(24..28 + 8 * manifest.bounds.len());
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_and_a_cut_is_damage(manifest in manifest(), cut in any::<prop::sample::Index>()) {
            let bytes = manifest.encode();
            prop_assert_eq!(&Manifest::decode(&bytes, FORMAT).unwrap(), &manifest);
            prop_assert!(Manifest::decode(&bytes[..cut.index(bytes.len())], FORMAT).is_err());
        }

        #[test]
        fn formats_of_earlier_builds_have_no_newest_record(manifest in manifest()) {
            let expected = Manifest { newest: None, ..manifest.clone() };
            let read = Manifest::decode(&earlier(&manifest, WITHOUT_NEWEST), WITHOUT_NEWEST);
            prop_assert_eq!(&read.unwrap(), &expected);
            let read = Manifest::decode(&earlier(&manifest, WITHOUT_BOUNDS), WITHOUT_BOUNDS);
            prop_assert_eq!(read.unwrap(), Manifest { bounds: Vec::new(), ..expected });
        }
    }
}
