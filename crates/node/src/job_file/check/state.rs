//! `state:` of a job file: which back end, how much memory, and for a store on another machine where it is.

use std::time::Duration;

use thalweg_connect::{OptionKind, OptionValue, SecretRef, absent};
use thalweg_types::Micros;

use super::super::keys::{self, BACKENDS};
use super::super::section::Section;
use super::{subsection, to_duration};
use crate::remote::{self, Kind};

/// `state:` of the job file.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSettings {
    pub backend: String,
    /// Where `backend` is on another machine.
    pub remote: Option<RemoteSettings>,
    pub memory: Option<u64>,
    pub recovery: Recovery,
    pub chunk_memory: Option<u64>,
    pub retention: Option<Micros>,
}

/// How elements come back after a restart, and groups of windows where `memory` bounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// A scan brings them in while work already goes on.
    #[default]
    Eager,
    /// Each comes on its first use.
    Lazy,
}

/// A store on another machine.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteSettings {
    pub kind: Kind,
    pub url: String,
    pub user: Option<String>,
    /// A reference, never the password.
    pub password: Option<SecretRef>,
    pub table: Option<String>,
    pub timeout: Option<Duration>,
}

/// Keys that go with a store.
const OF_STORES: [&str; 5] = ["url", "user", "password", "table", "timeout"];

pub(super) fn check(top: &Section<'_>) -> StateSettings {
    let mut state = StateSettings {
        backend: BACKENDS[0].to_owned(),
        remote: None,
        memory: None,
        recovery: Recovery::default(),
        chunk_memory: None,
        retention: None,
    };
    let Some(section) = subsection(top, "state", keys::STATE) else { return state };
    let named = section.choice("backend", BACKENDS);
    if let Some(name) =
        named.as_deref().filter(|name| ["redis", "hbase"].contains(name) && Kind::of_name(name).is_none())
    {
        let span = section.get("backend").map_or(section.span, |node| node.span);
        let message = format!("back end {name:?} of {} is not in this build", section.what);
        section.report.at(span, message).hint(absent::hint("remote-state")).report();
        return state;
    }
    // A name that is wrong says nothing about the other keys.
    if named.is_some() || section.get("backend").is_none() {
        let backend = named.unwrap_or_else(|| BACKENDS[0].to_owned());
        state.remote = check_store(&section, &backend);
        state.backend = backend;
    }
    state.memory = section.size("memory");
    if section.choice("recovery", keys::RECOVERY).is_some_and(|recovery| recovery == "lazy") {
        state.recovery = Recovery::Lazy;
    }
    state.chunk_memory = section.size("chunk_memory");
    state.retention = section.duration("retention");
    state
}

fn check_store(section: &Section<'_>, backend: &str) -> Option<RemoteSettings> {
    let kind = Kind::of_name(backend);
    for key in OF_STORES.into_iter().filter(|key| section.get(key).is_some()) {
        let (fits, with) = match (key, kind) {
            ("table", kind) => (kind.is_some_and(Kind::has_table), "hbase"),
            (_, kind) => (kind.is_some(), "redis or hbase"),
        };
        if !fits {
            let message =
                format!("{key:?} of {} goes with `backend: {with}`, and this is {backend:?}", section.what);
            let pending = section.report.at(section.key_span(key), message);
            pending.hint(format!("leave {key} out, or name the back end that it is of")).report();
        }
    }
    let kind = kind?;
    section.require("url", &format!("where the store is, such as {}", kind.example()));
    let text = |key: &str| match section.value(key, OptionKind::Text) {
        Some(OptionValue::Text(text)) => Some(text),
        _ => None,
    };
    let remote = RemoteSettings {
        kind,
        url: match section.value("url", OptionKind::Url)? {
            OptionValue::Text(url) => url,
            _ => return None,
        },
        user: text("user"),
        password: match section.value("password", OptionKind::Secret) {
            Some(OptionValue::Secret(reference)) => Some(reference),
            _ => None,
        },
        table: text("table").filter(|_| kind.has_table()),
        timeout: section.duration("timeout").map(to_duration),
    };
    for (key, error) in remote::mistakes(&remote) {
        let span = section.get(key).map_or(section.span, |node| node.span);
        let message = format!("{key:?} of {}: {}", section.what, error.chain());
        section.report.at(span, message).hint_of(&error).report();
    }
    Some(remote)
}
