//! The sink for line protocol over HTTP, against a server that fails in every way that servers do.

use std::collections::BTreeMap;
use std::net::TcpListener;

use thalweg_flow::collect;
use thalweg_types::Class;

use super::drive::{Driven, LIMIT, context, numbers};
use super::fake_influx::{Act, FakeInflux};
use super::*;
use crate::{SinkPlugin, SinkResume};

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn entries(address: std::net::SocketAddr) -> Vec<(&'static str, OptionValue)> {
    vec![
        ("url", text(&format!("http://{address}"))),
        ("measurement", text("m")),
        ("tags", OptionValue::List(vec!["host".to_owned()])),
        ("precision", text("us")),
        ("retry_wait", OptionValue::Duration(1_000)),
    ]
}

fn point(n: u64) -> String {
    format!("m,host=host-{} n={n}i {n}", n % 7)
}

/// How often each point was taken.
fn counted(points: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for point in points {
        *counts.entry(point.as_str()).or_default() += 1;
    }
    counts
}

/// That all points up to `total` are there and no others; returns how many are there too often.
fn duplicates(points: &[String], total: u64) -> u64 {
    let counts = counted(points);
    for n in 0..total {
        assert!(counts.contains_key(point(n).as_str()), "point {n} is lost");
    }
    assert_eq!(counts.len() as u64, total, "points that nobody sent");
    points.len() as u64 - total
}

#[test]
fn points_arrive_in_order_and_the_end_waits_for_them() {
    let server = FakeInflux::start(listener(), &[]);
    let mut sink = Driven::new("influx", context(&numbers(), &entries(server.address), None));
    for _ in 0..50 {
        sink.give(100).unwrap();
    }
    sink.finish().unwrap();
    let seen = server.seen();
    assert_eq!(seen.points, (0..5_000).map(point).collect::<Vec<_>>());
    assert!(seen.heads[0].starts_with("POST /write?precision=u HTTP/1.1\r\n"), "{}", seen.heads[0]);
    assert_eq!((sink.report.records(), sink.report.repeated()), (5_000, 0));
    let bytes: usize = seen.points.iter().map(|point| point.len() + 1).sum();
    assert_eq!(sink.report.bytes(), bytes as u64);
}

/// Row 8 of the reliability tests.
#[test]
fn an_outage_loses_nothing_repeats_only_what_is_counted_and_keeps_memory_bounded() {
    const QUEUE: usize = 64 << 10;
    // A bound socket that does not listen refuses connections.
    let socket = io(|| tokio::net::TcpSocket::new_v4().unwrap());
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut entries = entries(socket.local_addr().unwrap());
    entries.extend([("queue", OptionValue::Size(QUEUE as u64)), ("batch", OptionValue::Size(8 << 10))]);
    let mut sink = Driven::new("influx", context(&numbers(), &entries, None));
    let mut given = 0;
    while sink.is_ready() {
        sink.give(100).unwrap();
        given += 100;
        assert!(given < 100_000, "nothing holds the sink back");
    }
    let listening = io(move || socket.listen(64).unwrap().into_std().unwrap());
    listening.set_nonblocking(false).unwrap();
    let script = [
        Act::Refuse(500, "internal"),
        Act::Reset,
        Act::TakeAndForget,
        Act::Refuse(503, "busy"),
        Act::Take,
        Act::TakeAndForget,
        Act::TakeAndForget,
        Act::Refuse(429, "later"),
        Act::TakeLater,
        Act::Reset,
    ];
    let server = FakeInflux::start(listening, &script);
    // A slow answer holds the queue back, and nothing is sent twice for it.
    server.waits.recv_timeout(LIMIT).unwrap();
    while sink.is_ready() {
        sink.give(100).unwrap();
        given += 100;
        assert!(given < 200_000, "nothing holds the sink back");
    }
    server.later.send(()).unwrap();
    while given < 20_000 {
        sink.give(100).unwrap();
        given += 100;
    }
    sink.finish().unwrap();
    let seen = server.seen();
    assert!(seen.heads.len() > script.len(), "the script was not played to its end");
    let twice = duplicates(&seen.points, given);
    assert!(twice > 0, "lost acknowledgements make duplicates here");
    assert!(twice <= sink.report.repeated(), "{twice} duplicates, {} counted", sink.report.repeated());
    // Rows that gather in the operator, one step, and the room that vectors keep.
    let bound = QUEUE + 2 * ((64 << 10) + 100 * 40);
    assert!(sink.most_bytes <= bound, "{} bytes were held, bound {bound}", sink.most_bytes);
}

