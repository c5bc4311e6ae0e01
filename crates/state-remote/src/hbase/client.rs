//! One request to the gateway each, in JSON, and the meaning of its answers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Method, StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thalweg_state::{StateError, StoreFault};

use crate::settings::Settings;
use crate::wait::{Outcome, Trouble};

/// A table is not made in a moment, least of all on a cluster that has just started: no request about tables is given up
/// sooner.
const TABLES: Duration = Duration::from_secs(60);
/// Rows that one step of a scan brings.
const PAGE: usize = 200;
/// Connections for deletes, which go one by one.
const DELETERS: usize = 8;
/// Characters of an answer that are repeated.
const SAID: usize = 300;

const JSON: &str = "application/json";

/// A cell to be written.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) key: String,
    pub(super) column: &'static str,
    /// `None`: the server's clock.
    pub(super) timestamp: Option<u64>,
    pub(super) value: Vec<u8>,
}

/// The only cell of a row.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
}

/// Rows as the gateway writes them.
#[derive(Deserialize, Serialize)]
struct RowSet {
    #[serde(rename = "Row", default)]
    rows: Vec<RowText>,
}

#[derive(Deserialize, Serialize)]
struct RowText {
    key: String,
    #[serde(rename = "Cell", default)]
    cells: Vec<CellText>,
}

#[derive(Deserialize, Serialize)]
struct CellText {
    column: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(rename = "$", default)]
    value: String,
}

impl CellText {
    fn of(column: &str, timestamp: Option<u64>, value: &[u8]) -> Self {
        Self { column: STANDARD.encode(column), timestamp, value: STANDARD.encode(value) }
    }
}

pub(super) struct Client {
    http: reqwest::blocking::Client,
    place: String,
    /// The table's path, without a slash after it.
    table: Url,
    name: String,
    user: Option<(String, Option<String>)>,
    timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(settings: &Settings) -> Result<Self, StateError> {
        let http = reqwest::blocking::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(settings.timeout)
            .pool_max_idle_per_host(DELETERS)
            .build();
        let mut table = settings.url.clone();
        let path = table.path().trim_end_matches('/').to_owned();
        table.set_path(&format!("{path}/{}", settings.table));
        Ok(Self {
            http: http.map_err(|error| StateError::Store {
                store: settings.place(),
                fault: StoreFault::Down,
                message: format!("make an HTTP client: {error}"),
                hint: None,
            })?,
            place: settings.place(),
            table,
            name: settings.table.clone(),
            user: settings.user.clone().map(|user| (user, settings.password.clone())),
            timeout: settings.timeout,
        })
    }

    pub(super) fn table_name(&self) -> &str {
        &self.name
    }

