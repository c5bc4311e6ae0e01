//! Nonsense is an error: no panic, and the same as a query and as a draft.

use proptest::prelude::*;

use super::{parse_canonical, schema};
use crate::query::{Draft, Query};

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "OVER",
    "SLIDING",
    "TUMBLING",
    "INFINITE",
    "ROWS",
    "DELAYED",
    "DISTINCT",
    "AS",
    "count",
    "sum",
    "quantile",
    "(",
    ")",
    "*",
    ",",
    ".",
    "amount",
    "card",
    "s",
    "1",
    "0.5",
    "-",
    "HOUR",
    "MINUTES",
    "'1h'",
    "1h",
    ";",
    "AND",
    ">",
    "=",
    "HAVING",
    "ORDER",
    "LIMIT",
    "JOIN",
    "NULL",
    "\"",
    "'",
    "--",
    "CASE",
    "count(*)",
    "sum(amount)",
    "OVER SLIDING 1 HOUR",
    "FROM s",
    "GROUP BY card",
    "WHERE amount > 1",
];

fn survive(text: &str) {
    match Query::parse(text) {
        Ok(query) => {
            let fingerprint = query.fingerprint();
            if let Some(again) = parse_canonical(&fingerprint) {
                assert_eq!(again.fingerprint(), fingerprint);
            }
            if let Err(error) = query.bind(&schema()) {
                error.render(text);
            }
        }
        Err(error) => drop(error.render(text)),
    }
    let parsed = Query::parse(text).and_then(|query| Ok((query.bind(&schema())?, query)));
    match (parsed, Draft::read(text).bind(&schema())) {
        (Ok((bound, query)), Ok((drafted, bound_of_draft))) => {
            assert_eq!(query, drafted);
            assert_eq!(format!("{bound:?}"), format!("{bound_of_draft:?}"));
        }
        (Err(some), Err(all)) => {
            for error in some.iter() {
                assert!(
                    all.iter().any(|other| other == error) || all.iter().count() > 100,
                    "{error} is lost"
                );
            }
            assert!(!all.render(text).is_empty());
        }
        (Ok(_), Err(errors)) => panic!("{}", errors.render(text)),
        (Err(errors), Ok(_)) => panic!("not told: {}", errors.render(text)),
    }
}

#[test]
fn endless_texts_are_errors() {
    for count in [100, 10_000, 100_000] {
        survive(&"SELECT ".repeat(count));
        survive(&format!("SELECT {}count(*) FROM s OVER INFINITE", "count(*), ".repeat(count)));
        survive(&format!(
            "SELECT sum({}amount{}) FROM s OVER INFINITE",
            "(".repeat(count),
            ")".repeat(count)
        ));
        survive(&format!("SELECT {}", "sum(".repeat(count)));
        survive(&format!("SELECT count(*) FROM s WHERE {} OVER INFINITE", "amount > 1 AND ".repeat(count)));
        survive(&format!("SELECT count(*) FROM s GROUP BY {} OVER INFINITE", "a, ".repeat(count)));
    }
}

proptest! {
    #[test]
    fn any_text_is_a_query_or_an_error(text in "\\PC{0,80}") {
        survive(&text);
    }

    #[test]
    fn any_bytes_are_a_query_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_words_are_a_query_or_an_error(words in prop::collection::vec(prop::sample::select(WORDS), 0..25)) {
        survive(&words.join(" "));
        survive(&format!("SELECT {}", words.join(" ")));
    }

    #[test]
    fn any_tail_is_a_query_or_an_error(words in prop::collection::vec(prop::sample::select(WORDS), 0..8)) {
        survive(&format!("SELECT sum(amount) FROM s {}", words.join(" ")));
        survive(&format!("SELECT sum(amount) FROM s OVER SLIDING 1h {}", words.join(" ")));
    }
}
