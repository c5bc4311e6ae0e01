//! Messages of 500 bytes, as Chimera's were (Lau, Maresca, *Chimera*, 2017, section V): points in line protocol with four tags, sixteen
//! numbers and a text that fills them up. Functions of their number.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use thalweg_connect::{FormatSpec, Options, Registry, SourceContext, SourceTime};
use thalweg_types::{DataType, Field, Schema, TimeUnit};

/// Bytes of a message with its line end.
pub(crate) const BYTES: usize = 500;

/// Numbers in a message.
const NUMBERS: usize = 16;

/// 2026-01-01, in nanoseconds.
const FIRST: u64 = 1_767_225_600_000_000_000;

/// The fields of a message.
pub(crate) fn schema() -> Schema {
    let text = |name: &str| Field::new(name, DataType::String);
    let mut fields = vec![text("measurement"), text("host"), text("region"), text("rack"), text("service")];
    fields.extend((0..NUMBERS).map(|number| Field::new(format!("f{number:02}"), DataType::Float64)));
    fields.push(text("note"));
    fields.push(Field::new("time", DataType::Timestamp(TimeUnit::Micro)));
    Schema::new(fields)
}

/// Where the field is by which links spread messages.
pub(crate) const HOST: usize = 1;

/// Appends a message.
pub(crate) fn write(number: u64, line: &mut Vec<u8>) {
    let start = line.len();
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    line.extend_from_slice(
        format!(
            "machine,host=h{:04},region=r{},rack=k{:02},service=s{:03} ",
            noise % 1_000,
            noise % 8,
            noise % 40,
            noise % 300
        )
        .as_bytes(),
    );
    for field in 0..NUMBERS as u64 {
        let value = (noise >> field) % 1_000_000;
        let text = format!("f{field:02}={}.{:03},", value / 1_000, value % 1_000);
        line.extend_from_slice(text.as_bytes());
    }
    let end = format!("\" {}\n", FIRST + number * 1_000);
    line.extend_from_slice(b"note=\"");
    let text = b"what a machine has to say about itself, ";
    let filler = (BYTES - end.len()).saturating_sub(line.len() - start);
    line.extend(text.iter().cycle().take(filler));
    line.extend_from_slice(end.as_bytes());
}

/// Blocks of whole messages of at most `block` bytes each.
pub(crate) fn blocks(count: u64, block: usize) -> Vec<Bytes> {
    let per_block = (block / BYTES).max(1) as u64;
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < count {
        let mut bytes = Vec::with_capacity(per_block as usize * BYTES);
        (first..(first + per_block).min(count)).for_each(|number| write(number, &mut bytes));
        blocks.push(Bytes::from(bytes));
        first += per_block;
    }
    blocks
}

/// Line protocol, as a job file without options has it.
pub(crate) fn format() -> Result<FormatSpec> {
    let registry = Registry::builtin();
    let plugin = Arc::clone(registry.format("line_protocol").context("this build reads line protocol")?);
    Ok(FormatSpec { plugin, options: Options::default() })
}

/// A source of messages, as far as decoders need to know.
pub(crate) fn source() -> Result<SourceContext> {
    let (time, _) = schema().field("time").context("messages have a time")?;
    Ok(SourceContext {
        job: "stages".into(),
        name: "messages".into(),
        schema: schema(),
        format: Some(format()?),
        options: Options::default(),
        time: SourceTime::Field(time),
        max_ahead: None,
        data_dir: PathBuf::new(),
        skip: [].into(),
        acknowledges: false,
        goes_on: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_size_and_are_told_apart() {
        let mut lines = std::collections::HashSet::new();
        for number in [0, 1, 999, 1_000_000, 123_456_789] {
            let mut line = Vec::new();
            write(number, &mut line);
            assert_eq!(line.len(), BYTES, "{}", String::from_utf8_lossy(&line));
            assert!(lines.insert(line));
        }
        let blocks = blocks(1_001, 64 << 10);
        assert_eq!(blocks.iter().map(Bytes::len).sum::<usize>(), 1_001 * BYTES);
        assert!(blocks.iter().all(|block| block.len() <= 64 << 10));
    }
}
