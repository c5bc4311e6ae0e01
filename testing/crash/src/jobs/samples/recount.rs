//! What is in the table in the end, held against the hour.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use thalweg_bench_sflow::Packed;

use super::Samples;
use crate::disk::Found;
use crate::ledger::Ledger;

/// Fewer numbers than this that are missing at once are counted at once (`crates/connect/src/sflow/engines.rs`).
const SURE_GAP: u64 = 64;

/// Milliseconds of uptime between two datagrams above which the engine may take the second for another engine's: an hour
/// is sent within seconds here, so that clock and uptime do not go together.
const SURE_UPTIME: u32 = 60_000;

/// What a row has of its flow, and of the joins. Time, sender and uptime are the datagram's.
pub(super) const FIELDS: [&str; 33] = [
    "agent",
    "datagram",
    "sequence",
    "source_index",
    "sampling_rate",
    "sample_pool",
    "drops",
    "in_if",
    "out_if",
    "bytes",
    "packets",
    "frame_length",
    "header_protocol",
    "src_mac",
    "dst_mac",
    "ethertype",
    "vlan",
    "src_addr",
    "dst_addr",
    "protocol",
    "src_port",
    "dst_port",
    "tcp_flags",
    "icmp_type",
    "icmp_code",
    "ip_tos",
    "ip_ttl",
    "ip_length",
    "in_vlan",
    "src_asn",
    "dst_asn",
    "src_name",
    "dst_name",
];

impl Samples {
    /// Every sample that arrived is a row with the values that were sent, and is in the order once.
    pub(super) fn recount_rows(&self, found: &Found, ledger: &Ledger) -> Result<()> {
        let sql = format!("SELECT {} FROM flows ORDER BY sequence", FIELDS.join(", "));
        let rows = self.sql.records(&sql)?.unwrap_or_default();
        let mut last = None;
        for row in &rows {
            let sequence = row["sequence"].as_u64().context("a row has a sequence")?;
            ensure!(last < Some(sequence), "sample {sequence} is there twice");
            last = Some(sequence);
            let sent = self.hour.records.get(sequence as usize).context("a sample that was never sent")?;
            for field in FIELDS {
                let (got, expected) = (&row[field], &sent[field]);
                ensure!(got == expected, "{field} of sample {sequence} is {got}, sent was {expected}");
            }
        }
        let samples: u64 = self.committed.values().map(|[samples, ..]| samples).sum();
        ensure!(rows.len() as u64 == samples, "{} rows, expected {samples}", rows.len());
        if self.is_disturbed {
            let ordered: u64 = ledger.runs()?.map(|run| run.count).sum();
            ensure!(ordered == samples, "{ordered} samples are in the order, {samples} in the table");
            let commit = found.commit.as_ref().context("there is no commit record at the end")?;
            let is_there = commit.sources.iter().all(|(_, next)| *next == samples);
            ensure!(is_there, "the source ended at {:?}, not at {samples}", commit.sources);
        }
        Ok(())
    }

