//! The head of a space: its owner, and the cycle of its rows.
//!
//! Layout (little-endian): format 2, owner 8, 1 if there is a cycle 1, cycle 8, name of the task, checksum 4. The name
//! is for people, and distinguishes two tasks with equal numbers.

use thalweg_state::wire::{self, Fields};

const FORMAT: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Drawn anew whenever the space is opened.
    pub(crate) owner: u64,
    /// Rows are as this cycle left them, or on their way to the next.
    pub(crate) folded: Option<u64>,
}

impl Head {
    pub(crate) fn to_bytes(self, task: &str) -> Vec<u8> {
        let mut bytes = FORMAT.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.owner.to_le_bytes());
        bytes.push(u8::from(self.folded.is_some()));
        bytes.extend_from_slice(&self.folded.unwrap_or_default().to_le_bytes());
        bytes.extend_from_slice(task.as_bytes());
        wire::seal(&mut bytes);
        bytes
    }

    /// `None` where the bytes are no head of this task.
    pub(crate) fn of_bytes(bytes: &[u8], task: &str) -> Option<Self> {
        let mut fields = Fields::new(wire::checked(bytes).ok()?);
        fields.u16().filter(|format| *format == FORMAT)?;
        let owner = fields.u64()?;
        let has_cycle = fields.bytes(1)? == [1];
        let cycle = fields.u64()?;
        (fields.rest() == task.as_bytes()).then_some(Self { owner, folded: has_cycle.then_some(cycle) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_those_of_others_are_none() {
        for head in [Head { owner: 7, folded: None }, Head { owner: u64::MAX, folded: Some(0) }] {
            let bytes = head.to_bytes("job/op/3");
            assert_eq!(Head::of_bytes(&bytes, "job/op/3"), Some(head));
            assert_eq!(Head::of_bytes(&bytes, "job/op/4"), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Head::of_bytes(&damaged, "job/op/3"), None);
                assert_eq!(Head::of_bytes(&bytes[..at], "job/op/3"), None);
            }
        }
    }
}
