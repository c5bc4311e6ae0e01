//! Packet samples out of captures (pcap or pcapng): what agents sent to a collector, replayed at once or at its own pace.
//!
//! Several captures are read one behind the other, in the order of their names, whatever their times ([`capture`] reads one).
//! Event time is the captures'.
//!
//! The place of the source is how many datagrams of each capture were given ([`place`]): after a restart a capture that was
//! not read to its end is read again from its beginning to there. Captures that were not known then are read after those that
//! were, so a job goes on with what was captured meanwhile.
//!
//! Datagrams in several IP fragments are not put together: the first fragment counts as the datagram, cut. They are counted,
//! as is all else that is left out, and a warning at the end says how much.

mod capture;
mod place;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use thalweg_flow::{
    DatagramStats, DatagramView, Payload, Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress,
};
use thalweg_types::{Error, Micros, Offset};
use tracing::{info, warn};

use self::capture::Capture;
use self::place::Known;
use super::{FILE_CHANGED, ends_early};
use crate::paths::files_of;
use crate::sflow::agents::Agents;
use crate::sflow::datagram::Outline;
use crate::sflow::decode::{Settings, outputs, sflow_decoders};
use crate::sflow::frame::push;
use crate::sflow::options::{SAMPLING_RATES, TUNNELS, check_samples, settings};
use crate::sflow::packet::{Packet, link_packet};
use crate::{
    BuiltSource, InputSpan, JobPath, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext,
    SourceOutput, SourcePlugin,
};

/// The port that collectors of sFlow listen on.
const SFLOW_PORT: i64 = 6_343;

/// The plug-in.
pub struct PcapPlugin;

