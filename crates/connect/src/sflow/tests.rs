//! Datagrams made here, field by field, and their rows.

use std::net::IpAddr;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use thalweg_flow::Decoded;
use thalweg_types::{Batch, Schema, SeqRange};

use super::decode::{Settings, SflowDecoder, outputs};
use super::length::Length;
use super::packet::Tunnels;
use super::rates::Rates;
use super::*;
use crate::FormatPlugin;
use crate::format::ndjson::Ndjson;

/// Bytes of a datagram on their way.
#[derive(Clone, Default)]
pub(super) struct Wire(pub(super) Vec<u8>);

impl Wire {
    pub(super) fn u32s(mut self, numbers: impl IntoIterator<Item = u32>) -> Self {
        self.0.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
        self
    }

    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// With its length before it and padding after it.
    fn opaque(self, bytes: &[u8]) -> Self {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.u32s([bytes.len() as u32]).bytes(bytes).bytes(&[0; 3][..padding])
    }

    fn piece(self, tag: u32, body: &Wire) -> Self {
        self.u32s([tag]).opaque(&body.0)
    }
}

/// A datagram of agent 10.0.0.1 with these samples.
fn datagram(samples: &[(u32, Wire)]) -> Wire {
    let head = Wire::default().u32s([5, 1]).bytes(&[10, 0, 0, 1]).u32s([0, 7, 60_000, samples.len() as u32]);
    samples.iter().fold(head, |wire, (tag, body)| wire.piece(*tag, body))
}

/// A compact flow sample from interface 3 to 4, sampled 1:100.
fn flow(records: &[(u32, Wire)]) -> (u32, Wire) {
    flow_between(3, 4, records)
}

fn flow_between(input: u32, output: u32, records: &[(u32, Wire)]) -> (u32, Wire) {
    let head = Wire::default().u32s([21, 3, 100, 2_100, 0, input, output, records.len() as u32]);
    (1, records.iter().fold(head, |wire, (tag, body)| wire.piece(*tag, body)))
}

fn header_of(protocol: u32, frame_length: u32, header: &[u8]) -> (u32, Wire) {
    (1, Wire::default().u32s([protocol, frame_length, 4]).opaque(header))
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// TCP from 192.0.2.1:443 to 198.51.100.2:50000, SYN and ACK.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 40, 0, 9, 0x40, 0, 63, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    packet.extend([1, 187, 195, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0]);
    packet
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&MACS, ethertype.to_be_bytes().as_slice(), payload].concat()
}

fn settings() -> Settings {
    Settings {
        source: "switches".into(),
        tunnels: Tunnels::default(),
        rates: Rates::default(),
        length: Length::default(),
        agents: agents::Agents::default(),
        skip: [].into(),
        ahead: Default::default(),
    }
}

fn decoded(settings: &Settings, datagrams: &[&[u8]]) -> Decoded {
    let sender = IpAddr::from([10, 0, 0, 9]);
    for datagram in datagrams {
        settings.agents.note(&datagram::Outline::of(datagram), sender, 1_000_000);
    }
    let block = block(100, datagrams.iter().map(|datagram| (1_000_000, sender, *datagram)));
    let range = SeqRange::new(7, 7 + u64::from(block.count));
    SflowDecoder::new(settings.clone()).decode(&block, range, 0).unwrap()
}

/// Rows as NDJSON, without the parts that are the same in all of them.
fn lines(schema: &Schema, batch: &Batch) -> String {
    const COMMON: [&str; 9] = [
        "time",
        "agent",
        "sub_agent",
        "sender",
        "datagram",
        "uptime",
        "sequence",
        "source_class",
        "source_index",
    ];
    let mut encoder = Ndjson.encoder(schema, &crate::Options::default()).unwrap();
    let mut text = String::new();
    for row in batch.row_numbers() {
        let mut line = Vec::new();
        encoder.encode_row(batch, row, &mut line);
        let mut row: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let fields = row.as_object_mut().unwrap();
        fields.retain(|name, value| !COMMON.contains(&name.as_str()) && !value.is_null());
        text.push_str(&row.to_string());
        text.push('\n');
    }
    text
}

fn flows(decoded: &Decoded) -> String {
    lines(&outputs()[0].schema, &decoded.records)
}

fn check_flows(samples: &[(u32, Wire)], expected: Expect) {
    expected.assert_eq(&flows(&decoded(&settings(), &[&datagram(samples).0])));
}

