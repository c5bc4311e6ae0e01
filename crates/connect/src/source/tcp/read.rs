//! Reading one connection.
//!
//! Bytes are read into a buffer that all connections of a thread share, and only a record that is not whole yet stays
//! with the connection: a silent one holds next to nothing. Room in the queue is taken before a read. A record that
//! waits for the end of its record keeps its room; whole records take theirs along.

use std::cell::RefCell;
use std::io::{Error as IoError, ErrorKind};

use thalweg_types::Error;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::super::cut::{Cutter, QuoteWatch};
use super::super::handover::{OVERHEAD, Room, drained};
use super::peers::{Ending, Peer, Peers};

/// Bytes that may have arrived before a drain: more than the system buffers of one connection hold. A sender
/// that goes on cannot keep the source from ending.
const READ_IN_DRAIN: usize = 8 << 20;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a read is not to be tried.
enum Wait {
    Ready,
    Drain,
    Ends(Ending),
}

/// Reads one connection to its end, to its closing from here, or to the last bytes that have arrived when the source is
/// drained.
pub(super) async fn read(
    stream: TcpStream,
    peer: &Peer,
    peers: &Peers,
    mut drain: watch::Receiver<bool>,
) -> Result<(), Error> {
    let failed = |error: IoError| Error::external("read a connection").with_source(error);
    let mut cutter = Cutter::without_lines(&*peers.format);
    let mut held = Room::none(&peers.handover);
    let wanted = peers.read_bytes();
    let (mut is_draining, mut read_in_drain) = (false, 0);
    let (mut quotes, mut given) = (QuoteWatch::default(), 0);
    loop {
        if !is_draining {
            let until = Instant::now() + peers.patience(cutter.unfinished() > 0);
            let wait = tokio::select! {
                biased;
                () = drained(&mut drain) => Wait::Drain,
                ending = peer.told() => Wait::Ends(ending),
                ready = stream.readable() => ready.map(|()| Wait::Ready).map_err(failed)?,
                () = sleep_until(until) => Wait::Ends(Ending::Idle),
            };
            match wait {
                Wait::Ready => {}
                Wait::Drain => {
                    is_draining = true;
                    continue;
                }
                Wait::Ends(ending) => return end(peer, ending, &mut cutter, held, peers),
            }
        }
        let room = tokio::select! {
            biased;
            // In a drain as well: others wait for the bytes that it holds.
            ending = peer.told() => return end(peer, ending, &mut cutter, held, peers),
            room = peers.handover.room(wanted + OVERHEAD) => room,
        };
        let result = SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(wanted.max(scratch.len()), 0);
            stream.try_read(&mut scratch[..wanted]).inspect(|count| cutter.push(&scratch[..*count]))
        });
        let count = match result {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock && is_draining => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => {
                for cut in cutter.close_quotes()?.into_iter().chain(cutter.break_off()) {
                    peers.handover.send_in(cut, (), &mut held);
                }
                return Err(failed(error));
            }
        };
        held.add(room.shrunk_to(count + OVERHEAD));
        let mut is_shared = false;
        loop {
            match cutter.next(count == 0) {
                Ok(Some(cut)) => peers.handover.send_in(cut, (), &mut held),
                Ok(None) => break,
                Err(error) => {
                    if let Some(cut) = cutter.refuse_stream(&error) {
                        peers.handover.send_in(cut, (), &mut held);
                    }
                    return Err(error);
                }
            }
            is_shared = true;
        }
        cutter.shrink(is_shared);
        held = held.shrunk_to(cutter.unfinished());
        peers.note(peer, cutter.unfinished());
        given += count as u64;
        if quotes.is_due(&cutter, given, std::time::Instant::now()) {
            warn!(
                bytes = cutter.unfinished(),
                "a quote of a connection has long been open: nothing after it is taken until it is closed or its line is rejected"
            );
        }
        if count == 0 {
            return Ok(());
        }
        read_in_drain += if is_draining { count } else { 0 };
        if read_in_drain > READ_IN_DRAIN {
            break;
        }
    }
    for cut in cutter.close_quotes()? {
        peers.handover.send_in(cut, (), &mut held);
    }
    let left = cutter.unfinished();
    if left > 0 {
        warn!(bytes = left, "drained in the middle of a record, which is not taken");
    }
    Ok(())
}

/// The source closes the connection; its unfinished record is a reject.
fn end(
    peer: &Peer,
    ending: Ending,
    cutter: &mut Cutter,
    mut held: Room<'_>,
    peers: &Peers,
) -> Result<(), Error> {
    for cut in cutter.close_quotes()? {
        peers.handover.send_in(cut, (), &mut held);
    }
    let reason = peers.ends(peer, ending, cutter.unfinished());
    if let Some(cut) = cutter.give_way(reason) {
        peers.handover.send_in(cut, (), &mut held);
    }
    Ok(())
}
