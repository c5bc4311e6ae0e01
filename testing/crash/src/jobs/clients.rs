//! Clients that post from threads of their own while the engine runs, and go on with its next start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use crate::engine::Engine;
use thalweg_harness::http::Connection;

/// What one client posts, and what it makes of the answers.
pub(super) trait Client: Send + 'static {
    /// Requests that still have to be answered.
    fn posts_left(&self) -> u64;

    /// Posts the remaining batches; ends early when the connection breaks.
    ///
    /// # Errors
    /// An answer that was wrong.
    fn post(&mut self, connection: Connection) -> Result<()>;
}

/// The clients of a job.
pub(super) struct Clients<C> {
    /// Those that are not posting, always in the same order.
    idle: Vec<C>,
    posting: Vec<JoinHandle<Result<C>>>,
    count: usize,
    /// How many have posted everything.
    done: Arc<AtomicUsize>,
}

impl<C: Client> Clients<C> {
    pub(super) fn new(clients: impl IntoIterator<Item = C>) -> Self {
        let idle: Vec<C> = clients.into_iter().collect();
        Self { count: idle.len(), idle, posting: Vec::new(), done: Arc::default() }
    }

    /// Lets them post to an engine that listens.
    pub(super) fn start(&mut self, engine: &Engine) -> Result<()> {
        let address = engine.address().context("the engine does not say where it listens")?;
        for mut client in self.idle.drain(..) {
            let done = Arc::clone(&self.done);
            self.posting.push(thread::spawn(move || {
                if client.posts_left() > 0 {
                    post_all(&mut client, address)?;
                    if client.posts_left() == 0 {
                        // Read by the thread that watches; nothing else hangs on it.
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(client)
            }));
        }
        Ok(())
    }

    /// Whether all have posted everything.
    pub(super) fn are_done(&self) -> bool {
        self.done.load(Ordering::Relaxed) == self.count
    }

    /// Waits for them, now that the engine has ended.
    ///
    /// # Errors
    /// An answer that was wrong.
    pub(super) fn stop(&mut self) -> Result<()> {
        for thread in self.posting.drain(..) {
            match thread.join() {
                Ok(client) => self.idle.push(client?),
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(())
    }

    /// Those that are not posting: all of them, once they were waited for.
    pub(super) fn all(&self) -> &[C] {
        &self.idle
    }
}

/// Posts the remaining batches; ends early when no node listens any more.
fn post_all(client: &mut impl Client, address: SocketAddr) -> Result<()> {
    while client.posts_left() > 0 {
        let Ok(connection) = Connection::open(address) else { break };
        client.post(connection)?;
    }
    Ok(())
}
