//! The `Host` of a request (RFC 9112, section 3.2): one, and an authority.
//!
//! Which hosts are ours is another question (`guard`): here a host is refused that can be read in more than one way, as
//! two programs on the way of a request might take it for two things.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Version, header};

use crate::error::{ApiError, Code};

/// # Errors
/// 400 without a `Host` in HTTP/1.1, with several, or with one that is not a host and port.
pub(crate) fn check(parts: &Parts) -> Result<(), ApiError> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let wrong = |what: &str| {
        Err(ApiError::new(Code::InvalidRequest, format!("expected one Host header, got {what}"))
            .hint("name the address that is called: `Host: 127.0.0.1:8080`")
            .closing())
    };
    match (hosts.next(), hosts.next()) {
        (None, _) if parts.version < Version::HTTP_11 => Ok(()),
        (None, _) => wrong("none"),
        (Some(_), Some(_)) => wrong("several"),
        (Some(host), None) => match Authority::try_from(host.as_bytes()) {
            Ok(authority) if !authority.as_str().contains(['@', ',']) => Ok(()),
            _ => wrong("one that is no host and port"),
        },
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};

    use super::*;

    fn accepts(version: Version, hosts: &[&[u8]]) -> bool {
        let mut request = Request::builder().version(version).body(()).unwrap();
        for host in hosts {
            request.headers_mut().append(header::HOST, HeaderValue::from_bytes(host).unwrap());
        }
        check(&request.into_parts().0).is_ok()
    }

    #[test]
    fn there_is_one_host() {
        for host in ["localhost", "localhost:80", "127.0.0.1:8080", "[::1]:80", "a.b-c.example"] {
            assert!(accepts(Version::HTTP_11, &[host.as_bytes()]), "{host}");
        }
        assert!(accepts(Version::HTTP_10, &[]));
        assert!(!accepts(Version::HTTP_11, &[]));
        assert!(!accepts(Version::HTTP_11, &[b"localhost", b"localhost"]), "the same twice, too");
        assert!(!accepts(Version::HTTP_10, &[b"localhost", b"evil.example"]));
        for host in [&b""[..], b"a b", b"a/b", b"user@host", b"\xff\xfe", b"h\xc3\xa9", b"a,b"] {
            assert!(!accepts(Version::HTTP_11, &[host]), "{}", host.escape_ascii());
        }
    }
}
