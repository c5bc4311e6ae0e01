//! What happens to nodes and to the broker, and how it is known to have happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_harness::process;
use thalweg_harness::random::Random;
use thalweg_harness::service::kafka::{Broker, Release};
use thalweg_harness::way::{Cut, Way};

use super::super::super::super::{eventually, lasting_port};
use super::super::super::{Place, TOPICS, read_all, run, tool_at};
use super::super::{Node, call, object_in, sink, writing_to};
use super::clients::{Clients, Counts};
use super::payments;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and a start with the same data.
    Kill,
    /// SIGKILL, and a start without any data.
    Lose,
    /// SIGSTOP until the others have declared the node dead, then SIGCONT.
    Pause,
    /// SIGTERM, and a start with the same data.
    Leave,
    /// Nothing gets from the node to the broker or back until the others have declared it dead.
    Cut,
    /// Nothing gets from the node to the broker, as long.
    Mute,
    /// Nothing gets from the broker to the node, as long.
    Deaf,
    /// The broker hangs for eight seconds.
    Freeze,
    /// SIGKILL of the broker, and a start with the same data.
    Crash,
    /// SIGTERM of the broker, and a start with the same data.
    Roll,
}

pub(super) const FAULTS: [Fault; 10] = [
    Fault::Kill,
    Fault::Lose,
    Fault::Pause,
    Fault::Leave,
    Fault::Cut,
    Fault::Mute,
    Fault::Deaf,
    Fault::Freeze,
    Fault::Crash,
    Fault::Roll,
];

const FROZEN: Duration = Duration::from_secs(8);

/// What was on its way when a broker stopped is answered by then.
const STILL: Duration = Duration::from_secs(1);

/// A view that does not change for so long is taken for settled.
const SETTLED: Duration = Duration::from_millis(1_500);

/// Silent nodes would be declared dead by then.
const DECLARED: Duration = Duration::from_secs(4);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The node whose way to the broker can be cut. Its sinks write by another one.
const BY_THE_WAY: &str = "c";

/// What one fault came to.
pub(super) struct Episode {
    pub(super) fault: Fault,
    /// The node that it hit.
    node: Option<&'static str>,
    /// How long it lasted: until the process was told to go on, or was started again.
    lasted: Duration,
    /// From the fault until a payment of each key that was sent after it was answered.
    keys_answer: Duration,
    /// The most that any payment waited from its first attempt to its answer.
    longest: Duration,
    /// From the fault until all nodes were members again with units of their own.
    settled: Duration,
    /// Units that another node has afterwards.
    moves: usize,
    counts: Counts,
}

impl fmt::Display for Episode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, node, lasted, keys_answer, longest, settled, moves, counts } = self;
        write!(
            f,
            "disturbed: {fault:?} of {}: lasted {:.1} s, all keys answer after {:.1} s, longest wait {:.1} s, settled after {:.1} s, {moves} units are elsewhere; {counts}",
            node.unwrap_or("the broker"),
            lasted.as_secs_f64(),
            keys_answer.as_secs_f64(),
            longest.as_secs_f64(),
            settled.as_secs_f64(),
        )
    }
}

/// Who has which unit, by which plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    plan: u64,
    /// Node and plan of each unit.
    units: BTreeMap<String, (String, u64)>,
}

impl Places {
    fn moved_to(&self, later: &Self) -> usize {
        let moved = |(unit, (node, _)): &(&String, &(String, u64))| later.units[*unit].0 != *node;
        self.units.iter().filter(moved).count()
    }
}

/// Three nodes, a broker of their own, and what they write.
pub(super) struct Scene {
    nodes: BTreeMap<&'static str, Node>,
    way: Way,
    broker: Broker,
    job: String,
    place: Place,
    /// Another build of the program, which every other process is of.
    other: Option<PathBuf>,
    launches: usize,
}

