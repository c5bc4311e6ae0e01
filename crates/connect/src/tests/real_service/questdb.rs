//! Points into a real QuestDB.

use super::super::drive::{Driven, context, numbers};
use super::super::*;
use super::{eventually, told};

/// The answer of a query, as CSV without the header.
fn query(address: &str, sql: &str) -> Option<String> {
    let runtime = crate::source::handover::io_runtime().unwrap();
    runtime.block_on(async {
        let mut url = reqwest::Url::parse(&format!("http://{address}/exp")).unwrap();
        url.query_pairs_mut().append_pair("query", sql);
        let answer = reqwest::Client::builder().no_proxy().build().unwrap().get(url).send().await.unwrap();
        if !answer.status().is_success() {
            return None;
        }
        let text = answer.text().await.unwrap();
        let (_, rows) = text.split_once('\n')?;
        Some(rows.replace('\r', "").trim_end().to_owned())
    })
}

fn entries(address: &str, table: &str) -> Vec<(&'static str, OptionValue)> {
    vec![
        ("url", text(&format!("http://{address}"))),
        ("measurement", text(table)),
        ("tags", OptionValue::List(vec!["host".to_owned()])),
        ("precision", text("us")),
        ("retry_wait", OptionValue::Duration(10_000)),
    ]
}

#[test]
#[ignore = "needs QuestDB"]
fn points_are_rows_and_types_that_do_not_fit_stop_the_job() {
    let address = told("THALWEG_QUESTDB");
    let mut sink = Driven::new("influx", context(&numbers(), &entries(&address, "numbers"), None));
    for _ in 0..100 {
        sink.give(100).unwrap();
    }
    sink.finish().unwrap();
    let expected = format!("10000,{},10000", (0..10_000_u64).sum::<u64>());
    // Acknowledged points become visible a moment later.
    let found = eventually("the rows", || {
        query(&address, "SELECT count(), sum(n), count_distinct(timestamp) FROM numbers")
            .filter(|found| *found == expected)
    });
    assert_eq!(found, expected);
    assert_eq!(query(&address, "SELECT host, n FROM numbers WHERE n = 8").unwrap(), "\"host-1\",8");

    let other = schema("host: string; n: string");
    let mut sink = Driven::new("influx", context(&other, &entries(&address, "numbers"), None));
    let column: ArrayRef = Arc::new(arrow_array::StringViewArray::from_iter_values(["a text"]));
    sink.give_batch(batch(&other, vec![Arc::clone(&column), column])).unwrap();
    let error = sink.failure();
    assert!(error.message().contains("refuses points (400)"), "{error}");
    let said = error.chain();
    assert!(said.contains("cast error") && said.contains("column: n"), "{said}");
}
