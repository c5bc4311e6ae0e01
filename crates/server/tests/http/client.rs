//! A server under test, and a client that can also misbehave.
//!
//! Every reply to a route of the document is checked to have a status that the document names.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use thalweg_server::{AdminToken, Options, Running, Server};

use crate::fake::FakeNode;

/// How long a test waits.
const PATIENCE: Duration = Duration::from_secs(20);

/// The token of all servers under test.
pub(crate) fn admin() -> &'static AdminToken {
    static TOKEN: OnceLock<AdminToken> = OnceLock::new();
    TOKEN.get_or_init(|| AdminToken::of(tempfile::tempdir().unwrap().path()).unwrap())
}

pub(crate) fn options() -> Options {
    Options { admin: Some(admin().clone()), ..Options::default() }
}

pub(crate) struct Site {
    pub(crate) node: Arc<FakeNode>,
    pub(crate) server: Option<Running>,
    pub(crate) address: SocketAddr,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = options();
        change(&mut options);
        let node = Arc::new(FakeNode::default());
        let server = Server::bind("127.0.0.1:0", Arc::clone(&node) as Arc<_>, options).unwrap();
        Self { node, ..Self::of(server) }
    }

    /// A server before another node.
    pub(crate) fn of(server: Server) -> Self {
        let address = server.local_addr();
        Self { node: Arc::default(), server: Some(server.start()), address }
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::new(TcpStream::connect(self.address).unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "", b"")
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.call("POST", path, "", body.as_bytes())
    }

    pub(crate) fn post_as(&self, path: &str, content_type: &str, body: &str) -> Reply {
        self.call("POST", path, &format!("Content-Type: {content_type}\r\n"), body.as_bytes())
    }

    /// A request with the admin token, with further header lines, on a connection of its own.
    pub(crate) fn call(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let token = format!("Authorization: Bearer {}\r\n{headers}", admin().reveal());
        self.call_as_anyone(method, path, &token, body)
    }

    /// The same without the token.
    pub(crate) fn call_as_anyone(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut connection = self.connect();
        connection.send(method, path, headers, body);
        let reply = connection.reply(method == "HEAD");
        check_documented(method, path, &reply);
        reply
    }

    pub(crate) fn stop(&mut self) -> thalweg_server::Finish {
        self.server.take().unwrap().stop()
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The same, where it came in chunks.
    pub(crate) bytes: Vec<u8>,
    /// Whether the body came to its end.
    pub(crate) is_whole: bool,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// One value a line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The error of a reply that has to be one; its body must have every key.
    pub(crate) fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for key in ["code", "message", "detail", "hint", "retry"] {
            assert!(error.get(key).is_some(), "no {key:?} in {self:?}");
        }
        assert_eq!(self.header("content-type"), Some("application/json"));
        error
    }

    #[track_caller]
    pub(crate) fn expect_error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let error = self.error();
        assert_eq!(error["code"], code, "{self:?}");
        error
    }
}

pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        );
        let mut request = head.into_bytes();
        request.extend_from_slice(body);
        // Also where the reply is made before all of it is there: many clients would not look for one after a failed
        // write.
        self.write(&request);
    }

    pub(crate) fn reply(&mut self, is_head: bool) -> Reply {
        self.try_reply(is_head).expect("a reply")
    }

    /// `None` where the connection ends without one.
    pub(crate) fn try_reply(&mut self, is_head: bool) -> Option<Reply> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().expect("headers end");
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, body: String::new(), bytes: vec![], is_whole: true };
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        if length > 0 && !is_head {
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).unwrap();
            reply.body = String::from_utf8(body).unwrap();
        }
        if reply.header("transfer-encoding") == Some("chunked") && !is_head {
            let (body, is_whole) = self.chunks();
            reply.body = String::from_utf8_lossy(&body).into_owned();
            reply.bytes = body;
            reply.is_whole = is_whole;
        }
        Some(reply)
    }

    /// A body in chunks, and whether it came to its end.
    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        while let Some(length) = self.line().and_then(|line| usize::from_str_radix(&line, 16).ok()) {
            let mut chunk = vec![0; length + 2];
            if self.0.read_exact(&mut chunk).is_err() {
                return (body, false);
            }
            if length == 0 {
                return (body, true);
            }
            body.extend_from_slice(&chunk[..length]);
        }
        (body, false)
    }

    /// The next line of a reply; `None` where the connection ends.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until the server closes; whatever it still says is thrown away.
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

/// The document, as a server gives it.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let site = Site::new();
        let mut connection = site.connect();
        connection.send("GET", "/openapi.json", "", b"");
        connection.reply(false).json()
    })
}

/// The path of the document that a real one is of.
fn template(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    let paths = document()["paths"].as_object().unwrap();
    let matches = |template: &&String| {
        let (a, b): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || a.starts_with('{') && !b.is_empty())
    };
    paths.keys().find(matches).map(String::as_str)
}

fn check_documented(method: &str, path: &str, reply: &Reply) {
    if path == "/openapi.json" {
        return;
    }
    let Some(template) = template(path) else { return };
    let operation = &document()["paths"][template][method.to_ascii_lowercase()];
    if operation.is_object() {
        let status = reply.status.to_string();
        assert!(
            operation["responses"].get(&status).is_some(),
            "{method} {template}: status {status} is not in the document"
        );
    }
}
