//! An hour of generated flows, sent as sFlow by UDP, through both joins into a table with rollups.
//!
//! Datagrams that are sent while the engine is down are lost, and so are those that find no room. The others are in the
//! table in whole, each once, with the values that were sent and the fields that the joins have to add; and committed
//! rows stay. Every third round nothing is killed: there the engine's own counters have to explain each datagram that
//! is missing.

mod counters;
mod hour;
mod recount;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::counters::Counters;
use self::hour::Hour;
use self::recount::FIELDS;
use super::sql::Sql;
use super::{Job, Setting};
use crate::decide::Tuning;
use crate::disk::Found;
use crate::engine::Engine;
use crate::ledger::Ledger;
use thalweg_harness::port;
use thalweg_harness::random::Random;

const SOURCES: [&str; 1] = ["switches"];

/// The last datagrams go one by one, so that the kernel has room to say what it has dropped before.
const SLOW: usize = 16;

struct Samples {
    sql: Sql,
    hour: Hour,
    /// Agents send from one or the other, so that the kernel spreads them over the source's sockets.
    from: [UdpSocket; 2],
    to: SocketAddr,
    /// Datagrams that were sent.
    sent: usize,
    expected: Arrived,
    /// What was committed when it was last asked for.
    committed: Arrived,
    source: Value,
    seal_rows: u64,
    seal_every: &'static str,
    is_disturbed: bool,
    /// Where the engine has its metrics.
    http: Option<SocketAddr>,
    /// Their values at the end of a round without a crash, and datagrams in addition to those of the hour.
    said: Option<(Counters, u64)>,
    random: Random,
    power: bool,
}

/// Samples, bytes and packets of datagrams, by agent and number.
type Arrived = BTreeMap<(Ipv4Addr, u64), [u64; 3]>;

pub(super) fn received(setting: &Setting<'_>) -> Result<Box<dyn Job>> {
    let mut random = setting.random.clone();
    let count = random.between(1_000, 6_000);
    let hour = Hour::generate(setting.binary, setting.folder, count, &mut random)?;
    let expected = hour.datagrams.iter().map(|packed| {
        let of =
            |field: &str| packed.flows.iter().filter_map(|place| hour.records[*place][field].as_u64()).sum();
        let sums = [packed.flows.len() as u64, of("bytes"), of("packets")];
        ((packed.agent, u64::from(packed.number)), sums)
    });
    let loopback = (Ipv4Addr::LOCALHOST, 0);
    let to = port::free_address()?;
    let source = json!({
        "type": "sflow",
        "listen": to.to_string(),
        "sockets": random.between(1, 2),
        "queue": random.pick(&["4KiB", "64KiB", "16MiB"]),
        "receive_buffer": random.pick(&["4KiB", "64KiB", "8MiB"]),
    });
    Ok(Box::new(Samples {
        sql: Sql { binary: setting.binary.to_owned(), data: setting.disk.join("data") },
        expected: expected.collect(),
        hour,
        from: [UdpSocket::bind(loopback)?, UdpSocket::bind(loopback)?],
        to,
        sent: 0,
        committed: Arrived::new(),
        source,
        seal_rows: random.pick(&[50, 500, 1_000_000]),
        seal_every: random.pick(&["50ms", "300ms", "5m"]),
        is_disturbed: !setting.round.is_multiple_of(3),
        http: None,
        said: None,
        random,
        power: setting.power,
    }))
}

impl Samples {
    fn left(&self) -> usize {
        self.hour.datagrams.len() - self.sent
    }

    /// Sends the next `count` datagrams, whether anybody listens or not.
    fn send(&mut self, count: usize) -> Result<()> {
        let until = self.sent + count.min(self.left());
        for packed in &self.hour.datagrams[self.sent..until] {
            let [.., agent] = packed.agent.octets();
            self.from[usize::from(agent % 2)].send_to(&packed.bytes, self.to).context("send a datagram")?;
        }
        self.sent = until;
        Ok(())
    }

