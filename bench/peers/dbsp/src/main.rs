//! dbsp as a peer: features of each payment of a CSV file, one rolling aggregate for each window.
//!
//! Prints one line: `peer=dbsp records=… seconds=… rate=… card_1m.n=…`, where each feature is added up over all answers
//! (`bench/peers/README.md`, "Totals"). Distinct counts and medians are left out: a rolling aggregate has to be put
//! together from those of parts of its window, and a set of all values in each part is no fair way to do that.
//!
//! Cards, devices and merchants are numbers and amounts whole cents, in favour of dbsp.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dbsp::algebra::Semigroup;
use dbsp::operator::time_series::{RelOffset, RelRange};
use dbsp::operator::{Fold, Min};
use dbsp::typed_batch::SpineSnapshot;
use dbsp::utils::{Tup2, Tup3, Tup6};
use dbsp::{DBData, IndexedZSetReader, OrdIndexedZSet, OutputHandle, RootCircuit, Runtime, Stream};

/// Card, device, merchant, first letter of the country, cents, time.
type Payment = Tup6<u64, u64, u64, u64, i64, u64>;
type Payments = Stream<RootCircuit, OrdIndexedZSet<u64, Payment>>;

/// Count, cents, squares of cents.
type Sums = Tup3<i64, i64, i64>;

/// Records of a step.
const STEP: usize = 10_000;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Of the window `(t - span, t]`.
fn range(span: u64) -> RelRange<u64> {
    RelRange::new(RelOffset::Before(span - 1), RelOffset::Before(0))
}

/// What a window comes to, with each change: the partition, the time, the aggregate.
type Answers<T> = OutputHandle<SpineSnapshot<OrdIndexedZSet<u64, Tup2<u64, Option<T>>>>>;

/// Count, sum and sum of squares in a window.
fn sums(payments: &Payments, key: fn(&Payment) -> u64, span: u64) -> Answers<Sums> {
    payments
        .partitioned_rolling_aggregate_linear(
            move |payment| (key(payment), payment.4),
            |cents| Tup3(1, *cents, cents * cents),
            |sums: Sums| sums,
            range(span),
        )
        .map_index(|(key, Tup2(time, sums))| (*key, Tup2(*time, sums.clone())))
        .accumulate_output()
}

/// The two newest values of a window: newer one first.
type Newest = Tup2<Tup2<u64, u64>, Tup2<u64, u64>>;

#[derive(Clone)]
struct Newer;

impl Semigroup<Newest> for Newer {
    fn combine(left: &Newest, right: &Newest) -> Newest {
        let mut all = [&left.0, &left.1, &right.0, &right.1];
        all.sort();
        Tup2(all[3].clone(), all[2].clone())
    }
}

fn newest(payments: &Payments, value: fn(&Payment) -> u64, span: u64) -> Answers<Newest> {
    let step = |held: &mut Newest, value: &Tup2<u64, u64>, _weight: i64| {
        *held = Newer::combine(held, &Tup2(value.clone(), Tup2(0, 0)));
    };
    let fold = Fold::<_, Newest, Newer, _, _>::new(Tup2(Tup2(0, 0), Tup2(0, 0)), step);
    payments
        .partitioned_rolling_aggregate(
            move |payment: &Payment| (payment.0, Tup2(payment.5, value(payment))),
            fold,
            range(span),
        )
        .map_index(|(key, Tup2(time, newest))| (*key, Tup2(*time, newest.clone())))
        .accumulate_output()
}

/// dbsp's own `Max` runs backwards, which cursors of rolling aggregates do not.
#[derive(Clone)]
struct Greatest;

impl Semigroup<i64> for Greatest {
    fn combine(left: &i64, right: &i64) -> i64 {
        *left.max(right)
    }
}

struct Outputs {
    card_1m: Answers<Sums>,
    card_1h: Answers<Sums>,
    card_24h: Answers<Sums>,
    card_30d: Answers<Sums>,
    device_24h: Answers<Sums>,
    device_30d: Answers<Sums>,
    merchant_1m: Answers<Sums>,
    merchant_1h: Answers<Sums>,
    least: Answers<i64>,
    most: Answers<i64>,
    shop: Answers<Newest>,
    before: Answers<Newest>,
}

