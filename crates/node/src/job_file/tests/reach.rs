//! What a job file from somebody else may name, and how much of it is shown.

use std::path::{Path, PathBuf};

use super::*;
use thalweg_connect::{OptionKind, OptionSpec, Registry};

use crate::job_file::keys::{KeySpec, STATE, Shape};

fn options_of_build(reach: Reach) -> CheckOptions {
    CheckOptions { registry: Registry::builtin(), operators: Operators::builtin(), workers: 1, reach }
}

fn mistakes(text: &str, reach: Reach) -> String {
    let checked = JobFile::parse("job.yaml", text, &[]).and_then(|file| file.check(&options_of_build(reach)));
    checked.err().map(|mistakes| mistakes.to_string()).unwrap_or_default()
}

/// Every key of this build whose value leads out of the job, with a job file that gives it a value.
fn all() -> Vec<(String, OptionKind, String)> {
    let with = |rest: &str| format!("name: t\n{rest}");
    let source = "sources: { s: { type: generator, count: 1 } }\n";
    let registry = Registry::builtin();
    let mut all = Vec::new();
    let mut add = |what: String, kind: OptionKind, text: String| {
        if matches!(kind, OptionKind::Path | OptionKind::PathList | OptionKind::Secret) {
            all.push((what, kind, text));
        }
    };
    for plugin in registry.sources() {
        for &OptionSpec { key, kind, .. } in plugin.options() {
            let text = format!(
                "sources: {{ s: {{ type: {}, {key}: VALUE, schema: {{ a: string }} }} }}\nsinks: {{ o: {{ type: 'null', input: s }} }}\n",
                plugin.name()
            );
            add(format!("source {} {key}", plugin.name()), kind, with(&text));
        }
    }
    for plugin in registry.sinks() {
        for &OptionSpec { key, kind, .. } in plugin.options() {
            let text =
                format!("{source}sinks: {{ o: {{ type: '{}', input: s, {key}: VALUE }} }}\n", plugin.name());
            add(format!("sink {} {key}", plugin.name()), kind, with(&text));
        }
    }
    for plugin in registry.formats() {
        for &OptionSpec { key, kind, .. } in plugin.options() {
            let text = format!(
                "sources: {{ s: {{ type: stdin, format: {}, {key}: VALUE, schema: {{ a: string }} }} }}\nsinks: {{ o: {{ type: 'null', input: s }} }}\n",
                plugin.name()
            );
            add(format!("format {} {key}", plugin.name()), kind, with(&text));
        }
    }
    let operators = Operators::builtin();
    for plugin in operators.all() {
        for &KeySpec { key, shape, .. } in plugin.options() {
            let Shape::Option(kind) = shape else { continue };
            let text = format!(
                "{source}operators: {{ op: {{ type: {}, input: s, {key}: VALUE }} }}\nsinks: {{ o: {{ type: 'null', input: op }} }}\n",
                plugin.name()
            );
            add(format!("operator {} {key}", plugin.name()), kind, with(&text));
        }
    }
    for &KeySpec { key, shape, .. } in STATE {
        let Shape::Option(kind) = shape else { continue };
        let text = format!(
            "state: {{ backend: redis, url: 'redis://h', {key}: VALUE }}\n{source}sinks: {{ o: {{ type: 'null', input: s }} }}\n"
        );
        add(format!("state {key}"), kind, with(&text));
    }
    all
}

#[test]
fn no_plug_in_reaches_out_of_the_job_without_being_asked_for() {
    let mut seen = Vec::new();
    for (what, kind, text) in all() {
        let values: &[(&str, &str)] = match kind {
            OptionKind::Path => &[("/etc/hostname", "--allow-path")],
            OptionKind::PathList => {
                &[("/etc/hostname", "--allow-path"), ("[/nowhere, /etc/hostname]", "--allow-path")]
            }
            _ => &[("'file:/etc/hostname'", "--allow-path"), ("'env:PATH'", "--allow-env")],
        };
        for (value, option) in values {
            let text = text.replace("VALUE", value);
            let said = mistakes(&text, Reach::nothing());
            let named = if *option == "--allow-env" { "PATH" } else { "/etc/hostname" };
            assert!(said.contains(option) && said.contains(named), "{what}: {value} is let through: {said}");
            let said = mistakes(&text, Reach::anything());
            assert!(!said.contains("--allow-"), "{what}: {value}: {said}");
            let reach = Reach::only(&[PathBuf::from("/etc/hostname")], ["PATH".to_owned()], None).unwrap();
            let said = mistakes(&text.replace("/nowhere", "/etc/hostname"), reach);
            assert!(!said.contains("--allow-"), "{what}: {value} although it is allowed: {said}");
        }
        seen.push(what);
    }
    for known in [
        "source file path",
        "source pcap path",
        "source generator tables",
        "sink file path",
        "sink influx token",
        "sink influx password",
        "sink postgres password",
        "operator range_join table",
        "operator lookup_join table",
        "operator lookup_join csv",
        "operator member_join table",
        "state password",
    ] {
        assert!(seen.iter().any(|what| what == known), "{known} is not among {seen:?}");
    }
}

