//! `--listen`: the one place where the HTTP server is tied to a node.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_connect::Reach;
use thalweg_node::{Node, RunningJob};
use thalweg_server::{AdminToken, NodeControl, Options, Readiness, Running, Server};
use thalweg_storage::handles;
#[cfg(feature = "cluster")]
use thalweg_types::Class;
use thalweg_types::Error;

use crate::args::Run;
use crate::output::{Failure, talk};
#[cfg(feature = "sql")]
use crate::sql;

/// What serves while the node runs.
pub(crate) struct Door {
    control: Arc<NodeControl>,
    server: Running,
}

impl Door {
    /// Takes the address and answers that the node is starting.
    ///
    /// # Errors
    /// If the address or the admin token cannot be had, or an allowed path is not there.
    pub(crate) fn open(address: SocketAddr, node: &Arc<Node>, args: &Run) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::at_start(&error);
        let reach = Reach::only(&args.allow_paths, args.allow_env.iter().cloned(), Some(node.data_dir()))
            .map_err(failed)?;
        let control = Arc::new(NodeControl::new(Arc::clone(node)).with_reach(reach));
        #[cfg(feature = "sql")]
        let (sql, shares) = {
            let over = |tables| sql::over(tables, thalweg_sql::Limits::default(), true).map(Arc::new);
            let of = || node.tables().and_then(over).map_err(failed);
            // Questions of other nodes have places of their own.
            #[cfg(feature = "cluster")]
            let is_asked = args.cluster.is_some();
            #[cfg(not(feature = "cluster"))]
            let is_asked = false;
            (Some(of()?), is_asked.then(of).transpose()?)
        };
        #[cfg(not(feature = "sql"))]
        let (sql, shares) = (None, None);
        let admin = AdminToken::of(node.data_dir()).map_err(failed)?;
        if node.is_temporary() {
            talk(&format!("admin token: {}", admin.path().display()));
        }
        let mut options = Options { sql, shares, admin: Some(admin), ..Options::default() };
        // Other nodes call this one by what it advertises.
        #[cfg(feature = "cluster")]
        options.allowed_hosts.extend(args.advertise.iter().map(|advertised| advertised.host().to_owned()));
        let allowed = handles::raise();
        if allowed.http < options.max_connections {
            tracing::warn!(
                open_files = allowed.limit,
                connections = allowed.http,
                usual = options.max_connections,
                "fewer HTTP connections than usual, as the process may have few files open: raise its limit (ulimit -n)"
            );
            options.max_connections = allowed.http;
        }
        let server = Server::bind(&address.to_string(), Arc::clone(&control) as _, options)
            .map_err(|error| failed(not_served(error, address, args)))?;
        Ok(Self { control, server: server.start() })
    }

    /// Where it listens.
    #[cfg(feature = "cluster")]
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// What answers requests, for whoever starts jobs while it runs.
    #[cfg(feature = "cluster")]
    pub(crate) fn control(&self) -> Arc<NodeControl> {
        Arc::clone(&self.control)
    }

    pub(crate) fn add(&self, job: &Arc<RunningJob>) {
        self.control.add(Arc::clone(job));
    }

    /// Whether a client has stopped a job, and may start another one.
    pub(crate) fn has_stopped_jobs(&self) -> bool {
        self.control.has_stopped_jobs()
    }

    /// Takes records from now on.
    pub(crate) fn ready(&self) {
        self.control.set_readiness(Readiness::Ready);
        talk(&format!("listening on http://{}", self.server.local_addr()));
    }

    /// Refuses new records; those in flight are still answered.
    pub(crate) fn drain(&self) {
        self.control.set_readiness(Readiness::Draining);
    }

    /// Answers the requests in flight and closes.
    pub(crate) fn close(self) {
        let finish = self.server.stop();
        if finish.cut_off > 0 {
            talk(&format!("{} connections were cut off in the middle of a request", finish.cut_off));
        }
    }
}

/// With what a node of a cluster can do about it.
fn not_served(error: Error, address: SocketAddr, args: &Run) -> Error {
    #[cfg(feature = "cluster")]
    if args.cluster.is_some() && error.class() == Class::User {
        let port = address.port();
        return error.with_hint(format!(
            "listen on 127.0.0.1:{port}, and name with --advertise HOST:PORT the tunnel or port forward by which other nodes reach it"
        ));
    }
    #[cfg(not(feature = "cluster"))]
    let _ = (address, args);
    error
}