    /// The missing datagrams, by the numbers in the table, are those that were sent and did not arrive; and if nothing
    /// was killed, those that the engine counts as lost.
    pub(super) fn recount_losses(&self) -> Result<()> {
        let mut sent: BTreeMap<Ipv4Addr, u64> = BTreeMap::new();
        for (agent, number) in self.expected.keys() {
            sent.insert(*agent, number + 1);
        }
        let sql =
            "SELECT agent, min(datagram), max(datagram), count(DISTINCT datagram) FROM flows GROUP BY 1";
        let (mut lost, mut between) = (0, 0);
        for line in self.sql.lines(sql)?.unwrap_or_default() {
            let cells: Vec<&str> = line.split(',').collect();
            let [agent, first, last, count] = cells.as_slice() else { bail!("four cells, got {line}") };
            let (first, last, count): (u64, u64, u64) = (first.parse()?, last.parse()?, count.parse()?);
            let sent = sent.remove(&agent.parse()?).with_context(|| format!("agent {agent} sent nothing"))?;
            let gaps = last + 1 - first - count;
            between += gaps;
            lost += first + gaps + (sent - 1 - last);
        }
        // Of the others nothing came.
        lost += sent.values().sum::<u64>();
        let missing = (self.expected.len() - self.committed.len()) as u64;
        ensure!(lost == missing, "{lost} datagrams are lost by their numbers, {missing} are missing");

        if missing < self.expected.len() as u64 {
            let sum = |place: usize| self.committed.values().map(|sums| sums[place]).sum::<u64>();
            let expected = format!("{},{},{}", sum(0), sum(1), sum(2));
            let lines = self.sql.lines("SELECT count(*), sum(bytes), sum(packets) FROM flows")?;
            ensure!(lines == Some(vec![expected.clone()]), "the totals are {lines:?}, expected {expected}");
        }
        let Some((said, beside)) = self.said else { return Ok(()) };
        let known = said.queue_full + said.kernel_drops;
        ensure!(
            (missing..=missing + beside).contains(&known),
            "{missing} datagrams are missing, the engine says {said:?}"
        );
        // What found the queue full was seen by the engine.
        let sure = if said.queue_full == 0 { self.sure_gaps() } else { 0 };
        ensure!(
            (sure..=between).contains(&said.gaps),
            "{between} numbers are missing between others, {sure} of them beyond doubt, the engine says {said:?}"
        );
        Ok(())
    }

    /// Numbers missing between datagrams that arrived, as far as they count at once.
    fn sure_gaps(&self) -> u64 {
        let arrived = |packed: &&Packed| self.committed.contains_key(&(packed.agent, packed.number.into()));
        let mut last: BTreeMap<Ipv4Addr, (u32, u32)> = BTreeMap::new();
        let mut sure = 0;
        for packed in self.hour.datagrams.iter().filter(arrived) {
            let uptime = uptime(packed);
            if let Some((number, before)) = last.insert(packed.agent, (packed.number, uptime)) {
                let missing = u64::from(packed.number - number - 1);
                let is_sure = missing < SURE_GAP && uptime.wrapping_sub(before) < SURE_UPTIME;
                sure += if is_sure { missing } else { 0 };
            }
        }
        sure
    }

    /// The largest pairs of networks and of names, of rollups where they answer, and of rows.
    pub(super) fn recount_pairs(&self) -> Result<()> {
        for (one, other) in [("src_asn", "dst_asn"), ("src_name", "dst_name")] {
            let mut sums: BTreeMap<String, u64> = BTreeMap::new();
            let arrived = self
                .hour
                .datagrams
                .iter()
                .filter(|packed| self.committed.contains_key(&(packed.agent, u64::from(packed.number))));
            for place in arrived.flat_map(|packed| &packed.flows) {
                let record = &self.hour.records[*place];
                *sums.entry(pair(record, one, other)).or_default() += bytes(record)?;
            }
            let mut largest: Vec<u64> = sums.values().copied().collect();
            largest.sort_unstable_by(|one, other| other.cmp(one));
            largest.truncate(10);
            // No rollup has the sequence.
            for condition in ["", "WHERE sequence >= 0"] {
                let sql = format!(
                    "SELECT {one}, {other}, sum(bytes) AS bytes FROM flows {condition} GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 10"
                );
                let rows = self.sql.records(&sql)?.unwrap_or_default();
                let got = rows.iter().map(bytes).collect::<Result<Vec<u64>>>()?;
                ensure!(got == largest, "the largest {one} and {other} have {got:?}, expected {largest:?}");
                for row in &rows {
                    let pair = pair(row, one, other);
                    ensure!(sums.get(&pair) == Some(&bytes(row)?), "{row} has other bytes than was sent");
                }
            }
        }
        Ok(())
    }
}

/// What a datagram says of its agent's uptime, in milliseconds: after version, kind of address, agent, sub-agent, number.
fn uptime(packed: &Packed) -> u32 {
    let bytes = packed.bytes.get(20..24).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_be_bytes)
}

fn pair(record: &Value, one: &str, other: &str) -> String {
    format!("{} {}", record[one], record[other])
}

fn bytes(record: &Value) -> Result<u64> {
    record["bytes"].as_u64().with_context(|| format!("no bytes in {record}"))
}
