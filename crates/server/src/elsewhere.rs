//! Questions that another node of the cluster has to answer: it is asked over HTTP, and its answer is given back as it is.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, Uri, header};
use axum::response::Response;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use thalweg_types::Offset;
use tokio::net::TcpStream;

use crate::error::{ApiError, Code};

/// The plan by which the question was sent on: it is sent on once. `thalweg-sql` sends it, too.
const PLAN: &str = "thalweg-plan";

/// Longer answers are refused.
const LARGEST: usize = 4 << 20;

/// The plan by which another node has asked; `None` of a client.
pub(crate) fn plan_of(headers: &HeaderMap) -> Result<Option<Offset>, ApiError> {
    let Some(value) = headers.get(PLAN) else { return Ok(None) };
    let plan = value.to_str().ok().and_then(|text| text.parse().ok());
    plan.map(Some).ok_or_else(|| {
        ApiError::new(Code::InvalidRequest, format!("the header {PLAN} is {value:?}, expected an offset"))
            .hint("leave it out: nodes of a cluster send it to each other")
    })
}

/// The rows for which another node asks: a plan, and partitions of a stage by it.
#[cfg(feature = "sql")]
pub(crate) fn part_of(headers: &HeaderMap) -> Result<Option<(Offset, String)>, ApiError> {
    use thalweg_sql::PARTITIONS;
    let Some(value) = headers.get(PARTITIONS) else { return Ok(None) };
    let wrong = |what: &str| {
        ApiError::new(Code::InvalidRequest, format!("the header {PARTITIONS} is {value:?}, {what}"))
            .hint("leave it out: nodes of a cluster send it to each other")
    };
    let text = value.to_str().map_err(|_| wrong("expected a text"))?;
    let plan = plan_of(headers)?.ok_or_else(|| wrong(&format!("and there is no header {PLAN}")))?;
    Ok(Some((plan, text.to_owned())))
}

/// Asks another node the same.
pub(crate) async fn ask(
    node: &str,
    address: &str,
    uri: &Uri,
    plan: Offset,
    limit: Duration,
) -> Result<Response, ApiError> {
    let failed = |why: String| {
        let message =
            format!("node {node:?} at {address} has what was asked for, and does not answer: {why}");
        ApiError::new(Code::Unavailable, message)
            .hint("ask again: if it has gone, others have its units soon")
    };
    let question = async {
        let stream = TcpStream::connect(address).await.map_err(|error| failed(error.to_string()))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        // It ends with the answer, or when that is not waited for any more.
        tokio::spawn(connection);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, address)
            .header(header::CONNECTION, "close")
            .header(PLAN, plan)
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|error| failed(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(|error| failed(error.to_string()))?;
        let mut response = Response::new(Body::from(body.to_bytes()));
        *response.status_mut() = head.status;
        for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
            if let Some(value) = head.headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    };
    tokio::time::timeout(limit, question)
        .await
        .unwrap_or_else(|_| Err(failed(format!("not within {limit:?}"))))
}
