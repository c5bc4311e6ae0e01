//! Sources of packet samples: sockets and captures.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_flow::{Poll, ReplayRun, Waker};
use thalweg_types::{Error, SeqRange};

use super::{context, gzip, options, paths_value, poll_all, poll_to_end, text};
use crate::sflow::decode::outputs;
use crate::{BuiltSource, OptionValue, Registry, SourcePlugin};

fn plugin(name: &str) -> std::sync::Arc<dyn SourcePlugin> {
    Registry::builtin().source(name).cloned().expect("a source of this build")
}

fn build(name: &str, entries: &[(&str, OptionValue)]) -> Result<BuiltSource, Error> {
    plugin(name).build(context(&outputs()[0].schema, None, entries))
}

/// A datagram of agent 10.0.0.1, number `sequence`, with `samples` flow samples.
fn datagram(sequence: u32, samples: u32) -> Vec<u8> {
    let mut words = vec![5, 1, 0x0a00_0001, 0, sequence, 1_000, samples];
    for sample in 0..samples {
        words.extend([1, 32, sequence * 100 + sample, 3, 100, 0, 0, 3, 4, 0]);
    }
    words.into_iter().flat_map(u32::to_be_bytes).collect()
}

/// The sequence numbers of the flow samples that a source gives.
fn sequences(built: &mut BuiltSource, samples: u64) -> Vec<u64> {
    let blocks = poll_all(&mut *built.source, samples);
    numbers_in(built, blocks)
}

/// The same for the samples until its end.
fn rest(built: &mut BuiltSource) -> Vec<u64> {
    let mut blocks = Vec::new();
    while let Poll::Block(block) = built.source.poll(1, 0).unwrap() {
        blocks.push(block);
    }
    numbers_in(built, blocks)
}

fn numbers_in(built: &BuiltSource, blocks: Vec<thalweg_flow::RawBlock>) -> Vec<u64> {
    let mut decoder = (built.decoder)(&super::task()).unwrap();
    let mut found = Vec::new();
    for block in blocks {
        let range = SeqRange::new(block.first, block.first + u64::from(block.count));
        let decoded = decoder.decode(&block, range, 0).unwrap();
        let column = decoded.records.records().column_by_name("sequence").unwrap().clone();
        let column =
            arrow_array::cast::AsArray::as_primitive::<arrow_array::types::UInt64Type>(&column).clone();
        found.extend(column.values().iter().copied());
    }
    found
}

fn listening(entries: &[(&str, OptionValue)]) -> (BuiltSource, UdpSocket) {
    let listen = [("listen", text("127.0.0.1:0"))];
    let mut built = build("sflow", &[&listen, entries].concat()).unwrap();
    built.source.start(Waker::new(|| {})).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(built.address.unwrap()).unwrap();
    (built, socket)
}

#[test]
fn datagrams_are_taken_as_they_come_and_what_is_missing_is_counted() {
    let (mut built, socket) = listening(&[]);
    let view = built.source.datagrams().unwrap();
    for (sequence, samples) in [(1, 2), (2, 1), (5, 3)] {
        socket.send(&datagram(sequence, samples)).unwrap();
    }
    socket.send(&[0, 9, 0, 1]).unwrap();
    assert_eq!(sequences(&mut built, 7), [100, 101, 200, 500, 501, 502]);
    let stats = view();
    assert_eq!((stats.total.datagrams, stats.total.records, stats.kernel_drops), (4, 7, Some(0)));
    let agents = stats.agents.unwrap();
    assert_eq!((agents.total.samples, agents.total.lost, agents.total.netflow), (6, 2, 1));
    assert_eq!(agents.worst[0].0, "10.0.0.1".parse::<std::net::IpAddr>().unwrap());
    built.source.drain();
    assert_eq!(poll_to_end(&mut *built.source), 0);
}

#[test]
fn several_sockets_share_a_port() {
    let (mut built, _) = listening(&[("sockets", OptionValue::Integer(4))]);
    let address = built.address.unwrap();
    // Each sender has a port of its own, by which the kernel chooses the socket.
    for sequence in 0..40 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&datagram(sequence, 1), address).unwrap();
    }
    let mut found = sequences(&mut built, 40);
    found.sort_unstable();
    assert_eq!(found, (0..40).map(|sequence| sequence * 100).collect::<Vec<_>>());
    built.source.drain();
    assert_eq!(poll_to_end(&mut *built.source), 0, "all threads have ended");
}

