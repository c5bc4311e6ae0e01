//! Made-up records for benchmarks, examples and tests.
//!
//! Every record is a function of the seed and its offset alone, so any of them can be made without those before
//! it, in any task, and twice the same.

mod flows;
mod payments;
mod ranks;
mod readings;

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, TimestampMillisecondType};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, SeqRange, Seqs};

use self::flows::Flows;
pub(crate) use self::flows::TABLES;
use self::payments::Payments;
use self::readings::Readings;

/// The records to make; see [`GeneratorSpec::build`].
#[derive(Clone, Debug)]
pub struct GeneratorSpec {
    /// One of [`Generator::KINDS`].
    pub kind: String,
    pub seed: u64,
    /// Only the first fields; `None`: four for payments, all for readings and flows.
    pub fields: Option<usize>,
    /// Event time from one record to the next: of payments in whole milliseconds, of flows on average.
    pub gap: Micros,
    /// Payments: how many cards there are.
    pub cards: u64,
    /// Payments: how many merchants there are.
    pub merchants: u64,
    /// Exponent of the distribution of payments' cards or flows' pairs; 0 is even, 1 is Zipf's law.
    pub zipf: f64,
    /// Payments: share of the records that go to card 0 on top of its own.
    pub hot: f64,
    /// Flows: event time of the first record, or a little later; `None`: as the others.
    pub start: Option<Micros>,
    /// Flows: how many switches take samples.
    pub agents: u64,
    /// Flows: how many members the exchange has.
    pub members: u64,
    /// Flows: how many pairs of hosts talk.
    pub pairs: u64,
    /// Flows: how many IPv4 hosts there are; of IPv6 there are an eighth as many.
    pub hosts: u64,
}

impl GeneratorSpec {
    /// The defaults for a kind.
    pub fn new(kind: impl Into<String>) -> Self {
        let kind = kind.into();
        let is_flows = kind == "flows";
        Self {
            kind,
            seed: 1,
            fields: None,
            gap: if is_flows { 1_000 } else { 4_000 },
            cards: 100_000,
            merchants: 10_000,
            zipf: if is_flows { 1.0 } else { 0.5 },
            hot: 0.0,
            start: None,
            agents: 8,
            members: 400,
            pairs: 1_000_000,
            hosts: 280_000,
        }
    }

    /// # Errors
    /// If the kind is unknown or a number is out of range.
    pub fn build(&self) -> Result<Generator, Error> {
        let check = |ok: bool, key: &str, expected: &str| {
            if ok { Ok(()) } else { Err(Error::user(format!("generator: expected {key} {expected}"))) }
        };
        if self.kind == "flows" {
            check((1..=60_000_000).contains(&self.gap), "gap", "between 1us and 1m")?;
        } else {
            check(self.gap >= 1_000 && self.gap % 1_000 == 0, "gap", "of whole milliseconds, at least 1ms")?;
        }
        check((1..=1 << 32).contains(&self.cards), "cards", "between 1 and 4294967296")?;
        check((1..=1 << 32).contains(&self.merchants), "merchants", "between 1 and 4294967296")?;
        check(self.zipf.is_finite() && (0.0..=10.0).contains(&self.zipf), "zipf", "between 0 and 10")?;
        check((0.0..=1.0).contains(&self.hot), "hot", "between 0 and 1")?;
        check((1..=1 << 16).contains(&self.agents), "agents", "between 1 and 65536")?;
        check((1..=1 << 20).contains(&self.members), "members", "between 1 and 1048576")?;
        check((1..=1 << 32).contains(&self.pairs), "pairs", "between 1 and 4294967296")?;
        check((1_000..=10_000_000).contains(&self.hosts), "hosts", "between 1000 and 10000000")?;
        let time_limit = 1 << 60;
        check(
            self.start.is_none_or(|start| (-time_limit..time_limit).contains(&start)),
            "start",
            "within 36,000 years of 1970",
        )?;
        let (kind, all, default) = match self.kind.as_str() {
            "payments" => (Kind::Payments(Payments::new(self)), payments::fields(), 4),
            "flows" => (Kind::Flows(Box::new(Flows::new(self))), flows::fields(), usize::MAX),
            "readings" => (Kind::Readings(Readings::new(self.seed)), readings::fields(), usize::MAX),
            other => {
                return Err(Error::user(format!(
                    "generator: expected kind {}, got {other:?}",
                    Generator::KINDS.join(" or ")
                )));
            }
        };
        let wanted = self.fields.unwrap_or(default.min(all.len()));
        if !(1..=all.len()).contains(&wanted) {
            return Err(Error::user(format!(
                "generator: expected fields between 1 and {} for {}, got {wanted}",
                all.len(),
                self.kind
            )));
        }
        Ok(Generator { kind, schema: Schema::new(&all[..wanted]) })
    }
}

