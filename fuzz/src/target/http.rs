//! The HTTP server over the bytes of one connection, whatever they are, before a node that answers every record.
//!
//! Whatever comes, each reply is one that a client can read, and a request is never answered twice.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_connect::{Answering, Ingress, SubmitError, Submitted, write_error};
use thalweg_node::cluster_view::ClusterView;
use thalweg_server::control::{
    Control, ControlError, FailedJob, FileFormat, Found, KeyField, Kind, QueryPath, Readiness, Stop,
    StopSummary,
};
use thalweg_server::snapshot::JobSnapshot;
use thalweg_server::{Options, testing};
use thalweg_types::Offset;

use crate::Target;

pub const TARGET: Target = Target { name: "http", run, seeds, words: WORDS, allowance: buffers };

/// What a connection reads ahead, and the document of the API.
fn buffers(_: &[u8]) -> usize {
    1 << 20
}

const WORDS: &[&str] = &[
    "GET ",
    "POST ",
    "DELETE ",
    "HEAD ",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "Host: localhost\r\n",
    "\r\n\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "/v1/jobs/j/sources/s",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/jobs",
    "?reply=none",
    "%2F",
    "%ff",
    "0\r\n\r\n",
    "ffffffff\r\n",
    "{\"a\":1}\n",
    "Origin: null\r\n",
    "Content-Encoding: gzip\r\n",
    "Upgrade: h2c\r\n",
];

fn seeds() -> Vec<Vec<u8>> {
    [
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /readyz HTTP/1.0\r\n\r\n",
        "POST /v1/jobs/j/sources/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{\"a\":1}\n0\n",
        "POST /v1/jobs/j/sources/s?reply=none HTTP/1.1\r\nHost: [::1]:80\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"a\":1}\n\r\n0\r\n\r\n",
        "GET /nowhere HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
        "POST /v1/jobs/j HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nname:",
        "DELETE /v1/jobs/%ff?drain=false HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n",
        "\x16\x03\x01 no HTTP at all",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

fn run(input: &[u8]) {
    let options = Options { threads: 1, max_text_bytes: 64 << 10, ..Options::default() };
    let replies = testing::exchange(Arc::new(Node), options, input);
    // What a client reads: heads with a status, and as many of them as there were requests at most.
    let heads = count_of(&replies, b"HTTP/1.");
    let requests = count_of(input, b"HTTP/1.").max(1);
    assert!(replies.is_empty() || replies.starts_with(b"HTTP/1."), "a reply begins with its head");
    // An `Expect` has an interim reply of its own.
    assert!(heads <= 2 * requests + 1, "{heads} replies to {requests} requests");
}

/// How often `what` is in `text`.
fn count_of(text: &[u8], what: &[u8]) -> usize {
    text.windows(what.len()).filter(|window| window.eq_ignore_ascii_case(what)).count()
}

/// One job with one source, which takes every object that begins as one.
struct Node;

struct Door;

impl Ingress for Door {
    fn submit(&self, body: Bytes, reply: bool) -> Result<Submitted, SubmitError> {
        let (mut lines, mut accepted, mut records) = (Vec::new(), 0, 0);
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            records += 1;
            match line.first() {
                Some(b'{') => {
                    lines.extend_from_slice(b"{}\n");
                    accepted += 1;
                }
                _ => write_error("parse", &String::from_utf8_lossy(line), None, &mut lines),
            }
        }
        if records == 0 {
            return Err(SubmitError::Empty);
        }
        let replies = reply.then(|| {
            let (answering, replies) = Answering::new(records);
            answering.answer(lines, accepted);
            replies
        });
        Ok(Submitted { records, replies })
    }
}

fn not_found(kind: Kind, name: &str) -> ControlError {
    ControlError::NotFound { kind, name: name.to_owned(), known: vec!["j".to_owned()] }
}

impl Control for Node {
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    fn unopened(&self) -> Vec<String> {
        Vec::new()
    }

    fn failed(&self) -> Vec<FailedJob> {
        Vec::new()
    }

    fn ingress(&self, job: &str, source: &str) -> Result<Arc<dyn Ingress>, ControlError> {
        match (job, source) {
            ("j", "s") => Ok(Arc::new(Door)),
            _ => Err(not_found(Kind::Source, source)),
        }
    }

    fn jobs(&self) -> Vec<JobSnapshot> {
        Vec::new()
    }

    fn job(&self, job: &str) -> Result<JobSnapshot, ControlError> {
        Err(not_found(Kind::Job, job))
    }

    fn start(&self, job: &str, _: &str, _: FileFormat) -> Result<JobSnapshot, ControlError> {
        Err(not_found(Kind::Job, job))
    }

    fn replace(&self, job: &str, _: &str, _: FileFormat) -> Result<(JobSnapshot, bool), ControlError> {
        Err(not_found(Kind::Job, job))
    }

    fn stop(&self, job: &str, _: Stop) -> Result<StopSummary, ControlError> {
        Err(not_found(Kind::Job, job))
    }

    fn present(&self, query: &QueryPath, _: &[KeyField], _: Option<Offset>) -> Result<Found, ControlError> {
        Err(not_found(Kind::Query, &query.query))
    }

    fn add_query(&self, query: &QueryPath, _: &str) -> Result<(), ControlError> {
        Err(not_found(Kind::Query, &query.query))
    }

    fn drop_query(&self, query: &QueryPath) -> Result<(), ControlError> {
        Err(not_found(Kind::Query, &query.query))
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterView>> {
        None
    }
}
