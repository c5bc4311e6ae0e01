//! The one request that is spoken here: Metadata in version 1, for no topic. Its answer lists the brokers that are up.
//!
//! Request: length 4, API 2, version 2, correlation 4, client length 2 (-1: none), count of topics 4; all big-endian.
//! Answer: length 4, correlation 4, count of brokers 4, and more.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};

const METADATA: i16 = 3;

/// A broker that takes longer is not up.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How many brokers there are, in the eyes of the one at `address`.
pub(super) fn brokers(address: &str) -> Result<i32> {
    const REQUEST: i32 = 14;
    let address: SocketAddr = address.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let correlation = 7_i32;
    let mut request = Vec::new();
    request.extend(REQUEST.to_be_bytes());
    request.extend(METADATA.to_be_bytes());
    request.extend(1_i16.to_be_bytes());
    request.extend(correlation.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(0_i32.to_be_bytes());
    stream.write_all(&request)?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    let number = |at: usize| i32::from_be_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
    ensure!(number(4) == correlation, "an answer to another request");
    Ok(number(8))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn the_request_has_the_length_that_it_says_and_the_answer_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut request = vec![0; i32::from_be_bytes(length) as usize];
            stream.read_exact(&mut request).unwrap();
            let mut answer = vec![0, 0, 0, 8];
            answer.extend(&request[4..8]);
            answer.extend([0, 0, 0, 2]);
            stream.write_all(&answer).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest
        });
        assert_eq!(brokers(&address).unwrap(), 2);
        assert!(server.join().unwrap().is_empty(), "more was sent than was said");
    }
}
