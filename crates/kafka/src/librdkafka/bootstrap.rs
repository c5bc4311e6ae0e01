//! Brings a client back that has lost sight of all brokers.
//!
//! A broker whose controller does not count it as alive (right after it was started or had hung) names no broker in answers
//! about topics. The library takes that for the truth: it ends its connections to all brokers and, as the answer itself was
//! good, stops the search for others that it has just begun (librdkafka issue 5301, seen with 2.12.1). From then on it asks
//! nobody, reports nothing, and fetches nothing. Such an answer names no controller, either, which can be seen from outside.

#![expect(
    unsafe_code,
    reason = "the binding has no call that adds brokers, nor one that names the controller"
)]

use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::bindings as native;
use rdkafka::client::{Client, ClientContext};
use tracing::info;

use crate::Settings;

/// How often a client is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The longest time between two attempts: the client remembers each of them.
const RARELY: Duration = Duration::from_secs(30);

/// Looks after one client.
pub(super) struct Bootstrap {
    settings: Arc<Settings>,
    looked: Instant,
    attempts: Attempts,
}

impl Bootstrap {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        Self { settings, looked: Instant::now(), attempts: Attempts::default() }
    }

    /// Names the brokers to a client that knows none; to be called every now and then.
    pub(super) fn look<C: ClientContext>(&mut self, client: &Client<C>) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if self.attempts.is_due(knows_brokers(client)) {
            self.name_brokers(client);
        }
    }

    /// Does so for the last time, for a client that ends: that may take an answer of the brokers.
    pub(super) fn look_at_last<C: ClientContext>(&self, client: &Client<C>) {
        if !knows_brokers(client) {
            self.name_brokers(client);
        }
    }

    fn name_brokers<C: ClientContext>(&self, client: &Client<C>) {
        let Settings { brokers, client_id, .. } = &*self.settings;
        info!(client = &**client_id, "kafka: no broker is known: asking those of the settings again");
        // No name of a broker has a NUL: the library has parsed them.
        let brokers = CString::new(brokers.join(",")).unwrap_or_default();
        // SAFETY: client and names are alive; the names are copied.
        unsafe { native::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
    }
}

fn knows_brokers<C: ClientContext>(client: &Client<C>) -> bool {
    // SAFETY: the client is alive; without a time to wait this reads what the client remembers.
    unsafe { native::rd_kafka_controllerid(client.native_ptr(), 0) >= 0 }
}

/// When brokers are named: at the first look at a client that knows none, and after ever longer times. One that has not
/// heard of any yet looks the same, and is not harmed.
#[derive(Default)]
struct Attempts {
    /// Looks until the next one.
    left: u64,
    /// Looks from the last one to that.
    pause: u64,
}