/// A process that is being started holds copies of all that is open, for as long as it has not come to its program.
#[test]
fn several_sockets_are_opened_while_processes_are_started() {
    let is_done = AtomicBool::new(false);
    let options = [("listen", text("127.0.0.1:0")), ("sockets", OptionValue::Integer(4))];
    let opened: Result<Vec<_>, _> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert!(std::process::Command::new("true").status().unwrap().success());
            }
        });
        let opened = (0..1_000).map(|_| build("sflow", &options).map(drop)).collect();
        is_done.store(true, Ordering::Relaxed);
        opened
    });
    opened.unwrap();
}

#[test]
fn senders_that_may_not_send_and_full_queues_are_counted() {
    let allow = OptionValue::List(vec!["192.0.2.0/24".to_owned()]);
    let (mut built, socket) = listening(&[("allow", allow)]);
    let view = built.source.datagrams().unwrap();
    socket.send(&datagram(1, 1)).unwrap();
    super::until("it is refused", || view().total.refused_datagrams == 1);
    built.source.drain();
    assert_eq!(poll_to_end(&mut *built.source), 0);

    let (mut built, socket) = listening(&[("queue", OptionValue::Size(1_024))]);
    let view = built.source.datagrams().unwrap();
    let mut sequence = 0;
    super::until("the queue is full", || {
        sequence += 1;
        socket.send(&datagram(sequence, 10)).unwrap();
        view().total.dropped_datagrams > 2
    });
    built.source.drain();
    let got = poll_to_end(&mut *built.source);
    let total = view().total;
    assert_eq!((got, total.records + total.dropped_records), (total.records, total.datagrams * 10));
    assert_eq!(view().agents.unwrap().total.lost, 0, "what was dropped here has arrived");
}

#[test]
fn mistakes_in_options_are_told() {
    let check = |name: &str, key: &str, value: OptionValue, expected: &str| {
        let mistakes = plugin(name).check(&options(&[(key, value)]));
        let told: Vec<String> = mistakes.iter().map(|mistake| mistake.error.to_string()).collect();
        assert!(told.iter().any(|text| text.contains(expected)), "{told:?}");
    };
    let list = |text: &str| OptionValue::List(vec![text.to_owned()]);
    check("sflow", "tunnels", list("l2tp"), "expected vxlan, geneve, gre, ipip or eompls, got \"l2tp\"");
    check("pcap", "bytes", text("payload"), "expected frame, ip or max, got \"payload\"");
    check("sflow", "sampling_rates", list("10.0.0.1"), "expected AGENT=RATE");
    check("sflow", "listen", text("6343"), "expected address and port");
    check("pcap", "speed", OptionValue::Number(0.0), "expected a number above 0, got 0");
    let error = build("sflow", &[("listen", text("203.0.113.1:6343"))]).err().unwrap();
    assert!(error.hint().is_some_and(|hint| hint.contains("address of this machine")), "{error}");
}

/// How a capture is laid out.
#[derive(Clone, Copy)]
enum Kind {
    Little,
    /// Big-endian, with nanoseconds.
    BigNano,
    Pcapng,
}

/// An IPv4 packet to port 6343 with this payload.
fn packet(payload: &[u8], port: u16) -> Vec<u8> {
    let udp = (8 + payload.len() as u16).to_be_bytes();
    let ip = (28 + payload.len() as u16).to_be_bytes();
    let port = port.to_be_bytes();
    let head = [0x45, 0, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 8];
    [&head[..], &[0, 7, port[0], port[1], udp[0], udp[1], 0, 0], payload].concat()
}

