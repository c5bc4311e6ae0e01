//! Sources: files that grow and rotate, streams, sockets.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;

use thalweg_flow::{SourceProgress, Waker};

use super::*;
use crate::BuiltSource;
use crate::source::connections::ConnectionCounts;
use crate::source::datagrams::{DatagramSource, Listening, network};
use crate::source::stdin::ReaderSource;
use crate::source::udp;

fn numbers() -> Schema {
    schema("n: int64; name: string?")
}

fn build(name: &str, format: FormatSpec, entries: &[(&str, OptionValue)]) -> Result<BuiltSource, Error> {
    Registry::builtin().source(name).expect("a source of this build").build(context(
        &numbers(),
        Some(format),
        entries,
    ))
}

fn path_option(path: &Path) -> (&'static str, OptionValue) {
    ("path", paths_value([path]))
}

fn append(path: &Path, content: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(content.as_bytes()).unwrap();
}

#[test]
fn a_file_is_read_in_blocks_of_whole_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let mut content = "n,name\n".to_owned();
    for number in 0..100_000 {
        writeln!(content, "{number},name {number}").unwrap();
    }
    std::fs::write(&path, &content).unwrap();
    let mut built = build("file", spec("csv", &[]), &[path_option(&path)]).unwrap();
    let total = content.len() as u64;
    assert_eq!(built.source.progress(), Some(SourceProgress { done: 64 << 10, total: Some(total) }));
    let blocks = poll_all(&mut *built.source, u64::MAX);
    assert!(
        blocks.len() > 5 && blocks.iter().all(|block| block.payload.len() <= 1 << 18),
        "{}",
        blocks.len()
    );
    assert_eq!(built.source.progress(), Some(SourceProgress { done: total, total: Some(total) }));
    let mut decoder = (built.decoder)(&task()).unwrap();
    let rows = rows_of(&mut *decoder, &blocks);
    assert_eq!(rows.lines().count(), 100_000);
    assert!(rows.ends_with("\n99999 | name 99999\n"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    std::fs::write(&path, "number,name\n1,x\n").unwrap();
    let error = |path: &Path| build("file", spec("csv", &[]), &[path_option(path)]).err().unwrap();
    assert!(error(&path).chain().contains("the CSV header lacks field \"n\""), "{}", error(&path).chain());
    assert!(error(&path).chain().starts_with("read "), "{}", error(&path).chain());
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let empty = error(&folder.path().join("empty"));
    assert!(empty.chain().starts_with("no file is or matches "), "{}", empty.chain());
    let missing = error(&folder.path().join("none.csv"));
    assert_eq!(missing.class(), thalweg_types::Class::User);
    assert!(missing.chain().contains("No such file"));
}

#[test]
fn a_followed_file_grows_is_emptied_and_rotates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    std::fs::write(&path, "n,name\n1,first\n2,se").unwrap();
    let entries =
        [path_option(&path), ("follow", OptionValue::Bool(true)), ("poll", OptionValue::Duration(1_000))];
    let mut built = build("file", spec("csv", &[]), &entries).unwrap();
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut lines = BTreeMap::new();
    let mut read_to = |built: &mut BuiltSource, records: u64| -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        while (lines.len() as u64) < records {
            assert!(Instant::now() < deadline, "{lines:?}");
            match built.source.poll(1 << 18, ARRIVAL).unwrap() {
                Poll::Block(block) => render(&decode(&mut *decoder, &block).unwrap(), &mut lines),
                Poll::PendingUntil(at) => std::thread::sleep(at.saturating_duration_since(Instant::now())),
                Poll::Pending | Poll::End | Poll::Told { .. } => {
                    panic!("a followed file waits for its poll interval")
                }
            }
        }
        lines.values().map(|line| line.clone() + ";").collect()
    };
    assert_eq!(read_to(&mut built, 1), "1 | first;");
    append(&path, "cond\n3,third\n");
    assert_eq!(read_to(&mut built, 3), "1 | first;2 | second;3 | third;");
    append(&path, "4,cut off");
    std::thread::sleep(Duration::from_millis(5));
    assert!(matches!(built.source.poll(1 << 18, ARRIVAL).unwrap(), Poll::PendingUntil(_)));
    File::create(&path).unwrap().write_all(b"name,n\nx,5\n").unwrap();
    assert!(read_to(&mut built, 5).ends_with("4 | cut off;5 | x;"), "emptied");
    std::fs::rename(&path, folder.path().join("in.csv.1")).unwrap();
    append(&folder.path().join("in.csv.1"), "y,6\n");
    assert!(read_to(&mut built, 6).ends_with("6 | y;"), "the old file is read to its end");
    std::fs::write(&path, "n\n7\n").unwrap();
    assert!(read_to(&mut built, 7).ends_with("7 | null;"), "rotated");
    append(&path, "8\nnot ended");
    built.source.drain();
    assert_eq!(poll_to_end(&mut *built.source), 1, "a line that is not ended is no record");
}

