//! The oracle: keeps every accepted record and recomputes each window from scratch, exactly.

use std::collections::BTreeSet;

use num_bigint::{BigInt, Sign};
use num_rational::BigRational;
use num_traits::{Signed, Zero};
use thalweg_types::LatePolicy;

use super::*;
use crate::query::Window;

pub(super) const GROUP_BYS: [&str; 5] = [
    "",
    " GROUP BY card",
    " GROUP BY card, shop",
    " GROUP BY x > 2, card",
    " GROUP BY upper(shop) || '/' || CAST(k % 2 AS string)",
];

/// `x > limit`, as SQL has it: NaN is above every number.
fn is_above(record: &Record, limit: f64) -> Option<bool> {
    record.x.map(|x| x > limit || x.is_nan())
}

/// What is grouped by in the last of [`GROUP_BYS`].
fn shop_and_parity(record: &Record) -> Option<(String, i64)> {
    Some((record.shop.as_ref()?.to_uppercase(), record.k? % 2))
}

#[derive(Clone, Debug)]
pub(super) struct NaiveQuery {
    pub(super) window: Window,
    pub(super) delay: Micros,
    /// `x > limit`
    pub(super) filter: Option<f64>,
    /// One of [`GROUP_BYS`].
    pub(super) keys: usize,
}

impl NaiveQuery {
    pub(super) fn text(&self) -> String {
        let filter = self.filter.map_or(String::new(), |limit| format!(" WHERE x > {limit}"));
        let group = GROUP_BYS[self.keys];
        let window = match self.window {
            Window::Sliding(span) => format!("SLIDING {span} MICROSECONDS"),
            Window::Tumbling(span) => format!("TUMBLING {span} MICROSECONDS"),
            Window::Infinite => "INFINITE".to_owned(),
            Window::Rows(rows) => format!("ROWS {rows}"),
        };
        let delay =
            if self.delay > 0 { format!(" DELAYED BY {} MICROSECONDS", self.delay) } else { String::new() };
        format!(
            "SELECT count(*) AS n, count(x) AS c, sum(x) AS s, avg(x) AS a, var(x) AS v, var_pop(x) AS vp, \
             stddev(x) AS d, stddev_pop(x) AS dp, min(x) AS lo, max(x) AS hi, first(x) AS f, last(x) AS l, \
             prev(x) AS p, count(DISTINCT x) AS u, quantile(x, 0.5) AS q, sum(k) AS k, first(shop) AS fs, \
             max(shop) AS ms, count(DISTINCT shop) AS us, count(*) FILTER (WHERE k > 0) AS nk, \
             sum(x) FILTER (WHERE k > 0) AS sk, last(shop) FILTER (WHERE k > 0) AS lk, max(k) - min(k) AS rk, \
             100.0 * count(*) FILTER (WHERE k > 0) / count(*) AS pk, last(shop) = prev(shop) AS same, \
             count(DISTINCT shop, x) AS usx, count(DISTINCT k, shop, card) FILTER (WHERE k > 0) AS ukc \
             FROM s{filter}{group} OVER {window}{delay}"
        )
    }
}

#[derive(Clone, Default)]
pub(super) struct Naive {
    /// (time at which it counts, arrival, record)
    added: Vec<(Micros, usize, Record)>,
    /// Ids that were taken, when, and under which order number.
    seen: Vec<(String, Micros, Option<u64>)>,
    now: Option<Micros>,
    arrivals: usize,
    /// What is below it is late, whatever `lateness` is now.
    floor: Option<Micros>,
}

impl Naive {
    /// A restart, at which another `lateness` may take the place of that in `options`.
    pub(super) fn restart(&mut self, options: &StageOptions) {
        self.floor = self.floor.max(self.now.map(|now| now - options.lateness));
    }

    /// Whether the record is made of one whose id was taken from another part.
    fn is_part(&self, record: &Record) -> bool {
        let is_same = |seen: &(String, Micros, Option<u64>)| {
            seen.2 == record.seq && Some(&seen.0) == record.id.as_ref()
        };
        record.seq.is_some() && self.seen.iter().any(is_same)
    }

