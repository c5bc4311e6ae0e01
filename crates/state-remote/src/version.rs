//! The version that a commit record names: the space, its rows, and the parts of the log that count in addition.
//!
//! Layout (little-endian): magic 4, format 2, space 8, cycle 8, 1 if rows were of a cycle 1, that cycle 8, count 2, then
//! for each cycle after the rows: cycle 8, owner 8, parts 4; checksum 4. There are one or two of them as a rule.

use std::path::Path;

use thalweg_state::wire::{self, Fields};
use thalweg_state::{StateError, Version};

const MAGIC: [u8; 4] = *b"\xf7ThR";
const FORMAT: u16 = 1;

/// The parts of one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) cycle: u64,
    pub(crate) owner: u64,
    pub(crate) parts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) space: u64,
    pub(crate) cycle: u64,
    /// What the rows were of when the version was made.
    pub(crate) folded: Option<u64>,
    /// Oldest first.
    pub(crate) logged: Vec<Logged>,
}

impl Named {
    pub(crate) fn to_version(&self) -> Version {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&self.space.to_le_bytes());
        bytes.extend_from_slice(&self.cycle.to_le_bytes());
        bytes.push(u8::from(self.folded.is_some()));
        bytes.extend_from_slice(&self.folded.unwrap_or_default().to_le_bytes());
        // Cycles that are on their way: two, wherever a job is well.
        bytes.extend_from_slice(&(self.logged.len() as u16).to_le_bytes());
        for logged in &self.logged {
            bytes.extend_from_slice(&logged.cycle.to_le_bytes());
            bytes.extend_from_slice(&logged.owner.to_le_bytes());
            bytes.extend_from_slice(&logged.parts.to_le_bytes());
        }
        wire::seal(&mut bytes);
        Version::from_bytes(bytes)
    }

    pub(crate) fn of_version(version: &Version, dir: &Path) -> Result<Self, StateError> {
        let bytes = version.as_bytes();
        if let Some(found) = bytes.strip_prefix(&MAGIC).and_then(|rest| Fields::new(rest).u16())
            && found > FORMAT
        {
            let what = "a version of state in a store";
            return Err(StateError::NewerFormat { path: dir.to_owned(), what, found, newest: FORMAT });
        }
        Self::read(bytes).ok_or_else(|| StateError::Version {
            dir: dir.to_owned(),
            what: "layout",
            expected: "a version of state in a store".to_owned(),
            got: format!("{version:?}"),
        })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(wire::checked(bytes).ok()?);
        (fields.bytes(4)? == MAGIC && fields.u16()? == FORMAT).then_some(())?;
        let (space, cycle) = (fields.u64()?, fields.u64()?);
        let has_rows = fields.bytes(1)? == [1];
        let folded = fields.u64().map(|cycle| has_rows.then_some(cycle))?;
        let mut logged = Vec::new();
        for _ in 0..fields.u16()? {
            logged.push(Logged { cycle: fields.u64()?, owner: fields.u64()?, parts: fields.u32()? });
        }
        fields.rest().is_empty().then_some(Self { space, cycle, folded, logged })
    }
}

/// Bytes of a version that names no cycle.
const LEN: usize = 37;
const PER_CYCLE: usize = 20;

/// The version in a task's part of a commit record, in words; `None` if it has no version.
pub fn describe_in(part: &[u8]) -> Option<String> {
    let named = (0..part.len()).filter(|at| part[*at..].starts_with(&MAGIC)).find_map(|at| {
        let count = part.get(at + LEN - 6..)?.first_chunk().map(|count| u16::from_le_bytes(*count))?;
        Named::read(part.get(at..at + LEN + usize::from(count) * PER_CYCLE)?)
    })?;
    let parts: u32 = named.logged.iter().map(|logged| logged.parts).sum();
    Some(format!(
        "state of cycle {} in space {:016x} of a store, {parts} parts logged",
        named.cycle, named.space
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_back_and_damage_is_seen() {
        let logged = Logged { cycle: 8, owner: 3, parts: 2 };
        let named = Named { space: 77, cycle: 9, folded: Some(7), logged: vec![logged] };
        let version = named.to_version();
        assert_eq!(Named::of_version(&version, Path::new("d")).unwrap(), named);
        let bytes = version.as_bytes();
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 4;
            assert!(Named::of_version(&Version::from_bytes(damaged), Path::new("d")).is_err(), "byte {at}");
            assert!(Named::of_version(&Version::from_bytes(&bytes[..at]), Path::new("d")).is_err());
        }
        let part = [b"before\xf7Th", bytes, b"behind"].concat();
        let said = "state of cycle 9 in space 000000000000004d of a store, 2 parts logged";
        assert_eq!(describe_in(&part).as_deref(), Some(said));
        assert_eq!(describe_in(&part[..part.len() - 7]), None);
    }
}
