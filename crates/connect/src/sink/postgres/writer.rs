//! The task that writes: which rows belong to which transaction, and what happens when a connection breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use thalweg_types::{Error, format_size};
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::delivery::{Item, Recipient, by_load};
use super::super::outbox::{Outbox, stopped};
use super::super::retry::{Retry, Trouble};
use super::session::{Session, Target};
use crate::SinkResume;

/// Rows that leave in one transaction at most, in a job that does not outlive its process.
const FLUSH: usize = 8 << 20;

/// State that the task and the parts of its cycles share.
pub(super) struct Cycles {
    /// Bytes of rows that may be kept of one cycle.
    pub(super) cycle_bytes: usize,
    /// The last cycle that may be committed.
    pub(super) may_commit: watch::Receiver<u64>,
    /// The last cycle with rows in the table.
    pub(super) committed: Arc<AtomicU64>,
}

/// Where a durable job goes on.
pub(super) struct Start {
    /// The last cycle that the job has committed.
    job: u64,
    /// The last one with rows in the table by then, as the sink said itself.
    table: u64,
    /// It has never run in its data directory.
    is_new: bool,
}

impl Start {
    /// # Errors
    /// If this sink has not given the position.
    pub(super) fn of(resume: &SinkResume) -> Result<Self, Error> {
        let table = match &resume.position {
            None => 0,
            Some(position) => u64::from_le_bytes(position.as_slice().try_into().map_err(|_| {
                Error::corrupt(format!("the sink's position has {} bytes, expected 8", position.len()))
            })?),
        };
        Ok(Self { job: resume.cycle, table, is_new: resume.is_new })
    }
}

/// The rows of the present cycle.
struct Cycle {
    number: u64,
    kept: Vec<Bytes>,
    bytes: usize,
    /// How many of `kept` have been streamed into the open transaction.
    streamed: usize,
    has_begun: bool,
    /// The database has it: nothing of it is kept or sent.
    is_there: bool,
    /// A COMMIT of it was sent, or may have been by an earlier process.
    is_in_doubt: bool,
}

impl Cycle {
    fn new(number: u64, is_in_doubt: bool) -> Self {
        Self {
            number,
            kept: Vec::new(),
            bytes: 0,
            streamed: 0,
            has_begun: false,
            is_there: false,
            is_in_doubt,
        }
    }
}

/// The database, with a connection once there is one.
pub(super) struct Connection {
    target: Target,
    session: Option<Session>,
}

impl Connection {
    pub(super) fn new(target: Target) -> Self {
        Self { target, session: None }
    }

    async fn session(&mut self) -> Result<&mut Session, Trouble> {
        match &mut self.session {
            Some(session) => Ok(session),
            none => Ok(none.insert(Session::open(&self.target).await?)),
        }
    }

    async fn find_table(&mut self) -> Result<(), Trouble> {
        self.session().await?.find_table().await
    }

    async fn write(&mut self, texts: &[Bytes]) -> Result<(), Trouble> {
        let session = self.session().await?;
        session.begin().await?;
        for text in texts {
            session.copy(text.clone()).await?;
        }
        session.finish_copy().await?;
        session.commit().await
    }

    /// As [`Retry::wait`]; the next try uses a new connection.
    async fn wait(&mut self, retry: &mut Retry, trouble: Trouble) -> Result<(), Error> {
        self.session = None;
        retry.wait(trouble, 0).await
    }
}

impl Recipient for Connection {
    async fn take(&mut self, texts: &[Bytes]) -> Result<(), Trouble> {
        let written = self.write(texts).await;
        if written.is_err() {
            self.session = None;
        }
        written
    }
}

/// A transaction for whatever has gathered.
///
/// # Errors
/// If the trouble will not pass.
pub(super) async fn by_flush(
    outbox: Arc<Outbox<Item>>,
    mut connection: Connection,
    mut retry: Retry,
) -> Result<(), Error> {
    while let Err(trouble) = connection.find_table().await {
        connection.wait(&mut retry, trouble).await?;
    }
    by_load(outbox, connection, retry, FLUSH).await
}

/// A transaction for each cycle.
///
/// # Errors
/// If the trouble will not pass, the database does not fit the job, or a cycle is too large.
pub(super) async fn by_cycle(
    outbox: Arc<Outbox<Item>>,
    connection: Connection,
    retry: Retry,
    cycles: Cycles,
    start: Start,
) -> Result<(), Error> {
    Writer { connection, retry, cycles, table: 0 }.run(&outbox, start).await
}

struct Writer {
    connection: Connection,
    retry: Retry,
    cycles: Cycles,
    /// The last cycle with rows in the database, as far as is known.
    table: u64,
}

