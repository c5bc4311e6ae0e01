//! Records over UDP: a datagram is one or more lines, and no line goes over two.
//!
//! UDP cannot wait: a datagram that finds the queue full is dropped and counted for its sender. `allow` names
//! who may send; datagrams of others are counted and dropped. A format whose streams have a header is refused,
//! because a datagram is no stream.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_flow::{DatagramCounts, DatagramStats, DatagramView, Poll, Source, Waker};
use thalweg_types::{Error, IpNetwork, Micros, ip_octets};
use tokio::sync::watch;
use tracing::{info, warn};

use super::cut::{Cut, cut_all};
use super::handover::{DEFAULT_QUEUE, Filler, Handover, Intake, Refused, drained, io_runtime};
use super::{BlockCodec, LISTEN, QUEUE, check_listen, decoders_of, reader_of};
use crate::format::{RecordFormat, Splitter};
use crate::{BuiltSource, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourcePlugin};

/// The largest datagram there is.
const DATAGRAM: usize = 65_535;

/// Datagrams taken at a time.
const BURST: usize = 256;

/// Senders that are counted apart; more of them share one counter, so that forged addresses cost no memory.
const MAX_SENDERS: usize = 65_536;

/// Senders that are shown apart.
const SHOWN_SENDERS: usize = 20;

/// How often drops are reported at most.
const REPORT: Duration = Duration::from_secs(10);

pub(crate) const ALLOW: OptionSpec = OptionSpec {
    key: "allow",
    kind: OptionKind::TextList,
    required: false,
    default: None,
    doc: "addresses or networks (10.0.0.0/8) that may send; without it all may",
};

/// Mistakes in `allow`.
pub(crate) fn check_allow(options: &Options) -> impl Iterator<Item = Mistake> {
    let allow = options.list("allow").into_iter().flatten();
    allow.filter_map(|text| network(text).err()).map(|error| Mistake::new("allow", error))
}

/// The plug-in.
pub struct UdpPlugin;

impl SourcePlugin for UdpPlugin {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn doc(&self) -> &'static str {
        "records in UDP datagrams"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[LISTEN, QUEUE, ALLOW]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self) -> bool {
        true
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_listen(options).into_iter().chain(check_allow(options)).collect()
    }

    fn check_format(&self, format: &dyn RecordFormat) -> Option<Mistake> {
        check_header(format).err().map(|error| Mistake::new("format", error))
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let listen = context.options.text("listen").unwrap_or_default();
        bound(listen).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let listen = context.options.text("listen").unwrap_or_default();
        let queue = context.options.size("queue").map_or(DEFAULT_QUEUE, |bytes| bytes as usize);
        let allow = context.options.list("allow").map(networks).transpose()?;
        let source = UdpSource::bind(listen, Arc::clone(&format), queue, allow)?;
        let address = source.address();
        info!(source = %context.name, %address, "listening on udp");
        let kept = Arc::clone(&format);
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: decoders_of(&context, format),
            schema: context.schema,
            ingress: None,
            address: Some(address),
            connections: None,
            replay: Replay::Journal(BlockCodec::new(Some(kept))),
        })
    }
}

/// A datagram is no stream, which could begin with a header.
fn check_header(format: &dyn RecordFormat) -> Result<(), Error> {
    match format.has_preamble() {
        true => {
            Err(Error::user("a datagram has no header").with_hint("set header: false, and no skip_lines"))
        }
        false => Ok(()),
    }
}

/// A socket, and its address with the port that it really got.
fn bound(listen: &str) -> Result<(UdpSocket, SocketAddr), Error> {
    let failed = |error: std::io::Error| {
        Error::external(format!("listen on udp {listen:?}"))
            .with_hint("choose an address of this machine and a port that nobody else listens on")
            .with_source(error)
    };
    let socket = UdpSocket::bind(listen).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok((socket, address))
}

/// Counters by sender, shared with whoever shows them. Senders past the first 65,536 are counted as `0.0.0.0`.
#[derive(Clone, Debug, Default)]
pub struct UdpCounters(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    total: DatagramCounts,
    by_sender: BTreeMap<IpAddr, DatagramCounts>,
}

impl UdpCounters {
    pub fn by_sender(&self) -> BTreeMap<IpAddr, DatagramCounts> {
        self.counted().by_sender.clone()
    }

    pub fn total(&self) -> DatagramCounts {
        self.counted().total
    }

