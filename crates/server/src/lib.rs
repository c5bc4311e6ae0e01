//! HTTP: sources with answers in the reply, present values, queries, jobs, metrics.
//!
//! The life of a request: `serve` accepts the connection and has hyper read the head; `app` admits the request
//! (limits, readiness, browser guard), calls the endpoint and counts the outcome; the endpoint asks [`Control`].
//! Records take the short way: they go through the source's `Ingress`, which never blocks, and the answer is awaited
//! on the connection's own task. Everything else of `Control` may block and runs on threads for that.
//!
//! * [`control`]: the interface of the node; [`snapshot`]: its reports on jobs; `node`: the node that
//!   implements it.
//! * `route`: the table of routes; router, `/openapi.json`, metrics and the 404 all come from it.
//! * `access`: the rights of a request; `token`: the file that the admin token is kept in.
//! * `error`: the error body and the one table from error to status.
//! * `wire`: the types that leave as JSON; never the engine's own structs.
//!
//! Invariants
//! * Every error has the same body, and 504 is the only status that says "it may have happened or not"; of `/v1/sql` it
//!   does not, as that only reads.
//! * A client's data is bounded before it is kept: heads, bodies one by one and together, requests,
//!   connections, and the time of each.
//! * A request that starts, stops or changes something requires the admin token; the row of a route names its role.
//! * Only loopback addresses are served, as there is no TLS yet, and reading and records need no token.
//!
//! Not here: how bodies become records (`thalweg-connect`), how jobs run (`thalweg-node`), how SQL is answered
//! (`thalweg-sql`).

mod access;
mod app;
mod body;
pub mod control;
#[cfg(test)]
mod documents;
mod elsewhere;
mod endpoint;
mod error;
mod figures;
mod guard;
mod head;
mod host;
mod metrics;
#[cfg(not(feature = "sql"))]
mod no_sql;
mod node;
mod openapi;
mod options;
mod params;
mod places;
mod rates;
mod route;
mod seated;
mod serve;
pub mod snapshot;
mod stall;
mod starting;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod token;
mod wire;

#[cfg(not(feature = "sql"))]
pub use no_sql::Sql;
#[cfg(feature = "sql")]
pub use thalweg_sql::Sql;

pub use control::{Control, ControlError, Readiness};
pub use node::NodeControl;
pub use options::Options;
pub use serve::{Finish, Handle, Running, Server};
pub use token::AdminToken;
