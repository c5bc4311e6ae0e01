//! The semantics of windows, as naively as they can be written: every window is read by looking at every record.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::super::payments::Record;

/// Milliseconds.
pub(in crate::jobs) const LATENESS: i64 = 2_000;
/// Not a multiple of the step of times: no id is seen again right at the bound.
pub(in crate::jobs) const DEDUP: i64 = 5_005;

pub(in crate::jobs) const QUERIES: [(&str, &str); 7] = [
    (
        "card_s",
        "SELECT sum(amount) AS s, count(*) AS n, avg(amount) AS mean FROM payments GROUP BY card OVER SLIDING 3 SECONDS",
    ),
    (
        "card_t",
        "SELECT min(amount) AS low, max(amount) AS high, first(amount) AS head, last(amount) AS tail FROM payments GROUP BY card OVER TUMBLING 2 SECONDS",
    ),
    ("card_r", "SELECT sum(amount) AS s FROM payments GROUP BY card OVER ROWS 5"),
    (
        "shop_i",
        "SELECT sum(amount) AS s, count(distinct card) AS cards FROM payments WHERE amount > 10 GROUP BY shop OVER INFINITE",
    ),
    (
        "shop_d",
        "SELECT sum(amount) AS s, min(amount) AS low FROM payments GROUP BY shop OVER SLIDING 2 SECONDS DELAYED BY 1 SECOND",
    ),
    // Lists of one group, so long that they are in pieces.
    (
        "shop_l",
        "SELECT first(amount) AS head, count(*) AS n FROM payments GROUP BY shop OVER SLIDING 25 SECONDS",
    ),
    ("shop_r", "SELECT first(amount) AS head, sum(amount) AS s FROM payments GROUP BY shop OVER ROWS 2000"),
];

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::jobs) enum Verdict {
    Accepted,
    Late,
    Duplicate,
}

/// What a task has seen.
#[derive(Default)]
pub(in crate::jobs) struct Model {
    task_time: Option<i64>,
    /// Task time at which an id was accepted last.
    ids: HashMap<String, i64>,
    /// Accepted records of each group, in the order of event time, then arrival.
    cards: HashMap<String, Vec<Record>>,
    shops: HashMap<String, Vec<Record>>,
}

impl Model {
    /// The record's verdict and its answer.
    pub(in crate::jobs) fn next(&mut self, record: &Record) -> (Verdict, Value) {
        let verdict = self.judge(record);
        let now = self.task_time.unwrap_or(record.ts);
        if verdict == Verdict::Accepted {
            add(self.cards.entry(record.card.clone()).or_default(), record);
            add(self.shops.entry(record.shop.clone()).or_default(), record);
        }
        let none = Vec::new();
        let card = self.cards.get(&record.card).unwrap_or(&none);
        let shop = self.shops.get(&record.shop).unwrap_or(&none);

        let sliding: Vec<&Record> = card.iter().filter(|r| now - 3_000 < r.ts && r.ts <= now).collect();
        let start = now.div_euclid(2_000) * 2_000;
        let tumbling: Vec<&Record> = card.iter().filter(|r| start <= r.ts && r.ts <= now).collect();
        let rows: Vec<&Record> = card.iter().skip(card.len().saturating_sub(5)).collect();
        let infinite: Vec<&Record> = shop.iter().filter(|r| r.quarters > 40).collect();
        let delayed: Vec<&Record> =
            shop.iter().filter(|r| now - 1_000 - 2_000 < r.ts && r.ts <= now - 1_000).collect();
        let long: Vec<&Record> = shop.iter().filter(|r| now - 25_000 < r.ts && r.ts <= now).collect();
        let many: Vec<&Record> = shop.iter().skip(shop.len().saturating_sub(2_000)).collect();

        let mut answer = Map::new();
        let mut set = |name: &str, value: Value| drop(answer.insert(name.to_owned(), value));
        set("ts", json!(record.ts));
        set("id", json!(record.id));
        set("card", json!(record.card));
        set("shop", json!(record.shop));
        set("amount", number(record.quarters));
        let mean = sum(&sliding).map(|sum| sum as f64 / (4 * sliding.len()) as f64);
        set("card_s", json!({ "s": sum_of(&sliding), "n": sliding.len(), "mean": mean }));
        let (head, tail) = (tumbling.first(), tumbling.last());
        set(
            "card_t",
            json!({
                "low": option(tumbling.iter().map(|r| r.quarters).min()),
                "high": option(tumbling.iter().map(|r| r.quarters).max()),
                "head": option(head.map(|r| r.quarters)),
                "tail": option(tail.map(|r| r.quarters)),
            }),
        );
        set("card_r", json!({ "s": sum_of(&rows) }));
        let cards: BTreeSet<&str> = infinite.iter().map(|r| r.card.as_str()).collect();
        set("shop_i", json!({ "s": sum_of(&infinite), "cards": cards.len() }));
        let low = delayed.iter().map(|r| r.quarters).min();
        set("shop_d", json!({ "s": sum_of(&delayed), "low": option(low) }));
        let head = |records: &[&Record]| option(records.first().map(|r| r.quarters));
        set("shop_l", json!({ "head": head(&long), "n": long.len() }));
        set("shop_r", json!({ "head": head(&many), "s": sum_of(&many) }));
        match verdict {
            Verdict::Accepted => {}
            Verdict::Late => set("late", json!(["card", "shop"])),
            Verdict::Duplicate => set("duplicate", json!(["card", "shop"])),
        }
        (verdict, Value::Object(answer))
    }

