//! An hour of generated flows: their datagrams, and the tables that they are joined with.
//!
//! What a join has to find is worked out here the slow way: of all ranges that an address is in, the smallest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use thalweg_bench_sflow::{Flow, Packed, datagrams};

use thalweg_harness::random::Random;

const HOUR_MILLIS: u64 = 3_600_000;

/// Hosts and pairs of them: few, so that some come often and tables are small.
const HOSTS: &str = "20000";
const PAIRS: &str = "20000";

/// Networks within networks that are added to the table.
const NESTED: usize = 60;

pub(super) struct Hour {
    /// As they have to come out, with what the joins add and their datagram's number, by their sequence number.
    pub(super) records: Vec<Value>,
    pub(super) datagrams: Vec<Packed>,
    pub(super) networks: PathBuf,
    pub(super) names: PathBuf,
}

impl Hour {
    pub(super) fn generate(binary: &Path, folder: &Path, count: u64, random: &mut Random) -> Result<Self> {
        let seed = random.between(1, 1_000_000).to_string();
        let generate = |arguments: &[&str]| {
            let mut command = Command::new(binary);
            command.args(["gen", "flows", "--seed", &seed, "--hosts", HOSTS, "--pairs", PAIRS]);
            let output = command.args(arguments).output().context("generate flows")?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).context("flows are text")
        };
        let gap = format!("{}ms", HOUR_MILLIS / count);
        let text = generate(&["--count", &count.to_string(), "--gap", &gap, "--format", "ndjson"])?;
        generate(&["--tables", &folder.display().to_string()])?;
        let (networks, names) = (folder.join("asn.tsv"), folder.join("names.csv"));

        let flows = text.lines().map(Flow::parse).collect::<Result<Vec<Flow>>>()?;
        let records = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
        nest(&networks, &records, random)?;
        let mut hour = Self { records, datagrams: datagrams(&flows), networks, names };
        hour.join()?;
        for packed in &hour.datagrams {
            for place in &packed.flows {
                hour.records[*place]["datagram"] = json!(packed.number);
            }
        }
        Ok(hour)
    }

    /// Adds what the joins have to find.
    fn join(&mut self) -> Result<()> {
        let networks = std::fs::read_to_string(&self.networks)?;
        let networks = networks.lines().map(Network::parse).collect::<Option<Vec<Network>>>();
        let networks = networks.context("a line of the networks is invalid")?;
        let names = std::fs::read_to_string(&self.names)?;
        let name = |line: &str| {
            let (address, name) = line.split_once(',')?;
            Some((address.parse().ok()?, name.to_owned()))
        };
        let names: HashMap<IpAddr, String> =
            names.lines().map(name).collect::<Option<_>>().context("a line of the names is invalid")?;
        let mut known: HashMap<IpAddr, Value> = HashMap::new();
        for record in &mut self.records {
            for end in ["src", "dst"] {
                let address = address(record, end)?;
                let asn = known.entry(address).or_insert_with(|| smallest(&networks, address).into());
                record[format!("{end}_asn")] = asn.clone();
                record[format!("{end}_name")] = json!(names.get(&address));
            }
        }
        Ok(())
    }
}

fn address(record: &Value, end: &str) -> Result<IpAddr> {
    let text = record[format!("{end}_addr")].as_str().context("a flow has addresses")?;
    text.parse().with_context(|| format!("{text} is no address"))
}

/// A range of addresses and its AS.
#[derive(Clone, Copy, Debug)]
struct Network {
    first: u128,
    last: u128,
    asn: u64,
}

impl Network {
    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split('\t');
        let mut address = || Some(number(cells.next()?.parse().ok()?));
        let (first, last) = (address()?, address()?);
        Some(Self { first, last, asn: cells.next()?.parse().ok()? })
    }
}

fn smallest(networks: &[Network], address: IpAddr) -> Option<u64> {
    let address = number(address);
    let around = networks.iter().filter(|network| network.first <= address && address <= network.last);
    around.min_by_key(|network| network.last - network.first).map(|network| network.asn)
}

/// Both versions on one line, version 4 as `::ffff:a.b.c.d`.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Adds networks of 256 addresses around some of those that talk, and in every second one a host of its own.
fn nest(table: &Path, records: &[Value], random: &mut Random) -> Result<()> {
    let mut added: BTreeMap<(u128, u128), u64> = BTreeMap::new();
    let mut inside: BTreeSet<u128> = BTreeSet::new();
    for index in 0..NESTED {
        let record = &records[random.between(0, records.len() as u64 - 1) as usize];
        let host = number(address(record, "src")?);
        added.insert((host & !0xff, host | 0xff), 64_512 + index as u64);
        if index % 2 == 0 {
            inside.insert(host);
        }
    }
    added.extend(inside.into_iter().map(|host| ((host, host), 65_000)));
    let mut file = std::fs::File::options().append(true).open(table)?;
    for ((first, last), asn) in added {
        let [first, last] = [first, last].map(|number| Ipv6Addr::from(number).to_canonical());
        writeln!(file, "{first}\t{last}\t{asn}\tZZ\tNESTED-{asn}")?;
    }
    Ok(())
}

#[test]
fn the_smallest_range_wins() {
    let lines =
        ["10.0.0.0\t10.255.255.255\t1\tZZ\ta", "10.1.0.0\t10.1.0.255\t2\tZZ\tb", "::1\t::1\t3\tZZ\tc"];
    let networks = lines.map(|line| Network::parse(line).unwrap());
    let found = ["10.1.0.7", "10.2.0.7", "::1", "11.0.0.1"];
    let found = found.map(|address| smallest(&networks, address.parse().unwrap()));
    assert_eq!(found, [Some(2), Some(1), Some(3), None]);
}