impl Writer {
    async fn run(mut self, outbox: &Outbox<Item>, start: Start) -> Result<(), Error> {
        while let Err(trouble) = self.look_up(&start).await {
            self.connection.wait(&mut self.retry, trouble).await?;
        }
        self.cycles.committed.store(self.table, Ordering::Release);
        let mut cycle = Cycle::new(start.job + 1, true);
        while let Some((item, bytes)) = outbox.next().await {
            match item {
                Item::Text { text, .. } => {
                    cycle.kept.push(text);
                    cycle.bytes += bytes;
                    outbox.release(1, bytes);
                    self.check_size(&cycle)?;
                    while let Err(trouble) = self.stream(&mut cycle).await {
                        self.abandon(&mut cycle, trouble).await?;
                    }
                    outbox.deliver(1);
                }
                Item::Marker(number) => {
                    if number != cycle.number {
                        let expected = cycle.number;
                        return Err(Error::internal(format!(
                            "expected the end of cycle {expected}, got {number}"
                        )));
                    }
                    if self.cycles.may_commit.wait_for(|may| *may >= number).await.is_err() {
                        // Nothing is left that could say that the job commits the cycle.
                        return Err(stopped());
                    }
                    while let Err(trouble) = self.commit(&mut cycle).await {
                        self.abandon(&mut cycle, trouble).await?;
                    }
                    cycle = Cycle::new(number + 1, false);
                    outbox.release(1, bytes);
                    outbox.deliver(1);
                }
            }
        }
        Ok(())
    }

    /// Reads which cycle the database has, and checks that it fits the job.
    async fn look_up(&mut self, start: &Start) -> Result<(), Trouble> {
        let session = self.connection.session().await?;
        session.find_table().await?;
        session.make_cycles().await?;
        session.begin().await?;
        let table = session.lock_cycle().await?;
        session.roll_back().await?;
        self.retry.succeeded(Instant::now());
        self.table = table;
        let place = &self.connection.target;
        if table < start.table {
            return Err(Trouble::Lasting(place.mismatch(
                &format!("has cycle {table} of it, and cycle {} has been written", start.table),
                "the database has lost rows that the job will not send again: was it restored from an older backup? \
                 Restore the newer one, or start the job in a new data directory",
            )));
        }
        if table > start.job + 1 || (start.is_new && table > 0) {
            return Err(Trouble::Lasting(place.mismatch(
                &format!("has cycle {table} of it, and the job has come to cycle {} only", start.job),
                "the rows there are of another data directory: name the job or its sink otherwise, or delete its row in \
                 the table of cycles to add to the rows that are there",
            )));
        }
        Ok(())
    }

    fn check_size(&self, cycle: &Cycle) -> Result<(), Error> {
        if cycle.is_there || cycle.bytes <= self.cycles.cycle_bytes {
            return Ok(());
        }
        let limit = format_size(self.cycles.cycle_bytes as u64);
        Err(Error::user(format!("cycle {} has more rows than fit into cycle_bytes: {limit}", cycle.number))
            .with_hint("end cycles earlier, by cycle: { every: … } or { bytes: … }, or raise cycle_bytes of the sink"))
    }

    /// Writes the kept rows of the cycle into its transaction.
    async fn stream(&mut self, cycle: &mut Cycle) -> Result<(), Trouble> {
        if cycle.is_there {
            cycle.kept.clear();
            return Ok(());
        }
        let table = self.table;
        let session = self.connection.session().await?;
        if !cycle.has_begun {
            session.begin().await?;
            let there = session.lock_cycle().await?;
            if there == cycle.number && cycle.is_in_doubt {
                session.roll_back().await?;
                (cycle.is_there, self.table) = (true, there);
                cycle.kept.clear();
                self.retry.succeeded(Instant::now());
                return Ok(());
            }
            if there != table {
                let what = format!("had cycle {table} of it, and now has cycle {there}");
                return Err(Trouble::Lasting(
                    self.connection
                        .target
                        .mismatch(&what, "two processes write as one job, or someone changed the table"),
                ));
            }
            cycle.has_begun = true;
        }
        while cycle.streamed < cycle.kept.len() {
            session.copy(cycle.kept[cycle.streamed].clone()).await?;
            cycle.streamed += 1;
        }
        self.retry.succeeded(Instant::now());
        Ok(())
    }

    /// Commits the cycle, unless it has no rows or is there already.
    async fn commit(&mut self, cycle: &mut Cycle) -> Result<(), Trouble> {
        if cycle.bytes == 0 {
            return Ok(());
        }
        self.stream(cycle).await?;
        if !cycle.is_there {
            let session = self.connection.session().await?;
            session.finish_copy().await?;
            session.write_cycle(cycle.number).await?;
            cycle.is_in_doubt = true;
            session.commit().await?;
            self.retry.succeeded(Instant::now());
            self.retry.report().add_bytes(cycle.bytes as u64);
        }
        self.table = cycle.number;
        self.cycles.committed.store(cycle.number, Ordering::Release);
        Ok(())
    }

    /// The transaction is gone with its connection: everything of the cycle is to be streamed again.
    async fn abandon(&mut self, cycle: &mut Cycle, trouble: Trouble) -> Result<(), Error> {
        (cycle.has_begun, cycle.streamed) = (false, 0);
        // The cycle table says whether it was committed, so nothing is there twice.
        self.connection.wait(&mut self.retry, trouble).await
    }
}
