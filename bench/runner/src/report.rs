//! Results as Markdown, printed as they come and written to `docs/benchmarks/results/NAME.md`.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::machine;
use thalweg_harness::project;

/// A table of text.
#[derive(Clone, Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has as many cells as the header");
        self.rows.push(cells.to_vec());
    }

    fn render(&self) -> String {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let pad = widths[column] - cell.chars().count();
                // Figures are in all columns but the first.
                let (before, after) = if column == 0 { (0, pad) } else { (pad, 0) };
                let _ = write!(text, "| {}{cell}{} ", " ".repeat(before), " ".repeat(after));
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let _ = match column {
                        0 => write!(text, "|{}", "-".repeat(width + 2)),
                        _ => write!(text, "|{}:", "-".repeat(width + 1)),
                    };
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// The results of one benchmark.
pub(super) struct Report {
    file: String,
    text: String,
}

impl Report {
    /// Starts with the machine.
    pub(super) fn new(name: &'static str, title: &str) -> Self {
        let mut report = Self { file: name.to_owned(), text: String::new() };
        report.push(&format!("# {title}\n"));
        report.push(&format!(
            "Written by `cargo xtask bench {name}`; figures of one table come from one run.\n"
        ));
        report.table(&machine::describe());
        report
    }

    /// Of a benchmark of which only a part is run: results of the others stay as they are.
    pub(super) fn of_parts(mut self, only: &[String]) -> Self {
        if let [part] = only {
            self.file = format!("{}-{part}", self.file);
        }
        self
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.push(&format!("## {text}\n"));
    }

    /// A paragraph, one sentence per line.
    pub(super) fn say(&mut self, text: &str) {
        self.push(&format!("{text}\n"));
    }

    pub(super) fn table(&mut self, table: &Table) {
        self.push(&table.render());
    }

    /// Something that is shown as it is.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.push(&format!("```text\n{}\n```\n", text.trim_end()));
    }

    /// Writes a picture next to the results and shows it.
    pub(super) fn picture(&mut self, file: &str, caption: &str, svg: &str) -> Result<()> {
        let path = folder()?.join(file);
        fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
        self.push(&format!("![{caption}]({file})\n"));
        Ok(())
    }

    fn push(&mut self, block: &str) {
        println!("{block}");
        self.text.push_str(block);
        self.text.push('\n');
    }

    /// Writes the file. Quick runs show that a benchmark works and are not kept.
    pub(super) fn finish(self, quick: bool) -> Result<()> {
        if quick {
            println!("A quick run: nothing is written.");
            return Ok(());
        }
        let path = folder()?.join(format!("{}.md", self.file));
        fs::write(&path, self.text.trim_end().to_owned() + "\n")
            .with_context(|| format!("write {}", path.display()))?;
        println!("written to docs/benchmarks/results/{}.md", self.file);
        Ok(())
    }
}

/// Removes the results of all benchmarks.
pub(super) fn remove_all() -> Result<()> {
    for entry in fs::read_dir(folder()?)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "md" || end == "svg") {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn folder() -> Result<std::path::PathBuf> {
    let folder = project::root().join("docs/benchmarks/results");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// `4.08 M`, `81.2 k`, `950`.
pub(super) fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 999_500.0 => format!("{:.2} M", value / 1e6),
        size if size >= 999.5 => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

/// Bytes in MiB.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Processor time of one record: `0.24 µs`, `31 µs`.
pub(super) fn cpu_per_record(cpu: Duration, records: f64) -> String {
    micros(cpu.as_secs_f64() * 1e6 / records.max(1.0))
}

/// `0.24 µs`, `31 µs`, `1203 µs`.
pub(super) fn micros(micros: f64) -> String {
    if micros < 10.0 { format!("{micros:.2} µs") } else { format!("{micros:.0} µs") }
}

/// `51 ×`, `1.82 ×`, `0.004 ×`.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        10.0.. => format!("{ratio:.0} ×"),
        0.1.. => format!("{ratio:.2} ×"),
        _ => format!("{ratio:.3} ×"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_markdown() {
        let mut table = Table::new(["system", "rate"]);
        table.row(["ours".to_owned(), count(4_081_632.0)]);
        table.row(["Flink".to_owned(), count(81_200.0)]);
        assert_eq!(
            table.render(),
            "| system |   rate |\n|--------|-------:|\n| ours   | 4.08 M |\n| Flink  | 81.2 k |\n"
        );
    }
}