/// A capture of raw IP packets, one every half second from second 1,000 on.
fn capture(kind: Kind, packets: &[Vec<u8>]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let word = |word: u32| match kind {
        Kind::BigNano => word.to_be_bytes(),
        _ => word.to_le_bytes(),
    };
    let words = |words: &[u32]| words.iter().flat_map(|number| word(*number)).collect::<Vec<u8>>();
    let mut file = match kind {
        Kind::Little => words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, RAW_IP]),
        Kind::BigNano => words(&[0xa1b2_3c4d, 0x0002_0004, 0, 0, 65_535, RAW_IP]),
        // Section header, interface with the default resolution.
        Kind::Pcapng => {
            words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28, 1, 20, RAW_IP, 65_535, 20])
        }
    };
    for (number, packet) in packets.iter().enumerate() {
        let length = packet.len() as u32;
        let micros = number as u64 * 500_000 + 1_000_000_000;
        let (second, rest) = ((micros / 1_000_000) as u32, (micros % 1_000_000) as u32);
        match kind {
            Kind::Little => file.extend(words(&[second, rest, length, length])),
            Kind::BigNano => file.extend(words(&[second, rest * 1_000, length, length])),
            Kind::Pcapng => {
                let total = 32 + length.next_multiple_of(4);
                file.extend(words(&[6, total, 0, (micros >> 32) as u32, micros as u32, length, length]));
                file.extend(packet);
                file.resize(file.len().next_multiple_of(4), 0);
                file.extend(words(&[total]));
                continue;
            }
        }
        file.extend(packet);
    }
    file
}

fn replaying(path: &Path, entries: &[(&str, OptionValue)]) -> Result<BuiltSource, Error> {
    let path = [("path", paths_value([path]))];
    build("pcap", &[&path, entries].concat())
}

fn three() -> Vec<Vec<u8>> {
    vec![
        packet(&datagram(1, 2), 6_343),
        packet(b"a question", 53),
        packet(&datagram(2, 1), 6_343),
        packet(&datagram(3, 3), 6_343),
    ]
}

#[test]
fn captures_of_every_kind_give_the_datagrams_to_the_port() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    for kind in [Kind::Little, Kind::BigNano, Kind::Pcapng] {
        std::fs::write(&path, capture(kind, &three())).unwrap();
        let mut built = replaying(&path, &[]).unwrap();
        assert_eq!(sequences(&mut built, u64::MAX), [100, 101, 200, 300, 301, 302]);
        let progress = built.source.progress().unwrap();
        assert_eq!(Some(progress.done), progress.total);
        let mut again = replaying(&path, &[]).unwrap();
        let Poll::Block(block) = again.source.poll(1, 0).unwrap() else { panic!("there is a block") };
        let mut decoder = (again.decoder)(&super::task()).unwrap();
        let decoded = decoder.decode(&block, SeqRange::new(0, 2), 0).unwrap();
        assert_eq!(decoded.records.times().to_vec(), [1_000_000_000; 2], "the capture's own time");
    }
}

#[test]
fn a_capture_has_a_pace_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    std::fs::write(&path, capture(Kind::Little, &three())).unwrap();
    let mut built = replaying(&path, &[("speed", OptionValue::Number(10.0))]).unwrap();
    // Datagrams are at 0, 1 and 1.5 s; ten times as fast at 0, 100 and 150 ms.
    let mut counts = Vec::new();
    for now in [5_000_000, 5_099_000, 5_100_000, 5_100_000, 5_150_000, 5_151_000] {
        counts.push(match built.source.poll(1 << 18, now).unwrap() {
            Poll::Block(block) => i64::from(block.count),
            Poll::PendingUntil(_) => 0,
            Poll::End => -1,
            Poll::Pending | Poll::Told { .. } => panic!("it knows when"),
        });
    }
    assert_eq!(counts, [2, 0, 1, 0, 3, -1]);
}

#[test]
fn a_capture_goes_on_where_it_stood_and_gives_again_what_it_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    std::fs::write(&path, capture(Kind::Little, &three())).unwrap();
    let mut first = replaying(&path, &[]).unwrap();
    let Poll::Block(block) = first.source.poll(1, 0).unwrap() else { panic!("there is a block") };
    assert_eq!((block.first, block.count), (0, 2));
    let position = first.source.position();

    let mut second = replaying(&path, &[]).unwrap();
    second.source.restore(&position).unwrap();
    let run = ReplayRun { partition: 0, first: 2, count: 1 };
    let again = second.source.replay(run, 1 << 18).unwrap();
    assert_eq!((again.first, again.count), (2, 1), "no more than the order names");
    let Poll::Block(rest) = second.source.poll(1 << 18, 0).unwrap() else { panic!("there is a block") };
    assert_eq!((rest.first, rest.count), (3, 3));
    let missing = second.source.replay(ReplayRun { partition: 0, first: 6, count: 1 }, 1).unwrap_err();
    assert!(missing.to_string().contains("ends with record 6"), "{missing}");

    std::fs::write(&path, capture(Kind::Little, &three()[1..])).unwrap();
    let mut other = replaying(&path, &[]).unwrap();
    let error = other.source.restore(&position).unwrap_err();
    assert!(error.to_string().contains("is not the capture that was read before"), "{error}");
}

