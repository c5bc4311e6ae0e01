//! Packet samples out of captures, through the real program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::Place;
use super::examples::data;

const JOB: &str = "\
name: samples
sources:
  switches: { type: pcap, path: capture.pcap }
sinks:
  flows: { type: file, input: switches.flows, path: flows.ndjson, format: ndjson }
  counters: { type: file, input: switches.counters, path: counters.ndjson, format: ndjson }
  rejects: { type: file, input: switches.rejects, path: rejects.ndjson, format: ndjson }
";

/// What a capture became.
pub(super) struct Samples {
    pub(super) flows: Vec<Value>,
    pub(super) counters: Vec<Value>,
    pub(super) rejects: Vec<Value>,
    stderr: String,
}

pub(super) fn samples(capture: PathBuf) -> Samples {
    let place = Place::with(&[("job.yaml", JOB)]);
    let path = format!("sources.switches.path={}", capture.display());
    let ended = place.thalweg(&["run", "job.yaml", "--quiet", "--set", &path]).ends_with(0);
    let lines =
        |name: &str| place.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Samples {
        flows: lines("flows.ndjson"),
        counters: lines("counters.ndjson"),
        rejects: lines("rejects.ndjson"),
        stderr: ended.stderr,
    }
}

/// Counts by the text of a field.
fn by(rows: &[Value], field: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in rows {
        let value = row[field].as_str().map_or_else(|| row[field].to_string(), str::to_owned);
        *counts.entry(value).or_default() += 1;
    }
    counts
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn real_data_a_switch_says_who_talks_to_whom() {
    let samples = samples(data().join("sflow/overflowd-sflow.pcap"));
    assert_eq!((samples.flows.len(), samples.counters.len(), samples.rejects.len()), (5_855, 502, 0));
    assert_eq!(by(&samples.flows, "sampling_rate"), [("300".to_owned(), 5_855)].into());
    let talk: std::collections::BTreeSet<_> = samples
        .flows
        .iter()
        .map(|flow| (flow["src_addr"].to_string(), flow["dst_addr"].to_string()))
        .collect();
    assert_eq!(talk.len(), 2, "two hosts, both ways: {talk:?}");
    for flow in &samples.flows {
        let number = |field: &str| flow[field].as_u64().unwrap();
        assert_eq!(number("bytes"), number("frame_length") * 300);
        // Ethernet's header and checksum go with the packet, but for the padding of the shortest frames.
        let frame = number("ip_length") + 18;
        assert!(number("frame_length") == frame || frame < 70, "{flow}");
        assert_eq!((number("ethertype"), number("protocol"), number("in_vlan")), (0x800, 6, 1));
    }
    for counters in &samples.counters {
        assert_eq!(counters["if_index"], counters["source_index"]);
    }
}

/// What tcpdump calls a counter, and what we do, in its order.
const COUNTERS: [(&str, &str); 31] = [
    ("align errors", "eth_alignment_errors"),
    ("fcs errors", "eth_fcs_errors"),
    ("single collision", "eth_single_collision_frames"),
    ("multiple collision", "eth_multiple_collision_frames"),
    ("test error", "eth_sqe_test_errors"),
    ("deferred", "eth_deferred_transmissions"),
    ("late collision", "eth_late_collisions"),
    ("excessive collision", "eth_excessive_collisions"),
    ("mac trans error", "eth_internal_mac_transmit_errors"),
    ("carrier error", "eth_carrier_sense_errors"),
    ("frames too long", "eth_frames_too_long"),
    ("mac receive errors", "eth_internal_mac_receive_errors"),
    ("symbol errors", "eth_symbol_errors"),
    ("ifindex", "if_index"),
    ("iftype", "if_type"),
    ("ifspeed", "if_speed"),
    ("ifdirection", "if_direction"),
    ("ifstatus", "if_status"),
    ("In octets", "if_in_octets"),
    ("In unicast pkts", "if_in_ucast_packets"),
    ("In multicast pkts", "if_in_multicast_packets"),
    ("In broadcast pkts", "if_in_broadcast_packets"),
    ("In discards", "if_in_discards"),
    ("In errors", "if_in_errors"),
    ("In unknown protos", "if_in_unknown_protocols"),
    ("Out octets", "if_out_octets"),
    ("Out unicast pkts", "if_out_ucast_packets"),
    ("Out multicast pkts", "if_out_multicast_packets"),
    ("Out broadcast pkts", "if_out_broadcast_packets"),
    ("Out discards", "if_out_discards"),
    ("Out errors", "if_out_errors"),
];

/// A datagram or a sample as tcpdump prints it: the name of a number, and the number.
type Printed = BTreeMap<String, u64>;

/// `label number` pairs between commas; a label of the second and later pairs of an In or Out line gets that word before it.
fn pairs(line: &str, into: &mut Printed) {
    let direction = ["In ", "Out "].into_iter().find(|word| line.starts_with(word)).unwrap_or_default();
    for (place, part) in line.split(", ").enumerate() {
        // A word after the number says it in words.
        let part = part.split(" (").next().unwrap_or_default();
        let Some((label, number)) = part.rsplit_once(' ') else { continue };
        let Ok(number) = number.parse() else { continue };
        let word = if place > 0 { direction } else { "" };
        into.insert(format!("{word}{label}"), number);
    }
}

/// The samples that tcpdump saw, each with the numbers of its datagram, and how many datagrams it could not read.
fn printed(text: &str) -> (Vec<Printed>, usize) {
    let (mut samples, mut unread, mut datagram) = (Vec::<Printed>::new(), 0, Printed::new());
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some((_, head)) = trimmed.split_once("sFlowv5, ") {
            datagram.clear();
            let mut numbers = Printed::new();
            pairs(head, &mut numbers);
            datagram.extend(numbers.into_iter().map(|(label, number)| (format!("datagram {label}"), number)));
        } else if trimmed.contains("(invalid)") || trimmed.contains("packet not supported") {
            unread += 1;
        } else if trimmed.contains(" sample (") {
            let mut sample = datagram.clone();
            sample.insert("is flow".to_owned(), u64::from(trimmed.contains("flow sample")));
            // `input 29001 (0)`: the format comes after the interface.
            pairs(trimmed, &mut sample);
            samples.push(sample);
        } else if let Some(sample) = samples.last_mut() {
            pairs(trimmed, sample);
        }
    }
    (samples, unread)
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn real_data_captures_agree_with_what_tcpdump_prints() {
    let names = ["sflow-print-v6", "sflow_expanded", "sflow_multiple_counter_30_pdus", "sflow_print-segv"];
    let mut compared = 0;
    for name in names {
        let folder = data().join("sflow");
        let text = std::fs::read_to_string(folder.join(format!("expected/tcpdump-{name}.out"))).unwrap();
        let (printed, unread) = printed(&text);
        let ours = samples(folder.join(format!("tcpdump-{name}.pcap")));
        assert_eq!(ours.rejects.len(), unread, "{name}: {}", ours.stderr);
        let (mut flows, mut counters) = (ours.flows.iter(), ours.counters.iter());
        for sample in &printed {
            let row = if sample["is flow"] == 1 { flows.next() } else { counters.next() };
            let row = row.unwrap_or_else(|| panic!("{name}: no row for {sample:?}"));
            let head = [
                ("datagram agent-id", "sub_agent"),
                ("datagram seqnum", "datagram"),
                ("datagram uptime", "uptime"),
                ("seqnum", "sequence"),
                ("type", "source_class"),
                ("idx", "source_index"),
                ("rate", "sampling_rate"),
                ("pool", "sample_pool"),
                ("drops", "drops"),
                ("input", "in_if"),
            ];
            for (label, field) in head.iter().chain(&COUNTERS) {
                if let Some(number) = sample.get(*label) {
                    assert_eq!(row[field].as_u64(), Some(*number), "{name}: {label} of {sample:?} in {row}");
                    compared += 1;
                }
            }
        }
        assert_eq!((flows.next(), counters.next()), (None, None), "{name} has more rows than samples");
    }
    assert!(compared > 5_000, "only {compared} numbers were compared");
}

#[test]
#[ignore = "reads real data that is no part of the project: cargo xtask test runs it where it is there"]
fn real_data_single_datagrams_of_other_collectors_are_decoded() {
    let mut decoded = 0;
    for entry in std::fs::read_dir(data().join("sflow/raw")).unwrap() {
        let path = entry.unwrap().path();
        let place = Place::with(&[("job.yaml", JOB)]);
        place.write("capture.pcap", &capture(&std::fs::read(&path).unwrap()));
        let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
        let rows = ["flows.ndjson", "counters.ndjson"].map(|name| place.read(name).lines().count());
        assert!(rows[0] + rows[1] > 0, "{}: {}", path.display(), ended.stderr);
        assert_eq!(place.read("rejects.ndjson"), "", "{}", path.display());
        decoded += 1;
    }
    assert_eq!(decoded, 19);
}

/// A capture of one datagram from 192.0.2.1 to port 6343, raw IP.
pub(super) fn capture(datagram: &[u8]) -> Vec<u8> {
    capture_at(&[1_700_000_000], datagram)
}

/// The same of a datagram that came at each of these seconds, and a quarter.
pub(super) fn capture_at(seconds: &[u32], datagram: &[u8]) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let udp_length = (8 + datagram.len() as u16).to_be_bytes();
    let ip_length = (28 + datagram.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, 0, ip_length[0], ip_length[1], 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 0x30, 0x39, 0x18, 0xc7, udp_length[0], udp_length[1], 0, 0]);
    packet.extend(datagram);
    let mut words = vec![0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, RAW_IP];
    let mut file: Vec<u8> = words.drain(..).flat_map(u32::to_le_bytes).collect();
    for second in seconds {
        let length = packet.len() as u32;
        file.extend([*second, 250_000, length, length].into_iter().flat_map(u32::to_le_bytes));
        file.extend(&packet);
    }
    file
}

