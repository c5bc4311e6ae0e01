//! Back ends on other machines, where this build has them (feature `remote-state`).

#[cfg(not(feature = "remote-state"))]
mod absent;
#[cfg(feature = "remote-state")]
mod present;

#[cfg(not(feature = "remote-state"))]
use absent as stores;
#[cfg(feature = "remote-state")]
use present as stores;

pub use stores::Kind;
pub(crate) use stores::{Remote, connect, describe_in, mistakes};
