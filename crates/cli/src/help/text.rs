//! Markdown as plain text of a given width: headings, wrapped paragraphs, lists, code, tables.

mod table;
mod wrap;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use table::Table;
use wrap::{columns, wrap};

/// Columns that code is indented by.
const CODE: usize = 4;

/// The page as text; each block is followed by an empty line, but for the last.
pub(super) fn plain(markdown: &str, width: usize) -> String {
    let mut page = Page { width, ..Page::default() };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        page.take(event);
    }
    page.text.truncate(page.text.trim_end().len());
    page.text.push('\n');
    page.text
}

#[derive(Default)]
struct Page {
    width: usize,
    text: String,
    /// Text of the present paragraph, heading, item or cell.
    line: String,
    /// Columns that the present block is indented by.
    indent: usize,
    /// What the first line of an item begins with, in the last columns of its indent.
    bullet: Option<String>,
    /// Of each list that is open: the number of its next item, or none.
    lists: Vec<Option<u64>>,
    is_code: bool,
    table: Option<Table>,
    /// Where each link that is open leads.
    links: Vec<String>,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => self.code(&text),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.line.push_str(&text),
            Event::Code(code) => self.line.push_str(&format!("`{code}`")),
            Event::SoftBreak | Event::HardBreak => self.line.push(' '),
            Event::Rule => self.text.push_str(&format!("{}\n\n", "─".repeat(self.width))),
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::CodeBlock(_) => {
                self.flush();
                self.is_code = true;
            }
            Tag::List(first) => {
                self.flush();
                self.lists.push(first);
            }
            Tag::Item => {
                let bullet = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "* ".to_owned(),
                };
                self.indent += bullet.len();
                self.bullet = Some(bullet);
            }
            Tag::Table(_) => self.table = Some(Table::default()),
            Tag::Link { dest_url, .. } => self.links.push(dest_url.into_string()),
            Tag::Emphasis => self.line.push('*'),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => {
                let heading = std::mem::take(&mut self.line);
                if matches!(level, HeadingLevel::H1 | HeadingLevel::H2) {
                    self.text.push_str(&format!("{}\n\n", heading.to_uppercase()));
                } else {
                    let heading = heading.replace('`', "");
                    self.text.push_str(&format!("{heading}\n{}\n\n", "-".repeat(columns(&heading))));
                }
            }
            TagEnd::Paragraph => {
                self.flush();
                self.text.push('\n');
            }
            TagEnd::CodeBlock => {
                self.is_code = false;
                self.text.push('\n');
            }
            TagEnd::Item => {
                self.flush();
                let width = if self.lists.last().is_some_and(Option::is_some) { 3 } else { 2 };
                self.indent = self.indent.saturating_sub(width);
            }
            TagEnd::List(_) => {
                self.lists.pop();
                if self.lists.is_empty() && !self.text.ends_with("\n\n") {
                    self.text.push('\n');
                }
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.line);
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::Table => {
                let table = self.table.take().unwrap_or_default();
                self.text.push_str(&table.text(self.width));
                self.text.push('\n');
            }
            TagEnd::Link => {
                let to = self.links.pop().unwrap_or_default();
                let page = to.split('#').next().unwrap_or_default().strip_suffix(".md");
                if let Some(page) = page.filter(|page| !page.contains('/')) {
                    self.line.push_str(&format!(" [thalweg help {page}]"));
                }
            }
            TagEnd::Emphasis => self.line.push('*'),
            _ => {}
        }
    }

    /// Code stays as it is.
    fn code(&mut self, text: &str) {
        for line in text.lines() {
            let indent = if line.is_empty() { 0 } else { self.indent + CODE };
            self.text.push_str(&format!("{}{line}\n", " ".repeat(indent)));
        }
    }

    /// Writes the gathered words as a paragraph.
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if line.trim().is_empty() {
            return;
        }
        let bullet = self.bullet.take().unwrap_or_default();
        let hanging = " ".repeat(self.indent);
        let first = format!("{}{bullet}", " ".repeat(self.indent.saturating_sub(bullet.len())));
        for (number, part) in wrap(&line, self.width.saturating_sub(self.indent)).into_iter().enumerate() {
            let indent = if number == 0 { &first } else { &hanging };
            self.text.push_str(&format!("{indent}{part}\n"));
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(markdown: &str, expected: Expect) {
        expected.assert_eq(&plain(markdown, 40));
    }

    #[test]
    fn paragraphs_are_wrapped_and_links_name_their_topic() {
        check(
            "# A page\n\n### Source `file`\n\nOne sentence on a line.\nAnother one with `code`, see [rejects](operations.md#rejects).\n",
            expect![[r#"
                A PAGE

                Source file
                -----------

                One sentence on a line. Another one with
                `code`, see rejects [thalweg help
                operations].
            "#]],
        );
    }

    #[test]
    fn lists_hang_and_code_stays() {
        check(
            "* one item that is longer than the width of this page\n* two\n  1. inner\n\nThen:\n\n    code that is longer than the width of this page\n",
            expect![[r#"
                * one item that is longer than the width
                  of this page
                * two
                  1. inner

                Then:

                    code that is longer than the width of this page
            "#]],
        );
    }

    #[test]
    fn a_table_is_aligned_or_stacked() {
        check(
            "| a | b |\n|---|---|\n| x | y \\| z |\n| long | w |\n",
            expect![[r#"
            a     b
            x     y | z
            long  w
        "#]],
        );
        check(
            "| key | type | default | meaning |\n|---|---|---|---|\n| `path` | path, or a list | required | the file to read, or a list of these |\n| `follow` | `true` or `false` | `false` | wait for more |\n",
            expect![[r#"
                `path`: path, or a list; required
                    the file to read, or a list of these
                `follow`: `true` or `false`; default
                `false`
                    wait for more
            "#]],
        );
    }
}
