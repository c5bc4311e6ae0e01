//! `docs/expressions.md` against the code: every function and part of a timestamp, and examples that are true.

use std::collections::BTreeSet;

use thalweg_types::{Schema, Value};

use crate::Expr;
use crate::bind::call::signature;
use crate::function::{NAMES, PARTS};

const DOCUMENT: &str = include_str!("../../../../docs/expressions.md");

/// Rows of the tables in a part of the document, each with the heads of its table; `\|` is a bar inside a cell.
fn rows(text: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let mut rows = Vec::new();
    let mut heads: Option<Vec<String>> = None;
    for line in text.lines() {
        let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            heads = None;
            continue;
        };
        let cells = inner.replace("\\|", "\u{1}");
        let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
        match &heads {
            None => heads = Some(cells),
            Some(_) if cells[0].starts_with("--") => {}
            Some(heads) => rows.push((heads.clone(), cells)),
        }
    }
    rows
}

/// From a heading to the next one of the same or a higher level.
fn section(heading: &str) -> &'static str {
    let level = heading.bytes().take_while(|byte| *byte == b'#').count();
    let start = DOCUMENT.find(&format!("\n{heading}\n")).expect("the document has the heading") + 1;
    let rest = &DOCUMENT[start + heading.len()..];
    let is_end = |line: &str| {
        let marks = line.bytes().take_while(|byte| *byte == b'#').count();
        (1..=level).contains(&marks)
    };
    let end = rest.lines().scan(0, |at, line| {
        let here = *at;
        *at += line.len() + 1;
        Some((here, line))
    });
    let end = end.filter(|(_, line)| is_end(line)).map(|(at, _)| at).next().unwrap_or(rest.len());
    &rest[..end]
}

/// What is between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_function_is_documented_as_it_is_written_and_no_other() {
    let rows = rows(section("## Functions"));
    let documented: BTreeSet<&str> = rows.iter().flat_map(|(_, cells)| quoted(&cells[0])).collect();
    let mut expected: BTreeSet<&str> = NAMES
        .iter()
        .map(|(name, function)| if *name == function.name() { signature(*function).2 } else { *name })
        .collect();
    // These two have a syntax of their own.
    expected.insert("EXTRACT(part FROM timestamp)");
    // Documented with a name for what they take.
    assert_eq!(documented, expected);
}

#[test]
fn every_part_of_a_timestamp_is_documented() {
    let documented: BTreeSet<String> =
        quoted(section("## Times and spans")).map(str::to_ascii_uppercase).collect();
    let missing: Vec<&str> =
        PARTS.iter().map(|(name, _)| *name).filter(|name| !documented.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not documented");
}

#[test]
fn every_example_is_true() {
    let mut count = 0;
    for (heads, cells) in rows(DOCUMENT) {
        let Some(place) = heads.iter().position(|head| head == "example") else { continue };
        for example in quoted(&cells[place]) {
            let parsed = Expr::parse(example).unwrap_or_else(|error| panic!("{}", error.render(example)));
            let bound =
                parsed.bind(&Schema::empty()).unwrap_or_else(|error| panic!("{}", error.render(example)));
            assert_eq!(bound.as_constant(), Some(Value::Bool(true)), "{example}");
            count += 1;
        }
        assert!(cells[0].starts_with('`') || heads[0] != "function", "{cells:?} names no function");
        assert!(!cells[place].is_empty(), "{cells:?} has no example");
    }
    assert!(count > 70, "{count} examples");
}
