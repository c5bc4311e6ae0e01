//! The query string of the URL.
//!
//! Two differences from a form: a name without `=` has no value (null, where a key is meant) and is not the same as an
//! empty one, and bytes that are not UTF-8 are refused.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
#[cfg(feature = "sql")]
use thalweg_sql::{Addresses, Compression, Format};

use crate::control::{KeyField, Stop};
use crate::error::{ApiError, Code};

/// The fields of a query string, in order.
pub(crate) fn fields(query: Option<&str>) -> Result<Vec<KeyField>, ApiError> {
    let mut fields: Vec<KeyField> = Vec::new();
    for piece in query.unwrap_or_default().split('&').filter(|piece| !piece.is_empty()) {
        let (name, value) = match piece.split_once('=') {
            Some((name, value)) => (name, Some(decode(value)?)),
            None => (piece, None),
        };
        let name = decode(name)?;
        if fields.iter().any(|field| field.name == name) {
            return Err(ApiError::new(Code::InvalidRequest, format!("{name:?} is given twice in the URL")));
        }
        fields.push(KeyField { name, value });
    }
    Ok(fields)
}

/// Undoes percent encoding and `+`. A `%` without two digits is refused, which `percent_decode_str` would leave as it is.
fn decode(text: &str) -> Result<String, ApiError> {
    let wrong = || {
        ApiError::new(Code::InvalidRequest, format!("{text:?} in the URL is not percent-encoded UTF-8"))
            .hint("write a percent sign as %25")
    };
    let is_digits =
        |after: &str| after.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_digits) {
        return Err(wrong());
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned).map_err(|_| wrong())
}

/// Whether the reply is wanted: `?reply=none` asks for none. No other parameter is taken.
pub(crate) fn wants_reply(query: Option<&str>) -> Result<bool, ApiError> {
    let mut wanted = true;
    for field in fields(query)? {
        wanted = match (field.name.as_str(), field.value.as_deref()) {
            ("reply", Some("none")) => false,
            ("reply", Some("answers")) => true,
            ("reply", other) => {
                let other = other.unwrap_or_default();
                return Err(ApiError::new(Code::InvalidRequest, format!("reply={other:?} in the URL"))
                    .hint("reply is `answers` (the default) or `none`"));
            }
            (other, _) => {
                return Err(ApiError::new(Code::InvalidRequest, format!("no parameter {other:?}"))
                    .hint("the parameter is `reply`: `answers` (the default) or `none`"));
            }
        };
    }
    Ok(wanted)
}

/// How a job is stopped: `?drain=false` does not wait. No other parameter is taken.
pub(crate) fn how_to_stop(query: Option<&str>) -> Result<Stop, ApiError> {
    const HINT: &str =
        "the parameter is `drain`: `true` (the default) or `false`, which drops records in flight";
    let mut how = Stop::Drain;
    for field in fields(query)? {
        how = match (field.name.as_str(), field.value.as_deref()) {
            ("drain", Some("true")) => Stop::Drain,
            ("drain", Some("false")) => Stop::Abort,
            ("drain", other) => {
                let other = other.unwrap_or_default();
                return Err(
                    ApiError::new(Code::InvalidRequest, format!("drain={other:?} in the URL")).hint(HINT)
                );
            }
            (other, _) => {
                return Err(ApiError::new(Code::InvalidRequest, format!("no parameter {other:?}")).hint(HINT));
            }
        };
    }
    Ok(how)
}

/// The job that is asked for alone: `?job=pay`. No other parameter is taken.
pub(crate) fn job(query: Option<&str>) -> Result<Option<String>, ApiError> {
    const HINT: &str = "the parameter is `job`: the name of a job, whose units are listed alone";
    let mut job = None;
    for field in fields(query)? {
        job = match (field.name.as_str(), field.value) {
            ("job", Some(name)) if !name.is_empty() => Some(name),
            ("job", _) => {
                return Err(ApiError::new(Code::InvalidRequest, "job= in the URL names no job").hint(HINT));
            }
            (other, _) => {
                return Err(ApiError::new(Code::InvalidRequest, format!("no parameter {other:?}")).hint(HINT));
            }
        };
    }
    Ok(job)
}

