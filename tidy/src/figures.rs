//! Figures in tables are those of result files.
//!
//! A table with figures has a comment right after it, one line for each of its rows, in their order:
//!
//! ```text
//! <!-- figures
//! windows.md > Beside other systems > Thalweg, one core > records/s | … > DuckDB, two cores > records/s
//! -->
//! ```
//!
//! Such a line names a cell of a result file for each figure of the row, from left to right: the file in
//! `docs/benchmarks/results/`, the section, the row by its first cells, and the column by its heading. `…` repeats the
//! file and the section. A figure is a cell with a digit that is not in the first or last column; it begins with what
//! the result file has, and a unit may follow. A row's first cells may be told apart by more cells, parted by ` + `.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::Problem;
use crate::repository::File;

const OPENS: &str = "<!-- figures";

/// Cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect()
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The tables below one heading of a file, each with its heading row first.
fn tables<'t>(text: &'t str, section: &str) -> Vec<Vec<Vec<&'t str>>> {
    let mut tables: Vec<Vec<Vec<&str>>> = Vec::new();
    let mut inside = false;
    let mut in_table = false;
    for line in text.lines() {
        if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == section;
        }
        if inside && is_row(line) {
            if !in_table {
                tables.push(Vec::new());
            }
            let rule = line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
            if let Some(table) = tables.last_mut().filter(|_| !rule) {
                table.push(cells(line));
            }
        }
        in_table = inside && is_row(line);
    }
    tables
}

/// All cells that a reference may mean; tables of one section may have equal rows and columns.
fn referred<'t>(text: &'t str, section: &str, row: &str, column: &str) -> Result<Vec<&'t str>> {
    let tables = tables(text, section);
    ensure!(!tables.is_empty(), "no section {section:?} with a table");
    let mut found = Vec::new();
    for table in &tables {
        let Some(at) = table.first().and_then(|head| head.iter().position(|cell| *cell == column)) else {
            continue;
        };
        let fits = |cells: &&Vec<&str>| row.split(" + ").all(|part| cells.contains(&part));
        found.extend(table.iter().skip(1).filter(fits).filter_map(|cells| cells.get(at).copied()));
    }
    ensure!(!found.is_empty(), "section {section:?} has no row {row:?} with a column {column:?}");
    Ok(found)
}

/// Whether a cell gives a figure of a result file, as it is there or without zeros at its end, and a unit perhaps.
fn gives(cell: &str, figure: &str) -> bool {
    cell.strip_prefix(figure).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '/']))
}

/// The rows of each table that has a comment, and that comment's lines.
struct Claimed<'t> {
    line: usize,
    rows: Vec<Vec<&'t str>>,
    references: Vec<&'t str>,
}

fn claimed(text: &str) -> Vec<Claimed<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| line.trim() == OPENS) {
        let table_end = lines[..at].iter().rposition(|line| is_row(line)).map_or(0, |last| last + 1);
        let table_begin =
            lines[..table_end].iter().rposition(|line| !is_row(line)).map_or(0, |last| last + 1);
        // The first two lines are the heading and the rule below it.
        let rows = lines[table_begin..table_end].iter().skip(2).map(|line| cells(line)).collect();
        let references = lines[at + 1..].iter().take_while(|line| line.trim() != "-->").copied().collect();
        found.push(Claimed { line: table_begin + 3, rows, references });
    }
    found
}

/// Reads the result files that tables refer to, once each.
struct Results<'p> {
    folder: &'p Path,
    read: HashMap<String, String>,
}

impl Results<'_> {
    fn text(&mut self, name: &str) -> Result<&str> {
        if !self.read.contains_key(name) {
            let path = self.folder.join(name);
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            self.read.insert(name.to_owned(), text);
        }
        Ok(&self.read[name])
    }

    fn check_row(&mut self, row: &[&str], references: &str) -> Result<()> {
        let inner = row.get(1..row.len().saturating_sub(1)).unwrap_or_default();
        let figures: Vec<&str> =
            inner.iter().copied().filter(|cell| cell.contains(|c: char| c.is_ascii_digit())).collect();
        let references: Vec<&str> = references.split(" | ").map(str::trim).collect();
        ensure!(
            figures.len() == references.len(),
            "the row has {} figures and its comment {} references",
            figures.len(),
            references.len()
        );
        let mut file_and_section = None;
        for (figure, reference) in figures.iter().zip(references) {
            let parts: Vec<&str> = reference.split(" > ").map(str::trim).collect();
            let (file, section, row, column) = match (parts.as_slice(), file_and_section) {
                ([file, section, row, column], _) => (*file, *section, *row, *column),
                (["…", row, column], Some((file, section))) => (file, section, *row, *column),
                _ => bail!("{reference:?} is not \"file > section > row > column\""),
            };
            file_and_section = Some((file, section));
            let found = referred(self.text(file)?, section, row, column).with_context(|| file.to_owned())?;
            ensure!(
                found.iter().any(|found| gives(figure, found)),
                "the cell says {figure:?}, {file} {found:?} ({row}, {column})"
            );
        }
        Ok(())
    }
}

