//! How large the head of a request may be.
//!
//! hyper refuses requests that it cannot read (not HTTP, more than 100 headers, a head that is far too large) by itself
//! and without a body; it is given twice the limit, so that the common mistakes get an error like all others.

use axum::http::request::Parts;

use crate::error::{ApiError, Code};

/// Bytes of a header in addition to its name and value: `: ` and the line end.
const HEADER_EXTRA: usize = 4;
/// Bytes of the request line in addition to method and target: ` HTTP/1.1`, a blank and the line end.
const LINE_EXTRA: usize = 12;

/// # Errors
/// 414 if the target alone is over the limit, 431 if the whole head is.
pub(crate) fn check(parts: &Parts, limit: usize) -> Result<(), ApiError> {
    let uri = &parts.uri;
    let target = uri.scheme_str().map_or(0, |scheme| scheme.len() + 3)
        + uri.authority().map_or(0, |authority| authority.as_str().len())
        + uri.path_and_query().map_or(0, |path| path.as_str().len());
    if target > limit {
        return Err(ApiError::new(
            Code::UriTooLong,
            format!("the URL has {target} bytes, more than {limit}"),
        )
        .hint("send long values in the body, or ask for less at once"));
    }
    let headers = parts.headers.iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER_EXTRA).sum();
    let head = parts.method.as_str().len() + target + LINE_EXTRA + headers;
    if head > limit {
        return Err(ApiError::new(
            Code::HeadTooLarge,
            format!("request line and headers have {head} bytes, more than {limit}"),
        )
        .hint("leave out headers that are not needed; cookies and tokens of other services are not"));
    }
    Ok(())
}
