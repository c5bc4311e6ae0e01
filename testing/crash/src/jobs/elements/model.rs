//! What keyed elements emit, as their documentation says it, with plain maps and no thought for memory.
//!
//! Amounts are in quarters, times in milliseconds. All values that are compared are exact: mean and variance are
//! updated as documented, so they are the same to the last bit.

use std::collections::{BTreeMap, HashMap};

use super::super::payments::Record;

/// Milliseconds, as the job file has them.
pub(super) const LATENESS: i64 = 1_500;
/// For so long a second record with an id is a duplicate; longer than [`LATENESS`].
pub(super) const DEDUP: i64 = 2_000;
pub(super) const TTL: i64 = 400;
pub(super) const INTERVAL: i64 = 1_000;
pub(super) const WITHIN: i64 = 700;
/// `triples` emits after every `EVERY` records of a key.
pub(super) const EVERY: u64 = 3;
/// Amounts above this, in quarters, are the first input of the join.
pub(super) const HOT: i64 = 200;

/// How long a record of a join waits.
const WAIT: i64 = WITHIN + LATENESS;
/// Records that found no other are looked at in steps of this share of their wait.
const STEPS: i64 = 16;

/// What differs between rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulse {
    /// Of the wall clock, milliseconds.
    pub(super) every: i64,
    /// Otherwise its time to live changes nothing.
    pub(super) forgets: bool,
}

/// A count of a key, and when it was touched.
#[derive(Clone, Copy, Debug)]
struct Count {
    count: u64,
    touched: i64,
}

/// An interval of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) card: String,
    pub(super) start: i64,
    pub(super) count: u64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    squares: f64,
}

impl Interval {
    pub(super) fn variance(&self) -> f64 {
        self.squares / self.count as f64
    }

    fn add(&mut self, value: f64) {
        self.count += 1;
        (self.min, self.max) = (self.min.min(value), self.max.max(value));
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }
}

/// A record of a join that came, whether it waits or not.
struct Joined {
    record: Record,
    /// Task time when it came.
    came: i64,
    has_pair: bool,
}

/// Everything that all operators have seen and should have emitted.
pub(super) struct Model {
    pulse: Pulse,
    time: i64,
    tick: Option<i64>,
    /// When ids were seen last.
    ids: HashMap<String, i64>,
    pub(super) duplicates: u64,
    triples: HashMap<String, Count>,
    /// Card and count, in order.
    pub(super) tripled: Vec<(String, u64)>,
    pulses: HashMap<String, Count>,
    /// Cards that were touched since their last output, in the order of that.
    pending: Vec<String>,
    /// By tick.
    pub(super) pulsed: Vec<Vec<(String, u64)>>,
    /// In the order in which they began.
    intervals: Vec<Interval>,
    joined: HashMap<String, [Vec<Joined>; 2]>,
    /// Records of both inputs, in order.
    pub(super) pairs: Vec<(Record, Record)>,
    shops: HashMap<String, (String, i64)>,
    /// Records with the shop before.
    pub(super) moves: Vec<(Record, Option<String>)>,
}

impl Model {
    pub(super) fn new(pulse: Pulse) -> Self {
        Self {
            pulse,
            time: i64::MIN,
            tick: None,
            ids: HashMap::new(),
            duplicates: 0,
            triples: HashMap::new(),
            tripled: Vec::new(),
            pulses: HashMap::new(),
            pending: Vec::new(),
            pulsed: Vec::new(),
            intervals: Vec::new(),
            joined: HashMap::new(),
            pairs: Vec::new(),
            shops: HashMap::new(),
            moves: Vec::new(),
        }
    }

    /// The next record; whether it is rejected as late.
    pub(super) fn record(&mut self, record: &Record) -> bool {
        let now = self.time.max(record.ts);
        if self.ids.get(&record.id).is_some_and(|seen| now - seen < DEDUP) {
            self.duplicates += 1;
            return false;
        }
        if record.ts < now - LATENESS {
            return true;
        }
        self.ids.insert(record.id.clone(), now);
        self.time = now;
        self.triple(record);
        self.pulse(record);
        self.join(record);
        self.change(record);
        self.sum(record);
        false
    }

