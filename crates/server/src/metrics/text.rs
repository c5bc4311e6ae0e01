//! Families and series as text.

use std::fmt::{Display, Write as _};

#[derive(Default)]
pub(super) struct Text {
    out: String,
    family: &'static str,
}

impl Text {
    /// Begins a family; its series follow.
    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn series(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// A series of a histogram: `_bucket`, `_sum`, `_count`.
    pub(super) fn part(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let out = &mut self.out;
        let _ = write!(out, "{}{suffix}", self.family);
        for (place, (name, label)) in labels.iter().enumerate() {
            let _ = write!(out, "{}{name}=\"", if place == 0 { '{' } else { ',' });
            for letter in label.chars() {
                match letter {
                    '\\' => out.push_str("\\\\"),
                    '"' => out.push_str("\\\""),
                    '\n' => out.push_str("\\n"),
                    other => out.push(other),
                }
            }
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}