#[test]
fn a_capture_that_was_cut_ends_before_the_packet_and_what_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    let whole = capture(Kind::Little, &three());
    std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let said = thalweg_testing::logs::said_here(|| {
        let mut built = replaying(&path, &[]).unwrap();
        assert_eq!(sequences(&mut built, u64::MAX), [100, 101, 200]);
    });
    assert!(said.contains("the capture ends within a packet or is damaged"), "{said}");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        if let Ok(mut built) = replaying(&path, &[]) {
            let _ = sequences(&mut built, u64::MAX);
        }
    }
    for text in ["", "no capture", "\u{a}\r\r\nand so on"] {
        std::fs::write(&path, text).unwrap();
        let error = replaying(&path, &[]).err().unwrap().chain().to_string();
        assert!(error.contains("is no capture: expected pcap or pcapng"), "{error}");
    }
    let mut wifi = whole.clone();
    wifi[20] = 105;
    std::fs::write(&path, wifi).unwrap();
    let error = replaying(&path, &[]).err().unwrap().to_string();
    assert!(error.contains("link type 105"), "{error}");
}

/// Words of a block of pcapng.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = 12 + body.len().next_multiple_of(4);
    let mut block = [kind.to_le_bytes(), (length as u32).to_le_bytes()].concat();
    block.extend(body);
    block.resize(length - 4, 0);
    block.extend((length as u32).to_le_bytes());
    block
}

fn body(words: &[u32], data: &[u8]) -> Vec<u8> {
    [&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()[..], data].concat()
}

/// The log of a source until its end, and the samples that it gives.
fn told(path: &Path) -> (Vec<u64>, String) {
    let mut found = Vec::new();
    let said = thalweg_testing::logs::said_here(|| {
        let mut built = replaying(path, &[]).unwrap();
        found = sequences(&mut built, u64::MAX);
    });
    (found, said)
}

#[test]
fn captures_are_unpacked_and_what_is_good_of_a_damaged_one_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap.gz");
    for kind in [Kind::Little, Kind::BigNano, Kind::Pcapng] {
        let whole = capture(kind, &three());
        let all = [100, 101, 200, 300, 301, 302];
        std::fs::write(&path, gzip(&whole)).unwrap();
        let mut built = replaying(&path, &[]).unwrap();
        assert_eq!(sequences(&mut built, u64::MAX), all);
        assert_eq!(built.source.progress().map(|now| Some(now.done) == now.total), Some(true));
        let members = [gzip(&whole[..30]), gzip(b""), gzip(&whole[30..])].concat();
        std::fs::write(&path, &members).unwrap();
        assert_eq!(told(&path).0, all, "two members");
        for rest in [vec![0xee; 5], vec![0xee; 700], vec![0; 64]] {
            std::fs::write(&path, [&whole[..], &rest].concat()).unwrap();
            let (found, said) = told(&path);
            assert_eq!(found, all, "{} bytes of garbage", rest.len());
            assert!(said.contains("left out") || rest == [0; 64], "{said}");
            std::fs::write(&path, [&members[..], &rest].concat()).unwrap();
            assert_eq!(told(&path).0, all, "{} bytes of garbage after gzip", rest.len());
        }
        let packed = gzip(&whole);
        for length in 0..packed.len() {
            std::fs::write(&path, &packed[..length]).unwrap();
            if replaying(&path, &[]).is_ok() {
                assert!(all.starts_with(&told(&path).0));
            }
        }
    }
}

