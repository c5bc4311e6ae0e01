//! Rows that brokers have acknowledged and lost: the door goes on without them, a unit of a chain sends them again, and one that
//! cannot stops and says so.
#![cfg(feature = "cluster")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_cluster::answers::{Answers, AnswersBuilder};
use thalweg_cluster::control::{Name, Text};
use thalweg_cluster::frame::{Frame, Spec};
use thalweg_cluster::positions::{Mark, Origin, Through, Verdict};
use thalweg_connect::{Replies, Unanswered};
use thalweg_flow::{CycleSettings, SystemClock};
use thalweg_kafka::memory::{Faults, MemoryBus, Stored};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{
    CarrierOptions, Cluster, ClusterOptions, DoorOptions, MemberOptions, Post, UnitOptions, Units,
    UnitsFolder,
};
use thalweg_node::cluster_view::{NodeFigures, UnitSnapshot};
use thalweg_node::{JobFile, Node, NodeOptions};

#[path = "support/collect.rs"]
mod collect;
#[path = "support/waiting.rs"]
mod waiting;

use waiting::{LIMIT, eventually};

const JOB: &str = "
name: j
sources:
  records: { type: http, time: t, max_ahead: none, lateness: 1h, schema: { n: int64, t: timestamp(ms), card: string } }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card]
    partitions: 8
    queries:
      q: SELECT count(*) AS c, sum(n) AS s FROM records GROUP BY card OVER SLIDING 1 HOUR
sinks: { out: { type: 'null', input: features } }
";

const CHAIN: &str = "
name: j
sources:
  records:
    type: http
    time: t
    max_ahead: none
    lateness: 1h
    schema: { n: int64, t: timestamp(ms), card: string, shop: string }
operators:
  features:
    type: metrics
    input: records
    partition_by: [card, shop]
    partitions: 8
    queries:
      by_card: SELECT count(*) AS c, sum(n) AS s FROM records GROUP BY card OVER SLIDING 1 HOUR
      by_shop: SELECT count(*) AS c, sum(n) AS s, avg(n) AS a FROM records GROUP BY shop OVER SLIDING 1 HOUR
sinks: { out: { type: 'null', input: features } }
";

const FIRST: &str = "features-1";
const SECOND: &str = "features-2";
const PARTITIONS: i32 = 8;
const TIME: i64 = 1_700_000_000_000;

struct Site {
    folder: tempfile::TempDir,
    bus: MemoryBus,
    /// How often units commit.
    cycle: Duration,
    /// How long clients wait.
    patience: Duration,
}

struct Peer {
    node: Arc<Node>,
    cluster: Cluster,
}

/// A request that is on its way.
struct Asked(Replies);