impl Scene {
    pub(super) fn start() -> Self {
        let job = format!("pay{}", std::process::id());
        let place = Place::with(&[]);
        let broker = Broker::start(Release::Steady, place.path()).expect("a broker");
        let sinks = [("once", "transactions"), ("marked", "positions")]
            .map(|(topic, delivery)| sink(&broker.address(), topic, topic, delivery))
            .concat();
        let sinks = format!("{sinks}  kept: {{ type: table, input: features, time: ts, seal_every: 5s }}\n");
        place.write("job.yaml", writing_to(&payments::job(&job), &sinks).as_bytes());
        for topic in ["once", "marked"] {
            let arguments = ["--create", "--topic", topic, "--partitions", "3"];
            run(tool_at(&broker.address(), TOPICS, &arguments));
        }
        let way = broker.way().expect("a way");
        let other = std::env::var_os("THALWEG_OTHER").map(PathBuf::from);
        let mut scene = Self { nodes: BTreeMap::new(), way, broker, job, place, other, launches: 0 };
        for name in NAMES {
            scene.launch(name, lasting_port());
        }
        scene
    }

    pub(super) fn job(&self) -> &str {
        &self.job
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        self.nodes.values().map(|node| node.port).collect()
    }

    /// Rows of a topic, and the headers before them.
    pub(super) fn rows(&self, topic: &str) -> Vec<(String, Value)> {
        read_all(&self.broker.address(), topic)
    }

    /// What SQL says on each node.
    pub(super) fn ask_all(&self, sql: &str) -> Vec<Option<Value>> {
        let ask = |name: &&str| {
            let port = self.nodes[*name].port;
            let (status, text) =
                call("POST", port, "/v1/sql?format=ndjson", sql, Duration::from_secs(30)).ok()?;
            if status != 200 {
                super::say(format_args!("disturbed: node {name}: {status} {text}"));
                return None;
            }
            object_in(&text)
        };
        NAMES.iter().map(ask).collect()
    }

    fn launch(&mut self, name: &'static str, port: u16) {
        let by_the_way = format!("127.0.0.1:{}", self.way.port());
        let broker = if name == BY_THE_WAY { by_the_way } else { self.broker.address() };
        let other = self.other.as_ref().filter(|_| self.launches % 2 == 1);
        let program = match other {
            Some(other) => self.place.command_of(other, &[]),
            None => self.place.command(&[]),
        };
        self.launches += 1;
        self.nodes.insert(name, Node::of(program, &self.place, (&broker, "disturbed"), name, port));
    }