impl SourcePlugin for PcapPlugin {
    fn name(&self) -> &'static str {
        "pcap"
    }

    fn doc(&self) -> &'static str {
        "packet samples out of captures: sFlow version 5 in pcap or pcapng"
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            OptionSpec {
                key: "path",
                kind: OptionKind::PathList,
                required: true,
                default: None,
                doc: "the capture, a pattern (`day-*.pcap`), a folder, or a list of these; gzip is unpacked",
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
                doc: "1: at the pace of the captures, 10: ten times as fast; without it at once",
            },
            SAMPLING_RATES,
            TUNNELS,
        ];
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_live(&self, _: &Options) -> bool {
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
            Mistake::new("speed", error.with_hint("leave it out to have the captures at once"))
        });
        wrong.into_iter().chain(check_samples(options)).collect()
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        first_read(context, &settings(context)?).map(drop)
    }

    fn spans(&self, context: &SourceContext) -> Result<Vec<InputSpan>, Error> {
        let port = context.options.integer("port").unwrap_or(SFLOW_PORT) as u16;
        let paths = files_of(context.options.paths("path").unwrap_or_default())?;
        paths.iter().take(InputSpan::MOST).filter_map(|path| span(path, port).transpose()).collect()
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

/// Bytes of a capture that are read for its span.
const LOOK: u64 = 1 << 20;

/// From when to when the datagrams of a capture are, as far as its beginning says.
fn span(path: &JobPath, port: u16) -> Result<Option<InputSpan>, Error> {
    let mut capture = Capture::open(path)?;
    let mut span: Option<(Micros, Micros)> = None;
    while capture.done() < LOOK {
        let Some(looked) = capture.next(|captured| look(&captured, port))? else {
            let whole =
                |(first, last)| InputSpan { name: path.display().to_string(), first, last: Some(last) };
            return Ok(span.map(whole));
        };
        if let Looked::Datagram { datagram, .. } = looked {
            let (first, last) = span.unwrap_or((datagram.time, datagram.time));
            span = Some((first.min(datagram.time), last.max(datagram.time)));
        }
    }
    Ok(span.map(|(first, _)| InputSpan { name: path.display().to_string(), first, last: None }))
}

/// The source of a job file, with its first packet: so a file which is no capture is found before the start.
fn first_read(context: &SourceContext, settings: &Settings) -> Result<PcapSource, Error> {
    let options = &context.options;
    let paths = files_of(options.paths("path").unwrap_or_default())?;
    let is_one = paths.len() == 1;
    let files = paths.into_iter().map(|path| OneCapture::new(path, is_one)).collect::<Result<_, _>>()?;
    let mut source = PcapSource {
        files,
        at: 0,
        capture: None,
        port: options.integer("port").unwrap_or(SFLOW_PORT) as u16,
        pace: options.number("speed").map(|speed| Pace { speed, began: None }),
        agents: settings.agents.clone(),
        next: 0,
        ahead: None,
        seen: Seen::default(),
        is_polled: false,
        is_draining: false,
    };
    source.ahead = source.read()?;
    Ok(source)
}

/// A capture among others.
struct OneCapture {
    path: JobPath,
    /// Bytes of the file.
    total: u64,
    /// Length and hash of its beginning.
    begin: [u64; 2],
    /// Datagrams of it that were given.
    done: u64,
    /// Bytes that the file had when it was read to its end.
    ended_at: Option<u64>,
    /// Nothing more is read of it in this run.
    is_over: bool,
}

impl OneCapture {
    /// Opens it for a moment, so that a file which is no capture is found. One without bytes is what is left of a program
    /// that was stopped early, but where it is the only one.
    fn new(path: JobPath, is_only: bool) -> Result<Self, Error> {
        let capture = Capture::open(&path)?;
        if is_only && capture.total == 0 {
            return Err(Error::user(format!("{path:?} is no capture: expected pcap or pcapng, got nothing"))
                .with_hint("`tcpdump -w FILE udp port 6343` writes one"));
        }
        let begin = capture.begin(u64::MAX)?;
        Ok(Self { path, total: capture.total, begin, done: 0, ended_at: None, is_over: false })
    }

    fn is(&self, known: &Known) -> Result<bool, Error> {
        if known.begin[0] == self.begin[0] {
            return Ok(known.begin == self.begin);
        }
        // It may have grown.
        Ok(Capture::open(&self.path)?.begin(known.begin[0])? == known.begin)
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

/// What was seen of all captures in this run.
#[derive(Default)]
struct Seen {
    packets: u64,
    /// Packets that are no datagrams to the port.
    passed_over: u64,
    /// Datagrams to the port of which the capture kept the beginning only.
    cut: u64,
    /// Datagrams to the port of which there is the first IP fragment.
    fragmented: u64,
    foreign: u64,
    link_types: BTreeSet<i32>,
    no_interface: u64,
    malformed: u64,
}

impl Seen {
    /// Adds what the capture itself has counted.
    fn add(&mut self, capture: &Capture) {
        self.packets += capture.packets;
        self.no_interface += capture.left_out.no_interface;
        self.malformed += capture.left_out.malformed;
    }
}

/// What a packet is to the source.
enum Looked {
    Datagram { datagram: Datagram, is_cut: bool, is_fragment: bool },
    Other,
    Foreign(i32),
}

fn look(captured: &capture::Captured<'_>, port: u16) -> Looked {
    let Some(packet) = link_packet(captured.link, captured.data) else {
        return Looked::Foreign(captured.link);
    };
    match datagram(&packet, port) {
        Some((sender, payload)) => Looked::Datagram {
            datagram: Datagram { time: captured.time, sender, payload: payload.to_vec() },
            is_cut: captured.is_cut,
            is_fragment: packet.is_fragment(),
        },
        None => Looked::Other,
    }
}

struct PcapSource {
    /// In the order in which they are read.
    files: Vec<OneCapture>,
    /// The one that is read, or comes next.
    at: usize,
    /// It is open.
    capture: Option<Capture>,
    port: u16,
    pace: Option<Pace>,
    agents: Agents,
    next: Offset,
    /// The datagram that comes next, of the capture that is read.
    ahead: Option<Datagram>,
    seen: Seen,
    /// The job has begun; before that somebody may only look whether it could.
    is_polled: bool,
    is_draining: bool,
}

impl PcapSource {
    /// The next datagram to the port.
    fn read(&mut self) -> Result<Option<Datagram>, Error> {
        while let Some(file) = self.files.get(self.at) {
            if file.is_over {
                self.at += 1;
                continue;
            }
            if self.capture.is_none() {
                let path = file.path.clone();
                self.capture = Some(Capture::open(&path)?);
                for _ in 0..self.files[self.at].done {
                    if self.datagram()?.is_none() {
                        return Err(not_the_same(&path));
                    }
                }
            }
            if let Some(datagram) = self.datagram()? {
                return Ok(Some(datagram));
            }
            self.end();
        }
        Ok(None)
    }

    /// The next datagram of the capture that is open.
    fn datagram(&mut self) -> Result<Option<Datagram>, Error> {
        let (Some(capture), port) = (&mut self.capture, self.port) else { return Ok(None) };
        let path = &self.files[self.at].path;
        let seen = &mut self.seen;
        while let Some(looked) = capture
            .next(|captured| look(&captured, port))
            .map_err(|error| error.context(format!("read {path:?}")))?
        {
            match looked {
                Looked::Datagram { datagram, is_cut, is_fragment } => {
                    seen.cut += u64::from(is_cut);
                    seen.fragmented += u64::from(is_fragment);
                    return Ok(Some(datagram));
                }
                Looked::Other => seen.passed_over += 1,
                Looked::Foreign(link) => {
                    seen.foreign += 1;
                    seen.link_types.insert(link);
                }
            }
        }
        Ok(None)
    }

    /// Ends the capture that is open.
    fn end(&mut self) {
        let file = &mut self.files[self.at];
        file.is_over = true;
        self.at += 1;
        let Some(capture) = self.capture.take() else { return };
        file.total = capture.total;
        file.ended_at = Some(capture.total);
        let path = file.path.display();
        if capture.total == 0 {
            warn!(%path, "the capture is empty");
        }
        if let Some((byte, why)) = &capture.left_out.end {
            let packets = capture.packets;
            warn!(
                %path,
                packets,
                byte,
                why,
                "the capture ends within a packet or is damaged: what comes after is left out"
            );
        }
        self.seen.add(&capture);
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
            self.files[self.at].done += 1;
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

    /// Puts the captures that an earlier run knew before the others, each where it was left.
    fn go_on(&mut self, known: Vec<Known>) -> Result<(), Error> {
        let mut named: Vec<Option<OneCapture>> =
            std::mem::take(&mut self.files).into_iter().map(Some).collect();
        let is_one = named.len() == 1;
        let some_path = named.iter().flatten().next().map(|file| file.path.clone()).unwrap_or_default();
        for known in known {
            // An earlier build had one capture and did not say which.
            let has_name = |file: &OneCapture| match &known.path {
                Some(path) => *file.path == **path,
                None => is_one,
            };
            let mut place = named.iter().position(|file| file.as_ref().is_some_and(has_name));
            if place.is_none() && known.done > 0 {
                for (number, file) in named.iter().enumerate() {
                    if let Some(file) = file
                        && file.is(&known)?
                    {
                        place = Some(number);
                        break;
                    }
                }
            }
            let Some(mut file) = place.and_then(|place| named[place].take()) else {
                let Some(path) = known.path else { return Err(not_the_same(&some_path)) };
                if known.ended_at.is_none() && known.done > 0 {
                    warn!(
                        path = %path.display(),
                        "a capture was not read to its end and is not among those that are named now: what is left of it is not read"
                    );
                }
                let (path, done, begin) = (some_path.found(path), known.done, known.begin);
                let ended_at = known.ended_at;
                self.files.push(OneCapture { path, total: 0, begin, done, ended_at, is_over: true });
                continue;
            };
            // Of a capture of which nothing is committed another one may take the place.
            if known.done > 0 {
                if !file.is(&known)? {
                    return Err(not_the_same(&file.path));
                }
                file.done = known.done;
                file.is_over = known.ended_at == Some(file.total);
                file.ended_at = known.ended_at;
            }
            self.files.push(file);
        }
        self.files.extend(named.into_iter().flatten());
        Ok(())
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
        self.is_polled = true;
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
        let known = |file: &OneCapture| Known {
            path: Some(file.path.as_path().to_owned()),
            done: file.done,
            begin: file.begin,
            ended_at: file.ended_at,
        };
        SourcePosition { next: self.next, place: place::to_bytes(self.files.iter().map(known)) }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        let known = place::of_bytes(&position.place)
            .ok_or_else(|| Error::corrupt("the commit record holds no places in captures"))?;
        for file in &mut self.files {
            (file.is_over, file.ended_at) = (false, None);
        }
        (self.at, self.capture, self.seen) = (0, None, Seen::default());
        self.go_on(known)?;
        self.next = position.next;
        self.ahead = self.read()?;
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, max_bytes: usize) -> Result<RawBlock, Error> {
        let block = self.block(max_bytes, run.count, |_| true)?;
        let last = || self.files.last().map(|file| file.path.clone()).unwrap_or_default();
        block.ok_or_else(|| ends_early(&last(), self.next, run.count))
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        let total = self.files.iter().map(|file| file.total).sum();
        let ended: u64 = self.files.iter().filter(|file| file.is_over).map(|file| file.total).sum();
        let done = ended + self.capture.as_ref().map_or(0, Capture::done);
        Some(SourceProgress { done, total: Some(total) })
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
        if let Some(capture) = self.capture.take() {
            self.seen.add(&capture);
        }
        let path = self.files.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        let captures = self.files.len();
        let datagrams: u64 = self.files.iter().map(|file| file.done).sum();
        let Seen { packets, passed_over, cut, fragmented, foreign, link_types, no_interface, malformed } =
            &self.seen;
        if datagrams == 0 && *passed_over > 0 {
            warn!(
                path,
                captures,
                packets = passed_over,
                port = self.port,
                "no packet of the capture is a datagram to the port"
            );
        }
        if self.is_polled && cut + fragmented + foreign + no_interface + malformed > 0 {
            warn!(
                path,
                captures,
                cut,
                fragmented,
                foreign,
                ?link_types,
                no_interface,
                malformed,
                "not all of the capture was used: datagrams that it holds the beginning of (cut by its snaplen, or \
                 fragmented by IP), packets of link types or interfaces that are not known, and malformed blocks"
            );
        }
        info!(path, captures, packets, passed_over, datagrams, "capture ended");
    }
}