    /// The wall clock, in microseconds.
    pub(super) fn tick(&mut self, now: i64) {
        let span = |time: i64| time.div_euclid(self.pulse.every * 1_000);
        let is_due = self.tick.replace(now).is_some_and(|before| span(now) > span(before));
        if !is_due {
            return;
        }
        let mut told = Vec::new();
        for card in self.pending.drain(..) {
            let Count { count, touched } = self.pulses[&card];
            if !self.pulse.forgets || self.time - touched < TTL {
                told.push((card, count));
            }
        }
        self.pulsed.push(told);
    }

    fn triple(&mut self, record: &Record) {
        let now = self.time;
        let seen = self.triples.get(&record.card).filter(|seen| now - seen.touched < TTL);
        let count = seen.map_or(0, |seen| seen.count) + 1;
        self.triples.insert(record.card.clone(), Count { count, touched: now });
        if count.is_multiple_of(EVERY) {
            self.tripled.push((record.card.clone(), count));
        }
    }

    fn pulse(&mut self, record: &Record) {
        let now = self.time;
        let is_alive = |seen: &&Count| !self.pulse.forgets || now - seen.touched < TTL;
        let count = self.pulses.get(&record.card).filter(is_alive).map_or(0, |seen| seen.count) + 1;
        self.pulses.insert(record.card.clone(), Count { count, touched: now });
        if !self.pending.contains(&record.card) {
            self.pending.push(record.card.clone());
        }
    }

    fn sum(&mut self, record: &Record) {
        let start = record.ts.div_euclid(INTERVAL) * INTERVAL;
        let value = record.quarters as f64 / 4.0;
        let same = |other: &&mut Interval| other.card == record.card && other.start == start;
        // Those that are open are among the last ones.
        if let Some(interval) = self.intervals.iter_mut().rev().find(same) {
            interval.add(value);
        } else {
            let card = record.card.clone();
            let mut interval =
                Interval { card, start, count: 0, min: value, max: value, mean: 0.0, squares: 0.0 };
            interval.add(value);
            self.intervals.push(interval);
        }
    }

    fn join(&mut self, record: &Record) {
        let side = usize::from(record.quarters <= HOT);
        let came = self.time;
        let sides = self.joined.entry(record.card.clone()).or_default();
        let mut has_pair = false;
        for other in &mut sides[1 - side] {
            let is_near = (record.ts - other.record.ts).abs() <= WITHIN;
            if is_near && came - other.record.ts <= WAIT {
                (has_pair, other.has_pair) = (true, true);
                let mut pair = (record.clone(), other.record.clone());
                if side == 1 {
                    pair = (pair.1, pair.0);
                }
                self.pairs.push(pair);
            }
        }
        sides[side].push(Joined { record: record.clone(), came, has_pair });
    }

    fn change(&mut self, record: &Record) {
        let now = self.time;
        let last = self.shops.insert(record.card.clone(), (record.shop.clone(), now));
        let last = last.filter(|(_, touched)| now - touched < TTL).map(|(shop, _)| shop);
        if last.as_ref() != Some(&record.shop) {
            self.moves.push((record.clone(), last));
        }
    }

    /// The intervals that are over, in the order in which they were.
    pub(super) fn sums(&self) -> Vec<&Interval> {
        let is_over = |interval: &&Interval| interval.start + INTERVAL + LATENESS <= self.time;
        let mut over: Vec<&Interval> = self.intervals.iter().filter(is_over).collect();
        // Stable: of those that end together the first one that began comes first.
        over.sort_by_key(|interval| interval.start);
        over
    }

