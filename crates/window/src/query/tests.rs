//! Queries as data: what they parse to, and how errors look.

mod clauses;
mod documented;
mod fields;
mod hostile;
mod outputs;
mod parsing;
mod recovery;
mod windows;

use expect_test::Expect;
use thalweg_types::{DataType, Field, Schema};

use super::{Draft, Query};

fn schema() -> Schema {
    let field = |name: &str, data_type: &str| Field::new(name, DataType::parse(data_type).unwrap());
    Schema::new(vec![
        field("ts", "timestamp(ms)"),
        field("card", "string"),
        field("merchant", "string"),
        field("amount", "float64"),
        field("cents", "int64"),
        field("declined", "bool"),
        field("price", "decimal(10,2)"),
        Field::new("card_1h", DataType::Struct(vec![Field::new("spent", DataType::Float64)])),
    ])
}

/// The rendered errors of queries that do not parse or bind.
#[track_caller]
fn refused(texts: &[&str], expected: Expect) {
    let render = |text: &&str| match Draft::read(text).bind(&schema()) {
        Ok(_) => panic!("{text} is a query"),
        Err(errors) => {
            assert!(errors.iter().all(|error| error.span.is_some()), "{errors} has no place");
            errors.render(text)
        }
    };
    expected.assert_eq(&texts.iter().map(render).collect::<Vec<_>>().join("\n"));
}

/// A fingerprint is a query, unless two outputs that had different aliases have one default name.
#[track_caller]
fn parse_canonical(fingerprint: &str) -> Option<Query> {
    match Query::parse(fingerprint) {
        Ok(query) => Some(query),
        Err(error) if error.first().message.starts_with("two outputs are named") => None,
        Err(error) => panic!("{}", error.render(fingerprint)),
    }
}
