//! The part that all clients share: settings, what the library reports, errors by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::bindings as native;
use rdkafka::client::{Client, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{ClientContext, TopicPartitionList};
use tracing::{debug, info, warn};

use crate::{BusError, Problem, Sasl, Settings};

/// How long a token is used whose end is not known, in milliseconds: it is asked for again after four fifths.
const TOKEN_LIFE: i64 = 300_000;

pub(super) const SOCKET_TIMEOUT: &str = "socket.timeout.ms";

/// Milliseconds after which a broker is given up that hangs, or whose machine is gone: others lead its partitions by then,
/// as those that keep to Kafka's defaults notice it after 9 s. Left to itself the client waits for a minute, and a row that
/// goes through several clients for several.
pub(super) const GIVEN_UP: u64 = 10_000;

/// The settings of every client.
///
/// # Errors
/// If a value is not allowed.
pub(super) fn configured(settings: &Settings) -> Result<ClientConfig, BusError> {
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Info);
    for (name, value) in [
        // Gaps between attempts stay short: a broker that is back is used at once.
        ("reconnect.backoff.max.ms", "500"),
        ("socket.nagle.disable", "true"),
        (SOCKET_TIMEOUT, &GIVEN_UP.to_string()),
        ("socket.connection.setup.timeout.ms", "10000"),
        // Clients that had nothing to send have heard of the new leaders, too.
        ("topic.metadata.refresh.interval.ms", "5000"),
        ("allow.auto.create.topics", "false"),
    ] {
        config.set(name, value);
    }
    for (name, value) in &settings.properties {
        if let Some(reason) = crate::refused_property(name) {
            return Err(BusError::new(Problem::Setting, format!("set {name:?}"), reason));
        }
        config.set(name, value);
    }
    config.set("bootstrap.servers", settings.brokers.join(","));
    config.set("client.id", &settings.client_id);
    let protocol = match (&settings.tls, &settings.sasl) {
        (None, None) => "plaintext",
        (Some(_), None) => "ssl",
        (None, Some(_)) => "sasl_plaintext",
        (Some(_), Some(_)) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    if let Some(tls) = &settings.tls {
        let files = [
            ("ssl.ca.location", &tls.ca),
            ("ssl.certificate.location", &tls.certificate),
            ("ssl.key.location", &tls.key),
        ];
        for (name, path) in files {
            if let Some(path) = path {
                config.set(name, path.to_string_lossy());
            }
        }
        if let Some(password) = &tls.key_password {
            config.set("ssl.key.password", password);
        }
    }
    match &settings.sasl {
        None => {}
        Some(Sasl::Password { mechanism, user, password }) => {
            config.set("sasl.mechanism", mechanism.name());
            config.set("sasl.username", user).set("sasl.password", password);
        }
        Some(Sasl::Bearer(_)) => {
            config.set("sasl.mechanism", "OAUTHBEARER");
        }
    }
    config.create_native_config().map_err(|error| {
        let said = match error {
            // Without the value, which may be a secret.
            KafkaError::ClientConfig(_, said, name, _) => format!("{name}: {said}"),
            other => other.to_string(),
        };
        BusError::new(Problem::Setting, "configure a client", said)
    })?;
    Ok(config)
}

/// As [`GIVEN_UP`], for a producer of transactions: before brokers end a transaction, as the client library wants it. `None`
/// where the settings say how long.
pub(super) fn given_up_in(properties: &[(String, String)]) -> Option<u64> {
    /// What the client library takes where nothing is set, and the least that it takes.
    const TRANSACTION: u64 = 60_000;
    const LEAST: u64 = 900;
    if properties.iter().any(|(name, _)| name == SOCKET_TIMEOUT) {
        return None;
    }
    let transaction = properties.iter().find(|(name, _)| name == "transaction.timeout.ms");
    let transaction = transaction.and_then(|(_, millis)| millis.parse().ok()).unwrap_or(TRANSACTION);
    Some(GIVEN_UP.min(transaction.saturating_sub(100)).max(LEAST))
}

/// How long an error is not logged again as a warning: a client without its brokers reports several a second.
const QUIET: Duration = Duration::from_secs(10);

/// Hears what a client reports.
pub(super) struct Context {
    settings: Arc<Settings>,
    /// Why no broker is reached, as was said last. Held for moments.
    last: Mutex<Option<(Problem, String)>>,
    /// When an error of each kind was logged last. Held for moments.
    logged: Mutex<BTreeMap<Option<i32>, Instant>>,
}

impl Context {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, last: Mutex::new(None), logged: Mutex::default() }
    }

    /// Whether an error is to be logged as a warning at a time: the first of its kind, and one in ten seconds after it.
    fn is_news(&self, code: Option<RDKafkaErrorCode>, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = code.map(|code| code as i32);
        let is_news = logged.get(&kind).is_none_or(|last| now.duration_since(*last) >= QUIET);
        if is_news {
            logged.insert(kind, now);
        }
        is_news
    }

    /// An error with the reason that was reported before it: a call that found no broker knows only that.
    pub(super) fn explained(&self, error: BusError) -> BusError {
        if error.problem != Problem::Unreachable {
            return error;
        }
        match &*self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            None => error,
            Some((problem, said)) => {
                BusError { problem: *problem, said: format!("{} ({said})", error.said), ..error }
            }
        }
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let client = &*self.settings.client_id;
        match level {
            // What matters of it comes as an error, too.
            RDKafkaLogLevel::Debug => debug!(client, facility, "{text}"),
            _ => info!(client, facility, "librdkafka: {text}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        let problem = code.map_or(Problem::Other, problem_of);
        if matches!(problem, Problem::Unreachable | Problem::Unauthenticated) {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            // That all brokers are down says less than why each of them is.
            if code != Some(RDKafkaErrorCode::AllBrokersDown) || last.is_none() {
                *last = Some((problem, reason.to_owned()));
            }
        }
        let client = &*self.settings.client_id;
        match self.is_news(code, Instant::now()) {
            true => warn!(client, "kafka: {reason}"),
            false => debug!(client, "kafka: {reason}"),
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        let Some(Sasl::Bearer(token)) = &self.settings.sasl else {
            return Err("no token is configured".into());
        };
        let token = token()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let claims = claims(&token);
        let claim = |name: &str| claims.as_ref().and_then(|claims| claims.get(name));
        let end = claim("exp").and_then(serde_json::Value::as_f64).map(|seconds| (seconds * 1_000.0) as i64);
        let subject = claim("sub").and_then(serde_json::Value::as_str);
        Ok(OAuthToken {
            principal_name: subject.unwrap_or(&self.settings.client_id).to_owned(),
            lifetime_ms: end.unwrap_or(now + TOKEN_LIFE),
            token,
        })
    }
}

/// Gives its token to a client whose events nobody takes: one of them would ask for it.
///
/// # Errors
/// If there is no token, or the library does not take it.
#[expect(unsafe_code, reason = "the binding gives tokens in answer to events alone")]
pub(super) fn give_token(client: &Client<Context>) -> Result<(), BusError> {
    if !matches!(client.context().settings.sasl, Some(Sasl::Bearer(_))) {
        return Ok(());
    }
    let failed = |said: String| BusError::new(Problem::Unauthenticated, "give the token", said);
    let given = client.context().generate_oauth_token(None).map_err(|error| failed(error.to_string()))?;
    let text = |text: String| CString::new(text).map_err(|_| failed("it has a NUL".to_owned()));
    let (token, principal) = (text(given.token)?, text(given.principal_name)?);
    let mut said = [0_u8; 512];
    // SAFETY: client and texts are alive, and `said` has as many bytes as are named; there are no extensions.
    let code = unsafe {
        native::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            token.as_ptr(),
            given.lifetime_ms,
            principal.as_ptr(),
            std::ptr::null_mut(),
            0,
            said.as_mut_ptr().cast(),
            said.len(),
        )
    };
    if code == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    let said = CStr::from_bytes_until_nul(&said).unwrap_or_default();
    Err(failed(said.to_string_lossy().into_owned()))
}

