//! A process that runs queries for a node, one at a time.
//!
//! It is started by `workers`, with a socket as its standard input, and ends with it. Three things happen in it: the main
//! thread reads what the node says, a second one answers queries and encodes their rows, and an [`Engine`] computes, with
//! the node's tables as its catalog (`catalog`). Nothing in it has a limit on time: the node has the clock, and kills.
//!
//! What a query can break is this process alone: a stack that overflows and memory that is refused (`wall`) end it.

mod catalog;
mod wall;

use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, set_parent_process_death_signal, setpriority_process};
use serde::Serialize;
use thalweg_types::{Class, Error};
use tokio::sync::Notify;

use self::catalog::{Answer, Remote, lock};
use self::wall::Wall;
use crate::engine::{Engine, STACK};
use crate::fault;
use crate::limits::Limits;
use crate::output::encoder;
use crate::wire::error::Told;
use crate::wire::message::{Configure, FromWorker, Query, ToWorker};
use crate::wire::{Frame, packed, put_bytes, receive, unpacked};

/// The node's limit on time counts; this one is never reached.
const FAR: Duration = Duration::from_secs(400 * 86_400);

/// A query that has run for so long gives way to all that is younger, and its process takes no other: what gave way once
/// may not take it back.
const AGE: Duration = Duration::from_secs(2);

/// Nice value of threads that give way to all.
const NICEST: i32 = 19;

/// How long it is until it is looked again whether all of a query has stopped: soon at first, as most have. The node waits
/// for it, but not for long.
const LOOK: Duration = Duration::from_micros(50);
const SLOWEST_LOOK: Duration = Duration::from_millis(2);

/// Questions that touch what most queries touch.
const WARMING: [&str; 2] = [
    "SELECT 1",
    "SELECT a, sum(b) FROM (VALUES (1, 2), (3, 4)) t(a, b) WHERE b > 0 GROUP BY a ORDER BY 2 DESC LIMIT 1",
];

/// Serves the node that started this process; returns when the node closes the socket.
///
/// # Errors
/// Of class user where no node started it; else what the system or the socket says.
pub fn run() -> Result<(), Error> {
    let mut from = inherited()?;
    let io = |error: io::Error| Error::external("read what the node says").with_source(error);
    // The node may be gone already: then the socket is closed.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| io(error.into()))?;
    wall::give_up_rights()?;
    let first = receive(&mut from, |_| {}).map_err(io)?;
    let Some(Frame::Message(bytes)) = first else { return Ok(()) };
    let ToWorker::Configure(configure) = unpacked(&bytes).map_err(io)? else { return Err(lost()) };
    if let Err(error) = setpriority_process(None, configure.nice) {
        tracing::debug!(%error, "a worker for SQL keeps its priority");
    }
    Child::new(from, &configure)?.listen()
}

/// The socket that the node has given us as standard input.
fn inherited() -> Result<UnixStream, Error> {
    let by_hand = |error: io::Error| {
        Error::user("no node started this process")
            .with_hint("a node starts it by itself; `thalweg sql` asks one, or a data directory")
            .with_source(error)
    };
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().map_err(by_hand)?);
    stream.peer_addr().map_err(by_hand)?;
    Ok(stream)
}

/// The main thread's side.
struct Child {
    from: UnixStream,
    remote: Arc<Remote>,
    answers: Sender<Answer>,
    queries: Sender<Job>,
    wall: Wall,
    at_work: Arc<AtWork>,
}

/// What both threads know of the query at work.
#[derive(Default)]
struct AtWork {
    is_running: AtomicBool,
    is_aged: AtomicBool,
}

/// A query, and the way to cancel it.
struct Job {
    query: Query,
    cancelled: Arc<Notify>,
}

