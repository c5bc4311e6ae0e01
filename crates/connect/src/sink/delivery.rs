//! The items of an outbox, and the task that delivers them: as many at once as have gathered, again and again until it
//! has been taken.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_types::Error;
use tokio::time::Instant;

use super::outbox::Outbox;
use super::retry::{Retry, Trouble};

/// An item that an operator hands over.
pub(super) enum Item {
    /// Whole records as text.
    Text { text: Bytes, records: u64 },
    /// The end of this cycle.
    Marker(u64),
}

/// Items that leave at once: texts in their order, none if only markers have gathered.
struct Load {
    texts: Vec<Bytes>,
    records: u64,
    items: u64,
    bytes: usize,
}

impl Load {
    fn add(&mut self, item: Item, bytes: usize) {
        if let Item::Text { text, records } = item {
            self.texts.push(text);
            self.records += records;
        }
        self.items += 1;
        self.bytes += bytes;
    }
}

/// The system that a sink writes to.
pub(super) trait Recipient: Send {
    /// Takes texts, in this order. After a failure all of them are given again.
    fn take(&mut self, texts: &[Bytes]) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// Delivers until the outbox is closed and empty, at most `limit` bytes at once where no single item has more.
///
/// # Errors
/// If the recipient refuses the texts, or an outage lasts longer than it may.
pub(super) async fn by_load(
    outbox: Arc<Outbox<Item>>,
    mut recipient: impl Recipient,
    mut retry: Retry,
    limit: usize,
) -> Result<(), Error> {
    while let Some(load) = gather(&outbox, limit).await {
        if !load.texts.is_empty() {
            while let Err(trouble) = recipient.take(&load.texts).await {
                retry.wait(trouble, load.records).await?;
            }
            retry.succeeded(Instant::now());
            retry.report().add_bytes(load.bytes as u64);
        }
        let Load { texts, items, bytes, .. } = load;
        drop(texts);
        outbox.release(items, bytes);
        outbox.deliver(items);
    }
    retry.finished();
    Ok(())
}

async fn gather(outbox: &Outbox<Item>, limit: usize) -> Option<Load> {
    let (first, bytes) = outbox.next().await?;
    let mut load = Load { texts: Vec::new(), records: 0, items: 0, bytes: 0 };
    load.add(first, bytes);
    while let Some((next, bytes)) = outbox.next_within(limit.saturating_sub(load.bytes)) {
        load.add(next, bytes);
    }
    Some(load)
}
