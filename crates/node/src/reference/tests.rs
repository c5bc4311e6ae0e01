//! The committed reference is today's, and its examples are job files that pass the checks.

use expect_test::expect_file;

use super::*;
use crate::Node;
use crate::job_file::JobFile;

#[test]
fn docs_jobs_md_is_what_the_tables_say() {
    let options = Node::builder();
    let reference = reference(&options.registry, &options.operators);
    expect_file!["../../../../docs/jobs.md"].assert_eq(&reference);
}

#[test]
fn every_plug_in_has_an_example_that_passes_the_checks() {
    let options = Node::builder();
    let mut all: Vec<(Kind, &str)> = Vec::new();
    all.extend(options.registry.sources().iter().map(|plugin| (Kind::Source, plugin.name())));
    all.extend(options.registry.formats().iter().map(|plugin| (Kind::Format, plugin.name())));
    all.extend(options.operators.all().iter().map(|plugin| (Kind::Operator, plugin.name())));
    all.extend(options.registry.sinks().iter().map(|plugin| (Kind::Sink, plugin.name())));
    for (kind, name) in all {
        let text = example(kind, name).unwrap_or_else(|| panic!("no example of {kind:?} {name}"));
        assert!(text.contains(name), "the example of {kind:?} {name} does not use it");
        let job = JobFile::parse(name, text, &[]).and_then(|file| file.check(&options.check_options()));
        if let Err(mistakes) = job {
            panic!("the example of {kind:?} {name}: {mistakes}");
        }
    }
}

#[test]
fn a_plug_in_can_be_asked_for_by_name() {
    let options = Node::builder();
    let about = |name: &str| super::about(&options.registry, &options.operators, name);
    let file = about("file").expect("a source and a sink");
    assert!(file.contains("### Source `file`") && file.contains("### Sink `file`"), "{file}");
    assert!(!file.contains("### Source `stdin`") && !file.contains("## Sinks"), "{file}");
    assert_eq!(about("nothing"), None);
}
