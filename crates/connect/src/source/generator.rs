//! Made-up records as a source: blocks are nothing but offsets, the records are made in the decode tasks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::UInt32Array;
use arrow_select::take::take_record_batch;
use bytes::Bytes;
use thalweg_flow::{
    Decoded, Decoder, Payload, Poll, RawBlock, ReplayRun, Source, SourcePosition, SourceProgress,
};
use thalweg_types::{Batch, Error, Micros, Offset, Schema, Seq, SeqRange, Seqs, parse_timestamp};

use super::decoder::{EventClock, Place, Refused, rows_without};
use crate::generate::{Generator, GeneratorSpec};
use crate::{
    BuiltSource, JobPath, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext, SourceOutput,
    SourcePlugin,
};

/// The plug-in.
pub struct GeneratorPlugin;

impl SourcePlugin for GeneratorPlugin {
    fn name(&self) -> &'static str {
        "generator"
    }

    fn doc(&self) -> &'static str {
        "made-up records, the same for the same seed"
    }

    fn page(&self) -> &'static str {
        include_str!("generator.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        const fn option(
            key: &'static str,
            kind: OptionKind,
            default: Option<&'static str>,
            doc: &'static str,
        ) -> OptionSpec {
            OptionSpec { key, kind, required: false, default, doc }
        }
        const POSITIVE: OptionKind = OptionKind::Integer { min: 1, max: i64::MAX };
        const OPTIONS: &[OptionSpec] = &[
            option("kind", OptionKind::Choice(Generator::KINDS), Some("payments"), "the records to make"),
            option("seed", OptionKind::Integer { min: 0, max: i64::MAX }, Some("1"), "seed of the generator"),
            option(
                "fields",
                OptionKind::Integer { min: 1, max: 200 },
                None,
                "number of fields to make, from the first",
            ),
            option("count", POSITIVE, None, "number of records; unlimited, if absent"),
            option("rate", OptionKind::Number, None, "records per second; as fast as possible, if absent"),
            option(
                "gap",
                OptionKind::Duration,
                None,
                "event time between two records: 4ms for payments, 1ms on average for flows, if absent",
            ),
            option("cards", POSITIVE, Some("100000"), "payments: number of cards"),
            option("merchants", POSITIVE, Some("10000"), "payments: number of merchants"),
            option(
                "zipf",
                OptionKind::Number,
                None,
                "exponent of the Zipf distribution of cards (0.5 if absent) or pairs (1 if absent); 0 is uniform",
            ),
            option(
                "hot",
                OptionKind::Number,
                Some("0"),
                "payments: share of the records that go to one card",
            ),
            option(
                "start",
                OptionKind::Text,
                Some("2026-01-01"),
                "flows: date, or date and time, of the first record",
            ),
            option("agents", POSITIVE, Some("8"), "flows: number of switches"),
            option("members", POSITIVE, Some("400"), "flows: number of members of the exchange"),
            option("pairs", POSITIVE, Some("1000000"), "flows: number of pairs of hosts"),
            option(
                "hosts",
                POSITIVE,
                Some("280000"),
                "flows: number of IPv4 hosts; there are an eighth as many of IPv6",
            ),
            option(
                "tables",
                OptionKind::Path,
                None,
                "flows: folder for the tables to join with; the tables are written if they do not exist",
            ),
        ];
        OPTIONS
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_live(&self, _: &Options) -> bool {
        false
    }

    /// Flows are as those of agents are, so that a job takes either.
    fn own_time(&self, options: &Options) -> Option<&'static str> {
        is_flows(options).then_some("time")
    }

    fn outputs(&self, options: &Options) -> Vec<SourceOutput> {
        let schema = spec(options).and_then(|spec| spec.build()).map(|generator| generator.schema().clone());
        match schema {
            Ok(schema) if is_flows(options) => vec![SourceOutput { name: "flows", schema }],
            _ => Vec::new(),
        }
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        let mut mistakes: Vec<Mistake> =
            start(options).err().map(|error| Mistake::new("start", error)).into_iter().collect();
        if options.path("tables").is_some() && !is_flows(options) {
            let error = Error::user(format!("{} are joined with no tables", kind(options)));
            mistakes.push(Mistake::new("tables", error.with_hint("leave it out, or make flows")));
        }
        mistakes
    }

    fn own_schema(&self, options: &Options) -> Result<Option<Schema>, Error> {
        Ok(Some(spec(options)?.build()?.schema().clone()))
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        let (generator, _) = made(context)?;
        match missing_tables(&context.options) {
            Some(folder) => generator.probe_tables(folder),
            None => Ok(()),
        }
    }

    fn makes(&self, options: &Options) -> Vec<PathBuf> {
        let folder = options.path("tables").into_iter();
        folder.flat_map(|folder| crate::generate::TABLES.iter().map(|name| folder.join(name))).collect()
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let options = &context.options;
        let (generator, rate) = made(&context)?;
        if let Some(folder) = missing_tables(options) {
            folder.recheck()?;
            generator.write_tables(folder)?;
        }
        let schema = generator.schema().clone();
        let source = GeneratorSource {
            next: 0,
            count: options.integer("count").map(i64::unsigned_abs),
            rate,
            started: None,
            base: 0,
            is_draining: false,
        };
        Ok(BuiltSource::new(Box::new(source), decoders(generator, &context), schema, Replay::Itself))
    }
}

