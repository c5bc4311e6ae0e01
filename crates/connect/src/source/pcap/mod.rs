//! Packet samples out of captures (pcap or pcapng): what agents sent to a collector, replayed at once or at its own
//! pace.
//!
//! Several captures are read one after the other, in the order of their names, whatever their times ([`capture`] reads
//! one). Event time is the captures'.
//!
//! The place of the source is how many datagrams of each capture were given ([`place`]): after a restart a capture that
//! was not read to its end is read again from its beginning to there. Captures that were not known then are read after
//! those that were, so a job goes on with captures that were made meanwhile.
//!
//! Datagrams in several IP fragments are put together ([`fragments`]), within one capture. Their order and number
//! depend on the packets of the capture and on where it ended when it was read to its end, which is part of its place;
//! so a restart has the same fragments waiting as the run before it had.
//!
//! Packets that are left out are counted ([`left_out`]).

mod capture;
mod fragments;
mod left_out;
mod place;

use std::collections::VecDeque;
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
use self::fragments::{Fragment, FragmentCounts, Fragments, Joined};
use self::left_out::{LeftOut, Shared};
use self::place::{End, Known};
use super::{FILE_CHANGED, ends_early};
use crate::paths::files_of;
use crate::sflow::agents::Agents;
use crate::sflow::datagram::Outline;
use crate::sflow::decode::{Settings, outputs, sflow_decoders};
use crate::sflow::frame::push;
use crate::sflow::options::{BYTES, SAMPLING_RATES, TUNNELS, check_samples, settings};
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
        "packet samples from captures: sFlow version 5 in pcap or pcapng"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            OptionSpec {
                key: "path",
                kind: OptionKind::PathList,
                required: true,
                default: None,
                doc: "capture, pattern (`day-*.pcap`), folder, or a list of these; gzip is unpacked",
            },
            OptionSpec {
                key: "port",
                kind: OptionKind::Integer { min: 1, max: 65_535 },
                required: false,
                default: Some("6343"),
                doc: "UDP destination port of the datagrams to read",
            },
            OptionSpec {
                key: "speed",
                kind: OptionKind::Number,
                required: false,
                default: None,
                doc: "pace relative to the capture: 1 is as captured, 10 is ten times as fast; as fast as possible, if absent",
            },
            SAMPLING_RATES,
            TUNNELS,
            BYTES,
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
        Ok(BuiltSource::new(Box::new(source), sflow_decoders(settings), context.schema, Replay::Itself))
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
        if let (time, Looked::Datagram { .. }) = looked {
            let (first, last) = span.unwrap_or((time, time));
            span = Some((first.min(time), last.max(time)));
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
    let port = options.integer("port").unwrap_or(SFLOW_PORT) as u16;
    let mut source = PcapSource {
        files,
        at: 0,
        capture: None,
        port,
        pace: options.number("speed").map(|speed| Pace { speed, began: None }),
        agents: settings.agents.clone(),
        next: 0,
        ahead: None,
        left_out: LeftOut::default(),
        fragments: Fragments::new(port),
        ready: VecDeque::new(),
        joined: Vec::new(),
        shared: Shared::default(),
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
    /// Where it was read to its end, the last time.
    end: Option<End>,
    /// Nothing more is read of it in this run.
    is_over: bool,
}

impl OneCapture {
    /// Opens it for a moment, so that a file that is not a capture is found. One without bytes was left by a program
    /// that was stopped early; it is refused only if it is the only one.
    fn new(path: JobPath, is_only: bool) -> Result<Self, Error> {
        let capture = Capture::open(&path)?;
        if is_only && capture.total == 0 {
            return Err(Error::user(format!("{path:?} is no capture: expected pcap or pcapng, got nothing"))
                .with_hint("`tcpdump -w FILE udp port 6343` writes one"));
        }
        let begin = capture.begin(u64::MAX)?;
        Ok(Self { path, total: capture.total, begin, done: 0, end: None, is_over: false })
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

/// How the source treats a packet.
enum Looked {
    Datagram { datagram: Datagram, is_cut: bool },
    Fragment(Fragment),
    Other,
    Foreign(i32),
}

fn look(captured: &capture::Captured<'_>, port: u16) -> (Micros, Looked) {
    let time = captured.time;
    let Some(packet) = link_packet(captured.link, captured.data) else {
        return (time, Looked::Foreign(captured.link));
    };
    let looked = match (packet.ip, packet.part) {
        (Some(ip), Some(part)) => Fragment::new(&part, ip.source, ip.destination, time).map(Looked::Fragment),
        _ => datagram(&packet, port).map(|(sender, payload)| Looked::Datagram {
            datagram: Datagram { time, sender, payload: payload.to_vec() },
            is_cut: captured.is_cut,
        }),
    };
    (time, looked.unwrap_or(Looked::Other))
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
    /// Datagrams that wait for their fragments.
    fragments: Fragments,
    /// Datagrams that were put together, in their order.
    ready: VecDeque<Datagram>,
    /// The datagrams that were put together last.
    joined: Vec<Joined>,
    /// By this run.
    left_out: LeftOut,
    /// The same, for metrics and reports.
    shared: Shared,
    /// The job has begun; before that it may only be probed.
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
                if !self.skip()? {
                    return Err(not_the_same(&path));
                }
            }
            if let Some(datagram) = self.datagram()? {
                return Ok(Some(datagram));
            }
            self.end();
        }
        Ok(None)
    }

    /// Reads on to where an earlier run was; whether the capture goes on so far.
    fn skip(&mut self) -> Result<bool, Error> {
        let (done, end) = (self.files[self.at].done, self.files[self.at].end.unwrap_or_default());
        let known = self.left_out.clone();
        // At its end nothing waited for fragments any more, whatever has come after it.
        for _ in 0..end.packets {
            if self.packet(|_| ())?.is_none() {
                return Ok(false);
            }
        }
        for _ in end.done..done {
            if self.datagram()?.is_none() {
                return Ok(false);
            }
        }
        // The earlier run has counted it.
        self.left_out = known;
        self.fragments.counts = FragmentCounts::default();
        if let Some(capture) = &mut self.capture {
            capture.left_out = capture::LeftOut::default();
        }
        Ok(true)
    }

    /// Looks at the next packet of the capture that is open.
    fn packet<T>(&mut self, look: impl Fn(capture::Captured<'_>) -> T) -> Result<Option<T>, Error> {
        let Some(capture) = &mut self.capture else { return Ok(None) };
        let path = &self.files[self.at].path;
        capture.next(look).map_err(|error| error.context(format!("read {path:?}")))
    }

    /// The next datagram of the capture that is open.
    fn datagram(&mut self) -> Result<Option<Datagram>, Error> {
        let port = self.port;
        loop {
            if let Some(datagram) = self.ready.pop_front() {
                return Ok(Some(datagram));
            }
            let Some((time, looked)) = self.packet(|captured| look(&captured, port))? else {
                self.fragments.end(&mut self.joined);
                self.take_joined();
                if self.ready.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            self.fragments.expire(time, &mut self.joined);
            match looked {
                Looked::Datagram { datagram, is_cut } => {
                    self.left_out.cut += u64::from(is_cut);
                    self.take_joined();
                    self.ready.push_back(datagram);
                }
                Looked::Fragment(fragment) => {
                    self.fragments.add(fragment, &mut self.joined);
                    self.take_joined();
                }
                Looked::Other => self.left_out.passed_over += 1,
                Looked::Foreign(link) => self.left_out.foreign(link),
            }
        }
    }

    /// Looks into packets that were put together.
    fn take_joined(&mut self) {
        for joined in self.joined.drain(..) {
            match datagram(&Packet::ip(&joined.packet), self.port) {
                Some((sender, payload)) => {
                    self.left_out.cut += u64::from(joined.is_cut && !joined.is_incomplete);
                    let payload = payload.to_vec();
                    self.ready.push_back(Datagram { time: joined.time, sender, payload });
                }
                None => self.left_out.passed_over += 1,
            }
        }
    }

    /// Ends the capture that is open.
    fn end(&mut self) {
        let file = &mut self.files[self.at];
        file.is_over = true;
        self.at += 1;
        let Some(capture) = self.capture.take() else { return };
        file.total = capture.total;
        file.end = Some(End { bytes: capture.total, packets: capture.packets, done: file.done });
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
                "the capture ends within a packet or is damaged: the packets after that are left out"
            );
        }
        self.left_out.add(&capture.left_out);
    }

    /// Counts of what was left out so far.
    fn all_left_out(&self) -> LeftOut {
        let mut all = self.left_out.clone();
        if let Some(capture) = &self.capture {
            all.add(&capture.left_out);
        }
        all.fragments = self.fragments.counts;
        all
    }

    /// Datagrams of about `max_bytes` and at most `max_records` records, as far as `is_due` allows.
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
        self.shared.set(&self.all_left_out());
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
                if known.end.is_none() && known.done > 0 {
                    warn!(
                        path = %path.display(),
                        "a capture was not read to its end and is no longer named: its remaining packets are not read"
                    );
                }
                let (path, done, begin) = (some_path.found(path), known.done, known.begin);
                let end = known.end;
                self.files.push(OneCapture { path, total: 0, begin, done, end, is_over: true });
                continue;
            };
            // Of a capture of which nothing is committed another one may take the place.
            if known.done > 0 {
                if !file.is(&known)? {
                    return Err(not_the_same(&file.path));
                }
                file.done = known.done;
                file.is_over = known.end.is_some_and(|end| end.bytes == file.total);
                file.end = known.end;
            }
            if !known.joins_fragments && !file.is_over && holds_fragments(&file.path)? {
                return Err(Error::user(format!(
                    "{:?} holds IP fragments, and was read in part by a build that does not put them together",
                    file.path
                ))
                .with_hint("end it with that build, or read it again with another name of the job"));
            }
            self.files.push(file);
        }
        self.files.extend(named.into_iter().flatten());
        Ok(())
    }
}