/// How rows are written, as far as the URL says.
#[cfg(feature = "sql")]
#[derive(Debug, Default)]
pub(crate) struct Rows {
    format: Option<Format>,
    compression: Option<Compression>,
    addresses: Option<Addresses>,
}

/// How rows are written: `?format=csv`, `?format=arrow&compression=lz4&addresses=text`. No other parameter is taken.
#[cfg(feature = "sql")]
pub(crate) fn rows(query: Option<&str>) -> Result<Rows, ApiError> {
    const HINT: &str = "the parameters are `format`: json, ndjson, csv, arrow or table; and of arrow `compression`: none or \
                        lz4, and `addresses`: binary or text";
    let mut rows = Rows::default();
    for field in fields(query)? {
        let value = field.value.as_deref().unwrap_or_default();
        let is_known = match field.name.as_str() {
            "format" => {
                rows.format = Format::named(value);
                rows.format.is_some()
            }
            "compression" => {
                rows.compression = Compression::named(value);
                rows.compression.is_some()
            }
            "addresses" => {
                rows.addresses = Addresses::named(value);
                rows.addresses.is_some()
            }
            other => {
                let message = format!("no parameter {other:?}");
                return Err(ApiError::new(Code::InvalidRequest, message).hint(HINT));
            }
        };
        if !is_known {
            let message = format!("{}={value:?} in the URL", field.name);
            return Err(ApiError::new(Code::InvalidRequest, message).hint(HINT));
        }
    }
    Ok(rows)
}

#[cfg(feature = "sql")]
impl Rows {
    /// The format; `accepted` is that of `Accept`, which counts where the URL names none.
    pub(crate) fn format(self, accepted: impl FnOnce() -> Format) -> Result<Format, ApiError> {
        let Self { format, compression, addresses } = self;
        match format.unwrap_or_else(accepted) {
            Format::Arrow(mut how) => {
                how.compression = compression.unwrap_or(how.compression);
                how.addresses = addresses.unwrap_or(how.addresses);
                Ok(Format::Arrow(how))
            }
            _ if compression.is_some() || addresses.is_some() => Err(ApiError::new(
                Code::InvalidRequest,
                "`compression` and `addresses` in the URL are of Arrow, and another format is asked for",
            )
            .hint("add format=arrow, or leave them out: other formats have addresses as texts")),
            other => Ok(other),
        }
    }
}

/// No parameter at all.
pub(crate) fn none(query: Option<&str>) -> Result<(), ApiError> {
    match fields(query)?.first() {
        None => Ok(()),
        Some(field) => Err(ApiError::new(Code::InvalidRequest, format!("no parameter {:?}", field.name))
            .hint("the route takes no parameters in its URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: &[(&str, Option<&str>)]) {
        let fields = fields(Some(query)).unwrap();
        let got: Vec<(&str, Option<&str>)> =
            fields.iter().map(|field| (field.name.as_str(), field.value.as_deref())).collect();
        assert_eq!(got, expected, "{query}");
    }

    #[test]
    fn null_and_empty_are_told_apart() {
        check("", &[]);
        check("card=c1", &[("card", Some("c1"))]);
        check("card=&merchant", &[("card", Some("")), ("merchant", None)]);
        check("a=b=c&&d=", &[("a", Some("b=c")), ("d", Some(""))]);
    }

    #[test]
    fn text_is_decoded() {
        check("na%C3%AFve+key=%26%3D%25+", &[("naïve key", Some("&=% "))]);
    }

    #[test]
    fn one_job_may_be_asked_for() {
        assert_eq!(job(None).unwrap(), None);
        assert_eq!(job(Some("job=a%20b")).unwrap(), Some("a b".to_owned()));
        for query in ["job", "job=", "jobs=a", "job=a&unit=3"] {
            assert!(job(Some(query)).is_err(), "{query}");
        }
    }

    #[test]
    fn what_is_no_text_or_twice_is_refused() {
        for query in ["a=%", "a=%4", "a=%zz", "a=%ff", "%fe=1", "a=1&a=2", "a=1&%61"] {
            assert!(fields(Some(query)).is_err(), "{query}");
        }
    }
}
