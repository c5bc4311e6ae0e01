//! Bodies: their types, size and pace, and how much of them is held at once.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::{ApiError, Code};

/// How much of a refused body is read, so that its sender gets to see the reply: a connection that is closed
/// with bytes unread loses the bytes that were sent on it last.
const LINGER_BYTES: usize = 64 << 20;
/// Bytes that are reserved for a body on its word.
const RESERVED: usize = 256 << 10;
const LINGER: Duration = Duration::from_secs(1);

/// A body in memory; counts against `max_held_bytes` until it is dropped.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// Reads bodies from sockets into memory.
pub(crate) struct Bodies {
    /// One permit per byte.
    room: Arc<Semaphore>,
    patience: Duration,
}

impl Bodies {
    pub(crate) fn new(max_held: usize, patience: Duration) -> Self {
        Self { room: Arc::new(Semaphore::new(max_held.min(Semaphore::MAX_PERMITS))), patience }
    }

    /// Reads a body of at most `limit` bytes, packed and unpacked.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        body: &mut Body,
        limit: usize,
    ) -> Result<Held, ApiError> {
        let announced = body.size_hint().lower();
        if announced > limit as u64 {
            return Err(too_large(limit));
        }
        let is_packed = is_packed(headers)?;
        let held = match timeout(self.patience, self.collect(body, announced as usize, limit)).await {
            Ok(held) => held?,
            Err(_) => {
                return Err(ApiError::new(
                    Code::BodyTimeout,
                    format!("the body did not arrive within {:?}", self.patience),
                )
                .closing());
            }
        };
        if !is_packed {
            return Ok(held);
        }
        let room = Arc::clone(&self.room);
        let unpacking = spawn_blocking(move || unpacked(&held.bytes, limit, &room)).await;
        unpacking.map_err(|error| ApiError::new(Code::Internal, format!("unpack a body: {error}")))?
    }

    async fn collect(&self, body: &mut Body, announced: usize, limit: usize) -> Result<Held, ApiError> {
        let mut share: Option<OwnedSemaphorePermit> = None;
        // The common body is one frame, which is passed on as it is.
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                ApiError::new(Code::InvalidRequest, format!("read the body: {error}"))
                    .hint(
                        "the connection ended or the transfer encoding is broken before the end of the body",
                    )
                    .closing()
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if first.len().max(all.len()) + data.len() > limit {
                return Err(too_large(limit));
            }
            reserve(&self.room, data.len(), &mut share)?;
            if first.is_empty() && all.is_empty() {
                first = data;
                continue;
            }
            if all.is_empty() {
                // The announced bytes may never come.
                all.reserve(announced.min(RESERVED).max(first.len() + data.len()));
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
        let bytes = if all.is_empty() { first } else { all.freeze() };
        Ok(Held { bytes, _share: share })
    }
}

/// Takes room for `bytes` more bytes.
fn reserve(
    room: &Arc<Semaphore>,
    bytes: usize,
    share: &mut Option<OwnedSemaphorePermit>,
) -> Result<(), ApiError> {
    let count = u32::try_from(bytes).unwrap_or(u32::MAX);
    let more = Arc::clone(room).try_acquire_many_owned(count).map_err(|_| {
        ApiError::new(Code::Overloaded, "too many bytes of requests are held at once")
            .hint("send again later, or send smaller bodies")
            .closing()
    })?;
    match share {
        Some(share) => share.merge(more),
        None => *share = Some(more),
    }
    Ok(())
}

/// Whether a body is packed by gzip.
fn is_packed(headers: &HeaderMap) -> Result<bool, ApiError> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(false) };
    match encoding.as_bytes().to_ascii_lowercase().trim_ascii() {
        b"identity" => Ok(false),
        b"gzip" | b"x-gzip" => Ok(true),
        _ => {
            let what = format!("content encoding {:?}", encoding.to_str().unwrap_or("?"));
            let error = ApiError::new(Code::UnsupportedMediaType, what);
            Err(error.hint("send the body as it is, or with `content-encoding: gzip`"))
        }
    }
}

/// The contents of all members of a packed body, which may be far larger: room is taken as they come.
fn unpacked(packed: &[u8], limit: usize, room: &Arc<Semaphore>) -> Result<Held, ApiError> {
    let mut unpacking = MultiGzDecoder::new(packed);
    let (mut all, mut share) = (Vec::new(), None);
    let mut piece = vec![0; 64 << 10];
    loop {
        let count = unpacking.read(&mut piece).map_err(|error| {
            ApiError::new(
                Code::InvalidRequest,
                format!("unpack the body: expected whole gzip members: {error}"),
            )
            .hint("pack it with gzip, or leave `content-encoding` out")
        })?;
        if count == 0 {
            return Ok(Held { bytes: all.into(), _share: share });
        }
        if all.len() + count > limit {
            return Err(too_large(limit));
        }
        reserve(room, count, &mut share)?;
        all.extend_from_slice(&piece[..count]);
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(Code::BodyTooLarge, format!("the body is larger than {limit} bytes"))
        .hint("send the records in several requests")
        .closing()
}

/// Reads on for a while and drops the bytes.
pub(crate) async fn linger(headers: &HeaderMap, body: &mut Body) {
    // A client that waits for `100 Continue` has sent nothing yet; reading would make it send.
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let discard = async {
        let mut left = LINGER_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            left = left.saturating_sub(length);
            if left == 0 {
                break;
            }
        }
    };
    let _ = timeout(LINGER, discard).await;
}

/// The type of a body without its parameters, in lower case; empty where none is given.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Refuses types that cannot be text. Tools that do not know better (`curl -d`) call everything a form: that is let
/// through.
pub(crate) fn expect_text(headers: &HeaderMap, expected: &str) -> Result<(), ApiError> {
    let kind = media_type(headers);
    let is_text = kind.is_empty()
        || kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+yaml")
        || matches!(
            kind.strip_prefix("application/"),
            Some(
                "json"
                    | "x-ndjson"
                    | "ndjson"
                    | "jsonl"
                    | "x-jsonlines"
                    | "yaml"
                    | "x-yaml"
                    | "sql"
                    | "octet-stream"
                    | "x-www-form-urlencoded"
            )
        );
    if is_text {
        return Ok(());
    }
    Err(ApiError::new(Code::UnsupportedMediaType, format!("content type {kind:?}"))
        .hint(format!("send {expected}")))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_is_clearly_no_text_is_refused() {
        let accepts = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).unwrap());
            expect_text(&headers, "text").is_ok()
        };
        assert!(expect_text(&HeaderMap::new(), "text").is_ok());
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/x-ndjson",
            "application/x-www-form-urlencoded",
            "application/vnd.api+json",
            "text/plain",
        ] {
            assert!(accepts(kind), "{kind}");
        }
        for kind in ["image/png", "multipart/form-data; boundary=x", "application/zip", "application/xml"] {
            assert!(!accepts(kind), "{kind}");
        }
    }
}
