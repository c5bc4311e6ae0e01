//! Records over HTTP: the door that the server hands bodies in through, and the sink that carries answers back.
//!
//! The server calls [`Ingress::submit`] (`door`); bodies wait in pieces (`inbox`). The source gives them to the
//! sequencer; when it learns their order numbers ([`Source::sequenced`]) it notes at the *desk* which request waits for
//! which. The reply sink (`sink`) takes answers and rejects, makes the lines of each piece (`line`), and hands them to
//! the request (`request`) once everything up to the last record of the piece has been given
//! ([`thalweg_flow::Operator::complete`]).
//!
//! Invariants
//! * A request gets one line per record, in order. Of an answer and a reject the first counts; a record with neither
//!   gets the error `no_answer`.
//! * A client that asks for no reply waits like the others, until the job is through with its records and they are
//!   durable as `ack` requires.
//! * When the source or the sink goes away no client waits for ever: one that still waits learns that the outcome is
//!   unknown.
//! * Bodies that wait and lines that nobody has read yet are bounded by `queue`, together, but for the lines of one
//!   piece.

mod door;
mod inbox;
mod line;
mod remote;
mod request;
mod sink;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_flow::{Operator, Poll, RawBlock, Source, TaskFactory, Waker};
use thalweg_types::{Error, Micros, Offset, Seq, SeqRange};

pub use self::door::HttpIngress;
pub use self::line::write_error;
pub use self::remote::{Answers, Fate, Late};
pub use self::request::{Answering, Begun, Replies, Unanswered};
pub use self::sink::ReplySink;

use self::inbox::{Inbox, Taken, Ticket};
use super::{QUEUE, queue_bytes, reader_of, received};
use crate::format::RecordFormat;
use crate::{BuiltSource, Ingress, OptionSpec, Options, SourceContext, SourcePlugin};

/// The plug-in.
pub struct HttpPlugin;

impl SourcePlugin for HttpPlugin {
    fn name(&self) -> &'static str {
        "http"
    }

    fn doc(&self) -> &'static str {
        "records from HTTP requests, with replies"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn is_door(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[QUEUE]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let is_json = context.format.as_ref().is_some_and(|format| format.plugin.name() == "ndjson");
        let queue = queue_bytes(&context.options);
        let (source, ingress, replies) =
            http_source(context.name.to_string(), Arc::clone(&format), is_json, queue, context.acknowledges);
        let (replies, answers) = match context.is_answered_elsewhere {
            true => replies.elsewhere(),
            false => (replies, None),
        };
        let replies = Mutex::new(Some(replies));
        let replies: TaskFactory<dyn Operator> =
            Box::new(move |_| match replies.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(replies) => Ok(Box::new(replies)),
                None => Err(Error::internal("the replies of an HTTP source are carried by one task")),
            });
        let ingress = Some(Arc::new(ingress) as Arc<dyn Ingress>);
        Ok(BuiltSource { ingress, replies: Some(replies), answers, ..received(context, format, source) })
    }
}

/// The three parts of an HTTP source that is answered by its own job. `is_json` allows a body of objects that take several lines each; `acknowledges`
/// as in [`SourceContext`].
pub fn http_source(
    name: String,
    format: Arc<dyn RecordFormat>,
    is_json: bool,
    queue: usize,
    acknowledges: bool,
) -> (HttpSource, HttpIngress, ReplySink) {
    let inbox = Inbox::new(queue, format.block_records());
    let shared =
        Arc::new(Shared { name, format, is_json, acknowledges, inbox, desk: Mutex::new(Desk::default()) });
    let source = HttpSource { shared: Arc::clone(&shared), next: 0, polled: Vec::new() };
    (source, HttpIngress::new(Arc::clone(&shared)), ReplySink::new(shared))
}

struct Shared {
    name: String,
    format: Arc<dyn RecordFormat>,
    is_json: bool,
    acknowledges: bool,
    inbox: Inbox,
    /// Held for moments only, by the sequencer, the sink and nobody else.
    desk: Mutex<Desk>,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing will be answered any more.
    fn abandon(&self) {
        self.inbox.discard();
        let mut desk = self.desk();
        desk.is_closed = true;
        let waiting = std::mem::take(&mut desk.waiting);
        drop(desk);
        drop(waiting);
    }
}

/// The requests that wait for order numbers, in order.
#[derive(Default)]
struct Desk {
    waiting: VecDeque<(SeqRange, Arc<Ticket>)>,
    is_closed: bool,
}

impl Desk {
    /// The requests that wait for lines of numbers of `range`.
    fn waiting_in(&self, range: SeqRange) -> Vec<SeqRange> {
        let start = self.waiting.partition_point(|(waits_for, _)| waits_for.end <= range.start);
        self.waiting
            .range(start..)
            .take_while(|(waits_for, _)| waits_for.start < range.end)
            .filter(|(_, ticket)| ticket.request.wants())
            .map(|(waits_for, _)| *waits_for)
            .collect()
    }
}

/// The source.
pub struct HttpSource {
    shared: Arc<Shared>,
    next: Offset,
    /// Pieces of the block just polled, with the records of each.
    polled: Vec<(u32, Option<Arc<Ticket>>)>,
}

impl Source for HttpSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.shared.inbox.set_waker(waker);
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        Ok(match self.shared.inbox.take(max_bytes) {
            Taken::Block(cut, tickets) => {
                self.polled = tickets;
                let (first, count) = (self.next, cut.count);
                self.next += u64::from(count);
                Poll::Block(RawBlock { partition: 0, first, count, payload: cut.into_payload() })
            }
            Taken::Nothing => Poll::Pending,
            Taken::Later(at) => Poll::PendingUntil(at),
            Taken::Closed => Poll::End,
        })
    }

    fn sequenced(&mut self, _: &RawBlock, range: SeqRange) {
        let mut start = range.start;
        let mut desk = self.shared.desk();
        for (count, ticket) in self.polled.drain(..) {
            let end = start + Seq::from(count);
            if let Some(ticket) = ticket
                && !desk.is_closed
            {
                desk.waiting.push_back((SeqRange::new(start, end), ticket));
            }
            start = end;
        }
    }

    fn drain(&mut self) {
        self.shared.inbox.close();
    }
}

impl Drop for HttpSource {
    fn drop(&mut self) {
        // Requests that were sequenced may still be answered; those in the queue never will.
        self.shared.inbox.discard();
    }
}