    /// A request to a path below the table; neither it nor the query needs escapes.
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_with(method, path, None)
    }

    fn request_with(&self, method: Method, path: &str, query: Option<&str>) -> RequestBuilder {
        let mut url = self.table.clone();
        url.set_path(&format!("{}/{path}", self.table.path()));
        url.set_query(query);
        let request = self.http.request(method, url).header(ACCEPT, JSON);
        match &self.user {
            Some((user, password)) => request.basic_auth(user, password.as_ref()),
            None => request,
        }
    }

    /// The answer, if it is one that `expected` names.
    fn send(&self, request: RequestBuilder, expected: &[u16]) -> Outcome<Response> {
        let answer = request.send().map_err(passing)?;
        if expected.contains(&answer.status().as_u16()) {
            return Ok(answer);
        }
        Err(self.judge(answer))
    }

    /// Sends and reads the answer to its end, so that its connection can be used again.
    fn do_it(&self, request: RequestBuilder, expected: &[u16]) -> Outcome<StatusCode> {
        let answer = self.send(request, expected)?;
        let status = answer.status();
        answer.bytes().map_err(passing)?;
        Ok(status)
    }

    fn judge(&self, answer: Response) -> Trouble {
        let status = answer.status().as_u16();
        let said = answer.text().unwrap_or_default();
        match status {
            408 | 429 | 500..=599 => {
                Trouble::Passing(format!("the gateway answers {status}: {}", first_line(&said)))
            }
            _ => self.refused_with(status, &said),
        }
    }

    fn refused_with(&self, status: u16, said: &str) -> Trouble {
        let hint = match status {
            401 | 403 => "look at user and password, and at what the user may do with the table",
            404 => "look at state.url and state.table",
            413 | 414 => "the gateway takes smaller requests than usual: raise its limits",
            _ => "look at what the gateway says, and at its version: 2.0 is the oldest",
        };
        self.refused(format!("expected to be served, got {status}: {}", first_line(said)), hint)
    }

    pub(super) fn refused(&self, message: String, hint: &str) -> Trouble {
        let (store, hint) = (self.place.clone(), Some(hint.to_owned()));
        Trouble::Lasting(StateError::Store { store, fault: StoreFault::Refused, message, hint })
    }

    /// What the gateway answered is not what it is asked for.
    pub(super) fn surprise(&self, expected: &str, got: &str) -> Trouble {
        let got: String = got.chars().take(SAID).collect();
        let message = format!("answer: expected {expected}, got {got:?}");
        let store = self.place.clone();
        Trouble::Lasting(StateError::Store { store, fault: StoreFault::Damaged, message, hint: None })
    }

    /// What `read` makes of the answer's bytes.
    fn read<T>(&self, answer: Response, read: impl Fn(&[u8]) -> Result<T, Unexpected>) -> Outcome<T> {
        let bytes = answer.bytes().map_err(passing)?;
        read(&bytes).map_err(|Unexpected { expected, got }| self.surprise(expected, &got))
    }

    /// The table's description; `None` where there is no such table.
    pub(super) fn schema(&self) -> Outcome<Option<Value>> {
        let request = self.request(Method::GET, "schema").timeout(self.timeout.max(TABLES));
        let answer = self.send(request, &[200, 404])?;
        if answer.status() == StatusCode::NOT_FOUND { Ok(None) } else { self.read(answer, json).map(Some) }
    }

    /// Makes the table, unless another client has.
    pub(super) fn create(&self, schema: &Value) -> Outcome<()> {
        let request =
            self.request(Method::POST, "schema").header(CONTENT_TYPE, JSON).body(schema.to_string());
        self.do_it(request.timeout(self.timeout.max(TABLES)), &[200, 201, 304]).map(|_| ())
    }

    /// Rows by key, those that there are, in the order of the keys.
    pub(super) fn get(&self, keys: &[String]) -> Outcome<Vec<Fetched>> {
        // Keys consist of letters, digits, - and _.
        let query: Vec<String> = keys.iter().map(|key| format!("row={key}")).collect();
        let request = self.request_with(Method::GET, "multiget", Some(&query.join("&")));
        let answer = self.send(request, &[200, 404])?;
        if answer.status() == StatusCode::NOT_FOUND {
            // Of rows; a table that is gone is an error of the server's, and a path that is not there a proxy's.
            let said = answer.text().map_err(passing)?;
            return match said.starts_with("No rows") {
                true => Ok(Vec::new()),
                false => Err(self.refused_with(404, &said)),
            };
        }
        self.read(answer, rows)
    }

    /// Writes cells, each into a row of its own.
    pub(super) fn put(&self, cells: &[Cell]) -> Outcome<()> {
        let row = |cell: &Cell| RowText {
            key: STANDARD.encode(&cell.key),
            cells: vec![CellText::of(cell.column, cell.timestamp, &cell.value)],
        };
        let set = RowSet { rows: cells.iter().map(row).collect() };
        self.send_rows("false-row", None, &set, &[200]).map(|_| ())
    }

    /// Writes a cell where its value is `before`; whether it was.
    pub(super) fn check_and_put(&self, cell: &Cell, before: &[u8]) -> Outcome<bool> {
        let cells =
            vec![CellText::of(cell.column, None, &cell.value), CellText::of(cell.column, None, before)];
        let set = RowSet { rows: vec![RowText { key: STANDARD.encode(&cell.key), cells }] };
        Ok(self.send_rows(&cell.key, Some("check=put"), &set, &[200, 304])? == StatusCode::OK)
    }

    fn send_rows(
        &self,
        path: &str,
        query: Option<&str>,
        set: &RowSet,
        expected: &[u16],
    ) -> Outcome<StatusCode> {
        let body = serde_json::to_vec(set).map_err(|error| self.surprise("rows", &error.to_string()))?;
        let request = self.request_with(Method::PUT, path, query).header(CONTENT_TYPE, JSON).body(body);
        self.do_it(request, expected)
    }

    /// Deletes rows, or of each the column up to a time stamp.
    pub(super) fn delete(&self, keys: &[String], of: Option<(&str, u64)>) -> Outcome<()> {
        let one = |key: &String| {
            let path = match of {
                Some((column, timestamp)) => format!("{key}/{column}/{timestamp}"),
                None => key.clone(),
            };
            self.do_it(self.request(Method::DELETE, &path), &[200]).map(|_| ())
        };
        if keys.len() < 2 * DELETERS {
            return keys.iter().try_for_each(one);
        }
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                one(key)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..DELETERS).map(|_| scope.spawn(work)).collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Outcome<()>>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Trouble::Passing("a thread that deletes panicked".to_owned())))
            };
            threads.into_iter().map(ended).fold(Ok(()), Result::and)
        })
    }

    /// A scanner from `start` to before `end`.
    pub(super) fn open_scanner(&self, start: &str, end: &str) -> Outcome<String> {
        let body = json!({
            "batch": PAGE,
            "caching": PAGE,
            "startRow": STANDARD.encode(start),
            "endRow": STANDARD.encode(end),
        });
        let request = self.request(Method::PUT, "scanner").header(CONTENT_TYPE, JSON).body(body.to_string());
        let answer = self.send(request, &[201])?;
        // The gateway may have another name: only the last part of the path counts.
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let name = location.and_then(|location| location.rsplit('/').next()).unwrap_or_default().to_owned();
        answer.bytes().map_err(passing)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(self.surprise("the name of a scanner", &name));
        }
        Ok(name)
    }

    /// The next rows of a scanner; `None` after the last.
    pub(super) fn scan(&self, scanner: &str) -> Outcome<Option<Vec<Fetched>>> {
        let request = self.request(Method::GET, &format!("scanner/{scanner}"));
        let answer = self.send(request, &[200, 204, 404, 410])?;
        match answer.status() {
            StatusCode::OK => self.read(answer, rows).map(Some),
            StatusCode::NO_CONTENT => Ok(None),
            // It was away for longer than the gateway keeps it, or the gateway was.
            _ => Err(Trouble::Passing("the scanner is gone".to_owned())),
        }
    }

    pub(super) fn close_scanner(&self, scanner: &str) {
        // It would end by itself some time.
        let _ = self.do_it(self.request(Method::DELETE, &format!("scanner/{scanner}")), &[200]);
    }
}

