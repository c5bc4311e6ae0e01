//! What a node and the processes that answer its SQL say to each other.
//!
//! Both ends are of one program, so there is no version: `[length: u32 LE][kind: u8][payload]`, where kind 0 is a message
//! ([`message`], in postcard) and kind 1 plain bytes, whose meaning the message before them gives. A length above
//! [`LONGEST`] is refused before anything is allocated for it.
//!
//! A worker gets its limits ([`ToWorker::Configure`]) and says [`FromWorker::Ready`]. Then, query by query:
//! [`ToWorker::Query`]; any number of [`FromWorker::Ask`], each answered by [`ToWorker::Snapshot`] and the rows that are
//! new to the worker; pieces of the reply as plain bytes; [`FromWorker::End`] or [`FromWorker::Failed`]; and
//! [`FromWorker::Idle`] as soon as nothing of the query computes any more. [`ToWorker::Cancel`] may come at any time of a
//! query, and brings `Idle` early.

pub(crate) mod error;
pub(crate) mod message;
pub(crate) mod rows;

use std::io::{self, ErrorKind, Read};

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[cfg(doc)]
use message::{FromWorker, ToWorker};

/// Longest payload: rows of one batch that are in no file yet may be large, all else is small.
pub(crate) const LONGEST: usize = 3 << 30;

/// Bytes of a reply that travel together: however long a row is, the node holds some of these and no more.
pub(crate) const PIECE: usize = 64 << 10;

const HEAD: usize = 5;

/// What came through.
#[derive(Debug)]
pub(crate) enum Frame<B> {
    Message(B),
    Bytes(B),
}

/// Length and kind from a head.
fn head(bytes: [u8; HEAD]) -> io::Result<(usize, bool)> {
    let [a, b, c, d, kind] = bytes;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > LONGEST || kind > 1 {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("a frame of kind {kind} and {length} bytes"),
        ));
    }
    Ok((length, kind == 1))
}

fn head_of(length: usize, kind: u8) -> io::Result<[u8; HEAD]> {
    if length > LONGEST {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("{length} bytes, where a frame may have {LONGEST}"),
        ));
    }
    let [a, b, c, d] = (length as u32).to_le_bytes();
    Ok([a, b, c, d, kind])
}

/// A message with its head.
///
/// # Errors
/// What has no form, as a path that is no text; or is too long.
pub(crate) fn packed(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let invalid = |error| io::Error::new(ErrorKind::InvalidInput, error);
    let mut out = postcard::to_extend(message, vec![0; HEAD]).map_err(invalid)?;
    let head = head_of(out.len() - HEAD, 0)?;
    out[..HEAD].copy_from_slice(&head);
    Ok(out)
}

/// The head of plain bytes.
///
/// # Errors
/// If they are too long.
pub(crate) fn head_of_bytes(length: usize) -> io::Result<[u8; HEAD]> {
    head_of(length, 1)
}

/// Reads a message.
///
/// # Errors
/// If the bytes are invalid.
pub(crate) fn unpacked<M: DeserializeOwned>(bytes: &[u8]) -> io::Result<M> {
    postcard::from_bytes(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Takes the next frame out of the bytes that were read, if it is complete.
///
/// # Errors
/// If it is invalid.
pub(crate) fn take(read: &mut BytesMut) -> io::Result<Option<Frame<Bytes>>> {
    let Some(begin) = read.first_chunk::<HEAD>() else { return Ok(None) };
    let (length, is_bytes) = head(*begin)?;
    if read.len() < HEAD + length {
        return Ok(None);
    }
    let mut frame = read.split_to(HEAD + length).freeze();
    let payload = frame.split_off(HEAD);
    Ok(Some(if is_bytes { Frame::Bytes(payload) } else { Frame::Message(payload) }))
}

/// Waits for the next frame; `None` if the other end is closed between two. `room` is called with the number of plain
/// bytes before they are read.
///
/// # Errors
/// What the socket says, or if it is no frame. Of kind `WouldBlock` only before a frame's first byte.
pub(crate) fn receive(from: &mut impl Read, room: impl FnOnce(usize)) -> io::Result<Option<Frame<Vec<u8>>>> {
    let mut begin = [0; HEAD];
    match fill(from, &mut begin, true) {
        Ok(0) => return Ok(None),
        Ok(HEAD) => {}
        Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
        Err(error) => return Err(error),
    }
    let (length, is_bytes) = head(begin)?;
    if is_bytes {
        room(length);
    }
    let mut payload = vec![0; length];
    if fill(from, &mut payload, false)? < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(if is_bytes { Frame::Bytes(payload) } else { Frame::Message(payload) }))
}

/// Reads until there is no room or no more; `is_first`: that nothing comes for a while is an error before the first byte.
fn fill(from: &mut impl Read, to: &mut [u8], is_first: bool) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match from.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && !(is_first && done == 0) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Adds plain bytes, in frames of [`PIECE`].
///
/// # Errors
/// None, as a piece is short enough.
pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        to.extend_from_slice(&head_of_bytes(piece.len())?);
        to.extend_from_slice(piece);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(bytes: &[u8]) -> io::Result<Vec<(bool, Vec<u8>)>> {
        let mut read = BytesMut::from(bytes);
        let mut out = Vec::new();
        while let Some(frame) = take(&mut read)? {
            out.push(match frame {
                Frame::Bytes(bytes) => (true, bytes.to_vec()),
                Frame::Message(bytes) => (false, bytes.to_vec()),
            });
        }
        Ok(out)
    }

    #[test]
    fn both_readers_read_what_was_sent() {
        let mut sent = packed(&("SELECT 1", 7_u64)).unwrap();
        let long = vec![b'x'; PIECE + 3];
        put_bytes(&mut sent, &long).unwrap();
        let taken = frames(&sent).unwrap();
        assert_eq!(unpacked::<(String, u64)>(&taken[0].1).unwrap(), ("SELECT 1".to_owned(), 7));
        let pieces: Vec<_> = taken[1..].iter().map(|(is_bytes, bytes)| (*is_bytes, bytes.len())).collect();
        assert_eq!(pieces, [(true, PIECE), (true, 3)]);
        // All that is less is no frame yet.
        for end in (0..100).chain(sent.len() - 10..sent.len()) {
            assert!(frames(&sent[..end]).unwrap().len() < taken.len(), "{end}");
        }

        let mut from = sent.as_slice();
        let mut told = Vec::new();
        let mut count = 0;
        while let Some(frame) = receive(&mut from, |length| told.push(length)).unwrap() {
            let (Frame::Message(bytes) | Frame::Bytes(bytes)) = frame;
            assert_eq!(bytes, taken[count].1);
            count += 1;
        }
        assert_eq!((count, told), (taken.len(), vec![PIECE, 3]), "room is made for bytes alone");
        assert!(receive(&mut &sent[..3], |_| {}).is_err(), "a head that is cut is no end");
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_frames_are_refused_and_take_no_memory(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = frames(&bytes);
            let _ = unpacked::<message::FromWorker>(&bytes);
            let _ = unpacked::<message::ToWorker>(&bytes);
            let long = [&[0xff; 4], bytes.as_slice()].concat();
            prop_assert!(frames(&long).is_err() || long.len() < HEAD);
            prop_assert!(receive(&mut long.as_slice(), |_| panic!("room for it")).is_err());
        }
    }
}