impl Site {
    fn new(cycle: Duration, patience: Duration) -> Self {
        let bus = MemoryBus::new(1, Faults::default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        bus.set_time(now.as_millis() as i64);
        Self { folder: tempfile::tempdir().unwrap(), bus, cycle, patience }
    }

    fn node(&self, name: &str) -> Arc<Node> {
        let options = NodeOptions::default().data_dir(self.folder.path().join(name)).workers(2);
        Arc::new(options.sink(collect::Collected::default()).open().unwrap())
    }

    fn join(&self, name: &str) -> Peer {
        let node = self.node(name);
        let member = MemberOptions {
            prefix: "t".to_owned(),
            name: Name::new(name).unwrap(),
            host: Text::new(name).unwrap(),
            capacity: 1,
            address: Text::new("127.0.0.1:1").unwrap(),
            replication: 1,
        };
        let cycle = CycleSettings { every: Some(self.cycle), bytes: None, records: None };
        let options = ClusterOptions {
            member,
            partitions: None,
            units: UnitOptions { cycle, ..UnitOptions::default() },
            door: DoorOptions { patience: self.patience, ..DoorOptions::default() },
            carrier: CarrierOptions::default(),
        };
        let bus = Arc::new(self.bus.clone());
        let cluster = Cluster::join(Arc::clone(&node), bus, options, Box::new(|_, _| {})).unwrap();
        Peer { node, cluster }
    }

    /// A node that runs all units of a job.
    fn alone(&self, job: &str, units: usize) -> Peer {
        let peer = self.join("a");
        let checked =
            JobFile::parse("j.yaml", job, &[]).and_then(|file| file.check(peer.node.check_options()));
        peer.cluster.submit(&checked.unwrap_or_else(|mistakes| panic!("{mistakes}"))).unwrap();
        eventually("all units run", || peer.figures().units.len() == units && peer.has_door());
        peer
    }

    fn of(&self, stage: &str, partition: i32) -> TopicPartition {
        TopicPartition::new(format!("t.j.{stage}"), partition)
    }

    /// The ends of the partitions of a stage's topic.
    fn ends(&self, stage: &str) -> Vec<i64> {
        (0..PARTITIONS).map(|partition| self.bus.bounds(&self.of(stage, partition)).unwrap().end).collect()
    }

    fn frames(&self, of: &TopicPartition) -> Vec<Frame> {
        let messages = self.bus.committed(of).into_iter();
        messages.map(|message| Frame::parse(&message.value.unwrap()).unwrap()).collect()
    }

    /// Rows of a stage's topic that count, of all partitions.
    fn count(&self, stage: &str) -> usize {
        let rows = (0..PARTITIONS).map(|partition| {
            let mut through = Through::default();
            let counts = |frame: Frame| {
                let Frame::Rows(frame) = frame else { return 0 };
                let (head, marks) = (&frame.head, &frame.places.marks);
                match through.take(head.origin, head.after, marks) {
                    Verdict::From(first) => marks.len() - first,
                    Verdict::Gap(_) => 0,
                }
            };
            self.frames(&self.of(stage, partition)).into_iter().map(counts).sum::<usize>()
        });
        rows.sum()
    }

    /// Incarnations in the refusals that have come to a node.
    fn refusals(&self, node: &str) -> Vec<u64> {
        let messages = self.bus.committed(&TopicPartition::new(format!("t.reply.{node}"), 0));
        let parsed =
            messages.iter().map(|message| Answers::parse(message.value.as_deref().unwrap()).unwrap());
        parsed.filter(Answers::is_refusal).map(|message| message.incarnation).collect()
    }

    fn append(&self, to: &TopicPartition, value: Vec<u8>) {
        let message = Stored { offset: 0, timestamp: 0, key: None, value: Some(value), headers: Vec::new() };
        self.bus.append(to, message);
    }

    fn lose_next(&self, of: &TopicPartition) {
        self.bus.lose_next(of, 1);
    }

    fn is_lost(&self, of: &TopicPartition) -> bool {
        self.bus.to_lose(of) == 0
    }
}

impl Peer {
    fn has_door(&self) -> bool {
        self.node.job("j").is_some_and(|job| job.ingress("records").is_some())
    }

    fn figures(&self) -> NodeFigures {
        self.cluster.view().figures()
    }

    fn unit(&self, stage: &str, partition: i32) -> UnitSnapshot {
        let units = self.cluster.view().snapshot(Some("j")).unwrap().units;
        let is_it = |unit: &UnitSnapshot| unit.stage == stage && unit.partition == partition as u32;
        units.into_iter().find(is_it).unwrap()
    }

    fn ask(&self, body: String) -> Asked {
        let job = self.node.job("j").unwrap();
        Asked(job.ingress("records").unwrap().submit(body.into(), true).unwrap().replies.unwrap())
    }

    fn tell(&self, body: String) {
        let job = self.node.job("j").unwrap();
        drop(job.ingress("records").unwrap().submit(body.into(), false).unwrap());
    }

