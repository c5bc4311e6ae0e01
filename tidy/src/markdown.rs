//! What the checks need of a Markdown file: its prose, its links and its anchors.

use std::collections::HashMap;
use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What stands in prose for code, so that no rule meets it.
pub const CODE: &str = "`_`";

/// A paragraph, heading, item or table cell as plain text, without code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it begins, counted from 1.
    pub line: usize,
    pub text: String,
}

/// A link or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub line: usize,
    pub target: String,
}

fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).into_offset_iter()
}

/// Number of the line at a byte of a text, from 1.
fn line_at(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn is_block(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Paragraph | Tag::Heading { .. } | Tag::Item | Tag::TableCell)
}

fn ends_block(tag: TagEnd) -> bool {
    matches!(tag, TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::TableCell)
}

/// Prose by blocks. Fenced and indented code is left out, code in a line becomes [`CODE`].
pub fn prose(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = String::new();
    let mut begin = 0;
    let mut in_code = false;
    let mut close = |open: &mut String, begin: usize| {
        if !open.trim().is_empty() {
            blocks.push(Block { line: line_at(text, begin), text: std::mem::take(open) });
        }
        open.clear();
    };
    for (event, range) in events(text) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Start(tag) if is_block(&tag) => close(&mut open, begin),
            Event::End(tag) if ends_block(tag) => close(&mut open, begin),
            Event::Text(_) | Event::Code(_) | Event::SoftBreak | Event::HardBreak if in_code => {}
            Event::Text(words) => {
                if open.is_empty() {
                    begin = range.start;
                }
                open.push_str(&words);
            }
            Event::Code(_) => {
                if open.is_empty() {
                    begin = range.start;
                }
                open.push_str(CODE);
            }
            Event::SoftBreak | Event::HardBreak => open.push('\n'),
            _ => {}
        }
    }
    close(&mut open, begin);
    blocks
}

/// All links and images with the lines where they are.
pub fn links(text: &str) -> Vec<Link> {
    events(text)
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(Link { line: line_at(text, range.start), target: dest_url.to_string() })
            }
            _ => None,
        })
        .collect()
}

/// Anchors of the headings, as GitHub makes them, and those that a text gives by `<a id="…">`.
pub fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for (event, _) in events(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = slug(&heading.take().unwrap_or_default());
                let times = seen.entry(anchor.clone()).or_default();
                anchors.push(if *times == 0 { anchor } else { format!("{anchor}-{times}") });
                *times += 1;
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for attribute in [" id=\"", " name=\""] {
                    let named = html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next());
                    anchors.extend(named.map(str::to_owned));
                }
            }
            _ => {}
        }
    }
    anchors
}

/// A heading's anchor: small letters, digits, `-` and `_`; spaces become `-`, all else goes.
fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_has_no_code_and_knows_its_lines() {
        let text = "# A `head`\n\none\ntwo `three`\n\n```\ncode\n```\n\n    more code\n\n| a | b |\n|---|---|\n| c | `d` e |\n";
        let blocks: Vec<_> = prose(text).into_iter().map(|block| (block.line, block.text)).collect();
        let wanted = [(1, "A `_`"), (3, "one\ntwo `_`"), (12, "a"), (12, "b"), (14, "c"), (14, "`_` e")];
        assert_eq!(blocks, wanted.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn a_link_in_code_is_no_link() {
        let found = links("see [a](b.md#c) and\n`[d](e.md)` ![f](g.svg)\n");
        let found: Vec<_> = found.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(found, [(1, "b.md#c"), (2, "g.svg")]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# Use it if …\n## `run --listen`, and *more*\n## Same\n## Same\n<a id=\"own\"></a>\n";
        assert_eq!(anchors(text), ["use-it-if-", "run---listen-and-more", "same", "same-1", "own"]);
    }
}
