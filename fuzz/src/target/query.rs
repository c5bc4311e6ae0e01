//! Query text: parse, bind to a schema, and every mistake is within the text.

use thalweg_types::{DataType, Field, Schema, TimeUnit};
use thalweg_window::query::{Draft, Query};

use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "query", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "SELECT ",
    " FROM payments",
    " WHERE ",
    " GROUP BY ",
    " OVER ",
    "SLIDING ",
    "TUMBLING ",
    "INFINITE",
    "ROWS 10",
    " DELAYED BY ",
    " 1 HOUR",
    " 90 SECONDS",
    " 5m",
    " '1h'",
    "9223372036854775807 WEEKS",
    "0 SECONDS",
    "count(*)",
    "count(DISTINCT ",
    "sum(",
    "avg(",
    "stddev_pop(",
    "var(",
    "min(",
    "first(",
    "prev(",
    "quantile(amount, 0.99)",
    " AS ",
    "card",
    "amount",
    "payments.",
    "\"",
    "'",
    "(",
    ")",
    ",",
    "--",
    "/*",
    ";",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let schema = Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
        Field::new("card", DataType::String),
        Field::new("merchant", DataType::String).nullable(),
        Field::new("amount", DataType::Float64).nullable(),
        Field::new("price", DataType::Decimal { precision: 12, scale: 2 }),
        Field::new("flag", DataType::Bool),
    ]);
    match Query::parse(text) {
        Ok(query) => {
            assert!(!query.outputs.is_empty() && query.delay >= 0);
            for output in &query.outputs {
                assert!(text.get(output.span.clone()).is_some(), "an output is outside the text");
            }
            match query.bind(&schema) {
                Ok(bound) => {
                    assert_eq!(bound.outputs.len(), query.outputs.len(), "an output was lost");
                    assert_eq!(bound.group_by.len(), query.group_by.len(), "a group was lost");
                }
                Err(error) => assert!(!error.render(text).is_empty()),
            }
        }
        Err(errors) => assert!(!errors.render(text).is_empty()),
    }
    if let Err(errors) = Draft::read(text).bind(&schema) {
        for span in errors.iter().filter_map(|error| error.span.clone()) {
            assert!(text.get(span.clone()).is_some(), "a mistake at {span:?} is outside the text");
        }
        assert!(!errors.render(text).is_empty());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    [
        "SELECT sum(amount) AS spent, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR",
        "SELECT avg(amount) AS mean FROM payments WHERE amount > 1 GROUP BY merchant OVER SLIDING 5 MINUTES DELAYED BY 1 MINUTE",
        "select count(distinct merchant), quantile(price, 0.5) m from payments where card like 'c%' and not flag group by card, merchant over tumbling 1d",
        "SELECT first(amount), last(card), prev(amount), min(ts), max(ts) FROM payments OVER INFINITE",
        "SELECT stddev(amount), stddev_pop(amount), var(amount), var_pop(amount) FROM payments GROUP BY \"card\" OVER ROWS 100",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
