//! Documents that are built in, one line each.

/// A page of `docs/`.
pub(super) struct Document {
    /// Its file's name without the end.
    pub(super) name: &'static str,
    /// One line.
    pub(super) doc: &'static str,
    pub(super) text: &'static str,
}

macro_rules! documents {
    ($($name:literal: $doc:literal,)*) => {
        &[$(Document { name: $name, doc: $doc, text: include_str!(concat!("../../../../docs/", $name, ".md")) },)*]
    };
}

/// In the order of `thalweg help topics`. `jobs` is not among them: it is generated for the plug-ins of this build.
pub(super) const DOCUMENTS: &[Document] = documents! {
    "tour": "twenty minutes from a first job to SQL",
    "windows": "window queries: windows, aggregates, keys, late records",
    "expressions": "conditions and values in queries, filters and maps",
    "sql": "SQL over the tables of jobs: functions, views, rollups, limits",
    "samples": "packet samples of switches and routers, and the tables to join them with",
    "http": "the HTTP interface: routes, replies, errors",
    "metrics": "what /metrics prints, what to do about it, alerts",
    "operations": "running jobs: start and stop, the data directory, crashes, limits",
    "cluster": "one job on several nodes, over Kafka",
    "reliability": "failures and their effects",
    "compatibility": "guarantees from release to release",
    "glossary": "the words of these documents",
    "papers": "the publications that the engine builds on",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_has_a_line() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut missing = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(name) = name.strip_suffix(".md") else { continue };
            if name != "jobs" && !DOCUMENTS.iter().any(|document| document.name == name) {
                missing.push(name.to_owned());
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "add them to DOCUMENTS");
    }
}