    /// Takes a record and recomputes the outputs of every query for it.
    pub(super) fn answer(
        &mut self,
        record: &Record,
        queries: &[NaiveQuery],
        options: &StageOptions,
    ) -> Vec<Vec<Value>> {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let tentative = self.now.map_or(record.time, |now| now.max(record.time));
        let is_duplicate = match (&record.id, options.dedup) {
            (Some(id), Some((_, span))) => {
                !self.is_part(record)
                    && self.seen.iter().any(|(other, at, _)| other == id && *at > tentative - span)
            }
            _ => false,
        };
        let bound = self.floor.unwrap_or(Micros::MIN).max(tentative - options.lateness);
        let is_late = record.time < bound;
        if !is_duplicate && (!is_late || options.late == LatePolicy::Clamp) {
            self.now = Some(tentative);
            self.added.push((record.time.max(bound), arrival, record.clone()));
            if let (Some(id), Some(_)) = (&record.id, options.dedup)
                && !self.is_part(record)
            {
                self.seen.push((id.clone(), tentative, record.seq));
            }
        }
        queries.iter().map(|query| self.outputs(query, record)).collect()
    }

    fn outputs(&self, query: &NaiveQuery, asked: &Record) -> Vec<Value> {
        let now = self.now.unwrap_or(asked.time);
        let head = now - query.delay;
        let same = |other: &Record| match query.keys {
            0 => true,
            1 => other.card == asked.card,
            3 => other.card == asked.card && is_above(other, 2.0) == is_above(asked, 2.0),
            4 => shop_and_parity(other) == shop_and_parity(asked),
            _ => other.card == asked.card && other.shop == asked.shop,
        };
        let above = |record: &Record| query.filter.is_none_or(|limit| is_above(record, limit) == Some(true));
        let mut held: Vec<&(Micros, usize, Record)> = self
            .added
            .iter()
            .filter(|(time, _, record)| *time <= head && same(record) && above(record))
            .filter(|(time, ..)| match query.window {
                Window::Sliding(span) => *time > head - span,
                Window::Tumbling(span) => *time >= head.div_euclid(span) * span,
                Window::Infinite | Window::Rows(_) => true,
            })
            .collect();
        held.sort_by_key(|(time, arrival, _)| (*time, *arrival));
        if let Window::Rows(limit) = query.window {
            held.drain(..held.len().saturating_sub(limit as usize));
        }
        outputs(&held.into_iter().map(|(.., record)| record).collect::<Vec<_>>())
    }
}

fn count_different<T: Ord>(values: impl Iterator<Item = Option<T>>) -> Value {
    Value::Int64(values.flatten().collect::<BTreeSet<_>>().len() as i64)
}

fn float(value: Option<f64>) -> Value {
    value.map_or(Value::Null, Value::Float64)
}