    fn said(&self, name: &str) -> String {
        let text = self.place.read(&format!("{name}.log"));
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        format!("node {name} said last:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    /// No node has ended by itself, and no answer was wrong.
    #[track_caller]
    fn assert_well(&mut self, clients: &Clients) {
        clients.assert_right();
        for name in NAMES {
            let has_ended = self.nodes.get_mut(name).is_some_and(|node| node.run.has_ended());
            assert!(!has_ended, "node {name} has ended by itself; {}", self.said(name));
        }
    }

    /// The cluster as a node sees it.
    fn view(&self, name: &str) -> Option<Value> {
        let port = self.nodes.get(name)?.port;
        let (status, text) = call("GET", port, "/v1/cluster", "", Duration::from_secs(2)).ok()?;
        (status == 200).then_some(())?;
        object_in(&text)
    }

    /// Names of members, as a node sees them.
    fn members(&self, name: &str) -> Option<BTreeSet<String>> {
        let view = self.view(name)?;
        let names = view["members"].as_array()?.iter().filter_map(|member| member["name"].as_str());
        Some(names.map(str::to_owned).collect())
    }

    /// Where all units are, once all nodes are members with units of their own and nothing is on its way.
    fn places(&self, name: &str) -> Option<Places> {
        let view = self.view(name)?;
        let members = view["members"].as_array()?;
        let has_units = |member: &Value| member["units_active"].as_u64().is_some_and(|units| units > 0);
        (members.len() == NAMES.len() && members.iter().all(has_units)).then_some(())?;
        (view["unplanned"].as_u64()? == 0).then_some(())?;
        let mut units = BTreeMap::new();
        for unit in view["units"].as_array()? {
            let is_moving = unit["followers"].as_array()?.iter().any(|other| other["takes_over"] == true);
            (!is_moving).then_some(())?;
            let place = (unit["active"].as_str()?.to_owned(), unit["since"].as_u64()?);
            units.insert(format!("{}/{}", unit["stage"].as_str()?, unit["partition"]), place);
        }
        (units.len() == 16).then_some(())?;
        Some(Places { plan: view["plan"]["offset"].as_u64()?, units })
    }

    /// Waits until all nodes see the same places for a while.
    pub(super) fn settle(&mut self, clients: &Clients) -> Places {
        let mut last: Option<(Places, Instant)> = None;
        let begun = Instant::now();
        loop {
            self.assert_well(clients);
            let mut seen: Vec<Option<Places>> = NAMES.iter().map(|name| self.places(name)).collect();
            let first = seen.swap_remove(0);
            let is_same = seen.iter().all(|other| *other == first);
            match (first, &last) {
                (Some(places), Some((before, since))) if is_same && places == *before => {
                    if since.elapsed() > SETTLED {
                        return places;
                    }
                }
                (Some(places), _) if is_same => last = Some((places, Instant::now())),
                _ => last = None,
            }
            if begun.elapsed() > Duration::from_secs(120) {
                let views: Vec<_> = NAMES.iter().map(|name| self.view(name)).collect();
                let said: Vec<_> = NAMES.iter().map(|name| self.said(name)).collect();
                panic!("the cluster has not settled in 120 s: {views:#?}\n{}", said.join("\n"));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets a fault happen, and waits until it is over.
    pub(super) fn play(&mut self, fault: Fault, random: &mut Random, clients: &Clients) -> Episode {
        let before = self.settle(clients);
        let counts = clients.counts();
        clients.longest();
        let cut = match fault {
            Fault::Cut => Some(Cut { there: true, back: true }),
            Fault::Mute => Some(Cut { there: true, back: false }),
            Fault::Deaf => Some(Cut { there: false, back: true }),
            _ => None,
        };
        let name = if cut.is_some() { BY_THE_WAY } else { random.pick(&NAMES) };
        let other = NAMES[(NAMES.iter().position(|known| *known == name).expect("one of them") + 1) % 3];
        let away = Duration::from_millis(300) + random.time(Duration::from_secs(6));
        thread::sleep(random.time(Duration::from_millis(500)));
        let (begun, is_broker) =
            (Instant::now(), matches!(fault, Fault::Freeze | Fault::Crash | Fault::Roll));
        let (keys_answer, lasted) = thread::scope(|scope| {
            let probes = move || clients.all_keys_answer();
            let lasted = match fault {
                Fault::Kill | Fault::Lose => {
                    let port = self.kill(name);
                    let probes = scope.spawn(probes);
                    thread::sleep(away);
                    if fault == Fault::Lose {
                        let data = self.place.path().join(name);
                        assert!(data.is_dir(), "node {name} had data");
                        std::fs::remove_dir_all(data).expect("its data goes");
                    }
                    self.launch(name, port);
                    (probes, begun.elapsed())
                }
                Fault::Pause => {
                    process::pause(self.nodes[name].run.child());
                    let probes = scope.spawn(probes);
                    eventually("the others declare it dead", || {
                        (!self.members(other)?.contains(name)).then_some(())
                    });
                    thread::sleep(away);
                    process::resume(self.nodes[name].run.child());
                    (probes, begun.elapsed())
                }
                Fault::Cut | Fault::Mute | Fault::Deaf => {
                    self.way.cut(cut.expect("a cut"));
                    let probes = scope.spawn(probes);
                    eventually("the others declare it dead", || {
                        (!self.members(other)?.contains(name)).then_some(())
                    });
                    thread::sleep(away);
                    self.way.cut(Cut::default());
                    (probes, begun.elapsed())
                }
                Fault::Leave => {
                    let port = self.leave(name);
                    let probes = scope.spawn(probes);
                    thread::sleep(away);
                    self.launch(name, port);
                    (probes, begun.elapsed())
                }
                Fault::Freeze => {
                    self.broker.pause();
                    let probes = scope.spawn(probes);
                    self.assert_still(clients, FROZEN);
                    self.broker.resume();
                    (probes, begun.elapsed())
                }
                Fault::Roll => {
                    let probes = scope.spawn(probes);
                    self.broker.restart().expect("the broker starts");
                    (probes, begun.elapsed())
                }
                Fault::Crash => {
                    self.broker.kill();
                    let probes = scope.spawn(probes);
                    self.assert_still(clients, 2 * STILL + away);
                    self.broker.launch().expect("the broker starts");
                    let lasted = begun.elapsed();
                    eventually("the broker is up", || self.broker.is_up().then_some(()));
                    (probes, lasted)
                }
            };
            (lasted.0.join().expect("a probe does not panic"), lasted.1)
        });
        self.assert_well(clients);
        if is_broker {
            thread::sleep(DECLARED);
        }
        let after = self.settle(clients);
        if fault == Fault::Freeze {
            assert_eq!(
                before.moved_to(&after),
                0,
                "a broker that hangs moves no unit: {before:?} and {after:?}"
            );
        }
        let counts = clients.counts().since(counts);
        assert!(counts.checked > 0, "no answer was checked during {fault:?}");
        Episode {
            fault,
            node: (!is_broker).then_some(name),
            lasted,
            keys_answer,
            longest: clients.longest(),
            settled: begun.elapsed(),
            moves: before.moved_to(&after),
            counts,
        }
    }

    fn kill(&mut self, name: &'static str) -> u16 {
        let Node { run, port, .. } = self.nodes.remove(name).expect("it runs");
        let status = run.kill();
        assert_eq!(
            status.signal(),
            Some(9),
            "node {name} was alive until it was killed; {}",
            self.said(name)
        );
        port
    }

    /// Asks a node to leave and waits until it has.
    fn leave(&mut self, name: &'static str) -> u16 {
        const WORD: &str = "has left the cluster";
        let times = |scene: &Self| scene.place.read(&format!("{name}.log")).matches(WORD).count();
        let before = times(self);
        let mut node = self.nodes.remove(name).expect("it runs");
        process::terminate(node.run.child());
        eventually("it leaves", || node.run.has_ended().then_some(()));
        let status = node.run.kill();
        assert!(status.success(), "node {name} ended with {status}; {}", self.said(name));
        assert_eq!(times(self), before + 1, "node {name}: {WORD}; {}", self.said(name));
        node.port
    }

    /// Nobody is answered while the broker is away, which shows that it is.
    fn assert_still(&self, clients: &Clients, time: Duration) {
        thread::sleep(STILL);
        let before = clients.counts().answered;
        thread::sleep(time.saturating_sub(STILL));
        assert_eq!(clients.counts().answered, before, "payments that were answered without a broker");
    }

    /// Two nodes end in good order, so that the last one has all units, and none has panicked.
    pub(super) fn end(mut self) {
        for name in &NAMES[1..] {
            self.leave(name);
        }
        for name in NAMES {
            let text = self.place.read(&format!("{name}.log"));
            let lines = |word: &str| text.lines().filter(|line| line.contains(word)).collect::<Vec<_>>();
            let (warnings, errors) = (lines(" WARN ").len(), lines("ERROR "));
            super::say(format_args!(
                "disturbed: node {name} wrote {warnings} warnings, {} errors",
                errors.len()
            ));
            errors.iter().take(5).for_each(super::say);
            assert_eq!(lines("panicked"), [""; 0], "node {name}");
        }
    }
}
