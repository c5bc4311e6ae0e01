//! Connections of bad habits: hundreds on a thread, none of which ever waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::attack::Attack;
use thalweg_harness::random::Random;

/// Between two looks at all connections of a thread.
const STEP: Duration = Duration::from_millis(50);

/// How long the node may take to accept a connection before the attacker goes on.
const CONNECT: Duration = Duration::from_millis(20);

/// New connections of a thread in one step: it has others to look after.
const NEW: usize = 25;

/// What a connection does all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Sends nothing.
    Idle,
    /// Sends a head byte by byte, and never its end.
    SlowHead,
    /// Promises a body and sends a byte of it now and then.
    SlowBody,
    /// Sends requests and reads no reply.
    NeverReads,
    /// Sends bytes that are no HTTP.
    Noise,
    /// Sends a request and closes its writing side; expects the reply.
    HalfClose,
    /// Names no host, or two.
    Hosts,
    /// Says one length of a chunk and sends another.
    Chunks,
    /// Goes away in the middle of a body.
    Breaks,
    /// Holds a place of the TCP source.
    TcpIdle,
    /// Sends one line without an end to it.
    TcpPartial,
    /// Sends lines that are no records.
    TcpNoise,
}

const HABITS: [Habit; 12] = [
    Habit::Idle,
    Habit::SlowHead,
    Habit::SlowBody,
    Habit::NeverReads,
    Habit::Noise,
    Habit::HalfClose,
    Habit::Hosts,
    Habit::Chunks,
    Habit::Breaks,
    Habit::TcpIdle,
    Habit::TcpPartial,
    Habit::TcpNoise,
];

pub(super) const KINDS: [&str; 14] = [
    "idle",
    "slow heads",
    "slow bodies",
    "replies unread",
    "noise",
    "half-closed",
    "half-closed and answered",
    "hosts",
    "hosts refused",
    "wrong chunks",
    "bodies broken off",
    "tcp idle",
    "tcp partial",
    "tcp noise",
];

impl Habit {
    fn kind(self) -> &'static str {
        match self {
            Habit::Idle => "idle",
            Habit::SlowHead => "slow heads",
            Habit::SlowBody => "slow bodies",
            Habit::NeverReads => "replies unread",
            Habit::Noise => "noise",
            Habit::HalfClose => "half-closed",
            Habit::Hosts => "hosts",
            Habit::Chunks => "wrong chunks",
            Habit::Breaks => "bodies broken off",
            Habit::TcpIdle => "tcp idle",
            Habit::TcpPartial => "tcp partial",
            Habit::TcpNoise => "tcp noise",
        }
    }

    fn is_tcp(self) -> bool {
        matches!(self, Habit::TcpIdle | Habit::TcpPartial | Habit::TcpNoise)
    }
}

/// One connection, as far as it has come.
struct Held {
    habit: Habit,
    stream: TcpStream,
    steps: u32,
    got: Vec<u8>,
    since: Instant,
}

/// Holds a quarter of all connections until the attack is over.
pub(super) fn hold(attack: &Attack, mut random: Random) {
    let mut held: Vec<Option<Held>> = Vec::new();
    held.resize_with(attack.connections / 4, || None);
    while attack.goes_on() {
        let mut new = 0;
        for slot in &mut held {
            if let Some(connection) = slot {
                if !connection.step(attack, &mut random) {
                    *slot = None;
                }
            } else if new < NEW {
                new += 1;
                *slot = open(attack, random.pick(&HABITS));
            }
        }
        attack.pause(STEP);
    }
}

fn open(attack: &Attack, habit: Habit) -> Option<Held> {
    let address = if habit.is_tcp() { attack.tcp } else { attack.http };
    let stream = TcpStream::connect_timeout(&address, CONNECT).ok()?;
    stream.set_nonblocking(true).ok()?;
    attack.count(habit.kind());
    Some(Held { habit, stream, steps: 0, got: Vec::new(), since: Instant::now() })
}