/// Whether a capture has fragments of datagrams.
fn holds_fragments(path: &JobPath) -> Result<bool, Error> {
    let mut capture = Capture::open(path)?;
    while let Some((_, looked)) = capture.next(|captured| look(&captured, 0))? {
        if matches!(looked, Looked::Fragment(_)) {
            return Ok(true);
        }
    }
    Ok(false)
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
        let Some(ahead) = self.ahead.as_ref().filter(|_| !self.is_draining) else {
            // If nothing was used, no block has reported it.
            self.shared.set(&self.all_left_out());
            return Ok(Poll::End);
        };
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
            end: file.end,
            joins_fragments: true,
        };
        SourcePosition { next: self.next, place: place::to_bytes(self.files.iter().map(known)) }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        let known = place::of_bytes(&position.place)
            .ok_or_else(|| Error::corrupt("the commit record holds no places in captures"))?;
        for file in &mut self.files {
            (file.is_over, file.end) = (false, None);
        }
        (self.at, self.capture, self.left_out) = (0, None, LeftOut::default());
        self.fragments = Fragments::new(self.port);
        self.ready.clear();
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
        let (agents, left_out) = (self.agents.clone(), self.shared.clone());
        Some(std::sync::Arc::new(move || {
            let agents = agents.stats();
            let mut stats = DatagramStats::default();
            stats.total.datagrams = agents.total.datagrams;
            stats.total.records = agents.total.samples;
            stats.agents = Some(agents);
            stats.left_out = left_out.get();
            stats
        }))
    }
}

impl Drop for PcapSource {
    fn drop(&mut self) {
        let left_out = self.all_left_out();
        let path = self.files.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        let captures = self.files.len();
        let datagrams: u64 = self.files.iter().map(|file| file.done).sum();
        let passed_over = left_out.passed_over + left_out.fragments.passed_over;
        if datagrams == 0 && passed_over > 0 {
            warn!(
                path,
                captures,
                packets = passed_over,
                port = self.port,
                "no packet of the capture is a datagram to the port"
            );
        }
        if self.is_polled {
            left_out.warn(&path, captures);
        }
        info!(path, captures, passed_over, datagrams, "capture ended");
    }
}
