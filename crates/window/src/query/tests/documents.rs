//! `docs/windows.md` has every aggregate, and its queries are queries.

use thalweg_types::{DataType, Field, Schema};

use super::Draft;
use crate::query::aggregate;

const WINDOWS: &str = include_str!("../../../../../docs/windows.md");

/// The text between the fences of each block of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn every_aggregate_is_documented() {
    let table =
        WINDOWS.split("## Aggregates").nth(1).and_then(|rest| rest.split("\n* ").next()).expect("a table");
    for name in aggregate::names() {
        let called = table.contains(&format!("`{name}(")) || table.contains(&format!("`{name}`"));
        assert!(called, "{name} is not in the table of aggregates in docs/windows.md");
    }
}

#[test]
fn the_queries_of_the_document_are_queries() {
    let field = |name: &str, data_type: &str| Field::new(name, DataType::parse(data_type).unwrap());
    let schema = Schema::new(vec![
        field("ts", "timestamp(ms)"),
        field("tx", "string"),
        field("card", "string"),
        field("country", "string"),
        field("merchant", "string"),
        field("amount", "float64"),
        field("declined", "bool"),
    ]);
    let queries = blocks(WINDOWS, "sql");
    assert!(queries.len() >= 6, "{} queries", queries.len());
    for query in queries {
        if let Err(errors) = Draft::read(query).bind(&schema) {
            panic!("{}", errors.render(query));
        }
    }
}
