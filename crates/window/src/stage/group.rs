//! A group as a checkpoint has it: its key, its newest time, the task time that the image is of, and the state that each
//! leaf has of it.
//!
//! Leaves of one GROUP BY that differ only in their windows mostly have the same state of a group with few records, so
//! that states are written once for each *run* of leaves whose ids follow each other.
//!
//! Version 1 has no task time, and a state for each leaf; in versions 1 and 2 no list is in pieces.
//!
//! Not here: which groups are written (`checkpoint`), and read back (`cache`, `restore`).

use thalweg_types::Micros;

use super::LeafNode;
use super::nodes::Face;
use crate::groups::Groups;
use crate::image::{self, Malformed, Reader, put, put_bytes, put_signed};
use crate::key;

/// Version of the layout. Persisted.
pub(super) const VERSION: u8 = 3;

/// Memory for states that are compared, used again.
#[derive(Default)]
pub(super) struct Scratch {
    state: Vec<u8>,
    before: Vec<u8>,
}

/// Appends a group with this key and newest time, as of a task time.
pub(super) fn save<'a>(
    (key, newest): (&key::Key, Micros),
    as_of: Micros,
    (slot, parts): (u32, impl Iterator<Item = (&'a LeafNode, Face)>),
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    Groups::save((key, newest), out);
    put_signed(out, as_of.wrapping_sub(newest));
    let Scratch { state, before } = scratch;
    // First id and leaves of the run that has the state `before`, and the id after the run before.
    let (mut first, mut leaves, mut after) = (0_u32, 0_u32, 0_u32);
    let put_run = |out: &mut Vec<u8>, (first, leaves): (u32, u32), after: u32, state: &[u8]| {
        if leaves > 0 {
            put_signed(out, i64::from(first) - i64::from(after));
            put(out, u64::from(leaves));
            put_bytes(out, state);
        }
    };
    for (node, face) in parts {
        state.clear();
        node.leaf.save(face, slot, state);
        if leaves > 0 && node.id == first + leaves && state == before {
            leaves += 1;
            continue;
        }
        put_run(out, (first, leaves), after, before);
        after = first + leaves;
        (first, leaves) = (node.id, 1);
        std::mem::swap(state, before);
    }
    put_run(out, (first, leaves), after, before);
}

/// What an image says of the group itself.
pub(super) struct Head {
    pub(super) key: key::Key,
    pub(super) newest: Micros,
    /// Task time at the marker that it is of; `None` where it does not say so.
    pub(super) as_of: Option<Micros>,
}

/// The states in a group's image.
pub(super) struct States<'a> {
    version: u8,
    pub(super) reader: Reader<'a>,
}

/// Opens the value that a back end has under the bytes of a group's key.
///
/// # Errors
/// [`Malformed`].
pub(super) fn open<'a>(key: &[u8], value: &'a [u8]) -> Result<(Head, States<'a>), Malformed> {
    let (version, mut reader) = image::open_to(VERSION, key, value)?;
    let (key, newest) = Groups::read(&mut reader)?;
    let as_of = match version {
        1 => None,
        _ => Some(reader.signed("task time of a group")?.wrapping_add(newest)),
    };
    Ok((Head { key, newest, as_of }, States { version, reader }))
}

impl States<'_> {
    /// Restores the states that leaves had of the group; states of leaves that are gone are passed over.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn load(
        mut self,
        leaves: &mut [Option<LeafNode>],
        place: Option<usize>,
        slot: u32,
    ) -> Result<(), Malformed> {
        let reader = &mut self.reader;
        let mut leaves = Leaves { leaves, place, next: 0, version: self.version };
        if self.version == 1 {
            for _ in 0..reader.count("leaves of a group")? {
                let id = reader.word("id of a leaf")?;
                leaves.load(id, slot, reader.bytes("state of a leaf")?)?;
            }
            return reader.finish("group");
        }
        let mut after = 0_i64;
        while !reader.is_at_end() {
            let first = after.saturating_add(reader.signed("id of a leaf")?);
            let count = i64::from(reader.word("leaves of one state")?);
            let end = first.saturating_add(count);
            if first < 0 || count < 1 || end > i64::from(u32::MAX) {
                return Err(reader.malformed(
                    "leaves of one state",
                    "ids of leaves",
                    format_args!("{first}..{end}"),
                ));
            }
            let state = reader.bytes("state of a leaf")?;
            leaves.load_run(first as u32..end as u32, slot, state)?;
            after = end;
        }
        Ok(())
    }
}

/// Leaves of one GROUP BY, which are mostly asked for in order.
struct Leaves<'a> {
    leaves: &'a mut [Option<LeafNode>],
    place: Option<usize>,
    next: usize,
    version: u8,
}

impl Leaves<'_> {
    /// Restores the state of the leaves of a run, whichever are there.
    fn load_run(&mut self, ids: std::ops::Range<u32>, slot: u32, state: &[u8]) -> Result<(), Malformed> {
        // A forged run may be longer than any plan.
        if ids.len() > self.leaves.len() {
            for place in 0..self.leaves.len() {
                let id = self.leaves[place].as_ref().map(|node| node.id).filter(|id| ids.contains(id));
                id.map_or(Ok(()), |id| self.load(id, slot, state))?;
            }
            return Ok(());
        }
        ids.into_iter().try_for_each(|id| self.load(id, slot, state))
    }

    fn load(&mut self, id: u32, slot: u32, state: &[u8]) -> Result<(), Malformed> {
        let place = self.place;
        let is_it = |node: &Option<LeafNode>| {
            node.as_ref().is_some_and(|node| node.id == id && node.face(place).is_some())
        };
        let found = if self.leaves.get(self.next).is_some_and(is_it) {
            Some(self.next)
        } else {
            self.leaves.iter().position(is_it)
        };
        let Some(found) = found else { return Ok(()) };
        self.next = found + 1;
        let Some(node) = &mut self.leaves[found] else { return Ok(()) };
        let Some(face) = node.face(place) else { return Ok(()) };
        let mut part = Reader::of_version(state, self.version);
        node.leaf.load(face, slot, &mut part)?;
        part.finish("state of a leaf")
    }
}
