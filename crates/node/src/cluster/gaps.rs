//! What a unit does about rows that never came: it goes on, and says so.
//!
//! A frame that begins after the mark up to which a unit has its sender's rows does not count, and none after it does until
//! the sender sends from that mark or an earlier one. So senders have to hear of it. A *door* is told at once, on its
//! reply topic ([`Refusals`]): it goes on as another incarnation. A *unit* is named in the beats of the receiver's node as
//! long as its gap is open ([`OpenGaps`]); what its own node does then is in `mend`.
//!
//! Where a gap is open is a function of the log up to the message that is named with it, so all copies of a unit name the
//! same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_cluster::control::MAX_PARTITIONS;
use thalweg_cluster::frame::RowFrame;
use thalweg_cluster::positions::{Mark, Origin};
use thalweg_types::{Micros, Offset};

use super::actor::since;
use super::answering::{Post, is_recent};

/// How often a unit refuses rows of one incarnation.
const REFUSE_EVERY: Duration = Duration::from_secs(1);

/// Incarnations that a unit remembers to have refused; where there are more the one that was refused first is forgotten, and
/// may hear of it sooner.
const REFUSED: usize = 64;

/// A sending unit of whose rows some have not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGap {
    /// The place of the sender's stage in the chain, and its partition.
    pub stage: u32,
    pub partition: u32,
    /// The mark up to which all rows are there.
    pub through: Mark,
    /// All messages below this offset were read, and left it so.
    pub read: Offset,
}

/// The gaps of a unit that are open.
#[derive(Debug, Default)]
pub struct OpenGaps(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// By stage and partition of the sender: the mark up to which rows are there, and that of the last row which is known
    /// to be. At most as many as a stage has partitions; further ones are not named.
    gaps: BTreeMap<(u32, u32), (Mark, Mark)>,
    read: Offset,
}

impl OpenGaps {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().gaps.len()
    }

    /// As of the message that was judged last.
    pub fn list(&self) -> Vec<OpenGap> {
        let open = self.lock();
        let gap = |((stage, partition), (through, _)): (&(u32, u32), &(Mark, Mark))| OpenGap {
            stage: *stage,
            partition: *partition,
            through: *through,
            read: open.read,
        };
        open.gaps.iter().map(gap).collect()
    }
}

/// Takes note of gaps for [`OpenGaps`]: the source's part of it.
#[derive(Debug)]
pub(super) struct GapNotes {
    open: Arc<OpenGaps>,
    is_any: bool,
}

impl GapNotes {
    pub(super) fn new(open: Arc<OpenGaps>) -> Self {
        Self { open, is_any: false }
    }

    /// A frame whose last row has the mark `end` does not count, as rows after `through` have not come.
    pub(super) fn missing(&mut self, origin: Origin, through: Mark, end: Mark) {
        let Origin::Unit { stage, partition } = origin else { return };
        // One that has nothing new does not show that anything is missing.
        if end <= through {
            return;
        }
        let mut open = self.open.lock();
        if open.gaps.len() >= MAX_PARTITIONS as usize && !open.gaps.contains_key(&(stage, partition)) {
            return;
        }
        let (before, furthest) = open.gaps.entry((stage, partition)).or_insert((through, end));
        (*before, *furthest) = (through, end.max(*furthest));
        self.is_any = true;
    }

    /// All rows up to `through` are there.
    pub(super) fn came(&mut self, origin: Origin, through: Mark) {
        let (true, Origin::Unit { stage, partition }) = (self.is_any, origin) else { return };
        let mut open = self.open.lock();
        if let Some((before, furthest)) = open.gaps.get_mut(&(stage, partition)) {
            *before = through;
            if through >= *furthest {
                open.gaps.remove(&(stage, partition));
            }
        }
        self.is_any = !open.gaps.is_empty();
    }

    /// All messages below `offset` have been judged.
    pub(super) fn judged(&self, offset: Offset) {
        if self.is_any {
            self.open.lock().read = offset;
        }
    }
}

/// Refuses rows of doors, where the unit is active: not those that follow another one.
pub(super) struct Refusals {
    post: Option<Arc<Post>>,
    is_active: Arc<AtomicBool>,
    /// When the incarnations were refused last.
    refused: BTreeMap<u64, Micros>,
}

impl Refusals {
    pub(super) fn new(post: Option<Arc<Post>>, is_active: Arc<AtomicBool>) -> Self {
        Self { post, is_active, refused: BTreeMap::new() }
    }

    /// A frame of a door, which the broker appended at `appended`, does not count.
    pub(super) fn refuse(&mut self, incarnation: u64, frame: Option<&RowFrame>, appended: Micros) {
        let Some(post) = &self.post else { return };
        // Relaxed: a refusal too many does no harm, and one too few is made up for by that of the next frame.
        let now = post.now();
        if !self.is_active.load(Ordering::Relaxed) || !is_recent(appended, now) {
            return;
        }
        if self.refused.get(&incarnation).is_some_and(|at| since(*at, now) < REFUSE_EVERY) {
            return;
        }
        if self.refused.len() >= REFUSED && !self.refused.contains_key(&incarnation) {
            let oldest = self.refused.iter().min_by_key(|(_, at)| **at).map(|(oldest, _)| *oldest);
            oldest.and_then(|oldest| self.refused.remove(&oldest));
        }
        self.refused.insert(incarnation, now);
        let doors = frame.into_iter().flat_map(|frame| frame.places.replies.iter().flatten());
        let own = doors.map(|reply| &reply.door).find(|door| door.incarnation == incarnation);
        post.refuse(own.map(|door| &*door.node), incarnation);
    }
}