/// Figures of a document's tables that its result files do not have.
pub fn other_figures(file: &File, results: &Path) -> Vec<Problem> {
    let mut results = Results { folder: results, read: HashMap::new() };
    let mut problems = Vec::new();
    for table in claimed(&file.text) {
        if table.rows.len() != table.references.len() {
            let text = format!(
                "the table has {} rows, its comment {} lines",
                table.rows.len(),
                table.references.len()
            );
            problems.push(Problem::at(&file.path, table.line, text));
            continue;
        }
        for (at, (row, references)) in table.rows.iter().zip(&table.references).enumerate() {
            if let Err(error) = results.check_row(row, references) {
                problems.push(Problem::at(&file.path, table.line + at, format!("{error:#}")));
            }
        }
    }
    problems
}

/// How many figures the tables of a document hold to result files.
pub fn held(file: &File) -> usize {
    claimed(&file.text).iter().flat_map(|table| &table.references).map(|line| line.split(" | ").count()).sum()
}

/// The names of result files that the tables of a document refer to.
pub fn files_of(file: &File) -> Vec<String> {
    let mut names: Vec<String> = claimed(&file.text)
        .iter()
        .flat_map(|table| &table.references)
        .flat_map(|line| line.split(" | "))
        .filter_map(|reference| reference.split(" > ").next())
        .filter(|name| *name != "…")
        .map(|name| name.trim().to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A row of the table at the top of a result file: `processor`, `commit`.
pub fn measured_on<'t>(result: &'t str, what: &str) -> Option<&'t str> {
    result
        .lines()
        .filter(|line| is_row(line))
        .map(cells)
        .find(|row| row.first() == Some(&what))?
        .get(1)
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::root;

    const GOOD: &str = "\
| work | Thalweg | DuckDB | how |
|---|---|---|---|
| an hour, two cores | 8.92 M records/s | 3.55 M records/s | [how](x) |
| its memory | 36 MiB | – | [how](x) |

<!-- figures
windows.md > Beside other systems > Thalweg, two cores > records/s | … > DuckDB, two cores > records/s
windows.md > Beside other systems > Thalweg, two cores > peak memory
-->
";

    fn problems(text: &str) -> Vec<String> {
        let results = root().join("docs/benchmarks/results");
        other_figures(&File::new("a.md", text), &results).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn figures_of_a_result_file_pass() {
        assert_eq!(problems(GOOD), Vec::<String>::new());
        assert_eq!(held(&File::new("a.md", GOOD)), 3);
    }

    #[test]
    fn each_way_to_be_wrong_is_found() {
        for (from, to, says) in [
            ("8.92 M", "8.93 M", "a.md:3: the cell says \"8.93 M records/s\""),
            ("8.92 M", "8.9 M", "a.md:3"),
            ("36 MiB", "360 MiB", "a.md:4"),
            ("| – |", "| 5 MiB |", "2 figures and its comment 1"),
            ("DuckDB, two cores >", "DuckDB, one core >", "no row \"DuckDB, one core\""),
            ("windows.md > Beside", "nowhere.md > Beside", "nowhere.md"),
            ("> Beside", "> Besides", "no section"),
            ("> peak memory\n", "> peak\n", "column \"peak\""),
            ("> peak memory\n", "> peak memory\nwindows.md > a > b > c\n", "2 rows, its comment 3 lines"),
        ] {
            let changed = GOOD.replacen(from, to, 1);
            assert_ne!(changed, GOOD, "{from:?}");
            let found = problems(&changed);
            assert!(found.len() == 1 && found[0].contains(says), "{from:?} to {to:?}: {found:?}");
        }
    }
}
