//! Records over HTTP: the door that the server hands bodies in through, and the sink that carries answers back.
//!
//! The server calls [`Ingress::submit`]; the source gives the queued records to the sequencer; when it learns
//! their order numbers ([`Source::sequenced`]) it notes at the *desk* who waits for which. The reply sink takes
//! answers (input 0) and rejects (input 1), fills in the replies by order number, and sends them once
//! everything up to the request's last record has been given ([`Operator::complete`]).
//!
//! Invariants
//! * A request gets one reply per record, in order. An answer counts before a reject; a record with neither gets
//!   the error `no_answer`.
//! * Who wants no reply waits like the others, until the job is through with its records and they are as safe as `ack`
//!   says.
//! * When source or sink goes away nobody waits for ever: who still waits learns that the outcome is unknown.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray;
use bytes::{Bytes, BytesMut};
use thalweg_flow::{InputId, Operator, Output, Poll, RawBlock, Source, Waker};
use thalweg_types::{Batch, Error, Micros, Seq, SeqRange, reject_hint};
use tokio::sync::oneshot;

use super::cut::{BlockContext, Cut, MAX_BLOCK, cut_all};
use super::handover::{DEFAULT_QUEUE, Handover, Intake, Refused};
use super::{BlockCodec, QUEUE, decoders_of, reader_of};
use crate::format::cells::{KeysOfBatch, record_cells, write_record};
use crate::format::{RecordFormat, ndjson};
use crate::{BuiltSource, Ingress, OptionSpec, Replay, Reply, SourceContext, SourcePlugin, SubmitError};

/// The plug-in.
pub struct HttpPlugin;

impl SourcePlugin for HttpPlugin {
    fn name(&self) -> &'static str {
        "http"
    }

    fn doc(&self) -> &'static str {
        "records that are posted to the node, and answered"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[QUEUE]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self) -> bool {
        true
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let is_json = context.format.as_ref().is_some_and(|format| format.plugin.name() == "ndjson");
        let queue = context.options.size("queue").map_or(DEFAULT_QUEUE, |bytes| bytes as usize);
        let (source, ingress, replies) =
            http_source(context.name.to_string(), Arc::clone(&format), is_json, queue, context.acknowledges);
        let replies = Mutex::new(Some(replies));
        let kept = Arc::clone(&format);
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: decoders_of(&context, format),
            schema: context.schema,
            ingress: Some((
                Arc::new(ingress),
                Box::new(move |_| match replies.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    Some(replies) => Ok(Box::new(replies)),
                    None => Err(Error::internal("the replies of an HTTP source are carried by one task")),
                }),
            )),
            address: None,
            replay: Replay::Journal(BlockCodec::new(Some(kept))),
        })
    }
}

/// The three parts of an HTTP source. `is_json` allows a body of objects that take several lines each; `acknowledges` as
/// in [`SourceContext`].
pub fn http_source(
    name: String,
    format: Arc<dyn RecordFormat>,
    is_json: bool,
    queue: usize,
    acknowledges: bool,
) -> (HttpSource, HttpIngress, ReplySink) {
    let shared = Arc::new(Shared {
        name,
        format,
        is_json,
        acknowledges,
        handover: Arc::new(Handover::new(queue)),
        desk: Mutex::new(Desk::default()),
    });
    let intake = Intake::new(Arc::clone(&shared.handover));
    let source = HttpSource { shared: Arc::clone(&shared), intake, polled: Vec::new() };
    let ingress = HttpIngress { shared: Arc::clone(&shared) };
    (source, ingress, ReplySink { shared, keys: KeysOfBatch::default() })
}

struct Shared {
    name: String,
    format: Arc<dyn RecordFormat>,
    is_json: bool,
    acknowledges: bool,
    handover: Arc<Handover<Option<Part>>>,
    /// Held for moments only, by the sequencer, the sink and nobody else.
    desk: Mutex<Desk>,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing will be answered any more.
    fn abandon(&self) {
        self.handover.discard();
        let mut desk = self.desk();
        desk.is_closed = true;
        let waiting = std::mem::take(&mut desk.waiting);
        drop(desk);
        drop(waiting);
    }
}

/// Who waits for which order numbers, in order.
#[derive(Default)]
struct Desk {
    waiting: VecDeque<(SeqRange, Part)>,
    is_closed: bool,
}