/// Gives a few bytes at a time.
struct Dribble(&'static [u8], usize);

impl Read for Dribble {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn a_stream_is_read_to_its_end_however_it_comes() {
    let format = spec("csv", &[]);
    let context = context(&numbers(), Some(format.clone()), &[]);
    for step in [1, 3, 1000] {
        let reader = format.reader(&numbers()).unwrap();
        let input = Dribble(b"n,name\n1,\"a\nb\"\n2,c\n3,last", step);
        let mut source = ReaderSource::new(Box::new(input), Arc::clone(&reader), "a test");
        source.start(Waker::new(|| {})).unwrap();
        let blocks = poll_all(&mut source, u64::MAX);
        let rows = rows_of(&mut SourceDecoder::new(&context, decoders(&reader)).unwrap(), &blocks);
        assert_eq!(rows, "1 | a\nb\n2 | c\n3 | last\n", "{step} bytes at a time");
    }
    let reader = format.reader(&numbers()).unwrap();
    let mut source = ReaderSource::new(Box::new(Dribble(b"x\n1\n", 9)), reader, "a test");
    source.start(Waker::new(|| {})).unwrap();
    let error = loop {
        match source.poll(1 << 18, ARRIVAL) {
            Ok(Poll::Pending) => std::thread::sleep(Duration::from_millis(1)),
            Ok(_) => panic!("a stream with a wrong header"),
            Err(error) => break error,
        }
    };
    assert!(error.chain().starts_with("read a test: the CSV header lacks field \"n\""), "{}", error.chain());
}

#[test]
fn tcp_connections_are_streams_of_their_own() {
    let mut built = build("tcp", spec("ndjson", &[]), &[("listen", text("127.0.0.1:0"))]).unwrap();
    let address = built.address.unwrap();
    assert_ne!(address.port(), 0);
    built.source.start(Waker::new(|| {})).unwrap();
    let mut first = TcpStream::connect(address).unwrap();
    let mut second = TcpStream::connect(address).unwrap();
    first.write_all(b"{\"n\":1,\"name\":\"a").unwrap();
    second.write_all(b"{\"n\":10}\n{\"n\":11}").unwrap();
    drop(second);
    let mut blocks = poll_all(&mut *built.source, 2);
    first.write_all(b"b\"}\n{\"n\":2}\nhalf").unwrap();
    first.flush().unwrap();
    let more = {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut more = Vec::new();
        while more.iter().map(|block: &RawBlock| block.count).sum::<u32>() < 2 {
            assert!(Instant::now() < deadline);
            if let Poll::Block(block) = built.source.poll(1 << 18, ARRIVAL).unwrap() {
                more.push(block);
            }
        }
        more
    };
    blocks.extend(more);
    built.source.drain();
    assert_eq!(poll_to_end(&mut *built.source), 0, "half a record of an open connection is not taken");
    let mut decoder = (built.decoder)(&task()).unwrap();
    let rows = rows_of(&mut *decoder, &blocks);
    assert_eq!(rows, "10 | null\n11 | null\n1 | ab\n2 | null\n");
}

#[test]
fn a_tcp_header_belongs_to_its_connection() {
    let mut built = build("tcp", spec("csv", &[]), &[("listen", text("127.0.0.1:0"))]).unwrap();
    built.source.start(Waker::new(|| {})).unwrap();
    for content in ["n,name\n1,a\n", "name,n\nb,2\n"] {
        let mut stream = TcpStream::connect(built.address.unwrap()).unwrap();
        stream.write_all(content.as_bytes()).unwrap();
    }
    let blocks = poll_all(&mut *built.source, 2);
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut rows: Vec<String> = rows_of(&mut *decoder, &blocks).lines().map(str::to_owned).collect();
    rows.sort();
    assert_eq!(rows, ["1 | a", "2 | b"]);
}

#[test]
fn what_comes_over_tcp_without_its_header_is_a_reject() {
    let mut built = build("tcp", spec("csv", &[]), &[("listen", text("127.0.0.1:0"))]).unwrap();
    built.source.start(Waker::new(|| {})).unwrap();
    let mut stream = TcpStream::connect(built.address.unwrap()).unwrap();
    stream.write_all(b"1,a\r\n2,b\n").unwrap();
    let blocks = poll_all(&mut *built.source, 1);
    let mut decoder = (built.decoder)(&task()).unwrap();
    let rejects = decoder.decode(&blocks[0], SeqRange::new(0, 1), ARRIVAL).unwrap().rejects.unwrap();
    let reject = Rejects::of(&rejects).get(0);
    assert_eq!((reject.code, reject.raw), ("parse", &b"1,a\r\n2,b\n"[..]));
    assert!(reject.reason.starts_with("the CSV header lacks field"), "{}", reject.reason);
}

#[test]
fn slow_readers_make_tcp_senders_wait() {
    let entries = [("listen", text("127.0.0.1:0")), ("queue", OptionValue::Size(64 << 10))];
    let mut built = build("tcp", spec("ndjson", &[]), &entries).unwrap();
    built.source.start(Waker::new(|| {})).unwrap();
    let address = built.address.unwrap();
    let count = 200_000_u64;
    let sender = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        for number in 0..count {
            writeln!(stream, "{{\"n\":{number}}}").unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let received: u64 = poll_all(&mut *built.source, count).iter().map(|block| u64::from(block.count)).sum();
    sender.join().unwrap();
    assert_eq!(received, count);
}

#[test]
fn a_pipe_is_opened_without_its_writer_and_ends_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut built = build("file", spec("ndjson", &[]), &[path_option(&path)]).unwrap();
    assert!(matches!(built.source.poll(1 << 18, ARRIVAL), Ok(Poll::PendingUntil(_))));
    let writer = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = OpenOptions::new().write(true).open(path).unwrap();
            for number in 0..1_000 {
                writeln!(pipe, "{{\"n\":{number}}}").unwrap();
            }
            write!(pipe, "{{\"n\":1000}}").unwrap();
        }
    });
    assert_eq!(poll_to_end(&mut *built.source), 1_001);
    writer.join().unwrap();

    // Drained, it waits for no writer.
    let mut built = build("file", spec("csv", &[]), &[path_option(&path)]).unwrap();
    built.source.drain();
    assert!(matches!(built.source.poll(1 << 18, ARRIVAL), Ok(Poll::End)));
    let error = build("pcap", spec("ndjson", &[]), &[("path", paths_value([&path]))]).err().unwrap();
    assert!(error.message().contains("expected a file, got a pipe"), "{error}");
}

