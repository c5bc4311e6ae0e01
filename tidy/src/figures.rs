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
//!
//! `?` stands for a figure whose result file is not there yet. [`filled`] writes the figures of result files into tables.

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

    /// Whether a result file is there.
    fn has(&self, name: &str) -> bool {
        self.read.contains_key(name) || self.folder.join(name).is_file()
    }

    /// The figures of a row, and what result files have for each; nothing where there is no such file and the cell says so.
    fn found(&mut self, row: &[&str], references: &str) -> Result<Vec<(usize, Vec<String>)>> {
        let inner = 1..row.len().saturating_sub(1).max(1);
        let figures: Vec<usize> = inner.filter(|place| is_figure(row[*place])).collect();
        let references: Vec<&str> = references.split(" | ").map(str::trim).collect();
        ensure!(
            figures.len() == references.len(),
            "the row has {} figures and its comment {} references",
            figures.len(),
            references.len()
        );
        let mut file_and_section = None;
        let mut all = Vec::new();
        for (place, reference) in figures.into_iter().zip(references) {
            let parts: Vec<&str> = reference.split(" > ").map(str::trim).collect();
            let (file, section, name, column) = match (parts.as_slice(), file_and_section) {
                ([file, section, name, column], _) => (*file, *section, *name, *column),
                (["…", name, column], Some((file, section))) => (file, section, *name, *column),
                _ => bail!("{reference:?} is not \"file > section > row > column\""),
            };
            file_and_section = Some((file, section));
            if row[place].starts_with(UNKNOWN) && !self.has(file) {
                continue;
            }
            let found = referred(self.text(file)?, section, name, column).with_context(|| file.to_owned())?;
            all.push((place, found.into_iter().map(str::to_owned).collect()));
        }
        Ok(all)
    }

    fn check_row(&mut self, row: &[&str], references: &str) -> Result<()> {
        for (place, found) in self.found(row, references)? {
            let is_there = found.iter().any(|found| gives(row[place], found));
            ensure!(is_there, "the cell says {:?}, the result file {found:?}: {references}", row[place]);
        }
        Ok(())
    }
}

/// How a cell begins whose result file is not there yet.
const UNKNOWN: char = '?';

fn is_figure(cell: &str) -> bool {
    cell.starts_with(UNKNOWN) || cell.contains(|c: char| c.is_ascii_digit())
}

/// What follows the figure in a cell: a name of what was counted, mostly.
fn after_figure(cell: &str) -> &str {
    const UNITS: [&str; 14] = ["k", "M", "G", "B", "KiB", "MiB", "GiB", "GB", "s", "ms", "µs", "×", "%", "?"];
    let mut rest = cell;
    for (place, word) in cell.split(' ').enumerate() {
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        if !(UNITS.contains(&word) || (place == 0 && is_number)) {
            break;
        }
        rest = rest.strip_prefix(word).unwrap_or(rest).trim_start_matches(' ');
    }
    rest
}

/// Figures of a document's tables that its result files do not have.
pub fn other_figures(file: &File, results: &Path) -> Vec<Problem> {
    others(file, Results { folder: results, read: HashMap::new() })
}

fn others(file: &File, mut results: Results<'_>) -> Vec<Problem> {
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

/// A document with the figures that result files have now. A row that is wrong in another way stays as it is.
pub fn filled(file: &File, results: &Path) -> String {
    fill(file, Results { folder: results, read: HashMap::new() })
}

fn fill(file: &File, mut results: Results<'_>) -> String {
    let mut lines: Vec<String> = file.text.lines().map(str::to_owned).collect();
    for table in claimed(&file.text) {
        for (at, (row, references)) in table.rows.iter().zip(&table.references).enumerate() {
            let Ok(found) = results.found(row, references) else { continue };
            let mut row: Vec<String> = row.iter().map(|cell| (*cell).to_owned()).collect();
            for (place, found) in found {
                if let Some(figure) =
                    found.first().filter(|_| !found.iter().any(|found| gives(&row[place], found)))
                {
                    row[place] = format!("{figure} {}", after_figure(&row[place])).trim_end().to_owned();
                }
            }
            lines[table.line - 1 + at] = format!("| {} |", row.join(" | "));
        }
    }
    lines.join("\n") + "\n"
}

/// How many figures the tables of a document hold to result files.
pub fn held(file: &File) -> usize {
    claimed(&file.text).iter().flat_map(|table| &table.references).map(|line| line.split(" | ").count()).sum()
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

    const RESULT: &str = "\
## Beside other systems

| system | records/s | peak memory |
|---|---:|---:|
| Thalweg, two cores | 8.92 M | 36 MiB |
| DuckDB, two cores | 3.55 M | 368 MiB |
";

    fn results() -> Results<'static> {
        let read = HashMap::from([("windows.md".to_owned(), RESULT.to_owned())]);
        Results { folder: Path::new("no such folder"), read }
    }

    fn problems(text: &str) -> Vec<String> {
        others(&File::new("a.md", text), results()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn figures_are_filled_in_and_what_follows_them_stays() {
        let old = GOOD
            .replace("8.92 M records/s", "7 k records/s")
            .replace("3.55 M records/s", "? records/s (after the fact)")
            .replace("36 MiB", "?");
        assert_ne!(problems(&old), Vec::<String>::new());
        let new = fill(&File::new("a.md", old), results());
        assert_eq!(new, GOOD.replace("3.55 M records/s", "3.55 M records/s (after the fact)"));
        assert_eq!(problems(&new), Vec::<String>::new());
    }

    #[test]
    fn a_figure_may_be_missing_as_long_as_its_result_file_is() {
        let missing = GOOD.replace("windows.md", "other.md").replace("8.92 M records/s", "?");
        let missing = missing.replace("3.55 M records/s", "?").replace("36 MiB", "?");
        assert_eq!(problems(&missing), Vec::<String>::new());
        assert_eq!(fill(&File::new("a.md", missing.clone()), results()), missing);
        assert!(!problems(&GOOD.replace("36 MiB", "?")).is_empty());
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
