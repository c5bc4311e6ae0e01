//! The nodes of a seed, and the thread that lets them go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use fastrand::Rng;
use thalweg_cluster::control::{Name, Text};
use thalweg_cluster::frame::Frame;
use thalweg_cluster::positions::{Through, Verdict};
use thalweg_connect::source::kafka::KafkaPlugin;
use thalweg_connect::{Replies, Unanswered};
use thalweg_flow::{Clock as _, CycleSettings, ManualClock};
use thalweg_kafka::memory::{Cut, Faults, HeldBack, MemoryBus, Stored};
use thalweg_kafka::{Bus as _, TopicPartition};
use thalweg_node::cluster::{
    Actors, ByHand, CarrierOptions, Cluster, ClusterOptions, DoorOptions, MemberOptions, UnitOptions,
};
use thalweg_node::{JobFile, Node, NodeOptions};
use thalweg_types::Micros;

use crate::faults::{Counts, Fault, plan};

const SECOND: Micros = 1_000_000;
const MILLISECOND: Micros = 1_000;

/// When a run begins, microseconds since 1970.
const BEGIN: Micros = 1_700_000_000 * SECOND;

/// When faults begin and end, from the begin of a run.
const FAULTS: (Micros, Micros) = (2 * SECOND, 9 * SECOND);

/// From when on records come no more.
const LAST_RECORD: Micros = 11 * SECOND;

/// A run that has not come to rest by then never will.
const LIMIT: Micros = 120 * SECOND;

/// Most nodes of a run.
const MOST: usize = 7;

/// One key, and two of one operator.
const ONE: &str = "[card]";
const TWO: &str = "[card, shop]";

const JOB: &str = "
name: j
sources:
  records:
    type: http
    time: t
    max_ahead: none
    lateness: 2s
    schema: { n: int64, t: timestamp(ms), card: string, shop: string, amount: float64 }
operators:
  features:
    type: metrics
    input: records
    partition_by: KEYS
    partitions: 2
    queries:
      cards: SELECT sum(amount) AS s, count(*) AS c, avg(amount) AS a FROM records GROUP BY card OVER SLIDING 5 SECONDS
      rows: SELECT first(n) AS f, prev(amount) AS p FROM records GROUP BY card OVER ROWS 3
SHOPS
sinks: { out: { type: 'null', input: features } }
";

const SHOPS: &str = "      shops: SELECT count(*) AS c, sum(n) AS s, sum(amount) AS a FROM records GROUP BY shop OVER INFINITE";

/// How records come.
const HTTP: &str = "type: http";
const TOPIC: &str = "type: kafka\n    brokers: nowhere:1\n    topics: [records]";
const FILE: &str =
    "type: file\n    format: ndjson\n    follow: true\n    poll: 1ms\n    node: n0\n    path: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enters {
    /// Clients send them to any node.
    Doors,
    /// By a topic of others, which is a stage before those of the keys.
    Topic,
    /// By a file at the first node, which is such a stage, too.
    File,
}

/// Partitions of that topic.
const READ: i32 = 3;

/// The second key in an operator of its own.
const NEXT: &str = "
  shops:
    type: metrics
    input: features
    partition_by: [shop]
    partitions: 2
    queries:
      shops: SELECT count(*) AS c, sum(n) AS s, sum(amount) AS a FROM features GROUP BY shop OVER INFINITE";

/// The same, side by side with the first.
const SIDE: &str = "
  shops:
    type: metrics
    input: records
    partition_by: [shop]
    partitions: 2
    queries:
      shops: SELECT count(*) AS c, sum(n) AS s, sum(amount) AS a FROM records GROUP BY shop OVER INFINITE";

/// A node's name, whether it runs, and how it is treated.
pub(crate) struct Peer {
    name: String,
    clock: Arc<ManualClock>,
    actors: Arc<ByHand>,
    pub(crate) live: Option<Live>,
    /// It does nothing before.
    stalled: Micros,
    /// How it is cut off, and until when.
    cut: Option<(Cut, Micros)>,
    is_leaving: bool,
    /// When it is started again.
    again: Option<Micros>,
}

pub(crate) struct Live {
    /// Dropped first.
    pub(crate) cluster: Cluster,
    node: Arc<Node>,
}

