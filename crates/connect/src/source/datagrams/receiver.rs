//! One socket and the thread that takes datagrams from it in batches.
//!
//! With a datagram the kernel says how many it had dropped before that one came. The drops after the last one are
//! looked up in `/proc/net/udp` when nothing has come for a while, and at the end.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use thalweg_flow::SystemClock;
use thalweg_types::{Error, format_size};
use tracing::{info, warn};

use super::{DEFAULT_RECEIVE_BUFFER, Listening, Packing, Shared};

/// The largest datagram there is.
const DATAGRAM: usize = 65_535;

/// Datagrams taken by one call.
const BATCH: usize = 32;

/// How soon a thread without datagrams sees that the source is drained.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Batches that a drained source still takes: a flood must let it end.
const LAST_BATCHES: usize = 2_048;

/// Sockets on one address; the port is the same for all, also where any free one is wanted.
pub(super) fn open_sockets(
    mut address: SocketAddr,
    listening: &Listening,
) -> std::io::Result<Vec<UdpSocket>> {
    let asked = listening.receive_buffer.unwrap_or(DEFAULT_RECEIVE_BUFFER as usize);
    let mut sockets = Vec::new();
    for _ in 0..listening.sockets {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if !sockets.is_empty() {
            socket.set_reuse_port(true)?;
        }
        socket.set_recv_buffer_size(asked)?;
        socket.set_read_timeout(Some(LOOK_UP))?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        socket.bind(&address.into())?;
        // Sockets that share a port share it with those of other processes, too: so the first one has to be alone with
        // it, and shares it from here on. One that were only tried and closed would stay open for as long as a process
        // that is started at this moment has not come to its program.
        if sockets.is_empty() && listening.sockets > 1 {
            socket.set_reuse_port(true)?;
        }
        // Linux counts its own overhead, too: it reports twice the size that was asked for.
        let got = socket.recv_buffer_size()? / 2;
        if sockets.is_empty() && got < asked {
            let (asked, got) = (format_size(asked as u64), format_size(got as u64));
            let text =
                "the kernel keeps less for a socket than receive_buffer says; net.core.rmem_max bounds it";
            match listening.receive_buffer {
                Some(_) => warn!(asked, got, "{text}"),
                None => info!(asked, got, "{text}"),
            }
        }
        let socket = UdpSocket::from(socket);
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// A thread that receives, as long as it does; also one that panics ends.
struct Receiving(Arc<Shared>);

impl Drop for Receiving {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.handover.fail(Error::internal("a thread that receives datagrams panicked"));
        }
        // AcqRel: the last one closes the queue that the others have filled.
        if self.0.receiving.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.handover.close();
        }
    }
}

/// One socket and its thread.
pub(super) struct Receiver {
    socket: UdpSocket,
    shared: Arc<Shared>,
    packing: Box<dyn Packing>,
    /// The kernel's drops at this socket, as far as they are counted.
    kernel_drops: u32,
}

/// A datagram of a batch.
struct Received {
    bytes: usize,
    sender: IpAddr,
}

impl Receiver {
    pub(super) fn new(socket: UdpSocket, shared: Arc<Shared>, packing: Box<dyn Packing>) -> Self {
        Self { socket, shared, packing, kernel_drops: 0 }
    }

    pub(super) fn run(mut self) {
        let receiving = Receiving(Arc::clone(&self.shared));
        if let Err(error) = self.receive_all() {
            receiving.0.handover.fail(Error::external("receive datagrams").with_source(error));
        }
        self.look_up_drops();
    }

    /// Receives until the source is drained, then the datagrams that have already arrived.
    fn receive_all(&mut self) -> std::io::Result<()> {
        let mut buffers = vec![vec![0; DATAGRAM]; BATCH];
        let mut received = Vec::with_capacity(BATCH);
        let mut last_batches = LAST_BATCHES;
        // Nothing has come since the kernel was asked for its drops.
        let mut is_looked_up = true;
        while !self.shared.is_gone.load(Ordering::Acquire) && last_batches > 0 {
            let is_draining = self.shared.is_draining.load(Ordering::Acquire);
            last_batches -= usize::from(is_draining);
            received.clear();
            self.receive(&mut buffers, is_draining, &mut received)?;
            if !received.is_empty() {
                self.hand_over(&buffers, &received);
                is_looked_up = false;
            } else if is_draining {
                return Ok(());
            } else if !is_looked_up {
                self.look_up_drops();
                is_looked_up = true;
            }
            self.shared.report(false);
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
        // Made anew for each call, as a call overwrites its lengths.
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, Some(nix::cmsg_space!(u32)));
        let flags = if is_draining { MsgFlags::MSG_DONTWAIT } else { MsgFlags::MSG_WAITFORONE };
        let messages = match recvmmsg(self.socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) {
            Ok(messages) => messages,
            // Refused: an earlier datagram from this port could not be delivered; nothing is wrong with the socket.
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
        self.note_drops(drops);
        Ok(())
    }

    /// Takes the kernel's count of drops at this socket. The count goes round; one from before another is not new.
    fn note_drops(&mut self, drops: u32) {
        let more = drops.wrapping_sub(self.kernel_drops);
        if more <= u32::MAX / 2 {
            self.kernel_drops = drops;
            self.shared.kernel_drops.fetch_add(u64::from(more), Ordering::Relaxed);
        }
    }

    /// Asks the kernel for its drops after the last datagram, if it reports them.
    fn look_up_drops(&mut self) {
        if let Some(drops) = drops_of(&self.socket) {
            self.note_drops(drops);
        }
    }

    fn hand_over(&mut self, buffers: &[Vec<u8>], received: &[Received]) {
        let shared = &self.shared;
        // Relaxed: nothing is published with it.
        let now = SystemClock::steady().saturating_add(shared.ahead.load(Ordering::Relaxed));
        let mut taken = Vec::with_capacity(received.len());
        for (buffer, Received { bytes, sender }) in buffers.iter().zip(received) {
            if shared.listening.may_send(*sender) {
                taken.push((*sender, self.packing.add(&buffer[..*bytes], *sender, now)));
            } else {
                shared.counters.refused(*sender);
            }
        }
        if taken.is_empty() {
            return;
        }
        let pieces: Vec<_> = self.packing.pieces().into_iter().map(|cut| (cut, ())).collect();
        let sent = if pieces.is_empty() { Ok(()) } else { shared.handover.try_send(pieces) };
        for (sender, records) in taken {
            shared.counters.sent(sender, records, &sent);
        }
    }
}

/// The column `drops` of a socket in the kernel's tables.
fn drops_of(socket: &UdpSocket) -> Option<u32> {
    let inode = File::from(socket.as_fd().try_clone_to_owned().ok()?).metadata().ok()?.ino().to_string();
    ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"].iter().find_map(|table| {
        let lines = BufReader::new(File::open(table).ok()?).lines();
        lines.map_while(Result::ok).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (*fields.get(9)? == inode).then(|| fields.last()?.parse().ok()).flatten()
        })
    })
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
