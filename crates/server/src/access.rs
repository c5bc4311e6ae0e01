//! Access rights: the one place that derives them from a request's credentials.
//!
//! Each route names the [`Role`] that it requires ([`crate::route`]), and [`Policy::access`] says which roles a request
//! has. Every client that reaches the loopback may read and write, and one with the admin token may do everything.
//! Roles by user, certificates and addresses other than the loopback are further ways to come to an [`Access`]; nothing
//! else has to know of them.
//!
//! A server without a token refuses everything that requires one.

use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::json;

use crate::error::{ApiError, Code};
use crate::route::Role;
use crate::token::AdminToken;

/// The secrets that credentials are checked against.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) token: Option<AdminToken>,
}

/// The rights of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everything.
    Admin,
    /// Everything that needs no credentials.
    Anyone(Credentials),
}

/// The credentials of the request, if they were not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Wrong,
}

impl Policy {
    pub(crate) fn access(&self, headers: &HeaderMap) -> Access {
        let mut said = headers.get_all(header::AUTHORIZATION).iter();
        match (said.next(), said.next()) {
            (None, _) => Access::Anyone(Credentials::None),
            (Some(one), None) if self.is_token(one) => Access::Admin,
            _ => Access::Anyone(Credentials::Wrong),
        }
    }

    fn is_token(&self, said: &HeaderValue) -> bool {
        let said = said.to_str().ok().and_then(|said| said.split_once(' '));
        let Some((scheme, said)) = said else { return false };
        let token = self.token.as_ref();
        scheme.eq_ignore_ascii_case("Bearer") && token.is_some_and(|token| token.is(said.trim()))
    }

    /// # Errors
    /// 401 without credentials, 403 with wrong ones; both say where the token is.
    pub(crate) fn admit(&self, access: Access, role: Role) -> Result<(), ApiError> {
        let credentials = match (access, role) {
            (Access::Admin, _) | (Access::Anyone(_), Role::Read | Role::Write) => return Ok(()),
            (Access::Anyone(credentials), Role::Admin) => credentials,
        };
        let Some(token) = &self.token else {
            return Err(ApiError::new(
                Code::Forbidden,
                "jobs and queries are not started, stopped or changed here",
            )
            .hint("the server was given no admin token"));
        };
        let path = token.path().display().to_string();
        let error = match credentials {
            Credentials::None => ApiError::new(
                Code::Unauthorized,
                "starting, stopping and changing jobs and queries require the admin token, and the request has none",
            )
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            Credentials::Wrong => {
                ApiError::new(Code::Forbidden, "the request's token is not the admin token of this node")
            }
        };
        Err(error.detail(json!({ "token_file": path })).hint(format!(
            "send the header `Authorization: Bearer TOKEN`, with the token in the file {path:?}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_one_header_with_the_token_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let token = AdminToken::of(dir.path()).unwrap();
        let secret = token.reveal().to_owned();
        let policy = Policy { token: Some(token) };
        let access = |said: &[&str]| {
            let mut headers = HeaderMap::new();
            for one in said {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(one).unwrap());
            }
            policy.access(&headers)
        };
        assert_eq!(access(&[]), Access::Anyone(Credentials::None));
        for right in [format!("Bearer {secret}"), format!("bearer   {secret}"), format!("BEARER {secret} ")] {
            assert_eq!(access(&[&right]), Access::Admin, "{right}");
        }
        let right = format!("Bearer {secret}");
        for wrong in [
            vec!["Bearer "],
            vec!["Bearer"],
            vec![secret.as_str()],
            vec![&right[..right.len() - 1]],
            vec!["Bearer x", &right],
            vec![&right, &right],
        ] {
            assert_eq!(access(&wrong), Access::Anyone(Credentials::Wrong), "{wrong:?}");
        }
        let basic = format!("Basic {secret}");
        assert_eq!(access(&[&basic]), Access::Anyone(Credentials::Wrong));
        let without = Policy::default();
        let mut headers = HeaderMap::new();
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer "));
        assert_eq!(
            without.access(&headers),
            Access::Anyone(Credentials::Wrong),
            "no token is not an empty one"
        );
        assert!(without.admit(without.access(&headers), Role::Admin).is_err());
    }

    #[test]
    fn only_what_changes_something_wants_the_token() {
        let dir = tempfile::tempdir().unwrap();
        let policy = Policy { token: Some(AdminToken::of(dir.path()).unwrap()) };
        for credentials in [Credentials::None, Credentials::Wrong] {
            let access = Access::Anyone(credentials);
            assert!(policy.admit(access, Role::Read).is_ok() && policy.admit(access, Role::Write).is_ok());
            assert!(policy.admit(access, Role::Admin).is_err());
        }
        assert!(policy.admit(Access::Admin, Role::Admin).is_ok());
    }
}
