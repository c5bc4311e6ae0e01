//! Tables of made-up flows, as a job leaves them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::figures::Figures;
use crate::process;
use crate::sflow::{Tables, joined_flows};
use crate::{pinned, topn::CORES};

/// Ten million samples are a day.
const GAP_MICROS: u64 = 8_640;

/// Event time of the first one.
const START: &str = "2026-01-01";

/// What a table is filled with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) count: u64,
    pub(super) codec: &'a str,
    /// Pairs of hosts that talk, if not as many as made-up flows have by themselves.
    pub(super) pairs: Option<u64>,
}

/// A data directory with one table.
pub(super) struct Stored {
    pub(super) data_dir: PathBuf,
    /// Paths of the Parquet files with its rows, one a line, for the peer.
    pub(super) listed: PathBuf,
    /// Rows and bytes of each part: `rows`, and its rollups by their names.
    parts: Vec<(String, u64, u64)>,
    /// Rows a second at which the job has filled it.
    pub(super) rate: f64,
    /// Goes with it.
    _folder: tempfile::TempDir,
}

impl Stored {
    /// Fills a table: both joins, and rollups of the pairs.
    pub(super) fn fill(
        thalweg: &Path,
        topn: &Path,
        joined: &Tables,
        folder: &Path,
        Rows { count: rows, codec, pairs }: Rows<'_>,
    ) -> Result<Self> {
        let rollup =
            |every: &str, by: [&str; 2]| json!({ "every": every, "by": by, "sum": ["bytes", "packets"] });
        let (asns, names) = (["src_asn", "dst_asn"], ["src_name", "dst_name"]);
        let mut job = joined_flows(joined, rows);
        job["sources"]["switches"]["start"] = json!(START);
        job["sources"]["switches"]["gap"] = json!(format!("{GAP_MICROS}us"));
        if let Some(pairs) = pairs {
            job["sources"]["switches"]["pairs"] = json!(pairs);
        }
        job["sinks"]["flows"] = json!({
            "type": "table",
            "input": "names",
            "compression": codec,
            "columns": ["time", "bytes", "packets", "src_addr", "dst_addr", "protocol", "src_port", "dst_port",
                "src_asn", "src_country", "dst_asn", "dst_country", "src_name", "dst_name"],
            "rollups": {
                "as_hour": rollup("1h", asns),
                "as_day": rollup("1d", asns),
                "name_hour": rollup("1h", names),
                "name_day": rollup("1d", names),
            },
        });
        let folder = tempfile::Builder::new().prefix("table").tempdir_in(folder)?;
        let data_dir = folder.path().join("data");
        let path = folder.path().join("job.json");
        std::fs::write(&path, format!("{job:#}\n")).context("write the job file")?;
        let mut command = pinned(Some(CORES), thalweg);
        command.arg("run").arg(path).args(["--quiet", "--workers", "2", "--data-dir"]).arg(&data_dir);
        let figures = process::run(command)?.figures("rate")?;
        ensure!(figures.number("answers")? == rows as f64, "not {rows} rows but {figures:?} came out");

        let mut list = Command::new(topn);
        list.arg("--data-dir").arg(&data_dir).arg("files");
        let mut parts: Vec<(String, u64, u64)> = Vec::new();
        let mut paths = String::new();
        let listing = process::run(list)?.stdout;
        for file in listing.lines() {
            let (line, path) = file.split_once(" path=").context("a file has a path")?;
            let file = Figures::parse(line).context("a file has figures")?;
            let part = file.text("part")?;
            if part == "rows" {
                paths += path;
                paths.push('\n');
            }
            let (rows, bytes) = (file.number("rows")? as u64, file.number("bytes")? as u64);
            match parts.iter_mut().find(|(name, ..)| name == part) {
                Some((_, all_rows, all_bytes)) => {
                    *all_rows += rows;
                    *all_bytes += bytes;
                }
                None => parts.push((part.to_owned(), rows, bytes)),
            }
        }
        let listed = folder.path().join("files");
        std::fs::write(&listed, paths).context("list the files")?;
        let stored = Self { data_dir, listed, _folder: folder, parts, rate: figures.number("rate")? };
        ensure!(
            stored.part("rows")?.0 == rows,
            "not {rows} rows but {} are in files",
            stored.part("rows")?.0
        );
        Ok(stored)
    }

    /// Rows and bytes of a part.
    pub(super) fn part(&self, name: &str) -> Result<(u64, u64)> {
        let part = self.parts.iter().find(|(part, ..)| part == name);
        part.map(|(_, rows, bytes)| (*rows, *bytes)).with_context(|| format!("the table has no {name}"))
    }
}

/// A condition for the hour in the middle of this many rows.
pub(super) fn middle_hour(rows: u64) -> String {
    let hour = rows * GAP_MICROS / 2 / 3_600_000_000;
    let time = |hours: u64| format!("TIMESTAMP '{START} {:02}:00:00'", hours);
    format!("WHERE time >= {} AND time < {}", time(hour), time(hour + 1))
}
