//! What tasks' parts of a commit record say: only who wrote them knows, so a new kind of part that names files is a line
//! here.

use std::ops::Range;

use serde::Deserialize;
use thalweg_state::{Version, indexed};
use thalweg_storage::ChunkId;

use crate::metrics::durable as stages;

/// What a part names on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claims {
    /// A version of keyed state in the task's folder.
    pub(super) state: Option<Version>,
    /// Chunks of a reservoir in the task's folder.
    pub(super) chunks: Option<Range<ChunkId>>,
    /// A file of rejects and its length.
    pub(super) rejects: Option<RejectsClaim>,
    /// What the part of a sink that writes a file is: its length. Others may have as many bytes.
    pub(super) length: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct RejectsClaim {
    pub(super) number: u64,
    pub(super) bytes: u64,
    /// By source; only to tell it from other JSON.
    counts: serde_json::Map<String, serde_json::Value>,
}

pub(super) fn claims(part: &[u8]) -> Claims {
    Claims {
        state: indexed::version_in(part),
        chunks: stages::chunks_in(part),
        rejects: serde_json::from_slice(part).ok(),
        length: part.try_into().ok().map(u64::from_le_bytes),
    }
}

/// A part in words; `None` where nobody here understands it.
pub(super) fn words(part: &[u8]) -> Option<String> {
    let Claims { state, chunks, rejects, .. } = claims(part);
    let rejects = rejects.map(|claim| {
        let counts = claim.counts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let of = if counts.is_empty() { String::new() } else { format!(" of {counts}") };
        format!("rejects-{}.ndjson up to byte {}{of}", claim.number, claim.bytes)
    });
    let chunks = chunks.filter(|chunks| !chunks.is_empty());
    let chunks = chunks.map(|chunks| format!("{} up to before {}", chunks.start, chunks.end));
    let state = state.and_then(|version| indexed::describe(&version));
    let state = state.or_else(|| thalweg_state_remote::describe_in(part));
    let said: Vec<String> = [state, chunks, rejects].into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        assert_eq!(claims(&[]), Claims::default());
        assert_eq!(words(&[]), None);
        assert_eq!((claims(&77_u64.to_le_bytes()).length, words(&77_u64.to_le_bytes())), (Some(77), None));
        let rejects = br#"{"number":2,"bytes":90,"counts":{"payments":{"by_code":{"parse":1},"first":"x"}}}"#;
        assert_eq!(words(rejects).as_deref(), Some("rejects-2.ndjson up to byte 90 of payments"));
        assert_eq!(words(b"{\"number\":2}"), None);
    }
}