impl Child {
    fn new(from: UnixStream, configure: &Configure) -> Result<Self, Error> {
        let to = from.try_clone().map_err(|error| Error::external("share a socket").with_source(error))?;
        let to = Arc::new(Mutex::new(to));
        let (remote, answers) = Remote::new(Arc::clone(&to));
        let remote = Arc::new(remote);
        let limits = Limits {
            memory: configure.memory,
            metadata: configure.metadata,
            time: FAR,
            queries: 1,
            // The next one may come before the last one has left its place.
            waiting: 1,
            threads: configure.threads,
            use_rollups: configure.use_rollups,
        };
        let engine = Engine::of_priority(Arc::clone(&remote) as _, limits, configure.nice)?;
        if configure.is_kept {
            for sql in WARMING {
                engine.query_blocking(sql)?.try_for_each(|batch| batch.map(drop))?;
            }
        }
        let (queries, jobs) = channel();
        let at_work = Arc::new(AtWork::default());
        let wall = Wall::measure(configure)?;
        wall.put_up(0)?;
        let server = Server {
            engine,
            to: Arc::clone(&to),
            remote: Arc::clone(&remote),
            wall: wall.clone(),
            at_work: Arc::clone(&at_work),
            memory: configure.memory,
        };
        std::thread::Builder::new()
            .name("sql-reply".to_owned())
            .stack_size(STACK)
            .spawn(move || server.serve(&jobs))
            .map_err(|error| Error::external("start the thread that answers").with_source(error))?;
        say(&to, &FromWorker::Ready)?;
        Ok(Self { from, remote, answers, queries, wall, at_work })
    }

    fn listen(mut self) -> Result<(), Error> {
        let mut cancelled = Arc::new(Notify::new());
        while let Some(message) = self.next()? {
            match message {
                ToWorker::Configure(_) => return Err(lost()),
                ToWorker::Query(mut query) => {
                    *lock(&self.remote.tables) = std::mem::replace(&mut query.tables, Ok(vec![]));
                    if let Some(numbers) = query.keep.take() {
                        lock(&self.remote.kept).retain(&numbers);
                    }
                    cancelled = Arc::new(Notify::new());
                    self.at_work.is_running.store(true, Ordering::Release);
                    let _ = self.from.set_read_timeout(Some(AGE));
                    let job = Job { query, cancelled: Arc::clone(&cancelled) };
                    self.queries.send(job).map_err(|_| lost())?;
                }
                ToWorker::Snapshot(answer) => {
                    if let Ok(Some(shot)) = &answer {
                        let new = shot.fresh.iter().filter(|rows| rows.is_new);
                        for number in new.map(|rows| rows.number).collect::<Vec<_>>() {
                            self.rows(number)?;
                        }
                    }
                    self.answers.send(answer).map_err(|_| lost())?;
                }
                ToWorker::Cancel => cancelled.notify_one(),
            }
        }
        Ok(())
    }

    /// What the node says next; `None` when it has closed the socket.
    fn next(&mut self) -> Result<Option<ToWorker>, Error> {
        loop {
            match receive(&mut self.from, |_| {}) {
                Ok(Some(Frame::Message(bytes))) => return unpacked(&bytes).map(Some).map_err(unread),
                Ok(Some(Frame::Bytes(_))) => return Err(lost()),
                Ok(None) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.grow_old(),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(unread(error)),
            }
        }
    }

    fn rows(&mut self, number: u64) -> Result<(), Error> {
        let (wall, kept) = (&self.wall, lock(&self.remote.kept).bytes());
        let room = |length: usize| {
            if let Err(error) = wall.put_up((kept + length) as u64) {
                tracing::warn!(error = %error.chain(), "a worker for SQL has no more room for rows");
            }
        };
        let Some(Frame::Bytes(bytes)) = receive(&mut self.from, room).map_err(unread)? else {
            return Err(lost());
        };
        lock(&self.remote.kept)
            .add(number, bytes)
            .map_err(|error| Error::internal("read rows that are in no file yet").with_source(error))
    }

