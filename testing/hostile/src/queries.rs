//! Hostile texts: SQL over tables, windows added to a running job, and what only the administrator may do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::attack::Attack;
use thalweg_harness::random::Random;

/// Clients of SQL go away after a random time up to this.
const PATIENCE: Duration = Duration::from_secs(40);

pub(super) const KINDS: [&str; 5] =
    ["sql", "sql left alone", "window queries", "hostile values", "without the token"];

/// What is chained, `{}` being what there is already.
const CHAINS: [(&str, &str); 9] = [
    ("SELECT 1", "+1"),
    ("SELECT v FROM live.t WHERE v=1", " OR v=1"),
    ("SELECT 1", " UNION ALL SELECT 1"),
    ("SELECT 1 FROM live.t", " JOIN live.t USING (v)"),
    ("SELECT [1]", "[1]"),
    ("SELECT 'a'", "||'a'"),
    ("SELECT 1", "::bigint"),
    ("SELECT v FROM live.t WHERE v NOT IN (1", ",1"),
    ("SELECT 1 FROM live.t WHERE true", " AND NOT false"),
];

/// Functions and plans that ask for memory or time.
const HOGS: [&str; 14] = [
    "SELECT approx_percentile_cont(v, 0.5, 99999999999999) FROM live.t",
    "SELECT levenshtein(repeat('a',2000000),repeat('b',2000000))",
    "SELECT repeat('x', 2000000000)",
    "SELECT lpad('x', 2147483647)",
    "SELECT repeat(repeat(repeat('x', 100000), 100000), 100000)",
    "SELECT array_repeat(1, 4000000000)",
    "SELECT count(*) FROM generate_series(1, 100000000000)",
    "SELECT array_length(range(0, 9000000000))",
    "SELECT count(*) FROM live.t a, live.t b, live.t c, live.t d",
    "SELECT max(a.v) FROM live.t a JOIN live.t b ON a.v <> b.v JOIN live.t c ON a.v <> c.v",
    "SELECT regexp_count(repeat('a', 100000), '(a*)*b')",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "SELECT string_agg(repeat(k, 100000), '') FROM live.t",
    "SELECT array_agg(a.k || b.k) FROM live.t a, live.t b",
];

fn sql_text(random: &mut Random) -> String {
    if random.percent(50) {
        return random.pick(&HOGS).to_owned();
    }
    let count = random.pick(&[30, 500, 1_900, 20_000, 200_000]);
    if random.percent(20) {
        let (open, close) =
            random.pick(&[("(", ")"), ("abs(", ")"), ("(SELECT ", ")"), ("CASE WHEN true THEN ", " END")]);
        return format!("SELECT {}1{}", open.repeat(count), close.repeat(count));
    }
    let (begin, more) = random.pick(&CHAINS);
    let end = if begin.contains(" IN (") { ")" } else { "" };
    format!("{begin}{}{end}", more.repeat(count))
}

pub(super) fn sql(attack: &Attack, mut random: Random) {
    while attack.goes_on() {
        let text = sql_text(&mut random);
        let patience = if random.percent(30) { random.time(Duration::from_secs(2)) } else { PATIENCE };
        let patience = patience.max(Duration::from_millis(1));
        match request(attack, "POST", "/v1/sql?format=csv", None, &text, patience) {
            Some(_) => attack.count("sql"),
            None => attack.count("sql left alone"),
        }
    }
}

/// Conditions and arguments of windows.
fn window_text(random: &mut Random) -> String {
    let bomb = (0..6).fold("k".to_owned(), |inner, _| format!("replace({inner},'a','{}')", "a".repeat(32)));
    let count = random.pick(&[10, 2_000, 10_200, 100_000]);
    let (argument, condition) = match random.between(0, 7) {
        0 => (format!("sum(length({bomb}))"), "true".to_owned()),
        1 => ("count(*)".to_owned(), format!("k LIKE '{}'", "%a".repeat(count))),
        2 => ("count(*)".to_owned(), format!("k LIKE '{}'", "_".repeat(count))),
        3 => ("count(*)".to_owned(), format!("true{}", " AND true".repeat(count))),
        4 => (format!("sum({}v{})", "(".repeat(count), ")".repeat(count)), "true".to_owned()),
        5 => (format!("sum(v{})", "+v".repeat(count)), "true".to_owned()),
        6 => ("count(*)".to_owned(), format!("{}true", "NOT ".repeat(count))),
        _ => (format!("sum(length(k{}))", "||k".repeat(count)), "true".to_owned()),
    };
    format!("SELECT {argument} AS n FROM h WHERE {condition} GROUP BY k OVER INFINITE")
}

/// Adds hostile queries, feeds them, drops them; and tries requests that need the token without it.
pub(super) fn windows(attack: &Attack, mut random: Random) {
    let patience = Duration::from_secs(10);
    let mut number = 0;
    while attack.goes_on() {
        number += 1;
        let path = format!("/v1/jobs/mud/operators/m/queries/z{number}");
        let token = attack.token.as_str();
        if request(attack, "POST", &path, Some(token), &window_text(&mut random), patience).is_some() {
            attack.count("window queries");
        }
        let key =
            random.pick(&["a", "aaaa", "%a%a", "\u{1f600}\u{301}", ""]).repeat(random.pick(&[1, 50, 20_000]));
        let record = serde_json::json!({ "ts": 1_700_000_000_000_u64, "k": key, "v": i64::MAX });
        if request(attack, "POST", "/v1/jobs/mud/sources/h", None, &record.to_string(), patience).is_some() {
            attack.count("hostile values");
        }
        let _ = request(attack, "DELETE", &path, Some(token), "", patience);

        let job = r#"{"name":"x","sources":{"s":{"type":"generator","kind":"payments","count":1}},"sinks":{"o":{"type":"null","input":"s"}}}"#;
        let (method, path, text) = random.pick(&[
            ("POST", "/v1/jobs/x", job),
            ("DELETE", "/v1/jobs/live", ""),
            ("DELETE", "/v1/jobs/live?drain=false", ""),
            (
                "POST",
                "/v1/jobs/live/operators/m/queries/z",
                "SELECT count(*) AS n FROM p GROUP BY k OVER INFINITE",
            ),
            ("DELETE", "/v1/jobs/live/operators/m/queries/hour", ""),
        ]);
        let wrong = random.pick(&[None, Some(""), Some("wrong"), Some("../admin.token")]);
        if let Some(status) = request(attack, method, path, wrong, text, patience) {
            attack.count("without the token");
            if (200..300).contains(&status) {
                attack.allowed(format!("{method} {path} without the token: status {status}"));
            }
        }
        attack.pause(Duration::from_millis(50));
    }
}

/// Sends one request on a connection of its own, and reads the reply for a while. `None`: no status came.
fn request(
    attack: &Attack,
    method: &str,
    path: &str,
    token: Option<&str>,
    text: &str,
    patience: Duration,
) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&attack.http, patience.min(Duration::from_secs(5))).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    let length = text.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{token}connection: close\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let _ = stream.write_all(text.as_bytes());
    let mut reply = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut reply);
    let line = reply.split(|byte| *byte == b'\r').next()?;
    String::from_utf8_lossy(line).split(' ').nth(1)?.parse().ok()
}
