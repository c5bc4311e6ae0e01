//! One request: its address, and the meaning of its answer.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{StatusCode, Url, redirect};
use thalweg_types::Error;

use super::super::delivery::Recipient;
use super::super::retry::{Trouble, duration};
use crate::Options;
use crate::format::shorten;
use crate::secret::Secret;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of an answer that are looked at.
const ANSWER: usize = 4 << 10;

/// Where points go.
#[derive(Clone)]
pub(super) struct Target {
    url: Url,
    credentials: Credentials,
    timeout: Duration,
}

#[derive(Clone)]
enum Credentials {
    None,
    Token(Secret),
    User(String, Option<Secret>),
}

impl Target {
    /// # Errors
    /// If the URL is invalid or keys do not go together; nothing is looked up.
    pub(super) fn check(options: &Options) -> Result<Url, Error> {
        let text = options.text("url").unwrap_or_default();
        let unusable =
            |what: &str| Error::user(format!("url: {what}")).with_hint("such as http://127.0.0.1:8086");
        // It may hold a password, so it is not repeated.
        let mut url = Url::parse(text).map_err(|error| unusable(&format!("expected a URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::user("url: expected no user in it, got one")
                .with_hint("write user: NAME and password: env:NAME instead"));
        }
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(Error::user("url: expected http, got https, which this build does not speak")
                    .with_hint(
                        "put a proxy that speaks it on the same machine, and write to that over the loopback",
                    ));
            }
            other => return Err(unusable(&format!("expected http, got {other}"))),
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(unusable("expected none of ? and # in it"));
        }
        let given = |key: &str| options.get(key).is_some();
        if given("bucket") && given("database") {
            return Err(Error::user("expected one of bucket and database, got both"));
        }
        if given("token") && (given("user") || given("password")) {
            return Err(Error::user("expected a token or a user with a password, got both"));
        }
        if given("password") && !given("user") {
            return Err(Error::user("expected a user for the password, got none"));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&(path + if given("bucket") { "/api/v2/write" } else { "/write" }));
        let precision = options.text("precision").unwrap_or("ns");
        // InfluxDB 1 has words of its own.
        let precision = match precision {
            "ns" if !given("bucket") => "n",
            "us" if !given("bucket") => "u",
            other => other,
        };
        let names = [("db", "database"), ("bucket", "bucket"), ("org", "org")];
        let parameters = names.into_iter().filter_map(|(name, key)| Some((name, options.text(key)?)));
        url.query_pairs_mut().extend_pairs(parameters).append_pair("precision", precision);
        Ok(url)
    }

    /// # Errors
    /// As [`Target::check`], and where a secret cannot be looked up.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let secret =
            |key: &str| options.secret(key).map(|reference| Secret::look_up(key, reference)).transpose();
        let credentials = match (secret("token")?, options.text("user")) {
            (Some(token), _) => Credentials::Token(token),
            (None, Some(user)) => Credentials::User(user.to_owned(), secret("password")?),
            (None, None) => Credentials::None,
        };
        let timeout = options.duration("timeout").map_or(TIMEOUT, duration);
        Ok(Self { url: Self::check(options)?, credentials, timeout })
    }

    /// For messages.
    fn place(&self) -> &str {
        self.url.as_str()
    }
}

pub(super) struct Client {
    http: reqwest::Client,
    target: Target,
}

impl Client {
    /// # Errors
    /// Where no client can be made.
    pub(super) fn new(target: Target) -> Result<Self, Error> {
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(target.timeout)
            .build()
            .map_err(|error| Error::internal("make an HTTP client").with_source(error))?;
        Ok(Self { http, target })
    }

    /// Writes points, each on a line.
    async fn write(&self, points: Bytes) -> Result<(), Trouble> {
        let request = self
            .http
            .post(self.target.url.clone())
            .header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(points.clone());
        let request = match &self.target.credentials {
            Credentials::None => request,
            Credentials::Token(token) => {
                let value = HeaderValue::try_from(format!("Token {}", token.reveal()));
                let mut value = value.map_err(|_| {
                    Trouble::Lasting(Error::user(
                        "token: expected text that a header can carry, got something else",
                    ))
                })?;
                value.set_sensitive(true);
                request.header(AUTHORIZATION, value)
            }
            Credentials::User(user, password) => {
                request.basic_auth(user, password.as_ref().map(Secret::reveal))
            }
        };
        let mut answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => {
                let unknown = !error.is_connect();
                let error = Error::external(format!("write to {}", self.target.place()))
                    .with_source(error.without_url());
                return Err(Trouble::Passing { error, unknown, wait: None });
            }
        };
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let wait = answer
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let mut said = Vec::new();
        while said.len() < ANSWER
            && let Ok(Some(piece)) = answer.chunk().await
        {
            said.extend_from_slice(&piece);
        }
        Err(self.judge(status, &said, wait, &points))
    }

    fn judge(&self, status: StatusCode, said: &[u8], wait: Option<Duration>, points: &[u8]) -> Trouble {
        let said: String = String::from_utf8_lossy(said).trim().chars().take(600).collect();
        let place = self.target.place();
        let error = |what: &str| format!("{place} {what} ({})", status.as_u16());
        // Its message may be about points.
        let said = format!(": {said}");
        match status.as_u16() {
            408 | 429 | 500..=599 => Trouble::Passing {
                error: Error::external(error("cannot take points now")).with_private(said),
                // The server has not taken a request that it asks to repeat later.
                unknown: !matches!(status.as_u16(), 429 | 503),
                wait,
            },
            401 | 403 => Trouble::Lasting(
                Error::user(error("does not let the sink write"))
                    .with_private(said)
                    .with_hint("look at token, or user and password, and at what they may write to"),
            ),
            404 => Trouble::Lasting(
                Error::user(error("is not there"))
                    .with_private(said)
                    .with_hint("look at url, and at database or bucket, which have to exist"),
            ),
            413 => Trouble::Lasting(
                Error::user(error("takes no request of this size"))
                    .with_private(said)
                    .with_hint("write a smaller batch: 256KiB"),
            ),
            300..=399 => Trouble::Lasting(
                Error::user(error("leads elsewhere"))
                    .with_private(said)
                    .with_hint("write the URL that it leads to"),
            ),
            _ => {
                let lines = memchr::memchr_iter(b'\n', points).count();
                let first = points.split(|byte| *byte == b'\n').next().unwrap_or_default();
                Trouble::Lasting(
                    Error::external(format!("{}; it was given {lines} points", error("refuses points")))
                        .with_private(format!(", of which the first is {:?}{said}", shorten(first)))
                    .with_hint(
                        "a field that has another type there than here is the usual reason: mend the table or the job, then start it again",
                    ),
                )
            }
        }
    }
}

impl Recipient for Client {
    async fn take(&mut self, texts: &[Bytes]) -> Result<(), Trouble> {
        let points = match texts {
            [points] => points.clone(),
            texts => texts.concat().into(),
        };
        self.write(points).await
    }
}