fn outputs(held: &[&Record]) -> Vec<Value> {
    let xs: Vec<f64> = held.iter().filter_map(|record| record.x).collect();
    let shops: Vec<&String> = held.iter().filter_map(|record| record.shop.as_ref()).collect();
    let text = |shop: Option<&&String>| shop.map_or(Value::Null, |shop| Value::String((*shop).clone()));
    let mut sorted: Vec<Value> = xs.iter().map(|x| Value::Float64(*x)).collect();
    sorted.sort();
    let distinct: BTreeSet<&Value> = sorted.iter().collect();
    let ks: Vec<i64> = held.iter().filter_map(|record| record.k).collect();
    let sum_of_ks: i128 = ks.iter().map(|k| i128::from(*k)).sum();
    let at = |index: Option<usize>| index.map_or(Value::Null, |index| sorted[index].clone());
    let last = xs.len().checked_sub(1);
    let positive = || held.iter().filter(|record| record.k.is_some_and(|k| k > 0));
    vec![
        Value::Int64(held.len() as i64),
        Value::Int64(xs.len() as i64),
        float(sum(&xs)),
        float(special(&xs).or_else(|| ratio(&xs, |n, s1, _| Some((s1, n))))),
        float(ratio(&xs, |n, s1, s2| variance(&n, &s1, &s2, &(n.clone() - 1)))),
        float(ratio(&xs, |n, s1, s2| variance(&n, &s1, &s2, &n))),
        float(rounded(&xs, root, |n, s1, s2| variance(&n, &s1, &s2, &(n.clone() - 1)))),
        float(rounded(&xs, root, |n, s1, s2| variance(&n, &s1, &s2, &n))),
        at(last.map(|_| 0)),
        at(last),
        float(xs.first().copied()),
        float(xs.last().copied()),
        float(xs.len().checked_sub(2).map(|index| xs[index])),
        Value::Int64(distinct.len() as i64),
        at(last.map(|last| last / 2)),
        if ks.is_empty() { Value::Null } else { i64::try_from(sum_of_ks).map_or(Value::Null, Value::Int64) },
        text(shops.first()),
        text(shops.iter().max()),
        Value::Int64(shops.iter().collect::<BTreeSet<_>>().len() as i64),
        Value::Int64(positive().count() as i64),
        float(sum(&positive().filter_map(|record| record.x).collect::<Vec<_>>())),
        text(positive().filter_map(|record| record.shop.as_ref()).collect::<Vec<_>>().last()),
        ks.iter().max().and_then(|max| max.checked_sub(*ks.iter().min()?)).map_or(Value::Null, Value::Int64),
        Value::Float64(100.0 * positive().count() as f64 / held.len() as f64),
        shops.last_chunk().map_or(Value::Null, |[before, last]| Value::Bool(before == last)),
        count_different(held.iter().map(|record| Some((record.shop.clone()?, Value::Float64(record.x?))))),
        count_different(
            positive().map(|record| Some((record.k?, record.shop.clone()?, record.card.clone()?))),
        ),
    ]
}

fn exact(x: f64) -> BigRational {
    BigRational::from_float(x).expect("finite")
}

/// The double nearest to a rational, ties to even.
fn nearest(value: &BigRational) -> f64 {
    if value.is_zero() {
        return 0.0;
    }
    let magnitude = value.abs();
    // Scale so that the integer part has 55 to 56 bits, or fewer where the result is subnormal.
    let bits = magnitude.numer().bits() as i64 - magnitude.denom().bits() as i64;
    let shift = (55 - bits).min(1074 + 2);
    let scaled = if shift >= 0 {
        magnitude * BigRational::from_integer(BigInt::from(1) << shift)
    } else {
        magnitude / BigRational::from_integer(BigInt::from(1) << -shift)
    };
    let whole = scaled.trunc().to_integer();
    let sticky = !(scaled - BigRational::from_integer(whole.clone())).is_zero();
    let integer: BigInt = (whole << 1) + i32::from(sticky);
    let (_, digits) = integer.to_u64_digits();
    let number = u128::from(digits[0]) | u128::from(digits.get(1).copied().unwrap_or(0)) << 64;
    // Drop to 53 bits, or to the last bit of a subnormal, with ties to even.
    let exponent = -shift - 1;
    let width = 128 - i64::from(number.leading_zeros());
    let drop = (width - 53).max(-1074 - exponent).max(0);
    let kept = number >> drop;
    let rest = number & ((1 << drop) - 1);
    let half = if drop > 0 { 1_u128 << (drop - 1) } else { 0 };
    let up = drop > 0 && (rest > half || (rest == half && kept & 1 == 1));
    let mantissa = (kept + u128::from(up)) as f64;
    let power = exponent + drop;
    let result = if power > 900 {
        mantissa * 2_f64.powi(900) * 2_f64.powi((power - 900) as i32)
    } else if power < -900 {
        mantissa * 2_f64.powi((power + 900) as i32) * 2_f64.powi(-900)
    } else {
        mantissa * 2_f64.powi(power as i32)
    };
    if value.numer().sign() == Sign::Minus { -result } else { result }
}

