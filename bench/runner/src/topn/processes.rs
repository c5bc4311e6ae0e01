//! What it costs that a user's query runs in a process of its own.

use anyhow::{Context, Result};

use super::ask::{Query, milliseconds};
use super::stored::Stored;
use super::{Bench, CORES, DAY, Options, THREADS, TITLES, queries};
use crate::figures::Figures;
use crate::report::{Report, Table, count};
use crate::{pinned, process};

/// What it may cost, of a query over rows.
const ASKED_PERCENT: f64 = 5.0;

impl Bench {
    pub(super) fn processes(&self, options: &Options, report: &mut Report) -> Result<()> {
        let rows =
            options.scaled(options.rows.iter().copied().find(|rows| *rows == DAY).unwrap_or(options.rows[0]));
        report.heading("A process for each query");
        report.say(&format!("{} rows. Both answer with the same bytes of Arrow IPC, the engine in the process that asks and the one in a process of its own, as with `thalweg run --listen`; with the limits of a node. They take turns: medians, and the median of the differences.", count(rows as f64)));
        let stored = self.fill(rows, "zstd")?;
        let mut table =
            Table::new(["query", "in this process", "in its own", "difference", "of the query", "asked"]);
        for (rollups, over) in [(false, "raw"), (true, "rollups")] {
            let asked = queries("");
            for (title, line) in TITLES.iter().zip(self.compare(&stored, &asked, rollups, options)?) {
                let number = |name: &str| line.number(name);
                table.row([
                    format!("{title}, {over}"),
                    milliseconds(number("here_ms")?),
                    milliseconds(number("worker_ms")?),
                    milliseconds(number("difference_ms")?),
                    format!("{:.1} %", number("percent")?),
                    if rollups { "≤ 0.50 ms".to_owned() } else { format!("≤ {ASKED_PERCENT} %") },
                ]);
            }
        }
        report.table(&table);
        Ok(())
    }

    fn compare(
        &self,
        stored: &Stored,
        asked: &[Query],
        rollups: bool,
        options: &Options,
    ) -> Result<Vec<Figures>> {
        let mut command = pinned(Some(CORES), &self.topn);
        command.arg("--data-dir").arg(&stored.data_dir).arg("compare").arg("--program").arg(&self.thalweg);
        if !rollups {
            command.arg("--no-rollups");
        }
        let turns = if options.quick { 3 } else { options.repeat.max(1) * 5 };
        command.args(["--threads", THREADS, "--turns", &turns.to_string()]);
        command.args(asked.iter().map(|query| format!("{}={}", query.name, query.sql)));
        let finished = process::run(command)?;
        let lines: Vec<Figures> = finished.stdout.lines().filter_map(Figures::parse).collect();
        (lines.len() == asked.len()).then_some(lines).context("a line for each query")
    }
}
