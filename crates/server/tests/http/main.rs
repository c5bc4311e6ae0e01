//! The server from outside: real sockets, a node that acts by script, or (`engine`) a real one.

mod access;
mod bind;
mod client;
mod cluster;
mod crowd;
mod engine;
mod fake;
mod health;
mod jobs;
mod limits;
mod openapi;
mod protocol;
mod queries;
mod records;
mod schema;
mod shutdown;
mod sql;
