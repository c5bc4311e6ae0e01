//! Rows of flows and counters compared with tshark's dissection of the same captures.
//!
//! Every field that tshark shows of a datagram, a sample or a record is either compared or named as one that says nothing of
//! a row, and so are the fields of the sampled packet that a row has. Differences and their reasons are in
//! [`DIFFERENCES`]; any other difference, a title or a field that is not known here, and a difference that is gone,
//! fail.

mod fields;
mod pdml;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use self::fields::{As, DATAGRAM, HEADERS, SAMPLE};
use self::pdml::Node;
use super::examples::data;
use super::samples::{capture, samples};

/// Differences that are understood: tshark's title of a record or a sample, after the capture if it is there alone, and
/// the reason that its fields are not compared.
const DIFFERENCES: [(&str, &str); 5] = [
    (
        "Unknown sample format",
        "tshark 4.0 does not step over a record of a kind that it does not know, and takes its inside and all that follows in the sample for records; those of a discarded packet (format 5) it does not know at all",
    ),
    (
        "LAG counters",
        "tshark 4.0 leaves out the last of the twelve counters, takes the two bytes after each system id for padding, and is lost after the record",
    ),
    (
        "gopacket-SFlowTestPacket5.pcap, Extended router data",
        "the sample says that it is 4 bytes shorter than its record; tshark reads on, we believe no length and read what both allow",
    ),
    ("gopacket-SFlowTestPacket8.pcap, Extended router data", "the same with 16 bytes"),
    ("Extended URL data", "which URL was asked for is no part of a row"),
];

/// What was compared, and how often a difference that is understood was met.
#[derive(Default)]
struct Compared {
    values: usize,
    differences: BTreeMap<&'static str, usize>,
}

impl Compared {
    fn is_difference(&mut self, title: &str) -> bool {
        let Some((known, _)) = DIFFERENCES.iter().find(|(known, _)| *known == title) else { return false };
        *self.differences.entry(known).or_default() += 1;
        true
    }

