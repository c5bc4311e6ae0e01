//! Packet samples out of a capture (pcap or pcapng): what agents sent to a collector, replayed at once or at its own pace.
//!
//! Event time is the capture's. Its place is the number of datagrams that were given: after a restart the capture is read again
//! from its beginning to there. Datagrams in several IP fragments are not put together: the first fragment counts as the
//! datagram, cut.

use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use thalweg_flow::{
    DatagramStats, DatagramView, Payload, Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress,
};
use thalweg_storage::handles::patiently;
use thalweg_types::{Error, Micros, Offset, hash_bytes};
use tracing::{info, warn};

use super::{FILE_CHANGED, ends_early};
use crate::sflow::agents::Agents;
use crate::sflow::datagram::Outline;
use crate::sflow::decode::{Settings, outputs, sflow_decoders};
use crate::sflow::frame::push;
use crate::sflow::options::{SAMPLING_RATES, TUNNELS, check_samples, settings};
use crate::sflow::packet::{Packet, link_packet};
use crate::{
    BuiltSource, JobPath, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourceOutput,
    SourcePlugin,
};

/// The port that collectors of sFlow listen on.
const SFLOW_PORT: i64 = 6_343;

/// Bytes read at a time, and the longest packet.
const BUFFER: usize = 1 << 20;

/// Bytes at the beginning of a capture that tell it from others.
const FINGERPRINT: u64 = 4_096;

/// The plug-in.
pub struct PcapPlugin;

impl SourcePlugin for PcapPlugin {
    fn name(&self) -> &'static str {
        "pcap"
    }

    fn doc(&self) -> &'static str {
        "packet samples out of a capture: sFlow version 5 in pcap or pcapng"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            OptionSpec {
                key: "path",
                kind: OptionKind::Path,
                required: true,
                default: None,
                doc: "the capture",
            },
            OptionSpec {
                key: "port",
                kind: OptionKind::Integer { min: 1, max: 65_535 },
                required: false,
                default: Some("6343"),
                doc: "destination port of the datagrams that are taken",
            },
            OptionSpec {
                key: "speed",
                kind: OptionKind::Number,
                required: false,
                default: None,
                doc: "1: at the pace of the capture, 10: ten times as fast; without it at once",
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
        false
    }

    fn own_time(&self, _: &Options) -> Option<&'static str> {
        Some("time")
    }

    fn outputs(&self, _: &Options) -> Vec<SourceOutput> {
        outputs()
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        let wrong = options.number("speed").filter(|speed| !(speed.is_finite() && *speed > 0.0));
        let wrong = wrong.map(|speed| {
            let error = Error::user(format!("expected a number above 0, got {speed}"));
            Mistake::new("speed", error.with_hint("leave it out to have the capture at once"))
        });
        wrong.into_iter().chain(check_samples(options)).collect()
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        first_read(context, &settings(context)?).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let settings = settings(&context)?;
        let source = first_read(&context, &settings)?;
        Ok(BuiltSource {
            source: Box::new(source),
            decoder: sflow_decoders(settings),
            schema: context.schema,
            ingress: None,
            address: None,
            connections: None,
            replay: Replay::Itself,
        })
    }
}

/// The source of a job file, with its first packet: so a file which is no capture is found before the start.
fn first_read(context: &SourceContext, settings: &Settings) -> Result<PcapSource, Error> {
    let options = &context.options;
    let path = options.path("path").cloned().unwrap_or_default();
    let mut source = PcapSource {
        capture: Capture::open(&path)?,
        path: path.as_path().to_owned(),
        port: options.integer("port").unwrap_or(SFLOW_PORT) as u16,
        pace: options.number("speed").map(|speed| Pace { speed, began: None }),
        agents: settings.agents.clone(),
        next: 0,
        done: 0,
        ahead: None,
        passed_over: 0,
        is_draining: false,
    };
    source.ahead = source.read()?;
    Ok(source)
}

