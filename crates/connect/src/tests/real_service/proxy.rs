//! A proxy between a sink and its database, which breaks connections at chosen places.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// How a connection breaks at COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtCommit {
    /// Before the server hears of it.
    Lose,
    /// After the server's answer, which does not arrive.
    LoseAnswer,
}

#[derive(Default)]
struct State {
    is_down: bool,
    /// Connections that were refused while it was down.
    refused: u32,
    at_commit: VecDeque<AtCommit>,
    open: Vec<TcpStream>,
}

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    pub(super) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, server) = (Arc::clone(&state), server.to_owned());
        // It ends with the process of the tests.
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let mut state = shared.lock().unwrap();
                if state.is_down {
                    state.refused += 1;
                    continue;
                }
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                let both = || (client.try_clone().unwrap(), upstream.try_clone().unwrap());
                state.open.extend([both().0, both().1]);
                let is_mute = Arc::new(Mutex::new(false));
                let (mute, of_state) = (Arc::clone(&is_mute), Arc::clone(&shared));
                let (from, to) = both();
                thread::spawn(move || forward(from, to, &of_state, &mute));
                let (to, from) = both();
                thread::spawn(move || answer(from, to, &is_mute));
            }
        });
        Self { address, state }
    }

    /// Breaks the next connections that come to a COMMIT, in this order.
    pub(super) fn break_at_commit(&self, how: &[AtCommit]) {
        self.state.lock().unwrap().at_commit.extend(how);
    }

    pub(super) fn breaks_left(&self) -> usize {
        self.state.lock().unwrap().at_commit.len()
    }

    /// Ends all connections and makes no more.
    pub(super) fn go_down(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_down = true;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn come_back(&self) {
        self.state.lock().unwrap().is_down = false;
    }

    /// How many connections it has refused.
    pub(super) fn refused(&self) -> u32 {
        self.state.lock().unwrap().refused
    }
}

/// From the client to the server. A COMMIT is a message of its own, sent once all before it was answered.
fn forward(mut from: TcpStream, mut to: TcpStream, state: &Mutex<State>, is_mute: &Mutex<bool>) {
    let mut piece = [0; 1 << 16];
    while let Ok(count) = from.read(&mut piece)
        && count > 0
    {
        let is_commit = memchr::memmem::find(&piece[..count], b"COMMIT\0").is_some();
        let breaks = if is_commit { state.lock().unwrap().at_commit.pop_front() } else { None };
        match breaks {
            Some(AtCommit::Lose) => break,
            Some(AtCommit::LoseAnswer) => *is_mute.lock().unwrap() = true,
            None => {}
        }
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// From the server to the client.
fn answer(mut from: TcpStream, mut to: TcpStream, is_mute: &Mutex<bool>) {
    let mut piece = [0; 1 << 16];
    while let Ok(count) = from.read(&mut piece)
        && count > 0
    {
        if *is_mute.lock().unwrap() || to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