    /// The sums, and the 20 senders that lost most.
    pub fn stats(&self) -> DatagramStats {
        let counted = self.counted();
        // The receiver waits for this lock with each datagram, so there may be many senders here, but no copy of all.
        let rank =
            |counts: &DatagramCounts| (counts.dropped_datagrams + counts.refused_datagrams, counts.datagrams);
        let mut worst: Vec<(IpAddr, DatagramCounts)> = Vec::with_capacity(SHOWN_SENDERS + 1);
        for (sender, counts) in &counted.by_sender {
            let place = worst.partition_point(|(_, other)| rank(other) >= rank(counts));
            if place < SHOWN_SENDERS {
                worst.insert(place, (*sender, *counts));
                worst.truncate(SHOWN_SENDERS);
            }
        }
        DatagramStats {
            total: counted.total,
            senders: counted.by_sender.len(),
            worst,
            ..DatagramStats::default()
        }
    }

    /// Notes a datagram of a sender that may not send.
    pub(super) fn refused(&self, sender: IpAddr) {
        self.update(sender, |counters| {
            counters.datagrams += 1;
            counters.refused_datagrams += 1;
        });
    }

    /// Notes a datagram that was handed over, or found the queue full or closed.
    pub(super) fn sent(&self, sender: IpAddr, records: u64, sent: &Result<(), Refused>) {
        self.update(sender, |counters| {
            counters.datagrams += 1;
            match sent {
                Ok(()) => counters.records += records,
                Err(_) => {
                    counters.dropped_datagrams += 1;
                    counters.dropped_records += records;
                }
            }
        });
    }

    fn update(&self, sender: IpAddr, change: impl Fn(&mut DatagramCounts)) {
        let mut counted = self.counted();
        change(&mut counted.total);
        let senders = &mut counted.by_sender;
        let is_counted = senders.len() < MAX_SENDERS || senders.contains_key(&sender);
        let sender = if is_counted { sender } else { IpAddr::from([0, 0, 0, 0]) };
        change(senders.entry(sender).or_default());
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `10.1.2.3`, `10.0.0.0/8`, `fe80::/10`.
///
/// # Errors
/// A sentence with the text and what was expected.
pub(crate) fn network(text: &str) -> Result<IpNetwork, Error> {
    IpNetwork::parse(text).ok_or_else(|| {
        Error::user(format!("expected an address or a network such as 10.0.0.0/8, got {text:?}"))
    })
}

pub(crate) fn networks(texts: &[String]) -> Result<Vec<IpNetwork>, Error> {
    texts.iter().map(|text| network(text)).collect()
}

/// Whether a sender is in one of these; without them all may send.
pub(super) fn may_send(allow: Option<&[IpNetwork]>, sender: IpAddr) -> bool {
    allow.is_none_or(|allow| allow.iter().any(|network| network.contains(ip_octets(sender))))
}

/// Listens on one address.
pub struct UdpSource {
    socket: Option<UdpSocket>,
    address: SocketAddr,
    receiver: Option<Receiver>,
    intake: Intake<()>,
    counters: UdpCounters,
    filler: Filler,
}

impl UdpSource {
    /// # Errors
    /// Where the address cannot be bound, or the format needs a header.
    pub fn bind(
        listen: &str,
        format: Arc<dyn RecordFormat>,
        queue: usize,
        allow: Option<Vec<IpNetwork>>,
    ) -> Result<Self, Error> {
        check_header(&*format)?;
        let (socket, address) = bound(listen)?;
        let handover = Arc::new(Handover::new(queue).of_records(format.block_records()));
        let counters = UdpCounters::default();
        let receiver = Receiver {
            splitter: format.splitter(),
            place: 0,
            format,
            handover: Arc::clone(&handover),
            counters: counters.clone(),
            allow,
        };
        Ok(Self {
            socket: Some(socket),
            address,
            receiver: Some(receiver),
            intake: Intake::new(handover),
            counters,
            filler: Filler::new(),
        })
    }

    /// Where it listens, with the port that it really got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What each sender has sent so far.
    pub fn counters(&self) -> UdpCounters {
        self.counters.clone()
    }
}

impl Source for UdpSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        self.intake.handover().set_waker(waker);
        let (Some(socket), Some(receiver)) = (self.socket.take(), self.receiver.take()) else {
            return Ok(());
        };
        let runtime = io_runtime()?;
        let socket = {
            let _entered = runtime.enter();
            tokio::net::UdpSocket::from_std(socket)
                .map_err(|error| Error::external("hand a socket to the I/O runtime").with_source(error))?
        };
        let handover = Arc::clone(self.intake.handover());
        self.filler.start(runtime, |drain| async move {
            match receive(socket, receiver, drain).await {
                Ok(()) => handover.close(),
                Err(error) => handover.fail(Error::external("receive datagrams").with_source(error)),
            }
        });
        Ok(())
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        self.intake.poll(max_bytes).map(|(poll, _)| poll)
    }