/// The packets of a capture, one after the other.
struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    /// Link type, units of time a second and offset in seconds, by interface.
    interfaces: Vec<Interface>,
    /// Of the file, for the place and the progress.
    file: File,
    total: u64,
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Interface {
    link: i32,
    resolution: u64,
    offset: i64,
}

/// A packet of a capture.
struct Captured {
    time: Micros,
    link: i32,
    data: Vec<u8>,
}

impl Capture {
    fn open(path: &JobPath) -> Result<Self, Error> {
        let unreadable = |error: std::io::Error| {
            let hint = "relative paths start at the current directory";
            Error::user(format!("open capture {path:?}")).with_hint(hint).with_source(error)
        };
        let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
        if !kind.is_file() {
            let what = if kind.is_dir() { "a folder" } else { "a pipe or a device" };
            return Err(Error::user(format!("open capture {path:?}: expected a file, got {what}"))
                .with_hint(
                    "let `tcpdump -w FILE` write a file; the source `sflow` listens to a port itself",
                ));
        }
        let file = patiently(path.display(), || File::open(path)).map_err(unreadable)?;
        path.verify(&file)?;
        let total = file.metadata().map_err(unreadable)?.len();
        let reader = create_reader(BUFFER, file.try_clone().map_err(unreadable)?).map_err(|error| {
            Error::user(format!("{path:?} is no capture: expected pcap or pcapng, got {}", why(&error)))
                .with_hint("`tcpdump -w FILE udp port 6343` writes one")
        })?;
        Ok(Self { reader, interfaces: Vec::new(), file, total, packets: 0, bytes: 0 })
    }

    /// The next packet; `None` at the end. A packet that is cut is the end: whoever wrote the capture was stopped there.
    fn next(&mut self) -> Result<Option<Captured>, Error> {
        loop {
            let read = match self.reader.next() {
                Ok((consumed, block)) => Some((consumed, self.interfaces.packet(block))),
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => None,
                Err(PcapError::UnexpectedEof) => {
                    warn!(packets = self.packets, "the capture ends within a packet, which is left out");
                    return Ok(None);
                }
                Err(error) => {
                    let error = why(&error);
                    return Err(self.damaged(&error));
                }
            };
            let Some((consumed, packet)) = read else {
                if let Err(error) = self.reader.refill() {
                    let error = why(&error);
                    return Err(self.damaged(&error));
                }
                continue;
            };
            self.reader.consume(consumed);
            self.bytes += consumed as u64;
            if let Some(packet) = packet {
                self.packets += 1;
                return Ok(Some(packet));
            }
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!("the capture is damaged behind packet {}: {why}", self.packets))
            .with_hint("`tcpdump -r FILE -w OTHER` saves what comes before")
    }

    /// A hash of the first bytes of the file; 0 where there are fewer.
    fn fingerprint(&self, bytes: u64) -> u64 {
        let mut begin = vec![0; bytes.min(FINGERPRINT) as usize];
        self.file.read_exact_at(&mut begin, 0).map_or(0, |()| hash_bytes(&begin))
    }
}

trait Interfaces {
    /// The packet in a block, where it holds one; notes interfaces.
    fn packet(&mut self, block: PcapBlockOwned<'_>) -> Option<Captured>;
}

impl Interfaces for Vec<Interface> {
    fn packet(&mut self, block: PcapBlockOwned<'_>) -> Option<Captured> {
        const MICROS: u64 = 1_000_000;
        const NANOS: u64 = 1_000_000_000;
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution = if header.is_nanosecond_precision() { NANOS } else { MICROS };
                let link = link_type(header.network.0);
                *self = vec![Interface { link, resolution, offset: 0 }];
                None
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.first()?;
                let fraction = u64::from(packet.ts_usec) * MICROS / interface.resolution;
                let time = i64::from(packet.ts_sec) * 1_000_000 + fraction.min(MICROS) as i64;
                Some(Captured { time, link: interface.link, data: packet.data.to_vec() })
            }
            // Interfaces are numbered from the beginning of their section.
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.clear();
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.push(Interface {
                    link: link_type(interface.linktype.0),
                    resolution: resolution(interface.if_tsresol),
                    offset: interface.ts_offset(),
                });
                None
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.get(packet.if_id as usize)?;
                let units = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                let micros = units * u128::from(MICROS) / u128::from(interface.resolution);
                let time =
                    i64::try_from(micros).ok()?.checked_add(interface.offset.checked_mul(1_000_000)?)?;
                let data = packet.data.get(..packet.caplen as usize)?.to_vec();
                Some(Captured { time, link: interface.link, data })
            }
            // It has no time; nothing of ours writes such.
            PcapBlockOwned::NG(_) => None,
        }
    }
}

