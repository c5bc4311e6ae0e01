//! The last record of a commit log: records are JSON, so they can be found without knowing the format around them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const BEGIN: &[u8] = br#"{"version":"#;

/// What a commit record says, as far as oracles look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) cycle: u64,
    /// Record of the order log after the cycle's marker.
    pub(crate) order: u64,
    /// Source names by their number in the order log, and the offset that each goes on with.
    pub(crate) sources: Vec<(String, u64)>,
    /// Positions by `operator/task`.
    parts: BTreeMap<String, Vec<u8>>,
}

impl Commit {
    /// The length of a sink's file at the commit.
    pub(crate) fn length(&self, sink: &str) -> Result<usize> {
        let Some(position) = self.parts.get(&format!("{sink}/0")) else { return Ok(0) };
        let position: Value = serde_json::from_slice(position).context("a sink's position is no JSON")?;
        let bytes = position["bytes"].as_u64().context("a sink's position says no length")?;
        Ok(usize::try_from(bytes)?)
    }

    fn parse(json: &Value) -> Option<Self> {
        let mut sources = Vec::new();
        for source in json["sources"].as_array()? {
            sources.push((source["name"].as_str()?.to_owned(), source["next"].as_u64()?));
        }
        let mut parts = BTreeMap::new();
        for (name, position) in json["parts"].as_object()? {
            parts.insert(name.clone(), base64(position.as_str()?)?);
        }
        Some(Self { cycle: json["cycle"].as_u64()?, order: json["order"].as_u64()?, sources, parts })
    }
}

/// The last whole record of a commit log; `None` if it has no record.
pub(super) fn last(path: &Path) -> Result<Option<Commit>> {
    let bytes = super::bytes(path)?;
    let mut last = None;
    for at in 0..bytes.len() {
        if !bytes[at..].starts_with(BEGIN) {
            continue;
        }
        // What a crash has cut short is no JSON, and comes last.
        let mut values = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter::<Value>();
        if let Some(Ok(json)) = values.next() {
            let commit = Commit::parse(&json).with_context(|| format!("unexpected commit record {json}"))?;
            if let Some(last) = &last {
                let Commit { cycle, .. } = last;
                ensure!(commit.cycle >= *cycle, "the commit log has cycle {} after {cycle}", commit.cycle);
            }
            last = Some(commit);
        }
    }
    Ok(last)
}

/// Base64 with padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_record_counts() {
        let record = |cycle: u64| {
            format!(
                r#"{{"version":1,"cycle":{cycle},"order":{},"sources":[{{"name":"a","next":7,"place":""}}],"parts":{{"out/0":"eyJieXRlcyI6NTh9"}}}}"#,
                cycle * 10
            )
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("commit.log");
        assert_eq!(last(&path).unwrap(), None);
        std::fs::write(&path, format!("\x01\x02{}\x03{}\x04{}", record(1), record(2), &record(3)[..50]))
            .unwrap();
        let commit = last(&path).unwrap().unwrap();
        assert_eq!((commit.cycle, commit.order, commit.length("out").unwrap()), (2, 20, 58));
        assert_eq!((commit.sources, commit.parts.len()), (vec![("a".to_owned(), 7)], 1));
        std::fs::write(&path, format!("{}{}", record(2), record(1))).unwrap();
        assert!(last(&path).is_err(), "cycles that go back");
    }

    #[test]
    fn base64_is_read() {
        assert_eq!(base64("").unwrap(), b"");
        assert_eq!(base64("Zg==").unwrap(), b"f");
        assert_eq!(base64("Zm9vYmE=").unwrap(), b"fooba");
        assert_eq!(base64("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        assert_eq!(base64("*"), None);
    }
}