/// A source on a port of its own, started.
fn tcp(entries: &[(&str, OptionValue)]) -> BuiltSource {
    let listen = [("listen", text("127.0.0.1:0"))];
    let mut built = build("tcp", spec("ndjson", &[]), &[&listen, entries].concat()).unwrap();
    built.source.start(Waker::new(|| {})).unwrap();
    built
}

/// Polls, so that the queue is emptied, until `is_so` holds; returns the blocks that were given meanwhile.
fn poll_until(
    built: &mut BuiltSource,
    what: &str,
    mut is_so: impl FnMut(&ConnectionCounts) -> bool,
) -> String {
    let counts = Arc::clone(built.connections.as_ref().unwrap());
    let mut blocks = Vec::new();
    until(what, || {
        while let Poll::Block(block) = built.source.poll(1 << 18, ARRIVAL).unwrap() {
            blocks.push(block);
        }
        is_so(&counts)
    });
    while let Poll::Block(block) = built.source.poll(1 << 18, ARRIVAL).unwrap() {
        blocks.push(block);
    }
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut first = 0;
    for block in &mut blocks {
        // Each is decoded with numbers of its own.
        block.first = first;
        first += u64::from(block.count);
    }
    rows_of(&mut *decoder, &blocks)
}

#[test]
fn unfinished_records_of_all_connections_stay_within_the_queue() {
    let mut built = tcp(&[("queue", OptionValue::Size(1 << 20))]);
    let address = built.address.unwrap();
    // Sixteen times what the queue allows; a connection that is closed does not send all.
    let senders: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let sent = (0..16).all(|_| stream.write_all(&[b'x'; 64 << 10]).is_ok());
                (stream, sent)
            })
        })
        .collect();
    let mut most = 0;
    let rows = poll_until(&mut built, "all but one are closed", |counts| {
        most = most.max(counts.unfinished_bytes());
        counts.closed()[2] >= 15
    });
    assert!(most <= 1 << 20, "{most} bytes");
    assert!(
        rows.lines().all(|row| row.starts_with("! unfinished") || row.starts_with("! parse")),
        "each is a reject"
    );
    // Others get through all the while.
    let mut other = TcpStream::connect(address).unwrap();
    other.write_all(b"{\"n\":7}\n").unwrap();
    let blocks = poll_all_of(&mut built, 1);
    assert!(blocks.contains("7 | null"), "{blocks}");
    drop(senders);
}

