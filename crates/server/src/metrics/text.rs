//! Families and series as text.

use std::fmt::{Display, Write as _};

use thalweg_flow::figure::{Figure, Figures, Number};

#[derive(Default)]
pub(super) struct Text {
    out: String,
    family: &'static str,
}

impl Text {
    /// Begins a family; its series follow.
    pub(super) fn family(&mut self, figure: &Figure) {
        let (name, kind, help) = (figure.base(), figure.kind.as_str(), figure.meaning());
        self.family = name;
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The families of a group, with a series of each for each of these.
    pub(super) fn group<T: Figures>(&mut self, of: &[(Vec<(&str, &str)>, T)]) {
        let numbers: Vec<Vec<Number>> = of.iter().map(|(_, figures)| figures.numbers()).collect();
        for (place, figure) in T::FIGURES.iter().enumerate() {
            if figure.family.is_empty() {
                continue;
            }
            if self.family != figure.base() {
                self.family(figure);
            }
            for ((labels, _), numbers) in of.iter().zip(&numbers) {
                let labels: Vec<(&str, &str)> = labels.iter().copied().chain(figure.label()).collect();
                match numbers[place] {
                    Number::Absent => {}
                    Number::Whole(count) => self.series(&labels, count),
                    Number::Real(value) => self.series(&labels, value),
                    Number::Flag(flag) => self.series(&labels, u8::from(flag)),
                }
            }
        }
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
