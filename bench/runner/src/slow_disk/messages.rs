//! Messages of 500 bytes, as those of Lau and Maresca (2017, section V) were, and the job that takes them from standard
//! input: points in line protocol with four tags, sixteen numbers and a text that fills them up.

use serde_json::json;

/// Bytes of a message with its line end.
pub(super) const BYTES: usize = 500;

/// Numbers in a message.
const NUMBERS: u64 = 16;

/// 2026-01-01, in nanoseconds.
const FIRST: u64 = 1_767_225_600_000_000_000;

/// So many messages, one after the other.
pub(super) fn make(count: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(count as usize * BYTES);
    (0..count).for_each(|number| write(number, &mut text));
    text
}

fn write(number: u64, line: &mut Vec<u8>) {
    let start = line.len();
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let tags = [noise % 1_000, noise % 8, noise % 40, noise % 300];
    let head = format!(
        "machine,host=h{:04},region=r{},rack=k{:02},service=s{:03} ",
        tags[0], tags[1], tags[2], tags[3]
    );
    line.extend_from_slice(head.as_bytes());
    for field in 0..NUMBERS {
        let value = (noise >> field) % 1_000_000;
        let text = format!("f{field:02}={}.{:03},", value / 1_000, value % 1_000);
        line.extend_from_slice(text.as_bytes());
    }
    let end = format!("\" {}\n", FIRST + number * 1_000);
    line.extend_from_slice(b"note=\"");
    let filler = (BYTES - end.len()).saturating_sub(line.len() - start);
    line.extend(b"what a machine has to say about itself, ".iter().cycle().take(filler));
    line.extend_from_slice(end.as_bytes());
}

/// Journal `synced`, parsed, spread by key, digested.
pub(super) fn job() -> String {
    let mut schema = serde_json::Map::new();
    for name in ["measurement", "host", "region", "rack", "service", "note"] {
        schema.insert(name.to_owned(), json!("string"));
    }
    for number in 0..16 {
        schema.insert(format!("f{number:02}"), json!("float64"));
    }
    schema.insert("time".to_owned(), json!("timestamp(us)"));
    let job = json!({
        "name": "messages",
        "cycle": {"every": "1s"},
        "sources": {"messages": {
            "type": "stdin",
            "format": "line_protocol",
            "tags": ["host", "region", "rack", "service"],
            "schema": schema,
            "time": "time",
            "ack": "synced",
        }},
        "operators": {"spread": {
            "type": "relay",
            "input": {"from": "messages", "partition": "key(host)"},
        }},
        "sinks": {"out": {"type": "null", "input": "spread"}},
    });
    format!("{job:#}\n")
}

#[test]
fn messages_have_their_size_and_are_told_apart() {
    let text = make(1_000);
    let lines: std::collections::HashSet<&[u8]> = text.chunks(BYTES).collect();
    assert_eq!((text.len(), lines.len()), (1_000 * BYTES, 1_000));
    assert!(lines.iter().all(|line| line.ends_with(b"\n")));
}
