//! Datagrams over UDP: the part that the sources that receive them share.
//!
//! Each socket has a thread that takes datagrams in batches ([`receiver`]) and makes pieces of them with the packing
//! that its source gave it ([`Packing`]). UDP cannot wait: a datagram that finds the queue full is dropped and counted
//! for its sender, and so is one from a sender that may not send ([`counters`]); the count of those that the kernel
//! dropped is read from the socket. Received and lost together are all that reached the machine.
//!
//! Not here: the contents of datagrams (`super::udp`, `super::sflow`).

mod counters;
mod receiver;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thalweg_flow::{DatagramView, Poll, Source, SystemClock, Waker};
use thalweg_types::{Error, IpNetwork, Micros, ip_octets};
use tracing::{info, warn};

pub(crate) use self::counters::Counters;
use self::receiver::{Receiver, open_sockets};
use super::cut::Cut;
use super::handover::{Handover, Intake};
use super::{cannot_listen, check_listen, queue_bytes};
use crate::sflow::agents::Agents;
use crate::{Mistake, OptionKind, OptionSpec, Options};

/// How often losses are reported at most.
const REPORT: Duration = Duration::from_secs(10);

/// Bytes that the kernel is asked to keep for a socket.
const DEFAULT_RECEIVE_BUFFER: u64 = 8 << 20;

pub(super) const ALLOW: OptionSpec = OptionSpec {
    key: "allow",
    kind: OptionKind::TextList,
    required: false,
    default: None,
    doc: "addresses or networks (`10.0.0.0/8`) that may send; all, if absent",
};

pub(super) const SOCKETS: OptionSpec = OptionSpec {
    key: "sockets",
    kind: OptionKind::Integer { min: 1, max: 64 },
    required: false,
    default: Some("1"),
    doc: "sockets on the same port, each with a thread of its own; the kernel spreads senders over them",
};

pub(super) const RECEIVE_BUFFER: OptionSpec = OptionSpec {
    key: "receive_buffer",
    kind: OptionKind::Size,
    required: false,
    default: Some("8MiB"),
    doc: "receive buffer of each socket in the kernel, which limits it to `net.core.rmem_max`",
};

/// Mistakes in `listen` and `allow`.
pub(super) fn check_datagrams(options: &Options) -> impl Iterator<Item = Mistake> {
    let allow = options.list("allow").into_iter().flatten();
    let allow = allow.filter_map(|text| network(text).err()).map(|error| Mistake::new("allow", error));
    check_listen(options).into_iter().chain(allow)
}

/// Reads `10.1.2.3`, `10.0.0.0/8`, `fe80::/10`.
///
/// # Errors
/// A sentence with the text and the expected form.
pub(crate) fn network(text: &str) -> Result<IpNetwork, Error> {
    IpNetwork::parse(text).ok_or_else(|| {
        Error::user(format!("expected an address or a network such as 10.0.0.0/8, got {text:?}"))
    })
}

/// Where and how datagrams are received.
pub(crate) struct Listening {
    /// Of the source, for threads and logs.
    pub(crate) kind: &'static str,
    pub(crate) address: String,
    pub(crate) sockets: usize,
    /// `None`: as much as the kernel gives, up to the default.
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) queue: usize,
    pub(crate) allow: Option<Vec<IpNetwork>>,
}

impl Listening {
    /// # Errors
    /// As [`check_datagrams`] tells them.
    pub(super) fn of(kind: &'static str, options: &Options) -> Result<Self, Error> {
        let networks = |texts: &[String]| texts.iter().map(|text| network(text)).collect();
        Ok(Self {
            kind,
            address: options.text("listen").unwrap_or_default().to_owned(),
            sockets: options.integer("sockets").map_or(1, |count| count as usize),
            receive_buffer: options.size("receive_buffer").map(|bytes| bytes as usize),
            queue: queue_bytes(options),
            allow: options.list("allow").map(networks).transpose()?,
        })
    }

    fn may_send(&self, sender: IpAddr) -> bool {
        let is_in = |networks: &Vec<IpNetwork>| networks.iter().any(|one| one.contains(ip_octets(sender)));
        self.allow.as_ref().is_none_or(is_in)
    }
}

/// Makes pieces for the queue of the datagrams that one socket receives.
pub(crate) trait Packing: Send {
    /// Adds a datagram that came at `now`; how many records it holds.
    fn add(&mut self, datagram: &[u8], sender: IpAddr, now: Micros) -> u64;

    /// The pieces of all that was added since the last call.
    fn pieces(&mut self) -> Vec<Cut>;
}

/// A source of datagrams.
pub(crate) struct DatagramSource {
    address: SocketAddr,
    /// Until the start.
    receivers: Vec<Receiver>,
    /// From the start on.
    threads: Vec<JoinHandle<()>>,
    intake: Intake<()>,
    shared: Arc<Shared>,
    agents: Option<Agents>,
}