/// The claims in a token, if it is a JSON Web Token. They are not verified: the broker does that.
fn claims(token: &str) -> Option<serde_json::Value> {
    use base64::Engine as _;
    let payload = token.split('.').nth(1)?.trim_end_matches('=');
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    serde_json::from_slice(&bytes).ok()
}

impl ConsumerContext for Context {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        // Nothing but the display of lag stands on it.
        if let Err(error) = result {
            debug!(client = &*self.settings.client_id, %error, "offsets of the group are not committed");
        }
    }
}

/// An error of the library, by name.
pub(super) fn trouble(action: impl Into<String>, error: &KafkaError) -> BusError {
    let problem = match (error.rdkafka_error_code(), error) {
        (Some(code), _) => problem_of(code),
        (None, KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_)) => Problem::Setting,
        (None, _) => Problem::Other,
    };
    let said: Cow<'_, str> = match (error.rdkafka_error_code(), error) {
        (_, KafkaError::ClientCreation(said)) => said.into(),
        (Some(code), _) => code.to_string().into(),
        (None, error) => error.to_string().into(),
    };
    BusError::new(problem, action, said)
}

pub(super) fn problem_of(code: RDKafkaErrorCode) -> Problem {
    use RDKafkaErrorCode as Code;
    match code {
        Code::BrokerTransportFailure
        | Code::Resolve
        | Code::MessageTimedOut
        | Code::AllBrokersDown
        | Code::OperationTimedOut
        | Code::TimedOutQueue
        | Code::WaitingForCoordinator
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::RequestTimedOut
        | Code::BrokerNotAvailable
        | Code::NetworkException
        | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::UnstableOffsetCommit
        | Code::NotEnoughReplicas
        | Code::NotEnoughReplicasAfterAppend
        | Code::InvalidReplicaAssignment
        | Code::Retry => Problem::Unreachable,
        Code::Authentication
        | Code::SSL
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState => Problem::Unauthenticated,
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Problem::Unauthorized,
        Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicOrPartition | Code::InvalidTopic => {
            Problem::NoTopic
        }
        Code::AutoOffsetReset | Code::OffsetOutOfRange => Problem::OutOfRange,
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => Problem::TooLarge,
        Code::Fenced | Code::InvalidProducerEpoch | Code::ProducerFenced => Problem::Fenced,
        Code::InvalidConfig | Code::InvalidArgument => Problem::Setting,
        Code::PurgeQueue | Code::PurgeInflight | Code::Fatal | Code::GaplessGuarantee => Problem::NotWritten,
        _ => Problem::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_a_token_are_read_and_other_tokens_have_none() {
        // {"alg":"none"}.{"sub":"me","exp":1700000000}
        let token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSIsImV4cCI6MTcwMDAwMDAwMH0.";
        let claims = claims(token).unwrap();
        assert_eq!((claims["sub"].as_str(), claims["exp"].as_i64()), (Some("me"), Some(1_700_000_000)));
        assert_eq!(super::claims("opaque"), None);
        assert_eq!(super::claims("a.b.c"), None);
    }

    #[test]
    fn an_error_is_logged_once_in_ten_seconds_and_another_one_at_once() {
        let context = Context::new(Arc::new(Settings::new(Vec::new())));
        let (start, refused) = (Instant::now(), Some(RDKafkaErrorCode::BrokerTransportFailure));
        let mut logged = Vec::new();
        for second in [0, 1, 9, 10, 11, 30] {
            if context.is_news(refused, start + Duration::from_secs(second)) {
                logged.push(second);
            }
            if second == 9 {
                assert!(context.is_news(None, start) && !context.is_news(None, start));
            }
        }
        assert_eq!(logged, [0, 10, 30]);
    }

    #[test]
    fn a_request_is_given_up_before_its_transaction_is() {
        let of = |all: &[(&str, &str)]| {
            let named = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            given_up_in(&all.iter().map(named).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), Some(10_000));
        assert_eq!(of(&[("transaction.timeout.ms", "30000")]), Some(10_000));
        assert_eq!(of(&[("transaction.timeout.ms", "2000")]), Some(1_900));
        assert_eq!(of(&[("transaction.timeout.ms", "50")]), Some(900));
        assert_eq!(of(&[("transaction.timeout.ms", "2000"), (SOCKET_TIMEOUT, "700")]), None);
    }

    #[test]
    fn a_setting_that_the_library_does_not_know_is_an_error_without_its_value() {
        let mut settings = Settings::new(vec!["127.0.0.1:1".to_owned()]);
        settings.properties.push(("no.such.setting".to_owned(), "hunter2".to_owned()));
        let error = configured(&settings).err().unwrap();
        assert_eq!(error.problem, Problem::Setting);
        let told = error.to_string();
        assert!(told.contains("no.such.setting") && !told.contains("hunter2"), "{told}");
    }
}
