//! How `state.memory` of a job is divided among the tasks of its operators, as those ask for it.

use crate::job_file::{CheckedJob, CheckedOperator};
use crate::operator::{Memory, Tasks};

/// Where a job does not say, for elements: groups are not bounded then.
const STATE_MEMORY: u64 = 256 << 20;

/// The shares of a job's tasks, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Of each task with groups; `None` where they are not bounded.
    groups: Option<usize>,
    /// Of each operator with elements, for all its tasks.
    elements: usize,
}

impl Shares {
    /// Three quarters for groups, in equal parts: keys are spread by their hashes, so tasks have about as many of them. The
    /// last quarter is for elements.
    pub fn of(job: &CheckedJob) -> Self {
        let asking = |memory: Memory| {
            job.operators.iter().filter(move |operator| operator.prepared.memory == Some(memory))
        };
        let split = |operator: &CheckedOperator| -> usize {
            let parts = operator.prepared.parts.iter().filter(|part| part.tasks == Tasks::Partitions);
            parts.map(|part| operator.part_tasks(part.tasks) as usize).sum()
        };
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let tasks: usize = asking(Memory::Groups).map(split).sum();
        let operators = asking(Memory::Elements).count().max(1) as u64;
        Self {
            groups: job.state.memory.map(|memory| bytes(memory) / 4 * 3 / tasks.max(1)),
            elements: bytes(job.state.memory.unwrap_or(STATE_MEMORY) / 4 / operators),
        }
    }

    /// The share of one of an operator's tasks; `None` where nothing bounds it.
    pub fn of_task(&self, memory: Option<Memory>, tasks: u32) -> Option<usize> {
        match memory {
            None => Some(0),
            Some(Memory::Groups) => self.groups,
            Some(Memory::Elements) => Some(self.elements / tasks.max(1) as usize),
        }
    }
}
