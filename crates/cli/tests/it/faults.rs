//! What a user meets when something outside the job is wrong: a data directory that cannot be used, clients that go
//! away in the middle. Disks that fail take root or strace: `cargo xtask faults`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::Duration;

use socket2::SockRef;

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

/// The first file below a folder whose name begins with `begin` and ends with `end`.
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

/// A format with a version, in files of this name.
struct Format {
    begin: &'static str,
    end: &'static str,
    /// Where the version is, in two bytes, the lower first.
    at: usize,
    /// Makes the checksum over it right again: otherwise it is damage.
    seal: fn(&mut [u8]),
    what: &'static str,
}

/// Puts the checksum of all bytes before `at` there.
fn seal(bytes: &mut [u8], at: usize) {
    let checksum = crc32fast::hash(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Of a chunk's head: magic 4, format 2, columns 2, length 4, and the checksum at its end.
fn seal_chunk(bytes: &mut [u8]) {
    let chunk = &mut bytes[CHUNK_AT..];
    let length = u32::from_le_bytes(chunk[8..12].try_into().unwrap());
    seal(chunk, length as usize - 4);
}

/// Of a file with one key: it is in the middle of the bytes that it covers.
fn seal_key(bytes: &mut [u8]) {
    let checksum = crc32fast::hash(&[&bytes[..36], &bytes[40..]].concat());
    bytes[36..40].copy_from_slice(&checksum.to_le_bytes());
}

/// Behind the header of the file.
const CHUNK_AT: usize = 32;

const LOG: Format = Format { begin: "", end: ".thl", at: 8, seal: |bytes| seal(bytes, 60), what: "segment" };

/// What a job keeps anywhere.
const KEPT: [Format; 6] = [
    Format { begin: "commit", end: ".log", at: 8, seal: |bytes| seal(bytes, 20), what: "segment" },
    Format { begin: "order-", ..LOG },
    Format { begin: "journal-", ..LOG },
    Format { begin: "schemas", end: ".ths", at: 8, seal: |bytes| seal(bytes, 20), what: "a schema file" },
    Format { begin: "chunks-", end: ".thc", at: 8, seal: |bytes| seal(bytes, 28), what: "a chunk file" },
    Format { begin: "chunks-", end: ".thc", at: CHUNK_AT + 4, seal: seal_chunk, what: "a chunk" },
];

/// Files of one back end or the other. Lists of sealed segments come with a MiB of state: of those the back
/// end's own tests check.
const SEGMENT: Format =
    Format { begin: "segment-", end: ".ths", at: 8, seal: |bytes| seal(bytes, 28), what: "a segment" };
const KEY: Format = Format { begin: "k04", end: "", at: 8, seal: seal_key, what: "a file of one key" };

const EVERYTHING: &str = "\
name: demo
state: { backend: BACKEND }
sources:
  payments: { type: stdin, format: csv, schema: { ts: timestamp(ms), card: string, merchant: string, amount: float64 }, time: ts }
operators:
  features:
    type: metrics
    input: payments
    partition_by: card
    partitions: 1
    queries: { n: SELECT sum(amount) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR }
sinks:
  out: { type: file, input: features, path: out.ndjson, format: ndjson }
";

const RUN: [&str; 4] = ["run", "job.yaml", "--data-dir", "D"];

/// Where a job has taken `records` records and has ended.
fn ran(backend: &str, records: usize) -> Place {
    let place = Place::with(&[("job.yaml", &EVERYTHING.replace("BACKEND", backend))]);
    let count = records.to_string();
    let made = place.thalweg(&["gen", "payments", "--count", &count, "--fields", "4"]).ends_with(0);
    std::fs::write(place.path().join("in.csv"), made.stdout).unwrap();
    let mut command = place.command(&RUN);
    command.stdin(std::fs::File::open(place.path().join("in.csv")).unwrap());
    Ended::of(command.output().unwrap()).ends_with(0);
    place
}

#[test]
fn what_a_newer_build_has_written_is_refused_and_stays_as_it_is() {
    // Enough records for chunks; and one file for each key takes its time.
    let indexed = KEPT.iter().chain([&SEGMENT]).collect();
    for (backend, records, formats) in [("indexed", 10_000, indexed), ("files", 100, vec![&KEY])] {
        let place = ran(backend, records);
        for format in formats {
            refuses_newer(&place, format);
        }
        place.thalweg(&RUN).ends_with(0);
        assert_eq!(place.read("out.ndjson").lines().count(), records, "once");
    }
}

/// Raises the version of a file, and takes it back after a look at the program's reaction.
fn refuses_newer(place: &Place, format: &Format) {
    let path = find(&place.path().join("D/jobs/demo"), format.begin, format.end);
    let before = std::fs::read(&path).unwrap();
    let mut newer = before.clone();
    newer[format.at] += 1;
    (format.seal)(&mut newer);
    std::fs::write(&path, &newer).unwrap();
    let ended = place.thalweg(&RUN).ends_with(2);
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let version = newer[format.at].to_string();
    says(&ended, &[&name, format.what, "format", &version, "that wrote it, or a newer one"]);
    assert!(std::fs::read(&path).unwrap() == newer, "{name} was touched");
    std::fs::write(&path, before).unwrap();
}

#[test]
fn a_job_does_not_start_on_a_flipped_byte_that_no_crash_leaves() {
    let place = ran("indexed", 500);
    // Of each file the header or the first frame, which others follow or a commit names.
    for (begin, end, flipped, named) in [
        ("commit", ".log", 3, 0),
        ("commit", ".log", 44, 24),
        ("journal-", ".thl", 84, 64),
        ("order-", ".thl", 84, 64),
    ] {
        let path = find(&place.path().join("D/jobs/demo"), begin, end);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[flipped] ^= 4;
        std::fs::write(&path, &damaged).unwrap();
        let ended = place.thalweg(&RUN).ends_with(3);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        says(&ended, &["damage in ", &format!("{name}\" at byte {named}: "), "restore the folder"]);
        assert!(std::fs::read(&path).unwrap() == damaged, "{name} was touched");
        std::fs::write(&path, whole).unwrap();
    }
    place.thalweg(&RUN).ends_with(0);
    assert_eq!(place.read("out.ndjson").lines().count(), 500, "once");
}

const SERVED: &str = "\
name: served
sources:
  lines: SOURCE
sinks:
  out: { type: stdout, input: lines, format: csv }
";

/// A job that runs until it is asked to end.
pub(super) struct Served {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Served {
    /// Starts it and waits until it listens.
    pub(super) fn start(place: &Place, text: &str) -> Self {
        std::fs::write(place.path().join("served.yaml"), text).unwrap();
        let arguments = ["run", "served.yaml", "--data-dir", "D", "--listen", "127.0.0.1:0"];
        Self::listening(place.command(&arguments))
    }

    /// The same with at most `files` open files.
    fn with_files(place: &Place, text: &str, files: u32) -> Self {
        std::fs::write(place.path().join("served.yaml"), text).unwrap();
        let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let command = place.command(&[]);
        let binary = command.get_program().to_owned();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(limited).arg(binary);
        shell.args(["run", "served.yaml", "--data-dir", "D", "--listen", "127.0.0.1:0"]);
        shell.current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::listening(shell)
    }

    pub(super) fn listening(mut command: Command) -> Self {
        command.env("THALWEG_LOG", "info");
        let mut served = Self::of(command);
        served.address();
        served
    }

    /// A command whose standard error is read.
    pub(super) fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary runs");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        Self { child, stderr, said: String::new() }
    }

    /// Its output after this, up to the end of the line.
    pub(super) fn until(&mut self, what: &str) -> String {
        loop {
            if let Some((rest, _)) = self.said.split_once(what).and_then(|(_, rest)| rest.split_once('\n')) {
                return rest.trim().to_owned();
            }
            let count = self.stderr.read_line(&mut self.said).expect("it says something");
            assert!(count > 0, "it ended before {what:?}: {}", self.said);
        }
    }

    /// Where it listens for HTTP.
    pub(super) fn address(&mut self) -> String {
        self.until("listening on http://")
    }

    /// Where its source listens.
    fn tcp_address(&mut self) -> String {
        let said = self.until("listening on tcp");
        let address = said.split_once("address=").and_then(|(_, rest)| rest.split_whitespace().next());
        address.unwrap_or_else(|| panic!("no address in {said}")).to_owned()
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub(super) fn killed(mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it is there to be killed");
    }

    pub(super) fn ends(mut self, name: &str) -> Ended {
        signal(&self.child, name);
        self.stderr.read_to_string(&mut self.said).expect("the rest");
        let mut stdout = Vec::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_end(&mut stdout).expect("its output");
        }
        let status = self.child.wait().expect("it ends");
        let mut ended = Ended::of(Output { status, stdout, stderr: Vec::new() });
        ended.stderr = std::mem::take(&mut self.said);
        ended
    }
}

/// A test that fails leaves no process running.
impl Drop for Served {
    fn drop(&mut self) {
        // It has ended, where the test has waited for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request of these bytes, with a body that says it has `length`.
pub(super) fn post(address: &str, length: usize, body: &str) -> TcpStream {
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
    let address = served.tcp_address();
    for lines in ["{\"n\":1}\n{\"n\":2}\n{\"n\":3", "{\"n\":4}\n"] {
        let mut stream = TcpStream::connect(&address).unwrap();
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

#[test]
fn a_tcp_connection_that_is_reset_in_a_record_loses_that_record_alone_and_says_so() {
    let place = Place::with(&[]);
    let source = "{ type: tcp, listen: '127.0.0.1:0', format: csv, schema: { n: int64 } }";
    let mut served = Served::start(&place, &SERVED.replace("SOURCE", source));
    let address = served.tcp_address();
    let mut stdout = BufReader::new(served.child.stdout.take().expect("stdout is piped"));
    let mut answers = |lines: &str| {
        for line in lines.lines() {
            let mut answer = String::new();
            stdout.read_line(&mut answer).expect("an answer");
            assert_eq!(answer.trim_end(), line);
        }
    };
    let mut other = TcpStream::connect(&address).unwrap();
    other.write_all(b"n\n1\n2").unwrap();
    answers("n\n1");
    let mut reset = TcpStream::connect(&address).unwrap();
    // A record by itself, had the connection ended there.
    reset.write_all(b"n\n3\n4\n55").unwrap();
    answers("3\n4");
    SockRef::from(&reset).set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    let said = served.until("connection closed early");
    assert!(said.contains("Connection reset by peer") && said.contains("peer=127.0.0.1:"), "{said}");
    other.write_all(b"2\n").unwrap();
    answers("22");
    let mut later = TcpStream::connect(&address).unwrap();
    later.write_all(b"n\n6\n").unwrap();
    answers("6");
    let ended = served.ends("-TERM").ends_with(0);
    assert_eq!(ended.counts(), (6, 5, 1));
    let rejects = place.read("D/jobs/served/rejects/rejects-0.ndjson");
    for part in [r#""offset":3"#, r#""code":"parse""#, "a connection that broke off", r#""raw":"55""#] {
        assert!(rejects.contains(part), "{part} is missing in {rejects}");
    }
}

#[test]
fn a_crowd_of_silent_connections_takes_no_file_from_the_engine() {
    const JOB: &str = "\
name: served
cycle: { every: 100ms }
sources:
  lines: { type: http, format: ndjson, schema: { k: string, v: int64 } }
  raw: { type: tcp, listen: '127.0.0.1:0', format: ndjson, schema: { k: string, v: int64 } }
operators:
  sums: { type: metrics, input: lines, partition_by: [k], queries: { q: SELECT sum(v) AS s FROM lines GROUP BY k OVER INFINITE } }
sinks:
  rows: { type: table, input: lines, seal_rows: 500 }
  others: { type: 'null', input: raw }
";
    let place = Place::with(&[]);
    let mut served = Served::with_files(&place, JOB, 256);
    let address = served.address();
    let tcp = served.tcp_address();
    let crowd: Vec<TcpStream> = (0..600)
        .filter_map(|number| TcpStream::connect(if number % 2 == 0 { &address } else { &tcp }).ok())
        .collect();
    assert!(crowd.len() > 500, "the kernel takes them");
    let body: String = (0..200).map(|number| format!("{{\"k\":\"k{number}\",\"v\":1}}\n")).collect();
    let (mut taken, mut tries) = (0, 0);
    while taken < 60 {
        let mut reply = String::new();
        let mut stream = post(&address, body.len(), &body);
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read_to_string(&mut reply);
        taken += u32::from(reply.starts_with("HTTP/1.1 200"));
        tries += 1;
        // Those that are silent make room when they have been so for a second.
        assert!(tries < 20_000, "{taken} requests of {tries}; the last: {reply}");
    }
    let mut ready = TcpStream::connect(&address).unwrap();
    write!(ready, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    ready.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    drop(crowd);
    let ended = served.ends("-TERM").ends_with(0);
    assert_eq!(ended.counts().0, u64::from(taken) * 200);
}