/// What infinities and NaN make of a sum, before any exact arithmetic.
fn special(xs: &[f64]) -> Option<f64> {
    let is_any = |kind: fn(&f64) -> bool| xs.iter().any(kind);
    let (up, down) = (is_any(|x| *x == f64::INFINITY), is_any(|x| *x == f64::NEG_INFINITY));
    if is_any(|x| x.is_nan()) || (up && down) {
        Some(f64::NAN)
    } else if up {
        Some(f64::INFINITY)
    } else if down {
        Some(f64::NEG_INFINITY)
    } else {
        None
    }
}

fn sum(xs: &[f64]) -> Option<f64> {
    if xs.is_empty() {
        return None;
    }
    Some(special(xs).unwrap_or_else(|| nearest(&xs.iter().copied().map(exact).sum())))
}

/// The square root of a rational whose double may be out of range where the root's is not.
fn root(value: &BigRational) -> f64 {
    let half = (value.numer().bits() as i64 - value.denom().bits() as i64) / 2;
    let unit = BigRational::from_integer(BigInt::from(1) << (2 * half.abs()));
    let scaled = if half >= 0 { value / unit } else { value * unit };
    nearest(&scaled).sqrt() * 2_f64.powi(half as i32)
}

fn ratio(
    xs: &[f64],
    of: impl Fn(BigInt, BigRational, BigRational) -> Option<(BigRational, BigInt)>,
) -> Option<f64> {
    rounded(xs, nearest, of)
}

/// A quotient of exact sums, `of(n, Σx, Σx²)` as numerator and divisor, made a double by `round`.
fn rounded(
    xs: &[f64],
    round: impl Fn(&BigRational) -> f64,
    of: impl Fn(BigInt, BigRational, BigRational) -> Option<(BigRational, BigInt)>,
) -> Option<f64> {
    if xs.is_empty() {
        return None;
    }
    let n = BigInt::from(xs.len());
    if special(xs).is_some() {
        return of(n, BigRational::zero(), BigRational::zero()).map(|_| f64::NAN);
    }
    let s1: BigRational = xs.iter().copied().map(exact).sum();
    let s2: BigRational = xs.iter().copied().map(|x| exact(x) * exact(x)).sum();
    let (numerator, divisor) = of(n, s1, s2)?;
    Some(round(&(numerator / BigRational::from_integer(divisor))))
}

/// (n·Σx² − (Σx)²) / (n · divisor); `None` for a divisor of 0.
fn variance(
    n: &BigInt,
    s1: &BigRational,
    s2: &BigRational,
    divisor: &BigInt,
) -> Option<(BigRational, BigInt)> {
    let n_exact = BigRational::from_integer(n.clone());
    (!divisor.is_zero()).then(|| (n_exact * s2 - s1 * s1, n * divisor))
}

/// Place of an output among those of [`NaiveQuery::text`] whose value may be off by a few units in the last place, and by
/// what part where it is a sketch.
pub(super) fn is_close(output: usize, engine: &Value, naive: &Value) -> bool {
    let (Value::Float64(engine), Value::Float64(naive)) = (engine, naive) else { return engine == naive };
    if engine.is_nan() || naive.is_nan() {
        // var and stddev of an infinity are NaN here and there; avg keeps the infinity.
        return engine.is_nan() == naive.is_nan();
    }
    match output {
        3..=7 => ulps(*engine, *naive) <= 2,
        14 => engine == naive || (engine - naive).abs() <= 0.01 * naive.abs() * 1.000_001,
        _ => (engine + 0.0).to_bits() == (naive + 0.0).to_bits(),
    }
}

fn ulps(a: f64, b: f64) -> u64 {
    let ordered = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN - bits } else { bits }
    };
    ordered(a).abs_diff(ordered(b))
}