/// By the names of features.
#[derive(Default)]
struct Totals(BTreeMap<&'static str, i64>);

impl Totals {
    /// Adds a change of answers, each of which counts what `worth` says.
    fn add<T: DBData>(&mut self, name: &'static str, answers: &[(T, i64)], worth: impl Fn(&T) -> i64) {
        let sum: i64 = answers.iter().map(|(answer, weight)| weight * worth(answer)).sum();
        *self.0.entry(name).or_default() += sum;
    }
}

/// What has changed in a step; answers that were replaced have the weight -1.
fn changes<T: DBData>(answers: &Answers<T>) -> Vec<(T, i64)> {
    let batch = answers.concat().consolidate();
    batch.iter().filter_map(|(_, Tup2(_, answer), weight)| Some((answer?, weight))).collect()
}

fn count(sums: &Sums) -> i64 {
    100 * sums.0
}

fn cents(sums: &Sums) -> i64 {
    sums.1
}

/// Averages often end in half a cent: what is added keeps them from a tie.
fn rounded(hundredths: f64) -> i64 {
    (hundredths + 0.31387).round() as i64
}

fn mean(sums: &Sums) -> i64 {
    rounded(sums.1 as f64 / sums.0 as f64)
}

fn deviation(sums: &Sums) -> i64 {
    let (n, sum, squares) = (sums.0 as f64, sums.1 as f64, sums.2 as f64);
    if sums.0 < 2 { 0 } else { rounded(((squares - sum * sum / n) / (n - 1.0)).max(0.0).sqrt()) }
}

impl Outputs {
    fn add_to(&self, totals: &mut Totals) {
        totals.add("card_1m.n", &changes(&self.card_1m), count);
        let card_1h = changes(&self.card_1h);
        totals.add("card_1h.n", &card_1h, count);
        totals.add("card_1h.spent", &card_1h, cents);
        totals.add("card_1h.shop", &changes(&self.shop), |newest| newest.0.1 as i64);
        let card_24h = changes(&self.card_24h);
        totals.add("card_24h.spent", &card_24h, cents);
        totals.add("card_24h.mean", &card_24h, mean);
        totals.add("card_24h.before", &changes(&self.before), |newest| newest.1.1 as i64);
        totals.add("card_30d.deviation", &changes(&self.card_30d), deviation);
        totals.add("device_24h.spent", &changes(&self.device_24h), cents);
        totals.add("device_24h.least", &changes(&self.least), |cents| *cents);
        totals.add("device_30d.most", &changes(&self.most), |cents| *cents);
        totals.add("device_30d.n", &changes(&self.device_30d), count);
        totals.add("merchant_1m.taken", &changes(&self.merchant_1m), cents);
        let merchant_1h = changes(&self.merchant_1h);
        totals.add("merchant_1h.mean", &merchant_1h, mean);
        totals.add("merchant_1h.deviation", &merchant_1h, deviation);
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("usage: dbsp-features FILE")?;
    let started = Instant::now();
    let payments = read(&path)?;
    let (mut circuit, (input, outputs)) = Runtime::init_circuit(2, |circuit| {
        let (payments, input) = circuit.add_input_indexed_zset::<u64, Payment>();
        let card = |payment: &Payment| payment.0;
        let device = |payment: &Payment| payment.1;
        let merchant = |payment: &Payment| payment.2;
        let outputs = Outputs {
            card_1m: sums(&payments, card, MINUTE),
            card_1h: sums(&payments, card, HOUR),
            card_24h: sums(&payments, card, DAY),
            card_30d: sums(&payments, card, 30 * DAY),
            device_24h: sums(&payments, device, DAY),
            device_30d: sums(&payments, device, 30 * DAY),
            merchant_1m: sums(&payments, merchant, MINUTE),
            merchant_1h: sums(&payments, merchant, HOUR),
            least: payments
                .partitioned_rolling_aggregate(|payment: &Payment| (payment.1, payment.4), Min, range(DAY))
                .map_index(|(key, Tup2(time, least))| (*key, Tup2(*time, *least)))
                .accumulate_output(),
            most: payments
                .partitioned_rolling_aggregate(
                    |payment: &Payment| (payment.1, payment.4),
                    Fold::<_, i64, Greatest, _, _>::new(
                        i64::MIN,
                        |held: &mut i64, cents: &i64, _weight: i64| {
                            *held = (*held).max(*cents);
                        },
                    ),
                    range(30 * DAY),
                )
                .map_index(|(key, Tup2(time, most))| (*key, Tup2(*time, *most)))
                .accumulate_output(),
            shop: newest(&payments, |payment| payment.2, HOUR),
            before: newest(&payments, |payment| payment.3, DAY),
        };
        Ok((input, outputs))
    })?;
    let mut totals = Totals::default();
    for step in payments.chunks(STEP) {
        let mut changes: Vec<_> =
            step.iter().map(|(time, payment)| Tup2(*time, Tup2(payment.clone(), 1))).collect();
        input.append(&mut changes);
        circuit.transaction()?;
        outputs.add_to(&mut totals);
    }
    let seconds = started.elapsed().as_secs_f64();
    let records = payments.len();
    print!("peer=dbsp records={records} seconds={seconds:.3} rate={:.0}", records as f64 / seconds);
    for (name, total) in totals.0 {
        print!(" {name}={total}");
    }
    println!();
    // Threads of the circuit would delay the exit.
    std::process::exit(0);
}

/// Payments by time, which differ.
fn read(path: &str) -> Result<Vec<(u64, Payment)>> {
    let file = File::open(path).with_context(|| format!("open {path}"))?;
    let mut lines = BufReader::with_capacity(1 << 20, file).lines();
    let header = lines.next().context("an empty file")??;
    if header != "ts,tx,card,device,merchant,country,amount" {
        bail!("another header: {header}");
    }
    lines.map(|line| parse(&line?)).collect()
}

fn parse(line: &str) -> Result<(u64, Payment)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [time, _, card, device, merchant, country, amount] = fields[..] else {
        bail!("no payment: {line:?}")
    };
    let number = |text: &str| text[1..].parse::<u64>().with_context(|| format!("no number: {text:?}"));
    let time = time.parse()?;
    let country = u64::from(*country.as_bytes().first().context("no country")?);
    let cents = (amount.parse::<f64>()? * 100.0).round() as i64;
    Ok((time, Tup6(number(card)?, number(device)?, number(merchant)?, country, cents, time)))
}