/// Runs on the I/O runtime, to which sockets of tokio belong.
fn io<T>(make: impl FnOnce() -> T) -> T {
    let _runtime = crate::source::handover::io_runtime().unwrap().enter();
    make()
}

#[test]
fn points_that_are_refused_stop_the_job_with_what_was_said() {
    let refusals: &[(u16, &str, &str, &str)] = &[
        (
            400,
            "{\"message\":\"field type conflict\"}",
            "refuses points (400); it was given 3 points, of which the first is \"m,host=host-0 n=0i 0\": {\"message\":\"field type conflict\"}",
            "mend the table",
        ),
        (401, "who are you", "does not let the sink write (401): who are you", "token"),
        (404, "no such bucket", "is not there (404): no such bucket", "bucket"),
        (413, "too much", "takes no request of this size (413): too much", "batch"),
        (307, "", "leads elsewhere (307): ", "URL"),
    ];
    for (status, said, expected, hint) in refusals {
        let server = FakeInflux::start(listener(), &[Act::Refuse(*status, said)]);
        let mut sink = Driven::new("influx", context(&numbers(), &entries(server.address), None));
        sink.give(3).unwrap();
        let error = sink.failure();
        let place = format!("http://{}/write?precision=u", server.address);
        assert_eq!(error.chain(), format!("{place} {expected}"));
        assert!(said.is_empty() || !error.public_chain().contains(said), "{}", error.public_chain());
        assert!(!error.public_chain().contains("host-0"), "{}", error.public_chain());
        assert!(error.hint().unwrap().contains(hint), "{:?}", error.hint());
        assert!(sink.is_ready() && sink.tick().is_err(), "nothing is taken any more");
        assert_eq!(server.seen().heads.len(), 1, "points that are refused for good are not sent again");
    }
}

#[test]
fn an_outage_that_lasts_too_long_stops_the_job() {
    let server = FakeInflux::start(listener(), &[Act::Refuse(503, "down"); 2]);
    let mut entries = entries(server.address);
    entries.push(("retry_for", OptionValue::Duration(0)));
    let mut sink = Driven::new("influx", context(&numbers(), &entries, None));
    sink.give(1).unwrap();
    let error = sink.failure();
    assert!(
        error.message().starts_with("sink \"answers\" has waited for 0s (retry_for): http://"),
        "{error}"
    );
    assert_eq!(error.class(), Class::External);
}

#[test]
fn a_cycle_is_durable_once_its_points_have_been_taken() {
    let server = FakeInflux::start(listener(), &[Act::TakeLater]);
    let context = context(&numbers(), &entries(server.address), Some(SinkResume::default()));
    let mut sink = Driven::new("influx", context);
    assert!(sink.sink.takes_part());
    sink.give(3).unwrap();
    collect(|out| sink.sink.cycle(1, out)).unwrap();
    server.waits.recv_timeout(LIMIT).unwrap();
    assert!(server.seen().points.is_empty());
    server.later.send(()).unwrap();
    sink.finish().unwrap();
    assert_eq!(duplicates(&server.seen().points, 3), 0);
}