/// A request whose client waits.
struct Asked {
    records: Vec<i64>,
    replies: Replies,
    text: Vec<u8>,
}

pub(crate) struct World {
    seed: u64,
    rng: Rng,
    pub(crate) bus: MemoryBus,
    /// From the begin of the run.
    now: Micros,
    pub(crate) peers: Vec<Peer>,
    ids: Arc<AtomicU64>,
    folder: tempfile::TempDir,
    pub(crate) job: String,
    cycle: Duration,
    asked: Vec<Asked>,
    next_record: i64,
    /// What clients have heard, by record.
    pub(crate) answers: BTreeMap<i64, String>,
    /// Records of which clients have heard that they count for nothing.
    pub(crate) unsent: Vec<i64>,
    /// Consumers that get nothing before.
    delayed: BTreeMap<u64, Micros>,
    lossy: Micros,
    /// What has happened, if somebody wants to compare.
    pub(crate) trace: Option<Vec<String>>,
    pub(crate) counts: Counts,
}

/// What may go on.
enum Move {
    Step(usize, u64),
    Give(usize, HeldBack),
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let bus = MemoryBus::new(seed, Faults::default());
        bus.gate();
        bus.set_time(BEGIN / MILLISECOND);
        bus.make_topic("records", READ);
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let path = folder.path().join("records.ndjson");
        std::fs::write(&path, "").unwrap();
        let file = format!("{FILE}{}", path.display());
        let job = match rng.u8(0..8) {
            0 => JOB.replace("KEYS", ONE).replace("SHOPS\n", ""),
            1 => JOB.replace("KEYS", ONE).replace("SHOPS\n", "").replace(HTTP, TOPIC),
            2 => JOB.replace("KEYS", TWO).replace("SHOPS", SHOPS).replace(HTTP, TOPIC),
            3 => JOB.replace("KEYS", ONE).replace("SHOPS\n", "").replace(HTTP, &file),
            4 => JOB.replace("KEYS", TWO).replace("SHOPS", SHOPS).replace(HTTP, &file),
            kind @ (5 | 6) => JOB
                .replace("KEYS", ONE)
                .replace("SHOPS", if kind == 5 { NEXT } else { SIDE })
                .replace("input: features }", "input: shops }")
                .replace("lateness: 2s", "lateness: 2s\n    reply: shops"),
            _ => JOB.replace("KEYS", TWO).replace("SHOPS", SHOPS),
        };
        let cycle = Duration::from_millis(rng.u64(100..2_000));
        let mut world = Self {
            seed,
            bus,
            now: 0,
            peers: Vec::new(),
            ids: Arc::default(),
            folder,
            job,
            cycle,
            asked: Vec::new(),
            next_record: 0,
            answers: BTreeMap::new(),
            unsent: Vec::new(),
            delayed: BTreeMap::new(),
            lossy: 0,
            trace: None,
            counts: Counts::default(),
            rng,
        };
        for _ in 0..world.rng.usize(3..=5) {
            world.join();
        }
        let live = world.peers[0].live.as_ref().unwrap();
        let job = JobFile::parse("j.yaml", &world.job, &[]);
        let job = job.and_then(|file| file.check(live.node.check_options()));
        live.cluster.submit(&job.unwrap_or_else(|mistakes| panic!("{mistakes}"))).unwrap();
        world
    }

    /// Topics of the stages, in the order in which rows go through them.
    pub(crate) fn topics(&self) -> Vec<&'static str> {
        match (self.job.contains(TWO), self.job.contains(NEXT) || self.job.contains(SIDE)) {
            (true, _) => vec!["t.j.features-1", "t.j.features-2"],
            (_, true) => vec!["t.j.features", "t.j.shops"],
            _ => vec!["t.j.features"],
        }
    }

    pub(crate) fn enters(&self) -> Enters {
        match (self.job.contains(TOPIC), self.job.contains(FILE)) {
            (true, _) => Enters::Topic,
            (_, true) => Enters::File,
            _ => Enters::Doors,
        }
    }

    /// Whether the run is a function of its seed: a file is looked at in the time of the machine.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.enters() != Enters::File
    }

    /// How many units there are.
    fn units(&self) -> usize {
        let before = match self.enters() {
            Enters::Doors => 0,
            Enters::Topic => READ as usize,
            Enters::File => 1,
        };
        before + 2 * self.topics().len()
    }

    /// How many records have been written, or given to nodes.
    pub(crate) fn written(&self) -> i64 {
        self.next_record
    }

    fn join(&mut self) {
        let name = format!("n{}", self.peers.len());
        self.peers.push(Peer {
            name,
            clock: Arc::new(ManualClock::new(BEGIN + self.now)),
            actors: Arc::default(),
            live: None,
            stalled: 0,
            cut: None,
            is_leaving: false,
            again: None,
        });
        self.start(self.peers.len() - 1);
    }

    /// Starts a process of a node.
    fn start(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        assert!(peer.live.is_none(), "one process at a time");
        peer.clock = Arc::new(ManualClock::new(BEGIN + self.now));
        peer.actors = Arc::default();
        (peer.stalled, peer.is_leaving, peer.again) = (0, false, None);
        let (ids, seed) = (Arc::clone(&self.ids), self.seed);
        let mut options = NodeOptions::default().data_dir(self.folder.path().join(&peer.name)).workers(1);
        options.clock = Arc::clone(&peer.clock) as _;
        options.io_threads = 0;
        options.actors = Actors::ByHand(Arc::clone(&peer.actors));
        options.ids = Arc::new(move || {
            let number = ids.fetch_add(1, Ordering::Relaxed);
            Rng::with_seed(seed ^ (number << 32)).u64(1..)
        });
        let client = self.bus.client(&peer.name);
        let plugin = KafkaPlugin::on(Arc::new(move |_| Ok(Arc::new(client.clone()))));
        let node = Arc::new(options.replace_source(plugin).open().unwrap());
        let member = MemberOptions {
            prefix: "t".to_owned(),
            name: Name::new(&peer.name).unwrap(),
            host: Text::new(&peer.name).unwrap(),
            capacity: 1,
            address: Text::new("127.0.0.1:1").unwrap(),
            replication: 1,
        };
        let cycle = CycleSettings { every: Some(self.cycle), bytes: None, records: None };
        let options = ClusterOptions {
            member,
            partitions: None,
            units: UnitOptions { cycle, ..UnitOptions::default() },
            door: DoorOptions { patience: Duration::from_secs(5), ..DoorOptions::default() },
            carrier: CarrierOptions::default(),
        };
        let bus = Arc::new(self.bus.client(&peer.name));
        let cluster = Cluster::join(Arc::clone(&node), bus, options, Box::new(|_, _| {})).unwrap();
        peer.live = Some(Live { cluster, node });
    }

    /// Waits until the threads of a node have nothing to do.
    fn settle(&self, index: usize) {
        let Some(live) = &self.peers[index].live else { return };
        let start = Instant::now();
        let mut looks = 0;
        while !live.node.is_at_rest() {
            looks += 1;
            if looks > 1_000 {
                assert!(start.elapsed() < crate::waiting::LIMIT, "a node does not come to rest");
                std::thread::sleep(Duration::from_micros(20));
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn is_awake(&self, index: usize) -> bool {
        let peer = &self.peers[index];
        peer.live.is_some() && peer.stalled <= self.now
    }

    fn awake(&self) -> Vec<usize> {
        (0..self.peers.len()).filter(|index| self.is_awake(*index)).collect()
    }

    /// What may go on at this moment.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for index in self.awake() {
            let peer = &self.peers[index];
            let due = peer.actors.due(peer.clock.read().steady);
            moves.extend(due.into_iter().map(|(number, _)| Move::Step(index, number)));
        }
        for held in self.bus.held_back() {
            let is_delayed = self.delayed.get(&held.reader).is_some_and(|until| *until > self.now);
            let of = self.peers.iter().position(|peer| *peer.name == *held.client);
            if let Some(index) = of
                && self.is_awake(index)
                && self.peers[index].cut.is_none_or(|(cut, _)| !cut.reads)
                && !is_delayed
            {
                moves.push(Move::Give(index, held));
            }
        }
        moves
    }

    /// Notes what has just happened, and how many messages each log has by then.
    fn note(&mut self, what: impl FnOnce() -> String) {
        let is_shown = std::env::var_os("THALWEG_TRACE").is_some();
        if self.trace.is_none() && !is_shown {
            return;
        }
        let mut ends = Vec::new();
        for topic in self.bus.topics(None).unwrap() {
            for partition in 0..topic.partitions {
                ends.push(self.bus.bounds(&TopicPartition::new(&*topic.name, partition)).unwrap().end);
            }
        }
        let line = format!("{} {} {ends:?}", self.now, what());
        if is_shown {
            eprintln!("{line}");
        }
        self.trace.iter_mut().for_each(|trace| trace.push(line.clone()));
    }

    fn go(&mut self, chosen: Move) {
        let name = match &chosen {
            Move::Step(index, number) => format!("step {} {number}", self.peers[*index].name),
            Move::Give(index, held) => format!("give {} {held:?}", self.peers[*index].name),
        };
        let index = match chosen {
            Move::Step(index, number) => {
                self.counts.steps += 1;
                let peer = &self.peers[index];
                peer.actors.step(number, peer.clock.read().steady);
                index
            }
            Move::Give(index, HeldBack { reader, of, messages, .. }) => {
                self.counts.deliveries += 1;
                // How many messages of answers a unit makes of several depends on how long its tasks work at a time.
                let is_of_stage = self.topics().contains(&&*of.topic);
                let some = if is_of_stage { 1 } else { self.rng.i64(1..=messages) };
                self.bus.deliver(reader, some);
                index
            }
        };
        self.settle(index);
        self.note(|| name);
    }

    /// Lets time pass until something wants it, for some milliseconds at least.
    fn pass_time(&mut self, until: Micros) {
        let least = self.now + self.rng.i64(1..20) * MILLISECOND;
        let due = self.awake().into_iter().filter_map(|index| {
            let peer = &self.peers[index];
            let due = peer.actors.next_due()?;
            Some(self.now + due.saturating_sub(peer.clock.read().steady).max(0))
        });
        let next = due.min().unwrap_or(until).min(until).max(least);
        self.now = next;
        self.bus.pass_time((BEGIN + next) / MILLISECOND);
        for index in self.awake() {
            let clock = &self.peers[index].clock;
            clock.advance(BEGIN + next - clock.read().wall);
            self.settle(index);
        }
        self.note(|| "time".to_owned());
    }

    /// Some records, and their numbers.
    fn some_records(&mut self) -> (String, Vec<i64>) {
        let (mut body, mut records) = (String::new(), Vec::new());
        for _ in 0..self.rng.usize(1..4) {
            let n = self.next_record;
            self.next_record += 1;
            // Some are late.
            let back = if self.rng.u8(0..10) == 0 { 4_000 } else { 1_500 };
            let time = (BEGIN + self.now) / MILLISECOND - self.rng.i64(0..back);
            let (card, shop) = (self.rng.u8(0..5), self.rng.u8(0..4));
            let amount = f64::from(self.rng.i32(-1_000_000..1_000_000)) / 7.0;
            body += &format!(
                "{{\"n\":{n},\"t\":{time},\"card\":\"c{card}\",\"shop\":\"s{shop}\",\"amount\":{amount}}}\n"
            );
            records.push(n);
        }
        self.counts.records += records.len() as u64;
        (body, records)
    }

    /// Has some records come.
    fn let_come(&mut self) {
        match self.enters() {
            Enters::Doors => self.ask(),
            Enters::Topic => self.write(),
            Enters::File => {
                use std::io::Write as _;
                let (body, _) = self.some_records();
                let path = self.folder.path().join("records.ndjson");
                let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
                file.write_all(body.as_bytes()).unwrap();
            }
        }
    }

    /// Writes some records to the topic, a message.
    fn write(&mut self) {
        let (body, _) = self.some_records();
        let to = TopicPartition::new("records", self.rng.i32(0..READ));
        let timestamp = (BEGIN + self.now) / MILLISECOND - self.rng.i64(0..1_500);
        let value = Some(body.into_bytes());
        self.bus.append(&to, Stored { offset: 0, timestamp, key: None, value, headers: Vec::new() });
    }

    /// Puts some records into a node.
    fn ask(&mut self) {
        let awake: Vec<usize> = self.awake();
        if awake.is_empty() {
            return;
        }
        let index = awake[self.rng.usize(0..awake.len())];
        let Some(live) = &self.peers[index].live else { return };
        let Some(job) = live.node.job("j") else { return };
        let Some(door) = job.ingress("records") else { return };
        let (body, records) = self.some_records();
        // A node that ends takes none.
        match door.submit(body.into(), true) {
            Ok(submitted) => {
                let replies = submitted.replies.unwrap();
                self.asked.push(Asked { records, replies, text: Vec::new() });
            }
            Err(_) => self.unsent.extend(records),
        }
        self.settle(index);
    }

    /// Hears what has become of requests.
    fn hear(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut asked = std::mem::take(&mut self.asked);
        asked.retain_mut(|request| {
            loop {
                match request.replies.poll_next(&mut context) {
                    Poll::Pending => break true,
                    Poll::Ready(Ok(Some(lines))) => request.text.extend_from_slice(&lines),
                    Poll::Ready(Ok(None)) => {
                        let text = std::str::from_utf8(&request.text).unwrap();
                        let lines: Vec<&str> = text.lines().collect();
                        assert_eq!(lines.len(), request.records.len(), "a line for each record: {text}");
                        self.counts.answered += lines.len() as u64;
                        for (n, line) in request.records.iter().zip(lines) {
                            self.answers.insert(*n, line.to_owned());
                        }
                        break false;
                    }
                    Poll::Ready(Err(Unanswered::Unsent(_))) => {
                        self.counts.unsent += request.records.len() as u64;
                        self.unsent.extend(&request.records);
                        break false;
                    }
                    Poll::Ready(Err(_)) => {
                        self.counts.unknown += request.records.len() as u64;
                        break false;
                    }
                }
            }
        });
        self.asked = asked;
    }

    /// Ends a process at once.
    fn kill(&mut self, index: usize) {
        drop(self.peers[index].live.take());
        self.peers[index].cut = None;
        self.cut(index, Cut::default());
    }

    /// Cuts a node off from brokers, or connects it again, which its units hear of.
    fn cut(&self, index: usize, cut: Cut) {
        self.bus.cut(&self.peers[index].name, cut);
        self.settle(index);
    }

    fn happen(&mut self, fault: Fault) {
        let healthy: Vec<usize> = self
            .awake()
            .into_iter()
            .filter(|index| self.peers[*index].cut.is_none() && !self.peers[*index].is_leaving)
            .collect();
        // Somebody has to be left who works.
        let needs_another = !matches!(fault, Fault::Delay | Fault::LostAcknowledgements | Fault::Join);
        if healthy.is_empty() || (needs_another && healthy.len() < 2) {
            return;
        }
        let mut index = healthy[self.rng.usize(0..healthy.len())];
        // One that cannot send has rows that nobody has.
        let cut = self.peers.iter().position(|peer| peer.live.is_some() && peer.cut.is_some());
        if let (Fault::Kill | Fault::Lose, Some(cut), true) = (fault, cut, self.rng.u8(0..4) > 0) {
            index = cut;
        }
        let for_seconds = |rng: &mut Rng, most: i64| rng.i64(SECOND / 5..most * SECOND);
        match fault {
            Fault::Delay => {
                let until = self.now + for_seconds(&mut self.rng, 3);
                let name = &*self.peers[index].name;
                let readers: Vec<u64> = self
                    .bus
                    .readers()
                    .into_iter()
                    .filter(|of| *of.client == *name)
                    .map(|of| of.reader)
                    .collect();
                for reader in readers {
                    if self.rng.bool() {
                        self.delayed.insert(reader, until);
                    }
                }
            }
            Fault::LostAcknowledgements => {
                self.lossy = self.now + for_seconds(&mut self.rng, 2);
                let (lost_acknowledgements, given_up) = (self.rng.u32(1..60), self.rng.u32(1..60));
                let (delays, refused_firsts) = (self.rng.u32(0..600), self.rng.u32(0..600));
                self.bus.set_faults(Faults {
                    delays,
                    lost_acknowledgements,
                    given_up,
                    refused_firsts,
                    ..Faults::default()
                });
            }
            Fault::Stall => self.peers[index].stalled = self.now + for_seconds(&mut self.rng, 6),
            Fault::CutWrites | Fault::CutReads => {
                let cut = Cut { writes: fault == Fault::CutWrites, reads: fault == Fault::CutReads };
                self.cut(index, cut);
                self.peers[index].cut = Some((cut, self.now + for_seconds(&mut self.rng, 5)));
            }
            Fault::Kill | Fault::Lose => {
                self.kill(index);
                // What is lost with the node that has the file nobody can make again.
                let is_lost = fault == Fault::Lose && (index > 0 || self.enters() != Enters::File);
                if is_lost {
                    std::fs::remove_dir_all(self.folder.path().join(&self.peers[index].name)).unwrap();
                }
                // Some are back before anybody has missed them, and go on from their own commits.
                let most = if self.rng.u8(0..3) > 0 { 2 } else { 8 };
                self.peers[index].again = Some(self.now + for_seconds(&mut self.rng, most));
            }
            Fault::Join => {
                if self.peers.len() == MOST {
                    return;
                }
                self.join();
            }
            Fault::Leave => {
                self.peers[index].is_leaving = true;
                self.peers[index].live.as_ref().unwrap().cluster.leave();
            }
        }
        self.counts.note(fault);
        self.note(|| format!("{fault:?} {index}"));
    }

    /// What ends or comes back by itself.
    fn look(&mut self) {
        if self.lossy > 0 && self.lossy <= self.now {
            self.lossy = 0;
            self.bus.set_faults(Faults::default());
        }
        for index in 0..self.peers.len() {
            if self.peers[index].cut.take_if(|(_, until)| *until <= self.now).is_some() {
                self.cut(index, Cut::default());
            }
            let peer = &self.peers[index];
            if peer.again.is_some_and(|at| at <= self.now) {
                self.start(index);
                continue;
            }
            if let Some(live) = &peer.live {
                if let Some(failure) = live.cluster.failure() {
                    panic!("seed {}: node {} stopped: {}", self.seed, peer.name, failure.chain());
                }
                if live.cluster.has_left() {
                    self.kill(index);
                    // The file is there, and nowhere else.
                    if index == 0 && self.enters() == Enters::File {
                        self.peers[index].again = Some(self.now + SECOND);
                    }
                }
            }
        }
    }

    /// The whole run: faults, and then rest.
    pub(crate) fn run(&mut self) {
        let mut plan = plan(&mut self.rng, FAULTS.0, FAULTS.1);
        plan.reverse();
        let start = Instant::now();
        let mut quiet_since = None;
        let mut next_record = SECOND;
        let mut looked = -SECOND;
        loop {
            if self.now >= looked + 50 * MILLISECOND {
                looked = self.now;
                self.look();
                self.hear();
                if self.enters() == Enters::File {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let is_quiet = self.now > LAST_RECORD && plan.is_empty() && self.is_quiet();
                match quiet_since {
                    _ if !is_quiet => quiet_since = None,
                    None => quiet_since = Some((self.now, self.ends())),
                    Some((since, ends)) => {
                        let now = self.ends();
                        if now != ends {
                            quiet_since = Some((self.now, now));
                        } else if self.now - since > 2 * SECOND {
                            return;
                        } else {
                            quiet_since = Some((since, ends));
                        }
                    }
                }
                if self.now > LIMIT && (self.is_repeatable() || start.elapsed() > crate::waiting::LIMIT) {
                    panic!("seed {}: no rest: {}", self.seed, self.shown());
                }
            }
            if plan.last().is_some_and(|(at, _)| *at <= self.now)
                && let Some((_, fault)) = plan.pop()
            {
                self.happen(fault);
            }
            if self.now >= next_record && self.now < LAST_RECORD {
                next_record = self.now + self.rng.i64(20..300) * MILLISECOND;
                self.let_come();
            }
            let mut moves = self.moves();
            if moves.is_empty() || self.rng.u8(0..40) == 0 {
                self.pass_time(looked + 50 * MILLISECOND);
            } else {
                let chosen = moves.swap_remove(self.rng.usize(0..moves.len()));
                self.go(chosen);
            }
        }
    }

    /// The ends of all partitions of stages.
    fn ends(&self) -> Vec<i64> {
        let of = |topic: &str, partition| {
            self.bus.bounds(&TopicPartition::new(topic, partition)).map_or(0, |b| b.end)
        };
        self.topics().iter().flat_map(|topic| [of(topic, 0), of(topic, 1)]).collect()
    }

    /// Whether all is done that is to be done.
    fn is_quiet(&self) -> bool {
        let is_live = |peer: &&Peer| peer.live.is_some() || peer.again.is_some();
        let live: Vec<&Live> = self.peers.iter().filter_map(|peer| peer.live.as_ref()).collect();
        let is_settled = |live: &&Live| {
            let state = live.cluster.state();
            state.events().is_empty()
                && state.members().count() == self.peers.iter().filter(is_live).count()
                && state.units().count() == self.units()
                && state.units().all(|(unit, known)| state.active(unit).is_some() && known.target.is_none())
        };
        self.asked.is_empty()
            && self
                .peers
                .iter()
                .all(|peer| peer.again.is_none() && peer.stalled <= self.now && peer.cut.is_none())
            && live.iter().all(is_settled)
            && self.actives().is_some_and(|units| {
                let is_read = |(_, lag): (&(String, String), &Option<u64>)| *lag == Some(0);
                let mut logs =
                    units.iter().filter(|((stage, _), _)| stage != "records" || self.is_repeatable());
                logs.all(is_read)
            })
            && (self.is_repeatable() || self.taken() == self.next_record)
    }

    /// How many records count in the first stage that reads a log.
    fn taken(&self) -> i64 {
        let mut taken = 0;
        for partition in 0..2 {
            let mut through = Through::default();
            for stored in self.bus.committed(&TopicPartition::new(self.topics()[0], partition)) {
                let Ok(Frame::Rows(frame)) = Frame::parse(stored.value.as_deref().unwrap()) else { continue };
                let marks = &frame.places.marks;
                if let Verdict::From(first) = through.take(frame.head.origin, frame.head.after, marks) {
                    taken += marks.len() - first;
                }
            }
        }
        taken as i64
    }

    /// The lag of each unit at the node that has it; `None` where one has none, or several.
    pub(crate) fn actives(&self) -> Option<BTreeMap<(String, String), Option<u64>>> {
        let mut units = BTreeMap::new();
        for live in self.peers.iter().filter_map(|peer| peer.live.as_ref()) {
            for (labels, figures) in live.cluster.view().figures().units {
                if figures.failed {
                    return None;
                }
                if figures.active && units.insert((labels.stage, labels.partition), figures.lag).is_some() {
                    return None;
                }
            }
        }
        (units.len() == self.units()).then_some(units)
    }

    fn shown(&self) -> String {
        let mut shown = format!("{} requests wait; ends {:?}; ", self.asked.len(), self.ends());
        for peer in &self.peers {
            let Some(live) = &peer.live else { continue };
            let state = live.cluster.state();
            shown += &format!(
                "\n{}: plan {:?}, events {:?}, members {:?}; actors {:?}",
                peer.name,
                state.plan(),
                state.events(),
                state.members().map(|(name, _)| name.as_str().to_owned()).collect::<Vec<_>>(),
                peer.actors,
            );
            for (unit, known) in state.units() {
                let (active, target) = (state.active(unit), known.target.as_ref());
                shown += &format!(
                    "\n  plan {}/{}: {active:?} then {target:?}",
                    unit.stage.as_str(),
                    unit.partition
                );
            }
            for (labels, figures) in live.cluster.view().figures().units {
                shown += &format!(
                    "\n  unit {}/{}: active {}, failed {}, position {}, lag {:?}",
                    labels.stage,
                    labels.partition,
                    figures.active,
                    figures.failed,
                    figures.position,
                    figures.lag
                );
            }
        }
        shown
    }

    /// The bytes of all logs in one number.
    pub(crate) fn digest(&self) -> [u8; 32] {
        use sha2::Digest as _;
        let mut digest = sha2::Sha256::new();
        for topic in self.bus.topics(None).unwrap() {
            for partition in 0..topic.partitions {
                digest.update(format!("{} {partition}", topic.name));
                for stored in self.bus.committed(&TopicPartition::new(&*topic.name, partition)) {
                    digest.update(stored.timestamp.to_le_bytes());
                    digest.update(stored.value.unwrap_or_default());
                }
            }
        }
        digest.finalize().into()
    }

    /// Where the run keeps its files.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }
}
