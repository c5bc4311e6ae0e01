//! The error body, and the one table from error to status.
//!
//! ```json
//! {"error":{"code":"not_found","message":"no job \"pay\"","detail":{"known":["payments"]},
//!           "hint":"the jobs are \"payments\"","retry":"never"}}
//! ```
//!
//! `detail` and `hint` are null if there is none. `retry` is `never`, `with_backoff` or `unknown`.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use thalweg_connect::SubmitError;
use thalweg_types::{Class, Error, Retry};

use crate::control::{ControlError, Kind, Mistake, TextKind};
use crate::wire::{ErrorBody, Failed};

/// The kind of an error, for clients. Codes and statuses are part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidRequest,
    InvalidJobFile,
    InvalidQuery,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    BodyTimeout,
    AlreadyExists,
    Conflict,
    BodyTooLarge,
    UriTooLong,
    UnsupportedMediaType,
    QueueFull,
    TooManyQueries,
    HeadTooLarge,
    Internal,
    Corrupt,
    Unavailable,
    Starting,
    Draining,
    /// A job of the node takes no records, or not yet.
    NotReady,
    Overloaded,
    Timeout,
    QueryTimeout,
    JobStopped,
    DiskFull,
}

struct Row {
    name: &'static str,
    status: StatusCode,
    retry: Retry,
    /// Seconds for the Retry-After header.
    retry_after: Option<&'static str>,
}

impl Code {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 27] = [
        Code::InvalidRequest,
        Code::InvalidJobFile,
        Code::InvalidQuery,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::BodyTimeout,
        Code::AlreadyExists,
        Code::Conflict,
        Code::BodyTooLarge,
        Code::UriTooLong,
        Code::UnsupportedMediaType,
        Code::QueueFull,
        Code::TooManyQueries,
        Code::HeadTooLarge,
        Code::Internal,
        Code::Corrupt,
        Code::Unavailable,
        Code::Starting,
        Code::Draining,
        Code::NotReady,
        Code::Overloaded,
        Code::Timeout,
        Code::QueryTimeout,
        Code::JobStopped,
        Code::DiskFull,
    ];

    /// The table.
    fn row(self) -> Row {
        use Retry::{Never, OutcomeUnknown, WithBackoff};
        let (name, status, retry, retry_after) = match self {
            Code::InvalidRequest => ("invalid_request", StatusCode::BAD_REQUEST, Never, None),
            Code::InvalidJobFile => ("invalid_job_file", StatusCode::BAD_REQUEST, Never, None),
            Code::InvalidQuery => ("invalid_query", StatusCode::BAD_REQUEST, Never, None),
            Code::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, Never, None),
            Code::Forbidden => ("forbidden", StatusCode::FORBIDDEN, Never, None),
            Code::NotFound => ("not_found", StatusCode::NOT_FOUND, Never, None),
            Code::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED, Never, None),
            Code::BodyTimeout => ("body_timeout", StatusCode::REQUEST_TIMEOUT, WithBackoff, None),
            Code::AlreadyExists => ("already_exists", StatusCode::CONFLICT, Never, None),
            Code::Conflict => ("conflict", StatusCode::CONFLICT, Never, None),
            Code::BodyTooLarge => ("body_too_large", StatusCode::PAYLOAD_TOO_LARGE, Never, None),
            Code::UriTooLong => ("uri_too_long", StatusCode::URI_TOO_LONG, Never, None),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, Never, None)
            }
            Code::QueueFull => ("queue_full", StatusCode::TOO_MANY_REQUESTS, WithBackoff, Some("1")),
            Code::TooManyQueries => {
                ("too_many_queries", StatusCode::TOO_MANY_REQUESTS, WithBackoff, Some("1"))
            }
            Code::HeadTooLarge => {
                ("head_too_large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Never, None)
            }
            Code::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR, Never, None),
            Code::Corrupt => ("corrupt", StatusCode::INTERNAL_SERVER_ERROR, Never, None),
            Code::NotReady => ("not_ready", StatusCode::SERVICE_UNAVAILABLE, WithBackoff, Some("5")),
            Code::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, WithBackoff, Some("1")),
            Code::Starting => ("starting", StatusCode::SERVICE_UNAVAILABLE, WithBackoff, Some("1")),
            Code::Draining => ("draining", StatusCode::SERVICE_UNAVAILABLE, WithBackoff, Some("5")),
            Code::Overloaded => ("overloaded", StatusCode::SERVICE_UNAVAILABLE, WithBackoff, Some("1")),
            Code::Timeout => ("timeout", StatusCode::GATEWAY_TIMEOUT, OutcomeUnknown, None),
            // It reads only, so nothing is left open.
            Code::QueryTimeout => ("query_timeout", StatusCode::GATEWAY_TIMEOUT, Never, None),
            Code::DiskFull => ("disk_full", StatusCode::INSUFFICIENT_STORAGE, WithBackoff, Some("60")),
            Code::JobStopped => ("job_stopped", StatusCode::GATEWAY_TIMEOUT, OutcomeUnknown, None),
        };
        Row { name, status, retry, retry_after }
    }

    #[cfg(test)]
    pub(crate) fn name(self) -> &'static str {
        self.row().name
    }

    #[cfg(test)]
    pub(crate) fn status(self) -> StatusCode {
        self.row().status
    }

    fn of_class(class: Class) -> Self {
        match class {
            Class::User => Code::InvalidRequest,
            Class::External => Code::Unavailable,
            Class::Internal => Code::Internal,
            Class::Corrupt => Code::Corrupt,
        }
    }
}

