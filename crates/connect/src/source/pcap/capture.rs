//! The packets of one capture, one after the other: pcap or pcapng, as it is or packed by gzip.
//!
//! All good packets in it are used. A malformed block, a packet of an unknown interface, and the bytes after a
//! place after which nothing can be read are left out, and counted in [`LeftOut`].

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pcap_parser::pcapng::UnknownBlock;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use thalweg_storage::handles::patiently;
use thalweg_types::{Error, Micros, hash_bytes};

use crate::JobPath;
use crate::sflow::packet::is_known_link;
use crate::source::file::Input;

/// Bytes read at a time.
const BUFFER: usize = 1 << 20;

/// Bytes of the longest block.
const MOST_BUFFER: usize = 16 << 20;

/// Bytes at the beginning of a capture that tell it from others.
const FINGERPRINT: u64 = 4_096;

/// Interfaces of a section; packets of more are left out.
const MOST_INTERFACES: usize = 65_536;

/// Counts of the parts of a capture that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Packets of an interface that the capture does not describe.
    pub(super) no_interface: u64,
    /// Malformed blocks of pcapng.
    pub(super) malformed: u64,
    /// Where reading had to stop before the end, and why.
    pub(super) end: Option<(u64, String)>,
}

/// The packets of a capture.
pub(super) struct Capture {
    /// `None`: it is empty.
    reader: Option<Box<dyn PcapReaderIterator + Send>>,
    sections: Sections,
    reading: Arc<Reading>,
    input: Input,
    /// Bytes of the file.
    pub(super) total: u64,
    pub(super) packets: u64,
    bytes: u64,
    /// Bytes that the parser may hold.
    buffer: usize,
    pub(super) left_out: LeftOut,
}

/// What the reader keeps of bytes while they are read.
#[derive(Default)]
struct Reading {
    /// Bytes of the file that were read, where it is packed.
    packed: AtomicU64,
    failure: Mutex<Option<std::io::Error>>,
}

/// The bytes of a capture, unpacked.
struct Bytes {
    input: Input,
    reading: Arc<Reading>,
}

impl Read for Bytes {
    /// As many as there are. A failure is the end of them, and kept: the parser reads ahead, and the bytes before it
    /// counts.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut failure = self.reading.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let mut filled = 0;
        while filled < buffer.len() && failure.is_none() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => *failure = Some(error),
            }
        }
        self.reading.packed.store(self.input.packed_bytes().unwrap_or(0), Ordering::Relaxed);
        Ok(filled)
    }
}

/// State from earlier blocks that a block needs.
#[derive(Default)]
struct Sections {
    interfaces: Vec<Interface>,
    is_pcapng: bool,
    is_big_endian: bool,
    /// The time of the last packet that has one.
    time: Micros,
}

#[derive(Clone, Copy)]
struct Interface {
    link: i32,
    /// Units of time in a second.
    resolution: u64,
    /// In seconds.
    offset: i64,
    /// Bytes that are kept of a packet; 0: all.
    snaplen: u32,
}

/// A packet of a capture.
pub(super) struct Captured<'a> {
    pub(super) time: Micros,
    pub(super) link: i32,
    pub(super) data: &'a [u8],
    /// The capture kept less of it than there was.
    pub(super) is_cut: bool,
}

/// The contents of a block.
enum Held<T> {
    Packet(T),
    NoInterface,
    Malformed,
    Nothing,
}

impl<T> Held<T> {
    fn map<U>(self, look: impl FnOnce(T) -> U) -> Held<U> {
        match self {
            Held::Packet(packet) => Held::Packet(look(packet)),
            Held::NoInterface => Held::NoInterface,
            Held::Malformed => Held::Malformed,
            Held::Nothing => Held::Nothing,
        }
    }
}

/// The result of the parser.
enum Step<T> {
    /// How many bytes, and what was found in them.
    Block(usize, Held<T>),
    Refill,
    Grow,
    /// And why it is not that of the file.
    End(Option<String>),
}

