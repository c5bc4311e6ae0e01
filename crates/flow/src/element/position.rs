//! What the commit record keeps of a task of elements.
//!
//! Little-endian: format (1), length of the back end's version (4), version, manifest. The manifest: task time (8),
//! last tick (8), both the least number for none; next number of a list (8); how many inputs (4), and of each the time
//! below which all is late (8), the least number before the first record; then lists up to the end, each with its use
//! (1: output, 2: wake, 3: idle, 4: ids), due time (8; of ids what they are, as in their keys), number (8), first piece (4)
//! and end (4).
//!
//! Format 1 has no inputs.

use std::sync::Arc;

use thalweg_state::HandOver;
use thalweg_types::{Error, Micros};

use super::lists::{List, Lists};
use crate::CyclePart;

const FORMAT: u8 = 2;
/// Read, and not written any more.
const WITHOUT_BOUNDS: u8 = 1;
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
    Ok((version, Manifest::decode(manifest, *format != WITHOUT_BOUNDS)?))
}

/// What a task of elements knows beside its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) time: Option<Micros>,
    pub(super) now: Option<Micros>,
    /// By input, the time below which all was late.
    pub(super) bounds: Vec<Micros>,
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

    fn decode(bytes: &[u8], has_bounds: bool) -> Result<Self, Error> {
        let mut manifest = Self::default();
        let mut rest = bytes;
        manifest.read(&mut rest, has_bounds).filter(|()| rest.is_empty()).ok_or_else(|| {
            let (length, at) = (bytes.len(), bytes.len() - rest.len());
            Error::corrupt(format!(
                "manifest of elements in the commit record: damaged at byte {at} of {length}"
            ))
        })?;
        Ok(manifest)
    }

    fn read(&mut self, rest: &mut &[u8], has_bounds: bool) -> Option<()> {
        let time = |bytes| Some(Micros::from_le_bytes(bytes)).filter(|time| *time != NONE);
        self.time = time(take(rest)?);
        self.now = time(take(rest)?);
        self.lists.next_id = u64::from_le_bytes(take(rest)?);
        if has_bounds {
            for _ in 0..u32::from_le_bytes(take(rest)?) {
                self.bounds.push(Micros::from_le_bytes(take(rest)?));
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