    fn judge(&mut self, record: &Record) -> Verdict {
        let now = self.task_time.map_or(record.ts, |now| now.max(record.ts));
        if self.ids.get(&record.id).is_some_and(|seen| now - seen < DEDUP) {
            return Verdict::Duplicate;
        }
        if record.ts < now - LATENESS {
            return Verdict::Late;
        }
        self.task_time = Some(now);
        self.ids.insert(record.id.clone(), now);
        Verdict::Accepted
    }
}

/// Adds it after all records that are not later: of equal times the earlier arrival is first.
fn add(group: &mut Vec<Record>, record: &Record) {
    let at = group.iter().rposition(|other| other.ts <= record.ts).map_or(0, |last| last + 1);
    group.insert(at, record.clone());
}

fn sum(records: &[&Record]) -> Option<i128> {
    let sum = records.iter().map(|record| i128::from(record.quarters)).sum();
    (!records.is_empty()).then_some(sum)
}

fn sum_of(records: &[&Record]) -> Value {
    sum(records).map_or(Value::Null, |sum| json!(sum as f64 / 4.0))
}

fn number(quarters: i64) -> Value {
    json!(quarters as f64 / 4.0)
}

fn option(quarters: Option<i64>) -> Value {
    quarters.map_or(Value::Null, number)
}

/// Whether an answer is the expected one: every value the same, `mean` within the rounding that the design allows it.
pub(in crate::jobs) fn is_same(answer: &Value, expected: &Value) -> bool {
    match (answer, expected) {
        (Value::Object(answer), Value::Object(expected)) => {
            answer.len() == expected.len()
                && expected.iter().all(|(name, value)| match (answer.get(name), name.as_str()) {
                    (Some(Value::Number(one)), "mean") => {
                        let (one, other) = (one.as_f64(), value.as_f64());
                        one.zip(other).is_some_and(|(one, other)| (one - other).abs() <= other.abs() * 1e-15)
                    }
                    (answer, _) => answer.is_some_and(|answer| is_same(answer, value)),
                })
        }
        _ => answer == expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ts: i64, id: &str, quarters: i64) -> Record {
        Record { ts, id: id.to_owned(), card: "c".to_owned(), shop: "s".to_owned(), quarters }
    }

    #[test]
    fn windows_are_those_of_the_design() {
        let mut model = Model::default();
        let mut last = |ts, id: &str, quarters| model.next(&record(ts, id, quarters));
        last(1_000, "a", 4);
        assert_eq!(last(4_000, "b", 8).1["card_s"]["n"], 1, "3 s ago is out");
        assert_eq!(
            last(3_999, "c", 44).1["card_t"],
            json!({"low": 2.0, "high": 2.0, "head": 2.0, "tail": 2.0})
        );
        let (verdict, answer) = last(6_001, "d", 12);
        assert_eq!(verdict, Verdict::Accepted);
        assert_eq!(answer["card_r"], json!({"s": 17.0}));
        assert_eq!(answer["shop_i"], json!({"s": 11.0, "cards": 1}));
        assert_eq!(answer["shop_d"], json!({"s": 13.0, "low": 2.0}));
        assert_eq!(last(4_000, "e", 12).0, Verdict::Late);
        assert_eq!(last(4_001, "f", 12).0, Verdict::Accepted);
        assert_eq!(last(6_001, "b", 12).0, Verdict::Duplicate);
        assert_eq!(last(9_010, "b", 12).0, Verdict::Accepted, "the span is over");
    }

    #[test]
    fn one_value_that_differs_is_enough() {
        let expected = json!({"n": 1, "q": {"s": 1.25, "mean": 0.1}});
        assert!(is_same(&expected, &expected));
        assert!(is_same(&json!({"n": 1, "q": {"s": 1.25, "mean": 0.10000000000000002}}), &expected));
        assert!(!is_same(&json!({"n": 1, "q": {"s": 1.25, "mean": 0.1001}}), &expected));
        assert!(!is_same(&json!({"n": 1, "q": {"s": 1.5, "mean": 0.1}}), &expected));
        assert!(!is_same(&json!({"n": 1, "q": {"s": 1.25, "mean": 0.1}, "late": []}), &expected));
    }
}