/// A key that is opened or looked up and declared as a text would be let through.
#[test]
fn what_is_documented_as_a_path_or_a_secret_is_of_that_kind() {
    fn look(what: &str, key: &str, doc: &str, kind: OptionKind) {
        if let OptionKind::Sections(specs) = kind {
            specs.iter().for_each(|spec| look(what, spec.key, spec.doc, spec.kind));
        }
        let is_text = matches!(kind, OptionKind::Text | OptionKind::TextList);
        let words = ["path", "file", "folder", "env:", "password", "token", "secret"];
        let reaches = key == "token"
            || words.iter().any(|word| key.contains(word))
            || doc.contains("env:")
            || doc.starts_with("the file")
            || doc.starts_with("folder");
        assert!(!(is_text && reaches), "{what}: {key} is a text: {doc}");
    }
    let registry = Registry::builtin();
    let sources = registry.sources().iter().map(|plugin| (plugin.name(), plugin.options()));
    let sinks = registry.sinks().iter().map(|plugin| (plugin.name(), plugin.options()));
    let formats = registry.formats().iter().map(|plugin| (plugin.name(), plugin.options()));
    for (name, specs) in sources.chain(sinks).chain(formats) {
        specs.iter().for_each(|spec| look(name, spec.key, spec.doc, spec.kind));
    }
    for plugin in Operators::builtin().all() {
        for spec in plugin.options() {
            if let Shape::Option(kind) = spec.shape {
                look(plugin.name(), spec.key, spec.doc, kind);
            }
        }
    }
}

#[test]
fn a_path_goes_on_as_it_resolves() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("may")).unwrap();
    let reach = Reach::only(&[folder.path().join("may")], [], None).unwrap();
    let path = folder.path().join("may/../may/in.csv");
    let text = format!(
        "name: t\nsources: {{ s: {{ type: file, path: '{}', format: csv, schema: {{ a: string }} }} }}\nsinks: {{ o: {{ type: 'null', input: s }} }}\n",
        path.display()
    );
    let job = JobFile::parse("job.yaml", &text, &[]).unwrap().check(&options_of_build(reach)).unwrap();
    let [checked] = job.sources[0].options.paths("path").unwrap() else { panic!("one path") };
    let real: &Path = &folder.path().canonicalize().unwrap().join("may/in.csv");
    assert_eq!(checked.as_path(), real);
}

#[test]
fn what_stands_where_a_secret_should_is_blanked_out_wherever_it_shows() {
    const CANARY: &str = "canary-77aa";
    let sink = |options: &str| {
        format!(
            "{{\"name\": \"t\", \"sources\": {{\"s\": {{\"type\": \"generator\", \"count\": 1}}}}, \"sinks\": {{\"o\": {{\"input\": \"s\", \"tabel\": \"x\", {options}}}}}}}"
        )
    };
    for options in [
        format!("\"type\": \"postgres\", \"url\": \"postgres://me:{CANARY}@h/d\""),
        format!("\"type\": \"postgres\", \"url\": \"host=h password={CANARY}\""),
        format!("\"type\": \"postgres\", \"url\": \"postgres://h/d?password={CANARY}\""),
        format!("\"type\": \"influx\", \"url\": \"http://me:{CANARY}@h\""),
        format!("\"type\": \"influx\", \"url\": \"http://h/?p={CANARY}\""),
        format!("\"type\": \"postgres\", \"url\": \"postgres://h/d\", \"password\": \"{CANARY}\""),
        format!("\"type\": \"influx\", \"url\": \"http://h\", \"token\": \"{CANARY}\""),
        format!("\"type\": \"influx\", \"url\": \"http://h\", \"token\": [\"{CANARY}\"]"),
        format!("\"type\": \"influx\", \"url\": \"http://h\", \"token\": {{\"x\": \"{CANARY}\"}}"),
    ] {
        let said = mistakes(&sink(&options), Reach::anything());
        assert!(said.contains("no key \"tabel\"") && said.contains("***"), "{options}: {said}");
        assert!(!said.contains(CANARY), "{said}");
    }
    for state in [
        format!("password: {CANARY}"),
        format!("password: |\n    {CANARY}\n    more {CANARY}\n"),
        format!("user: x, url: redis://:{CANARY}@h"),
    ] {
        let (url, rest) =
            if state.contains("url") { ("", state.clone()) } else { ("url: redis://h, ", state.clone()) };
        let text = match rest.contains('|') {
            true => format!(
                "name: t\nstate:\n  backend: redis\n  url: redis://h\n  tabel: 1\n  {rest}sources: {{}}\n"
            ),
            false => format!("name: t\nstate: {{ backend: redis, {url}tabel: 1, {rest} }}\nsources: {{}}\n"),
        };
        let said = mistakes(&text, Reach::anything());
        assert!(said.contains("no key \"tabel\""), "{said}");
        assert!(!said.contains(CANARY), "{said}");
    }
    let override_ = format!("sinks.o.password={CANARY}");
    let text = sink("\"type\": \"postgres\", \"url\": \"postgres://h/d\"");
    let file = JobFile::parse("job.yaml", &text, &[override_]).unwrap();
    let said = file.check(&options_of_build(Reach::anything())).map(drop).unwrap_err().to_string();
    assert!(said.contains("no reference to a secret") && !said.contains(CANARY), "{said}");
}