/// An error on its way to a client. Boxed, as errors are rare and results travel far.
#[derive(Debug)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    message: String,
    detail: Value,
    hint: Option<String>,
    retry: Retry,
    header: Option<(HeaderName, HeaderValue)>,
    close: bool,
}

impl ApiError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            detail: Value::Null,
            hint: None,
            retry: code.row().retry,
            header: None,
            close: false,
        }))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn detail(mut self, detail: Value) -> Self {
        self.0.detail = detail;
        self
    }

    pub(crate) fn retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The connection is of no use afterwards: the rest of a body may still be coming.
    pub(crate) fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }

    pub(crate) fn into_response(self) -> Response {
        let inner = *self.0;
        let row = inner.code.row();
        let retry = match inner.retry {
            Retry::Never => "never",
            Retry::WithBackoff => "with_backoff",
            Retry::OutcomeUnknown => "unknown",
        };
        let body = ErrorBody {
            error: Failed {
                code: row.name,
                message: inner.message,
                detail: inner.detail,
                hint: inner.hint,
                retry,
            },
        };
        let mut response = Response::new(Body::from(json!(body).to_string()));
        *response.status_mut() = row.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = row.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if let Some((name, value)) = inner.header {
            headers.insert(name, value);
        }
        if inner.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        // The log is the only other place where the server's own errors show, and the only one for contents of files
        // and records.
        if matches!(error.class(), Class::Internal | Class::Corrupt) {
            tracing::error!(error = %error.chain(), "request failed");
        } else if error.has_private() {
            tracing::warn!(error = %error.chain(), "request failed");
        }
        // All outcomes that are not known have one status, so that clients need to look out for one only.
        let code = match error.retry() {
            Retry::OutcomeUnknown => Code::Timeout,
            _ => Code::of_class(error.class()),
        };
        let mut out = ApiError::new(code, error.public_chain()).retry(error.retry());
        out.0.hint = error.hint().map(str::to_owned);
        out
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let message = error.to_string();
        match error {
            ControlError::NotFound { kind, known, .. } => not_found(kind, message, &known),
            ControlError::Exists { kind, .. } => {
                ApiError::new(Code::AlreadyExists, message).hint(match kind {
                    Kind::Job => "stop it first with DELETE, or choose another name",
                    _ => "drop it first with DELETE, or choose another name",
                })
            }
            ControlError::Conflict { hint, .. } => {
                let mut out = ApiError::new(Code::Conflict, message);
                out.0.hint = hint;
                out
            }
            ControlError::NotNow { .. } => ApiError::new(Code::Unavailable, message).hint("ask again"),
            ControlError::Replaced { .. } => {
                ApiError::new(Code::Starting, message).hint("send it again: nothing was taken")
            }
            ControlError::ReadOnly { job, hint, .. } => {
                let again = format!("then start it again with POST /v1/jobs/{job}, or the process");
                let first = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
                ApiError::new(Code::DiskFull, message).hint(format!("{first}{again}"))
            }
            ControlError::Mistakes { of, mistakes } => mistaken(of, message, &mistakes),
            ControlError::Failed(error) => error.into(),
        }
    }
}

