//! Packet samples over UDP, as switches and routers send them.
//!
//! Each socket has a thread that takes datagrams in batches and hands them over as they are; nothing but the number of
//! samples is looked at. UDP cannot wait: what finds the queue full is dropped and counted for its sender, what the kernel
//! had to drop is read from the socket, and what never came shows as gaps in the agents' sequence numbers.

use std::io::{ErrorKind, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use thalweg_flow::{DatagramView, Poll, Source, SystemClock, Waker};
use thalweg_types::{Error, IpNetwork, Micros, format_size};
use tracing::{info, warn};

use super::cut::Cut;
use super::handover::{DEFAULT_QUEUE, Handover, Intake, Joint};
use super::udp::{ALLOW, UdpCounters, check_allow, may_send, networks};
use super::{BlockCodec, LISTEN, QUEUE, check_listen};
use crate::sflow::agents::Agents;
use crate::sflow::datagram::Outline;
use crate::sflow::decode::{outputs, sflow_decoders};
use crate::sflow::frame::push;
use crate::sflow::options::{SAMPLING_RATES, TUNNELS, check_samples, settings};
use crate::{
    BuiltSource, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourceOutput, SourcePlugin,
};

/// The largest datagram there is.
const DATAGRAM: usize = 65_535;

/// Datagrams taken by one call.
const BATCH: usize = 32;

/// How soon a thread without datagrams sees that the source is drained.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Batches that a drained source still takes: a flood must let it end.
const LAST_BATCHES: usize = 2_048;

/// How often losses are reported at most.
const REPORT: Duration = Duration::from_secs(10);

const DEFAULT_RECEIVE_BUFFER: u64 = 8 << 20;

/// The plug-in.
pub struct SflowPlugin;

impl SourcePlugin for SflowPlugin {
    fn name(&self) -> &'static str {
        "sflow"
    }

    fn doc(&self) -> &'static str {
        "packet samples and counters of switches and routers: sFlow version 5 over UDP"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            LISTEN,
            QUEUE,
            ALLOW,
            OptionSpec {
                key: "sockets",
                kind: OptionKind::Integer { min: 1, max: 64 },
                required: false,
                default: Some("1"),
                doc: "sockets on the same port, each with a thread; the kernel spreads the senders over them",
            },
            OptionSpec {
                key: "receive_buffer",
                kind: OptionKind::Size,
                required: false,
                default: Some("8MiB"),
                doc: "bytes that the kernel may keep for each socket; net.core.rmem_max is the most it gives",
            },
            SAMPLING_RATES,
            TUNNELS,
        ];
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_live(&self) -> bool {
        true
    }

    fn own_time(&self, _: &Options) -> Option<&'static str> {
        Some("time")
    }

    fn outputs(&self, _: &Options) -> Vec<SourceOutput> {
        outputs()
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_listen(options).into_iter().chain(check_allow(options)).chain(check_samples(options)).collect()
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        bound(context, Agents::default()).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let settings = settings(&context)?;
        let source = bound(&context, settings.agents.clone())?;
        let address = source.address;
        info!(source = %context.name, %address, "listening on udp for sFlow");
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: sflow_decoders(settings),
            schema: context.schema,
            ingress: None,
            address: Some(address),
            connections: None,
            replay: Replay::Journal(BlockCodec::new(None)),
        })
    }
}

/// The source of a job file, with its sockets.
fn bound(context: &SourceContext, agents: Agents) -> Result<SflowSource, Error> {
    let options = &context.options;
    let allow = options.list("allow").map(networks).transpose()?;
    let listening = Listening {
        address: options.text("listen").unwrap_or_default(),
        sockets: options.integer("sockets").map_or(1, |count| count as usize),
        receive_buffer: options.size("receive_buffer").unwrap_or(DEFAULT_RECEIVE_BUFFER) as usize,
        queue: options.size("queue").map_or(DEFAULT_QUEUE, |bytes| bytes as usize),
        allow,
    };
    SflowSource::bind(listening, agents)
}

/// Where and how datagrams are received.
struct Listening<'a> {
    address: &'a str,
    sockets: usize,
    receive_buffer: usize,
    queue: usize,
    allow: Option<Vec<IpNetwork>>,
}

struct SflowSource {
    address: SocketAddr,
    /// Until the start.
    receivers: Vec<Receiver>,
    /// From the start on.
    threads: Vec<JoinHandle<()>>,
    intake: Intake<()>,
    shared: Arc<Shared>,
}

/// What the source and its threads share.
struct Shared {
    handover: Arc<Handover<()>>,
    counters: UdpCounters,
    agents: Agents,
    kernel_drops: AtomicU64,
    /// How far the job's clock is ahead of the steady one, as of the last poll: datagrams are stamped with the job's, which
    /// goes on where the machine's wall is set.
    ahead: AtomicI64,
    is_draining: AtomicBool,
    /// Nobody takes anything any more.
    is_gone: AtomicBool,
    /// Threads that still receive; the last one closes the queue.
    receiving: AtomicUsize,
}

