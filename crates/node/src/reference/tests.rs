//! The page has the content of the tables, and its links lead somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde_json::Value;

use super::{Entry, Kind, Reference};
use crate::job_file::json_schema;
use crate::job_file::keys::BACKENDS;
use crate::{CheckOptions, NodeOptions};
use thalweg_types::DataType;

fn options() -> CheckOptions {
    NodeOptions::default().check_options()
}

fn reference() -> Reference {
    let options = options();
    Reference::new(&options.registry, &options.operators)
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// `UPDATE_EXPECT=1` writes the page. It is that of a build with everything.
#[test]
fn the_page_in_docs_is_the_generated_one() {
    expect_file!["../../../../docs/jobs.md"].assert_eq(&reference().page());
}

#[test]
fn every_key_of_the_schema_has_a_row() {
    fn keys(schema: &Value, found: &mut BTreeSet<String>) {
        match schema {
            Value::Object(map) => {
                for (key, value) in map {
                    match value {
                        // A key may have this name, too: what is in it are schemas, and not one.
                        Value::Object(properties) if key == "properties" => {
                            found.extend(properties.keys().cloned());
                            properties.values().for_each(|value| keys(value, found));
                        }
                        value => keys(value, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let options = options();
    let mut found = BTreeSet::new();
    keys(&json_schema(&options.registry, &options.operators), &mut found);
    let page = reference().page();
    let missing: Vec<&String> = found
        .iter()
        .filter(|key| !page.contains(&format!("| `{key}` |")) && !page.contains(&format!(".{key}` |")))
        .collect();
    assert!(found.len() > 100, "the schema has {} keys", found.len());
    assert_eq!(missing, Vec::<&String>::new());
}

#[test]
fn every_plugin_is_in_an_example() {
    let examples = reference().examples();
    let is_shown = |entry: &Entry| {
        let key = if entry.kind == Kind::Format { "format" } else { "type" };
        let shown = [format!("{key}: {}", entry.name), format!("{key}: \"{}\"", entry.name)];
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        examples
            .iter()
            .any(|example| shown.iter().any(|shown| example.job.split(shown.as_str()).skip(1).any(ends)))
    };
    let reference = reference();
    let missing: Vec<String> =
        reference.entries().iter().filter(|entry| !is_shown(entry)).map(Entry::title).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn every_plugin_has_words_of_its_own() {
    for entry in reference().entries() {
        assert!(!entry.page.trim().is_empty(), "{} has no page", entry.title());
        assert!(!entry.doc.ends_with('.') && !entry.doc.contains("  "), "{}: {:?}", entry.title(), entry.doc);
    }
}

#[test]
fn nothing_is_left_to_fill_in() {
    let page = reference().page();
    assert!(!page.contains("{{"), "{}", &page[page.find("{{").unwrap_or_default()..]);
    // A fence that was not closed would take the rest of the page.
    assert_eq!(page.lines().filter(|line| line.starts_with("```")).count() % 2, 0);
}

#[test]
fn every_back_end_and_every_type_is_named() {
    let page = reference().page();
    for name in BACKENDS {
        assert!(page.contains(&format!("\n| `{name}` | ")), "back end {name}");
    }
    for name in DataType::NAMES {
        let name = name.split('(').next().unwrap_or(name);
        assert!(page.contains(&format!("`{name}")), "type {name}");
    }
}

/// Anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
        anchors.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    anchors
}

#[test]
fn links_lead_somewhere() {
    let page = reference().page();
    let mut links = 0;
    for link in page.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link) {
        links += 1;
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let text = match file {
            "" => page.clone(),
            file => {
                std::fs::read_to_string(docs().join(file)).unwrap_or_else(|error| panic!("{link}: {error}"))
            }
        };
        assert!(anchor.is_empty() || anchors(&text).contains(anchor), "{link} leads nowhere");
    }
    assert!(links > 40, "{links} links");
}
