//! `max_ahead`: every type of source takes it.

use thalweg_connect::{Reach, Registry};
use thalweg_types::Micros;

use crate::operator::Operators;

use super::super::{CheckOptions, JobFile};

const HOUR: Option<Micros> = Some(3_600_000_000);

/// Required keys of each type of source, and the default of the limit.
const SOURCES: &[(&str, &str, Option<Micros>)] = &[
    ("file", "path: a.csv, schema: { t: timestamp(s) }, time: t", None),
    ("file", "path: a.csv, follow: true, schema: { t: timestamp(s) }, time: t", HOUR),
    ("stdin", "format: csv, schema: { t: timestamp(s) }, time: t", None),
    ("http", "schema: { t: timestamp(s) }, time: t", HOUR),
    ("tcp", "listen: '127.0.0.1:0', format: csv, schema: { t: timestamp(s) }, time: t", HOUR),
    ("udp", "listen: '127.0.0.1:0', format: csv, header: false, schema: { t: timestamp(s) }, time: t", HOUR),
    ("sflow", "listen: '127.0.0.1:0'", HOUR),
    ("pcap", "path: a.pcap", None),
    ("generator", "count: 1", None),
    #[cfg(feature = "kafka")]
    ("kafka", "brokers: '127.0.0.1:9092', topics: t, schema: { t: timestamp(s) }, time: t", HOUR),
    #[cfg(feature = "kafka")]
    (
        "kafka",
        "brokers: '127.0.0.1:9092', topics: t, until: latest, schema: { t: timestamp(s) }, time: t",
        None,
    ),
];

fn checked(kind: &str, keys: &str) -> Result<Option<Micros>, String> {
    let options = CheckOptions {
        registry: Registry::builtin(),
        operators: Operators::builtin(),
        workers: 1,
        reach: Reach::anything(),
    };
    let text = format!("name: j\nsources: {{ s: {{ type: {kind}, {keys} }} }}\n");
    let job = JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(&options));
    job.map(|job| job.sources[0].max_ahead).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn every_type_of_source_takes_a_bound_for_times_that_are_ahead() {
    let registry = Registry::builtin();
    for plugin in registry.sources() {
        assert!(SOURCES.iter().any(|(kind, ..)| *kind == plugin.name()), "{} is not tried", plugin.name());
    }
    for (kind, keys, default) in SOURCES {
        assert_eq!(checked(kind, keys), Ok(*default), "{kind}");
        let with = |bound: &str| checked(kind, &format!("{keys}, max_ahead: {bound}"));
        assert_eq!(with("5m"), Ok(Some(300_000_000)), "{kind}");
        assert_eq!(with("none"), Ok(None), "{kind}");
        for bound in ["never", "-1s", "5", "[1h]"] {
            let refused = with(bound).unwrap_err();
            assert!(refused.contains("\"max_ahead\" of source \"s\""), "{kind} {bound}: {refused}");
            assert!(refused.contains("or none"), "{kind} {bound}: {refused}");
        }
    }
}
