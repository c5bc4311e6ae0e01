//! One query by one worker: asked, answered, and the worker idle again or gone.
//!
//! The clock of the query runs while the node waits for its worker, and not while the worker waits for a reader. Who is over
//! time is killed: a function may compute for hours between two looks at a flag.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thalweg_table::Catalog;
use thalweg_types::Error;
use tokio::time::{Instant, timeout};

use super::counts::Stopped;
use super::lend::Loan;
use super::outlet::{Outlet, Shut, late};
use super::pool::Pool;
use super::process::{Said, Worker, processor_time};
use crate::limits::Exceeded;
use crate::output::Format;
use crate::wire::error::Told;
use crate::wire::message::{FromWorker, Lent, Query, ToWorker};

/// How long a query may take to stop when it is over or no client waits for it; then its worker is killed.
const QUIET: Duration = Duration::from_millis(250);

/// A short try that has had less of a processor than this goes on for a while: on a machine that is busy with other things
/// it has hardly begun when its time is up.
const BEGUN: Duration = Duration::from_millis(50);

/// How much longer, at most, and how often that is looked at.
const LONGER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// A query, and what it may take.
pub(super) struct Call<'a> {
    pub(super) pool: &'a Arc<Pool>,
    pub(super) catalog: &'a Arc<dyn Catalog>,
    pub(super) sql: &'a str,
    pub(super) format: Format,
    /// To compute, and as long again for a reader of each piece.
    pub(super) time: Duration,
    pub(super) patience: Duration,
    /// Where its time is up it begins anew later, so that nothing is wrong with it.
    pub(super) is_try: bool,
}

/// How it ended. The outlet has not been notified.
pub(super) enum Ended {
    /// The reply is whole.
    Whole,
    /// The worker reports an error of the query.
    Failed(Error),
    /// The worker has ended over it, or has been killed.
    Stopped(Error),
    /// Nobody waits for the rest.
    Left,
    /// It takes more than a short try has.
    NeedsMore,
}

/// What a worker comes up with.
enum Step {
    Piece(Bytes),
    End,
    Failed(Told),
}

impl Call<'_> {
    /// Runs the query. Its worker comes back where there still is one, to be [settled](Self::settle).
    pub(super) async fn run(&self, mut worker: Worker, outlet: &mut Outlet<'_>) -> (Ended, Option<Worker>) {
        let mut loan = Loan::new(Arc::clone(self.catalog));
        let mut clock = QueryClock::start(self, &worker);
        let mut is_asked = false;
        loop {
            let step = async {
                if !std::mem::replace(&mut is_asked, true) {
                    self.ask(&mut worker, &mut loan).await?;
                }
                step(&mut worker, &mut loan).await
            };
            let step = tokio::select! {
                step = clock.run(step) => step,
                () = outlet.closed() => return (Ended::Left, Some(cancelled(worker).await)),
            };
            let piece = match step {
                Ok(Ok(Step::Piece(piece))) => piece,
                Ok(Ok(Step::End)) => return (Ended::Whole, Some(worker)),
                Ok(Ok(Step::Failed(told))) => return (Ended::Failed(told.into()), Some(worker)),
                Ok(Err(error)) => return (Ended::Stopped(self.bury(worker, error).await), None),
                Err(Over) if self.is_try => return (Ended::NeedsMore, Some(cancelled(worker).await)),
                Err(Over) => {
                    self.kill(worker, Stopped::Time).await;
                    return (Ended::Stopped(Exceeded::Time { limit: self.time }.into_error()), None);
                }
            };
            let ended = match outlet.put(piece, self.patience).await {
                Ok(()) => continue,
                Err(Shut::Gone) => Ended::Left,
                Err(Shut::Late) => Ended::Failed(late(self.patience)),
                Err(Shut::Full) => Ended::NeedsMore,
            };
            return (ended, Some(cancelled(worker).await));
        }
    }

    async fn ask(&self, worker: &mut Worker, loan: &mut Loan) -> io::Result<()> {
        let tables = loan.tables().await;
        let keep = worker.sent.forget_gone();
        let query = Query { sql: self.sql.to_owned(), format: self.format, tables, keep };
        worker.say(&ToWorker::Query(query)).await
    }

    /// Waits until nothing of a query computes any more, and has its worker wait for the next one. A worker that takes long
    /// is killed, for this reason.
    pub(super) async fn settle(&self, mut worker: Worker, why: Stopped) {
        let kind = worker.kind;
        let idle = async {
            loop {
                match worker.hear().await? {
                    Said::Message(FromWorker::Idle { is_spent }) => return io::Result::Ok(is_spent),
                    // The query is over: it gets no answer that could make it go on.
                    Said::Message(FromWorker::Ask(_)) => worker.say(&Lent::Snapshot(Ok(None))).await?,
                    _ => {}
                }
            }
        };
        match timeout(QUIET, idle).await {
            Ok(Ok(false)) => self.pool.shelve(worker),
            Ok(Ok(true)) => {
                worker.end().await;
                self.pool.stock(kind);
            }
            Ok(Err(_)) | Err(_) => self.kill(worker, why).await,
        }
    }

    async fn kill(&self, worker: Worker, why: Stopped) {
        let (kind, pid) = (worker.kind, worker.pid());
        worker.end().await;
        tracing::debug!(pid, ?why, "a worker for SQL was killed");
        self.pool.tallies.stopped(why);
        self.pool.stock(kind);
    }

    /// The error for a query whose worker has ended, or sends nonsense.
    async fn bury(&self, worker: Worker, error: io::Error) -> Error {
        let kind = worker.kind;
        let ending = worker.end().await;
        self.pool.stock(kind);
        let is_gone = matches!(
            error.kind(),
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        );
        let (why, told) = match is_gone {
            true => ending.told(self.pool.memory(kind)),
            false => (Stopped::Other, Error::external("talk with a process for SQL").with_source(error)),
        };
        self.pool.tallies.stopped(why);
        told
    }
}

