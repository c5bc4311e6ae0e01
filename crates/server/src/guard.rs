//! Keeps pages of other sites from using a visitor's browser to reach a server on loopback.
//!
//! A page can send a POST without asking (`Origin` gives it away), and by pointing its own name at 127.0.0.1 it can even
//! read the reply (`Host` gives it away: an address or `localhost` cannot be pointed elsewhere).
//! Programs other than browsers send no `Origin` and name the address that they call.

use axum::http::{HeaderMap, HeaderValue, Uri, header};

use crate::error::{ApiError, Code};

pub(crate) fn check(uri: &Uri, headers: &HeaderMap, allowed_hosts: &[String]) -> Result<(), ApiError> {
    let text = |value: &'_ HeaderValue| value.to_str().unwrap_or("?").to_owned();
    let host = match (uri.authority(), headers.get(header::HOST)) {
        (Some(authority), _) => authority.as_str().to_owned(),
        (None, Some(value)) => text(value),
        // Before HTTP/1.1, where there are no browsers any more.
        (None, None) => String::new(),
    };
    if !host.is_empty() && !is_ours(name_of(&host), allowed_hosts) {
        return Err(ApiError::new(
            Code::Forbidden,
            format!("host {host:?} is not one of this server's names"),
        )
        .hint("call it by its address or as localhost"));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = text(origin);
        let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if from.is_none_or(|from| !from.eq_ignore_ascii_case(&host)) {
            return Err(ApiError::new(
                Code::Forbidden,
                format!("requests of pages from {origin:?} are refused"),
            ));
        }
    }
    Ok(())
}

/// The authority without its port.
fn name_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn is_ours(name: &str, allowed_hosts: &[String]) -> bool {
    let folded = name.trim_end_matches('.').to_ascii_lowercase();
    folded == "localhost"
        || folded.ends_with(".localhost")
        || folded.parse::<std::net::IpAddr>().is_ok()
        || allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&folded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(host: Option<&'static str>, origin: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, HeaderValue::from_static(host));
        }
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        check(&Uri::from_static("/"), &headers, &["streams.example".to_owned()]).is_ok()
    }

    #[test]
    fn programs_and_own_pages_pass() {
        assert!(accepts(None, None));
        for host in
            ["localhost", "localhost:8080", "127.0.0.1:80", "[::1]:80", "Streams.Example:1", "ui.localhost"]
        {
            assert!(accepts(Some(host), None), "{host}");
        }
        assert!(accepts(Some("localhost:8080"), Some("http://localhost:8080")));
    }

    #[test]
    fn other_sites_do_not() {
        assert!(!accepts(Some("evil.example:8080"), None), "a name that was pointed at us");
        assert!(!accepts(Some("127.0.0.1.evil.example"), None));
        for origin in
            ["http://evil.example", "null", "http://localhost:9", "https://localhost:8080.evil.example"]
        {
            assert!(!accepts(Some("localhost:8080"), Some(origin)), "{origin}");
        }
    }
}
