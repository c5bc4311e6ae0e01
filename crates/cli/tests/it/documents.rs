//! The tour is true, the examples run as they are, and help prints the documents.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use super::Place;
use super::examples::example;
use super::faults::Served;

const TOUR: &str = include_str!("../../../../docs/tour.md");

/// A folder in which `examples/` is the repository's.
fn repository() -> Place {
    let place = Place::with(&[]);
    let examples =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().expect("examples");
    #[cfg(unix)]
    std::os::unix::fs::symlink(examples, place.path().join("examples")).expect("a link");
    place
}

/// Commands of the tour with their output, by section.
fn commands(section: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for block in section.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => all.push((command, Vec::new())),
                None => all.last_mut().expect("a command comes first").1.push(line),
            }
        }
    }
    all
}

/// What a `curl` command of the tour asks for.
fn curl(command: &str, address: &str, token: &str) -> String {
    let quoted = |after: &str| {
        let rest = command.split_once(after)?.1;
        Some(rest.split('\'').next().unwrap_or_default())
    };
    let body = quoted("-d '");
    let url = command.split("http://127.0.0.1:8080").nth(1).expect("a URL").trim_end_matches('\'');
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.unwrap_or_default();
    let authorization =
        if command.contains("-H ") { format!("Authorization: Bearer {token}\r\n") } else { String::new() };
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "{method} {url} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: {}\r\n{authorization}\
         Content-Length: {}\r\n\r\n{body}",
        if body.starts_with('{') { "application/json" } else { "text/plain" },
        body.len()
    )
    .expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut out, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            break;
        }
        out.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    out
}

#[test]
fn the_tour_is_true() {
    let place = repository();
    let start = || {
        Served::listening(place.command(&[
            "run",
            "examples/fraud/job.yaml",
            "--data-dir",
            "fraud",
            "--listen",
            "0",
        ]))
    };
    let mut served = None;
    let mut address = String::new();
    let mut count = 0;
    for section in TOUR.split("\n## ").skip(1) {
        if section.starts_with("2. Kill it") {
            Option::take(&mut served).map(Served::killed).expect("it runs");
            let mut again = start();
            address = again.address();
            served = Some(again);
        }
        for (command, output) in commands(section) {
            count += 1;
            let shown = output.join("\n");
            if command.starts_with("curl ") {
                let token = place.read("fraud/admin.token");
                assert_eq!(curl(command, &address, token.trim()).trim_end(), shown, "{command}");
            } else if command.starts_with("thalweg run ") {
                let mut first = start();
                address = first.address();
                served = Some(first);
            } else {
                let command = command.replace("http://127.0.0.1:8080", &format!("http://{address}"));
                let rest = command.strip_prefix("thalweg ").expect("a command of ours");
                let (statement, rest) = match rest.split('\'').collect::<Vec<_>>()[..] {
                    [verb, statement, rest] => (vec![verb.trim(), statement], rest),
                    _ => (Vec::new(), rest),
                };
                let args = [statement, rest.split_whitespace().collect()].concat();
                let printed = place.thalweg(&args).ends_with(0).stdout;
                let expected = shown.trim_end_matches('…');
                assert!(printed.starts_with(expected), "{command}: {printed}");
            }
        }
    }
    assert_eq!(count, 11, "commands of the tour");
    Option::take(&mut served).expect("it runs").ends("-TERM").ends_with(0);
    assert!(place.read("fraud/jobs/fraud/rejects/rejects-0.ndjson").contains(r#"\"tx\":\"t4\""#));
    let verified = place.thalweg(&["verify", "fraud"]).ends_with(0).stdout;
    assert!(verified.lines().all(|line| line.starts_with("ok ")), "{verified}");
}

#[test]
fn examples_run_as_they_are() {
    let last = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    let place = repository();
    let run =
        |job: &str, more: &[&str]| place.thalweg(&[&["run", job, "--quiet"][..], more].concat()).ends_with(0);
    assert_eq!(run("examples/first/payments.yaml", &[]).counts(), (4, 4, 0));

    assert_eq!(run("examples/payments/job.yaml", &[]).counts(), (200, 200, 0));
    let expected = r#"{"ts":1767234570892,"card":"c0000016","merchant":"m00003","amount":22.44,"card_1h":{"spent":30.740000000000002,"n":2},"shop_5m":{"mean":null}}"#;
    assert_eq!(last(&place.read("answers.ndjson")), expected);

    assert_eq!(run("examples/power/job.yaml", &[]).counts(), (500, 500, 0));
    let power = last(&place.read("power.csv"));
    assert!(
        power.starts_with("1767225604990048,499,12922,14276,7991,12890.446,19.712438826512003,"),
        "{power}"
    );

    let (words, _, rejects) = run("examples/wordcount/job.yaml", &[]).counts();
    assert_eq!((words, rejects), (8, 0));

    run("examples/manufacturing/job.yaml", &["--set", "sources.readings.count=2000"]);
    assert!(place.read("delays.csv").starts_with("ts,delay1,delay2,delay3"), "{}", place.read("delays.csv"));

    let few = ["--set", "sources.switches.count=2000", "--data-dir", "ixp"];
    assert_eq!(run("examples/ixp.yaml", &few).counts().0, 2000);
    let top =
        place.thalweg(&["sql", "SELECT * FROM top_as_pairs LIMIT 10", "--data-dir", "ixp"]).ends_with(0);
    assert_eq!(top.stdout.lines().count(), 12, "{}", top.stdout);
}

#[test]
fn examples_that_need_others_pass_the_checks() {
    for job in ["fraud/job.yaml", "iot/job.yaml"] {
        let place = Place::with(&[]);
        let mut command = place.command(&["check", &example(job)]);
        let output = command.env("PGPASSWORD", "secret").output().expect("it runs");
        assert!(output.status.success(), "{job}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_example_has_a_page_of_its_own() {
    let folder = example("");
    for entry in std::fs::read_dir(&folder).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            assert!(path.join("README.md").is_file(), "{} has no README.md", path.display());
        }
    }
}
