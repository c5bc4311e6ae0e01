//! How a client reaches its brokers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// TLS to the brokers.
#[derive(Clone, Default)]
pub struct Tls {
    /// PEM file of the authorities that are trusted; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// PEM files with which the client shows who it is.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub key_password: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

impl Mechanism {
    /// As brokers and clients call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Gives the present token, each time that it is asked.
pub type Token = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// How a client authenticates.
#[derive(Clone)]
pub enum Sasl {
    Password {
        mechanism: Mechanism,
        user: String,
        password: String,
    },
    /// OAUTHBEARER.
    Bearer(Token),
}

/// Everything that the clients of a cluster share.
#[derive(Clone)]
pub struct Settings {
    /// `host:port` of some brokers; they name the others.
    pub brokers: Vec<String>,
    pub client_id: String,
    pub tls: Option<Tls>,
    pub sasl: Option<Sasl>,
    /// Settings of the client library by their names there; none that [`refused_property`] refuses.
    pub properties: Vec<(String, String)>,
    /// How long an answer of a broker is waited for.
    pub request_timeout: Duration,
}

impl Settings {
    pub fn new(brokers: Vec<String>) -> Self {
        Self {
            brokers,
            client_id: "thalweg".to_owned(),
            tls: None,
            sasl: None,
            properties: Vec::new(),
            request_timeout: Duration::from_secs(15),
        }
    }
}

// No secret is shown.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { brokers, client_id, tls, sasl, .. } = self;
        let (tls, sasl) = (tls.is_some(), sasl.is_some());
        write!(f, "Settings {{ brokers: {brokers:?}, client_id: {client_id:?}, tls: {tls}, sasl: {sasl} }}")
    }
}

/// Settings that are ours to make, each with the reason that is told.
const REFUSED: &[(&str, &str)] = &[
    ("acks", ACKNOWLEDGED),
    ("request.required.acks", ACKNOWLEDGED),
    ("enable.idempotence", ACKNOWLEDGED),
    ("enable.gapless.guarantee", ACKNOWLEDGED),
    ("max.in.flight", ACKNOWLEDGED),
    ("max.in.flight.requests.per.connection", ACKNOWLEDGED),
    ("message.send.max.retries", ACKNOWLEDGED),
    ("retries", ACKNOWLEDGED),
    ("message.timeout.ms", ACKNOWLEDGED),
    ("delivery.timeout.ms", ACKNOWLEDGED),
    ("delivery.report.only.error", ACKNOWLEDGED),
    ("dr_cb", ACKNOWLEDGED),
    ("dr_msg_cb", ACKNOWLEDGED),
    ("queuing.strategy", ACKNOWLEDGED),
    ("produce.offset.report", ACKNOWLEDGED),
    ("transactional.id", "the id is made of the names of job and sink"),
    ("partitioner", "records of one key have to stay in one partition, as Kafka's own clients choose it"),
    ("auto.offset.reset", PLACE),
    ("enable.auto.commit", PLACE),
    ("enable.auto.offset.store", PLACE),
    ("auto.commit.enable", PLACE),
    ("auto.commit.interval.ms", PLACE),
    ("offset.store.method", PLACE),
    ("offset.store.path", PLACE),
    ("group.id", "the group is called thalweg.JOB.SOURCE"),
    ("group.instance.id", PLACE),
    ("group.protocol", PLACE),
    ("group.remote.assignor", PLACE),
    ("partition.assignment.strategy", PLACE),
    ("enable.partition.eof", PLACE),
    ("check.crcs", "checksums of messages are always compared"),
    ("isolation.level", "use `isolation`"),
    ("bootstrap.servers", "use `brokers`"),
    ("metadata.broker.list", "use `brokers`"),
    ("client.id", "use `client_id`"),
    ("security.protocol", "use `tls` and `sasl`"),
    ("compression.codec", "use `compression`"),
    ("compression.type", "use `compression`"),
    ("linger.ms", "use `linger`"),
    ("queue.buffering.max.ms", "use `linger`"),
    ("message.max.bytes", "use `max_message`"),
    ("allow.auto.create.topics", "no topic is made by reading or writing it"),
    ("plugin.library.paths", "it loads code"),
    ("enable.sasl.oauthbearer.unsecure.jwt", "use `token`"),
];

const ACKNOWLEDGED: &str = "what counts as written stands on it";
const PLACE: &str = "the place of a source is in the commit record of its job";

/// Settings of TLS that name no file and hold no secret.
const TLS_ALLOWED: &[&str] =
    &["ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list", "ssl.endpoint.identification.algorithm"];

/// Why a setting of the client library may not be named; `None` if it may.
pub fn refused_property(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("topic.").unwrap_or(name);
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Some(reason);
    }
    if name.starts_with("sasl.") {
        return Some("use `sasl`, `user`, `password` and `token`");
    }
    if name.starts_with("ssl.") && !TLS_ALLOWED.contains(&name) {
        return Some("use `ca`, `certificate`, `key` and `key_password`");
    }
    if name.ends_with("_cb") || name == "opaque" {
        return Some("it is no text");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_promise_stands_on_is_refused_by_name() {
        for name in [
            "acks",
            "auto.offset.reset",
            "ssl.key.password",
            "sasl.kerberos.kinit.cmd",
            "topic.acks",
            "open_cb",
        ] {
            assert!(refused_property(name).is_some(), "{name}");
        }
        for name in ["socket.keepalive.enable", "ssl.cipher.suites", "batch.size", "fetch.min.bytes"] {
            assert_eq!(refused_property(name), None, "{name}");
        }
    }

    #[test]
    fn settings_show_no_secret() {
        let mut settings = Settings::new(vec!["b:1".to_owned()]);
        let password = "hunter2".to_owned();
        settings.sasl = Some(Sasl::Password { mechanism: Mechanism::Plain, user: "u".to_owned(), password });
        settings.properties.push(("x".to_owned(), "hunter2".to_owned()));
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