impl Desk {
    /// Those who wait for the reply of a number of `range`.
    fn waiting_in(&self, range: SeqRange) -> Vec<(SeqRange, Part)> {
        let start = self.waiting.partition_point(|(waits_for, _)| waits_for.end <= range.start);
        self.waiting
            .range(start..)
            .take_while(|(waits_for, _)| waits_for.start < range.end)
            .filter(|(_, part)| part.wants_replies)
            .cloned()
            .collect()
    }
}

/// Some consecutive records of a request; most requests are one part.
#[derive(Clone)]
struct Part {
    request: Arc<Mutex<Request>>,
    /// Number of the part's first record in the request.
    first: usize,
    /// Otherwise it waits for nothing but its end.
    wants_replies: bool,
}

struct Request {
    replies: Vec<Option<Reply>>,
    parts_left: usize,
    sender: Option<oneshot::Sender<Vec<Reply>>>,
}

impl Part {
    fn set(&self, index: u64, reply: Reply) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = request.replies.get_mut(self.first + index as usize) {
            slot.get_or_insert(reply);
        }
    }

    /// Everything about this part has been said.
    fn finish(&self) {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.parts_left -= 1;
        if request.parts_left > 0 {
            return;
        }
        let replies = std::mem::take(&mut request.replies).into_iter().map(|reply| {
            reply.unwrap_or_else(|| refusal("no_answer", "the job gave no answer for this record"))
        });
        if let Some(sender) = request.sender.take() {
            // Who asked may have gone; then nobody misses the replies.
            let _ = sender.send(replies.collect());
        }
    }
}

/// The door.
pub struct HttpIngress {
    shared: Arc<Shared>,
}

impl Ingress for HttpIngress {
    fn submit(&self, body: Bytes, reply: bool) -> Result<Option<oneshot::Receiver<Vec<Reply>>>, SubmitError> {
        let shared = &self.shared;
        let source_name = || shared.name.clone();
        let bound = shared.handover.bound();
        if body.len() > bound / 2 {
            return Err(SubmitError::TooLarge {
                source_name: source_name(),
                bytes: body.len(),
                bound: bound / 2,
            });
        }
        let cuts = shared.cut(&body);
        let count: usize = cuts.iter().map(|cut| cut.count as usize).sum();
        if count == 0 {
            return Err(SubmitError::Empty);
        }
        let (receiver, request) = if reply || shared.acknowledges {
            let (sender, receiver) = oneshot::channel();
            let replies = if reply { vec![None; count] } else { Vec::new() };
            let request = Request { replies, parts_left: cuts.len(), sender: Some(sender) };
            (Some(receiver), Some(Arc::new(Mutex::new(request))))
        } else {
            (None, None)
        };
        let mut first = 0;
        let pieces = cuts.into_iter().map(|cut| {
            let request = request.as_ref().map(Arc::clone);
            let part = request.map(|request| Part { request, first, wants_replies: reply });
            first += cut.count as usize;
            (cut, part)
        });
        match shared.handover.try_send(pieces.collect()) {
            Ok(()) => Ok(receiver),
            Err(Refused::Full) => Err(SubmitError::Full { source_name: source_name() }),
            Err(Refused::Closed) => Err(SubmitError::Draining { source_name: source_name() }),
        }
    }
}

impl Shared {
    fn cut(&self, body: &Bytes) -> Vec<Cut> {
        let body = if self.is_json { one_line_each(body) } else { body.clone() };
        match cut_all(&*self.format, &body) {
            Ok(cuts) => cuts,
            // A header that does not fit: the whole body is one thing that cannot be read. What is kept of it fits into a
            // journal.
            Err(error) => {
                let refused = Some((Cow::Borrowed("parse"), Cow::Owned(error.chain())));
                let context = BlockContext { refused, ..BlockContext::default() };
                let data = body.slice(..body.len().min(MAX_BLOCK));
                vec![Cut { data, count: 1, context: Some(Arc::new(context)) }]
            }
        }
    }
}

