//! Reads files of payments and of answers: the peers' digest, and a recount from scratch.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Columns of our answers to the hourly query.
const HEADER: &str = "ts,card,merchant,amount,card_1h.spent,card_1h.n";

/// The digest that the peers print (`bench/peers/README.md`) of a file of our answers.
pub(crate) fn digest(answers: &Path) -> Result<u64> {
    let mut total = 0_u64;
    for line in lines(answers, HEADER)? {
        let line = line?;
        let fields: Vec<&str> = line.split(',').collect();
        let [ts, card, _, _, spent, n] = fields[..] else { anyhow::bail!("no answer: {line:?}") };
        let cents = (spent.parse::<f64>()? * 100.0).round() as i64;
        total = total.wrapping_add(term(ts.parse()?, card_number(card)?, cents, n.parse()?));
    }
    Ok(total)
}

fn term(ts: i64, card: u64, cents: i64, count: u64) -> u64 {
    let left = (ts % 1_000_003).cast_unsigned().wrapping_add(cents.cast_unsigned().wrapping_mul(31));
    left.wrapping_mul(card.wrapping_add(count.wrapping_mul(1_000_000)))
}

fn card_number(card: &str) -> Result<u64> {
    let digits = card.strip_prefix('c').with_context(|| format!("no card: {card:?}"))?;
    digits.parse().with_context(|| format!("no card: {card:?}"))
}

fn lines(path: &Path, header: &str) -> Result<impl Iterator<Item = std::io::Result<String>>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut lines = BufReader::new(file).lines();
    let first = lines.next().context("an empty file")??;
    ensure!(first == header, "expected the header {header:?}, got {first:?}");
    Ok(lines)
}

/// What each record's answer has to be: the record's line, then sum in cents and count, recounted for each
/// record from all records of its card.
pub(super) fn recount(payments: &Path, window_ms: i64) -> Result<Vec<(String, i64, u64)>> {
    let mut cards: HashMap<u64, Vec<(i64, i64)>> = HashMap::new();
    let mut expected = Vec::new();
    for line in lines(payments, "ts,card,merchant,amount")? {
        let line = line?;
        let fields: Vec<&str> = line.split(',').collect();
        let [ts, card, _, amount] = fields[..] else { anyhow::bail!("no payment: {line:?}") };
        let (ts, cents) = (ts.parse::<i64>()?, (amount.parse::<f64>()? * 100.0).round() as i64);
        let records = cards.entry(card_number(card)?).or_default();
        records.push((ts, cents));
        let held = records.iter().filter(|(time, _)| *time > ts - window_ms);
        let (sum, count) = held.fold((0, 0), |(sum, count), (_, cents)| (sum + cents, count + 1));
        expected.push((line, sum, count));
    }
    Ok(expected)
}

/// Compares a file of answers with what it has to be.
pub(super) fn compare(answers: &Path, expected: &[(String, i64, u64)]) -> Result<()> {
    for (number, (line, (record, cents, count))) in lines(answers, HEADER)?.zip(expected).enumerate() {
        let line = line?;
        let mut parts = line.rsplitn(3, ',');
        let (n, spent) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let same = parts.next().is_some_and(|fields| same_record(fields, record))
            && n.parse::<u64>().is_ok_and(|n| n == *count)
            && spent.parse::<f64>().is_ok_and(|spent| (spent * 100.0 - *cents as f64).abs() < 1e-3);
        ensure!(
            same,
            "answer {number}: expected {record} with {cents} cents in {count} records, got {line:?}"
        );
    }
    let lines = lines(answers, HEADER)?.count();
    ensure!(lines == expected.len(), "{lines} answers to {} records", expected.len());
    Ok(())
}

/// Equal fields, but for how a number is written.
fn same_record(left: &str, right: &str) -> bool {
    let mut pairs = left.split(',').zip(right.split(','));
    left.split(',').count() == right.split(',').count()
        && pairs
            .all(|(a, b)| a == b || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    const PAYMENTS: &str =
        "ts,card,merchant,amount\n1000,c1,m1,1.10\n1500,c2,m1,5.00\n2000,c1,m2,2.20\n2001,c1,m1,0.05\n";

    #[test]
    fn recount_has_the_half_open_window() {
        let (_folder, path) = file("payments.csv", PAYMENTS);
        let sums: Vec<_> =
            recount(&path, 1_000).unwrap().into_iter().map(|(_, cents, n)| (cents, n)).collect();
        assert_eq!(sums, [(110, 1), (500, 1), (220, 1), (225, 2)], "1000 is no longer in (1000, 2000]");
    }

    #[test]
    fn wrong_and_missing_answers_are_seen() {
        let (_folder, path) = file("payments.csv", PAYMENTS);
        let expected = recount(&path, 1_000).unwrap();
        let rows =
            ["1000,c1,m1,1.1,1.1,1", "1500,c2,m1,5,5,1", "2000,c1,m2,2.2,2.2,1", "2001,c1,m1,0.05,2.25,2"];
        let check = |rows: &[&str]| {
            let (_folder, path) = file("answers.csv", &format!("{HEADER}\n{}\n", rows.join("\n")));
            compare(&path, &expected).map_err(|error| error.to_string())
        };
        assert_eq!(check(&rows), Ok(()));
        assert!(check(&rows[..3]).is_err_and(|error| error.contains("3 answers to 4")));
        let wrong = [rows[0], rows[1], "2000,c1,m2,2.2,3.3,2", rows[3]];
        assert!(check(&wrong).is_err_and(|error| error.starts_with("answer 2")));
    }

    #[test]
    fn the_digest_is_the_peers() {
        // The README's rule by hand: (1000 + 31·110)·(1 + 10^6) + (1500 + 31·500)·(2 + 10^6).
        let (_folder, path) =
            file("answers.csv", &format!("{HEADER}\n1000,c1,m1,1.1,1.1,1\n1500,c2,m1,5,5,1\n"));
        assert_eq!(digest(&path).unwrap(), 4_410 * 1_000_001 + 17_000 * 1_000_002);
    }
}