const RECORD: &str = r#"{"ts":1700000000000,"k":"a","v":1}"#;

fn post(headers: &str, body: &str) -> Vec<u8> {
    let path = "/v1/jobs/mud/sources/h";
    format!("POST {path} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Held {
    /// One step; whether the connection is to be kept.
    fn step(&mut self, attack: &Attack, random: &mut Random) -> bool {
        self.steps += 1;
        let first = self.steps == 1;
        let host = "host: localhost\r\n";
        match self.habit {
            Habit::Idle | Habit::TcpIdle => self.read(),
            Habit::SlowHead => {
                let head = b"POST /v1/jobs/mud/sources/h HTTP/1.1\r\nx: ";
                let byte = head.get(self.steps as usize / 10).copied().unwrap_or(b'y');
                (!self.steps.is_multiple_of(10) || self.write(&[byte])) && self.read()
            }
            Habit::SlowBody => {
                let head =
                    format!("POST /v1/jobs/mud/sources/h HTTP/1.1\r\n{host}content-length: 4000000\r\n\r\n");
                let bytes = if first { head.as_bytes() } else { b"{" };
                (!(first || self.steps.is_multiple_of(20)) || self.write(bytes)) && self.read()
            }
            Habit::NeverReads => {
                let body = format!("{RECORD}\n").repeat(200);
                // What the node does not take any more stays here.
                self.write(&post(host, &body)) && self.since.elapsed() < Duration::from_secs(20)
            }
            Habit::Noise => {
                let noise: Vec<u8> = (0..random.between(1, 4_000)).map(|_| random.number() as u8).collect();
                self.write(&noise) && self.read()
            }
            Habit::HalfClose => {
                if first {
                    let sent = self.write(&post(host, RECORD));
                    return sent && self.stream.shutdown(Shutdown::Write).is_ok();
                }
                let open = self.read();
                if !open && self.got.starts_with(b"HTTP/1.1 200") {
                    attack.count("half-closed and answered");
                }
                open
            }
            Habit::Hosts => {
                if first {
                    let hosts = random.pick(&["", "host: localhost\r\nhost: localhost\r\n", "host: a b\r\n"]);
                    return self.write(&post(hosts, RECORD));
                }
                let open = self.read();
                if self.got.starts_with(b"HTTP/1.1 400") {
                    attack.count("hosts refused");
                    return false;
                }
                if self.got.starts_with(b"HTTP/1.1 2") {
                    attack.allowed("a request without a host, or with two, was taken".to_owned());
                    return false;
                }
                open
            }
            Habit::Chunks => {
                let chunks = random.pick(&[
                    "ffffffffffffffff\r\nx",
                    "-1\r\nx\r\n",
                    "2\r\nabcdef\r\n",
                    "0x2\r\nab\r\n",
                    "\r\n\r\n",
                ]);
                let head = format!(
                    "POST /v1/jobs/mud/sources/h HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n{chunks}"
                );
                (!first || self.write(head.as_bytes())) && self.read() && self.steps < 40
            }
            Habit::Breaks => {
                let body = format!("{RECORD}\n").repeat(500);
                let bytes = post(host, &body);
                self.write(&bytes[..bytes.len() / 2]);
                false
            }
            Habit::TcpPartial => self.write(&[b'x'; 16 << 10]) && self.read(),
            Habit::TcpNoise => {
                let line = random.pick(&[
                    "{\n",
                    "\n\n\n\n",
                    "{\"k\":1}\n",
                    "[[[[[[[[\n",
                    "{\"k\":\"\\ud800\"}\n",
                    "\0\n",
                ]);
                self.write(line.repeat(20).as_bytes()) && self.read()
            }
        }
    }

    /// Writes what the node takes at once; false where it has closed.
    fn write(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write(bytes) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Reads the bytes that are there; false if the node has closed.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4_096];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                let room = 4_096_usize.saturating_sub(self.got.len());
                self.got.extend_from_slice(&bytes[..count.min(room)]);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}