/// Head of agent 10.0.0.1, and a counters sample without records.
const COUNTERS_ALONE: [u32; 12] = [5, 1, 0x0a00_0001, 0, 9, 100, 1, 2, 12, 1, 7, 0];

/// 40 seconds of 2023, of which the clock of the capture host has spent one in the year 2100.
fn leapt() -> Vec<u8> {
    let seconds: Vec<u32> =
        (0..40).map(|n| if n == 20 { 4_102_444_800 } else { 1_700_000_000 + n }).collect();
    capture_at(&seconds, &COUNTERS_ALONE.map(u32::to_be_bytes).concat())
}

#[test]
fn one_wrong_clock_of_a_capture_deletes_no_rows() {
    let job = "name: clock\nsources: { sw: { type: pcap, path: clock.pcap } }\nsinks: { rows: { type: table, input: sw.counters, \
               retention: 30d } }\n";
    let place = Place::with(&[("job.yaml", job)]);
    place.write("clock.pcap", &leapt());
    for _ in 0..3 {
        place.thalweg(&["run", "job.yaml", "--data-dir", "D", "--quiet"]).ends_with(0);
        let sql = ["sql", "SELECT count(*) AS n FROM rows", "--data-dir", "D", "--format", "csv"];
        assert_eq!(place.thalweg(&sql).ends_with(0).stdout, "n\n40\n");
    }
}