/// State that the source and its threads share.
struct Shared {
    listening: Listening,
    handover: Arc<Handover<()>>,
    counters: Counters,
    kernel_drops: AtomicU64,
    /// How far the job's clock is ahead of the steady one, as of the last poll: datagrams are stamped with the job's,
    /// which goes on where the machine's wall is set.
    ahead: AtomicI64,
    is_draining: AtomicBool,
    /// Nobody takes anything any more.
    is_gone: AtomicBool,
    /// Threads that still receive; the last one closes the queue.
    receiving: AtomicUsize,
    /// Held for moments only, by threads that look whether a report is due.
    reported: Mutex<Reported>,
}

/// Losses that were reported, and when.
struct Reported {
    at: Instant,
    queue_full: u64,
    kernel: u64,
}

impl Shared {
    /// Warns of losses that are not reported yet, where a report is due or the source ends.
    fn report(&self, is_end: bool) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_end && reported.at.elapsed() < REPORT {
            return;
        }
        let queue_full = self.counters.total().dropped_datagrams;
        let kernel = self.kernel_drops.load(Ordering::Relaxed);
        if queue_full > reported.queue_full || kernel > reported.kernel {
            warn!(
                queue_full = queue_full - reported.queue_full,
                kernel = kernel - reported.kernel,
                "datagrams dropped: the job (queue_full) or its receiver (kernel) is slower than they arrive; raise \
                 queue, or receive_buffer with net.core.rmem_max, or sockets"
            );
        }
        *reported = Reported { at: Instant::now(), queue_full, kernel };
    }
}

impl DatagramSource {
    /// Binds the sockets; each has a packing of its own. `agents` are shown with the counts.
    ///
    /// # Errors
    /// Where the address cannot be bound.
    pub(crate) fn bind(
        listening: Listening,
        handover: Handover<()>,
        agents: Option<Agents>,
        packing: impl Fn() -> Box<dyn Packing>,
    ) -> Result<Self, Error> {
        let address = listening.address.clone();
        let failed = cannot_listen("udp", &address);
        // Asks the system's resolver for names of hosts.
        let addresses = address.to_socket_addrs().map_err(&failed)?;
        let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in addresses {
            let sockets = match open_sockets(address, &listening) {
                Ok(sockets) => sockets,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            let address = sockets[0].local_addr().map_err(&failed)?;
            let handover = Arc::new(handover);
            let shared = Arc::new(Shared {
                handover: Arc::clone(&handover),
                counters: Counters::default(),
                kernel_drops: AtomicU64::new(0),
                ahead: AtomicI64::new(SystemClock::now().saturating_sub(SystemClock::steady())),
                is_draining: AtomicBool::new(false),
                is_gone: AtomicBool::new(false),
                receiving: AtomicUsize::new(sockets.len()),
                reported: Mutex::new(Reported { at: Instant::now(), queue_full: 0, kernel: 0 }),
                listening,
            });
            let receiver = |socket| Receiver::new(socket, Arc::clone(&shared), packing());
            let receivers = sockets.into_iter().map(receiver).collect();
            let intake = Intake::new(handover);
            return Ok(Self { address, receivers, threads: Vec::new(), intake, shared, agents });
        }
        Err(failed(last))
    }

    /// Where it listens, with the port that it really got.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters of each sender.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> Counters {
        self.shared.counters.clone()
    }
}

impl Source for DatagramSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.intake.handover().set_waker(waker);
        let kind = self.shared.listening.kind;
        for (number, receiver) in self.receivers.drain(..).enumerate() {
            let thread = std::thread::Builder::new()
                .name(format!("connect:{kind}-{number}"))
                .spawn(move || receiver.run())
                .map_err(|error| {
                    Error::external("start a thread that receives datagrams").with_source(error)
                })?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error> {
        self.shared.ahead.store(now.saturating_sub(SystemClock::steady()), Ordering::Relaxed);
        self.intake.poll_blocks(max_bytes)
    }

    fn drain(&mut self) {
        // Release: a thread that sees it has nothing else to see.
        self.shared.is_draining.store(true, Ordering::Release);
        if !self.receivers.is_empty() {
            self.shared.handover.close();
        }
    }

    fn datagrams(&self) -> Option<DatagramView> {
        let (shared, agents) = (Arc::clone(&self.shared), self.agents.clone());
        Some(Arc::new(move || {
            let mut stats = shared.counters.stats();
            stats.kernel_drops = Some(shared.kernel_drops.load(Ordering::Relaxed));
            stats.agents = agents.as_ref().map(Agents::stats);
            stats
        }))
    }
}

impl Drop for DatagramSource {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic has failed the source already.
            let _ = thread.join();
        }
        self.shared.report(true);
        let total = self.shared.counters.total();
        if total.datagrams > 0 {
            info!(
                kind = self.shared.listening.kind,
                datagrams = total.datagrams,
                records = total.records,
                dropped_datagrams = total.dropped_datagrams,
                dropped_records = total.dropped_records,
                refused_datagrams = total.refused_datagrams,
                kernel_drops = self.shared.kernel_drops.load(Ordering::Relaxed),
                "source of datagrams ended"
            );
        }
    }
}
