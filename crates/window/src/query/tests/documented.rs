//! `docs/windows.md` against the parser: every aggregate is in the table, and every query of the text compiles.

use std::collections::BTreeSet;

use thalweg_types::{DataType, Field, Schema};

use crate::query::aggregate::NAMES;
use crate::query::{Draft, Query};

const DOCUMENT: &str = include_str!("../../../../../docs/windows.md");

/// The texts of blocks in this language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let start = format!("```{language}\n");
    DOCUMENT.split("\n```\n").filter_map(move |part| part.rfind(&start).map(|at| &part[at + start.len()..]))
}

/// The fields that the document says its queries read.
fn schema() -> Schema {
    let block =
        blocks("yaml").find(|block| block.starts_with("schema:")).expect("the document states a schema");
    let fields = block.lines().skip(1).map(|line| {
        let (name, data_type) = line.trim().split_once(": ").expect("a field and its type");
        let (data_type, nullable) =
            data_type.strip_suffix('?').map_or((data_type, false), |data_type| (data_type, true));
        let field = Field::new(name, DataType::parse(data_type).expect("a type"));
        if nullable { field.nullable() } else { field }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

#[test]
fn every_query_compiles() {
    let schema = schema();
    let queries: Vec<&str> = blocks("sql").flat_map(str::lines).filter(|line| !line.is_empty()).collect();
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        if let Err(errors) = Draft::read(query).bind(&schema) {
            panic!("{}", errors.render(query));
        }
    }
}

/// `sum(x)` of each row of the table, with the type that it is given.
fn documented() -> BTreeSet<&'static str> {
    let start = DOCUMENT.find("| aggregate | of |").expect("the table of aggregates");
    let rows = DOCUMENT[start..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('|').nth(1).expect("a first cell").split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_aggregate_is_in_the_table_and_no_other() {
    let names: BTreeSet<&str> =
        documented().iter().map(|call| call.split('(').next().expect("a name")).collect();
    assert_eq!(names, NAMES.iter().map(|(name, _)| *name).collect());
}

/// Every type that the queries' fields have, as the first argument of every aggregate.
#[test]
fn aggregates_take_what_the_table_says() {
    let schema = schema();
    for call in documented() {
        let call = call.replace(", q)", ", 0.5)").replace(", …", ", amount").replace(", y", ", card");
        let name = call.split('(').next().unwrap_or_default();
        let takes_all = ["count", "count_distinct", "countdistinct", "min", "max", "first", "last", "prev"];
        for field in schema.fields() {
            let argument = |before: &str| format!("{before}{}", field.name);
            let call = call.replace("(x", &argument("(")).replace(" x", &argument(" "));
            let text = format!("SELECT {call} FROM payments OVER INFINITE");
            let query = Query::parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render(&text)));
            let expected = takes_all.contains(&name) || field.data_type.is_numeric();
            assert_eq!(query.bind(&schema).is_ok(), expected, "{text}");
        }
    }
}
