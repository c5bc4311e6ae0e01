//! The least of an HTTP/1.1 client that a load generator needs: one connection, kept alive.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A request that is not answered within this time is an error.
const TIMEOUT: Duration = Duration::from_secs(30);

const NDJSON: &str = "application/x-ndjson";

pub struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    body: Vec<u8>,
    /// What goes with each request that it is sent with, as header lines.
    headers: String,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).context("connect")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::with_capacity(1 << 16, stream),
            request: Vec::new(),
            body: Vec::new(),
            headers: String::new(),
        })
    }

    /// Sends the admin token of a node's data directory with each request from now on.
    pub fn with_token_of(mut self, data_dir: &Path) -> Result<Self> {
        let path = data_dir.join("admin.token");
        let token = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        self.headers = format!("authorization: Bearer {}\r\n", token.trim_end());
        Ok(self)
    }

    pub fn get(&mut self, path: &str) -> Result<(u16, &[u8])> {
        self.request("GET", path, NDJSON, &[])
    }

    pub fn post(&mut self, path: &str, body: &[&[u8]]) -> Result<(u16, &[u8])> {
        self.request("POST", path, NDJSON, body)
    }

    pub fn post_text(&mut self, path: &str, body: &[u8]) -> Result<(u16, &[u8])> {
        self.request("POST", path, "text/plain", &[body])
    }

    /// Sends a request whose body is all parts of `body`, and reads the whole reply.
    fn request(&mut self, method: &str, path: &str, kind: &str, body: &[&[u8]]) -> Result<(u16, &[u8])> {
        let length: usize = body.iter().map(|part| part.len()).sum();
        self.request.clear();
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{}\r\n",
            self.headers
        )?;
        for part in body {
            self.request.extend_from_slice(part);
        }
        self.stream.get_mut().write_all(&self.request).context("send a request")?;
        let status = self.reply().context("read a reply")?;
        Ok((status, &self.body))
    }

    fn reply(&mut self) -> Result<u16> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.with_context(|| format!("no status line: {line:?}"))?;
        let mut length = Some(0);
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse::<usize>().context("content-length")?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                length = None;
            }
        }
        self.body.clear();
        match length {
            Some(length) => self.take(length)?,
            None => self.chunks()?,
        }
        Ok(status)
    }

    fn chunks(&mut self) -> Result<()> {
        loop {
            let line = self.line()?;
            let length = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16)
                .with_context(|| format!("no length of a chunk: {line:?}"))?;
            self.take(length)?;
            self.line()?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, length: usize) -> Result<()> {
        let start = self.body.len();
        self.body.resize(start + length, 0);
        self.stream.read_exact(&mut self.body[start..])?;
        Ok(())
    }

    /// A line without its end; an empty one ends the headers.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            bail!("the connection was closed");
        }
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn replies_with_a_length_and_in_chunks_are_read_on_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let replies = [
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
                "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n2\r\nde\r\n1;x\r\nf\r\n0\r\n\r\n",
                "HTTP/1.1 204 No Content\r\n\r\n",
            ];
            for reply in replies {
                let mut request = [0; 4096];
                let mut seen = 0;
                while !request[..seen].ends_with(b"\r\n\r\nxyz") && !request[..seen].ends_with(b"\r\n\r\n") {
                    seen += stream.read(&mut request[seen..]).unwrap();
                }
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
        let mut connection = Connection::open(address).unwrap();
        assert_eq!(connection.get("/").unwrap(), (200, b"abc".as_slice()));
        assert_eq!(connection.get("/").unwrap(), (202, b"def".as_slice()));
        assert_eq!(connection.get("/").unwrap(), (204, b"".as_slice()));
        server.join().unwrap();
    }
}
