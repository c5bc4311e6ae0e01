//! Taking connections, as many as there are places for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thalweg_storage::handles::{Place, source_places};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::super::handover::drained;
use super::peers::Peers;
use super::read::read;

/// Pause after the system refused a connection, as it had no file handle left.
const PAUSE: Duration = Duration::from_millis(100);

/// How often a connection without a place looks for one.
const LOOK: Duration = Duration::from_millis(50);

pub(super) async fn accept(listener: TcpListener, peers: Arc<Peers>, mut drain: watch::Receiver<bool>) {
    let mut open: JoinSet<()> = JoinSet::new();
    let for_connections = drain.clone();
    let mut has_said = false;
    loop {
        let accepted = tokio::select! {
            () = drained(&mut drain) => break,
            Some(_) = open.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                // A new connection without a place is held, so that room is made only when it is needed.
                let place = tokio::select! {
                    () = drained(&mut drain) => break,
                    place = place(&peers, &mut open) => place,
                };
                debug!(%peer, "connection opened");
                let (peers, drain) = (Arc::clone(&peers), for_connections.clone());
                open.spawn(serve(stream, peer, place, peers, drain));
            }
            Err(error) => {
                // Out of handles, or the peer has gone: neither is a reason to stop listening.
                if !is_of_peer(&error) {
                    if !std::mem::replace(&mut has_said, true) {
                        warn!(%error, "accept failed, and is tried again");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}

fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// A place for one more, for which another one may have to go.
async fn place(peers: &Peers, open: &mut JoinSet<()>) -> Place {
    loop {
        if open.len() < peers.settings().connections
            && let Some(place) = source_places().take()
        {
            return place;
        }
        peers.make_room();
        tokio::select! {
            Some(_) = open.join_next() => {}
            () = sleep(LOOK) => {}
        }
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    _place: Place,
    peers: Arc<Peers>,
    drain: watch::Receiver<bool>,
) {
    let peer = peers.enter(address);
    let outcome = read(stream, &peer, &peers, drain).await;
    peers.leave(&peer);
    if let Err(error) = outcome {
        peers.broke_off(&peer, &error);
    }
}
