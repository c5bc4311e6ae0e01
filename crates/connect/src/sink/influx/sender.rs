//! The task that sends: as much at once as has gathered, again and again until it has been taken.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use thalweg_types::Error;
use tokio::time::{Instant, sleep};

use super::super::outbox::Outbox;
use super::super::retry::{Retry, Trouble};
use super::client::Client;
use crate::SinkReport;

/// Some points, each with its line end; none for a cycle's marker.
#[derive(Debug, Default)]
pub(super) struct Points {
    pub(super) text: Bytes,
    pub(super) records: u64,
}

/// Delivers until the outbox is closed and empty.
///
/// # Errors
/// What the database refuses, or the last reason of an outage that is longer than it may be.
pub(super) async fn deliver(
    outbox: Arc<Outbox<Points>>,
    client: Client,
    mut retry: Retry,
    batch: usize,
    report: SinkReport,
) -> Result<(), Error> {
    while let Some((first, _)) = outbox.next().await {
        let Load { text, records, items, bytes } = gather(&outbox, first, batch);
        while !text.is_empty() {
            match client.write(text.clone()).await {
                Ok(()) => {
                    retry.succeeded(Instant::now());
                    report.add_bytes(text.len() as u64);
                    break;
                }
                Err(Trouble::Passing { error, unknown, wait }) => {
                    let wait = retry.failed(Instant::now(), error, wait)?;
                    if unknown {
                        report.add_repeated(records);
                    }
                    sleep(wait).await;
                }
                Err(Trouble::Lasting(error)) => return Err(error),
            }
        }
        drop(text);
        outbox.release(items, bytes);
        outbox.deliver(items);
    }
    retry.finished(report.repeated());
    Ok(())
}

/// What leaves in one request.
struct Load {
    text: Bytes,
    records: u64,
    items: u64,
    bytes: usize,
}

fn gather(outbox: &Outbox<Points>, first: Points, batch: usize) -> Load {
    let mut load = Load { bytes: first.text.len(), text: first.text, records: first.records, items: 1 };
    let mut more = BytesMut::new();
    while let Some((next, bytes)) = outbox.next_within(batch.saturating_sub(load.bytes)) {
        if more.is_empty() && !next.text.is_empty() {
            more.reserve(load.bytes + bytes);
            more.extend_from_slice(&load.text);
            load.text.clear();
        }
        more.extend_from_slice(&next.text);
        load.records += next.records;
        load.items += 1;
        load.bytes += bytes;
    }
    if !more.is_empty() {
        load.text = more.freeze();
    }
    load
}