    /// Records of the join's first input that found no other: those that may have been emitted alone, by id and time, and
    /// whether they must have been.
    pub(super) fn alone(&self) -> BTreeMap<(&str, i64), (&Record, bool)> {
        let first = self.joined.values().flat_map(|sides| &sides[0]);
        let alone = first.filter(|kept| !kept.has_pair && self.time - kept.record.ts > WAIT);
        alone
            .map(|kept| {
                let is_surely_over = self.time > kept.came + WAIT + WAIT / STEPS + 1;
                ((kept.record.id.as_str(), kept.record.ts), (&kept.record, is_surely_over))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGETS: Pulse = Pulse { every: 40, forgets: true };

    fn record(ts: i64, card: &str, shop: &str, quarters: i64) -> Record {
        let id = format!("{card}@{ts}");
        Record { ts, id, card: card.to_owned(), shop: shop.to_owned(), quarters }
    }

    #[test]
    fn a_key_that_was_not_touched_for_long_begins_anew() {
        let mut model = Model::new(FORGETS);
        model.record(&record(0, "c", "s", 4));
        model.record(&record(399, "c", "s", 4));
        model.record(&record(799, "c", "s", 4));
        for ts in [800, 801] {
            model.record(&record(ts, "c", "s", 4));
        }
        assert_eq!(model.tripled, [("c".to_owned(), 3)], "the third record came 400 ms after the second");
        let moves: Vec<_> = model.moves.iter().map(|(record, shop)| (record.ts, shop.as_deref())).collect();
        assert_eq!(moves, [(0, None), (799, None)]);
    }

    #[test]
    fn a_pulse_tells_what_was_touched_since_the_last_one() {
        let mut model = Model::new(FORGETS);
        model.tick(1_000);
        model.record(&record(0, "a", "s", 4));
        model.record(&record(0, "b", "s", 4));
        model.tick(39_999);
        assert!(model.pulsed.is_empty());
        model.record(&record(400, "b", "s", 4));
        model.tick(40_000);
        model.tick(80_000);
        assert_eq!(
            model.pulsed,
            [vec![("b".to_owned(), 1)], vec![]],
            "a was forgotten, and so was b's count"
        );
    }

    #[test]
    fn an_id_comes_once_within_its_span() {
        let mut model = Model::new(FORGETS);
        model.record(&record(0, "c", "s", 4));
        for ts in [1_999, 2_000] {
            model.record(&Record { ts, ..record(0, "c", "s", 4) });
        }
        assert_eq!((model.duplicates, model.sums().len()), (1, 0));
        assert_eq!(model.time, 2_000);
    }

    #[test]
    fn intervals_end_in_their_order_and_late_records_are_refused() {
        let mut model = Model::new(FORGETS);
        assert!(!model.record(&record(1_100, "a", "s", 8)));
        assert!(!model.record(&record(900, "b", "s", 4)));
        assert!(!model.record(&record(1_900, "a", "s", 16)));
        assert!(!model.record(&record(3_499, "c", "s", 4)));
        assert!(model.record(&record(1_998, "a", "s", 4)));
        let sums: Vec<_> = model.sums().iter().map(|sum| (sum.start, sum.count)).collect();
        assert_eq!(sums, [(0, 1)]);
        model.record(&record(3_500, "c", "s", 4));
        let last = model.sums()[1];
        assert_eq!((last.min, last.max, last.mean, last.variance()), (2.0, 4.0, 3.0, 1.0));
    }

    #[test]
    fn pairs_are_near_and_the_first_has_not_waited_too_long() {
        let mut model = Model::new(FORGETS);
        model.record(&record(0, "c", "s", HOT + 1));
        model.record(&record(700, "c", "s", HOT));
        model.record(&record(701, "c", "s", HOT));
        model.record(&record(2_200, "d", "s", HOT + 1));
        model.record(&Record { id: "again".to_owned(), ..record(700, "c", "s", HOT) });
        model.record(&record(2_201, "d", "s", HOT + 1));
        assert!(model.record(&record(699, "c", "s", HOT)), "late now");
        let pairs: Vec<_> = model.pairs.iter().map(|(one, other)| (one.ts, other.ts)).collect();
        assert_eq!(pairs, [(0, 700), (0, 700)]);
        assert!(model.alone().is_empty());
        model.record(&record(4_402, "e", "s", 4));
        let alone = model.alone();
        let alone: Vec<_> = alone.iter().map(|((id, _), (_, must))| (*id, *must)).collect();
        assert_eq!(alone, [("d@2200", false), ("d@2201", false)]);
        model.record(&record(4_540, "e", "s", 4));
        assert!(model.alone().values().all(|(_, must)| *must));
    }
}
