//! Ports of the loopback for what listens, ends and listens again at the same address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};

/// Below what a system gives to sockets that ask for any port (Linux: from 32768 on): one of those would be given to
/// somebody else while nobody listens, or to a client that would then talk to itself.
const FIRST: u16 = 10_000;
const PORTS: u16 = 22_000;

/// Ports that this process has looked at.
static LOOKED: AtomicU16 = AtomicU16::new(0);

/// An address that is free for TCP and UDP, and stays so; this process gets it once.
///
/// # Errors
/// Where no port of the range is free.
pub fn free_address() -> Result<SocketAddr> {
    // Processes that run at the same time begin far from each other.
    let start = (process::id().wrapping_mul(0x9e37_79b9) >> 16) as u16 % PORTS;
    let next = || {
        let looked = LOOKED.fetch_add(1, Ordering::Relaxed) % PORTS;
        SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + (start + looked) % PORTS))
    };
    let is_free =
        |address: &SocketAddr| TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok();
    (0..PORTS).map(|_| next()).find(is_free).context("find a free port")
}

/// The port of [`free_address`].
///
/// # Errors
/// As [`free_address`].
pub fn free_port() -> Result<u16> {
    Ok(free_address()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once_and_passed_over_where_somebody_listens() {
        let first = free_address().unwrap();
        let next = SocketAddr::from((Ipv4Addr::LOCALHOST, first.port() + 1));
        let taken = UdpSocket::bind(next);
        let second = free_address().unwrap();
        assert_ne!(first, second);
        assert!(taken.is_err() || second != next);
        assert!((FIRST..FIRST + PORTS).contains(&second.port()));
    }
}
