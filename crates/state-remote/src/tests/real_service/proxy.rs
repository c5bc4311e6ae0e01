//! Stands between a back end and its server, and takes the server away.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Default)]
struct State {
    is_down: bool,
    /// Connections that were refused while it was down.
    refused: u32,
    broken: u32,
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
                let (from, to) = both();
                thread::spawn(move || forward(from, to));
                let (to, from) = both();
                thread::spawn(move || forward(from, to));
            }
        });
        Self { address, state }
    }

    /// Ends all connections, wherever they are.
    pub(super) fn break_connections(&self) {
        let mut state = self.state.lock().unwrap();
        state.broken += state.open.len() as u32;
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(super) fn broken(&self) -> u32 {
        self.state.lock().unwrap().broken
    }

    /// Ends all connections and makes no more.
    pub(super) fn go_down(&self) {
        self.state.lock().unwrap().is_down = true;
        self.break_connections();
    }

    pub(super) fn come_back(&self) {
        self.state.lock().unwrap().is_down = false;
    }

    /// How many connections it has refused.
    pub(super) fn refused(&self) -> u32 {
        self.state.lock().unwrap().refused
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let mut piece = [0; 1 << 16];
    while let Ok(count) = from.read(&mut piece)
        && count > 0
    {
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
