//! A reply as a stream of bytes. It is encoded on the engine's threads, so that those of sockets only pass it on.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use thalweg_types::Error;
use tokio::sync::mpsc;

use super::{Format, encoder};
use crate::reply::{Reply, torn};

/// Pieces that wait for the sender.
const QUEUE: usize = 2;

/// The bytes of a reply, as they come. Dropping it ends the query. After an error it ends, and the bytes before are not a
/// whole reply.
#[must_use]
pub struct Chunks {
    pieces: mpsc::Receiver<Piece>,
    done: bool,
}

/// What comes through the queue. A queue that ends without [`Piece::End`] was torn.
pub(crate) enum Piece {
    Bytes(Bytes),
    Failed(Error),
    End,
}

impl Chunks {
    /// Pieces as they come out of a queue.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(pieces: mpsc::Receiver<Piece>) -> Self {
        Self { pieces, done: false }
    }

    /// The bytes for a thread that may block until they are there; not to be used on a thread of an async runtime.
    pub fn blocking(mut self) -> impl Iterator<Item = Result<Bytes, Error>> {
        std::iter::from_fn(move || {
            if self.done {
                return None;
            }
            let piece = self.pieces.blocking_recv();
            self.item(piece)
        })
    }

    fn item(&mut self, piece: Option<Piece>) -> Option<Result<Bytes, Error>> {
        match piece {
            Some(Piece::Bytes(bytes)) => Some(Ok(bytes)),
            last => {
                self.done = true;
                match last {
                    Some(Piece::Failed(error)) => Some(Err(error)),
                    None => Some(Err(torn())),
                    _ => None,
                }
            }
        }
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Reply {
    /// Has the reply encoded as it is read.
    pub fn encode(self, format: Format) -> Chunks {
        let (sender, pieces) = mpsc::channel(QUEUE);
        self.runtime.clone().spawn(async move {
            let last = match encode(self, format, &sender).await {
                Ok(()) => Piece::End,
                Err(error) => Piece::Failed(error),
            };
            let _ = sender.send(last).await;
        });
        Chunks { pieces, done: false }
    }
}

async fn encode(mut reply: Reply, format: Format, sender: &mpsc::Sender<Piece>) -> Result<(), Error> {
    let mut encoder = encoder(reply.schema(), format);
    let mut bytes = Vec::new();
    encoder.head(&mut bytes)?;
    loop {
        // Whoever went away needs no further rows, and they may take long to come.
        let batch = tokio::select! {
            batch = reply.next_batch() => batch,
            () = sender.closed() => return Ok(()),
        };
        let Some(batch) = batch else { break };
        encoder.batch(&batch?, &mut bytes)?;
        if !bytes.is_empty() && sender.send(Piece::Bytes(std::mem::take(&mut bytes).into())).await.is_err() {
            return Ok(());
        }
    }
    encoder.end(&mut bytes)?;
    if !bytes.is_empty() {
        let _ = sender.send(Piece::Bytes(bytes.into())).await;
    }
    Ok(())
}

impl Stream for Chunks {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| self.item(piece))
    }
}
