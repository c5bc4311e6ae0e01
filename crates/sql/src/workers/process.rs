//! One worker, from its start to its death.
//!
//! The socket is the process's standard input; it gets no other descriptor of the node's, no environment but the
//! variables of its log, and a group of its own, so that no key of a terminal reaches it. Its standard error is read as
//! it comes, logged line by line up to a bound, and its end is kept: it may be its last words.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use thalweg_types::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Program;
use super::counts::Tallies;
use super::ending::Ending;
use super::pool::Kind;
use crate::wire::message::{Configure, FromWorker, ToWorker};
use crate::wire::rows::Sent;
use crate::wire::{Frame, head_of_bytes, packed, take, unpacked};

/// What a worker may need of the environment: what it logs, and where its libraries are. No secret of a job is among it.
const ENVIRONMENT: [&str; 5] = ["THALWEG_LOG", "RUST_LOG", "LD_LIBRARY_PATH", "LLVM_PROFILE_FILE", "TZ"];

/// How long a worker may take to get ready; on a machine that is busy with other things.
const START: Duration = Duration::from_secs(30);

/// How long a process that was killed is waited for. It takes longer where a disk does not answer.
const DEATH: Duration = Duration::from_secs(5);

/// How long its last words may take.
const WORDS: Duration = Duration::from_millis(200);

/// Bytes that are read at once at least: a piece of a reply, with its head.
const READ: usize = crate::wire::PIECE + 64;

/// Bytes that are kept of its output.
const KEPT: usize = 4 << 10;

/// The runtime's messages before it aborts; the error of the query has them for the client, and the log does not.
const LAST_WORDS: [&str; 3] = ["memory allocation of ", "has overflowed its stack", "fatal runtime error: "];

/// And what it advises, which does not help here.
const ADVICE: &str = "note: run with `RUST_BACKTRACE";

/// Lines that a worker may add to the log, and bytes of one.
const LINES: usize = 50;
const LINE: usize = 500;

/// A process that is ready, or at work.
pub(super) struct Worker {
    pub(super) kind: Kind,
    /// What it has of rows that are in no file.
    pub(super) sent: Sent,
    child: Option<Child>,
    stream: UnixStream,
    read: BytesMut,
    /// A message is half written: no other can follow.
    is_torn: bool,
    words: Arc<Mutex<Words>>,
    listener: JoinHandle<()>,
    _counted: Counted,
}

/// What a worker wrote to standard error.
#[derive(Default)]
struct Words {
    /// The last line that says why it ends.
    last: Option<String>,
    /// The end of all others.
    tail: VecDeque<u8>,
}

/// What a worker says: the worker has gone where it is an error.
pub(super) enum Said {
    Message(FromWorker),
    Piece(Bytes),
}

/// Counts a process as long as there is one.
pub(super) struct Counted(pub(super) Arc<Tallies>, pub(super) Box<dyn Fn() + Send>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        (self.1)();
    }
}

