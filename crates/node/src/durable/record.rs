//! A commit record: all that a job needs to go on from a cycle. JSON, so that `inspect` and people can read it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_types::{Error, Micros, Offset, Seq};

use crate::operator::PartName;
use crate::queries::QueryChange;

/// Persisted.
pub(super) const VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    pub version: u32,
    pub cycle: u64,
    /// The number after the cycle's marker.
    pub next: Seq,
    /// The job's clock at the marker, microseconds since the epoch.
    pub now: Micros,
    /// Record of the order log after the marker.
    pub order: u64,
    /// What the job was made of; see [`super::identity`].
    pub job: serde_json::Value,
    /// In the order in which the order log numbers them.
    pub sources: Vec<CommittedSource>,
    /// What each task's part said, by `operator/task`.
    pub parts: BTreeMap<String, Position>,
    /// Queries that were added and dropped while the job ran, the last change of each.
    #[serde(default)]
    pub queries: Vec<QueryChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommittedSource {
    pub name: String,
    pub next: Offset,
    pub place: Position,
}

/// Bytes that only their writer reads; base64 in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position(pub Vec<u8>);

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}

/// How the commit log of a job is distinguished from those of others.
pub(crate) fn identity(job: &str) -> u64 {
    thalweg_types::hash_bytes(format!("commit/{job}").as_bytes())
}

impl CommitRecord {
    pub(crate) fn part_name(operator: &str, task: u32) -> String {
        format!("{operator}/{task}")
    }

    pub(crate) fn part(&self, operator: &str, task: u32) -> Option<Vec<u8>> {
        self.parts.get(&Self::part_name(operator, task)).map(|position| position.0.clone())
    }

    /// What the tasks of all parts said.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (PartName, u32, &[u8])> {
        self.parts.iter().filter_map(|(name, position)| {
            let (part, task) = name.rsplit_once('/')?;
            Some((PartName::parse(part), task.parse().ok()?, position.0.as_slice()))
        })
    }

    /// The record of a job that has done nothing yet.
    pub(crate) fn beginning() -> Self {
        Self {
            version: VERSION,
            cycle: 0,
            next: 0,
            now: 0,
            order: 0,
            job: serde_json::Value::Null,
            sources: Vec::new(),
            parts: BTreeMap::new(),
            queries: Vec::new(),
        }
    }

    /// # Errors
    /// Of class internal: every field can be written as JSON.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|error| Error::internal("write a commit record").with_source(error))
    }

    /// # Errors
    /// Where it is no record, or one of a newer format.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let damaged = |error| Error::corrupt("the last commit record cannot be read").with_source(error);
        let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
        if head.version > VERSION {
            return Err(Error::user(format!(
                "the job's commit record has format version {}, this program reads versions up to {VERSION}",
                head.version
            ))
            .with_hint("run the version that wrote it, or a newer one"));
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_newer_one_is_refused() {
        let record = CommitRecord {
            version: VERSION,
            cycle: 7,
            next: 99,
            now: -1,
            order: 12,
            job: serde_json::json!({ "sources": [] }),
            sources: vec![CommittedSource {
                name: "in".to_owned(),
                next: 5,
                place: Position(vec![0, 255, 3]),
            }],
            parts: BTreeMap::from([("features/card/0".to_owned(), Position(Vec::new()))]),
            queries: vec![QueryChange {
                operator: "features".to_owned(),
                query: "n".to_owned(),
                text: Some("SELECT count(*) FROM p OVER INFINITE".to_owned()),
                dropped: None,
            }],
        };
        let bytes = record.encode().unwrap();
        assert_eq!(CommitRecord::decode(&bytes).unwrap(), record);
        assert_eq!(record.part("features/card", 0), Some(Vec::new()));
        assert_eq!(record.part("features/card", 1), None);
        let name = PartName { operator: "features".into(), label: Some("card".into()) };
        assert_eq!(record.tasks().collect::<Vec<_>>(), [(name, 0, &[][..])]);
        let newer = String::from_utf8(bytes).unwrap().replacen("\"version\":1", "\"version\":2", 1);
        let error = CommitRecord::decode(newer.as_bytes()).unwrap_err();
        assert_eq!(error.class(), thalweg_types::Class::User);
        assert_eq!(CommitRecord::decode(b"{}").unwrap_err().class(), thalweg_types::Class::Corrupt);
    }
}
