//! `--listen` in a build without the HTTP server (feature `http`).

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_connect::absent;
use thalweg_node::{Node, RunningJob};

use crate::args::Run;
use crate::output::{Failure, with_hint};

/// The HTTP server; there is no value of it.
pub(crate) enum Door {}

impl Door {
    /// # Errors
    /// Always: this build does not serve HTTP.
    pub(crate) fn open(_: SocketAddr, _: &Arc<Node>, _: &Run) -> Result<Self, Failure> {
        Err(Failure::Usage(with_hint("--listen: this build serves no HTTP", Some(&absent::hint("http")))))
    }

    pub(crate) fn add(&self, _: &Arc<RunningJob>) {
        match *self {}
    }

    pub(crate) fn has_stopped_jobs(&self) -> bool {
        match *self {}
    }

    pub(crate) fn ready(&self) {
        match *self {}
    }

    pub(crate) fn drain(&self) {
        match *self {}
    }

    pub(crate) fn close(self) {
        match self {}
    }
}
