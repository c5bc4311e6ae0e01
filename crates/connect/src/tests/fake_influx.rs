//! A database that takes line protocol and fails by script.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Take,
    Refuse(u16, &'static str),
    /// The connection ends in the middle of the request.
    Reset,
    /// The points are taken, and the connection ends before the answer.
    TakeAndForget,
    /// As `Take`, once the test allows it.
    TakeLater,
}

/// The requests that it has received.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Points that were taken, in order, each as often as it was.
    pub(super) points: Vec<String>,
    /// Heads of the requests.
    pub(super) heads: Vec<String>,
}

pub(super) struct FakeInflux {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    /// One per request that waits to be let go.
    pub(super) later: Sender<()>,
    /// Notified of each request that waits.
    pub(super) waits: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl FakeInflux {
    /// Takes every request after the acts in `script`.
    pub(super) fn start(listener: TcpListener, script: &[Act]) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (later, go) = channel();
        let (tell, waits) = channel();
        let mut server =
            Server { seen: Arc::clone(&seen), script: script.iter().copied().collect(), go, tell };
        let thread = std::thread::spawn(move || server.run(&listener));
        Self { address, seen, later, waits, thread: Some(thread) }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for FakeInflux {
    fn drop(&mut self) {
        // The request that ends it.
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _ = stream.write_all(b"END / HTTP/1.1\r\n\r\n");
        }
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            thread.join().unwrap();
        }
    }
}

struct Server {
    seen: Arc<Mutex<Seen>>,
    script: VecDeque<Act>,
    go: Receiver<()>,
    tell: Sender<()>,
}

impl Server {
    /// One connection at a time, closed after each answer: that the client keeps none open keeps this simple.
    fn run(&mut self, listener: &TcpListener) {
        loop {
            let (stream, _) = listener.accept().unwrap();
            match self.serve(stream) {
                Ok(true) => {}
                Ok(false) => return,
                // The client is gone; it connects again.
                Err(error) => assert_ne!(error.kind(), ErrorKind::InvalidData, "{error}"),
            }
        }
    }

    fn serve(&mut self, mut stream: TcpStream) -> std::io::Result<bool> {
        let mut data = Vec::new();
        let head_end = loop {
            if let Some(end) = memchr::memmem::find(&data, b"\r\n\r\n") {
                break end + 4;
            }
            if !read_more(&mut stream, &mut data)? {
                return Ok(true);
            }
        };
        let head = String::from_utf8(data[..head_end].to_vec()).unwrap();
        if head.starts_with("END ") {
            return Ok(false);
        }
        let act = self.script.pop_front().unwrap_or(Act::Take);
        self.seen.lock().unwrap().heads.push(head.clone());
        if act == Act::Reset {
            // With bytes that nobody has read this is a reset.
            return Ok(true);
        }
        let length = head.to_ascii_lowercase();
        let length: usize =
            length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap();
        while data.len() < head_end + length {
            if !read_more(&mut stream, &mut data)? {
                return Ok(true);
            }
        }
        if act == Act::TakeLater {
            self.tell.send(()).unwrap();
            // When a test is over, nobody waits.
            if self.go.recv().is_err() {
                return Ok(true);
            }
        }
        let (status, text) = match act {
            Act::Refuse(status, text) => (status, text),
            _ => {
                let body = String::from_utf8(data[head_end..].to_vec()).unwrap();
                self.seen.lock().unwrap().points.extend(body.lines().map(str::to_owned));
                (204, "")
            }
        };
        if act == Act::TakeAndForget {
            return Ok(true);
        }
        let answer = format!(
            "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        let answer =
            if status == 204 { "HTTP/1.1 204 X\r\nConnection: close\r\n\r\n".to_owned() } else { answer };
        stream.write_all(answer.as_bytes())?;
        Ok(true)
    }
}

fn read_more(stream: &mut TcpStream, data: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut piece = [0; 4096];
    let count = stream.read(&mut piece)?;
    data.extend_from_slice(&piece[..count]);
    Ok(count > 0)
}