impl Capture {
    /// # Errors
    /// Where the file cannot be opened or is no capture. One of no bytes is a capture without packets.
    pub(super) fn open(path: &JobPath) -> Result<Self, Error> {
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
        let metadata = file.metadata().map_err(unreadable)?;
        let input = || file.try_clone().and_then(|file| Input::new(file, &metadata)).map_err(unreadable);
        let reading = Arc::new(Reading::default());
        let bytes = Bytes { input: input()?, reading: Arc::clone(&reading) };
        let reader = match create_reader(BUFFER, bytes) {
            Ok(reader) => Some(reader),
            Err(PcapError::Eof) if metadata.len() == 0 => None,
            Err(error) => {
                let failure = reading.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                let why = failure.map_or_else(|| why(&error), |failure| failure.to_string());
                let what = format!("{path:?} is no capture: expected pcap or pcapng, got {why}");
                return Err(Error::user(what).with_hint(
                    "`tcpdump -w FILE udp port 6343` writes one; gzip is unpacked, nothing else",
                ));
            }
        };
        let mut capture = Self {
            reader,
            sections: Sections::default(),
            reading,
            input: input()?,
            total: metadata.len(),
            packets: 0,
            bytes: 0,
            buffer: BUFFER,
            left_out: LeftOut::default(),
        };
        // The header of pcap names the link type of all packets.
        let header = match capture.reader.as_mut().map(|reader| reader.next()) {
            Some(Ok((consumed, PcapBlockOwned::LegacyHeader(header)))) => Some((consumed, header)),
            _ => None,
        };
        if let Some((consumed, header)) = header {
            let link = link_type(header.network.0);
            if !is_known_link(link) {
                return Err(Error::user(format!("{path:?} has packets of link type {link}"))
                    .with_hint("Ethernet, raw IP, Linux cooked and loopback captures can be read"));
            }
            capture.sections.held(&PcapBlockOwned::LegacyHeader(header));
            capture.consume(consumed);
        }
        Ok(capture)
    }

    /// Looks at the next packet; `None` at the end.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub(super) fn next<T>(&mut self, look: impl Fn(Captured<'_>) -> T) -> Result<Option<T>, Error> {
        loop {
            let Some(reader) = &mut self.reader else { return Ok(None) };
            let step = match reader.next() {
                Ok((consumed, block)) => Step::Block(consumed, self.sections.held(&block).map(&look)),
                Err(PcapError::Eof) => Step::End(None),
                Err(PcapError::Incomplete(_)) => Step::Refill,
                Err(PcapError::BufferTooSmall) => Step::Grow,
                Err(error) => Step::End(Some(why(&error))),
            };
            // A malformed block that says where it ends.
            if !matches!(step, Step::Block(..))
                && self.sections.is_pcapng
                && let Some(length) = block_length(reader.data(), self.sections.is_big_endian)
            {
                self.left_out.malformed += 1;
                self.consume(length);
                continue;
            }
            match step {
                Step::Block(consumed, held) => {
                    self.consume(consumed);
                    match held {
                        Held::Packet(found) => {
                            self.packets += 1;
                            return Ok(Some(found));
                        }
                        Held::NoInterface => self.left_out.no_interface += 1,
                        Held::Malformed => self.left_out.malformed += 1,
                        Held::Nothing => {}
                    }
                }
                Step::Grow if self.buffer >= MOST_BUFFER => {
                    return self
                        .end(Some(format!("a packet of more than {MOST_BUFFER} bytes")))
                        .map(|()| None);
                }
                Step::Refill | Step::Grow => {
                    if matches!(step, Step::Grow) {
                        self.buffer *= 2;
                        reader.grow(self.buffer);
                    }
                    // The inner read never fails; a failure shows at the end.
                    let _ = reader.refill();
                }
                Step::End(why) => return self.end(why).map(|()| None),
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(reader) = &mut self.reader {
            reader.consume(bytes);
        }
        self.bytes += bytes as u64;
    }

    /// Ends it here. A packed file that is damaged or cut ends there; that a disk fails is an error.
    fn end(&mut self, why: Option<String>) -> Result<(), Error> {
        self.reader = None;
        let failure = self.reading.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let why = match failure {
            None => why,
            Some(failure) if self.input.is_packed() && is_damage(&failure) => {
                Some(format!("gzip: {failure}"))
            }
            Some(failure) => return Err(Error::external("read a capture").with_source(failure)),
        };
        self.left_out.end = why.map(|why| (self.bytes, why));
        Ok(())
    }

    /// Bytes of the file that were read.
    pub(super) fn done(&self) -> u64 {
        if self.input.is_packed() { self.reading.packed.load(Ordering::Relaxed) } else { self.bytes }
    }

    /// Length and hash of the beginning of the contents, of at most `most` bytes.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub(super) fn begin(&self, most: u64) -> Result<[u64; 2], Error> {
        match self.input.contents().bytes_at(0, most.min(FINGERPRINT)) {
            Ok(begin) => Ok([begin.len() as u64, hash_bytes(&begin)]),
            // As it does at each look.
            Err(_) if self.input.is_packed() => Ok([0, hash_bytes(&[])]),
            Err(error) => Err(Error::external("read the beginning of a capture").with_source(error)),
        }
    }
}

