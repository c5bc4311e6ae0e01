//! Apache Kafka: every call of the bus, and every trouble that has a name.

#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
use crate::Tls;
use crate::{
    Bounds, Bus, Compression, Consumer, ConsumerOptions, GroupOffset, Header, Isolation, KafkaBus, Mechanism,
    Message, NewTopic, Outgoing, Problem, Producer, ProducerOptions, Sasl, Sent, Settings, TopicPartition,
};

/// What xtask says about the broker.
fn told(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test --only services`"))
}

fn settings(listener: &str) -> Settings {
    Settings::new(vec![told(listener)])
}

fn bus() -> KafkaBus {
    KafkaBus::new(settings("THALWEG_KAFKA")).unwrap()
}

/// A topic of a test's own.
fn topic(bus: &KafkaBus, name: &str, partitions: i32, more: &[(&str, &str)]) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{name}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let settings = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let new = NewTopic { name: name.clone(), partitions, replication: 1, settings };
    assert_eq!(bus.create_topic(&new), Ok(true));
    assert_eq!(bus.create_topic(&new), Ok(false), "it is there");
    eventually("the topic is known", || bus.topics(Some(&[name.as_str().into()])).ok());
    name
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn options(transactional_id: Option<&str>) -> ProducerOptions {
    ProducerOptions {
        transactional_id: transactional_id.map(str::to_owned),
        ..ProducerOptions::new(1_000_000, 1 << 20)
    }
}

fn consumer(bus: &KafkaBus, isolation: Isolation) -> Box<dyn Consumer> {
    let options = ConsumerOptions {
        group: "thalweg.test.bus".to_owned(),
        isolation,
        queue: 1 << 20,
        wake: Arc::new(|| {}),
    };
    bus.consumer(options).unwrap()
}

fn send(producer: &mut dyn Producer, topic: &str, value: &[u8], tag: u64) {
    let message = Outgoing { topic, partition: Some(0), key: Some(b"k"), value, headers: &[] };
    assert_eq!(producer.send(&message, tag), Ok(Sent::Taken));
}

/// Waits until all tags below this are written.
fn written(producer: &mut dyn Producer, below: u64) {
    eventually("the messages are written", || {
        producer.wait(Duration::from_millis(50));
        let told = producer.acknowledged();
        assert_eq!(told.failure, None);
        (told.below >= below).then_some(())
    });
    assert_eq!(producer.acknowledged().in_flight, 0);
}

/// The values of a partition up to its end.
fn read(consumer: &mut dyn Consumer, number: usize) -> Vec<String> {
    let mut values = Vec::new();
    eventually("the end", || {
        let taken = consumer.take(number, Duration::from_millis(100), &mut |message| {
            values.push(String::from_utf8(message.value.unwrap_or_default().to_vec()).unwrap());
            true
        });
        taken.unwrap().end
    });
    values
}

#[test]
#[ignore = "needs Kafka"]
fn messages_go_there_and_back_in_every_compression() {
    let bus = bus();
    for name in Compression::NAMES {
        let topic = topic(&bus, name, 2, &[]);
        let mut producer = bus
            .producer(ProducerOptions { compression: Compression::named(name).unwrap(), ..options(None) })
            .unwrap();
        let header = Header { name: "trace", value: Some(b"\xff\x00") };
        let none = Header { name: "none", value: None };
        let value = "value ".repeat(100);
        let message = Outgoing {
            topic: &topic,
            partition: Some(1),
            key: Some(b"key"),
            value: value.as_bytes(),
            headers: &[header, none],
        };
        producer.send(&message, 7).unwrap();
        written(&mut *producer, 8);
        assert_eq!(producer.partitions(&topic), Ok(2));
        let of = TopicPartition::new(topic.as_str(), 1);
        let mut consumer = consumer(&bus, Isolation::Committed);
        let number = consumer.assign(&of, 0).unwrap();
        let mut seen = 0;
        eventually("the message", || {
            consumer
                .take(number, Duration::from_millis(100), &mut |message| {
                    assert_eq!((message.offset, message.key), (0, Some(&b"key"[..])));
                    assert_eq!(message.value, Some(value.as_bytes()));
                    assert!(message.timestamp.is_some_and(|time| time > 1_600_000_000_000));
                    let mut headers = Vec::new();
                    (message.headers)(&mut |header| {
                        headers.push((header.name.to_owned(), header.value.map(<[u8]>::to_vec)));
                    });
                    let expected = [("trace".to_owned(), Some(vec![255, 0])), ("none".to_owned(), None)];
                    assert_eq!(headers, expected);
                    seen += 1;
                    true
                })
                .unwrap()
                .end
        });
        assert_eq!(seen, 1, "{name}");
        assert_eq!(consumer.bounds(number), Some(Bounds { start: 0, end: 1 }));
        assert_eq!(bus.bounds(&of), Ok(Bounds { start: 0, end: 1 }));
    }
}

#[test]
#[ignore = "needs Kafka"]
fn a_topic_that_is_made_anew_has_another_id() {
    let bus = bus();
    let (one, other) = (topic(&bus, "ids", 3, &[]), topic(&bus, "ids", 1, &[]));
    let names: Vec<Arc<str>> = vec![one.as_str().into(), other.as_str().into()];
    let topics = bus.topics(Some(&names)).unwrap();
    assert_eq!(topics.iter().map(|topic| topic.partitions).collect::<Vec<_>>(), [3, 1]);
    assert!(topics[0].id.is_some() && topics[0].id != topics[1].id, "{topics:?}");
    let all = bus.topics(None).unwrap();
    assert!(all.contains(&topics[0]), "the same, among all");
    let error = bus.topics(Some(&["no-such-topic".into()])).unwrap_err();
    assert_eq!(error.problem, Problem::NoTopic, "{error}");
}

#[test]
#[ignore = "needs Kafka"]
fn transactions_are_seen_once_committed_and_fence_older_producers() {
    let bus = bus();
    let topic = topic(&bus, "tx", 1, &[]);
    let (of, id) = (TopicPartition::new(topic.as_str(), 0), format!("id-{topic}"));
    let mut old = bus.producer(options(Some(&id))).unwrap();
    old.begin().unwrap();
    send(&mut *old, &topic, b"first", 1);
    let offset = GroupOffset { offset: 41, metadata: "3:1:job".to_owned() };
    old.commit(&id, &[(of.clone(), offset.clone())]).unwrap();
    assert_eq!(bus.group_offsets(&id, std::slice::from_ref(&of)), Ok(vec![Some(offset)]));
    old.begin().unwrap();
    send(&mut *old, &topic, b"left", 2);
    written(&mut *old, 3);
    let mut reader = consumer(&bus, Isolation::Committed);
    let number = reader.assign(&of, 0).unwrap();
    assert_eq!(read(&mut *reader, number), ["first"]);
    let mut new = bus.producer(options(Some(&id))).unwrap();
    let error = old.commit(&id, &[(of.clone(), GroupOffset::default())]).unwrap_err();
    assert_eq!(error.problem, Problem::Fenced, "{error}");
    new.begin().unwrap();
    send(&mut *new, &topic, b"second", 1);
    let offset = GroupOffset { offset: 42, metadata: String::new() };
    new.commit(&id, &[(of.clone(), offset.clone())]).unwrap();
    eventually("the second one is seen", || (read(&mut *reader, number) == ["second"]).then_some(()));
    assert_eq!(bus.group_offsets(&id, std::slice::from_ref(&of)), Ok(vec![Some(offset.clone())]));
    new.probe(&id, &of).unwrap();
    assert_eq!(
        bus.group_offsets(&id, std::slice::from_ref(&of)),
        Ok(vec![Some(offset)]),
        "it changes nothing"
    );
    let offset = GroupOffset { offset: 43, metadata: String::new() };
    new.begin().unwrap();
    new.commit(&id, &[(of.clone(), offset.clone())]).unwrap();
    assert_eq!(bus.group_offsets(&id, std::slice::from_ref(&of)), Ok(vec![Some(offset)]));
    let mut all = consumer(&bus, Isolation::Uncommitted);
    let number = all.assign(&of, 0).unwrap();
    assert_eq!(read(&mut *all, number), ["first", "left", "second"]);
    assert_eq!(bus.group_offsets("nobody", std::slice::from_ref(&of)), Ok(vec![None]));
    let mut group = bus.group(&format!("group-{topic}")).unwrap();
    assert_eq!(group.offsets(std::slice::from_ref(&of)), Ok(vec![None]));
    let offset = GroupOffset { offset: 1 << 40, metadata: "7:4294967295:job".to_owned() };
    group.commit(&[(of.clone(), offset.clone())]).unwrap();
    assert_eq!(group.offsets(std::slice::from_ref(&of)), Ok(vec![Some(offset)]));
}

#[test]
#[ignore = "needs Kafka"]
fn offsets_that_are_not_there_are_named() {
    let bus = bus();
    let topic = topic(&bus, "cut", 1, &[]);
    let of = TopicPartition::new(topic.as_str(), 0);
    let mut producer = bus.producer(options(None)).unwrap();
    for tag in 0..10 {
        send(&mut *producer, &topic, tag.to_string().as_bytes(), tag);
    }
    written(&mut *producer, 10);
    bus.delete_records(&of, 4).unwrap();
    eventually("they are gone", || (bus.bounds(&of) == Ok(Bounds { start: 4, end: 10 })).then_some(()));
    for offset in [2, 11] {
        let mut consumer = consumer(&bus, Isolation::Committed);
        let number = consumer.assign(&of, offset).unwrap();
        let error = eventually("an error", || {
            consumer.take(number, Duration::from_millis(100), &mut |_| panic!("nothing is there")).err()
        });
        assert_eq!(error.problem, Problem::OutOfRange, "{error}");
    }
    let mut consumer = consumer(&bus, Isolation::Committed);
    let number = consumer.assign(&of, 4).unwrap();
    assert_eq!(read(&mut *consumer, number), ["4", "5", "6", "7", "8", "9"]);
    consumer.commit_group(&[(number, 7)]).unwrap();
    eventually("the group has it", || {
        let found = bus.group_offsets("thalweg.test.bus", std::slice::from_ref(&of)).unwrap();
        (found[0].as_ref().map(|found| found.offset) == Some(7)).then_some(())
    });
    consumer.seek(number, 5).unwrap();
    assert_eq!(read(&mut *consumer, number), ["5", "6", "7", "8", "9"]);
    assert_eq!(bus.offsets_at(std::slice::from_ref(&of), 0), Ok(vec![4]));
    assert_eq!(bus.offsets_at(&[of], i64::MAX / 2_000_000), Ok(vec![10]));
}

#[test]
#[ignore = "needs Kafka"]
fn messages_can_be_looked_at_before_they_are_taken() {
    let bus = bus();
    let topic = topic(&bus, "looked-at", 1, &[]);
    let mut producer = bus.producer(options(None)).unwrap();
    for tag in 0..6 {
        send(&mut *producer, &topic, tag.to_string().as_bytes(), tag);
    }
    written(&mut *producer, 6);
    let mut consumer = consumer(&bus, Isolation::Committed);
    let number = consumer.assign(&TopicPartition::new(topic.as_str(), 0), 0).unwrap();
    let peek = |consumer: &mut dyn Consumer, most: usize| {
        let (mut found, mut end) = (Vec::new(), None);
        eventually("so many", || {
            let peeked = consumer.peek(number, &mut |message| {
                found.push(String::from_utf8(message.value.unwrap().to_vec()).unwrap());
                found.len() < most
            });
            end = peeked.unwrap().end.or(end);
            (found.len() == most || end.is_some()).then_some(())
        });
        (found, end)
    };
    assert_eq!(peek(&mut *consumer, 2).0, ["0", "1"]);
    assert_eq!(peek(&mut *consumer, 1).0, ["2"]);
    let mut first = Vec::new();
    let mut take = |message: &Message<'_>| {
        first.push(message.offset);
        false
    };
    consumer.take(number, Duration::ZERO, &mut take).unwrap();
    assert_eq!(first, [0], "what was looked at is there to be taken");
    assert_eq!(peek(&mut *consumer, 1).0, ["3"], "it goes on where it was");
    consumer.peek_again(number);
    assert_eq!(peek(&mut *consumer, 100), (["1", "2", "3", "4", "5"].map(str::to_owned).to_vec(), Some(6)));
    let mut rest = Vec::new();
    let mut take = |message: &Message<'_>| {
        rest.push(message.offset);
        true
    };
    let taken = consumer.take(number, Duration::ZERO, &mut take).unwrap();
    assert_eq!((taken.messages, taken.end, rest), (5, None, vec![1, 2, 3, 4, 5]), "the end was told");
}

#[test]
#[ignore = "needs Kafka"]
fn a_message_that_the_topic_does_not_take_is_a_failure_and_so_is_what_follows() {
    let bus = bus();
    let topic = topic(&bus, "small", 1, &[("max.message.bytes", "1000")]);
    let mut producer = bus.producer(options(None)).unwrap();
    send(&mut *producer, &topic, b"fits", 1);
    written(&mut *producer, 2);
    send(&mut *producer, &topic, &[b'x'; 5_000], 2);
    let failure = eventually("a failure", || {
        producer.wait(Duration::from_millis(50));
        producer.acknowledged().failure
    });
    assert_eq!(failure.problem, Problem::TooLarge, "{failure}");
    let message = Outgoing { topic: &topic, partition: Some(0), key: None, value: b"next", headers: &[] };
    assert_eq!(producer.send(&message, 3).unwrap_err().problem, Problem::TooLarge);
    assert_eq!(producer.acknowledged().below, 2, "nothing behind it counts");
}

#[test]
#[ignore = "needs Kafka"]
fn a_broker_that_does_not_answer_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut settings = Settings::new(vec![address]);
    settings.request_timeout = Duration::from_secs(2);
    let error = KafkaBus::new(settings).unwrap().topics(None).unwrap_err();
    assert_eq!(error.problem, Problem::Unreachable, "{error}");
}

fn with_password(listener: &str, mechanism: Mechanism, user: &str, password: &str) -> Settings {
    let mut settings = settings(listener);
    settings.request_timeout = Duration::from_secs(5);
    settings.sasl = Some(Sasl::Password { mechanism, user: user.to_owned(), password: password.to_owned() });
    settings
}

#[test]
#[ignore = "needs Kafka"]
fn a_user_is_let_in_by_its_password_alone() {
    let (user, password) = (told("THALWEG_KAFKA_USER"), told("THALWEG_KAFKA_PASSWORD"));
    let plain = with_password("THALWEG_KAFKA_SASL", Mechanism::Plain, &user, &password);
    KafkaBus::new(plain).unwrap().topics(None).unwrap();
    let wrong = with_password("THALWEG_KAFKA_SASL", Mechanism::Plain, &user, "hunter2");
    let error = KafkaBus::new(wrong).unwrap().topics(None).unwrap_err();
    assert_eq!(error.problem, Problem::Unauthenticated, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

/// A token that nobody has signed, which the broker takes, and the clients' settings with it.
#[cfg(feature = "tls")]
fn with_token(user: &str, lives: Duration) -> Settings {
    use std::time::{SystemTime, UNIX_EPOCH};

    use base64::Engine as _;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let (issued, end) = (now.as_secs() - 100, now.as_secs() - 100 + lives.as_secs());
    let claims = format!("{{\"sub\":{user:?},\"iat\":{issued},\"exp\":{end}}}");
    let token = format!("{}.{}.", part("{\"alg\":\"none\"}"), part(&claims));
    let mut settings = settings("THALWEG_KAFKA_SASL");
    settings.request_timeout = Duration::from_secs(5);
    settings.sasl = Some(Sasl::Bearer(Arc::new(move || Ok(token.clone()))));
    settings
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "needs Kafka"]
fn a_token_lets_every_client_in_until_it_ends() {
    let bus = KafkaBus::new(with_token(&told("THALWEG_KAFKA_USER"), Duration::from_secs(3_600))).unwrap();
    let topic = topic(&bus, "by-token", 1, &[]);
    let id = format!("token-{}", std::process::id());
    let mut producer = bus.producer(options(Some(&id))).unwrap();
    producer.begin().unwrap();
    send(&mut *producer, &topic, b"value", 1);
    producer.commit(&id, &[]).unwrap();
    let mut consumer = consumer(&bus, Isolation::Committed);
    let number = consumer.assign(&TopicPartition::new(topic.as_str(), 0), 0).unwrap();
    assert_eq!(read(&mut *consumer, number), ["value"]);

    let ended = with_token(&told("THALWEG_KAFKA_USER"), Duration::from_secs(50));
    let error = KafkaBus::new(ended).unwrap().topics(None).unwrap_err();
    assert_eq!(error.problem, Problem::Unauthenticated, "{error}");
    let mut without = with_token("nobody", Duration::from_secs(50));
    without.sasl = Some(Sasl::Bearer(Arc::new(|| Err("no file /run/token".to_owned()))));
    let error = KafkaBus::new(without).unwrap().topics(None).unwrap_err();
    assert_eq!(error.problem, Problem::Unauthenticated, "{error}");
    assert!(error.to_string().contains("no file /run/token"), "{error}");
}

#[cfg(feature = "tls")]
#[test]
#[ignore = "needs Kafka"]
fn scram_and_tls_let_in_whom_they_know() {
    let (user, password) = (told("THALWEG_KAFKA_USER"), told("THALWEG_KAFKA_PASSWORD"));
    let path = |variable: &str| Some(PathBuf::from(told(variable)));
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha512] {
        let open = with_password("THALWEG_KAFKA_SASL", mechanism, &user, &password);
        KafkaBus::new(open).unwrap().topics(None).unwrap();
        let mut closed = with_password("THALWEG_KAFKA_SASL_SSL", mechanism, &user, &password);
        closed.tls = Some(Tls { ca: path("THALWEG_KAFKA_CA"), ..Tls::default() });
        KafkaBus::new(closed).unwrap().topics(None).unwrap();
    }
    let mut known = settings("THALWEG_KAFKA_SSL");
    known.tls = Some(Tls {
        ca: path("THALWEG_KAFKA_CA"),
        certificate: path("THALWEG_KAFKA_CERTIFICATE"),
        key: path("THALWEG_KAFKA_KEY"),
        key_password: None,
    });
    KafkaBus::new(known).unwrap().topics(None).unwrap();
    let mut unknown = settings("THALWEG_KAFKA_SSL");
    unknown.request_timeout = Duration::from_secs(5);
    // The broker's authority is none of the system's.
    unknown.tls = Some(Tls::default());
    let error = KafkaBus::new(unknown).unwrap().topics(None).unwrap_err();
    assert_eq!(error.problem, Problem::Unauthenticated, "{error}");
}

#[test]
#[ignore = "needs Kafka"]
fn what_a_user_may_not_do_is_named() {
    let bus = bus();
    let topic = topic(&bus, "private", 1, &[]);
    let status = std::process::Command::new(told("THALWEG_KAFKA_TOOL"))
        .args(["org.apache.kafka.tools.AclCommand", "--bootstrap-server", &told("THALWEG_KAFKA")])
        .args(["--add", "--deny-principal", &format!("User:{}", told("THALWEG_KAFKA_GUEST"))])
        .args(["--operation", "All", "--topic", &topic])
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let (guest, password) = (told("THALWEG_KAFKA_GUEST"), told("THALWEG_KAFKA_PASSWORD"));
    let guest =
        KafkaBus::new(with_password("THALWEG_KAFKA_SASL", Mechanism::Plain, &guest, &password)).unwrap();
    let error = eventually("it is denied", || guest.topics(Some(&[topic.as_str().into()])).err());
    assert_eq!(error.problem, Problem::Unauthorized, "{error}");
    let mut producer = guest.producer(options(None)).unwrap();
    let message = Outgoing { topic: &topic, partition: None, key: None, value: b"x", headers: &[] };
    let refused = match producer.send(&message, 1) {
        Err(error) => error,
        Ok(_) => eventually("a failure", || {
            producer.wait(Duration::from_millis(50));
            producer.acknowledged().failure
        }),
    };
    assert_eq!(refused.problem, Problem::Unauthorized, "{refused}");
}