/// The time of a query, while it computes.
struct QueryClock {
    left: Duration,
    /// Of a short try.
    more: Option<More>,
}

/// What a short try has in addition to its time.
struct More {
    pid: u32,
    /// What its worker had used of processors when it began.
    used: Duration,
    left: Duration,
}

/// The time is up.
struct Over;

impl QueryClock {
    fn start(call: &Call<'_>, worker: &Worker) -> Self {
        let more = |pid| processor_time(pid).map(|used| More { pid, used, left: LONGER });
        Self { left: call.time, more: if call.is_try { more(worker.pid()) } else { None } }
    }

    async fn run<T>(&mut self, step: impl Future<Output = T>) -> Result<T, Over> {
        let mut step = std::pin::pin!(step);
        loop {
            let begun = Instant::now();
            let outcome = timeout(self.left, &mut step).await;
            self.left = self.left.saturating_sub(begun.elapsed());
            if let Ok(outcome) = outcome {
                return Ok(outcome);
            }
            let more = self.more.as_mut().filter(|more| !more.left.is_zero()).ok_or(Over)?;
            if processor_time(more.pid).is_none_or(|now| now.saturating_sub(more.used) >= BEGUN) {
                return Err(Over);
            }
            self.left = LOOK.min(more.left);
            more.left -= self.left;
        }
    }
}

/// Tells a worker to cancel its query.
async fn cancelled(mut worker: Worker) -> Worker {
    // Where that fails it is found to be gone soon.
    let _ = worker.say(&ToWorker::Cancel).await;
    worker
}

async fn step(worker: &mut Worker, loan: &mut Loan) -> io::Result<Step> {
    loop {
        match worker.hear().await? {
            Said::Piece(piece) => return Ok(Step::Piece(piece)),
            Said::Message(FromWorker::Ask(name)) => loan.answer(worker, name).await?,
            Said::Message(FromWorker::End) => return Ok(Step::End),
            Said::Message(FromWorker::Failed(told)) => return Ok(Step::Failed(told)),
            Said::Message(FromWorker::Ready | FromWorker::Idle { .. }) => {
                return Err(io::Error::new(ErrorKind::InvalidData, "unexpected message"));
            }
        }
    }
}
