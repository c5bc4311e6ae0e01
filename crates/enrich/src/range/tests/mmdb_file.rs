//! Writes small databases in MaxMind's format, version 2, with records of 24 bits.
//!
//! Tree: nodes of two records each, one for a 0 and one for a 1; a record is a node, nothing (the number of
//! nodes), or a place in the data (that number, 16, and the place).
//! Sixteen zeros, the data, a marker, and a map that describes the file follow.

use std::net::Ipv6Addr;

/// A value of a record.
pub(super) enum Value {
    Text(&'static str),
    U16(u16),
    U32(u32),
    U64(u64),
    Double(f64),
    Bool(bool),
    List(Vec<Value>),
    Map(Vec<(&'static str, Value)>),
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Text(text) => head(out, 2, text.len(), text.as_bytes()),
            Value::Double(value) => head(out, 3, 8, &value.to_be_bytes()),
            Value::U16(value) => head(out, 5, 2, &value.to_be_bytes()),
            Value::U32(value) => head(out, 6, 4, &value.to_be_bytes()),
            Value::U64(value) => head(out, 9, 8, &value.to_be_bytes()),
            Value::Bool(value) => head(out, 14, usize::from(*value), &[]),
            Value::List(values) => {
                head(out, 11, values.len(), &[]);
                values.iter().for_each(|value| value.write(out));
            }
            Value::Map(entries) => {
                head(out, 7, entries.len(), &[]);
                for (key, value) in entries {
                    Value::Text(key).write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// Type and size, then the bytes; types from 8 on are in a byte of their own.
fn head(out: &mut Vec<u8>, kind: u8, size: usize, bytes: &[u8]) {
    let size = u8::try_from(size).ok().filter(|size| *size < 29).expect("a small value");
    if kind < 8 {
        out.push(kind << 5 | size);
    } else {
        out.extend([size, kind - 7]);
    }
    out.extend(bytes);
}

#[derive(Clone, Copy)]
enum Target {
    Nothing,
    Node(usize),
    Data(usize),
}

/// A database while it is put together.
pub(super) struct MmdbFile {
    version: u16,
    nodes: Vec<[Target; 2]>,
    data: Vec<u8>,
}

impl MmdbFile {
    pub(super) fn v4() -> Self {
        Self { version: 4, nodes: vec![[Target::Nothing; 2]], data: Vec::new() }
    }

    pub(super) fn v6() -> Self {
        Self { version: 6, ..Self::v4() }
    }

    /// Adds a record and gives its place.
    pub(super) fn record(&mut self, value: &Value) -> usize {
        let place = self.data.len();
        value.write(&mut self.data);
        place
    }

    /// Leads a network to a record; in a database of IPv4 the network is written as `::a.b.c.d/length`.
    pub(super) fn network(&mut self, network: &str, record: usize) {
        self.set(network, Target::Data(record));
    }

    /// Leads a network to where `::/96` leads.
    pub(super) fn alias(&mut self, network: &str) {
        let mut node = 0;
        for _ in 0..96 {
            let Target::Node(next) = self.nodes[node][0] else { panic!("no tree under ::/96") };
            node = next;
        }
        self.set(network, Target::Node(node));
    }

    /// Leads both sides of each of many nodes to the next one.
    pub(super) fn tangle(&mut self) {
        self.nodes = (1..120).map(|next| [Target::Node(next); 2]).collect();
        self.nodes.push([Target::Nothing; 2]);
    }

    fn set(&mut self, network: &str, target: Target) {
        let (address, length) = network.split_once('/').expect("a network");
        let bits = address.parse::<Ipv6Addr>().expect("an address").to_bits();
        let length: u32 = length.parse().expect("a length");
        let bits = if self.version == 4 { bits << 96 } else { bits };
        let mut node = 0;
        for depth in 0..length {
            let side = (bits >> (127 - depth) & 1) as usize;
            if depth + 1 == length {
                self.nodes[node][side] = target;
                return;
            }
            node = match self.nodes[node][side] {
                Target::Node(next) => next,
                Target::Nothing => {
                    self.nodes.push([Target::Nothing; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side] = Target::Node(next);
                    next
                }
                Target::Data(_) => panic!("networks of one tree do not overlap"),
            };
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for target in self.nodes.iter().flatten() {
            let number = match target {
                Target::Nothing => self.nodes.len(),
                Target::Node(node) => *node,
                Target::Data(place) => self.nodes.len() + 16 + place,
            };
            out.extend(&(number as u32).to_be_bytes()[1..]);
        }
        out.extend([0; 16]);
        out.extend(&self.data);
        out.extend(b"\xab\xcd\xefMaxMind.com");
        Value::Map(vec![
            ("node_count", Value::U32(self.nodes.len() as u32)),
            ("record_size", Value::U16(24)),
            ("ip_version", Value::U16(self.version)),
            ("database_type", Value::Text("Test")),
            ("languages", Value::List(Vec::new())),
            ("binary_format_major_version", Value::U16(2)),
            ("binary_format_minor_version", Value::U16(0)),
            ("build_epoch", Value::U64(1_700_000_000)),
            ("description", Value::Map(Vec::new())),
        ])
        .write(&mut out);
        out
    }
}
