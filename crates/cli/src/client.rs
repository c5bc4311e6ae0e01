//! Requests to a running node.

use std::time::Duration;

use reqwest::blocking::Client;

use crate::output::{Failure, with_hint};

/// How long a node may take to accept the connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A client whose replies may take `limit`, or as long as they want.
///
/// # Errors
/// If the system gives it no threads.
pub(crate) fn client(limit: Option<Duration>) -> Result<Client, Failure> {
    Client::builder().connect_timeout(CONNECT).timeout(limit).build().map_err(unreached)
}

/// The address of a node with its scheme, and without a slash at its end.
pub(crate) fn address(node: &str) -> String {
    let scheme = if node.contains("://") { "" } else { "http://" };
    format!("{scheme}{}", node.trim_end_matches('/'))
}

/// The node does not answer.
pub(crate) fn unreached(error: reqwest::Error) -> Failure {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    let hint = "the node is started with `thalweg run JOB --listen ADDR`; name it as http://127.0.0.1:8080";
    Failure::Run(with_hint(&text, Some(hint)))
}

/// What a node answers where it does not do what it was asked.
pub(crate) fn refused(status: u16, body: &str) -> Failure {
    let parsed: Option<serde_json::Value> = serde_json::from_str(body).ok();
    let part = |name: &str| Some(parsed.as_ref()?.get("error")?.get(name)?.as_str()?.to_owned());
    let message = part("message").unwrap_or_else(|| format!("the node answered with HTTP status {status}"));
    let text = with_hint(&message, part("hint").as_deref());
    if (400..500).contains(&status) && status != 429 { Failure::Usage(text) } else { Failure::Run(text) }
}