/// Rows and rejects, until there is a row.
fn poll_all_of(built: &mut BuiltSource, rows: usize) -> String {
    let mut all = String::new();
    until("rows", || {
        all.push_str(&poll_until(built, "", |_| true));
        all.lines().filter(|row| !row.starts_with('!')).count() >= rows
    });
    all
}

#[test]
fn a_connection_gives_its_memory_back_after_a_burst() {
    let mut built = tcp(&[]);
    let mut stream = TcpStream::connect(built.address.unwrap()).unwrap();
    let long = format!("{{\"n\":1,\"name\":\"{}\"}}\n", "x".repeat(4 << 20));
    stream.write_all(long.as_bytes()).unwrap();
    let rows = poll_all_of(&mut built, 1);
    assert!(rows.starts_with("1 | xxx"));
    poll_until(&mut built, "nothing is held", |counts| counts.unfinished_bytes() == 0);
    stream.write_all(b"{\"n\":").unwrap();
    poll_until(&mut built, "half a record is held", |counts| counts.unfinished_bytes() == 5);
}

#[test]
fn a_silent_connection_is_closed_and_its_half_record_is_a_reject() {
    let mut built = tcp(&[("idle", OptionValue::Duration(50_000))]);
    let mut half = TcpStream::connect(built.address.unwrap()).unwrap();
    let mut silent = TcpStream::connect(built.address.unwrap()).unwrap();
    half.write_all(b"{\"n\":1}\n{\"n\":2").unwrap();
    let rows =
        poll_until(&mut built, "both are closed", |counts| counts.closed()[0] == 2 && counts.open() == 0);
    let reason =
        "expected the rest of the record, got none: the connection was silent for too long (6 bytes)";
    assert_eq!(rows, format!("1 | null\n! unfinished line null: {reason} <{{\\\"n\\\":2>\n"));
    for stream in [&mut half, &mut silent] {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(!matches!(std::io::Read::read(stream, &mut [0]), Ok(1..)), "closed");
    }
}