/// More names than this do not help anybody.
const SHOWN_NAMES: usize = 50;

fn not_found(kind: Kind, message: String, known: &[String]) -> ApiError {
    let shown = &known[..known.len().min(SHOWN_NAMES)];
    let plural = match kind {
        Kind::Job => "jobs",
        Kind::Source => "HTTP sources",
        Kind::Operator => "operators",
        Kind::Query => "queries",
        Kind::Node => "nodes",
    };
    let hint = if known.is_empty() {
        format!("there are no {plural}")
    } else {
        let names: Vec<String> = shown.iter().map(|name| format!("{name:?}")).collect();
        let more = if shown.len() < known.len() { " and more" } else { "" };
        format!("the {plural} are {}{more}", names.join(", "))
    };
    ApiError::new(Code::NotFound, message).detail(json!({ "known": shown })).hint(hint)
}

fn mistaken(of: TextKind, summary: String, mistakes: &[Mistake]) -> ApiError {
    let code = match of {
        TextKind::JobFile => Code::InvalidJobFile,
        TextKind::Query => Code::InvalidQuery,
    };
    let with_place = |one: &Mistake| match one.line {
        0 => one.message.clone(),
        line => format!("{} (line {line}, column {})", one.message, one.column),
    };
    let message = match mistakes {
        [one] => with_place(one),
        all => format!("{summary}: {}", all.iter().map(with_place).collect::<Vec<_>>().join("; ")),
    };
    let mut out = ApiError::new(code, message).detail(json!(mistakes));
    out.0.hint = mistakes.iter().find_map(|mistake| mistake.hint.clone());
    out
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        let message = error.to_string();
        match error {
            SubmitError::Full { .. } => ApiError::new(Code::QueueFull, message)
                .hint("records come in faster than the job takes them: send again later, or more of them in one body"),
            SubmitError::Draining { .. } => ApiError::new(Code::Draining, message),
            SubmitError::TooLarge { bound, .. } => ApiError::new(Code::BodyTooLarge, message)
                .hint(format!("send the records in bodies of at most {bound} bytes")),
            SubmitError::Empty => ApiError::new(Code::InvalidRequest, message)
                .hint("the body is one JSON object, or one object a line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_that_are_not_known_are_504_and_nothing_else_is() {
        for class in [Class::User, Class::External, Class::Internal, Class::Corrupt] {
            let known = ApiError::from(Error::new(class, "x").with_retry(Retry::WithBackoff));
            assert_ne!(known.into_response().status(), StatusCode::GATEWAY_TIMEOUT);
            let open = ApiError::from(Error::new(class, "x").with_retry(Retry::OutcomeUnknown));
            assert_eq!(open.into_response().status(), StatusCode::GATEWAY_TIMEOUT);
        }
    }

    #[test]
    fn statuses_that_invite_a_retry_say_when() {
        for code in [
            Code::QueueFull,
            Code::DiskFull,
            Code::Unavailable,
            Code::Starting,
            Code::Draining,
            Code::Overloaded,
        ] {
            let response = ApiError::new(code, "x").into_response();
            assert!(response.headers().contains_key(header::RETRY_AFTER), "{code:?}");
        }
    }
}
