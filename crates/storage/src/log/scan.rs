//! Walking the groups of one segment, and judging bytes that are not a group.
//!
//! Where there is no whole frame, the segment ends or bytes have changed. Which of both it is, follows from the bytes
//! after: each group says up to where its segment had been synced when it was written ([`super::group`]).
//! * Nothing but zeros: the end of a file that was extended ahead of its writer.
//! * No whole frame of this segment, or only such as were written before the place had been synced: a torn tail. A
//!   power cut may keep a later write and lose an earlier one, so that a whole frame after proves nothing.
//! * A whole frame that was written after the place had been synced: damage.

use std::sync::Arc;

use memchr::memmem;

use super::group::{GroupHead, MAX_FRAME};
use super::segment::{HEADER, Header};
use super::window::Window;
use super::{LogError, LogPosition};
use crate::frame::{self, Chain, FRAME_HEADER};

/// Bytes that are searched at once for the next frame.
const SEARCH_BYTES: usize = 64 << 10;

/// Reads the groups of a segment in order.
#[derive(Debug)]
pub(super) struct Walk {
    window: Window,
    header: Header,
    /// Where the next frame begins.
    pos: u64,
    chain: Chain,
    next: LogPosition,
    /// Bytes of the payload of the group at hand, which ends at `pos`.
    payload: usize,
}

/// The next thing in a segment.
#[derive(Debug)]
pub(super) enum Step {
    Group(GroupHead),
    /// The bytes end with the last group.
    End,
    Stop(Stop),
}

/// Why a walk cannot go on.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) pos: u64,
    what: &'static str,
    expected: String,
    got: String,
    /// The checksum is right and the content is not: no crash leaves that.
    is_certain: bool,
}

/// The bytes after a place at which no frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Zeros,
    /// What a crash leaves of writes that were not synced.
    Torn,
    /// The place had been synced once.
    Synced,
}

impl Walk {
    /// A walk over the groups after `header`, in the bytes below the window's limit.
    pub(super) fn new(window: Window, header: Header) -> Self {
        Self { window, header, pos: HEADER, chain: header.chain(), next: header.base, payload: 0 }
    }

    /// Where the next frame begins.
    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// The chain after the last group.
    pub(super) fn chain(&self) -> Chain {
        self.chain
    }

    /// The record after the last group.
    pub(super) fn next(&self) -> LogPosition {
        self.next
    }

    /// The payload of the group at hand.
    pub(super) fn payload(&self) -> &[u8] {
        self.window.loaded(self.pos - self.payload as u64, self.payload).unwrap_or_default()
    }

    /// Moves to the next group.
    ///
    /// # Errors
    /// The disk's errors.
    pub(super) fn step(&mut self) -> Result<Step, LogError> {
        let rest = self.window.limit().saturating_sub(self.pos);
        if rest == 0 {
            return Ok(Step::End);
        }
        self.payload = 0;
        let header = FRAME_HEADER.min(usize::try_from(rest).unwrap_or(FRAME_HEADER));
        let announced = self.window.view(self.pos, header)?.and_then(frame::announced_len);
        let len = announced.filter(|len| *len <= MAX_FRAME && *len as u64 <= rest).unwrap_or(header);
        let Some(bytes) = self.window.view(self.pos, len)? else { return Ok(Step::End) };
        let stop = |what, expected: String, got: String, is_certain| {
            Step::Stop(Stop { pos: self.pos, what, expected, got, is_certain })
        };
        let (payload, chain) = match frame::parse(bytes, self.chain) {
            Ok(parsed) => parsed,
            Err(fault) => {
                let (expected, got) = (format!("{:#x}", fault.expected), format!("{:#x}", fault.got));
                return Ok(stop(fault.what, expected, got, false));
            }
        };
        let Some(head) = GroupHead::check(payload) else {
            return Ok(stop(
                "records of a group",
                "to fill it".to_owned(),
                "another length".to_owned(),
                true,
            ));
        };
        if head.first != self.next {
            return Ok(stop("first record of a group", self.next.to_string(), head.first.to_string(), true));
        }
        let Some(next) = head.first.0.checked_add(u64::from(head.records)) else {
            return Ok(stop(
                "records of a group",
                "numbers".to_owned(),
                "more than there are".to_owned(),
                true,
            ));
        };
        self.payload = payload.len();
        self.pos += len as u64;
        self.chain = chain;
        self.next = LogPosition(next);
        Ok(Step::Group(head))
    }

    /// Judges the place at which the walk stopped.
    ///
    /// # Errors
    /// The disk's errors.
    pub(super) fn judge(&mut self, stop: &Stop) -> Result<Behind, LogError> {
        if stop.is_certain {
            return Ok(Behind::Synced);
        }
        let pos = stop.pos;
        judge(&mut self.window, pos, self.header.frame_identity(), |head| head.synced > pos)
    }
}

impl Stop {
    pub(super) fn into_damage(self, path: &std::path::Path) -> LogError {
        let Stop { pos, what, expected, got, .. } = self;
        LogError::Damaged { path: path.to_owned(), pos, what, expected, got }
    }
}

/// What is in the window from `from` on; `proves` says whether a whole frame shows that the place was synced.
///
/// The work is bounded: bytes made of magics with long lengths would cost their square. Who runs out of the bound
/// takes the careful answer.
pub(super) fn judge(
    window: &mut Window,
    from: u64,
    frame_identity: u64,
    proves: impl Fn(GroupHead) -> bool,
) -> Result<Behind, LogError> {
    let limit = window.limit();
    let mut budget = (limit - from.min(limit)).saturating_mul(8) + (1 << 20);
    let mut zeros = true;
    let mut at = from;
    while at < limit {
        let count = SEARCH_BYTES.min(usize::try_from(limit - at).unwrap_or(SEARCH_BYTES));
        let Some(bytes) = window.view(at, count)? else { break };
        zeros &= bytes.iter().all(|byte| *byte == 0);
        let candidates: Vec<u64> =
            memmem::find_iter(bytes, &frame::MAGIC).map(|place| at + place as u64).collect();
        for candidate in candidates {
            let Some(header) = window.view(candidate, FRAME_HEADER)? else { continue };
            let Some(chain) = Chain::at(frame_identity, header) else { continue };
            let Some(len) = frame::announced_len(header).filter(|len| *len <= MAX_FRAME) else { continue };
            if candidate + len as u64 > limit {
                continue;
            }
            if budget < len as u64 {
                return Ok(Behind::Synced);
            }
            budget -= len as u64;
            let Some(bytes) = window.view(candidate, len)? else { continue };
            let head = frame::parse(bytes, chain).ok().and_then(|(payload, _)| GroupHead::decode(payload));
            if head.is_some_and(&proves) {
                return Ok(Behind::Synced);
            }
        }
        // A magic may be across the end of the searched bytes.
        at += if count == SEARCH_BYTES { (count - frame::MAGIC.len() + 1) as u64 } else { count as u64 };
    }
    Ok(if zeros { Behind::Zeros } else { Behind::Torn })
}

/// A window over a whole file.
pub(super) fn window(file: &Arc<dyn crate::File>, path: &std::path::Path) -> Result<Window, LogError> {
    let len = file.len().map_err(LogError::io("read", path))?;
    Ok(Window::new(Arc::clone(file), path, len))
}