    /// Nothing came for a while: if a query runs, it runs for long.
    fn grow_old(&self) {
        let _ = self.from.set_read_timeout(None);
        if !self.at_work.is_running.load(Ordering::Acquire) {
            return;
        }
        self.at_work.is_aged.store(true, Ordering::Release);
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        for thread in
            threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw)
        {
            // One that is gone meanwhile needs nothing.
            let _ = setpriority_process(Some(thread), NICEST);
        }
    }
}

/// The side that answers.
struct Server {
    engine: Engine,
    to: Arc<Mutex<UnixStream>>,
    remote: Arc<Remote>,
    wall: Wall,
    at_work: Arc<AtWork>,
    memory: u64,
}

impl Server {
    fn serve(&self, jobs: &Receiver<Job>) {
        for job in jobs {
            let done = catch_unwind(AssertUnwindSafe(|| self.answer(&job)));
            let failed = done.unwrap_or_else(|panic| Err(self.panicked(panic.as_ref()))).err();
            let is_broken = failed.as_ref().is_some_and(|error| error.class() == Class::Internal);
            let told = match failed {
                Some(error) => say(&self.to, &FromWorker::Failed(Told::of(&error))),
                None => Ok(()),
            };
            let mut look = LOOK;
            while self.engine.compute().metrics().num_alive_tasks() > 0 {
                std::thread::sleep(look);
                look = (look * 2).min(SLOWEST_LOOK);
            }
            self.at_work.is_running.store(false, Ordering::Release);
            let rows = lock(&self.remote.kept).bytes() as u64;
            let is_spent =
                is_broken || self.at_work.is_aged.load(Ordering::Acquire) || self.wall.is_outgrown(rows);
            if told.and_then(|()| say(&self.to, &FromWorker::Idle { is_spent })).is_err() {
                // The node has gone, and the main thread sees it too.
                return;
            }
        }
    }

    fn answer(&self, Job { query, cancelled }: &Job) -> Result<(), Error> {
        self.engine.compute().block_on(async {
            let mut reply = tokio::select! {
                reply = self.engine.query(&query.sql) => reply?,
                () = cancelled.notified() => return Ok(()),
            };
            let mut encoder = encoder(reply.schema(), query.format);
            let (mut bytes, mut frames) = (Vec::new(), Vec::new());
            encoder.head(&mut bytes)?;
            loop {
                let batch = tokio::select! {
                    batch = reply.next_batch() => batch,
                    () = cancelled.notified() => return Ok(()),
                };
                let Some(batch) = batch else { break };
                encoder.batch(&batch?, &mut bytes)?;
                self.flush(&mut bytes, &mut frames)?;
            }
            encoder.end(&mut bytes)?;
            put_bytes(&mut frames, &bytes).map_err(unsaid)?;
            frames.extend(packed(&FromWorker::End).map_err(unsaid)?);
            lock(&self.to).write_all(&frames).map_err(unsaid)
        })
    }

    /// Sends the encoded bytes, a little at a time: a row may be as large as memory is.
    fn flush(&self, bytes: &mut Vec<u8>, frames: &mut Vec<u8>) -> Result<(), Error> {
        let mut to = lock(&self.to);
        for part in bytes.chunks(crate::wire::PIECE) {
            frames.clear();
            put_bytes(frames, part).map_err(unsaid)?;
            to.write_all(frames).map_err(unsaid)?;
        }
        frames.clear();
        bytes.clear();
        Ok(())
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> Error {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
        fault::wants_too_much(text, self.memory).unwrap_or_else(|| Error::internal("the reply panicked"))
    }
}

/// Says something to the node.
fn say(to: &Mutex<UnixStream>, message: &impl Serialize) -> Result<(), Error> {
    let bytes = packed(message).map_err(unsaid)?;
    lock(to).write_all(&bytes).map_err(unsaid)
}

fn unread(error: io::Error) -> Error {
    Error::external("read what the node says").with_source(error)
}

fn unsaid(error: io::Error) -> Error {
    Error::external("answer the node").with_source(error)
}

/// Node and worker do not understand each other: they are of one program, so this does not happen.
fn lost() -> Error {
    Error::internal("a worker for SQL and its node lost each other")
}