impl Attempts {
    fn is_due(&mut self, is_known: bool) -> bool {
        if is_known {
            *self = Self::default();
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.pause = (2 * self.pause + 1).min(RARELY.as_secs() / LOOK.as_secs() - 1);
        self.left = self.pause;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rdkafka::consumer::Consumer as _;

    use super::super::client::configured;
    use super::super::consumer::Served;
    use super::*;

    /// The numbers of the two requests.
    const METADATA: i16 = 3;
    const VERSIONS: i16 = 18;

    /// A client that gets no answer in this time will get none.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A broker of two requests, `ApiVersions` and `Metadata`, that names no broker whenever it is told to.
    struct Forgetful {
        address: SocketAddr,
        forgets: Arc<AtomicBool>,
    }

    const TOPIC: &str = "t";

    /// Names in answers without brokers: they take longer to read than a connection takes to end.
    const TOPICS: i32 = 20_000;

    impl Forgetful {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let forgets = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&forgets);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let flag = Arc::clone(&flag);
                    thread::spawn(move || Self::serve(stream.unwrap(), address.port(), &flag));
                }
            });
            Self { address, forgets }
        }

        /// Until the client goes.
        fn serve(mut stream: TcpStream, port: u16, forgets: &AtomicBool) -> Option<()> {
            loop {
                let mut length = [0; 4];
                stream.read_exact(&mut length).ok()?;
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).ok()?;
                let number = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
                let mut answer = request[4..8].to_vec();
                match (number(0), number(2)) {
                    (VERSIONS, 0) => Self::versions(&mut answer, 0),
                    // The newest client is told to ask as the oldest did.
                    (VERSIONS, _) => Self::versions(&mut answer, 35),
                    (METADATA, 1) => Self::metadata(&mut answer, port, forgets.load(Ordering::SeqCst)),
                    other => panic!("a request that was not offered: {other:?}"),
                }
                stream.write_all(&(answer.len() as u32).to_be_bytes()).ok()?;
                stream.write_all(&answer).ok()?;
            }
        }

        fn versions(answer: &mut Vec<u8>, error: i16) {
            answer.extend(error.to_be_bytes());
            answer.extend(2_i32.to_be_bytes());
            for number in [VERSIONS, 0, 0, METADATA, 1, 1] {
                answer.extend(number.to_be_bytes());
            }
        }

        fn metadata(answer: &mut Vec<u8>, port: u16, forgets: bool) {
            let text = |answer: &mut Vec<u8>, text: &str| {
                answer.extend((text.len() as i16).to_be_bytes());
                answer.extend(text.as_bytes());
            };
            let brokers = if forgets { 0_i32 } else { 1 };
            answer.extend(brokers.to_be_bytes());
            if !forgets {
                answer.extend(1_i32.to_be_bytes());
                text(answer, "127.0.0.1");
                answer.extend(i32::from(port).to_be_bytes());
                answer.extend((-1_i16).to_be_bytes());
            }
            let leader = if forgets { -1_i32 } else { 1 };
            answer.extend(leader.to_be_bytes());
            let topics = if forgets { TOPICS } else { 1 };
            answer.extend(topics.to_be_bytes());
            for number in 0..topics {
                answer.extend(0_i16.to_be_bytes());
                text(answer, &if number == 0 { TOPIC.to_owned() } else { format!("{TOPIC}-{number:0>60}") });
                // It is not an internal one.
                answer.push(0);
                // One partition without trouble, its number, its leader, and no replicas.
                answer.extend(1_i32.to_be_bytes());
                answer.extend(0_i16.to_be_bytes());
                for number in [0, leader, 0, 0] {
                    answer.extend(number.to_be_bytes());
                }
            }
        }
    }

    #[test]
    fn a_client_without_brokers_hears_of_them_ever_more_rarely_until_it_knows_one() {
        let mut attempts = Attempts::default();
        let mut due = |is_known, looks: usize| -> Vec<usize> {
            (0..looks).filter(|_| attempts.is_due(is_known)).collect()
        };
        assert_eq!(due(false, 100), [0, 2, 6, 14, 30, 60, 90]);
        assert_eq!(due(true, 1), [0; 0]);
        assert_eq!(due(false, 3), [0, 2], "it has lost them once more");
    }

    #[test]
    fn a_client_asks_again_whose_brokers_have_named_none_of_them() {
        let broker = Forgetful::start();
        let settings = Arc::new(Settings::new(vec![broker.address.to_string()]));
        let mut config = configured(&settings).unwrap();
        config.set("group.id", "g");
        let client = Served::start(&config, settings).unwrap();
        // How many leaders the topic has; none where no broker answers.
        let leaders = |wait: Duration| -> Option<usize> {
            let metadata = client.consumer().fetch_metadata(Some(TOPIC), wait).ok()?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == TOPIC)?;
            Some(topic.partitions().iter().filter(|partition| partition.leader() >= 0).count())
        };
        for time in 0..3 {
            assert_eq!(leaders(PATIENCE), Some(1), "time {time}");
            broker.forgets.store(true, Ordering::SeqCst);
            assert_eq!(leaders(PATIENCE), Some(0), "time {time}");
            broker.forgets.store(false, Ordering::SeqCst);
        }
    }
}