/// A thread that receives, as long as it does; also one that panics ends.
struct Receiving(Arc<Shared>);

impl Drop for Receiving {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.handover.fail(Error::internal("a thread that receives datagrams panicked"));
        }
        // AcqRel: the last one closes what the others have filled.
        if self.0.receiving.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.handover.close();
        }
    }
}

impl SflowSource {
    fn bind(listening: Listening<'_>, agents: Agents) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::external(format!("listen on udp {:?}", listening.address))
                .with_hint("choose an address of this machine and a port that nobody else listens on")
                .with_source(error)
        };
        let handover = Arc::new(Handover::new(listening.queue).joined_by(Joint::Nothing));
        let shared = Arc::new(Shared {
            handover: Arc::clone(&handover),
            counters: UdpCounters::default(),
            agents,
            kernel_drops: AtomicU64::new(0),
            ahead: AtomicI64::new(SystemClock::now().saturating_sub(SystemClock::steady())),
            is_draining: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            receiving: AtomicUsize::new(listening.sockets),
        });
        // Asks the system's resolver for names of hosts, as the sources with one socket do.
        let addresses = std::net::ToSocketAddrs::to_socket_addrs(listening.address).map_err(failed)?;
        let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in addresses {
            match open_sockets(address, &listening) {
                Ok(sockets) => {
                    let address = sockets[0].local_addr().map_err(failed)?;
                    let receivers = sockets
                        .into_iter()
                        .map(|socket| Receiver::new(socket, listening.allow.clone(), Arc::clone(&shared)))
                        .collect();
                    let intake = Intake::new(handover);
                    return Ok(Self { address, receivers, threads: Vec::new(), intake, shared });
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// Sockets on one address; the port is the same for all, also where any free one is wanted.
fn open_sockets(mut address: SocketAddr, listening: &Listening<'_>) -> std::io::Result<Vec<UdpSocket>> {
    if listening.sockets > 1 {
        // Sockets that share a port share it with those of other processes, too: so nobody else may have it.
        let alone = UdpSocket::bind(address)?;
        address = alone.local_addr()?;
    }
    let mut sockets = Vec::new();
    for _ in 0..listening.sockets {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if listening.sockets > 1 {
            socket.set_reuse_port(true)?;
        }
        socket.set_recv_buffer_size(listening.receive_buffer)?;
        socket.set_read_timeout(Some(LOOK_UP))?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        socket.bind(&address.into())?;
        // Linux counts its own overhead, too: twice of what was asked for is what it says.
        let got = socket.recv_buffer_size()? / 2;
        if sockets.is_empty() && got < listening.receive_buffer {
            warn!(
                asked = format_size(listening.receive_buffer as u64),
                got = format_size(got as u64),
                "the kernel keeps less for a socket than receive_buffer says; net.core.rmem_max bounds it"
            );
        }
        let socket = UdpSocket::from(socket);
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

impl Source for SflowSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.intake.handover().set_waker(waker);
        for (number, receiver) in self.receivers.drain(..).enumerate() {
            let thread = std::thread::Builder::new()
                .name(format!("connect:sflow-{number}"))
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
        self.intake.poll(max_bytes).map(|(poll, _)| poll)
    }

    fn drain(&mut self) {
        // Release: a thread that sees it has nothing else to see.
        self.shared.is_draining.store(true, Ordering::Release);
        if !self.receivers.is_empty() {
            self.shared.handover.close();
        }
    }

    fn datagrams(&self) -> Option<DatagramView> {
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(move || {
            let mut stats = shared.counters.stats();
            stats.kernel_drops = Some(shared.kernel_drops.load(Ordering::Relaxed));
            stats.agents = Some(shared.agents.stats());
            stats
        }))
    }
}

impl Drop for SflowSource {
    fn drop(&mut self) {
        self.shared.is_gone.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A panic has failed the source already.
            let _ = thread.join();
        }
        let total = self.shared.counters.total();
        if total.datagrams > 0 {
            info!(
                datagrams = total.datagrams,
                samples = total.records,
                dropped_datagrams = total.dropped_datagrams,
                dropped_samples = total.dropped_records,
                refused_datagrams = total.refused_datagrams,
                kernel_drops = self.shared.kernel_drops.load(Ordering::Relaxed),
                "sflow source ended"
            );
        }
    }
}

/// One socket and its thread.
struct Receiver {
    socket: UdpSocket,
    allow: Option<Vec<IpNetwork>>,
    shared: Arc<Shared>,
    /// What the kernel has dropped at this socket, as far as it is counted.
    kernel_drops: u32,
}

/// A datagram of a batch.
struct Received {
    bytes: usize,
    sender: IpAddr,
}

impl Receiver {
    fn new(socket: UdpSocket, allow: Option<Vec<IpNetwork>>, shared: Arc<Shared>) -> Self {
        Self { socket, allow, shared, kernel_drops: 0 }
    }

    fn run(mut self) {
        let receiving = Receiving(Arc::clone(&self.shared));
        if let Err(error) = self.receive_all() {
            receiving.0.handover.fail(Error::external("receive datagrams").with_source(error));
        }
    }

    /// Receives until the source is drained, then what has already arrived.
    fn receive_all(&mut self) -> std::io::Result<()> {
        let mut buffers = vec![vec![0; DATAGRAM]; BATCH];
        let mut received = Vec::with_capacity(BATCH);
        let mut last_batches = LAST_BATCHES;
        let mut reported = (Instant::now(), 0, 0);
        while !self.shared.is_gone.load(Ordering::Acquire) && last_batches > 0 {
            let is_draining = self.shared.is_draining.load(Ordering::Acquire);
            last_batches -= usize::from(is_draining);
            received.clear();
            self.receive(&mut buffers, is_draining, &mut received)?;
            if received.is_empty() {
                if is_draining {
                    return Ok(());
                }
                continue;
            }
            self.hand_over(&buffers, &received);
            if reported.0.elapsed() >= REPORT {
                let dropped = self.shared.counters.total().dropped_datagrams;
                let kernel = self.shared.kernel_drops.load(Ordering::Relaxed);
                if dropped > reported.1 || kernel > reported.2 {
                    warn!(
                        queue_full = dropped - reported.1,
                        kernel = kernel - reported.2,
                        "datagrams dropped: the job or this thread is slower than what comes"
                    );
                }
                reported = (Instant::now(), dropped, kernel);
            }
        }
        Ok(())
    }

    /// The next batch: one datagram at least, unless none comes for a while, or with `is_draining` none is there.
    fn receive(
        &mut self,
        buffers: &mut [Vec<u8>],
        is_draining: bool,
        received: &mut Vec<Received>,
    ) -> std::io::Result<()> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        // Made anew for each call: a call leaves in it what it has used.
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(nix::cmsg_space!(u32)));
        let flags = if is_draining { MsgFlags::MSG_DONTWAIT } else { MsgFlags::MSG_WAITFORONE };
        let messages = match recvmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) {
            Ok(messages) => messages,
            // Refused: an earlier answer of somebody's could not be delivered; nothing is wrong with the socket.
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut drops = self.kernel_drops;
        for message in messages {
            if let Ok(controls) = message.cmsgs() {
                for control in controls {
                    if let ControlMessageOwned::RxqOvfl(count) = control {
                        drops = count;
                    }
                }
            }
            received.push(Received { bytes: message.bytes, sender: sender_of(message.address) });
        }
        // The kernel's count goes round.
        let more = drops.wrapping_sub(self.kernel_drops);
        self.kernel_drops = drops;
        self.shared.kernel_drops.fetch_add(u64::from(more), Ordering::Relaxed);
        Ok(())
    }

    fn hand_over(&self, buffers: &[Vec<u8>], received: &[Received]) {
        let shared = &self.shared;
        // Relaxed: nothing is published with it.
        let now = SystemClock::steady().saturating_add(shared.ahead.load(Ordering::Relaxed));
        let mut block = Vec::with_capacity(received.iter().map(|datagram| datagram.bytes + 64).sum());
        let mut taken = Vec::with_capacity(received.len());
        for (buffer, Received { bytes, sender }) in buffers.iter().zip(received) {
            if !may_send(self.allow.as_deref(), *sender) {
                shared.counters.refused(*sender);
                continue;
            }
            let datagram = &buffer[..*bytes];
            let outline = Outline::of(datagram);
            push(&mut block, now, *sender, outline.records(), datagram);
            // Also of what is dropped below: the gaps are what never came.
            shared.agents.note(&outline, *sender, now);
            taken.push((*sender, u64::from(outline.records())));
        }
        if taken.is_empty() {
            return;
        }
        let count = taken.iter().map(|(_, records)| *records).sum::<u64>() as u32;
        let sent = shared.handover.try_send(vec![(Cut { data: block.into(), count, context: None }, ())]);
        for (sender, records) in taken {
            shared.counters.sent(sender, records, &sent);
        }
    }
}

/// A socket of UDP has senders of IP only.
fn sender_of(address: Option<SockaddrStorage>) -> IpAddr {
    let unknown = IpAddr::from([0, 0, 0, 0]);
    address.map_or(unknown, |address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => v4.ip().into(),
        (_, Some(v6)) => IpAddr::from(v6.ip()).to_canonical(),
        _ => unknown,
    })
}