#[test]
fn blocks_of_every_kind_are_read_and_foreign_ones_are_counted() {
    const NETLINK: u32 = 253;
    let data = |number| packet(&datagram(number, 1), 6_343);
    let enhanced = |interface, number, cut: usize| {
        let data = data(number);
        let lengths = [(data.len() - cut) as u32, data.len() as u32];
        block(6, &body(&[interface, 0, 1_000, lengths[0], lengths[1]], &data[..data.len() - cut]))
    };
    let old = {
        let data = data(3);
        block(2, &body(&[0, 0, 2_000, data.len() as u32, data.len() as u32], &data))
    };
    let mut wrong = enhanced(0, 9, 0);
    wrong[20..24].copy_from_slice(&9_999_u32.to_le_bytes());
    let interface = |link: u32| block(1, &body(&[link, 65_535], &[]));
    let file = [
        block(0x0a0d_0d0a, &body(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[])),
        interface(101),
        interface(NETLINK),
        enhanced(0, 1, 0),
        enhanced(1, 2, 0),
        enhanced(7, 2, 0),
        wrong,
        old,
        block(3, &body(&[data(4).len() as u32], &data(4))),
        block(0x4000_0bad, &[1, 2, 3]),
        enhanced(0, 5, 3),
        enhanced(0, 6, 0),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcapng");
    std::fs::write(&path, file.concat()).unwrap();
    let (found, said) = told(&path);
    assert_eq!(found, [100, 300, 400, 600]);
    for count in ["cut=1", "foreign=1", "link_types={253}", "no_interface=1", "malformed=1"] {
        assert!(said.contains(count), "{count}: {said}");
    }
}

#[test]
fn captures_are_read_one_behind_the_other_and_a_job_goes_on_with_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, numbers: &[u32]| {
        let packets: Vec<_> = numbers.iter().map(|number| packet(&datagram(*number, 1), 6_343)).collect();
        std::fs::write(folder.path().join(name), capture(Kind::Little, &packets)).unwrap();
    };
    let reading = || build("pcap", &[("path", paths_value([folder.path()]))]).unwrap();
    write("a.pcap", &[1, 2]);
    write("c.pcap", &[5, 6]);
    std::fs::write(folder.path().join("b.pcap"), "").unwrap();
    assert_eq!(sequences(&mut reading(), u64::MAX), [100, 200, 500, 600]);

    // At every place, with new captures after those that were known.
    for given in 0..=4_u64 {
        let mut first = reading();
        for _ in 0..given {
            assert!(matches!(first.source.poll(1, 0).unwrap(), Poll::Block(_)));
        }
        let position = first.source.position();
        assert_eq!(position.next, given);
        write("aa.pcap", &[3, 4]);
        let mut second = reading();
        second.source.restore(&position).unwrap();
        let all = [100, 200, 500, 600, 300, 400];
        assert_eq!(rest(&mut second), all[given as usize..], "after {given}");
        let end = second.source.position();
        let mut third = reading();
        third.source.restore(&end).unwrap();
        assert_eq!(rest(&mut third), [0_u64; 0]);
        // One that grew is read on, one that was moved is recognized.
        write("c.pcap", &[5, 6, 7]);
        std::fs::rename(folder.path().join("a.pcap"), folder.path().join("z.pcap")).unwrap();
        let mut fourth = reading();
        fourth.source.restore(&end).unwrap();
        assert_eq!(rest(&mut fourth), [700]);
        write("c.pcap", &[5, 6]);
        std::fs::rename(folder.path().join("z.pcap"), folder.path().join("a.pcap")).unwrap();
        std::fs::remove_file(folder.path().join("aa.pcap")).unwrap();
    }
}

/// An IPv4 packet of UDP in fragments of `size` bytes.
fn in_fragments(packet: &[u8], id: u16, size: usize) -> Vec<Vec<u8>> {
    let (head, payload) = packet.split_at(20);
    let count = payload.len().div_ceil(size);
    let parts = payload.chunks(size).enumerate();
    let fragment = |(number, data): (usize, &[u8])| {
        let mut head = head.to_vec();
        head[2..4].copy_from_slice(&(20 + data.len() as u16).to_be_bytes());
        head[4..6].copy_from_slice(&id.to_be_bytes());
        let more = if number + 1 < count { 0x2000 } else { 0 };
        head[6..8].copy_from_slice(&((number * size / 8) as u16 | more).to_be_bytes());
        [&head, data].concat()
    };
    parts.map(fragment).collect()
}

/// Datagrams 1, 2, 3 and on with three samples each, in fragments that are not all there: of each third one the second
/// is missing, of each fourth the first. Fragments of several datagrams are mixed.
fn mixed(datagrams: u32) -> Vec<Vec<u8>> {
    let mut packets = vec![Vec::new(); 3];
    let mut mixed = Vec::new();
    for number in 1..=datagrams {
        let mut all = in_fragments(&packet(&datagram(number, 3), 6_343), number as u16, 64);
        assert_eq!(all.len(), 3);
        if number % 3 == 0 {
            all.remove(1);
        } else if number % 4 == 0 {
            all.remove(0);
        }
        for (place, fragment) in all.into_iter().rev().enumerate() {
            packets[place].push(fragment);
        }
        if number % 5 == 0 {
            mixed.extend(packets.iter_mut().flat_map(std::mem::take));
            mixed.push(packet(&datagram(100 + number, 1), 6_343));
        }
    }
    mixed.extend(packets.into_iter().flatten());
    mixed
}

