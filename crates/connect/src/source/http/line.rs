//! The lines of a reply: the answer of a record, or `{"error":{"code","message","hint"}}` in its place.

use bytes::Bytes;
use thalweg_types::reject_hint;

use crate::format::cells::write_json_string;
use crate::format::parse_hint;

/// Characters of a message at most: the sender's own data is not sent back to it.
const LONGEST_MESSAGE: usize = 400;

/// Only the first errors of a piece have hints; those of the others would be the same.
const HINTS: usize = 100;

/// Bytes of lines that are handed on together.
const HANDED: usize = 16 << 10;

/// Appends an error, with its line end.
pub fn write_error(code: &str, message: &str, hint: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":{\"code\":");
    write_json_string(code, out);
    out.extend_from_slice(b",\"message\":");
    match message.char_indices().nth(LONGEST_MESSAGE) {
        None => write_json_string(message, out),
        Some((end, _)) => write_json_string(&format!("{}…", &message[..end]), out),
    }
    out.extend_from_slice(b",\"hint\":");
    match hint {
        Some(hint) => write_json_string(hint, out),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"}}\n");
}

/// The lines of a piece, which come in any order.
pub(super) struct Lines {
    text: Vec<u8>,
    /// By record, the place of its line in `text`; empty if it has no line yet.
    places: Vec<(u32, u32)>,
    accepted: u64,
    errors: usize,
}

impl Lines {
    pub(super) fn new(records: u32) -> Self {
        Self { text: Vec::new(), places: vec![(0, 0); records as usize], accepted: 0, errors: 0 }
    }

    pub(super) fn is_open(&self, record: u64) -> bool {
        self.places.get(record as usize).is_some_and(|(start, end)| start == end)
    }

    /// The answer of a record, which `write` appends without a line end; the first counts.
    pub(super) fn answer(&mut self, record: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.is_open(record) {
            return;
        }
        let start = self.text.len();
        write(&mut self.text);
        self.text.push(b'\n');
        self.accepted += 1;
        self.note(record, start);
    }

    pub(super) fn error(&mut self, record: u64, code: &str, message: &str) {
        if !self.is_open(record) {
            return;
        }
        let start = self.text.len();
        self.errors += 1;
        let hint = match code {
            "parse" => Some(parse_hint(message)),
            _ => reject_hint(code),
        };
        let hint = hint.filter(|_| self.errors <= HINTS);
        write_error(code, message, hint, &mut self.text);
        self.note(record, start);
    }

    fn note(&mut self, record: u64, start: usize) {
        // A piece has few records, and an answer is far below 1 MiB: their lines are below 4 GiB.
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        self.places[record as usize] = (place(start), place(self.text.len()));
    }

    /// All lines in order, and how many are answers.
    pub(super) fn finish(mut self) -> (Vec<Bytes>, u64) {
        for record in 0..self.places.len() as u64 {
            if self.is_open(record) {
                self.error(record, "no_answer", "the job gave no answer for this record");
            }
        }
        if self.text.len() <= HANDED && self.places.is_sorted() {
            return (vec![self.text.into()], self.accepted);
        }
        let (mut handed, mut next) = (Vec::new(), Vec::new());
        for (start, end) in self.places {
            let line = &self.text[start as usize..end as usize];
            if !next.is_empty() && next.len() + line.len() > HANDED {
                handed.push(std::mem::take(&mut next).into());
            }
            next.extend_from_slice(line);
        }
        handed.push(next.into());
        (handed, self.accepted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However answers and rejects come, there is one line per record, in order, the first that was given.
        #[test]
        fn there_is_one_line_per_record_in_order(
            given in proptest::collection::vec((0_u64..20, any::<bool>(), 0_usize..9_000), 0..60)
        ) {
            let mut lines = Lines::new(20);
            let mut expected = vec![None; 20];
            for (record, is_answer, bytes) in given {
                let text = "x".repeat(bytes);
                let slot: &mut Option<(bool, usize)> = &mut expected[record as usize];
                slot.get_or_insert((is_answer, bytes));
                match is_answer {
                    true => lines.answer(record, |out| out.extend_from_slice(format!("{{\"{text}\":1}}").as_bytes())),
                    false => lines.error(record, "parse", &text),
                }
            }
            let (handed, accepted) = lines.finish();
            let text = String::from_utf8(handed.concat()).unwrap();
            prop_assert!(text.ends_with('\n'));
            let found: Vec<&str> = text.lines().collect();
            prop_assert_eq!(found.len(), 20);
            prop_assert_eq!(accepted, expected.iter().flatten().filter(|(is_answer, _)| *is_answer).count() as u64);
            for (line, expected) in found.iter().zip(expected) {
                match expected {
                    Some((true, bytes)) => prop_assert_eq!(line.len(), bytes + 6),
                    Some((false, _)) => {
                        let is_error = line.starts_with("{\"error\":{\"code\":\"parse\"");
                        prop_assert!(is_error && line.len() < 700, "{}", line);
                    }
                    None => prop_assert!(line.contains("no_answer"), "{}", line),
                }
            }
        }
    }

    #[test]
    fn many_errors_have_few_hints() {
        let mut lines = Lines::new(1_000);
        (0..1_000).for_each(|record| lines.error(record, "parse", "no"));
        let text = String::from_utf8(lines.finish().0.concat()).unwrap();
        assert_eq!(text.lines().filter(|line| line.ends_with("\"hint\":null}}")).count(), 900);
        assert!(text.lines().take(HINTS).all(|line| line.contains("mend the record")));
    }
}
