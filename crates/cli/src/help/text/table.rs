//! Tables: side by side where that fits, one row after the other where it does not.

use super::wrap::{columns, wrap};

/// Columns between two cells.
const GAP: usize = 2;

/// Columns that the last cell has at least, side by side.
const LEAST: usize = 36;

/// Columns that the text of a row is indented by, below its first cell.
const INDENT: usize = 4;

#[derive(Default)]
pub(super) struct Table {
    /// The first one is the head.
    rows: Vec<Vec<String>>,
    row: Vec<String>,
}

impl Table {
    pub(super) fn cell(&mut self, cell: String) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    pub(super) fn text(&self, width: usize) -> String {
        let count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let natural = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| columns(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..count).map(natural).collect();
        let Some((last, before)) = widths.split_last() else { return String::new() };
        let taken: usize = before.iter().map(|width| width + GAP).sum();
        let left = width.saturating_sub(taken);
        if *last <= left || left >= LEAST { self.side_by_side(before, left) } else { self.stacked(width) }
    }

    fn side_by_side(&self, before: &[usize], left: usize) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| row.iter().any(|cell| !cell.is_empty())) {
            let mut lines = wrap(row.get(before.len()).map_or("", String::as_str), left).into_iter();
            let mut first = String::new();
            for (cell, width) in row.iter().zip(before) {
                first.push_str(&format!("{cell}{}", " ".repeat(width + GAP - columns(cell))));
            }
            let hanging = " ".repeat(columns(&first));
            first.push_str(&lines.next().unwrap_or_default());
            text.push_str(&format!("{}\n", first.trim_end()));
            lines.for_each(|line| text.push_str(&format!("{hanging}{line}\n")));
        }
        text
    }

    /// The first cell and those in the middle on one line, the last one below it.
    fn stacked(&self, width: usize) -> String {
        let (head, rows) =
            self.rows.split_first().map_or((&[][..], &[][..]), |(head, rows)| (&head[..], rows));
        let mut text = String::new();
        for row in rows {
            let (Some(first), Some(last)) = (row.first(), row.last()) else { continue };
            let middle =
                row.iter().zip(head).take(row.len() - 1).skip(1).filter(|(cell, _)| !cell.is_empty());
            let middle: Vec<String> = middle
                .map(|(cell, head)| match head.as_str() {
                    "default" if cell != "required" => format!("default {cell}"),
                    _ => cell.clone(),
                })
                .collect();
            let title =
                if middle.is_empty() { first.clone() } else { format!("{first}: {}", middle.join("; ")) };
            wrap(&title, width).iter().for_each(|line| text.push_str(&format!("{line}\n")));
            if row.len() > 1 {
                let lines = wrap(last, width - INDENT);
                lines.iter().for_each(|line| text.push_str(&format!("{}{line}\n", " ".repeat(INDENT))));
            }
        }
        text
    }
}
