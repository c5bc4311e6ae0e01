//! Replies to records that are answered elsewhere, in any order: of a door whose rows go to other nodes.
//!
//! Three parties say what becomes of a record: who sends rows on ([`Answers::passed_by`] for those that no row was made of),
//! the reply sink, for rejects, and whoever brings the answers. A piece is finished when each of its records has a line,
//! or cannot get one; pieces of one request in their order.
//!
//! Invariants
//! * Of several lines for a record the first counts.
//! * A piece that is not finished when its time is over has an unknown outcome: its records may count.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_types::{Micros, Seq, SeqRange};

use super::Shared;
use super::inbox::Ticket;
use super::line::Lines;
use super::request::Unanswered;

/// Brings answers to the clients of a door.
pub trait Answers: Send + Sync {
    /// The numbers in `range` of records for which a client waits for a line.
    fn waiting_in(&self, range: SeqRange) -> Vec<SeqRange>;

    /// All records of `range` have been sent on, but those in `left_out`, which get no answer.
    fn passed_by(&self, range: SeqRange, left_out: &[Seq]);

    /// The answer to a record: one line, without its end.
    fn answer(&self, record: Seq, line: &[u8]);

    /// A record has no answer, for a reason; `code` is that of a reject.
    fn reject(&self, record: Seq, code: &str, reason: &str);

    /// Records below `end` are where they count: clients that wait for no line hear of it.
    fn written(&self, end: Seq);

    /// Pieces that have waited for so long are answered no more, unless `fate` leaves one as it is (`None`); how many there
    /// were. A piece waits from the first call after it came; `now` is of a clock that does not go back.
    fn give_up(&self, now: Micros, patience: Duration, fate: &dyn Fn(&Late) -> Option<Fate>) -> u64;
}

/// A piece of a request that is answered no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The numbers of its records.
    pub range: SeqRange,
    /// The first ones that have no line; none where the client wants no lines.
    pub open: Vec<Seq>,
    /// All of its records have been sent on or left out.
    pub is_passed: bool,
    /// Its client wants a line for each record, and not only to hear that they are written.
    pub wants_lines: bool,
}

/// What becomes of a piece that is answered no more, with what its client hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its records may count.
    Unknown(String),
    /// Nobody has been handed any of its records: none counts. `otherwise` is for a request of which this is not all.
    Unsent { said: String, otherwise: String },
}

/// Records of a piece that are named as having no line.
const NAMED: usize = 64;

pub(super) struct RemoteDesk {
    shared: Arc<Shared>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// By their first numbers.
    pieces: BTreeMap<Seq, Piece>,
    /// The first numbers of the open pieces of each request, in order; by the address of the request, which lives as long as
    /// they do.
    requests: HashMap<usize, VecDeque<Seq>>,
    /// Numbers below were sent on or left out.
    passed: Seq,
    /// Rejects below have been seen.
    judged: Seq,
    written: Seq,
}

struct Piece {
    range: SeqRange,
    ticket: Arc<Ticket>,
    /// Since when it waits.
    since: Option<Micros>,
    /// `None` where nobody wants lines.
    lines: Option<Lines>,
    /// Records with a line, and records without that are to have none.
    lined: u64,
    silent: u64,
}

impl Piece {
    fn is_ready(&self, passed: Seq, judged: Seq, written: Seq) -> bool {
        let end = self.range.end;
        match self.lines {
            Some(_) => passed >= end && judged >= end && self.lined + self.silent >= self.range.len(),
            None => passed >= end && written >= end,
        }
    }

    fn late(&self, passed: Seq) -> Late {
        let is_open = |number: &u64| self.lines.as_ref().is_some_and(|lines| lines.is_open(*number));
        let open = (0..self.range.len()).filter(is_open).take(NAMED);
        let start = self.range.start;
        Late {
            range: self.range,
            open: open.map(|number| start + number).collect(),
            is_passed: passed >= self.range.end,
            wants_lines: self.lines.is_some(),
        }
    }
}

