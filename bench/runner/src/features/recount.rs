//! The features recounted from scratch: for each payment, over all payments before it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::payments::HEADER;
use super::totals::{Totals, hundredths};
use crate::figures::Figures;

struct Payment {
    ts: i64,
    card: String,
    device: String,
    merchant: String,
    country: String,
    amount: f64,
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Of a small file: the time is that of the square of its lines.
pub(super) fn totals(path: &Path) -> Result<Totals> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut lines = text.lines();
    ensure!(lines.next() == Some(HEADER), "another header in {}", path.display());
    let payments = lines.map(parse).collect::<Result<Vec<Payment>>>()?;
    let mut totals: Vec<(String, i128)> = super::list::names().map(|name| (name, 0)).collect();
    for at in 0..payments.len() {
        let now = &payments[at];
        let within = |is_same: fn(&Payment, &Payment) -> bool, window: i64| -> Vec<&Payment> {
            let before = payments[..=at].iter();
            before.filter(|payment| is_same(payment, now) && payment.ts > now.ts - window).collect()
        };
        let card = |window| within(|a, b| a.card == b.card, window);
        let device = |window| within(|a, b| a.device == b.device, window);
        let merchant = |window| within(|a, b| a.merchant == b.merchant, window);
        let (card_1h, card_1d, card_30d) = (card(HOUR), card(DAY), card(30 * DAY));
        let (device_1d, device_30d, merchant_1h) = (device(DAY), device(30 * DAY), merchant(HOUR));
        let amounts = |held: &[&Payment]| held.iter().map(|payment| payment.amount).collect::<Vec<f64>>();
        let distinct = |held: &[&Payment], field: fn(&Payment) -> &str| {
            held.iter().map(|payment| field(payment)).collect::<BTreeSet<&str>>().len() as i128 * 100
        };
        let values = [
            count(&card(MINUTE)),
            count(&card_1h),
            hundredths(sum(&amounts(&card_1h))),
            now.merchant[1..].parse::<i128>()?,
            hundredths(sum(&amounts(&card_1d))),
            hundredths(mean(&amounts(&card_1d))),
            card_1d.iter().rev().nth(1).map_or(0, |payment| i128::from(payment.country.as_bytes()[0])),
            hundredths(deviation(&amounts(&card_30d))),
            distinct(&card_30d, |payment| &payment.merchant),
            hundredths(middle(amounts(&card_30d))),
            distinct(&device(HOUR), |payment| &payment.card),
            hundredths(sum(&amounts(&device_1d))),
            hundredths(amounts(&device_1d).into_iter().fold(f64::INFINITY, f64::min)),
            hundredths(amounts(&device_30d).into_iter().fold(0.0, f64::max)),
            count(&device_30d),
            hundredths(sum(&amounts(&merchant(MINUTE)))),
            hundredths(mean(&amounts(&merchant_1h))),
            hundredths(deviation(&amounts(&merchant_1h))),
            distinct(&merchant(DAY), |payment| &payment.card),
            hundredths(middle(amounts(&merchant(30 * DAY)))),
        ];
        totals.iter_mut().zip(values).for_each(|((_, total), value)| *total += value);
    }
    let line: Vec<String> = totals.iter().map(|(name, total)| format!("{name}={total}")).collect();
    Totals::of_figures(&Figures::parse(&line.join(" ")).context("there are totals")?)
}

fn parse(line: &str) -> Result<Payment> {
    let fields: Vec<&str> = line.split(',').collect();
    let [ts, _, card, device, merchant, country, amount] = fields[..] else {
        anyhow::bail!("no payment: {line:?}")
    };
    Ok(Payment {
        ts: ts.parse()?,
        card: card.to_owned(),
        device: device.to_owned(),
        merchant: merchant.to_owned(),
        country: country.to_owned(),
        amount: amount.parse()?,
    })
}

/// In hundredths, as all numbers count.
fn count(held: &[&Payment]) -> i128 {
    held.len() as i128 * 100
}

fn sum(amounts: &[f64]) -> f64 {
    amounts.iter().map(|amount| (amount * 100.0).round()).sum::<f64>() / 100.0
}

fn mean(amounts: &[f64]) -> f64 {
    sum(amounts) / amounts.len() as f64
}

/// Of a sample; of one value there is none, which counts nothing.
fn deviation(amounts: &[f64]) -> f64 {
    if amounts.len() < 2 {
        return 0.0;
    }
    let mean = mean(amounts);
    let squares: f64 = amounts.iter().map(|amount| (amount - mean) * (amount - mean)).sum();
    (squares / (amounts.len() - 1) as f64).sqrt()
}

/// The value of rank `floor((n - 1) / 2)`.
fn middle(mut amounts: Vec<f64>) -> f64 {
    amounts.sort_by(f64::total_cmp);
    amounts[(amounts.len() - 1) / 2]
}