    fn drain(&mut self) {
        self.filler.drain(self.intake.handover());
    }

    fn datagrams(&self) -> Option<DatagramView> {
        let counters = self.counters();
        Some(Arc::new(move || counters.stats()))
    }
}

impl Drop for UdpSource {
    fn drop(&mut self) {
        let total = self.counters.total();
        if total.datagrams > 0 {
            info!(
                datagrams = total.datagrams,
                records = total.records,
                dropped_datagrams = total.dropped_datagrams,
                dropped_records = total.dropped_records,
                refused_datagrams = total.refused_datagrams,
                "udp source ended"
            );
        }
    }
}

/// Receives until the source is drained, then what has already arrived.
async fn receive(
    socket: tokio::net::UdpSocket,
    mut receiver: Receiver,
    mut drain: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut datagram = vec![0; DATAGRAM];
    let mut reported = (Instant::now(), 0);
    loop {
        let is_draining = tokio::select! {
            biased;
            () = drained(&mut drain) => true,
            ready = socket.readable() => {
                ready?;
                false
            }
        };
        // Not for ever: a flood must let other sockets be heard, and a drained source end.
        for _ in 0..if is_draining { 1 << 16 } else { BURST } {
            match socket.try_recv_from(&mut datagram) {
                Ok((len, sender)) => receiver.take(&datagram[..len], sender.ip()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                // An earlier answer of ours could not be delivered; nothing is wrong with the socket.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        if is_draining {
            return Ok(());
        }
        if reported.0.elapsed() >= REPORT {
            let dropped = receiver.counters.total().dropped_datagrams;
            if dropped > reported.1 {
                warn!(dropped = dropped - reported.1, "datagrams dropped: the queue was full");
            }
            reported = (Instant::now(), dropped);
        }
    }
}

struct Receiver {
    format: Arc<dyn RecordFormat>,
    splitter: Box<dyn Splitter>,
    /// Bytes that it has been given.
    place: u64,
    handover: Arc<Handover<()>>,
    counters: UdpCounters,
    allow: Option<Vec<IpNetwork>>,
}

impl Receiver {
    fn take(&mut self, datagram: &[u8], sender: IpAddr) {
        if !may_send(self.allow.as_deref(), sender) {
            self.counters.refused(sender);
            return;
        }
        let cuts = self.cut(datagram);
        let records = cuts.iter().map(|cut| u64::from(cut.count)).sum::<u64>();
        let sent = self.handover.try_send(cuts.into_iter().map(|cut| (cut, ())).collect());
        self.counters.sent(sender, records, &sent);
    }

    fn cut(&mut self, datagram: &[u8]) -> Vec<Cut> {
        // One splitter serves all datagrams that hold whole records, which is nearly all of them.
        let place = self.place;
        self.place += datagram.len() as u64;
        if let Ok(split) = self.splitter.split(place, datagram, true)
            && split.records > 0
            && split.skip + split.bytes == datagram.len()
        {
            let data = Bytes::copy_from_slice(&datagram[split.skip..]);
            return vec![Cut { data, count: split.records, context: None }];
        }
        cut_all(&*self.format, datagram).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_that_lose_most_are_shown_first_and_few() {
        let counters = UdpCounters::default();
        let sender = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in 0..200_u8 {
            counters.update(sender(number), |counts| counts.datagrams += u64::from(number) + 1);
        }
        counters.update(sender(7), |counts| counts.dropped_datagrams += 2);
        counters.update(sender(9), |counts| counts.refused_datagrams += 3);
        let stats = counters.stats();
        assert_eq!((stats.senders, stats.worst.len()), (200, SHOWN_SENDERS));
        let shown: Vec<IpAddr> = stats.worst.iter().map(|(sender, _)| *sender).collect();
        assert_eq!(shown[..4], [sender(9), sender(7), sender(199), sender(198)]);
        let total = stats.total;
        assert_eq!((total.datagrams, total.dropped_datagrams, total.refused_datagrams), (20_100, 2, 3));
        assert_eq!(
            total.datagrams,
            counters.by_sender().values().map(|counts| counts.datagrams).sum::<u64>()
        );
    }
}
