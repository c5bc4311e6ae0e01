//! The door: it makes pieces of whole records from the bodies that the server hands in.

use std::sync::Arc;

use bytes::Bytes;

use super::super::cut::Cut;
use super::super::json_body::Cutting;
use super::Shared;
use super::inbox::Refused;
use super::request::{Replies, Request};
use crate::{Ingress, SubmitError, Submitted};

/// Records of a piece whose lines a client waits for: their lines are kept until all of them are there.
const ANSWERED: u32 = 4_096;

/// The door.
pub struct HttpIngress {
    shared: Arc<Shared>,
}

impl HttpIngress {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Ingress for HttpIngress {
    fn submit(&self, body: Bytes, reply: bool) -> Result<Submitted, SubmitError> {
        let shared = &self.shared;
        let source_name = || shared.name.clone();
        let bound = shared.inbox.bound();
        if body.len() > bound / 2 {
            return Err(SubmitError::TooLarge {
                source_name: source_name(),
                bytes: body.len(),
                bound: bound / 2,
            });
        }
        let pieces = shared.cut(&body, if reply { ANSWERED } else { u32::MAX });
        drop(body);
        let records: u64 = pieces.iter().map(|piece| u64::from(piece.count)).sum();
        if records == 0 {
            return Err(SubmitError::Empty);
        }
        let request = (reply || shared.acknowledges)
            .then(|| Arc::new(Request::new(Arc::clone(shared.inbox.share()), pieces.len(), records, reply)));
        match shared.inbox.try_send(pieces, request.clone()) {
            Ok(()) => {}
            Err(Refused::Full) => return Err(SubmitError::Full { source_name: source_name() }),
            Err(Refused::Closed) => return Err(SubmitError::Draining { source_name: source_name() }),
        }
        let replies = request.map(|request| {
            let shared = Arc::downgrade(shared);
            Replies::new(request, move || {
                if let Some(shared) = shared.upgrade() {
                    shared.inbox.on_room();
                }
            })
        });
        Ok(Submitted { records, replies })
    }
}

impl Shared {
    fn cut(&self, body: &Bytes, records: u32) -> Vec<Cut> {
        let cutting = Cutting { format: &*self.format, records };
        if self.is_json { cutting.json(body) } else { cutting.lines(body) }
    }
}