/// Bytes other than those asked for.
pub(crate) struct Unexpected {
    expected: &'static str,
    got: String,
}

pub(crate) fn json<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, Unexpected> {
    serde_json::from_slice(bytes).map_err(|error| {
        let got = format!("{error} in {}", String::from_utf8_lossy(bytes));
        Unexpected { expected: "JSON", got }
    })
}

/// The rows of an answer.
pub(crate) fn rows(bytes: &[u8]) -> Result<Vec<Fetched>, Unexpected> {
    let set: RowSet = json(bytes)?;
    let fetched = |mut row: RowText| {
        let key = STANDARD.decode(&row.key).ok().and_then(|key| String::from_utf8(key).ok());
        let value = row.cells.pop().and_then(|cell| STANDARD.decode(cell.value).ok());
        match (key, value) {
            (Some(key), Some(value)) => Ok(Fetched { key, value }),
            _ => Err(Unexpected { expected: "a row with a cell, in base64", got: row.key }),
        }
    };
    set.rows.into_iter().map(fetched).collect()
}

fn first_line(said: &str) -> String {
    said.trim().lines().next().unwrap_or_default().chars().take(SAID).collect()
}

fn passing(error: reqwest::Error) -> Trouble {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut next = std::error::Error::source(&error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    Trouble::Passing(text)
}