/// Units of time in a second, by the option `if_tsresol`: a power of ten, or with the top bit set one of two. One that does not
/// fit is finer than any clock.
fn resolution(option: u8) -> u64 {
    let exponent = u32::from(option & 0x7f);
    let base: u64 = if option & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(exponent).unwrap_or(u64::MAX)
}

/// Above the type, captures say how long the checksums of frames are.
fn link_type(word: i32) -> i32 {
    word & 0xffff
}

fn why(error: &PcapError<&[u8]>) -> String {
    match error {
        PcapError::BufferTooSmall => format!("a packet of more than {BUFFER} bytes"),
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends within a packet".to_owned(),
        PcapError::HeaderNotRecognized => "another beginning".to_owned(),
        PcapError::ReadError => "it cannot be read".to_owned(),
        PcapError::Eof => "nothing".to_owned(),
        _ => "what is no packet".to_owned(),
    }
}

/// How fast a capture is replayed.
struct Pace {
    speed: f64,
    /// Time in the capture and in the job at which it began.
    began: Option<(Micros, Micros)>,
}

impl Pace {
    /// Microseconds until a packet is due.
    fn wait(&mut self, time: Micros, now: Micros) -> Micros {
        let (capture, job) = *self.began.get_or_insert((time, now));
        let due = job.saturating_add((time.saturating_sub(capture) as f64 / self.speed) as Micros);
        due.saturating_sub(now).max(0)
    }
}

/// A datagram of a capture.
struct Datagram {
    time: Micros,
    sender: IpAddr,
    payload: Vec<u8>,
}

struct PcapSource {
    path: PathBuf,
    capture: Capture,
    port: u16,
    pace: Option<Pace>,
    agents: Agents,
    next: Offset,
    /// Datagrams that were given.
    done: u64,
    /// The datagram that comes next.
    ahead: Option<Datagram>,
    /// Packets that are no datagrams to the port.
    passed_over: u64,
    is_draining: bool,
}

impl PcapSource {
    /// The next datagram to the port.
    fn read(&mut self) -> Result<Option<Datagram>, Error> {
        while let Some(captured) =
            self.capture.next().map_err(|error| error.context(format!("read {:?}", self.path)))?
        {
            let packet = link_packet(captured.link, &captured.data).ok_or_else(|| {
                Error::user(format!("{:?} has packets of link type {}", self.path, captured.link))
                    .with_hint("Ethernet, raw IP, Linux cooked and loopback captures can be read")
            })?;
            match datagram(&packet, self.port) {
                Some((sender, payload)) => {
                    return Ok(Some(Datagram { time: captured.time, sender, payload: payload.to_vec() }));
                }
                None => self.passed_over += 1,
            }
        }
        Ok(None)
    }