/// Makes records.
#[derive(Debug)]
pub struct Generator {
    kind: Kind,
    schema: Schema,
}

#[derive(Debug)]
enum Kind {
    Flows(Box<Flows>),
    Payments(Payments),
    Readings(Readings),
}

impl Generator {
    /// The values of [`GeneratorSpec::kind`].
    pub const KINDS: &'static [&'static str] = &["payments", "readings", "flows"];

    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The records `first..first + count`.
    pub fn batch(&self, first: Offset, count: usize) -> RecordBatch {
        let width = self.schema.fields().len();
        let columns: Vec<ArrayRef> = match &self.kind {
            Kind::Flows(flows) => flows.columns(first, count, width),
            Kind::Payments(payments) => payments.columns(first, count, width),
            Kind::Readings(readings) => readings.columns(first, count, width),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(self.schema.arrow()), columns, &options)
            .expect("columns are made in the order of the schema")
    }
}

impl Generator {
    /// Writes the tables that fit the records into a folder, which is made if need be.
    ///
    /// Flows alone have such: `asn.tsv` (first and last address, AS number, country, name), `names.csv` (address, name)
    /// and `members.csv` (`mac,vlan,member`).
    ///
    /// # Errors
    /// For records without tables, and where a file cannot be written.
    pub fn write_tables(&self, folder: &Path) -> Result<(), Error> {
        match &self.kind {
            Kind::Flows(flows) => flows.write_tables(folder),
            Kind::Payments(_) | Kind::Readings(_) => {
                Err(Error::user("expected flows, which alone have tables, got other records"))
            }
        }
    }

    /// Fails as [`Generator::write_tables`] would, without making anything.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn probe_tables(&self, folder: &Path) -> Result<(), Error> {
        match &self.kind {
            Kind::Flows(_) => flows::probe_tables(folder),
            Kind::Payments(_) | Kind::Readings(_) => self.write_tables(folder),
        }
    }

    /// The records `first..first + count` with their event times, numbered by their offsets: what an encoder
    /// takes.
    pub fn numbered(&self, first: Offset, count: usize) -> Batch {
        let records = self.batch(first, count);
        let times: Vec<Micros> = match &self.kind {
            Kind::Payments(_) => {
                let times = records.column(0).as_primitive::<TimestampMillisecondType>().values();
                times.iter().map(|time| time * 1_000).collect()
            }
            Kind::Readings(_) | Kind::Flows(_) => {
                records.column(0).as_primitive::<TimestampMicrosecondType>().values().to_vec()
            }
        };
        let range = SeqRange::new(first, first + count as u64);
        Batch::new(range, records, times.into(), Seqs::Dense(first))
    }
}

/// 64 random bits that belong to `(seed, stream, offset)` (the finalizer of SplitMix64, twice).
#[inline(always)]
fn random(seed: u64, stream: u64, offset: u64) -> u64 {
    let key = mix(seed.wrapping_add(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    mix(key ^ offset.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

#[inline(always)]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A number in 0..1 (53 bits of it).
#[inline(always)]
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number in `0..bound`.
#[inline(always)]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Microseconds since the epoch of 2026-01-01T00:00:00Z, when all made-up records begin.
const BASE: Micros = 1_767_225_600_000_000;