    /// Reads the engine's counters when it knows what became of all datagrams.
    ///
    /// The kernel reports drops with the next datagram that it delivers: so some without a sample follow.
    fn ask_counters(&mut self) -> Result<()> {
        const KNOCKS: u64 = 20;
        const LOOKS: u32 = 20;
        // Version, agent, sub-agent, number, uptime, samples.
        let nobody = Ipv4Addr::new(10, 255, 255, 255).to_bits();
        let knock: Vec<u8> = [5, 1, nobody, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect();
        let engine = self.http.context("the engine listens")?;
        let mut counters = Counters::default();
        for knocks in 1..=KNOCKS {
            for from in &self.from {
                from.send_to(&knock, self.to)?;
            }
            let beside = knocks * self.from.len() as u64;
            for _ in 0..LOOKS {
                counters = Counters::read(engine)?;
                if counters.received + counters.kernel_drops == self.sent as u64 + beside {
                    self.said = Some((counters, beside));
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        bail!("of {} datagrams and {KNOCKS} more of each socket the engine knows {counters:?}", self.sent)
    }

    /// Datagrams in the table, each of which has to be whole.
    fn arrived(&self) -> Result<Arrived> {
        let sql = "SELECT agent, datagram, count(*), sum(bytes), sum(packets) FROM flows GROUP BY 1, 2";
        let mut arrived = Arrived::new();
        for line in self.sql.lines(sql)?.unwrap_or_default() {
            let cells: Vec<&str> = line.split(',').collect();
            let [agent, numbers @ ..] = cells.as_slice() else { bail!("no cells in {line:?}") };
            let numbers = numbers.iter().map(|cell| cell.parse()).collect::<Result<Vec<u64>, _>>();
            let numbers = numbers.with_context(|| format!("read {line}"))?;
            let [datagram, sums @ ..] = numbers.as_slice() else { bail!("no datagram in {line:?}") };
            let key = (agent.parse()?, *datagram);
            let expected = self.expected.get(&key).with_context(|| format!("{key:?} was never sent"))?;
            ensure!(
                sums == expected,
                "datagram {key:?} has {sums:?} samples, bytes and packets, sent were {expected:?}"
            );
            arrived.insert(key, *expected);
        }
        Ok(arrived)
    }

    /// What was committed is still there.
    fn check(&mut self) -> Result<()> {
        let arrived = self.arrived()?;
        let missing = self.committed.keys().find(|key| !arrived.contains_key(key));
        ensure!(missing.is_none(), "datagram {missing:?} was committed, and is gone");
        self.committed = arrived;
        Ok(())
    }
}

impl Job for Samples {
    fn job_file(&self, tuning: &Tuning) -> Value {
        let rollup = |by: [&str; 2]| json!({ "every": "1s", "by": by, "sum": ["bytes", "packets"] });
        let columns: Vec<&str> = ["time"].into_iter().chain(FIELDS).collect();
        json!({
            "name": "crash",
            "cycle": tuning.cycle,
            "state": tuning.state(),
            "sources": { "switches": self.source },
            "operators": {
                "networks": {
                    "type": "range_join",
                    "input": tuning.input("switches.flows"),
                    "table": self.hour.networks,
                    "schema": { "first": "ip", "last": "ip", "asn": "uint64", "country": "string", "as_name": "string" },
                    "on": { "src": "src_addr", "dst": "dst_addr" },
                },
                "names": {
                    "type": "lookup_join",
                    "input": tuning.input("networks"),
                    "table": self.hour.names.with_extension("thl"),
                    "csv": self.hour.names,
                    "on": { "src": "src_addr", "dst": "dst_addr" },
                },
            },
            "sinks": {
                "flows": {
                    "type": "table",
                    "input": tuning.input("names"),
                    "columns": columns,
                    "seal_rows": self.seal_rows,
                    "seal_every": self.seal_every,
                    "rollups": {
                        "networks": rollup(["src_asn", "dst_asn"]),
                        "names": rollup(["src_name", "dst_name"]),
                    },
                },
                "counters": { "type": "null", "input": "switches.counters" },
            },
        })
    }

    fn sinks(&self) -> &[(String, PathBuf)] {
        &[]
    }

    fn journals(&self) -> &'static [&'static str] {
        &SOURCES
    }

    fn is_served(&self) -> bool {
        true
    }

    fn is_disturbed(&self) -> bool {
        self.is_disturbed
    }

    fn started(&mut self, engine: &Engine) -> Result<()> {
        self.http = engine.address();
        Ok(())
    }

    fn feed(&mut self) -> Result<()> {
        let most = if self.left() > SLOW { self.random.pick(&[0, 0, 0, 1, 3, 30]) } else { 1 };
        let count = self.random.between(0, most) as usize;
        self.send(count)?;
        if self.left() == 0 && !self.is_disturbed && self.said.is_none() {
            self.ask_counters()?;
        }
        // Beside the engine, which goes on meanwhile. Seldom: a query starts a program.
        if !self.power && self.random.between(0, 399) == 0 { self.check() } else { Ok(()) }
    }

    fn is_fed(&self) -> bool {
        self.left() == 0
    }

    fn stopped(&mut self) -> Result<()> {
        let count = self.random.between(0, 5) as usize;
        self.send(count)?;
        // A disk without power cannot be asked.
        if !self.power && self.random.between(0, 2) == 0 { self.check() } else { Ok(()) }
    }

    fn recount(&mut self, found: &Found, ledger: &Ledger) -> Result<u64> {
        self.check()?;
        self.recount_rows(found, ledger)?;
        self.recount_losses()?;
        self.recount_pairs()?;
        Ok(self.committed.values().map(|[samples, ..]| samples).sum())
    }
}
