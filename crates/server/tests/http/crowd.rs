//! More connections than places, heads that never end, and clients of all bad habits at once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::client::{Connection, Site};
use crate::fake::Mode;

const PATH: &str = "/v1/jobs/payments/sources/payments";

/// Posts until it is answered: a client that is evicted in the same moment, or finds no place, tries again.
fn posts(site: &Site) -> u16 {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut connection = site.connect();
        connection.send("POST", PATH, "", b"{\"a\":1}");
        match connection.try_reply(false) {
            Some(reply) if reply.status != 503 => return reply.status,
            _ => assert!(Instant::now() < until, "no place within 20 s"),
        }
    }
}

#[test]
fn connections_that_say_nothing_make_room() {
    let site = Site::with(|options| options.max_connections = 8);
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(site.address).unwrap()).collect();
    assert_eq!(posts(&site), 200);
    assert_eq!(site.get("/readyz").status, 200);
    let evicted = site.get("/metrics").body;
    assert!(!evicted.contains("\nthalweg_http_connections_evicted_total 0\n"), "{evicted}");
    drop(idle);
}

#[test]
fn heads_that_come_byte_by_byte_make_room() {
    let site = Site::with(|options| options.max_connections = 4);
    let mut slow: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(site.address).unwrap()).collect();
    let end = AtomicBool::new(false);
    let is_over = &end;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // As long as they may; those that were closed are no matter.
            while !is_over.load(Ordering::Relaxed) {
                for stream in &mut slow {
                    let _ = stream.write_all(b"x");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(posts(&site), 200);
        end.store(true, Ordering::Relaxed);
    });
}

#[test]
fn monitors_get_in_when_all_places_are_busy_and_others_are_told_so() {
    let site = Site::with(|options| options.max_connections = 2);
    site.node.set_mode(Mode::Hold);
    let mut busy: Vec<Connection> = (0..2)
        .map(|_| {
            let mut connection = site.connect();
            connection.send("POST", PATH, "", b"{\"a\":1}");
            connection
        })
        .collect();
    site.node.wait_for_held(2);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.header("connection")), (200, Some("close")), "{path}");
    }
    let reply = site.post(PATH, "{\"a\":2}");
    assert_eq!((reply.header("retry-after"), reply.header("connection")), (Some("1"), Some("close")));
    reply.expect_error(503, "overloaded");
    site.get("/v1/jobs").expect_error(503, "overloaded");
    // Nor does a crowd that says nothing keep a monitor out.
    let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(site.address).unwrap()).collect();
    assert_eq!(site.get("/readyz").status, 200);
    drop(crowd);
    site.node.release();
    for connection in &mut busy {
        assert_eq!(connection.reply(false).status, 200, "a busy connection was left alone");
    }
}

#[test]
fn who_has_closed_its_writing_side_gets_its_reply() {
    let site = Site::new();
    for (method, path, body) in [("GET", "/healthz", ""), ("POST", PATH, "{\"a\":1}\n{\"a\":2}\n")] {
        let mut stream = TcpStream::connect(site.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 OK"), "{method} {path}: {reply:?}");
    }
    // Also where the answer comes later.
    site.node.set_mode(Mode::Hold);
    let mut stream = TcpStream::connect(site.address).unwrap();
    write!(stream, "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{{\"a\":1}}")
        .unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    site.node.wait_for_held(1);
    site.node.release();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK"), "{reply:?}");
}

#[test]
fn a_request_has_one_host() {
    let site = Site::new();
    for hosts in
        ["", "Host: localhost\r\nHost: localhost\r\n", "Host: \r\n", "Host: a b\r\n", "Host: x@localhost\r\n"]
    {
        let mut connection = site.connect();
        connection.write(format!("GET /healthz HTTP/1.1\r\n{hosts}\r\n").as_bytes());
        let reply = connection.try_reply(false).expect("a reply");
        assert_eq!(reply.status, 400, "{hosts:?}");
        connection.expect_end();
    }
    assert_eq!(site.get("/healthz").status, 200);
}

/// The same seed, the same habits.
struct Random(Rng);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.below(256) as u8).collect()
    }
}

/// Does one thing that no good client does. Errors are the server's way to say no.
fn misbehave(random: &mut Random, site: &Site, kept: &mut Vec<TcpStream>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(site.address)?;
    stream.set_read_timeout(Some(Duration::from_millis(5)))?;
    let host = "Host: localhost\r\n";
    let lines = "{\"a\":1}\n0\n".repeat(random.below(2_000) as usize);
    match random.below(12) {
        // Says nothing, or not enough, and stays.
        0 => {}
        1 => stream.write_all(b"POST /v1/jo")?,
        2 => write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Content-Length: 1000\r\n\r\n{{\"a\":")?,
        // Lies about the length, in both directions.
        3 => write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\n{lines}")?,
        4 => write!(
            stream,
            "POST {PATH} HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n{lines}"
        )?,
        // Malformed chunks.
        5 => {
            write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n")?;
            let tails = ["ffffffffffffffff\r\n", "zz\r\n", "-1\r\n", "5\r\nab", "1\r\n\r\n\r\n", "0\r\nX: y"];
            stream.write_all(tails[random.below(6) as usize].as_bytes())?;
        }
        // One request after the other, whose replies nobody reads.
        6 => {
            let one = format!("POST {PATH} HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n{lines}", lines.len());
            for _ in 0..random.below(20) {
                stream.write_all(one.as_bytes())?;
            }
        }
        7 => write!(
            stream,
            "GET /metrics HTTP/1.1\r\n{host}X: {}\r\n\r\n",
            "y".repeat(random.below(90_000) as usize)
        )?,
        8 => stream.write_all(&random.bytes(4_000))?,
        // Closes its writing side in the middle, or all of it.
        9 => {
            write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n", lines.len() + 1)?;
            stream.write_all(lines.as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
        }
        10 => {
            write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n")?;
            for byte in lines.bytes().take(300) {
                write!(stream, "1\r\n{}\r\n", byte as char)?;
            }
            return Ok(());
        }
        _ => {
            write!(stream, "POST {PATH} HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n{lines}", lines.len())?;
            stream.read_exact(&mut [0; 20])?;
            return Ok(());
        }
    }
    let _ = stream.read(&mut [0; 100]);
    if random.below(2) == 0 {
        kept.push(stream);
    }
    Ok(())
}

#[test]
fn whatever_clients_do_others_are_served_beside_them() {
    let site = Site::with(|options| {
        options.max_connections = 16;
        options.idle_timeout = Duration::from_millis(300);
        options.body_timeout = Duration::from_millis(300);
        options.write_timeout = Duration::from_millis(300);
    });
    for seed in 0..8 {
        let mut random = Random(Rng::with_seed(seed));
        let mut kept = Vec::new();
        for _ in 0..60 {
            let _ = misbehave(&mut random, &site, &mut kept);
        }
        assert_eq!(posts(&site), 200, "seed {seed}");
        assert_eq!(site.get("/readyz").status, 200, "seed {seed}");
        drop(kept);
        // All of them have gone when nobody is kept: the one that asks, and no other.
        let until = Instant::now() + Duration::from_secs(20);
        while !site.get("/metrics").body.contains("\nthalweg_http_connections 1\n") {
            assert!(Instant::now() < until, "connections are kept, seed {seed}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