impl RemoteDesk {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, open: Mutex::default() }
    }

    /// The open pieces, with those that the sequencer has numbered since.
    fn lock(&self) -> MutexGuard<'_, Open> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = std::mem::take(&mut self.shared.desk().waiting);
        for (range, ticket) in numbered {
            let records = u32::try_from(range.len()).unwrap_or(u32::MAX);
            let lines = ticket.request.wants().then(|| Lines::new(records));
            open.requests.entry(address(&ticket)).or_default().push_back(range.start);
            let piece = Piece { range, ticket, since: None, lines, lined: 0, silent: 0 };
            open.pieces.insert(range.start, piece);
        }
        open
    }

    /// The reply sink has given all rejects below `end`.
    pub(super) fn judged(&self, end: Seq) {
        let mut open = self.lock();
        open.judged = open.judged.max(end);
        self.finish_all(&mut open);
    }

    fn line(&self, record: Seq, write: impl FnOnce(&mut Lines, u64)) {
        let mut open = self.lock();
        let Some(piece) = open.piece_of(record) else { return };
        let Some(lines) = &mut piece.lines else { return };
        let number = record - piece.range.start;
        if !lines.is_open(number) {
            return;
        }
        write(lines, number);
        piece.lined += 1;
        let start = piece.range.start;
        self.finish_from(&mut open, start);
    }

    /// Finishes the piece if it is ready and the first one of its request, and then those after it.
    fn finish_from(&self, open: &mut Open, start: Seq) {
        let (passed, judged, written) = (open.passed, open.judged, open.written);
        let mut next = Some(start);
        while let Some(start) = next.take() {
            let Some(piece) = open.pieces.get(&start).filter(|piece| piece.is_ready(passed, judged, written))
            else {
                return;
            };
            let request = address(&piece.ticket);
            let Some(order) = open.requests.get_mut(&request) else { return };
            if order.front() != Some(&start) {
                return;
            }
            order.pop_front();
            next = order.front().copied();
            if order.is_empty() {
                open.requests.remove(&request);
            }
            let Some(Piece { range, ticket, lines, .. }) = open.pieces.remove(&start) else { return };
            let (lines, accepted) = lines.map_or((Vec::new(), 0), Lines::finish);
            ticket.set_finished();
            ticket.request.finish(u32::try_from(range.len()).unwrap_or(u32::MAX), lines, accepted);
            self.shared.inbox.on_room();
        }
    }

    fn finish_all(&self, open: &mut Open) {
        let (passed, judged, written) = (open.passed, open.judged, open.written);
        let ready = open.pieces.values().filter(|piece| piece.is_ready(passed, judged, written));
        let ready: Vec<Seq> = ready.map(|piece| piece.range.start).collect();
        ready.into_iter().for_each(|start| self.finish_from(open, start));
    }
}

fn address(ticket: &Ticket) -> usize {
    Arc::as_ptr(&ticket.request) as usize
}

impl Open {
    fn piece_of(&mut self, record: Seq) -> Option<&mut Piece> {
        let (_, piece) = self.pieces.range_mut(..=record).next_back()?;
        piece.range.contains(record).then_some(piece)
    }
}

impl Answers for RemoteDesk {
    fn waiting_in(&self, range: SeqRange) -> Vec<SeqRange> {
        let open = self.lock();
        let before = open.pieces.range(..range.start).next_back().map(|(_, piece)| piece);
        let pieces =
            before.into_iter().chain(open.pieces.range(range.start..range.end).map(|(_, piece)| piece));
        let wanted = pieces.filter(|piece| piece.lines.is_some() && piece.range.end > range.start);
        wanted.map(|piece| piece.range).collect()
    }

    fn passed_by(&self, range: SeqRange, left_out: &[Seq]) {
        let mut open = self.lock();
        for record in left_out {
            let Some(piece) = open.piece_of(*record) else { continue };
            let number = *record - piece.range.start;
            if piece.lines.as_ref().is_some_and(|lines| lines.is_open(number)) {
                piece.silent += 1;
            }
        }
        open.passed = open.passed.max(range.end);
        self.finish_all(&mut open);
    }