/// The folder for tables, where some of them are not there.
fn missing_tables(options: &Options) -> Option<&JobPath> {
    let is_there = |folder: &JobPath| crate::generate::TABLES.iter().all(|name| folder.join(name).exists());
    options.path("tables").filter(|folder| !is_there(folder))
}

/// The generator of a job file, and its rate.
fn made(context: &SourceContext) -> Result<(Generator, Option<f64>), Error> {
    let generator = spec(&context.options).and_then(|spec| spec.build())?;
    let rate = context.options.number("rate");
    if rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(Error::user("rate must be above 0"));
    }
    Ok((generator, rate))
}

fn decoders(generator: Generator, context: &SourceContext) -> thalweg_flow::TaskFactory<dyn Decoder> {
    let generator = Arc::new(generator);
    let context = context.clone();
    Box::new(move |_| {
        let clock = EventClock::new(generator.schema(), &context)?;
        let source = Arc::clone(&context.name);
        Ok(Box::new(GeneratorDecoder { source, generator: Arc::clone(&generator), clock }))
    })
}

fn kind(options: &Options) -> &str {
    options.text("kind").unwrap_or("payments")
}

fn is_flows(options: &Options) -> bool {
    kind(options) == "flows"
}

fn start(options: &Options) -> Result<Option<Micros>, Error> {
    let Some(text) = options.text("start") else { return Ok(None) };
    let micros = parse_timestamp(text).and_then(|nanos| i64::try_from(nanos.div_euclid(1_000)).ok());
    micros.map(Some).ok_or_else(|| {
        Error::user(format!("expected a date such as 2026-01-01 or 2026-01-01T08:00:00Z, got {text:?}"))
    })
}

fn spec(options: &Options) -> Result<GeneratorSpec, Error> {
    let mut spec = GeneratorSpec::new(kind(options));
    let positive = |key| options.integer(key).map(i64::unsigned_abs);
    if let Some(seed) = positive("seed") {
        spec.seed = seed;
    }
    spec.fields = positive("fields").map(|fields| fields as usize);
    if let Some(gap) = options.duration("gap") {
        spec.gap = gap;
    }
    if let Some(cards) = positive("cards") {
        spec.cards = cards;
    }
    if let Some(merchants) = positive("merchants") {
        spec.merchants = merchants;
    }
    if let Some(zipf) = options.number("zipf") {
        spec.zipf = zipf;
    }
    if let Some(hot) = options.number("hot") {
        spec.hot = hot;
    }
    // The check has reported a text that is not a date.
    spec.start = start(options).ok().flatten();
    spec.agents = positive("agents").unwrap_or(spec.agents);
    spec.members = positive("members").unwrap_or(spec.members);
    spec.pairs = positive("pairs").unwrap_or(spec.pairs);
    spec.hosts = positive("hosts").unwrap_or(spec.hosts);
    Ok(spec)
}

