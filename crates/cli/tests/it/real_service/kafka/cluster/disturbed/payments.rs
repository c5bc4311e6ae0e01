//! Payments as a function of the seed and their number, and what they come to.

use std::collections::BTreeMap;

use serde_json::Value;
use thalweg_harness::random::Random;

use super::super::{job_file, object_in};

pub(super) const CARDS: usize = 64;
pub(super) const SHOPS: usize = 64;

/// Numbers of payments that ask whether a key answers, which come between those of the load.
pub(super) const PROBES: u64 = 1 << 32;

/// Event time of the first payment; each is a millisecond after the one before.
const BASE: u64 = 1_767_225_600_000;

/// The lateness is above all of a run's skew, and ids are remembered for longer than any payment is repeated.
const SOURCE: &str = "lateness: 2h, id: tx, dedup: 2h, \
    schema: { tx: string, ts: timestamp(ms), card: string, shop: string, amount: int64 }";

const QUERIES: [&str; 2] = [
    "by_card: SELECT sum(amount) AS amount, count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 DAY",
    "by_shop: SELECT sum(amount) AS amount, count(*) AS n FROM payments GROUP BY shop OVER SLIDING 1 DAY",
];

/// The job of this name.
pub(super) fn job(name: &str) -> String {
    job_file(name, SOURCE, &QUERIES)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payment {
    pub(super) number: u64,
    pub(super) card: usize,
    pub(super) shop: usize,
    pub(super) amount: u64,
}

impl Payment {
    /// Those from [`PROBES`] on take all cards and all shops in turns.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut random = Random::new(seed).of("payments", number);
        let [card, shop] = [CARDS, SHOPS].map(|keys| match number.checked_sub(PROBES) {
            Some(probe) => probe as usize % keys,
            None => random.between(0, keys as u64 - 1) as usize,
        });
        Self { number, card, shop, amount: random.between(1, 1_000_000) }
    }

    /// The record, whose id is the same each time.
    pub(super) fn record(&self) -> String {
        let Self { number, card, shop, amount } = self;
        let ts = BASE + number % PROBES;
        format!(
            "{{\"tx\":\"t{number}\",\"ts\":{ts},\"card\":\"c{card}\",\"shop\":\"s{shop}\",\"amount\":{amount}}}"
        )
    }
}

/// What some payments come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) amount: u64,
}

impl Total {
    fn add(&mut self, payment: &Payment) {
        self.count += 1;
        self.amount += payment.amount;
    }

    fn of(answer: &Value, query: &str) -> Option<Self> {
        let values = answer.get(query)?;
        Some(Self { count: values["n"].as_u64()?, amount: values["amount"].as_u64()? })
    }
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) by_card: Total,
    pub(super) by_shop: Total,
    /// The record was counted before.
    pub(super) is_duplicate: bool,
}

impl Answer {
    /// Of a payment; the error is the text.
    pub(super) fn read(payment: &Payment, text: &str) -> Result<Self, String> {
        let read = || Self::in_object(payment, &object_in(text)?);
        read().ok_or_else(|| format!("expected an answer to {}, got {text:?}", payment.record()))
    }

    /// Of a row that was written, whose payment is the one of this number for `seed`; the error is the row.
    pub(super) fn of_row(seed: u64, row: &Value) -> Result<(u64, Self), String> {
        let read = || {
            let number = row["tx"].as_str()?.strip_prefix('t')?.parse().ok()?;
            Some((number, Self::in_object(&Payment::new(seed, number), row)?))
        };
        read().ok_or_else(|| format!("expected a row of a payment, got {row}"))
    }

    fn in_object(payment: &Payment, answer: &Value) -> Option<Self> {
        let is_of_it = answer["tx"] == format!("t{}", payment.number)
            && answer["card"] == format!("c{}", payment.card)
            && answer["shop"] == format!("s{}", payment.shop)
            && answer["amount"] == payment.amount;
        let is_late = answer.get("late").is_some_and(|late| !late.is_null());
        (is_of_it && !is_late).then_some(())?;
        Some(Self {
            by_card: Total::of(answer, "by_card")?,
            by_shop: Total::of(answer, "by_shop")?,
            is_duplicate: answer.get("duplicate").is_some_and(|duplicate| !duplicate.is_null()),
        })
    }
}

/// Payments added up, one after the other.
#[derive(Default)]
pub(super) struct Recount {
    by_card: BTreeMap<usize, Total>,
    by_shop: BTreeMap<usize, Total>,
}

impl Recount {
    pub(super) fn add(&mut self, payment: &Payment) {
        self.by_card.entry(payment.card).or_default().add(payment);
        self.by_shop.entry(payment.shop).or_default().add(payment);
    }

    /// Of the card and the shop of a payment.
    pub(super) fn of(&self, payment: &Payment) -> (Total, Total) {
        (self.by_card[&payment.card], self.by_shop[&payment.shop])
    }
}
