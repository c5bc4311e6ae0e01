//! `--listen`: the one place where the HTTP server is tied to a node.

use std::net::SocketAddr;
use std::sync::Arc;

use thalweg_node::Node;

use crate::output::Failure;

/// What serves while the node runs; dropped after the jobs have drained.
pub(crate) struct Server;

/// Starts serving.
///
/// # Errors
/// If the address cannot be had.
pub(crate) fn listen(address: SocketAddr, _node: &Arc<Node>) -> Result<Server, Failure> {
    Err(Failure::Usage(format!("error: --listen {address}: this build serves no HTTP")))
}