#[test]
fn a_packet_that_is_too_far_ahead_of_now_is_a_reject() {
    let place = Place::with(&[("job.yaml", JOB)]);
    place.write("capture.pcap", &leapt());
    let run = |bound: &str| {
        let set = format!("sources.switches.max_ahead={bound}");
        let ended = place.thalweg(&[
            "run",
            "job.yaml",
            "--quiet",
            "--set",
            &set,
            "--set",
            "sources.switches.reject_limit=1",
        ]);
        (ended.ends_with(0).counts().2, place.read("rejects.ndjson"))
    };
    let (rejects, lines) = run("1h");
    assert_eq!(rejects, 1);
    assert!(
        lines.contains("\"code\":\"ahead\"")
            && lines.contains("event time 2100-01-01T00:00:00.25Z is more than 1h ahead of its arrival"),
        "{lines}"
    );
    assert_eq!(run("none").0, 0);
    assert_eq!(run("365000d").0, 0);
}

#[test]
fn captures_of_one_time_are_told_by_check() {
    let place = Place::with(&[("job.yaml", JOB)]);
    let datagram = COUNTERS_ALONE.map(u32::to_be_bytes).concat();
    let check = |second: u32| {
        place.write("a.pcap", &capture_at(&[1_700_000_000, 1_700_003_600], &datagram));
        place.write("b.pcap", &capture_at(&[second, second + 3_600], &datagram));
        place
            .thalweg(&["check", "job.yaml", "--set", "sources.switches.path=[a.pcap, b.pcap]"])
            .ends_with(0)
            .stderr
    };
    let said = check(1_700_000_060);
    assert!(said.contains("warning: source \"switches\" reads its inputs one after the other, and they overlap in time (1 of 2)"), "{said}");
    assert!(
        said.contains("hint: captures are read one after the other") && said.contains("mergecap"),
        "{said}"
    );
    assert_eq!(check(1_700_003_600), "");
}