fn counts(settings: &Settings) -> (u64, u64, u64) {
    let total = settings.agents.stats().total;
    (total.malformed, total.unknown, total.netflow)
}

#[test]
fn a_sample_is_a_row_with_its_head_and_its_packet() {
    let switch = (1001, Wire::default().u32s([10, 0, 20, 1]));
    let packet = header_of(1, 1_518, &ethernet(0x0800, &tcp()));
    check_flows(
        &[flow(&[packet, switch])],
        expect![[r#"
            {"sample":"flow","sampling_rate":100,"sample_pool":2100,"drops":0,"in_if":3,"in_if_kind":"interface","out_if":4,"out_if_kind":"interface","bytes":151800,"packets":100,"frame_length":1518,"stripped":4,"header_protocol":1,"header_length":54,"src_mac":"02:00:00:00:00:02","dst_mac":"02:00:00:00:00:01","ethertype":2048,"src_addr":"192.0.2.1","dst_addr":"198.51.100.2","protocol":6,"src_port":443,"dst_port":50000,"tcp_flags":18,"ip_tos":0,"ip_ttl":63,"ip_length":40,"ip_id":9,"fragment_offset":0,"more_fragments":false,"dont_fragment":true,"in_vlan":10,"in_priority":0,"out_vlan":20,"out_priority":1}
        "#]],
    );
}

#[test]
fn numbers_times_and_agents_are_those_of_the_sample() {
    let one = datagram(&[flow(&[]), (2, Wire::default().u32s([1, 2, 0])), flow(&[])]);
    let decoded = decoded(&settings(), &[&one.0, &datagram(&[flow(&[])]).0]);
    let seqs: Vec<u64> = decoded.records.row_numbers().map(|row| decoded.records.seq(row)).collect();
    assert_eq!(seqs, [7, 9, 10]);
    assert_eq!(decoded.others[0].seq(0), 8);
    assert_eq!(decoded.records.times().to_vec(), [1_000_000; 3]);
    let mut encoder = Ndjson.encoder(&outputs()[0].schema, &crate::Options::default()).unwrap();
    let mut line = Vec::new();
    encoder.encode_row(&decoded.records, 0, &mut line);
    let line = String::from_utf8(line).unwrap();
    let head =
        r#"{"time":1000000,"agent":"10.0.0.1","sub_agent":0,"sender":"10.0.0.9","datagram":7,"uptime":60000"#;
    assert!(line.starts_with(head), "{line}");
}

#[test]
fn nothing_leaks_from_one_sample_to_the_next() {
    let full =
        flow(&[header_of(1, 64, &ethernet(0x0800, &tcp())), (1001, Wire::default().u32s([1, 2, 3, 4]))]);
    let bare = flow(&[]);
    let decoded = decoded(&settings(), &[&datagram(&[bare.clone(), full, bare.clone(), bare]).0]);
    let lines = flows(&decoded);
    let bare = r#"{"sample":"flow","sampling_rate":100,"sample_pool":2100,"drops":0,"in_if":3,"in_if_kind":"interface","out_if":4,"out_if_kind":"interface","packets":100}"#;
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!([lines[0], lines[2], lines[3]], [bare; 3]);
    assert!(lines[1].contains("192.0.2.1"));
}

#[test]
fn the_top_bits_of_a_compact_interface_are_its_format() {
    let places = [0, 5, 0x3fff_ffff, 0x4000_0102, 0x8000_0007, 0x8000_0000, 0xc000_0001];
    let samples: Vec<(u32, Wire)> = places.map(|output| flow_between(0x3fff_ffff, output, &[])).to_vec();
    let rows = flows(&decoded(&settings(), &[&datagram(&samples).0]));
    let pick = |row: &str| {
        let row: serde_json::Value = serde_json::from_str(row).unwrap();
        let field = |name: &str| row.get(name).map_or("-".to_owned(), ToString::to_string);
        assert_eq!(field("in_if_kind"), "\"internal\"");
        ["out_if", "out_if_kind", "out_if_count", "discard_reason"].map(field).join(" ").replace('"', "")
    };
    expect![[r#"
        - unknown - -
        5 interface - -
        - internal - -
        - discarded - 258
        - multiple 7 -
        - multiple - -
        - reserved - -"#]]
    .assert_eq(&rows.lines().map(pick).collect::<Vec<_>>().join("\n"));
}

#[test]
fn an_expanded_sample_and_a_discarded_packet_have_whole_numbers() {
    let expanded = Wire::default().u32s([1, 3, 0x0100_0000, 10, 20, 0, 0, 0x7000_0001, 2, 9, 0]);
    let discarded =
        Wire::default().u32s([1, 0, 5, 8, 6, 7, 258, 1]).piece(1038, &Wire::default().opaque(b"nf_hook"));
    check_flows(
        &[(3, expanded), (5, discarded)],
        expect![[r#"
            {"sample":"flow","sampling_rate":10,"sample_pool":20,"drops":0,"in_if":1879048193,"in_if_kind":"interface","out_if_kind":"multiple","out_if_count":9,"packets":10}
            {"sample":"discarded","drops":8,"in_if":6,"in_if_kind":"interface","out_if":7,"out_if_kind":"interface","discard_reason":258,"function":"nf_hook"}
        "#]],
    );
}

/// Firmware that says how much of a frame it has sampled.
#[test]
fn bytes_are_those_of_the_length_that_the_job_names() {
    let mut packet = tcp();
    packet[2..4].copy_from_slice(&1_500_u16.to_be_bytes());
    let in_frame = |frame_length| flow(&[header_of(1, frame_length, &ethernet(0x0800, &packet))]);
    let arp = flow(&[header_of(1, 64, &ethernet(0x0806, &[0, 1, 8, 0]))]);
    let ip_record = Wire::default().u32s([700, 17]).bytes(&[192, 0, 2, 7, 192, 0, 2, 8]).u32s([53, 99, 0, 0]);
    let samples = [in_frame(132), in_frame(1_514), arp, flow(&[(3, ip_record)])];
    for (name, expected) in [
        ("frame", [13_200, 151_400, 6_400, 70_000]),
        ("ip", [150_000, 150_000, 6_400, 70_000]),
        ("max", [150_000, 151_400, 6_400, 70_000]),
    ] {
        let settings = Settings { length: Length::parse(name).unwrap(), ..settings() };
        let rows = flows(&decoded(&settings, &[&datagram(&samples).0]));
        for (row, bytes) in rows.lines().zip(expected) {
            assert!(row.contains(&format!("\"bytes\":{bytes},")), "{name}, {bytes}: {row}");
        }
    }
    assert_eq!(Length::default(), Length::parse("max").unwrap());
}

#[test]
fn a_frame_is_no_shorter_than_the_packet_in_it() {
    let mut packet = tcp();
    packet[2..4].copy_from_slice(&1_500_u16.to_be_bytes());
    for (frame_length, bytes) in [(132, 150_000), (1_514, 151_400)] {
        let sample = flow(&[header_of(1, frame_length, &ethernet(0x0800, &packet))]);
        let rows = flows(&decoded(&settings(), &[&datagram(&[sample]).0]));
        assert!(rows.contains(&format!("\"bytes\":{bytes},")), "{rows}");
        assert!(rows.contains(&format!("\"frame_length\":{frame_length},")), "as it was said: {rows}");
    }
}

#[test]
fn a_header_and_the_records_that_say_the_same_are_one_packet() {
    let v4 = Wire::default().u32s([1_500, 17]).bytes(&[192, 0, 2, 7, 192, 0, 2, 8]).u32s([53, 99, 0, 0xb8]);
    let frame = Wire::default()
        .u32s([1_514])
        .bytes(&MACS[..6])
        .bytes(&[0; 2])
        .bytes(&MACS[6..])
        .bytes(&[0; 2])
        .u32s([0x800]);
    let alone = flow(&[(2, frame), (3, v4.clone())]);
    // The header is cut within its IP header: the other record has the fields that it lacks.
    let together = flow(&[header_of(1, 1_514, &ethernet(0x0800, &tcp()[..10])), (3, v4)]);
    check_flows(
        &[alone, together],
        expect![[r#"
            {"sample":"flow","sampling_rate":100,"sample_pool":2100,"drops":0,"in_if":3,"in_if_kind":"interface","out_if":4,"out_if_kind":"interface","bytes":151400,"packets":100,"frame_length":1514,"src_mac":"02:00:00:00:00:01","dst_mac":"02:00:00:00:00:02","ethertype":2048,"src_addr":"192.0.2.7","dst_addr":"192.0.2.8","protocol":17,"src_port":53,"dst_port":99,"ip_tos":184,"ip_length":1500}
            {"sample":"flow","sampling_rate":100,"sample_pool":2100,"drops":0,"in_if":3,"in_if_kind":"interface","out_if":4,"out_if_kind":"interface","bytes":151400,"packets":100,"frame_length":1514,"stripped":4,"header_protocol":1,"header_length":24,"src_mac":"02:00:00:00:00:02","dst_mac":"02:00:00:00:00:01","ethertype":2048,"src_addr":"192.0.2.7","dst_addr":"192.0.2.8","protocol":17,"src_port":53,"dst_port":99,"ip_tos":184,"ip_length":1500}
        "#]],
    );
}

#[test]
fn a_gateway_says_where_the_packet_comes_from_and_goes_to() {
    let gateway = Wire::default()
        .u32s([1])
        .bytes(&[192, 0, 2, 254])
        .u32s([65_000, 65_001, 65_002, 2, 2, 2, 64_500, 64_501, 1, 2, 64_510, 64_511, 2])
        .u32s([(65_000 << 16) + 1, (65_000 << 16) + 666, 100]);
    let router = Wire::default()
        .u32s([2])
        .bytes(&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
        .u32s([48, 32]);
    let user = Wire::default().u32s([106]).opaque(b"alice").u32s([106]).opaque("b\u{f6}b".as_bytes());
    let rows = flows(&decoded(
        &settings(),
        &[&datagram(&[flow(&[(1003, gateway), (1002, router), (1004, user)])]).0],
    ));
    let (_, records) = rows.split_once(r#""packets":100,"#).unwrap();
    expect![[r#"
        "next_hop":"2001:db8::1","src_mask":48,"dst_mask":32,"bgp_next_hop":"192.0.2.254","router_as":65000,"src_as":65001,"src_peer_as":65002,"dst_as":64511,"dst_peer_as":64500,"as_path":"64500 64501 {64510,64511}","communities":"65000:1 65000:666","local_pref":100,"src_user":"alice","dst_user":"böb"}
    "#]]
    .assert_eq(records);
}

/// Formats of flow records with a body that is all there.
fn flow_records() -> Vec<(u32, Wire)> {
    let wire = Wire::default;
    let address = wire().u32s([1]).bytes(&[192, 0, 2, 1]);
    let ethernet = wire().u32s([64]).bytes(&[1; 16]).u32s([0x800]);
    let v4 = wire().u32s([64, 6]).bytes(&[9; 8]).u32s([1, 2, 3, 4]);
    let v6 = wire().u32s([64, 6]).bytes(&[9; 32]).u32s([1, 2, 3, 4]);
    let number = wire().u32s([17]);
    let name = |numbers: &[u32]| wire().opaque(b"name").u32s(numbers.iter().copied());
    vec![
        header_of(1, 64, &self::ethernet(0x0800, &tcp())),
        (2, ethernet.clone()),
        (3, v4.clone()),
        (4, v6.clone()),
        (1001, wire().u32s([1, 2, 3, 4])),
        (1002, address.clone().u32s([24, 16])),
        (1003, address.clone().u32s([1, 2, 3, 1, 2, 1, 9, 1, 8, 100])),
        (1004, wire().u32s([3]).opaque(b"from").u32s([3]).opaque(b"to")),
        (1006, address.clone().u32s([1, 0x10_000, 1, 0x20_000])),
        (1007, wire().bytes(&address.0).bytes(&address.0)),
        (1008, name(&[1, 2])),
        (1009, name(&[1, 2])),
        (1010, name(&[1])),
        (1011, number.clone()),
        (1012, wire().u32s([2, 0x8100_0005, 0x8100_0006])),
        (1021, ethernet.clone()),
        (1022, ethernet),
        (1023, v4.clone()),
        (1024, v4),
        (1025, v6.clone()),
        (1026, v6),
        (1027, number.clone()),
        (1028, number.clone()),
        (1029, number.clone()),
        (1030, number.clone()),
        (1036, number.clone()),
        (1037, wire().u32s([1]).opaque(b"deny").u32s([2])),
        (1038, name(&[])),
        (1039, number.clone()),
        (1040, number),
        (1041, name(&[]).opaque(b"trap")),
        (1042, name(&[])),
        (1043, wire().u32s([0x1789, 0])),
    ]
}

#[test]
fn every_flow_record_is_taken_whole_and_what_is_there_of_a_short_one() {
    for (tag, body) in flow_records() {
        let whole = settings();
        let rows = flows(&decoded(&whole, &[&datagram(&[flow(&[(tag, body.clone())])]).0]));
        assert_eq!(counts(&whole), (0, 0, 0), "record {tag} is malformed or unknown");
        let (_, fields) = rows.split_once(r#""packets":100"#).unwrap();
        assert!(fields.len() > 3, "record {tag} says nothing");

        let cut = settings();
        let short = Wire(body.0[..body.0.len() - 1].to_vec());
        // Another record follows, which is taken all the same.
        let next = (1001, Wire::default().u32s([77, 2, 3, 4]));
        let records = if tag == 1001 { vec![(tag, short)] } else { vec![(tag, short), next] };
        let rows = flows(&decoded(&cut, &[&datagram(&[flow(&records)]).0]));
        // Padding brings back a byte that was cut from a text, and a list of labels may end anywhere.
        let (malformed, unknown, _) = counts(&cut);
        assert!(malformed <= 1 && unknown == 0, "record {tag}: {malformed} malformed, {unknown} unknown");
        assert!(tag == 1001 || rows.contains(r#""in_vlan":77"#), "record {tag} took the one after it");
        if body.0.len() % 4 == 0 && !matches!(tag, 1 | 1004 | 1008..=1010 | 1038 | 1041 | 1042) {
            assert_eq!(malformed, 1, "record {tag} is short");
        }
    }
}

/// Numbers of four bytes that a counters record has, by its format; texts and lists are empty.
const COUNTER_WORDS: [(u32, usize); 25] = [
    (1, 22),
    (2, 13),
    (3, 18),
    (4, 20),
    (5, 7),
    (6, 20),
    (7, 14),
    (10, 5),
    (1001, 7),
    (1002, 3),
    (1004, 3),
    (1005, 1),
    (2000, 8),
    (2001, 1),
    (2002, 2),
    // And three more, which host-sflow sends.
    (2003, 17),
    (2004, 18),
    (2005, 13),
    (2006, 10),
    (2007, 19),
    (2008, 25),
    (2009, 15),
    (2010, 7),
    // No such formats.
    (8, 0),
    (2011, 0),
];

#[test]
fn every_counters_record_is_as_long_as_its_layout_says() {
    for (tag, words) in COUNTER_WORDS {
        let take = |words: usize| {
            let settings = settings();
            // Zeros make every text and every list empty.
            let body = Wire::default().u32s(vec![0; words]);
            let sample = (2, Wire::default().u32s([1, 2, 1]).piece(tag, &body));
            let decoded = decoded(&settings, &[&datagram(&[sample]).0]);
            (counts(&settings), lines(&outputs()[1].schema, &decoded.others[0]))
        };
        if words == 0 {
            assert_eq!(take(4).0, (0, 1, 0), "format {tag} is not known");
            continue;
        }
        let ((malformed, unknown, _), line) = take(words);
        assert_eq!((malformed, unknown), (0, 0), "format {tag} with {words} words");
        let fields = line.matches(':').count();
        assert!(fields > 0, "format {tag} says nothing");
        let ((malformed, ..), short) = take(words - 1);
        assert_eq!(malformed, 1, "format {tag} with one word less");
        assert!(short.matches(':').count() < fields);
    }
}

#[test]
fn a_host_may_say_more_of_its_processors_than_the_standard_does() {
    for words in 17..=20 {
        let settings = settings();
        let sample = (2, Wire::default().u32s([1, 2, 1]).piece(2003, &Wire::default().u32s(vec![0; words])));
        let decoded = decoded(&settings, &[&datagram(&[sample]).0]);
        let line = lines(&outputs()[1].schema, &decoded.others[0]);
        assert_eq!((counts(&settings).0, line.matches(':').count()), (0, words));
    }
}

#[test]
fn counters_with_lists_and_texts_are_rows_too() {
    let host = Wire::default().opaque(b"leaf1").bytes(&[0xab; 16]).u32s([3, 2]).opaque(b"6.1.0");
    let adapters = Wire::default().u32s([2, 1, 1]).bytes(&MACS[..6]).u32s([0x0000_0002]).bytes(&[0; 2]);
    let adapters = Wire(adapters.0[..12].to_vec()).bytes(&MACS[..6]).bytes(&[0; 2]).u32s([5, 0]);
    let sfp = Wire::default().u32s([1, 1, 3_300, (-5_i32).cast_unsigned(), 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let load = Wire::default().u32s([1.5_f32.to_bits(), 0.25_f32.to_bits(), 0]).u32s(0..17);
    let records = [(2000, host), (2001, adapters), (10, sfp), (2003, load)];
    let head = Wire::default().u32s([9, (2 << 24) + 1, records.len() as u32]);
    let sample = records.iter().fold(head, |wire, (tag, body)| wire.piece(*tag, body));
    let settings = settings();
    let decoded = decoded(&settings, &[&datagram(&[(2, sample)]).0]);
    assert_eq!(counts(&settings), (0, 0, 0));
    expect![[r#"
        {"sfp_module_id":1,"sfp_lane_count":1,"sfp_supply_voltage":3300,"sfp_temperature":-5,"sfp_lanes":"[{\"lane\":1,\"tx_bias_current\":2,\"tx_power\":3,\"tx_power_min\":4,\"tx_power_max\":5,\"tx_wavelength\":6,\"rx_power\":7,\"rx_power_min\":8,\"rx_power_max\":9,\"rx_wavelength\":10}]","host_name":"leaf1","host_uuid":"abababab-abab-abab-abab-abababababab","host_machine_type":3,"host_os_name":2,"host_os_release":"6.1.0","host_adapters":"[{\"if_index\":1,\"macs\":[\"02:00:00:00:00:01\"]},{\"if_index\":5,\"macs\":[]}]","cpu_load_1m":1.5,"cpu_load_5m":0.25,"cpu_load_15m":0.0,"cpu_processes_running":0,"cpu_processes_total":1,"cpu_count":2,"cpu_speed":3,"host_uptime":4,"cpu_user":5,"cpu_nice":6,"cpu_system":7,"cpu_idle":8,"cpu_wait":9,"cpu_interrupt":10,"cpu_soft_interrupt":11,"cpu_interrupts":12,"cpu_context_switches":13,"cpu_steal":14,"cpu_guest":15,"cpu_guest_nice":16}
    "#]]
    .assert_eq(&lines(&outputs()[1].schema, &decoded.others[0]));
}

#[test]
fn unknown_structures_are_skipped_by_their_length() {
    let settings = settings();
    let strange = (0x0012_3001, Wire::default().bytes(b"whatever"));
    let sample =
        flow(&[strange.clone(), (1001, Wire::default().u32s([5, 0, 6, 0])), (1005, Wire::default())]);
    let decoded = decoded(&settings, &[&datagram(&[strange, sample]).0]);
    assert_eq!(counts(&settings), (0, 3, 0));
    assert!(flows(&decoded).contains(r#""in_vlan":5"#));
    assert_eq!((decoded.records.len(), decoded.records.seq(0)), (1, 8), "it has a number, but no row");
    assert!(decoded.rejects.is_none());
}

#[test]
fn what_is_no_sflow_becomes_a_reject_with_its_bytes() {
    let netflow = [0, 5, 0, 30, 1, 2, 3, 4];
    let ipfix = [0, 10, 0, 40, 0, 0, 0, 0];
    let old = Wire::default().u32s([4, 1, 2, 3]);
    let headless = (1, Wire::default().u32s([1, 2]));
    let hollow = Wire(datagram(&[flow(&[])]).0[..28].to_vec());
    let settings = settings();
    let datagrams: [&[u8]; 6] =
        [&netflow, &ipfix, &old.0, &[0, 0, 0, 5], &datagram(&[headless]).0, &hollow.0];
    let decoded = decoded(&settings, &datagrams);
    let rejects = decoded.rejects.unwrap();
    expect![[r#"
        {"source":"switches","offset":100,"code":"netflow","reason":"expected an sFlow datagram, got NetFlow version 5","raw":"AAUAHgECAwQ="}
        {"source":"switches","offset":101,"code":"netflow","reason":"expected an sFlow datagram, got IPFIX","raw":"AAoAKAAAAAA="}
        {"source":"switches","offset":102,"code":"sflow_version","reason":"expected sFlow version 5, got version 4","raw":"AAAABAAAAAEAAAACAAAAAw=="}
        {"source":"switches","offset":103,"code":"malformed","reason":"expected the head of an sFlow datagram, got 4 bytes","raw":"AAAABQ=="}
        {"source":"switches","offset":104,"code":"malformed","reason":"expected the head of a sample of format 1, got 8 bytes","raw":"AAAAAQAAAAI="}
        {"source":"switches","offset":105,"code":"malformed","reason":"expected 1 samples, got none","raw":"AAAABQAAAAEKAAABAAAAAAAAAAcAAOpgAAAAAQ=="}
    "#]]
    .assert_eq(&lines(&thalweg_types::rejects_schema(), &rejects));
    assert_eq!(counts(&settings), (4, 0, 2));
    assert!(decoded.records.is_empty());
}

#[test]
fn a_rate_of_the_job_file_goes_before_the_agents() {
    let rates = Rates::parse(&["10.0.0.0/24=4096".to_owned()]).unwrap();
    let settings = Settings { rates, ..settings() };
    let packet = header_of(1, 100, &ethernet(0x0800, &tcp()));
    let rows = flows(&decoded(&settings, &[&datagram(&[flow(&[packet])]).0]));
    assert!(
        rows.contains(r#""sampling_rate":4096"#) && rows.contains(r#""bytes":409600,"packets":4096"#),
        "{rows}"
    );
}

#[test]
fn a_sample_that_is_to_be_left_out_is_not_even_looked_at() {
    let settings = Settings { skip: [101].into(), ..settings() };
    let decoded = decoded(&settings, &[&datagram(&[flow(&[]), (1, Wire::default()), flow(&[])]).0]);
    assert_eq!(decoded.records.len(), 2);
    let rejects = lines(&thalweg_types::rejects_schema(), &decoded.rejects.unwrap());
    assert!(
        rejects.contains(r#""offset":101,"code":"skipped","reason":"left out by --skip switches@101""#),
        "{rejects}"
    );
    assert_eq!(counts(&settings).0, 0);
}

#[test]
fn samples_of_a_time_too_far_ahead_are_rejects_each() {
    let mut context = crate::tests::context(&Schema::new(Vec::new()), None, &[]);
    context.max_ahead = Some(999_999);
    let settings = Settings { ahead: crate::source::MaxAhead::of(&context), ..settings() };
    // It was captured a second after the beginning of 1970, and is numbered then.
    let both = decoded(&settings, &[&datagram(&[flow(&[]), flow(&[])]).0]);
    assert_eq!(both.records.len(), 0);
    let rejects = lines(&thalweg_types::rejects_schema(), &both.rejects.unwrap());
    let reason = "\"code\":\"ahead\",\"reason\":\"field \\\"time\\\": event time 1970-01-01T00:00:01Z is more than 999999us ahead of its arrival at \
                  1970-01-01T00:00:00Z\"";
    assert_eq!(rejects.matches(reason).count(), 2, "{rejects}");
    context.max_ahead = Some(1_000_000);
    let settings = Settings { ahead: crate::source::MaxAhead::of(&context), ..settings };
    assert_eq!(decoded(&settings, &[&datagram(&[flow(&[])]).0]).records.len(), 1);
}

/// A datagram with everything in it.
fn crowded() -> Vec<u8> {
    let mut samples: Vec<(u32, Wire)> = flow_records().chunks(5).map(flow).collect();
    for (tag, words) in COUNTER_WORDS {
        let body = Wire::default().u32s((0..words as u32).map(|word| word % 3));
        samples.push((2, Wire::default().u32s([1, 2, 1]).piece(tag, &body)));
    }
    datagram(&samples).0
}

/// Decodes a datagram that may be anything: it must not panic, and every number of the order is at most one row.
fn decode_anything(datagram: &[u8]) {
    let tunnels = Tunnels::ALL;
    let decoded = decoded(&Settings { tunnels, ..settings() }, &[datagram]);
    let rows = decoded.records.len() + decoded.others.iter().map(Batch::len).sum::<usize>();
    let numbers = decoded.records.range().len() as usize;
    assert!(rows <= numbers, "{rows} rows of {numbers} samples");
}

#[test]
fn every_truncation_and_every_flipped_bit_is_survived() {
    let whole = crowded();
    for length in 0..whole.len() {
        decode_anything(&whole[..length]);
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        decode_anything(&flipped);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        is_sflow in any::<bool>(),
    ) {
        let head = if is_sflow { [0, 0, 0, 5, 0, 0, 0, 1].as_slice() } else { &[] };
        decode_anything(&[head, &bytes].concat());
    }
}
