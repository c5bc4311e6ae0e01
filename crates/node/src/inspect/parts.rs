//! What tasks' parts of a commit record say: only their writers know, so a new kind of part that names files is a line
//! here.

use std::ops::Range;

use serde::Deserialize;
use thalweg_connect::sink::position::FilePosition;
use thalweg_connect::sink::running::Sum;
use thalweg_state::{Version, indexed};
use thalweg_storage::ChunkId;

use crate::operator::metrics::durable as stages;

/// What a part names on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims {
    /// A version of keyed state in the task's folder.
    pub(super) state: Option<Version>,
    /// Chunks of a reservoir in the task's folder.
    pub(super) chunks: Option<Range<ChunkId>>,
    /// A file of rejects and its length.
    pub(super) rejects: Option<RejectsClaim>,
    /// Where a sink is in its file. Other writers may have used the words of older builds, too.
    pub(super) file: Option<FilePosition>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RejectsClaim {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// By source; only to distinguish it from other JSON.
    counts: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    known: RejectsKnown,
}

/// The part of the claim by which the file is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct RejectsKnown {
    #[serde(default)]
    sum: Option<Sum>,
}

impl RejectsClaim {
    /// The checksum of the file, where it was written down.
    pub(super) fn sum(&self) -> Option<Sum> {
        self.known.sum
    }
}

pub(super) fn claims(part: &[u8]) -> Claims {
    Claims {
        state: indexed::version_in(part),
        chunks: stages::chunks_in(part),
        rejects: serde_json::from_slice(part).ok(),
        file: FilePosition::decode(part),
    }
}

/// A part in words; `None` if no decoder here understands it.
pub(super) fn words(part: &[u8]) -> Option<String> {
    let Claims { state, chunks, rejects, file } = claims(part);
    let file = file.and_then(|file| Some((file.bytes, file.identity?)));
    let file = file.map(|(bytes, file)| format!("{} up to byte {bytes}, {}", file.path, file.format));
    let rejects = rejects.map(|claim| {
        let counts = claim.counts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let of = if counts.is_empty() { String::new() } else { format!(" of {counts}") };
        format!("rejects-{}.ndjson up to byte {}{of}", claim.number, claim.bytes)
    });
    let chunks = chunks.filter(|chunks| !chunks.is_empty());
    let chunks = chunks.map(|chunks| format!("{} up to before {}", chunks.start, chunks.end));
    let state = state.and_then(|version| indexed::describe(&version));
    let state = state.or_else(|| crate::remote::describe_in(part));
    let said: Vec<String> = [state, chunks, rejects, file].into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        assert_eq!(claims(&[]), Claims::default());
        assert_eq!(words(&[]), None);
        let length = 77_u64.to_le_bytes();
        assert_eq!((claims(&length).file.map(|file| file.bytes), words(&length)), (Some(77), None));
        let file = br#"{"bytes":77,"path":"/a/out.csv","format":"csv","begin":"n\n","last":5}"#;
        assert_eq!(words(file).as_deref(), Some("/a/out.csv up to byte 77, csv"));
        let rejects = br#"{"number":2,"bytes":90,"counts":{"payments":{"by_code":{"parse":1},"first":"x"}}}"#;
        assert_eq!(words(rejects).as_deref(), Some("rejects-2.ndjson up to byte 90 of payments"));
        assert_eq!(words(b"{\"number\":2}"), None);
    }
}