    fn answer(&self, record: Seq, line: &[u8]) {
        self.line(record, |lines, record| lines.answer(record, |out| out.extend_from_slice(line)));
    }

    fn reject(&self, record: Seq, code: &str, reason: &str) {
        self.line(record, |lines, record| lines.error(record, code, reason));
    }

    fn written(&self, end: Seq) {
        let mut open = self.lock();
        if open.written < end {
            open.written = end;
            self.finish_all(&mut open);
        }
    }

    fn give_up(&self, now: Micros, patience: Duration, fate: &dyn Fn(&Late) -> Option<Fate>) -> u64 {
        let mut open = self.lock();
        let patience = Micros::try_from(patience.as_micros()).unwrap_or(Micros::MAX);
        let passed = open.passed;
        let mut late: Vec<Late> = Vec::new();
        for piece in open.pieces.values_mut() {
            if now.saturating_sub(*piece.since.get_or_insert(now)) >= patience {
                late.push(piece.late(passed));
            }
        }
        // Who is asked for the fate has locks of its own.
        drop(open);
        let fates: Vec<(Seq, Fate)> =
            late.iter().filter_map(|late| Some((late.range.start, fate(late)?))).collect();
        let mut open = self.lock();
        // One that has got its last line meanwhile is answered.
        let pieces = fates.into_iter().filter_map(|(start, fate)| Some((open.pieces.remove(&start)?, fate)));
        let pieces: Vec<(Piece, Fate)> = pieces.collect();
        for (piece, _) in &pieces {
            if let Some(order) = open.requests.get_mut(&address(&piece.ticket)) {
                order.retain(|start| *start != piece.range.start);
                if order.is_empty() {
                    open.requests.remove(&address(&piece.ticket));
                }
            }
        }
        drop(open);
        let count = pieces.len() as u64;
        for (piece, fate) in pieces {
            let request = &piece.ticket.request;
            request.fail(match fate {
                Fate::Unsent { said, .. } if request.is_one_piece() => Unanswered::Unsent(said.into()),
                Fate::Unsent { otherwise: said, .. } | Fate::Unknown(said) => {
                    Unanswered::Overdue(said.into())
                }
            });
        }
        if count > 0 {
            self.shared.inbox.on_room();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::request::Request;
    use super::super::{Desk, Inbox};
    use super::*;
    use crate::format::ndjson::Ndjson;
    use crate::{FormatPlugin as _, Options};

    fn desk() -> Arc<RemoteDesk> {
        Arc::new(RemoteDesk::new(Arc::new(Shared {
            name: "door".to_owned(),
            format: Ndjson.reader(&thalweg_types::Schema::empty(), &Options::default()).unwrap(),
            is_json: false,
            acknowledges: true,
            inbox: Inbox::new(1 << 20, 100),
            desk: Mutex::new(Desk::default()),
        })))
    }

    /// Numbers a piece of a request from `start` on.
    fn number(desk: &RemoteDesk, request: &Arc<Request>, start: Seq, records: u64) -> SeqRange {
        let range = SeqRange::new(start, start + records);
        let ticket = Arc::new(Ticket::new(Arc::clone(request)));
        desk.shared.desk().waiting.push_back((range, ticket));
        range
    }

    fn request(desk: &RemoteDesk, pieces: usize, records: u64, wants: bool) -> Arc<Request> {
        Arc::new(Request::new(Arc::clone(desk.shared.inbox.share()), pieces, records, wants))
    }

    fn text(request: &Request) -> Option<String> {
        request.whole().map(|lines: Vec<Bytes>| String::from_utf8(lines.concat()).unwrap())
    }

    #[test]
    fn a_reply_is_whole_when_each_record_has_a_line_or_can_get_none() {
        let desk = desk();
        let request = request(&desk, 2, 4, true);
        let first = number(&desk, &request, 10, 2);
        let second = number(&desk, &request, 15, 2);
        assert_eq!(desk.waiting_in(SeqRange::new(0, 11)), [first]);
        assert_eq!(desk.waiting_in(SeqRange::new(11, 30)), [first, second]);
        desk.passed_by(SeqRange::new(0, 30), &[11, 16]);
        desk.answer(15, b"{\"n\":3}");
        desk.answer(10, b"{\"n\":1}");
        desk.answer(10, b"{\"n\":9}");
        desk.reject(11, "parse", "no number");
        assert_eq!(text(&request), None, "a reject may come for 16");
        desk.judged(30);
        let text = text(&request).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[2]), ("{\"n\":1}", "{\"n\":3}"));
        assert!(lines[1].contains("no number") && lines[3].contains("no_answer"), "{text}");
        assert!(desk.lock().pieces.is_empty() && desk.lock().requests.is_empty());
    }