    /// How long ago a unit of the first stage has committed.
    fn commit_age(&self, partition: i32) -> Option<Duration> {
        let units = self.figures().units;
        let is_it = |(labels, _): &&(thalweg_node::cluster_view::UnitLabels, _)| {
            labels.stage == FIRST && labels.partition == partition.to_string()
        };
        units.iter().find(is_it).and_then(|(_, unit)| unit.commit_age)
    }
}

impl Asked {
    fn wait(mut self) -> Result<String, Unanswered> {
        let mut all = std::pin::pin!(self.0.all());
        let start = Instant::now();
        loop {
            match all.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(text) => return text.map(|text| String::from_utf8(text).unwrap()),
                Poll::Pending => assert!(start.elapsed() < LIMIT, "no reply"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What a client hears of records whose outcome is unknown.
    fn unknown(self) -> String {
        match self.wait() {
            Err(Unanswered::Overdue(said)) => said.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

fn record(n: i64, card: &str) -> String {
    format!("{{\"n\":{n},\"t\":{},\"card\":\"{card}\"}}\n", TIME + n)
}

fn sale(n: i64, card: &str, shop: &str) -> String {
    format!("{{\"n\":{n},\"t\":{},\"card\":\"{card}\",\"shop\":\"{shop}\"}}\n", TIME + n)
}

fn grown(before: &[i64], after: &[i64]) -> i32 {
    let grown: Vec<i32> =
        (0..).zip(before.iter().zip(after)).filter(|(_, (a, b))| a < b).map(|(at, _)| at).collect();
    assert_eq!(grown.len(), 1, "{before:?} and {after:?}");
    grown[0]
}

/// The incarnation of the door that sent the last rows of a partition, and the request of its last row.
fn last_sender(site: &Site, of: &TopicPartition) -> (u64, Option<u64>) {
    let last = site.frames(of).into_iter().rev().find_map(|frame| match frame {
        Frame::Rows(rows) => Some(rows),
        _ => None,
    });
    let last = last.unwrap();
    let Origin::Door { incarnation } = last.head.origin else { panic!("a door") };
    let request = last.places.replies.last().cloned().flatten().map(|reply| reply.request);
    (incarnation, request)
}

#[test]
fn a_door_whose_rows_are_refused_goes_on_as_a_new_incarnation() {
    let site = Site::new(Duration::from_millis(50), Duration::from_secs(8));
    let a = site.alone(JOB, 8);
    let before = site.ends("features");
    assert!(a.ask(record(1, "x")).wait().unwrap().contains("\"c\":1,\"s\":1}"));
    let x = site.of("features", grown(&before, &site.ends("features")));
    let (first, _) = last_sender(&site, &x);

    // Acknowledged, and not there.
    site.lose_next(&x);
    let lost = a.ask(record(2, "x"));
    eventually("it is lost", || site.is_lost(&x));
    let refused = a.ask(record(3, "x"));
    eventually("the door hears of it", || a.figures().doors[0].1.refusals == 1);
    let since = Instant::now();
    // A client whose record is written may be answered yet, by whoever has it.
    let (_, request) = last_sender(&site, &x);
    let mut answer = AnswersBuilder::new();
    answer.push(request.unwrap(), b"{\"answered\":\"anyway\"}");
    let replies = TopicPartition::new("t.reply.a", 0);
    site.append(&replies, answer.finish(first));
    assert_eq!(refused.wait().unwrap(), "{\"answered\":\"anyway\"}\n");

    // What comes later counts, and what was on its way is not sent again.
    let line = a.ask(record(5, "x")).wait().unwrap();
    assert!(line.contains("\"c\":2,\"s\":6}"), "{line}");
    let (second, _) = last_sender(&site, &x);
    assert_ne!(first, second);
    // Frames of the former incarnation that still come are refused now and then, and the door does not heed it.
    let stray = site.bus.committed(&x).into_iter().rev().find_map(|message| {
        let value = message.value.unwrap();
        match Frame::parse(&value).unwrap() {
            Frame::Rows(rows) => (rows.head.origin == Origin::Door { incarnation: first }
                && rows.head.after > Mark::START)
                .then_some(value),
            _ => None,
        }
    });
    for _ in 0..50 {
        site.append(&x, stray.clone().unwrap());
    }
    assert!(a.ask(record(6, "x")).wait().unwrap().contains("\"c\":3,\"s\":12}"));
    let refusals = site.refusals("a");
    assert!(refusals.iter().all(|incarnation| *incarnation == first), "{refusals:?}");
    assert!(refusals.len() as u64 <= 2 + since.elapsed().as_secs(), "{} refusals", refusals.len());
    site.append(&replies, AnswersBuilder::new().finish(first));
    assert!(a.ask(record(7, "x")).wait().unwrap().contains("\"c\":4,\"s\":19}"));
    assert_eq!((last_sender(&site, &x).0, a.figures().doors[0].1.refusals), (second, 1));
    // It is written, so it was left to its time.
    assert!(lost.unknown().contains("no answer within 8s"));
    assert_eq!(site.count("features"), 4, "as the log has it");

    // Nobody waits for answers: frames do not say whose door it is.
    site.lose_next(&x);
    a.tell(record(8, "x"));
    eventually("it is lost", || site.is_lost(&x));
    a.tell(record(9, "x"));
    eventually("the door hears of it", || a.figures().doors[0].1.refusals == 2);
    assert!(a.ask(record(10, "x")).wait().unwrap().contains("\"c\":5,\"s\":29}"));
    assert_eq!(site.count("features"), 5, "as the log has it");

    // A copy that follows refuses nothing, and one that answers does.
    drop(a);
    let Some(Frame::Spec(spec)) = site.frames(&x).into_iter().next() else { panic!("a text comes first") };
    let reads = |name: &str, is_active: bool| {
        let node = site.node(name);
        let before = site.refusals("a").len();
        let (texts, bus) = (collect::texts(&node), Arc::new(site.bus.clone()));
        let post = Some(Arc::new(Post::new(Arc::clone(&bus) as _, "t", Arc::new(SystemClock))));
        let folder = UnitsFolder::open(node, "j", texts, Arc::new(Spec { ..spec.clone() })).unwrap();
        let options = UnitOptions { post, ..UnitOptions::default() };
        let units = Units::open(folder, 0, bus, Arc::clone(&x.topic), None, options).unwrap();
        let unit = units.start(x.partition as u32, is_active).unwrap();
        let end = site.bus.bounds(&x).unwrap().end as u64;
        let position = || unit.counts.position.load(std::sync::atomic::Ordering::Relaxed);
        eventually("all is read", || position() == end);
        site.refusals("a").len() - before
    };
    assert_eq!(reads("follower", false), 0);
    assert!(reads("other", true) > 0);
}

/// The partitions of a card in the first stage, and of a shop in the second.
struct Places {
    card: i32,
    shop: i32,
}

/// Sells once, and sees where that went.
fn sell(site: &Site, peer: &Peer, n: i64, card: &str, shop: &str) -> (String, Places) {
    let (first, second) = (site.ends(FIRST), site.ends(SECOND));
    let line = peer.ask(sale(n, card, shop)).wait().unwrap();
    let card = grown(&first, &site.ends(FIRST));
    (line, Places { card, shop: grown(&second, &site.ends(SECOND)) })
}

#[test]
fn rows_between_units_that_are_lost_are_sent_again() {
    const NEVER: Duration = Duration::from_secs(3_600);
    // The same sales, with and without a loss.
    let run = |loses: bool| {
        let site = Site::new(NEVER, Duration::from_secs(40));
        let a = site.alone(CHAIN, 16);
        let mut lines = BTreeMap::new();
        let mut n = 0;
        let mut round = |lines: &mut BTreeMap<i64, String>| {
            for card in 0..3 {
                for shop in 0..2 {
                    n += 1;
                    let sale = sale(n, &format!("card {card}"), &format!("shop {shop}"));
                    lines.insert(n, a.ask(sale).wait().unwrap());
                }
            }
        };
        round(&mut lines);
        let (line, at) = sell(&site, &a, 100, "card 0", "shop 0");
        lines.insert(100, line);
        let of = site.of(SECOND, at.shop);
        if loses {
            site.lose_next(&of);
        }
        let first = a.ask(sale(101, "card 0", "shop 0"));
        if loses {
            eventually("it is lost", || site.is_lost(&of));
        } else {
            eventually("it is read", || site.count(SECOND) == 8);
        }
        let second = a.ask(sale(102, "card 0", "shop 0"));
        if loses {
            let mut seen = String::new();
            eventually("the gap is shown", || {
                let unit = a.unit(SECOND, at.shop);
                seen = unit.explanation;
                unit.gaps.iter().any(|gap| gap.stage == FIRST && gap.partition == at.card as u32)
            });
            assert!(seen.contains(&format!("gap: rows of j/{FIRST}/{} after mark", at.card)), "{seen}");
        }
        lines.insert(101, first.wait().unwrap());
        lines.insert(102, second.wait().unwrap());
        round(&mut lines);
        if loses {
            eventually("the gap is closed", || a.unit(SECOND, at.shop).gaps.is_empty());
            // From its beginning, as it has not committed, and that twice: it has gone back once.
            let from_start = |frame: &Frame| match frame {
                Frame::Rows(rows) => {
                    rows.head.after == Mark::START
                        && rows.head.origin == Origin::Unit { stage: 0, partition: at.card as u32 }
                }
                _ => false,
            };
            let openings = site.frames(&of).iter().filter(|frame| from_start(frame)).count();
            assert_eq!(openings, 2);
        }
        assert_eq!(site.count(SECOND), lines.len());
        lines
    };
    let (with, without) = (run(true), run(false));
    assert_eq!(with, without);
}

#[test]
fn a_unit_that_cannot_make_lost_rows_again_stops_and_names_them() {
    let site = Site::new(Duration::from_millis(20), Duration::from_secs(3));
    let a = site.alone(CHAIN, 16);
    let (_, lost_at) = sell(&site, &a, 1, "card 0", "shop 0");
    // Another shop that is in another partition, and another card.
    let mut n = 1;
    let mut other = |card: &str, is_it: &dyn Fn(&Places) -> bool, by_card: bool| {
        (0..).map(|number| format!("other {number}")).find(|name| {
            n += 1;
            let (card, shop) = if by_card { (name.as_str(), "shop 0") } else { (card, name.as_str()) };
            is_it(&sell(&site, &a, n, card, shop).1)
        })
    };
    let shop = other("card 0", &|at| at.shop != lost_at.shop, false).unwrap();
    let card = other("", &|at| at.card != lost_at.card, true).unwrap();

    let of = site.of(SECOND, lost_at.shop);
    site.lose_next(&of);
    let lost = a.ask(sale(100, "card 0", "shop 0"));
    eventually("it is lost", || site.is_lost(&of));
    // Its unit commits, so it does not make the row again.
    for n in [101, 102] {
        assert!(a.ask(sale(n, "card 0", &shop)).wait().is_ok());
        let since = Instant::now();
        eventually("a commit", || a.commit_age(lost_at.card).is_some_and(|age| age < since.elapsed()));
    }
    let refused = a.ask(sale(103, "card 0", "shop 0"));
    let mut failure = None;
    eventually("the unit stops", || {
        failure = a.unit(FIRST, lost_at.card).failure;
        failure.is_some()
    });
    let failure = failure.unwrap();
    for expected in [
        format!("unit \"j/{FIRST}/{}\" cannot send rows again", lost_at.card),
        format!("the unit that reads {of} has rows up to mark"),
        "expected those up to".to_owned(),
        "and has read its log up to offset".to_owned(),
        "the last commit of the sender is at position".to_owned(),
    ] {
        assert!(failure.contains(&expected), "{expected}: {failure}");
    }
    assert!(lost.unknown().contains("no answer within") && refused.unknown().contains("no answer within"));
    eventually("it is in trouble", || a.unit(FIRST, lost_at.card).trouble == ["a"]);
    // It is not started again, and the others go on.
    let read = a.cluster.state().next();
    eventually("beats of seven seconds", || a.cluster.state().next() > read + 28);
    assert_eq!(a.unit(FIRST, lost_at.card).failure.as_deref(), Some(&*failure));
    assert!(a.ask(sale(110, &card, "shop 0")).wait().unwrap().contains("\"n\":110"));

    // As the error says: the unit begins anew, and sends all again.
    drop(a);
    let folder = site.folder.path().join("a/jobs/j/units").join(FIRST).join(lost_at.card.to_string());
    std::fs::remove_dir_all(folder).unwrap();
    let a = site.alone(CHAIN, 16);
    eventually("the gap is mended", || {
        let text = a.ask(sale(200, "card 0", "shop 0")).wait();
        text.is_ok()
    });
    assert_eq!(a.unit(FIRST, lost_at.card).failure, None);
    assert!(a.unit(SECOND, lost_at.shop).gaps.is_empty());
}
