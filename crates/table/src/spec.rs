//! What a table is asked to be: the keys of its sink, read.

use serde::{Deserialize, Serialize};
use thalweg_connect::{Mistake, Options};
use thalweg_types::{Error, Micros};

use crate::RollupSpec;

const SECOND: Micros = 1_000_000;
const HOUR: Micros = 3_600 * SECOND;
const DAY: Micros = 24 * HOUR;

/// Rows of a sealed file, unless the sink says otherwise.
pub(crate) const SEAL_ROWS: u64 = 1_000_000;

/// How the names of folders cut up time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Partition {
    Hour,
    Day,
}

impl Partition {
    fn length(self) -> Micros {
        match self {
            Partition::Hour => HOUR,
            Partition::Day => DAY,
        }
    }

    /// Which partition a time is in.
    pub(crate) fn of(self, time: Micros) -> i64 {
        time.div_euclid(self.length())
    }

    /// The folder of a partition: `2026-11-22` or `2026-11-22T07`.
    pub(crate) fn folder(self, partition: i64) -> String {
        let text = thalweg_types::format_timestamp(partition.saturating_mul(self.length()));
        let keep = match self {
            Partition::Hour => 13,
            Partition::Day => 10,
        };
        // Years before 0 and after 9999 have more figures.
        let date = text.find('T').map_or(keep, |at| at + keep - 10);
        text.chars().take(date).collect()
    }
}

/// How Parquet pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Zstd,
    Lz4,
    Snappy,
    None,
}

/// A column of addresses that are cut to a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Truncate {
    pub column: String,
    /// Bits that are kept.
    pub ipv4: u8,
    pub ipv6: u8,
}

/// The keys of a `table` sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub time: Option<String>,
    /// Empty: all.
    pub columns: Vec<String>,
    pub drop: Vec<String>,
    pub truncate: Vec<Truncate>,
    pub partition: Partition,
    pub retention: Option<Micros>,
    pub codec: Codec,
    pub seal_rows: u64,
    pub seal_every: Micros,
    /// Finer ones first.
    pub rollups: Vec<RollupSpec>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            time: None,
            columns: Vec::new(),
            drop: Vec::new(),
            truncate: Vec::new(),
            partition: Partition::Day,
            retention: None,
            codec: Codec::Zstd,
            seal_rows: SEAL_ROWS,
            seal_every: 300 * SECOND,
            rollups: Vec::new(),
        }
    }
}

impl Spec {
    /// The shortest time for which something is kept; `None` where all is.
    pub(crate) fn shortest_retention(&self) -> Option<Micros> {
        self.rollups.iter().map(|rollup| rollup.retention).chain([self.retention]).flatten().min()
    }

    /// # Errors
    /// All mistakes that can be seen without the schema of the input.
    pub(crate) fn read(options: &Options) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let list = |key: &str| options.list(key).unwrap_or_default().to_vec();
        let mut truncate = Vec::new();
        for text in list("truncate") {
            match read_truncate(&text) {
                Ok(one) => truncate.push(one),
                Err(error) => mistakes.push(Mistake::new("truncate", error)),
            }
        }
        let default = Self::default();
        let mut rollups: Vec<RollupSpec> = Vec::new();
        for (name, options) in options.sections("rollups").unwrap_or_default() {
            match read_rollup(name, options) {
                Ok(rollup) => rollups.push(rollup),
                Err(error) => mistakes.push(Mistake::new(format!("rollups.{name}"), error)),
            }
        }
        rollups.sort_by_key(|rollup| rollup.every);
        let spec = Self {
            time: options.text("time").map(str::to_owned),
            columns: list("columns"),
            drop: list("drop"),
            truncate,
            partition: match options.text("partition") {
                Some("hour") => Partition::Hour,
                _ => Partition::Day,
            },
            retention: options.duration("retention"),
            codec: match options.text("compression") {
                Some("lz4") => Codec::Lz4,
                Some("snappy") => Codec::Snappy,
                Some("none") => Codec::None,
                _ => Codec::Zstd,
            },
            seal_rows: options.integer("seal_rows").map_or(default.seal_rows, i64::unsigned_abs),
            seal_every: options.duration("seal_every").unwrap_or(default.seal_every),
            rollups,
        };
        for (key, span) in [("retention", spec.retention), ("seal_every", Some(spec.seal_every))] {
            if span == Some(0) {
                mistakes.push(Mistake::new(key, Error::user("expected a time above 0, got 0s")));
            }
        }
        if mistakes.is_empty() { Ok(spec) } else { Err(mistakes) }
    }
}

/// `src_addr`, `src_addr/20` or `src_addr/20/40`.
fn read_truncate(text: &str) -> Result<Truncate, Error> {
    let mut parts = text.split('/');
    let column = parts.next().unwrap_or_default().to_owned();
    let mut bits = |name: &str, default: u8, most: u8| match parts.next() {
        None => Ok(default),
        Some(text) => text.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
            Error::user(format!("expected 0 to {most} bits of {name}, got {text:?}"))
                .with_hint("COLUMN, COLUMN/IPV4 or COLUMN/IPV4/IPV6, such as src_addr/24/48")
        }),
    };
    let (ipv4, ipv6) = (bits("IPv4", 24, 32)?, bits("IPv6", 48, 128)?);
    if column.is_empty() || parts.next().is_some() {
        return Err(Error::user(format!("expected COLUMN, COLUMN/IPV4 or COLUMN/IPV4/IPV6, got {text:?}")));
    }
    Ok(Truncate { column, ipv4, ipv6 })
}

fn read_rollup(name: &str, options: &Options) -> Result<RollupSpec, Error> {
    let every = options.duration("every").unwrap_or_default();
    // Partitions are whole hours, and intervals do not reach over their ends.
    if every < SECOND || every % SECOND != 0 || DAY % every != 0 {
        return Err(Error::user(format!(
            "rollup {name:?}: expected whole seconds that divide a day, got {}",
            thalweg_types::format_duration(every)
        ))
        .with_hint("1m, 5m and 1h are usual"));
    }
    if name == crate::folder::ROWS || name == crate::folder::FRESH {
        return Err(Error::user(format!("rollup {name:?}: this name is taken by the table itself")));
    }
    if options.duration("retention") == Some(0) {
        return Err(Error::user(format!("rollup {name:?}: expected a retention above 0, got 0s")));
    }
    let list = |key: &str| options.list(key).unwrap_or_default().to_vec();
    Ok(RollupSpec {
        name: name.to_owned(),
        every,
        by: list("by"),
        sum: list("sum"),
        retention: options.duration("retention"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_dates() {
        let time = 1_763_796_896_000_000;
        assert_eq!(Partition::Day.folder(Partition::Day.of(time)), "2025-11-22");
        assert_eq!(Partition::Hour.folder(Partition::Hour.of(time)), "2025-11-22T07");
        assert_eq!(Partition::Day.folder(Partition::Day.of(-1)), "1969-12-31");
    }

    #[test]
    fn addresses_are_truncated_to_what_was_written() {
        let read = |text| read_truncate(text).map(|one| (one.ipv4, one.ipv6));
        assert_eq!(read("a").unwrap(), (24, 48));
        assert_eq!(read("a/20").unwrap(), (20, 48));
        assert_eq!(read("a/0/128").unwrap(), (0, 128));
        for text in ["", "a/33", "a/24/129", "a/x", "a/1/2/3", "/24"] {
            assert!(read_truncate(text).is_err(), "{text}");
        }
    }
}
