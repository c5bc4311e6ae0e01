//! `docs/metrics.md` has what the tables say, and the names keep the rules that it gives.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use thalweg_flow::figure::{Kind, Unit};

use super::{Section, sections};

const FIRST: &str = "## Node\n";
const AFTER: &str = "## Alerts\n";

/// The tables as the document has them.
fn tables() -> String {
    let mut out = String::new();
    for Section { title, figures } in sections() {
        let head = "| family | type | labels | meaning | what to do when it rises |\n|---|---|---|---|---|\n";
        write!(out, "## {title}\n\n{head}").unwrap();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for (labels, figure) in figures.iter().filter(|(_, figure)| !figure.family.is_empty()) {
            if !known.insert(figure.base()) {
                // Another label of the family before.
                continue;
            }
            let all = labels.iter().copied().chain(figure.label().map(|(name, _)| name));
            let labels: Vec<String> = all.map(|label| format!("`{label}`")).collect();
            let meaning = figure.meaning().trim_end_matches('.');
            let (first, rest) = meaning.split_at(1);
            let (kind, labels) = (figure.kind.as_str(), labels.join(", "));
            let (name, advice) = (figure.base(), figure.advice);
            let meaning = format!("{}{rest}", first.to_lowercase());
            writeln!(out, "| `{name}` | {kind} | {labels} | {meaning} | {advice} |").unwrap();
        }
        out.push('\n');
    }
    out
}

/// `UPDATE_EXPECT=1` writes the tables into the page.
#[test]
fn the_page_has_every_family() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(FIRST).expect("the page has a section of the node");
    let (_, after) = rest.split_once(AFTER).expect("the page has alerts");
    let made = format!("{before}{}{AFTER}{after}", tables());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, made).unwrap();
        return;
    }
    assert!(
        page == made,
        "docs/metrics.md differs from the tables of figures: run the test with UPDATE_EXPECT=1"
    );
}

#[test]
fn a_family_ends_in_its_unit_and_kind_and_is_declared_once() {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut last = "";
    for (_, figure) in sections().iter().flat_map(|section| &section.figures) {
        assert!(figure.meaning().ends_with('.'), "{:?} is no sentence", figure.meaning());
        if figure.family.is_empty() {
            continue;
        }
        let name = figure.base();
        assert!(known.insert(name) || (name == last && figure.label().is_some()), "{name} twice");
        last = name;
        assert_eq!(name.ends_with("_total"), figure.kind == Kind::Counter, "{name}");
        let named = name.strip_suffix("_total").unwrap_or(name);
        let unit = match named.rsplit('_').next() {
            Some("bytes") => Unit::Bytes,
            Some("seconds") => Unit::Seconds,
            Some("info") => Unit::Flag,
            _ => Unit::Count,
        };
        assert_eq!(unit, figure.unit, "{name}");
    }
    assert!(known.len() > 60, "{known:?}");
}