    /// Datagrams of about `max_bytes` and at most `max_records` records, where `is_due` lets them.
    fn block(
        &mut self,
        max_bytes: usize,
        max_records: u64,
        mut is_due: impl FnMut(Micros) -> bool,
    ) -> Result<Option<RawBlock>, Error> {
        let (mut data, mut count) = (Vec::new(), 0);
        while let Some(datagram) = self.ahead.take_if(|datagram| is_due(datagram.time)) {
            let outline = Outline::of(&datagram.payload);
            let records = outline.records();
            push(&mut data, datagram.time, datagram.sender, records, &datagram.payload);
            self.agents.note(&outline, datagram.sender, datagram.time);
            count += records;
            self.done += 1;
            self.ahead = self.read()?;
            if data.len() >= max_bytes || u64::from(count) >= max_records {
                break;
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let first = self.next;
        self.next += u64::from(count);
        let payload = Payload::Bytes { data: Bytes::from(data), context: None };
        Ok(Some(RawBlock { partition: 0, first, count, payload }))
    }
}

fn not_the_same(path: &Path) -> Error {
    Error::user(format!("{path:?} is not the capture that was read before")).with_hint(FILE_CHANGED)
}

/// Sender and payload of a datagram to a port.
fn datagram<'a>(packet: &Packet<'a>, port: u16) -> Option<(IpAddr, &'a [u8])> {
    let (to, payload) = packet.udp()?;
    let sender = Ipv6Addr::from(packet.ip?.source).to_canonical();
    (to == port).then_some((sender, payload))
}

impl Source for PcapSource {
    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error> {
        let Some(ahead) = &self.ahead else { return Ok(Poll::End) };
        if self.is_draining {
            return Ok(Poll::End);
        }
        let block = match self.pace.take() {
            None => self.block(max_bytes, u64::MAX, |_| true)?,
            Some(mut pace) => {
                let wait = pace.wait(ahead.time, now);
                if wait > 0 {
                    self.pace = Some(pace);
                    let wait = Duration::from_micros(wait.unsigned_abs().min(1_000_000));
                    return Ok(Poll::PendingUntil(Instant::now() + wait));
                }
                let block = self.block(max_bytes, u64::MAX, |time| pace.wait(time, now) == 0)?;
                self.pace = Some(pace);
                block
            }
        };
        Ok(block.map_or(Poll::Pending, Poll::Block))
    }

    fn position(&self) -> SourcePosition {
        let begin = self.capture.total.min(FINGERPRINT);
        let place = [self.done, begin, self.capture.fingerprint(begin)];
        let place = place.iter().flat_map(|word| word.to_le_bytes()).collect();
        SourcePosition { next: self.next, place }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        let words: Vec<u64> =
            position.place.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [done, begin, fingerprint] = *words.as_slice() else {
            return Err(Error::corrupt(format!(
                "the commit record holds no place in capture {:?}",
                self.path
            )));
        };
        // Of a capture of which nothing is committed another one may take the place.
        if done == 0 && position.next == 0 {
            return Ok(());
        }
        if self.capture.fingerprint(begin) != fingerprint {
            return Err(not_the_same(&self.path));
        }
        self.next = position.next;
        for _ in 0..done {
            if self.ahead.is_none() {
                return Err(not_the_same(&self.path));
            }
            self.done += 1;
            self.ahead = self.read()?;
        }
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        self.block(max_bytes, run.count, |_| true)?
            .ok_or_else(|| ends_early(&self.path, self.next, run.count))
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        Some(SourceProgress { done: self.capture.bytes, total: Some(self.capture.total) })
    }

    fn datagrams(&self) -> Option<DatagramView> {
        let agents = self.agents.clone();
        Some(std::sync::Arc::new(move || {
            let agents = agents.stats();
            let mut stats = DatagramStats::default();
            stats.total.datagrams = agents.total.datagrams;
            stats.total.records = agents.total.samples;
            stats.agents = Some(agents);
            stats
        }))
    }
}

impl Drop for PcapSource {
    fn drop(&mut self) {
        if self.done == 0 && self.passed_over > 0 {
            warn!(
                path = %self.path.display(),
                packets = self.passed_over,
                port = self.port,
                "no packet of the capture is a datagram to the port"
            );
        }
        info!(
            path = %self.path.display(),
            packets = self.capture.packets,
            passed_over = self.passed_over,
            datagrams = self.done,
            "capture ended"
        );
    }
}
