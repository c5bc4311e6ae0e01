//! Bodies that are small or large, and ask for more than they are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::attack::Attack;
use thalweg_harness::random::Random;

/// A bomb whose reply takes longer is left alone.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is read of a reply before it is enough.
const READ: usize = 4 << 20;

pub(super) const KINDS: [&str; 12] = [
    "numbers by line",
    "empty lines",
    "deep arrays",
    "deep objects",
    "many names",
    "a long name",
    "a long text",
    "a long number",
    "no utf-8",
    "small chunks",
    "many keys",
    "distant times",
];

/// The body of a kind.
fn body(kind: &str, random: &mut Random) -> Vec<u8> {
    let mega = 1 << 20;
    match kind {
        "numbers by line" => b"0\n".repeat(4 * mega),
        "empty lines" => b"\n".repeat(8 * mega),
        "deep arrays" => b"[".repeat(4 * mega),
        "deep objects" => b"{\"k\":".repeat(mega),
        "many names" => {
            let names: Vec<String> = (0..400_000).map(|name| format!("\"n{name}\":0")).collect();
            format!("{{{}}}", names.join(",")).into_bytes()
        }
        "a long name" => format!("{{\"{}\":1}}", "n".repeat(12 * mega)).into_bytes(),
        "a long text" => {
            format!("{{\"ts\":1700000000000,\"k\":\"{}\",\"v\":1}}", "k".repeat(12 * mega)).into_bytes()
        }
        "a long number" => {
            format!("{{\"ts\":1700000000000,\"k\":\"a\",\"v\":{}}}", "9".repeat(8 * mega)).into_bytes()
        }
        "no utf-8" => vec![0xff; 4 * mega],
        "small chunks" => b"{\"ts\":1700000000000,\"k\":\"a\",\"v\":1}\n".repeat(2_000),
        "many keys" => {
            let line = |_| format!("{{\"ts\":1700000000000,\"k\":\"{:x}\",\"v\":1}}\n", random.number());
            (0..50_000).map(line).collect::<String>().into_bytes()
        }
        _ => {
            let times = ["9223372036854775807", "-9223372036854775808", "1e308", "253402300800000", "null"];
            let line = |_| format!("{{\"ts\":{},\"k\":\"a\",\"v\":1}}\n", random.pick(&times));
            (0..20_000).map(line).collect::<String>().into_bytes()
        }
    }
}

/// One bomb after the other until the attack is over.
pub(super) fn throw(attack: &Attack, mut random: Random) {
    let mut first = KINDS.iter();
    while attack.goes_on() {
        // Each once, then by chance.
        let kind = first.next().copied().unwrap_or_else(|| random.pick(&KINDS));
        let body = body(kind, &mut random);
        if send(attack, kind, &body).is_ok() {
            attack.count(kind);
        }
        attack.pause(Duration::from_millis(random.between(0, 500)));
    }
}

fn send(attack: &Attack, kind: &str, body: &[u8]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&attack.http, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let path = "/v1/jobs/mud/sources/h";
    if kind == "small chunks" {
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        )?;
        let chunks: Vec<u8> =
            body.iter().flat_map(|byte| [b'1', b'\r', b'\n', *byte, b'\r', b'\n']).collect();
        stream.write_all(&chunks)?;
        stream.write_all(b"0\r\n\r\n")?;
    } else {
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )?;
        // A node that refuses early closes early: its reply is worth a look all the same.
        let _ = stream.write_all(body);
    }
    let mut reply = Vec::new();
    stream.take(READ as u64).read_to_end(&mut reply)?;
    Ok(())
}