/// Objects that take several lines, or share one, as one object a line. Anything else stays as it is.
fn one_line_each(body: &Bytes) -> Bytes {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let Some(ends) = ndjson::object_ends(text) else { return body.clone() };
    let mut start = 0;
    let is_lines = ends.iter().all(|end| {
        let object = &text[start..*end];
        let is_alone = text[*end..].trim_ascii_start().is_empty()
            || text[*end..].iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\r')) == Some(&b'\n');
        start = *end;
        is_alone && memchr::memchr(b'\n', object.trim_ascii_start()).is_none()
    });
    if is_lines {
        return body.clone();
    }
    let mut lines = BytesMut::with_capacity(text.len() + ends.len());
    let mut start = 0;
    for end in ends {
        // Line ends stand between tokens only: within a string they would not have been JSON.
        let object = text[start..end].trim_ascii_start();
        let from = lines.len();
        lines.extend_from_slice(object);
        lines[from..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        lines.extend_from_slice(b"\n");
        start = end;
    }
    lines.freeze()
}

/// The source.
pub struct HttpSource {
    shared: Arc<Shared>,
    intake: Intake<Option<Part>>,
    /// Parts of the block just polled, with the records of each.
    polled: Vec<(u32, Option<Part>)>,
}

impl Source for HttpSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.shared.handover.set_waker(waker);
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        let (poll, parts) = self.intake.poll(max_bytes)?;
        if matches!(poll, Poll::Block(_)) {
            self.polled = parts;
        }
        Ok(poll)
    }

    fn sequenced(&mut self, _: &RawBlock, range: SeqRange) {
        let mut start = range.start;
        let mut desk = self.shared.desk();
        for (count, part) in self.polled.drain(..) {
            let end = start + Seq::from(count);
            if let Some(part) = part
                && !desk.is_closed
            {
                desk.waiting.push_back((SeqRange::new(start, end), part));
            }
            start = end;
        }
    }

    fn drain(&mut self) {
        self.shared.handover.close();
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        // Requests that were sequenced may still be answered; those in the queue never will.
        self.shared.handover.discard();
    }
}

/// The sink that carries answers (input 0) and rejects (input 1) back to who asked.
pub struct ReplySink {
    shared: Arc<Shared>,
    keys: KeysOfBatch,
}

impl ReplySink {
    fn answers(&mut self, batch: &Batch, waiting: &[(SeqRange, Part)]) {
        let fields = record_cells(batch.records(), self.keys.of(batch.records()));
        for_each_waiting(batch, waiting, |row, part, index| {
            let mut line = Vec::with_capacity(256);
            write_record(&fields, row as usize, &mut line);
            part.set(index, Reply::Answer(line.into()));
        });
    }
}

fn rejects(batch: &Batch, waiting: &[(SeqRange, Part)]) {
    let (codes, reasons) = (batch.column(3).as_string_view(), batch.column(4).as_string_view());
    for_each_waiting(batch, waiting, |row, part, index| {
        part.set(index, refusal(codes.value(row as usize), reasons.value(row as usize)));
    });
}

fn refusal(code: &str, message: &str) -> Reply {
    let hint = reject_hint(code).map(str::to_owned);
    Reply::Rejected { code: code.to_owned(), message: message.to_owned(), hint }
}

/// Calls with each row that somebody waits for, and its number within the part.
fn for_each_waiting(batch: &Batch, waiting: &[(SeqRange, Part)], mut call: impl FnMut(u32, &Part, u64)) {
    let mut waiting = waiting.iter().peekable();
    for row in batch.row_numbers() {
        let seq = batch.seq(row);
        while waiting.next_if(|(range, _)| range.end <= seq).is_some() {}
        let Some((range, part)) = waiting.peek() else { return };
        if range.contains(seq) {
            call(row, part, seq - range.start);
        }
    }
}

impl Operator for ReplySink {
    fn process(&mut self, input: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        // Encoding happens outside the lock: the sequencer takes it for every block.
        let waiting = self.shared.desk().waiting_in(batch.range());
        if waiting.is_empty() {
            return Ok(());
        }
        match input.port {
            0 => self.answers(&batch, &waiting),
            1 => rejects(&batch, &waiting),
            other => return Err(Error::internal(format!("a reply sink has two inputs, got input {other}"))),
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        let mut done = Vec::new();
        let mut desk = self.shared.desk();
        while desk.waiting.front().is_some_and(|(waits_for, _)| waits_for.end <= range.end) {
            done.extend(desk.waiting.pop_front());
        }
        drop(desk);
        done.iter().for_each(|(_, part)| part.finish());
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        self.shared.abandon();
        Ok(())
    }
}

impl Drop for ReplySink {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}