impl Worker {
    /// Starts a process and waits until it is ready.
    ///
    /// # Errors
    /// External, if it cannot be started or does not get ready.
    pub(super) async fn start(
        program: &Program,
        kind: Kind,
        configure: Configure,
        counted: Counted,
    ) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "it needs /proc and /dev/null: mount them in this root",
                _ => "look for limits on processes, open files and memory of this user; other work goes on",
            };
            Error::external("start a process for SQL").with_source(error).with_hint(hint)
        };
        let mut worker = Self::spawn(program, kind, counted).map_err(failed)?;
        let begun = async {
            worker.say(&ToWorker::Configure(configure)).await?;
            worker.hear().await
        };
        match timeout(START, begun).await {
            Ok(Ok(Said::Message(FromWorker::Ready))) => Ok(worker),
            ended => {
                let is_late = ended.is_err();
                let ending = worker.end().await;
                let how = match ending.status {
                    _ if is_late => format!("it is not ready after {START:?}"),
                    Some(status) => format!("it ended by {status}"),
                    None => "it ended".to_owned(),
                };
                let said = ending.said.lines().last().unwrap_or_default().to_owned();
                Err(failed(io::Error::other(if said.is_empty() { how } else { format!("{how}: {said}") })))
            }
        }
    }

    fn spawn(program: &Program, kind: Kind, counted: Counted) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let kept = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut child = Command::new(&program.path)
            .arg0("thalweg")
            .args(&program.args)
            .env_clear()
            .envs(kept)
            // One of an allocation that failed would be longer than all that is kept.
            .env("RUST_BACKTRACE", "0")
            // mimalloc, in static builds, maps a gigabyte at once; a wall that counts it would be a gigabyte too far away.
            .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let words = Arc::new(Mutex::default());
        let listener = child.stderr.take().map(OwnedFd::from).map(Receiver::from_owned_fd);
        let listener = match listener {
            Some(Ok(pipe)) => tokio::spawn(listen(pipe, child.id(), Arc::clone(&words))),
            Some(Err(error)) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
            None => tokio::spawn(async {}),
        };
        Ok(Self {
            kind,
            sent: Sent::default(),
            child: Some(child),
            stream: UnixStream::from_std(ours)?,
            read: BytesMut::new(),
            is_torn: false,
            words,
            listener,
            _counted: counted,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Sends a message. Where the future is dropped before its end, nothing can be sent any more.
    ///
    /// # Errors
    /// What the socket says, or if the message has no form.
    pub(super) async fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send(&packed(message)?).await
    }

    /// Sends plain bytes.
    ///
    /// # Errors
    /// What the socket says, or if they are too long.
    pub(super) async fn say_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(&head_of_bytes(bytes.len())?).await?;
        self.send(bytes).await
    }

    /// Sends bytes that have their head already.
    ///
    /// # Errors
    /// What the socket says.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.is_torn, true) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.stream.write_all(bytes).await?;
        self.is_torn = false;
        Ok(())
    }

    /// What it says next. Nothing is lost where the future is dropped.
    ///
    /// # Errors
    /// What the socket says; that it is closed, too.
    pub(super) async fn hear(&mut self) -> io::Result<Said> {
        loop {
            match take(&mut self.read)? {
                Some(Frame::Bytes(bytes)) => return Ok(Said::Piece(bytes)),
                Some(Frame::Message(bytes)) => return unpacked(&bytes).map(Said::Message),
                None => {}
            }
            // By itself it makes room for some bytes only.
            self.read.reserve(READ);
            if self.stream.read_buf(&mut self.read).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Kills the process, waits for it and for its last words.
    pub(super) async fn end(mut self) -> Ending {
        let Some(mut child) = self.child.take() else { return Ending { status: None, said: String::new() } };
        let pid = child.id();
        // One that has ended already keeps its status.
        let _ = child.kill();
        let (done, status) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || drop(done.send(child.wait())));
        let status: Option<ExitStatus> = match timeout(DEATH, status).await {
            Ok(Ok(status)) => status.ok(),
            _ => {
                tracing::warn!(pid, "a worker for SQL was killed and does not end");
                None
            }
        };
        let _ = timeout(WORDS, &mut self.listener).await;
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let tail: Vec<u8> = words.tail.iter().copied().collect();
        let said = words.last.clone().unwrap_or_else(|| String::from_utf8_lossy(&tail).into_owned());
        Ending { status, said }
    }
}

/// Processor time of all threads of a process; `None` if the system does not say.
pub(super) fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may have anything in it, and is in brackets.
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || behind.next()?.parse::<u64>().ok();
    let ticks = ticks()? + ticks()?;
    Some(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second().max(1)))
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.listener.abort();
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        let begun = Instant::now();
        while let Ok(None) = child.try_wait() {
            if begun.elapsed() > DEATH {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Reads what a worker writes to standard error, to its end.
async fn listen(mut pipe: Receiver, pid: u32, words: Arc<Mutex<Words>>) {
    let (mut bytes, mut line, mut lines) = (vec![0; 4 << 10], Vec::new(), 0);
    while let Ok(count @ 1..) = pipe.read(&mut bytes).await {
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in &bytes[..count] {
            match byte {
                b'\n' => {
                    let said = String::from_utf8_lossy(&line);
                    if LAST_WORDS.iter().any(|last| said.contains(last)) {
                        // The first of them has the reason.
                        words.last.get_or_insert_with(|| said.into_owned());
                    } else if !said.trim().is_empty() && !said.starts_with(ADVICE) {
                        lines += 1;
                        tell(pid, &said, lines);
                        words.tail.extend(said.bytes().chain([b'\n']));
                    }
                    line.clear();
                }
                _ if line.len() < LINE => line.push(*byte),
                _ => {}
            }
        }
        let more = words.tail.len().saturating_sub(KEPT);
        words.tail.drain(..more);
    }
}

fn tell(pid: u32, said: &str, lines: usize) {
    match lines {
        1..LINES => tracing::warn!(pid, said, "a worker for SQL says"),
        LINES => tracing::warn!(pid, "a worker for SQL says more, which is left out"),
        _ => {}
    }
}
