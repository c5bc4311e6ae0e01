//! How sources, sinks and nodes of a cluster reach Apache Kafka: the keys that all take.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thalweg_kafka::{Bus, BusError, KafkaBus, Mechanism, Sasl, Settings, Tls, refused_property};
use thalweg_types::Error;

use crate::secret::Secret;
use crate::{Mistake, OptionKind, OptionSpec, Options};

/// Makes the bus of a source or sink; tests have one of their own.
pub type MakeBus = Arc<dyn Fn(Settings) -> Result<Arc<dyn Bus>, BusError> + Send + Sync>;

pub(crate) fn real_bus() -> MakeBus {
    Arc::new(|settings| Ok(Arc::new(KafkaBus::new(settings)?)))
}

const fn text(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Text, required: false, default: None, doc }
}

const fn path(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Path, required: false, default: None, doc }
}

const fn secret(key: &'static str, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Secret, required: false, default: None, doc }
}

pub(crate) const BROKERS: OptionSpec = OptionSpec {
    key: "brokers",
    kind: OptionKind::TextList,
    required: true,
    default: None,
    doc: "`host:port` of one or more brokers of the cluster; they name the others",
};
pub(crate) const CLIENT_ID: OptionSpec = OptionSpec {
    key: "client_id",
    kind: OptionKind::Text,
    required: false,
    default: Some("thalweg.JOB.NAME"),
    doc: "name of this client in the logs and quotas of the brokers",
};
pub(crate) const TLS: OptionSpec = OptionSpec {
    key: "tls",
    kind: OptionKind::Bool,
    required: false,
    default: Some("false"),
    doc: "connect over TLS; `ca` and `certificate` imply it",
};
pub(crate) const CA: OptionSpec =
    path("ca", "PEM file of the certificate authorities to trust; those of the system, if absent");
pub(crate) const CERTIFICATE: OptionSpec =
    path("certificate", "PEM file of the client's certificate, for brokers that require one");
pub(crate) const KEY_FILE: OptionSpec = path("private_key", "PEM file of the private key of `certificate`");
pub(crate) const KEY_PASSWORD: OptionSpec = secret("private_key_password", "password of `private_key`");
pub(crate) const SASL: OptionSpec = OptionSpec {
    key: "sasl",
    kind: OptionKind::Choice(&["plain", "scram-sha-256", "scram-sha-512", "oauthbearer"]),
    required: false,
    default: None,
    doc: "mechanism to authenticate with: `plain` and `scram-…` take `user` and `password`, `oauthbearer` takes `token`",
};
pub(crate) const USER: OptionSpec = text("user", "user to authenticate as");
pub(crate) const PASSWORD: OptionSpec = secret("password", "password of the user");
pub(crate) const TOKEN: OptionSpec =
    secret("token", "token for `oauthbearer`; a file is read again whenever a new token is needed");
pub(crate) const PROPERTIES: OptionSpec = OptionSpec {
    key: "properties",
    kind: OptionKind::TextLists,
    required: false,
    default: None,
    doc: "settings of the client library (librdkafka) by name, such as `{ socket.keepalive.enable: \"true\" }`; those that a guarantee depends on are refused",
};

/// The keys that say how brokers are reached, but for which they are.
pub const CONNECTION: &[OptionSpec] =
    &[TLS, CA, CERTIFICATE, KEY_FILE, KEY_PASSWORD, SASL, USER, PASSWORD, TOKEN, PROPERTIES];

