//! Where a store is and how it is spoken to; checked without speaking to it.

use std::fmt;
use std::time::Duration;

use reqwest::Url;
use thalweg_types::Error;

/// A back end on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    /// Through its REST gateway.
    Hbase,
}

impl Kind {
    /// By the name that job files use.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "redis" => Some(Kind::Redis),
            "hbase" => Some(Kind::Hbase),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis => "redis",
            Kind::Hbase => "hbase",
        }
    }

    /// Whether its state is in a table that has a name.
    pub fn has_table(self) -> bool {
        self == Kind::Hbase
    }

    /// A URL as an example.
    pub fn example(self) -> &'static str {
        match self {
            Kind::Redis => "redis://127.0.0.1:6379",
            Kind::Hbase => "http://127.0.0.1:8080",
        }
    }
}

/// Where a store is.
#[derive(Clone)]
pub struct Settings {
    pub kind: Kind,
    pub url: Url,
    pub user: Option<String>,
    pub password: Option<String>,
    /// HBase: the table.
    pub table: String,
    /// How long one answer may take; the request is repeated then.
    pub timeout: Duration,
}

/// The table where none is named.
pub const TABLE: &str = "thalweg";
/// How long an answer may take where nothing is said.
pub const TIMEOUT: Duration = Duration::from_secs(10);

impl fmt::Debug for Settings {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Settings");
        out.field("kind", &self.kind).field("url", &self.url.as_str()).field("user", &self.user);
        out.field("table", &self.table).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Settings {
    /// Of a store without a user, with everything else as usual.
    ///
    /// # Errors
    /// As [`check_url`].
    pub fn new(kind: Kind, url: &str) -> Result<Self, Error> {
        let url = check_url(kind, url)?;
        Ok(Self { kind, url, user: None, password: None, table: TABLE.to_owned(), timeout: TIMEOUT })
    }

    /// For messages: what it is, and where.
    pub fn place(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match (self.kind, self.url.port_or_known_default()) {
            (Kind::Redis, port) => format!("redis at {host}:{}", port.unwrap_or(REDIS_PORT)),
            (Kind::Hbase, _) => {
                format!("hbase table {:?} at {}", self.table, self.url.as_str().trim_end_matches('/'))
            }
        }
    }

    pub(crate) fn redis_port(&self) -> u16 {
        self.url.port().unwrap_or(REDIS_PORT)
    }

    /// The number in a Redis URL's path.
    pub(crate) fn redis_database(&self) -> i64 {
        self.url.path().trim_matches('/').parse().unwrap_or_default()
    }
}

const REDIS_PORT: u16 = 6379;

/// Reads the URL of a store.
///
/// # Errors
/// What is wrong with it. It is not repeated: a password may be in it by mistake.
pub fn check_url(kind: Kind, text: &str) -> Result<Url, Error> {
    let unusable = |what: String| Error::user(what).with_hint(format!("such as {}", kind.example()));
    let url = Url::parse(text).map_err(|error| unusable(format!("expected a URL: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::user("expected no user in it, got one")
            .with_hint("write user: NAME and password: env:NAME instead"));
    }
    let expected = match kind {
        Kind::Redis => "redis",
        Kind::Hbase => "http",
    };
    if url.scheme() == "rediss" || url.scheme() == "https" {
        let message = format!("expected {expected}, got {}, which this build does not speak", url.scheme());
        return Err(Error::user(message).with_hint(
            "put a proxy that speaks TLS on the same machine (stunnel, for instance), and name its address on the loopback",
        ));
    }
    if url.scheme() != expected {
        return Err(unusable(format!("expected {expected}, got {}", url.scheme())));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(unusable("expected a host in it, got none".to_owned()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(unusable("expected none of ? and # in it".to_owned()));
    }
    let path = url.path().trim_matches('/');
    if kind == Kind::Redis && !path.is_empty() && path.parse::<u16>().is_err() {
        return Err(unusable("expected nothing or the number of a database after the host".to_owned()));
    }
    Ok(url)
}

/// Checks the name of an HBase table.
///
/// # Errors
/// What is expected.
pub fn check_table(name: &str) -> Result<(), Error> {
    let is_fine = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
            && part.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
    };
    match name
        .split_once(':')
        .map_or_else(|| is_fine(name), |(space, table)| is_fine(space) && is_fine(table))
    {
        true => Ok(()),
        false => Err(Error::user(format!("{name:?} is no name of a table"))
            .with_hint("letters, digits, _, - and ., perhaps after a namespace and a colon")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_checked_and_not_repeated() {
        for (kind, url, place) in [
            (Kind::Redis, "redis://h", "redis at h:6379"),
            (Kind::Redis, "redis://127.0.0.1:7000/3", "redis at 127.0.0.1:7000"),
            (Kind::Hbase, "http://h:8080/", "hbase table \"thalweg\" at http://h:8080"),
            (Kind::Hbase, "http://h/proxy", "hbase table \"thalweg\" at http://h/proxy"),
        ] {
            let settings = Settings::new(kind, url).unwrap();
            assert_eq!(settings.place(), place);
        }
        assert_eq!(Settings::new(Kind::Redis, "redis://h/3").unwrap().redis_database(), 3);
        for (kind, url, said) in [
            (Kind::Redis, "canary", "expected a URL"),
            (Kind::Redis, "redis://:canary@h", "expected no user"),
            (Kind::Redis, "rediss://h", "got rediss, which this build does not speak"),
            (Kind::Hbase, "https://h", "got https, which this build does not speak"),
            (Kind::Redis, "http://h", "expected redis, got http"),
            (Kind::Redis, "redis://h/canary", "number of a database"),
            (Kind::Redis, "redis:///1", "expected a host"),
            (Kind::Hbase, "http://h?canary", "none of ? and #"),
        ] {
            let error = check_url(kind, url).unwrap_err();
            assert!(error.message().contains(said) && !error.message().contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let mut settings = Settings::new(Kind::Redis, "redis://h").unwrap();
        settings.password = Some("canary".to_owned());
        assert!(!format!("{settings:?}").contains("canary"));
    }

    #[test]
    fn tables_have_names_that_fit_into_a_path() {
        assert!(["t", "ns:t_1.x-y"].iter().all(|name| check_table(name).is_ok()));
        assert!(["", "a/b", "-t", "a:b:c", "t?", ":t"].iter().all(|name| check_table(name).is_err()));
    }
}
