//! Options of a server; the defaults suit a node on its own.

use std::sync::Arc;
use std::time::Duration;

use crate::Sql;
use crate::token::AdminToken;

/// Limits and times of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that talk to sockets; the engine's workers are separate.
    pub threads: usize,
    /// Largest body of records.
    pub max_body_bytes: usize,
    /// Largest job file or query; the node reads no larger ones either.
    pub max_text_bytes: usize,
    /// All bodies together that are being read.
    pub max_held_bytes: usize,
    /// Request line and headers together. A head of up to twice that is read, so that it can be refused with a body.
    pub max_header_bytes: usize,
    /// Requests at once; health and metrics do not count.
    pub max_requests: usize,
    /// Connections at once. When all are taken those that wait for a request make room for new ones; a few more are let
    /// in for monitors.
    pub max_connections: usize,
    /// How long a request waits for the answers to its records.
    pub answer_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long reads of values and changes of queries and jobs may take.
    pub control_timeout: Duration,
    /// How long a job may take to drain.
    pub stop_timeout: Duration,
    /// How long a client may take to send a head, and how long a connection may be idle.
    pub idle_timeout: Duration,
    /// How long a client may leave a reply untouched.
    pub write_timeout: Duration,
    /// How long requests in flight may go on after a shutdown. Longer than `answer_timeout`.
    pub shutdown_grace: Duration,
    /// Names by which the server may be called in addition to `localhost` and addresses.
    pub allowed_hosts: Vec<String>,
    /// The token of requests that start, stop or change something; without one nobody may.
    pub admin: Option<AdminToken>,
    /// Answers SQL; without one, SQL is refused.
    pub sql: Option<Arc<Sql>>,
    /// Answers other nodes of a cluster, whose queries read tables of this one. It has places of its own: two nodes that wait
    /// for each other would wait for ever.
    pub shares: Option<Arc<Sql>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 2,
            max_body_bytes: 16 << 20,
            max_text_bytes: 16 << 20,
            max_held_bytes: 64 << 20,
            max_header_bytes: 32 << 10,
            max_requests: 1_024,
            max_connections: 1_024,
            answer_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            control_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(15),
            allowed_hosts: Vec::new(),
            admin: None,
            sql: None,
            shares: None,
        }
    }
}
