//! A reply that leaves as it comes: its lines, and in the place of those that do not come an error each.
//!
//! The status was sent before, so that nothing can be said by it any more: a record whose answer is overdue, or that a
//! job left when it stopped, has the line that a request as a whole would have got. A reply that was cut off, as its
//! client took nothing while others waited for room, breaks off in the middle.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use thalweg_connect::{Replies, Unanswered, write_error};
use tokio::time::{Instant, Sleep, sleep};

pub(super) const UNKNOWN_HINT: &str = "repeating the request is safe only if the source has `id`: a record with an id that \
                                       was seen before is answered, but not counted again";

/// Lines of errors that leave together.
const TOGETHER: u64 = 200;

pub(super) fn overdue(limit: Duration) -> String {
    format!("no answer within {limit:?}; the outcome is unknown: the records may count or not")
}

pub(super) fn stopped(why: &str) -> String {
    format!("the job stopped before it answered{why}; whether the records count is not known")
}

pub(super) struct Answers {
    replies: Replies,
    limit: Duration,
    job: String,
    /// Until when the next lines have to come.
    deadline: Pin<Box<Sleep>>,
    /// The line of those that will not, and how many there are of them.
    missing: Option<(Bytes, u64)>,
}

impl Answers {
    pub(super) fn new(replies: Replies, limit: Duration, job: &str) -> Self {
        let deadline = Box::pin(sleep(limit));
        Self { replies, limit, job: job.to_owned(), deadline, missing: None }
    }

    /// The others get an error each.
    fn give_up(&mut self, code: &str, message: &str) {
        let mut line = Vec::new();
        write_error(code, message, Some(UNKNOWN_HINT), &mut line);
        let missing = self.replies.missing();
        tracing::warn!(
            job = self.job,
            records = missing,
            code,
            "answers of a reply that had begun do not come"
        );
        self.missing = Some((line.into(), missing));
    }

    /// Some of the errors; `None` if all have been sent.
    fn told(&mut self) -> Option<Bytes> {
        let (line, left) = self.missing.as_mut()?;
        let count = (*left).min(TOGETHER);
        *left -= count;
        (count > 0).then(|| line.repeat(count as usize).into())
    }
}

impl Body for Answers {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            if this.missing.is_some() {
                return Poll::Ready(this.told().map(|lines| Ok(Frame::data(lines))));
            }
            match this.replies.poll_next(context) {
                Poll::Ready(Ok(lines)) => {
                    let next = Instant::now() + this.limit;
                    this.deadline.as_mut().reset(next);
                    return Poll::Ready(lines.map(|lines| Ok(Frame::data(lines))));
                }
                Poll::Ready(Err(error @ Unanswered::CutOff)) => {
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(Err(Unanswered::Overdue(why) | Unanswered::Unsent(why))) => {
                    this.give_up("timeout", &why);
                }
                Poll::Ready(Err(Unanswered::Stopped)) => this.give_up("job_stopped", &stopped("")),
                Poll::Pending => {
                    ready!(this.deadline.as_mut().poll(context));
                    let limit = this.limit;
                    this.give_up("timeout", &overdue(limit));
                }
            }
        }
    }
}