/// Assumed bytes of a made record, for the size of blocks.
const RECORD_BYTES: usize = 64;

/// Records of a block at most.
const MAX_BLOCK: u64 = 1 << 16;

struct GeneratorSource {
    next: Offset,
    count: Option<u64>,
    /// Records per second.
    rate: Option<f64>,
    /// Job time of the first poll, and where it began then.
    started: Option<Micros>,
    base: Offset,
    is_draining: bool,
}

impl Source for GeneratorSource {
    fn poll(&mut self, max_bytes: usize, now: Micros) -> Result<Poll, Error> {
        let left = self.count.map_or(u64::MAX, |count| count.saturating_sub(self.next));
        if left == 0 || self.is_draining {
            return Ok(Poll::End);
        }
        let mut count = ((max_bytes / RECORD_BYTES) as u64).clamp(1, MAX_BLOCK).min(left);
        if let Some(rate) = self.rate {
            let started = *self.started.get_or_insert(now);
            let due = self.base + ((now - started).max(0) as f64 / 1e6 * rate) as u64 + 1;
            if due <= self.next {
                let wait = ((self.next - self.base) as f64 / rate - (now - started) as f64 / 1e6)
                    .clamp(0.000_2, 1.0);
                return Ok(Poll::PendingUntil(Instant::now() + Duration::from_secs_f64(wait)));
            }
            count = count.min(due - self.next);
        }
        let first = self.next;
        self.next += count;
        Ok(Poll::Block(RawBlock { partition: 0, first, count: count as u32, payload: Payload::Offsets }))
    }

    fn drain(&mut self) {
        self.is_draining = true;
    }

    fn progress(&self) -> Option<SourceProgress> {
        Some(SourceProgress { done: self.next, total: self.count })
    }

    fn position(&self) -> SourcePosition {
        SourcePosition { next: self.next, place: Vec::new() }
    }

    fn restore(&mut self, position: &SourcePosition) -> Result<(), Error> {
        self.next = position.next;
        self.base = position.next;
        Ok(())
    }

    fn replay(&mut self, run: ReplayRun, _: usize) -> Result<RawBlock, Error> {
        let count = run.count.min(MAX_BLOCK);
        self.next = run.first + count;
        self.base = self.next;
        Ok(RawBlock { partition: 0, first: run.first, count: count as u32, payload: Payload::Offsets })
    }
}

struct GeneratorDecoder {
    source: Arc<str>,
    generator: Arc<Generator>,
    clock: EventClock,
}

impl Decoder for GeneratorDecoder {
    fn decode(&mut self, block: &RawBlock, range: SeqRange, arrival: Micros) -> Result<Decoded, Error> {
        let records = self.generator.batch(block.first, block.count as usize);
        let (times, untimely) = self.clock.times(records.columns(), records.num_rows(), arrival);
        if untimely.is_empty() {
            let batch = Batch::new(range, records, times.into(), Seqs::Dense(range.start));
            return Ok(Decoded::new(batch));
        }
        let kept = rows_without(records.num_rows(), untimely.iter().map(|(row, ..)| *row));
        let seqs = Seqs::Each(kept.iter().map(|row| range.start + Seq::from(*row)).collect());
        let times: Vec<Micros> = kept.iter().map(|row| times[*row as usize]).collect();
        let records = take_record_batch(&records, &UInt32Array::from(kept))
            .map_err(|error| Error::internal("take the good rows of a block").with_source(error))?;
        // Nobody has sent any bytes.
        let refused: Vec<Refused> = untimely
            .into_iter()
            .map(|(index, code, reason)| Refused { index, raw: 0..0, code: code.into(), reason })
            .collect();
        let place = Place { source: &self.source, first: block.first, range, arrival, context: None };
        let rejects = place.rejects(&refused, &Bytes::new());
        Ok(Decoded::new(Batch::new(range, records, times.into(), seqs)).with_rejects(Some(rejects)))
    }
}