    #[test]
    fn who_waits_for_no_line_hears_when_the_records_are_written_and_who_waits_too_long_hears_that() {
        let desk = desk();
        let quiet = request(&desk, 1, 2, false);
        number(&desk, &quiet, 0, 2);
        desk.passed_by(SeqRange::new(0, 2), &[]);
        desk.written(1);
        assert!(!quiet.is_over());
        desk.written(2);
        assert!(quiet.is_over());

        let slow = request(&desk, 1, 1, true);
        number(&desk, &slow, 5, 1);
        desk.passed_by(SeqRange::new(5, 6), &[]);
        let unknown = |_: &Late| Some(Fate::Unknown("why".to_owned()));
        let patience = Duration::from_secs(9);
        assert_eq!(desk.give_up(1_000_000, patience, &unknown), 0, "it waits from now on");
        assert_eq!(desk.give_up(9_999_999, patience, &unknown), 0);
        assert_eq!(desk.give_up(10_000_000, patience, &|_| None), 0, "it is left as it is");
        assert_eq!(slow.failed(), None);
        assert_eq!(desk.give_up(10_000_000, patience, &unknown), 1);
        assert_eq!(slow.failed(), Some(Unanswered::Overdue("why".into())));
        desk.answer(5, b"{}");
    }

    #[test]
    fn a_request_counts_for_nothing_only_where_all_of_it_went_nowhere() {
        let desk = desk();
        let unsent = |_: &Late| Some(Fate::Unsent { said: "none".to_owned(), otherwise: "some".to_owned() });
        let whole = request(&desk, 1, 2, true);
        number(&desk, &whole, 0, 2);
        let half = request(&desk, 2, 2, true);
        number(&desk, &half, 2, 1);
        let second = request(&desk, 2, 2, true);
        number(&desk, &second, 3, 1);
        number(&desk, &second, 4, 1);
        desk.answer(3, b"{}");
        desk.passed_by(SeqRange::new(0, 4), &[]);
        desk.judged(4);
        assert_eq!(desk.give_up(0, Duration::ZERO, &unsent), 3);
        assert_eq!(whole.failed(), Some(Unanswered::Unsent("none".into())));
        assert_eq!(half.failed(), Some(Unanswered::Overdue("some".into())), "the other piece may come yet");
        assert_eq!(second.failed(), Some(Unanswered::Overdue("some".into())), "the first piece counts");
    }

    #[test]
    fn records_without_a_line_are_named() {
        let desk = desk();
        let some = request(&desk, 1, 100, true);
        let range = number(&desk, &some, 10, 100);
        let quiet = request(&desk, 1, 2, false);
        let second = number(&desk, &quiet, 110, 2);
        desk.answer(11, b"{}");
        desk.passed_by(SeqRange::new(0, 111), &[]);
        let seen = Mutex::new(Vec::new());
        desk.give_up(0, Duration::ZERO, &|late| {
            // Who says it may ask for more.
            let _ = desk.waiting_in(late.range);
            seen.lock().unwrap().push(late.clone());
            Some(Fate::Unknown(String::new()))
        });
        assert!(desk.lock().pieces.is_empty());
        let seen = seen.into_inner().unwrap();
        assert_eq!((seen[0].range, seen[0].is_passed, seen[0].open.len()), (range, true, NAMED));
        assert_eq!(seen[0].open[..3], [10, 12, 13]);
        assert_eq!(seen[1], Late { range: second, open: Vec::new(), is_passed: false, wants_lines: false });
    }
}
