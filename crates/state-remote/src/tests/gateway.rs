//! HBase's gateway as a few lines of a script: answers that a real one gives when it is not well.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use thalweg_state::{Interrupt, StateError, StoreFault};
use thalweg_types::Class;

use super::ground::{Remotes, changes};
use crate::{Kind, Remote, Settings};

const SCHEMA: &str = r#"{"name":"thalweg","ColumnSchema":[{"name":"s","TTL":"2147483647"}]}"#;

/// What is answered to a request, by its first line; `None` ends the connection.
type Script = Box<dyn FnMut(&str) -> Option<(u16, String)> + Send>;

/// Answers every request as the script says. It ends with the process of the tests.
fn gateway(script: Script) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(Mutex::new(script));
    thread::spawn(move || {
        for client in listener.incoming() {
            let script = Arc::clone(&script);
            let mut client = BufReader::new(client.unwrap());
            thread::spawn(move || {
                while let Some(line) = request(&mut client) {
                    let Some((status, body)) = script.lock().unwrap()(&line) else { break };
                    let length = body.len();
                    let answer = format!("HTTP/1.1 {status} Some\r\nContent-Length: {length}\r\n\r\n{body}");
                    if client.get_mut().write_all(answer.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Reads a request; its first line.
fn request(client: &mut impl BufRead) -> Option<String> {
    let mut first = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        client.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_owned();
        if first.is_empty() {
            first = line;
        } else if line.is_empty() {
            break;
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    client.read_exact(&mut vec![0; length]).ok()?;
    Some(first)
}

fn connect(address: SocketAddr) -> Result<Remote, StateError> {
    let mut settings = Settings::new(Kind::Hbase, &format!("http://{address}")).unwrap();
    (settings.user, settings.password) = (Some("u".to_owned()), Some("canary-91".to_owned()));
    Remote::connect(&settings, Interrupt::default())
}

#[test]
fn what_a_gateway_says_at_the_start_is_told() {
    for (status, body, fault, class, said) in [
        (
            503,
            "no region server",
            StoreFault::Down,
            Class::External,
            "the gateway answers 503: no region server",
        ),
        (500, "", StoreFault::Down, Class::External, "the gateway answers 500"),
        (401, "who?", StoreFault::Refused, Class::User, "expected to be served, got 401: who?"),
        (403, "Forbidden\r\n", StoreFault::Refused, Class::User, "got 403: Forbidden"),
        (302, "", StoreFault::Refused, Class::User, "got 302"),
        (200, "<html>", StoreFault::Damaged, Class::Corrupt, "answer: expected JSON, got"),
    ] {
        let error = connect(gateway(Box::new(move |_| Some((status, body.to_owned()))))).unwrap_err();
        assert!(matches!(&error, StateError::Store { fault: found, .. } if *found == fault), "{error}");
        assert!(error.to_string().contains(said) && !format!("{error:?}").contains("canary"), "{error:?}");
        assert_eq!(error.class(), class);
    }
    let error = connect(gateway(Box::new(|_| None))).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Down, .. }), "{error}");
}

#[test]
fn a_gateway_that_is_not_well_is_asked_again() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let mut puts = 0;
    let address = gateway(Box::new(move |line| {
        kept.lock().unwrap().push(line.to_owned());
        if line.contains("/schema ") {
            return Some((200, SCHEMA.to_owned()));
        }
        if line.starts_with("GET ") {
            return Some((404, "No rows found.\r\n".to_owned()));
        }
        puts += 1;
        // The first two are the claim and the head.
        match puts {
            3 => Some((503, String::new())),
            4 => None,
            5 => Some((429, String::new())),
            _ => Some((200, String::new())),
        }
    }));
    let backend = Remotes::new(connect(address).unwrap()).open(None).unwrap();
    backend.write(1, &changes(&[(4, Some(7))])).unwrap();
    let puts =
        asked.lock().unwrap().iter().filter(|line| line.starts_with("PUT /thalweg/false-row ")).count();
    assert_eq!(puts, 6);
    // A head that is gone is no outage.
    let error = backend.prepare(1).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Damaged, .. }), "{error}");
}

#[test]
fn a_path_that_leads_elsewhere_is_no_loss_of_state() {
    let address = gateway(Box::new(|line| match line.contains("/schema ") {
        true => Some((200, SCHEMA.to_owned())),
        false => Some((404, "not this way".to_owned())),
    }));
    let error = Remotes::new(connect(address).unwrap()).open(None).unwrap_err();
    assert!(matches!(error, StateError::Store { fault: StoreFault::Refused, .. }), "{error}");
    assert_eq!(error.hint(), Some("look at state.url and state.table"));
}
