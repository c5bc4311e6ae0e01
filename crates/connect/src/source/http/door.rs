//! The door: what the server hands in becomes pieces of whole records.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::super::cut::{BlockContext, Cut, MAX_BLOCK, cut_into};
use super::Shared;
use super::inbox::Refused;
use super::request::{Replies, Request};
use crate::format::ndjson;
use crate::{Ingress, SubmitError};

/// Bytes of a piece, unless a record has more.
const PIECE: usize = 256 << 10;

/// Records of a piece whose lines somebody waits for: so many lines have to be kept until all of them are there.
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
    fn submit(&self, body: Bytes, reply: bool) -> Result<Option<Replies>, SubmitError> {
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
        Ok(request.map(|request| {
            let shared = Arc::downgrade(shared);
            Replies::new(request, move || {
                if let Some(shared) = shared.upgrade() {
                    shared.inbox.on_room();
                }
            })
        }))
    }
}

impl Shared {
    fn cut(&self, body: &Bytes, records: u32) -> Vec<Cut> {
        let body = if self.is_json { one_line_each(body) } else { body.clone() };
        match cut_into(&*self.format, &body, PIECE, records) {
            Ok(cuts) => cuts,
            // A header that does not fit: the whole body is one thing that cannot be read. What is kept of it fits into a
            // journal.
            Err(error) => {
                let refused = Some((Cow::Borrowed("parse"), Cow::Owned(error.chain())));
                let context = BlockContext { refused, ..BlockContext::default() };
                let data = body.slice(..body.len().min(MAX_BLOCK));
                vec![Cut { data, count: 1, context: Some(Arc::new(context)) }]
            }
        }
    }
}

/// Objects that take several lines, or share one, as one object a line. Anything else stays as it is.
fn one_line_each(body: &Bytes) -> Bytes {
    let text = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let (mut start, mut count, mut is_lines) = (0, 0, true);
    let is_objects = ndjson::for_each_object(text, |end| {
        let object = &text[start..end];
        let is_alone = text[end..]
            .iter()
            .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'))
            .is_none_or(|byte| *byte == b'\n');
        is_lines = is_lines && is_alone && memchr::memchr(b'\n', object.trim_ascii_start()).is_none();
        (start, count) = (end, count + 1);
    });
    if !is_objects || is_lines {
        return body.clone();
    }
    let mut lines = BytesMut::with_capacity(text.len() + count);
    let mut start = 0;
    ndjson::for_each_object(text, |end| {
        // Line ends stand between tokens only: within a string they would not have been JSON.
        let object = text[start..end].trim_ascii_start();
        let from = lines.len();
        lines.extend_from_slice(object);
        lines[from..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        lines.extend_from_slice(b"\n");
        start = end;
    });
    lines.freeze()
}
