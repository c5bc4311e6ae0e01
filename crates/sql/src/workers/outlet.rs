//! Where a query's reply goes.
//!
//! To the client, through a queue of [`QUEUE`] pieces: when it is full the query waits. Or, of a short try, into memory
//! up to [`HELD`]: nothing is given out before it is whole, so that the query may begin anew.

use std::time::Duration;

use bytes::Bytes;
use thalweg_types::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::limits::Exceeded;
use crate::output::{Chunks, Piece};

/// Pieces that wait for the reader.
const QUEUE: usize = 4;

/// Longest reply of a short try.
const HELD: usize = 256 << 10;

/// Whoever waits for the first bytes of a reply.
pub(super) type Asker = oneshot::Sender<Result<Chunks, Error>>;

/// Where pieces go.
pub(super) enum Outlet<'a> {
    /// Nothing has come yet.
    Waiting(&'a mut Option<Asker>),
    Flowing(mpsc::Sender<Piece>),
    Held {
        asker: &'a mut Option<Asker>,
        pieces: Vec<Bytes>,
        bytes: usize,
    },
}

/// Why no more pieces are taken.
pub(super) enum Shut {
    /// Whoever asked has gone.
    Gone,
    /// Nobody reads.
    Late,
    /// It is too long for a short try.
    Full,
}

impl<'a> Outlet<'a> {
    pub(super) fn held(asker: &'a mut Option<Asker>) -> Self {
        Self::Held { asker, pieces: Vec::new(), bytes: 0 }
    }

    /// Waits until no client waits for the reply any more.
    pub(super) async fn closed(&mut self) {
        match self {
            Self::Waiting(asker) | Self::Held { asker, .. } => {
                if let Some(asker) = asker.as_mut() {
                    asker.closed().await;
                }
            }
            Self::Flowing(sender) => sender.closed().await,
        }
    }

    /// Takes a piece; waits for a reader for so long.
    pub(super) async fn put(&mut self, piece: Bytes, patience: Duration) -> Result<(), Shut> {
        match self {
            Self::Held { pieces, bytes, .. } => {
                *bytes += piece.len();
                pieces.push(piece);
                if *bytes > HELD { Err(Shut::Full) } else { Ok(()) }
            }
            Self::Waiting(asker) => {
                *self = Self::Flowing(open(asker).ok_or(Shut::Gone)?);
                Box::pin(self.put(piece, patience)).await
            }
            Self::Flowing(sender) => match timeout(patience, sender.send(Piece::Bytes(piece))).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => Err(Shut::Gone),
                Err(_) => Err(Shut::Late),
            },
        }
    }

    /// Reports that the reply is whole, or its error; the client may have gone.
    pub(super) async fn finish(&mut self, ended: Result<(), Error>, patience: Duration) {
        match (std::mem::replace(self, Self::Flowing(mpsc::channel(1).0)), ended) {
            (Self::Waiting(asker) | Self::Held { asker, .. }, Err(error)) => {
                let _ = asker.take().map(|asker| asker.send(Err(error)));
            }
            (Self::Waiting(asker), Ok(())) => give(asker, vec![]),
            (Self::Held { asker, pieces, .. }, Ok(())) => give(asker, pieces),
            (Self::Flowing(sender), ended) => {
                let last = match ended {
                    Ok(()) => Piece::End,
                    Err(error) => Piece::Failed(error),
                };
                let _ = timeout(patience, sender.send(last)).await;
            }
        }
    }
}

/// Gives out the reply, whose pieces follow; `None` if no client waits for it.
fn open(asker: &mut Option<Asker>) -> Option<mpsc::Sender<Piece>> {
    let (sender, pieces) = mpsc::channel(QUEUE);
    asker.take()?.send(Ok(Chunks::new(pieces))).ok()?;
    Some(sender)
}

/// Gives out a reply that is whole.
fn give(asker: &mut Option<Asker>, all: Vec<Bytes>) {
    let (sender, pieces) = mpsc::channel(all.len() + 1);
    for piece in all.into_iter().map(Piece::Bytes).chain([Piece::End]) {
        // There is room for all.
        let _ = sender.try_send(piece);
    }
    let _ = asker.take().map(|asker| asker.send(Ok(Chunks::new(pieces))));
}

/// The error for a reply without a reader.
pub(super) fn late(limit: Duration) -> Error {
    Exceeded::Reader { limit }.into_error()
}