#[test]
fn a_capture_gives_its_own_times_and_what_is_no_sflow_is_named() {
    let place = Place::with(&[("job.yaml", JOB)]);
    place.write("capture.pcap", &capture(&COUNTERS_ALONE.map(u32::to_be_bytes).concat()));
    place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert!(place.read("counters.ndjson").starts_with(r#"{"time":1700000000250000,"agent":"10.0.0.1""#));
    place.write("capture.pcap", &capture(&[0, 5, 0, 30, 0, 0, 0, 0]));
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(ended.counts(), (1, 1, 1));
    assert!(ended.stderr.contains("rejects of source switches: netflow: 1"), "{}", ended.stderr);
    let ended =
        place.thalweg(&["check", "job.yaml", "--set", "sources.switches.time=packet_time"]).ends_with(2);
    assert!(ended.stderr.contains("sets event time by itself and takes no \"time\""), "{}", ended.stderr);
    place.write("capture.pcap", b"no capture at all");
    let ended = place.thalweg(&["run", "job.yaml"]).ends_with(2);
    assert!(ended.stderr.contains("is no capture: expected pcap or pcapng"), "{}", ended.stderr);
}

#[test]
fn what_a_capture_left_out_is_in_the_summary() {
    let place = Place::with(&[("job.yaml", JOB)]);
    // Head of agent 10.0.0.1 with two counters samples without records; the capture has the first of them.
    let head = [5, 1, 0x0a00_0001, 0, 9, 100, 2, 2, 12, 1, 7, 0, 2, 12, 2, 7, 0];
    let mut file = capture(&head.map(u32::to_be_bytes).concat());
    let kept = file.len() - 20;
    file.truncate(kept);
    file[32..36].copy_from_slice(&((kept - 40) as u32).to_le_bytes());
    place.write("capture.pcap", &file);
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(ended.counts(), (1, 1, 0));
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.ends_with(" left_out=cut:1,malformed:1,missing:1"), "{last}");
    assert!(ended.stderr.contains("not all of the capture was used"), "{}", ended.stderr);
    place.write(
        "capture.pcap",
        &capture(&head[..12].iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>()),
    );
    let last = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0).stderr;
    assert!(last.contains("left_out=malformed:1,missing:1"), "announced and not there: {last}");
    // The second fragment of a datagram, alone: nothing of the capture is used.
    let mut file = capture(&[0; 16]);
    file[40 + 6] = 0;
    file[40 + 7] = 9;
    place.write("capture.pcap", &file);
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(ended.counts(), (0, 0, 0));
    assert!(ended.stderr.lines().last().unwrap().ends_with(" left_out=headless:1"), "{}", ended.stderr);
}

const JOINS: &str = "\
operators:
  as:
    type: range_join
    input: payments
    table: networks.csv
    header: true
    prefix: network
    schema: { network: ip, asn: uint64, name: string }
    on: { from: address }
  who:
    type: member_join
    input: as
    table: members.csv
    keys: [name]
    schema: { name: string, member: string }
    on: { from: from_name }
sinks:
  out: { type: file, input: who, path: out.csv, format: csv }
";

fn joins() -> Place {
    let job = format!(
        "name: joins\nsources:\n  payments: {{ type: file, path: in.csv, format: csv, schema: {{ address: ip? }} }}\n{JOINS}"
    );
    Place::with(&[
        ("job.yaml", &job),
        ("in.csv", "address\n192.0.2.1\n192.0.2.200\n198.51.100.1\n2001:db8::1\n\"\"\n"),
        (
            "networks.csv",
            "network,asn,name\n192.0.2.0/24,1,wide\n192.0.2.128/25,2,narrow\n2001:db8::/32,3,six\n",
        ),
        ("members.csv", "name,member\nwide,Alpha\nsix,Beta\n"),
    ])
}

