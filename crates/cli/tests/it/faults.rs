//! What a user meets when something beside the job is wrong: a data directory that cannot be used, clients that go away
//! in the middle. Disks that fail take root or strace: `cargo xtask faults`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command};

use super::{Ended, Place, place};

const TO_FILE: &str = "sinks:\n  out: { type: file, input: payments, path: out.csv, format: csv }\n";

/// An error of one line says what and where, and the next one what to do.
#[track_caller]
fn says(ended: &Ended, parts: &[&str]) {
    for part in parts.iter().chain(&["error: ", "\n = hint: "]) {
        assert!(ended.stderr.contains(part), "{part:?} is missing in\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

#[test]
fn a_data_directory_below_a_file_is_refused_by_name() {
    let place = place(TO_FILE);
    std::fs::write(place.path().join("plain"), "no folder").unwrap();
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "plain/D"]).ends_with(1);
    says(&ended, &["create data directory \"plain/D\"", "Not a directory", "permissions"]);
    assert!(!place.path().join("out.csv").exists(), "nothing was touched");
    place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
}

#[test]
fn a_data_directory_that_another_process_has_is_refused_and_left_alone() {
    let place = place(TO_FILE);
    let follows = SERVED.replace(
        "SOURCE",
        "{ type: file, path: lines.csv, follow: true, format: csv, schema: { n: int64 } }",
    );
    std::fs::write(place.path().join("lines.csv"), "n\n1\n2\n").unwrap();
    let mut first = Served::start(&place, &follows);
    let mut stdout = BufReader::new(first.child.stdout.take().expect("stdout is piped"));
    for _ in 0..3 {
        stdout.read_line(&mut String::new()).expect("what is in the file");
    }
    let ended = place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(2);
    says(&ended, &["\"D\"", "in use by another process"]);
    let ended = first.ends("-TERM").ends_with(0);
    assert_eq!(ended.counts(), (2, 2, 0), "it never noticed");
    place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
}

/// The first file below a folder whose name begins and ends so.
fn find(folder: &Path, begin: &str, end: &str) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.starts_with(begin) && name.ends_with(end) {
                return path;
            }
        }
    }
    panic!("no {begin}…{end} below {folder:?}")
}

/// As `docs/formats/log.md` has it: the version in bytes 8 and 9, the checksum of the header in its last four.
fn make_newer(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let mut newer = bytes.clone();
    newer[8] += 1;
    let checksum = newer[..60].iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    });
    newer[60..64].copy_from_slice(&(!checksum).to_le_bytes());
    std::fs::write(path, newer).unwrap();
    bytes
}

#[test]
fn what_a_newer_build_has_written_is_refused_and_stays_as_it_is() {
    let place = place(TO_FILE);
    let run = ["run", "job.yaml", "--data-dir", "D"];
    place.thalweg(&run).ends_with(0);
    let data = place.path().join("D/jobs/demo");
    for (begin, end) in [("commit", ".log"), ("order-", ".thl")] {
        let path = find(&data, begin, end);
        let before = make_newer(&path);
        let ended = place.thalweg(&run).ends_with(2);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        says(&ended, &[&name, "format", "2", "run the version that wrote it, or a newer one"]);
        let after = std::fs::read(&path).unwrap();
        assert!(after != before && after.len() == before.len(), "{name} was touched");
        std::fs::write(&path, before).unwrap();
        place.thalweg(&run).ends_with(0);
    }
    assert_eq!(place.read("out.csv").lines().count(), 1 + 4, "once");
}

const SERVED: &str = "\
name: served
sources:
  lines: SOURCE
sinks:
  out: { type: stdout, input: lines, format: csv }
";

/// A job that runs until it is told to end.
struct Served {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Served {
    /// Starts it and waits until it listens.
    fn start(place: &Place, text: &str) -> Self {
        std::fs::write(place.path().join("served.yaml"), text).unwrap();
        let arguments = ["run", "served.yaml", "--data-dir", "D", "--listen", "127.0.0.1:0"];
        let mut command = place.command(&arguments);
        let mut child = command.env("THALWEG_LOG", "info").spawn().expect("the binary runs");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut served = Self { child, stderr, said: String::new() };
        served.address();
        served
    }

    /// What it says behind this, up to the end of the line.
    fn until(&mut self, what: &str) -> String {
        loop {
            if let Some((rest, _)) = self.said.split_once(what).and_then(|(_, rest)| rest.split_once('\n')) {
                return rest.trim().to_owned();
            }
            let count = self.stderr.read_line(&mut self.said).expect("it says something");
            assert!(count > 0, "it ended before {what:?}: {}", self.said);
        }
    }

    /// Where it listens for HTTP.
    fn address(&mut self) -> String {
        self.until("listening on http://")
    }

    fn ends(mut self, name: &str) -> Ended {
        signal(&self.child, name);
        self.stderr.read_to_string(&mut self.said).expect("the rest");
        let output = self.child.wait_with_output().expect("it ends");
        let mut ended = Ended::of(output);
        ended.stderr = self.said;
        ended
    }
}

/// A request of these bytes, with a body that says it has `length`.
fn post(address: &str, length: usize, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let path = "/v1/jobs/served/sources/lines";
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    stream
}

#[test]
fn a_request_that_is_cut_short_leaves_nothing_behind() {
    let place = Place::with(&[]);
    let text = SERVED.replace("SOURCE", "{ type: http, format: ndjson, schema: { n: int64 } }");
    let mut served = Served::start(&place, &text);
    let address = served.address();
    for end in [Some(Shutdown::Write), None] {
        // Two whole records, and then the client is gone.
        let mut cut = post(&address, 100, "{\"n\":1}\n{\"n\":2}\n{\"n\":");
        if let Some(end) = end {
            cut.shutdown(end).unwrap();
            // It is answered, or not, but not with success.
            let mut answer = String::new();
            let _ = cut.read_to_string(&mut answer);
            assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
        }
    }
    let mut whole = post(&address, 8, "{\"n\":3}\n");
    let mut answer = [0; 12];
    whole.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(whole);
    let ended = served.ends("-TERM").ends_with(0);
    assert_eq!(ended.counts(), (1, 1, 0));
    assert_eq!(ended.stdout, "n\n3\n");
}

#[test]
fn a_tcp_connection_that_ends_in_a_record_loses_that_record_alone_and_says_so() {
    let place = Place::with(&[]);
    let source = "{ type: tcp, listen: '127.0.0.1:0', format: ndjson, schema: { n: int64 } }";
    let mut served = Served::start(&place, &SERVED.replace("SOURCE", source));
    let said = served.until("listening on tcp");
    let address = said.split_once("address=").and_then(|(_, rest)| rest.split_whitespace().next());
    let address = address.unwrap_or_else(|| panic!("no address in {said}"));
    for lines in ["{\"n\":1}\n{\"n\":2}\n{\"n\":3", "{\"n\":4}\n"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(lines.as_bytes()).unwrap();
        // Its other end closes, too, once it has read everything.
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let ended = served.ends("-TERM").ends_with(0);
    assert_eq!(ended.stdout, "n\n1\n2\n4\n");
    assert_eq!(ended.counts(), (4, 3, 1));
    let rejects = place.read("D/jobs/served/rejects/rejects-0.ndjson");
    assert!(rejects.contains(r#""offset":2"#) && rejects.contains(r#""code":"parse""#), "{rejects}");
}