#[test]
fn datagrams_in_fragments_are_put_together_and_a_job_goes_on_at_every_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    let packets = mixed(24);
    for kind in [Kind::Little, Kind::Pcapng] {
        std::fs::write(&path, capture(kind, &packets)).unwrap();
        let mut whole = replaying(&path, &[]).unwrap();
        let all = rest(&mut whole);
        assert!(all.len() > 24 && all.contains(&102), "{all:?}");
        let left_out = whole.source.datagrams().unwrap()().all_left_out();
        assert_eq!((left_out["incomplete"], left_out["headless"]), (8, 4), "{left_out:?}");
        // By the place after each block, and by what follows it in the order log.
        for given in 0.. {
            let mut first = replaying(&path, &[]).unwrap();
            let mut known = Vec::new();
            for _ in 0..given {
                if let Poll::Block(block) = first.source.poll(1, 0).unwrap() {
                    known.push(block);
                }
            }
            let is_over = known.len() < given;
            let position = first.source.position();
            let known = numbers_in(&first, known);
            assert!(all.starts_with(&known));
            let mut second = replaying(&path, &[]).unwrap();
            second.source.restore(&position).unwrap();
            assert_eq!(rest(&mut second), all[known.len()..], "after {given} datagrams");
            let all = second.source.datagrams().unwrap()().all_left_out();
            assert!(all.get("incomplete").is_none_or(|count| *count <= 8) && (given > 0 || all == left_out));
            if is_over {
                break;
            }
        }
    }
}

#[test]
fn nothing_of_a_capture_that_grows_comes_twice_or_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    let packets = mixed(15);
    // The samples of a capture that ends after `count` packets: waiting datagrams are given as far as they are there.
    let cut_at = |packets: &[Vec<u8>]| {
        std::fs::write(&path, capture(Kind::Little, packets)).unwrap();
        rest(&mut replaying(&path, &[]).unwrap())
    };
    let whole = cut_at(&packets);
    for first in 1..packets.len() {
        let mut found = cut_at(&packets[..first]);
        let mut before = replaying(&path, &[]).unwrap();
        rest(&mut before);
        let mut position = before.source.position();
        for grown in [(first + packets.len()) / 2, packets.len()] {
            std::fs::write(&path, capture(Kind::Little, &packets[..grown])).unwrap();
            let mut next = replaying(&path, &[]).unwrap();
            next.source.restore(&position).unwrap();
            found.extend(rest(&mut next));
            position = next.source.position();
        }
        let mut once = found.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), found.len(), "a sample came twice: {found:?}");
        assert!(once.iter().all(|number| whole.contains(number)), "ends after {first} packets");
        // Datagrams that were never in fragments are there, whatever waited at an end and was given there.
        let unsplit = |numbers: &[u64]| numbers.iter().filter(|number| **number >= 10_000).count();
        assert_eq!(unsplit(&found), unsplit(&whole), "ends after {first} packets: {found:?}");
        // The others miss at most what waited at an end.
        assert!(found.len() + 5 * 3 * 2 >= whole.len());
    }
}

#[test]
fn a_place_of_a_build_that_did_not_put_fragments_together_is_refused_where_it_would_matter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture.pcap");
    let refused = |packets: &[Vec<u8>]| {
        std::fs::write(&path, capture(Kind::Little, packets)).unwrap();
        let mut first = replaying(&path, &[]).unwrap();
        assert!(matches!(first.source.poll(1, 0).unwrap(), Poll::Block(_)));
        let mut position = first.source.position();
        // As the earlier version wrote it: no packets and datagrams at the end.
        position.place[8] = 1;
        position.place.truncate(position.place.len() - 16);
        let mut second = replaying(&path, &[]).unwrap();
        second.source.restore(&position).err().map(|error| error.to_string()).ok_or_else(|| rest(&mut second))
    };
    assert_eq!(refused(&three()), Err(vec![200, 300, 301, 302]));
    let error = refused(&[three(), in_fragments(&packet(&datagram(4, 3), 6_343), 4, 64)].concat()).unwrap();
    assert!(error.contains("holds IP fragments, and was read in part by a build"), "{error}");
}
