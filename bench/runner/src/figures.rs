//! Lines of `key=value` pairs, as our summary and the peers print them.

use anyhow::{Context, Result};

/// The pairs of one line, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures(Vec<(String, String)>);

impl Figures {
    /// `None` where the line has no pair; words that are no pair are passed over.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let pairs: Vec<_> = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        (!pairs.is_empty()).then_some(Self(pairs))
    }

    pub(super) fn text(&self, key: &str) -> Result<&str> {
        let pair = self.0.iter().find(|(name, _)| name == key);
        pair.map(|(_, value)| value.as_str()).with_context(|| format!("no {key}=… in {:?}", self.0))
    }

    /// A number; digits may be grouped by `_` or `,`, and a unit may follow.
    pub(super) fn number(&self, key: &str) -> Result<f64> {
        let text = self.text(key)?;
        let plain: String = text.chars().filter(|c| !matches!(c, '_' | ',')).collect();
        let end =
            plain.find(|c: char| !matches!(c, '0'..='9' | '.' | 'e' | '-' | '+')).unwrap_or(plain.len());
        plain[..end].parse().with_context(|| format!("{key} is no number: {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_among_words() {
        let figures =
            Figures::parse("done: records=4_000_000 seconds=0.98 rate=4081632/s digest=00ff").unwrap();
        assert_eq!(figures.number("records").unwrap(), 4e6);
        assert_eq!(figures.number("rate").unwrap(), 4_081_632.0);
        assert_eq!(figures.text("digest").unwrap(), "00ff");
        assert!(figures.number("answers").is_err());
        assert_eq!(Figures::parse("nothing here"), None);
    }
}
