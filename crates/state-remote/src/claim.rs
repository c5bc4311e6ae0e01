//! The claim of a task on a store: which space there has the state of the task, and which folder it belongs to.
//!
//! A space is named by a file of the data directory. If the data directory is lost, nothing else would know that the
//! store has state, and the job would begin anew without a word. So each task has one head with a number of its own,
//! [`CLAIM`], that names the space which is in use.
//!
//! Layout (little-endian): format 2, number of the space 8, length of the task's name 2, name of the task, folder of the
//! task, checksum 4. Name and folder are for people.

use std::sync::Arc;

use thalweg_state::wire::{self, Fields};
use thalweg_state::{StateError, StoreFault};

use crate::backend::LOST;
use crate::head::Head;
use crate::store::Store;
use crate::wait::{Patience, Work};

/// The number under which a task's claim is; no space has it.
pub(crate) const CLAIM: u64 = u64::MAX;

const FORMAT: u16 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Number of the space.
    pub(crate) space: u64,
    /// As the process that made the claim saw it.
    pub(crate) folder: String,
}

impl Claim {
    /// `task` is shorter than 64 KiB, as names of jobs and operators are.
    pub(crate) fn to_bytes(&self, task: &str) -> Vec<u8> {
        let mut bytes = FORMAT.to_le_bytes().to_vec();
        bytes.extend_from_slice(&self.space.to_le_bytes());
        bytes.extend_from_slice(&(task.len() as u16).to_le_bytes());
        bytes.extend_from_slice(task.as_bytes());
        bytes.extend_from_slice(self.folder.as_bytes());
        wire::seal(&mut bytes);
        bytes
    }

    /// `None` for bytes that are not a claim of this task.
    pub(crate) fn of_bytes(bytes: &[u8], task: &str) -> Option<Self> {
        let mut fields = Fields::new(wire::checked(bytes).ok()?);
        fields.u16().filter(|format| *format == FORMAT)?;
        let space = fields.u64()?;
        let length = usize::from(fields.u16()?);
        if fields.bytes(length)? != task.as_bytes() {
            return None;
        }
        let folder = String::from_utf8(fields.rest().to_vec()).ok()?;
        Some(Self { space, folder })
    }
}

/// The claim of a task in the store.
pub(crate) struct Claims<'a> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) patience: &'a Patience,
    pub(crate) task: &'a str,
}

impl Claims<'_> {
    /// As it is stored, and what it says.
    pub(crate) fn held(&self) -> Result<Option<(Vec<u8>, Claim)>, StateError> {
        let Some(bytes) = self.patience.until_done(Work::Read, "look at the claim", || self.store.head())?
        else {
            return Ok(None);
        };
        match Claim::of_bytes(&bytes, self.task) {
            Some(claim) => Ok(Some((bytes, claim))),
            None => {
                let message =
                    format!("claim of task {}: expected one of this task, got other bytes", self.task);
                Err(self.patience.fault(StoreFault::Damaged, message, LOST))
            }
        }
    }

    pub(crate) fn take(&self, before: Option<Vec<u8>>, claim: &Claim) -> Result<(), StateError> {
        let new = claim.to_bytes(self.task);
        let before = before.as_deref();
        if self.patience.until_done(Work::Write, "claim the state", || self.store.set_head(before, &new))? {
            return Ok(());
        }
        let message = format!("state of task {}: another process begins it at the same time", self.task);
        Err(self.patience.fault(StoreFault::TakenOver, message, "run a job in one process"))
    }

    /// Whether a cycle of this space may have been committed.
    pub(crate) fn has_state(&self, store: &dyn Store) -> Result<bool, StateError> {
        let Some(head) = self.patience.until_done(Work::Read, "look at the head", || store.head())? else {
            return Ok(false);
        };
        // A head that cannot be read says nothing against it.
        let has_rows = Head::of_bytes(&head, self.task).is_none_or(|head| head.folded.is_some());
        Ok(has_rows || !self.patience.until_done(Work::Read, "list the log", || store.parts())?.is_empty())
    }

    pub(crate) fn foreign(&self, claim: &Claim) -> StateError {
        let message = format!(
            "the store has state of task {} that belongs to the folder {:?}, and this data directory has no commit of it",
            self.task, claim.folder
        );
        self.patience.fault(
            StoreFault::Refused,
            message,
            "run the job with the data directory that it ran with; if that is lost, --begin-anew deletes the state in the \
             store, and the job starts from nothing",
        )
    }

    pub(crate) fn superseded(&self, claim: &Claim) -> StateError {
        let message =
            format!("state of task {}: the job has begun anew from the folder {:?}", self.task, claim.folder);
        self.patience.fault(
            StoreFault::Refused,
            message,
            "run the job with that data directory; this one's state is no longer in the store",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_come_back_and_damaged_or_foreign_ones_do_not() {
        for folder in ["", "D/jobs/job/tasks/op/3/state", "/däta"] {
            let claim = Claim { space: 7, folder: folder.to_owned() };
            let bytes = claim.to_bytes("job/op/3");
            assert_eq!(Claim::of_bytes(&bytes, "job/op/3"), Some(claim));
            assert_eq!(Claim::of_bytes(&bytes, "job/op/4"), None);
            assert_eq!(Claim::of_bytes(&bytes, "job/op/"), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert_eq!(Claim::of_bytes(&damaged, "job/op/3"), None);
                assert_eq!(Claim::of_bytes(&bytes[..at], "job/op/3"), None);
            }
        }
    }
}
