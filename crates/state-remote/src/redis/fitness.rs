//! Whether a server may be trusted with state: its settings, and the consequences.
//!
//! A server that may throw state away is refused. One that keeps less than it acknowledges is used with a warning: that
//! may be its owner's choice, and a loss is found when it comes back (the head and the log say what there has to be).

use std::collections::HashMap;

use redis::{Connection, RedisResult};
use thalweg_state::{StateError, StoreFault};

/// What a server says of itself.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Lines of `INFO`.
    info: HashMap<String, String>,
    /// `None` where `CONFIG` is refused.
    appendfsync: Option<String>,
}

pub(super) fn look(to: &mut Connection) -> RedisResult<Found> {
    redis::cmd("PING").query::<()>(to)?;
    let mut found = Found::default();
    // Who may not ask is not kept from working.
    if let Some(text) = unless_refused(redis::cmd("INFO").query::<String>(to))? {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        found.info = pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect();
    }
    let asked = redis::cmd("CONFIG").arg("GET").arg("appendfsync").query::<Vec<String>>(to);
    found.appendfsync = unless_refused(asked)?.and_then(|mut pair| pair.pop());
    Ok(found)
}

fn unless_refused<T>(answer: RedisResult<T>) -> RedisResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_io_error() || error.code() == Some("NOAUTH") => Err(error),
        Err(_) => Ok(None),
    }
}

/// Refuses, or warns; once per job.
pub(super) fn judge(found: &Found, store: &str) -> Result<(), StateError> {
    if let Some((message, hint)) = refusal(found) {
        let hint = Some(hint.to_owned());
        return Err(StateError::Store { store: store.to_owned(), fault: StoreFault::Refused, message, hint });
    }
    if let Some(weakness) = weakness(found) {
        tracing::warn!(
            store,
            "{weakness}; `appendonly yes` and `appendfsync always` make a commit survive a power cut"
        );
    }
    Ok(())
}

fn refusal(found: &Found) -> Option<(String, &'static str)> {
    let info = |key: &str| found.info.get(key).map(String::as_str).unwrap_or_default();
    let major = info("redis_version").split('.').next().and_then(|major| major.parse::<u32>().ok());
    if let Some(major) = major.filter(|major| *major < 5) {
        return Some((format!("expected version 5.0 or later, got {major}"), "use a newer server"));
    }
    if info("cluster_enabled") == "1" {
        let message = "expected a single server, got one of a cluster".to_owned();
        return Some((message, "name a server that is no part of a cluster"));
    }
    if info("role") == "slave" {
        return Some(("expected a primary, got a replica".to_owned(), "name the primary"));
    }
    let policy = info("maxmemory_policy");
    if info("maxmemory") != "0" && policy.starts_with("allkeys") {
        let message = format!("expected a server that throws no state away, got maxmemory-policy {policy}");
        return Some((message, "set maxmemory-policy noeviction, or give state a server of its own"));
    }
    None
}

/// How the server keeps less than it acknowledges.
fn weakness(found: &Found) -> Option<String> {
    if found.info.get("aof_enabled").is_some_and(|enabled| enabled != "1") {
        return Some(
            "the server writes no append-only file: what it acknowledged is lost when it stops".to_owned(),
        );
    }
    match found.appendfsync.as_deref() {
        Some("always") => None,
        Some(other) => Some(format!("appendfsync is {other}: a power cut loses what was acknowledged last")),
        None => Some("the server does not tell its settings: what it keeps is up to them".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(info: &str, appendfsync: Option<&str>) -> Found {
        let pairs = info.split_whitespace().filter_map(|pair| pair.split_once('='));
        let info = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Found { info, appendfsync: appendfsync.map(str::to_owned) }
    }

    #[test]
    fn a_server_that_throws_state_away_is_refused() {
        let policy = |policy: &str| format!("redis_version=7.0.15 maxmemory=1000 maxmemory_policy={policy}");
        assert!(refusal(&found(&policy("noeviction"), None)).is_none());
        assert!(refusal(&found(&policy("volatile-lru"), None)).is_none(), "state has no expiry");
        let (message, hint) = refusal(&found(&policy("allkeys-lru"), None)).unwrap();
        assert!(message.ends_with("maxmemory-policy allkeys-lru") && hint.contains("noeviction"));
        assert!(refusal(&found("maxmemory=0 maxmemory_policy=allkeys-lru", None)).is_none());
        for (info, said) in [
            ("redis_version=4.0.9", "version 5.0"),
            ("redis_version=7.2.4 cluster_enabled=1", "cluster"),
            ("role=slave", "replica"),
        ] {
            assert!(refusal(&found(info, None)).unwrap().0.contains(said));
        }
        assert!(refusal(&found("", None)).is_none(), "a server that does not say is not refused");
    }

    #[test]
    fn what_is_kept_for_less_than_ever_is_said() {
        assert_eq!(weakness(&found("aof_enabled=1", Some("always"))), None);
        assert!(weakness(&found("aof_enabled=0", Some("always"))).unwrap().contains("no append-only file"));
        assert!(weakness(&found("aof_enabled=1", Some("everysec"))).unwrap().contains("everysec"));
        assert!(weakness(&found("aof_enabled=1", None)).unwrap().contains("does not tell"));
    }
}