impl Sections {
    /// The contents of a block; notes its state for those after it.
    fn held<'a>(&mut self, block: &'a PcapBlockOwned<'_>) -> Held<Captured<'a>> {
        const MICROS: u64 = 1_000_000;
        const NANOS: u64 = 1_000_000_000;
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let resolution = if header.is_nanosecond_precision() { NANOS } else { MICROS };
                let link = link_type(header.network.0);
                self.interfaces = vec![Interface { link, resolution, offset: 0, snaplen: header.snaplen }];
                Held::Nothing
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some(interface) = self.interfaces.first() else { return Held::NoInterface };
                let fraction = u64::from(packet.ts_usec) * MICROS / interface.resolution;
                let time = i64::from(packet.ts_sec) * 1_000_000 + fraction.min(MICROS) as i64;
                let is_cut = packet.caplen < packet.origlen;
                Held::Packet(Captured { time, link: interface.link, data: packet.data, is_cut })
            }
            // Interfaces are numbered from the beginning of their section.
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                let is_big_endian = section.big_endian();
                *self = Self { is_pcapng: true, is_big_endian, time: self.time, interfaces: Vec::new() };
                Held::Nothing
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                if self.interfaces.len() < MOST_INTERFACES {
                    self.interfaces.push(Interface {
                        link: link_type(interface.linktype.0),
                        resolution: resolution(interface.if_tsresol),
                        offset: interface.ts_offset(),
                        snaplen: interface.snaplen,
                    });
                }
                Held::Nothing
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => self.packet(
                packet.if_id as usize,
                [packet.ts_high, packet.ts_low],
                [packet.caplen, packet.origlen],
                packet.data,
            ),
            // It has neither interface nor time: those of the first one, and of the packet before it.
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let Some(interface) = self.interfaces.first() else { return Held::NoInterface };
                let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                let data = packet.packet_data();
                let data = &data[..data.len().min(snaplen as usize)];
                let is_cut = data.len() < packet.origlen as usize;
                Held::Packet(Captured { time: self.time, link: interface.link, data, is_cut })
            }
            PcapBlockOwned::NG(Block::Unknown(block)) => self.former_packet(block),
            PcapBlockOwned::NG(_) => Held::Nothing,
        }
    }

    /// A packet of pcapng; its lengths are those that were captured and that were there.
    fn packet<'a>(
        &mut self,
        interface: usize,
        [high, low]: [u32; 2],
        [length, whole]: [u32; 2],
        data: &'a [u8],
    ) -> Held<Captured<'a>> {
        let Some(interface) = self.interfaces.get(interface) else { return Held::NoInterface };
        let units = u128::from(high) << 32 | u128::from(low);
        let micros = units * 1_000_000 / u128::from(interface.resolution);
        let offset = interface.offset.checked_mul(1_000_000);
        let time = i64::try_from(micros).ok().zip(offset).and_then(|(time, offset)| time.checked_add(offset));
        let (Some(time), Some(data)) = (time, data.get(..length as usize)) else { return Held::Malformed };
        self.time = time;
        Held::Packet(Captured { time, link: interface.link, data, is_cut: length < whole })
    }

    /// The packet block that the enhanced one has replaced: interface 2, drops 2, then the same.
    fn former_packet<'a>(&mut self, block: &UnknownBlock<'a>) -> Held<Captured<'a>> {
        const PACKET: u32 = 2;
        let is_packet = block.block_type == PACKET || block.block_type == PACKET.swap_bytes();
        if !is_packet {
            return Held::Nothing;
        }
        let Some((head, data)) = block.data.split_first_chunk::<20>() else { return Held::Malformed };
        let (words, _) = head.as_chunks::<4>();
        let word = |place: usize| match self.is_big_endian {
            true => u32::from_be_bytes(words[place]),
            false => u32::from_le_bytes(words[place]),
        };
        let interface = if self.is_big_endian { word(0) >> 16 } else { word(0) & 0xffff };
        let (time, lengths) = ([word(1), word(2)], [word(3), word(4)]);
        self.packet(interface as usize, time, lengths, data)
    }
}

/// Whether an error of unpacking means that the bytes are not packed by gzip, or not all there.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput | ErrorKind::InvalidData)
}

/// The length of a block of pcapng that says it at both of its ends.
fn block_length(data: &[u8], is_big_endian: bool) -> Option<usize> {
    let word = |at: usize| {
        let bytes = *data.get(at..)?.first_chunk()?;
        Some(if is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize)
    };
    let length = word(4).filter(|length| *length >= 12 && length.is_multiple_of(4))?;
    (word(length - 4)? == length).then_some(length)
}

/// Units of time in a second, by the option `if_tsresol`: a power of ten, or with the top bit set one of two. One that
/// does not fit is finer than any clock.
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
        _ => "bytes that are not a packet".to_owned(),
    }
}