    /// Compares one value; `what` says where it is.
    fn field(&mut self, row: &Value, how: As, show: &str, what: &str) {
        let number = || match show.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => show.parse().ok(),
        };
        let (field, expected, got) = match how {
            As::Nothing => return,
            As::Same(field) => {
                let expected = match number() {
                    Some(number) => Value::from(number),
                    // IPv6 addresses are written in more than one way.
                    None => Value::from(
                        show.parse::<IpAddr>()
                            .map_or_else(|_| show.to_owned(), |address| address.to_string()),
                    ),
                };
                (field, expected, row[field].clone())
            }
            As::Bit(field, bit) => {
                let got = row[field].as_u64().map(|number| number >> bit & 1);
                (field, Value::from(number()), Value::from(got))
            }
            As::Flag(field) => (field, Value::from(show == "1"), row[field].clone()),
            As::Byte(field) => (field, Value::from(number().map(|number| number & 0xff)), row[field].clone()),
        };
        assert_eq!(got, expected, "{what}: {field} in {row}");
        self.values += 1;
    }

    fn sample(&mut self, datagram: &[Node], sample: &Node, row: &Value, what: &str) {
        let what = format!("{what}, {}", sample.show);
        for node in datagram.iter().filter(|node| !node.is_group()) {
            let how = fields::of(DATAGRAM, &node.name)
                .unwrap_or_else(|| panic!("{what}: {} is not known", node.name));
            self.field(row, how, &node.show, &what);
        }
        for node in sample.children.iter().filter(|node| !node.is_group()) {
            let how = fields::of(SAMPLE, &node.name)
                .unwrap_or_else(|| panic!("{what}: {} is not known", node.name));
            self.field(row, how, &node.show, &what);
        }
        self.interface(sample, row, "input", &what);
        self.interface(sample, row, "output", &what);
        for record in sample.children.iter().filter(|node| node.is_group()) {
            let in_capture = format!("{}, {}", what.split(',').next().unwrap_or_default(), record.show);
            if self.is_difference(&record.show) || self.is_difference(&in_capture) {
                if matches!(record.show.as_str(), "Unknown sample format" | "LAG counters") {
                    return;
                }
                continue;
            }
            self.record(record, row, &format!("{what}, {}", record.show));
        }
    }

    fn record(&mut self, record: &Node, row: &Value, what: &str) {
        for node in &record.children {
            let how = fields::of_record(&record.show, &node.name)
                .unwrap_or_else(|| panic!("{what}: {} is not known", node.name));
            self.field(row, how, &node.show, what);
            if node.name == "sflow_245.header" {
                self.headers(node, row, what);
            }
        }
        if record.show == "Extended gateway data" {
            self.gateway(record, row, what);
        }
    }

    /// The sampled packet: the first of each of its headers.
    fn headers(&mut self, header: &Node, row: &Value, what: &str) {
        let type_of = header.protocol("vlan").and_then(|vlan| vlan.find("vlan.etype"));
        if let Some(ethertype) = type_of.or_else(|| header.find("eth.type")) {
            self.field(row, As::Same("ethertype"), &ethertype.show, what);
        }
        for (protocol, fields) in HEADERS {
            let Some(protocol) = header.protocol(protocol) else { continue };
            for (name, how) in *fields {
                // A header that is cut ends earlier.
                if let Some(node) = protocol.find(name) {
                    self.field(row, *how, &node.show, what);
                }
            }
        }
    }

    fn gateway(&mut self, record: &Node, row: &Value, what: &str) {
        let numbers = |node: &Node| -> Vec<u32> {
            node.children.iter().map(|child| child.show.parse().expect("an AS number")).collect()
        };
        let (mut path, mut communities) = (Vec::new(), Vec::new());
        for node in &record.children {
            let numbers = numbers(node);
            let texts =
                |separator: &str| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(separator);
            match (node.name.as_str(), node.show.as_str()) {
                ("sflow.as_type", "1") => path.push(format!("{{{}}}", texts(","))),
                ("sflow.as_type", _) => path.push(texts(" ")),
                ("sflow_245.communityEntries", _) => {
                    communities
                        .extend(numbers.iter().map(|number| format!("{}:{}", number >> 16, number & 0xffff)));
                }
                _ => {}
            }
        }
        assert_eq!(row["as_path"], path.join(" "), "{what}");
        assert_eq!(row["communities"], communities.join(" "), "{what}");
        self.values += 2;
    }

    /// An interface: an index, the reason for a discarded packet, or how many there are.
    fn interface(&mut self, sample: &Node, row: &Value, side: &str, what: &str) {
        let field = |suffix: &str| sample.find(&format!("sflow.flow_sample.{side}_interface{suffix}"));
        let number =
            |node: &Node| -> u64 { node.show.parse().unwrap_or_else(|_| panic!("{what}: {}", node.show)) };
        let (format, value) =
            match (field("_format").or_else(|| field(".format")), field("_value"), field("")) {
                (Some(format), Some(value), _) => (number(format), number(value)),
                (None, None, Some(whole)) => (0, number(whole)),
                _ => return,
            };
        let (index, kind) = match (format, value) {
            (0, 0) => (None, "unknown"),
            (0, 0x3fff_ffff) => (None, "internal"),
            (0, index) => (Some(index), "interface"),
            (1, _) => (None, "discarded"),
            (2, _) => (None, "multiple"),
            _ => panic!("{what}: interface format {format}"),
        };
        let short = if side == "input" { "in" } else { "out" };
        assert_eq!(row[format!("{short}_if_kind")], kind, "{what}: {side}");
        assert_eq!(row[format!("{short}_if")].as_u64(), index, "{what}: {side}");
        if format == 1 {
            assert_eq!(row["discard_reason"].as_u64(), Some(value), "{what}: {side}");
        }
        if format == 2 {
            assert_eq!(row["out_if_count"].as_u64(), (value > 0).then_some(value), "{what}: {side}");
        }
        self.values += 2;
    }

    /// One capture, sample by sample in the order of each kind.
    fn capture(&mut self, path: &Path) {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let ours = samples(path.to_owned());
        let (mut flows, mut counters) = (ours.flows.iter(), ours.counters.iter());
        let (mut number, mut unread) = (0, 0);
        pdml::packets(&dissect(path), |packet| {
            number += 1;
            let what = format!("{name}, packet {number}");
            let Some(sflow) = packet.protocol("sflow") else {
                // tshark decodes no packets other than sFlow.
                unread += 1;
                return;
            };
            let datagram = &sflow.children;
            let samples = datagram.iter().filter(|node| node.is_group());
            if sflow.find("sflow_245.numsamples").is_none() {
                unread += 1;
                return;
            }
            for sample in samples {
                let row = match sample.title() {
                    "Flow sample" | "Expanded flow sample" => flows.next(),
                    "Counters sample" | "Expanded counters sample" => counters.next(),
                    title if self.is_difference(title) => {
                        // It shows no more of unknown parts.
                        flows.next();
                        continue;
                    }
                    title => panic!("{what}: a sample of a kind that is not known here: {title}"),
                };
                let row = row.unwrap_or_else(|| panic!("{what}: no row for {}", sample.show));
                self.sample(datagram, sample, row, &what);
            }
        });
        assert_eq!((flows.next(), counters.next()), (None, None), "{name} has more rows than samples");
        assert_eq!(ours.rejects.len(), unread, "{name}: datagrams that neither reads");
    }
}

fn dissect(capture: &Path) -> String {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-d", "udp.port==6343,sflow", "-J", "sflow", "-T", "pdml", "-r"]).arg(capture);
    let output = tshark.output().expect("tshark is on the path");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn files(folder: PathBuf, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

#[test]
#[ignore = "reads real data that is no part of the project, with tshark: cargo xtask test runs it where both are there"]
fn real_data_rows_agree_with_what_tshark_dissects() {
    let mut compared = Compared::default();
    let captures = files(data().join("sflow"), "pcap");
    assert_eq!(captures.len(), 5);
    for path in &captures {
        compared.capture(path);
    }
    let datagrams = files(data().join("sflow/raw"), "bin");
    assert_eq!(datagrams.len(), 19);
    let folder = tempfile::tempdir().unwrap();
    for path in &datagrams {
        let packed = folder.path().join(path.file_name().unwrap()).with_extension("pcap");
        std::fs::write(&packed, capture(&std::fs::read(path).unwrap())).unwrap();
        compared.capture(&packed);
    }
    assert!(compared.values > 150_000, "only {} values were compared", compared.values);
    for (title, reason) in DIFFERENCES {
        assert!(compared.differences.contains_key(title), "gone: {title} ({reason})");
    }
}