/// Lines that have arrived are records, whether the connection breaks off, is closed from here, or the job drains.
#[test]
fn a_stray_quote_costs_its_line_of_a_connection() {
    let csv = spec("csv", &[("header", OptionValue::Bool(false))]);
    let build = |idle| {
        let listen = [("listen", text("127.0.0.1:0")), ("idle", OptionValue::Duration(idle))];
        let mut built = build("tcp", csv.clone(), &listen).unwrap();
        built.source.start(Waker::new(|| {})).unwrap();
        built
    };
    let stray = b"1,a\n2,\"5 inch\n3,b\n4,c\n5,d";
    let reject = "! parse line null: expected a closing quote, got the end of the input <2,\\\"5 inch>\n";
    let whole = format!("1 | a\n{reject}3 | b\n4 | c\n");
    let mut built_short = build(50_000);
    let mut silent = TcpStream::connect(built_short.address.unwrap()).unwrap();
    silent.write_all(stray).unwrap();
    let rows = poll_until(&mut built_short, "closed", |counts| counts.closed()[0] == 1 && counts.open() == 0);
    assert!(rows.starts_with(&whole) && rows[whole.len()..].starts_with("! unfinished"), "{rows}");

    let mut built_long = build(60_000_000);
    let mut open = TcpStream::connect(built_long.address.unwrap()).unwrap();
    open.write_all(stray).unwrap();
    let mut blocks = poll_all(&mut *built_long.source, 1);
    poll_until(&mut built_long, "all has come", |counts| counts.unfinished_bytes() == stray.len() as u64 - 4);
    built_long.source.drain();
    loop {
        match built_long.source.poll(1 << 18, ARRIVAL).unwrap() {
            Poll::Block(block) => blocks.push(block),
            Poll::End => break,
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let mut first = 0;
    for block in &mut blocks {
        block.first = first;
        first += u64::from(block.count);
    }
    assert_eq!(rows_of(&mut *(built_long.decoder)(&task()).unwrap(), &blocks), whole);
}

#[test]
fn silent_connections_make_room_for_new_ones() {
    let mut built = tcp(&[("connections", OptionValue::Integer(4))]);
    let address = built.address.unwrap();
    let silent: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut new = TcpStream::connect(address).unwrap();
    new.write_all(b"{\"n\":1}\n").unwrap();
    assert_eq!(poll_all_of(&mut built, 1), "1 | null\n");
    let counts = Arc::clone(built.connections.as_ref().unwrap());
    assert!(counts.open() <= 4 && counts.closed()[1] >= 9, "{counts:?}");
    drop(silent);
}

#[test]
fn a_small_piece_does_not_hold_the_memory_of_a_large_read() {
    let mut built = tcp(&[]);
    let mut stream = TcpStream::connect(built.address.unwrap()).unwrap();
    stream.write_all(&b"{\"n\":1}\n".repeat(3)).unwrap();
    stream.write_all(b"{\"n\"").unwrap();
    let mut found = None;
    until("a block", || {
        if let Poll::Block(block) = built.source.poll(1 << 18, ARRIVAL).unwrap() {
            found = Some(block);
        }
        found.is_some()
    });
    let Some(RawBlock { payload: Payload::Bytes { data, .. }, .. }) = found else {
        panic!("a block of bytes")
    };
    let bytes = data.len();
    let own = data.try_into_mut().expect("nobody else holds it");
    assert!(own.capacity() <= 2 * bytes, "{} bytes for {bytes}", own.capacity());
}

#[test]
fn addresses_in_use_are_reported_when_built() {
    let first = build("tcp", spec("ndjson", &[]), &[("listen", text("127.0.0.1:0"))]).unwrap();
    let taken = first.address.unwrap().to_string();
    let error = build("tcp", spec("ndjson", &[]), &[("listen", text(&taken))]).err().unwrap();
    assert!(error.chain().starts_with(&format!("listen on tcp {taken:?}: ")), "{}", error.chain());
    let error = build("udp", spec("ndjson", &[]), &[("listen", text("nowhere"))]).err().unwrap();
    assert!(error.chain().contains("listen on udp \"nowhere\""));
}

fn udp(queue: usize, allow: Option<Vec<thalweg_types::IpNetwork>>) -> (DatagramSource, UdpSocket) {
    let format = spec("ndjson", &[]).reader(&numbers()).unwrap();
    let address = "127.0.0.1:0".to_owned();
    let listening = Listening { kind: "udp", address, sockets: 1, receive_buffer: None, queue, allow };
    let mut source = udp::bind(listening, &format).unwrap();
    source.start(Waker::new(|| {})).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(source.address()).unwrap();
    (source, socket)
}

#[test]
fn datagrams_hold_one_or_more_lines() {
    let (mut source, socket) = udp(1 << 20, None);
    for datagram in ["{\"n\":1}", "{\"n\":2}\n{\"n\":3}\n", "\n", "broken\n{\"n\":4}"] {
        socket.send(datagram.as_bytes()).unwrap();
    }
    let blocks = poll_all(&mut source, 5);
    let context = context(&numbers(), Some(spec("ndjson", &[])), &[]);
    let reader = spec("ndjson", &[]).reader(&numbers()).unwrap();
    let rows = rows_of(&mut SourceDecoder::new(&context, decoders(&reader)).unwrap(), &blocks);
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!([&lines[..3], &lines[4..]].concat(), ["1 | null", "2 | null", "3 | null", "4 | null"]);
    assert!(lines[3].starts_with("! parse line null: expected a JSON object"), "{rows}");
    let total = source.counters().total();
    assert_eq!((total.datagrams, total.records, total.dropped_datagrams), (4, 5, 0));
    source.drain();
    assert_eq!(poll_to_end(&mut source), 0);
}

#[test]
fn datagrams_that_find_the_queue_full_are_counted_for_their_sender() {
    let (mut source, socket) = udp(1_024, None);
    let datagram = format!("{{\"n\":1,\"name\":\"{}\"}}", "x".repeat(400));
    let deadline = Instant::now() + Duration::from_secs(20);
    while source.counters().total().dropped_datagrams < 3 {
        assert!(Instant::now() < deadline);
        socket.send(datagram.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    source.drain();
    let received = poll_to_end(&mut source);
    let by_sender = source.counters().by_sender();
    let counters = by_sender[&"127.0.0.1".parse::<std::net::IpAddr>().unwrap()];
    assert_eq!(counters.records, received);
    assert_eq!(counters.datagrams, counters.records + counters.dropped_datagrams);
    assert_eq!(counters.dropped_records, counters.dropped_datagrams);
    let look = source.datagrams().expect("a source of datagrams counts them");
    drop(source);
    let stats = look();
    assert_eq!((stats.total, stats.senders), (counters, 1), "also after its end");
    assert_eq!(stats.worst, [("127.0.0.1".parse().unwrap(), counters)]);
}

#[test]
fn what_the_kernel_drops_is_counted_for_every_source_of_datagrams() {
    for (kind, format) in [("udp", Some(spec("ndjson", &[]))), ("sflow", None)] {
        let schema =
            if format.is_some() { numbers() } else { crate::sflow::decode::outputs()[0].schema.clone() };
        let entries = [
            ("listen", text("127.0.0.1:0")),
            ("receive_buffer", OptionValue::Size(4_096)),
            ("sockets", OptionValue::Integer(2)),
        ];
        let plugin = Registry::builtin().source(kind).cloned().unwrap();
        let mut built = plugin.build(context(&schema, format, &entries)).unwrap();
        // Nobody receives yet, so the kernel keeps the first few.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        const SENT: u64 = 200;
        for _ in 0..SENT {
            socket.send_to(&[b'x'; 1_000], built.address.unwrap()).unwrap();
        }
        built.source.start(Waker::new(|| {})).unwrap();
        let look = built.source.datagrams().unwrap();
        let seen = || {
            let stats = look();
            (stats.total.datagrams, stats.kernel_drops.unwrap())
        };
        super::until("all are received or counted", || seen().0 + seen().1 == SENT);
        assert!(seen().0 > 0 && seen().1 > 0, "{:?}", seen());
        let said = thalweg_testing::logs::said_here(|| drop(built));
        assert!(said.contains("datagrams dropped") && said.contains("receive_buffer"), "{said}");
    }
}

#[test]
fn only_allowed_senders_are_heard() {
    let networks = vec![network("10.0.0.0/8").unwrap()];
    let (mut source, socket) = udp(1 << 20, Some(networks));
    socket.send(b"{\"n\":1}").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while source.counters().total().refused_datagrams == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    source.drain();
    assert_eq!(poll_to_end(&mut source), 0);
    for text in ["", "10.0.0.0/33", "ten", "10.0.0.0/x"] {
        assert!(network(text).is_err(), "{text}");
    }
}

#[test]
fn a_datagram_has_no_header() {
    let error = build("udp", spec("csv", &[]), &[("listen", text("127.0.0.1:0"))]).err().unwrap();
    assert_eq!(error.hint(), Some("set header: false, and no skip_lines"));
    let format = spec("csv", &[("header", OptionValue::Bool(false))]);
    build("udp", format, &[("listen", text("127.0.0.1:0"))]).unwrap();
}