#[test]
fn joins_add_the_values_of_the_rows_that_keys_lead_to() {
    let place = joins();
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(
        place.read("out.csv"),
        "address,from_asn,from_name,from_member\n192.0.2.1,1,wide,Alpha\n192.0.2.200,2,narrow,\n198.51.100.1,,,\n\
         2001:db8::1,3,six,Beta\n,,,\n"
    );
    assert_eq!(ended.counts(), (5, 5, 0));
}

#[test]
fn names_come_from_a_table_that_was_built_once() {
    let job = "\
name: names
sources:
  flows: { type: file, path: in.csv, format: csv, schema: { source: ip? } }
operators:
  names: { type: lookup_join, input: flows, table: names.thl, on: { src: source } }
sinks:
  out: { type: file, input: names, path: out.ndjson, format: ndjson }
";
    let place = Place::with(&[
        ("job.yaml", job),
        ("in.csv", "source\n192.0.2.1\n192.0.2.2\n192.0.2.3\n2001:db8::1\n\"\"\n"),
        (
            "names.csv",
            "192.0.2.1,host-192-0-2-1.isp.example\n2001:db8::1,six.example\n192.0.2.2,\nno address,x\n",
        ),
    ]);
    let build = ["table", "build-lookup", "names.csv", "--out", "names.thl"];
    let refused = place.thalweg(&build).ends_with(2);
    assert!(refused.stderr.contains("line 4"), "{}", refused.stderr);
    let built = place.thalweg(&[&build[..], &["--max-bad", "1"]].concat()).ends_with(0);
    assert!(built.stderr.contains("rows=3 empty=1 duplicates=0 bad=1"), "{}", built.stderr);
    let ended = place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0);
    assert_eq!(
        place.read("out.ndjson"),
        r#"{"source":"192.0.2.1","src_name":"host-192-0-2-1.isp.example"}
{"source":"192.0.2.2","src_name":""}
{"source":"192.0.2.3","src_name":null}
{"source":"2001:db8::1","src_name":"six.example"}
{"source":null,"src_name":null}
"#
    );
    assert_eq!(ended.counts(), (5, 5, 0));
    let told = place.thalweg(&["verify", "names.thl"]).ends_with(0);
    assert!(told.stdout.contains("lookup table: 3 rows") && told.stdout.contains("every byte was read"));
    let json = place.thalweg(&["inspect", "names.thl", "--json"]).ends_with(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["rows"], 3);

    let mut bytes = std::fs::read(place.path().join("names.thl")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write("names.thl", &bytes);
    // A bit without a meaning may change.
    let ended = place.thalweg(&["verify", "names.thl"]);
    assert!(matches!(ended.code, Some(0 | 3)), "{}", ended.stderr);
    bytes[40] ^= 1;
    place.write("names.thl", &bytes);
    let ended = place.thalweg(&["run", "job.yaml"]).ends_with(3);
    assert!(ended.stderr.contains("names.thl"), "{}", ended.stderr);
}

#[test]
fn mistakes_in_joins_are_told_with_their_places() {
    let check = |path: &str, expected: &str| {
        let ended = joins().thalweg(&["check", "job.yaml", "--set", path]).ends_with(2);
        assert!(ended.stderr.contains(expected), "{path}: {}", ended.stderr);
    };
    check("operators.as.on.from=adress", "names no field: \"adress\"");
    check("operators.as.prefix=range", "\"schema\" has no column \"range\"");
    check(
        "operators.who.on.from=from_asn",
        "\"from_asn\" of type uint64, and key \"name\" of the table is of type string",
    );
    check("operators.as.take=nam", "did you mean \"name\"?");
    let place = joins();
    place.write("networks.csv", b"network,asn,name\nhere,1,x\n");
    let ended = place.thalweg(&["run", "job.yaml"]).ends_with(2);
    assert!(ended.stderr.contains("networks.csv") && ended.stderr.contains("line 2"), "{}", ended.stderr);
}