#[test]
fn secrets_are_sent_and_neither_told_nor_logged() {
    const CANARY: &str = "canary-5f1c9d";
    let _ = thalweg_testing::logs::all();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, CANARY).unwrap();
    let reference = secret(&format!("file:{}", path.display()));
    let mut told = String::new();
    for by_token in [true, false] {
        let script = [Act::Reset, Act::Refuse(500, "no"), Act::Refuse(401, "go away")];
        let server = FakeInflux::start(listener(), &script);
        let mut entries = entries(server.address);
        if by_token {
            entries.extend([("token", reference.clone()), ("bucket", text("b 1")), ("org", text("o&o"))]);
        } else {
            entries.extend([("user", text("me")), ("password", reference.clone()), ("database", text("d"))]);
        }
        let mut sink = Driven::new("influx", context(&numbers(), &entries, None));
        sink.give(1).unwrap();
        told += &format!("{:?}", sink.failure());
        let head = server.seen().heads.pop().unwrap();
        if by_token {
            assert!(
                head.starts_with("POST /api/v2/write?bucket=b+1&org=o%26o&precision=us HTTP/1.1\r\n"),
                "{head}"
            );
            assert!(head.contains(&format!("authorization: Token {CANARY}\r\n")), "{head}");
        } else {
            assert!(head.starts_with("POST /write?db=d&precision=u HTTP/1.1\r\n"), "{head}");
            let mut login = Vec::new();
            crate::format::base64::encode(format!("me:{CANARY}").as_bytes(), &mut login);
            assert!(
                head.contains(&format!("authorization: Basic {}\r\n", String::from_utf8(login).unwrap())),
                "{head}"
            );
        }
    }
    for url in ["http://me:canary-5f1c9d@h/", "http://h/?p=canary-5f1c9d", "canary-5f1c9d"] {
        let mut entries = entries("127.0.0.1:1".parse().unwrap());
        entries.extend([("user", text("me")), ("url", text(url))]);
        let mistakes = crate::sink::influx::InfluxPlugin.check(&numbers(), &options(&entries));
        assert!(mistakes.iter().any(|mistake| mistake.key == "url"), "{mistakes:?}");
        told += &format!("{mistakes:?}");
        told +=
            &format!("{:?}", Driven::try_new("influx", context(&numbers(), &entries, None)).err().unwrap());
    }
    let logged = thalweg_testing::logs::all();
    assert!(logged.contains("waiting for the sink's target"), "nothing was logged");
    assert!(!logged.contains(CANARY) && !told.contains(CANARY), "{told}\n{logged}");
}

#[test]
fn mistakes_in_a_job_file_are_told_before_anything_is_sent() {
    let check = |given: &[(&str, OptionValue)]| -> Vec<String> {
        let mistakes = crate::sink::influx::InfluxPlugin.check(&numbers(), &options(given));
        mistakes.iter().map(|mistake| format!("{}: {}", mistake.key, mistake.error)).collect()
    };
    let measurement = ("measurement", text("m"));
    let url = |url: &str| ("url", text(url));
    assert_eq!(check(&[url("http://h:1"), measurement.clone()]), [""; 0]);
    assert_eq!(check(&[url("http://h:1")]), ["type: line protocol needs a measurement, got none"]);
    assert_eq!(
        check(&[url("https://h"), measurement.clone()]),
        ["url: url: expected http, got https, which this build does not speak"]
    );
    assert_eq!(
        check(&[url("http://h"), measurement, ("bucket", text("b")), ("database", text("d"))]),
        ["url: expected one of bucket and database, got both"]
    );
}

#[test]
fn waits_of_zero_are_refused_where_nothing_could_arrive_or_nobody_would_pause() {
    let told = |sink: &str, zeros: &[&str]| -> Vec<String> {
        let all: &[(&str, OptionValue)] = match sink {
            "influx" => &[("url", text("http://h:1")), ("measurement", text("m"))],
            _ => &[("url", text("postgres://me@h/shop")), ("table", text("t"))],
        };
        let mut all = all.to_vec();
        all.extend(zeros.iter().map(|key| (*key, OptionValue::Duration(0))));
        let mistakes = Registry::builtin().sink(sink).unwrap().check(&numbers(), &options(&all));
        let told = |mistake: &crate::Mistake| {
            format!("{}: {} | {}", mistake.key, mistake.error, mistake.error.hint().unwrap_or("no hint"))
        };
        mistakes.iter().map(told).collect()
    };
    let timeout = "timeout: expected a duration above zero, got 0s | leave it out to have 30s";
    let wait = "retry_wait: expected a duration above zero, got 0s | leave it out to have 10s";
    assert_eq!(told("influx", &["timeout", "retry_wait"]), [timeout, wait]);
    assert_eq!(told("postgres", &["retry_wait"]), [wait]);
    for sink in ["influx", "postgres"] {
        assert_eq!(told(sink, &["retry_for"]), [""; 0], "{sink} gives up at once then");
    }
}