/// Mistakes in the keys of the connection.
pub fn check_connection(options: &Options) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut wrong = |key: &str, error: Error| mistakes.push(Mistake::new(key, error));
    for broker in options.list(BROKERS.key).unwrap_or_default() {
        let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !broker.contains("//"));
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            let error = Error::user(format!("expected host:port, got {broker:?}"));
            wrong(BROKERS.key, error.with_hint("such as 127.0.0.1:9092, and a list of them for several"));
        }
    }
    if options.list(BROKERS.key).is_some_and(<[String]>::is_empty) {
        wrong(BROKERS.key, Error::user("expected one broker at least, got none"));
    }
    let is_given = |key: &str| options.get(key).is_some();
    let sasl = options.text(SASL.key);
    let (wants, others): (&[&str], &[&str]) = match sasl {
        None => (&[], &[USER.key, PASSWORD.key, TOKEN.key]),
        Some("oauthbearer") => (&[TOKEN.key], &[USER.key, PASSWORD.key]),
        Some(_) => (&[USER.key, PASSWORD.key], &[TOKEN.key]),
    };
    for key in wants.iter().filter(|key| !is_given(key)) {
        let error = Error::user(format!("sasl: {} needs {key:?}, got none", sasl.unwrap_or_default()));
        wrong(SASL.key, error);
    }
    for key in others.iter().filter(|key| is_given(key)) {
        let error = Error::user(format!("{key:?} has no use here"));
        let hint = match sasl {
            None => "say how to authenticate: sasl: scram-sha-512, for instance".to_owned(),
            Some(sasl) => format!("sasl: {sasl} takes {}", wants.join(" and ")),
        };
        wrong(key, error.with_hint(hint));
    }
    for (key, with) in
        [(CERTIFICATE.key, KEY_FILE.key), (KEY_FILE.key, CERTIFICATE.key), (KEY_PASSWORD.key, KEY_FILE.key)]
    {
        if is_given(key) && !is_given(with) {
            wrong(key, Error::user(format!("{key:?} needs {with:?}, got none")));
        }
    }
    if uses_tls(options) {
        if options.flag(TLS.key) == Some(false) {
            wrong(TLS.key, Error::user("tls: false contradicts the certificates that are given"));
        }
        if let Some(hint) = without_tls() {
            let key = if is_given(TLS.key) { TLS.key } else { CA.key };
            wrong(key, Error::user("TLS is not part of this program").with_hint(hint));
        }
    }
    if sasl.is_some_and(|sasl| sasl != "plain")
        && let Some(hint) = without_tls()
    {
        let sasl = sasl.unwrap_or_default();
        wrong(SASL.key, Error::user(format!("{sasl} is not part of this program")).with_hint(hint));
    }
    for (name, values) in options.lists(PROPERTIES.key).unwrap_or_default() {
        if let Some(reason) = refused_property(name) {
            wrong(PROPERTIES.key, Error::user(format!("{name:?} is not for a job file: {reason}")));
        } else if values.len() != 1 {
            let error = Error::user(format!("{name:?}: expected one value, got {}", values.len()));
            wrong(
                PROPERTIES.key,
                error.with_hint("such as properties: { socket.keepalive.enable: \"true\" }"),
            );
        }
    }
    if mistakes.is_empty()
        && options.lists(PROPERTIES.key).is_some()
        && let Err(error) =
            KafkaBus::new(Settings { properties: properties(options), ..Settings::new(brokers(options)) })
    {
        mistakes.push(Mistake::new(PROPERTIES.key, error.into()));
    }
    mistakes
}

fn uses_tls(options: &Options) -> bool {
    let files = [CA.key, CERTIFICATE.key, KEY_FILE.key];
    options.flag(TLS.key) == Some(true) || files.iter().any(|key| options.path(key).is_some())
}

/// How to get a program that has TLS; `None` if this one does.
fn without_tls() -> Option<String> {
    (!cfg!(feature = "kafka-tls")).then(|| crate::absent::hint("kafka-tls"))
}

fn brokers(options: &Options) -> Vec<String> {
    options.list(BROKERS.key).unwrap_or_default().to_vec()
}

fn properties(options: &Options) -> Vec<(String, String)> {
    let lists = options.lists(PROPERTIES.key).unwrap_or_default();
    lists.iter().filter_map(|(name, values)| Some((name.clone(), values.first()?.clone()))).collect()
}

/// The settings of a job file, with its secrets looked up. `client` is what the client is called by default.
///
/// # Errors
/// If a secret or a file is not there.
pub fn settings(options: &Options, client: fmt::Arguments<'_>) -> Result<Settings, Error> {
    let secret = |spec: &OptionSpec| {
        let reference = options.secret(spec.key);
        reference.map(|reference| Secret::look_up(spec.key, reference)).transpose()
    };
    let file = |spec: &OptionSpec| {
        options.path(spec.key).map(|path| {
            path.recheck()?;
            Ok::<_, Error>(path.to_path_buf())
        })
    };
    let tls = if uses_tls(options) {
        Some(Tls {
            ca: file(&CA).transpose()?,
            certificate: file(&CERTIFICATE).transpose()?,
            key: file(&KEY_FILE).transpose()?,
            key_password: secret(&KEY_PASSWORD)?.map(|password| password.reveal().to_owned()),
        })
    } else {
        None
    };
    let password = |mechanism| {
        let password = secret(&PASSWORD)?.map(|password| password.reveal().to_owned());
        Ok::<_, Error>(Sasl::Password {
            mechanism,
            user: options.text(USER.key).unwrap_or_default().to_owned(),
            password: password.unwrap_or_default(),
        })
    };
    let sasl = match options.text(SASL.key) {
        None => None,
        Some("plain") => Some(password(Mechanism::Plain)?),
        Some("scram-sha-256") => Some(password(Mechanism::ScramSha256)?),
        Some("scram-sha-512") => Some(password(Mechanism::ScramSha512)?),
        Some(_) => {
            let reference = options.secret(TOKEN.key).cloned();
            let look_up = move || {
                let reference = reference.as_ref().ok_or_else(|| Error::internal("no token is named"))?;
                Secret::look_up(TOKEN.key, reference).map(|token| token.reveal().to_owned())
            };
            // One that is not there is an error of the start.
            look_up()?;
            Some(Sasl::Bearer(Arc::new(move || look_up().map_err(|error| error.public_chain()))))
        }
    };
    Ok(Settings {
        brokers: brokers(options),
        client_id: options.text(CLIENT_ID.key).map_or_else(|| client.to_string(), str::to_owned),
        tls,
        sasl,
        properties: properties(options),
        request_timeout: REQUEST_TIMEOUT,
    })
}

/// How long a broker may take to answer at the start of a job.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
