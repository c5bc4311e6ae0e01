//! Lines of a table's file that cannot be read: how many a table may have.
//!
//! A bad line costs itself. A file of which many lines cannot be read has another layout than the given one, and is
//! refused: a table of the few that happen to fit would answer almost nothing.

use std::path::Path;

use thalweg_types::Error;

/// What a line that cannot be read does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadLines {
    /// It is left out, with a warning for its file, while there are fewer than ten of them or at most 1 %, and not more than
    /// good ones.
    #[default]
    Skip,
    /// It refuses the table.
    Refuse,
}

/// So few may be more than a hundredth of a small table.
const FEW: u64 = 10;

/// The lines of one file.
pub(crate) struct Lines {
    policy: BadLines,
    good: u64,
    bad: u64,
    first: Option<Error>,
}

impl Lines {
    pub(crate) fn new(policy: BadLines) -> Self {
        Self { policy, good: 0, bad: 0, first: None }
    }

    /// What a line gave; `None` where it is left out. Its error says which line it is.
    ///
    /// # Errors
    /// That error, where lines are not left out.
    pub(crate) fn take<T>(&mut self, line: Result<T, Error>) -> Result<Option<T>, Error> {
        match line {
            Ok(line) => {
                self.good += 1;
                Ok(Some(line))
            }
            Err(error) if self.policy == BadLines::Refuse => Err(error),
            Err(error) => {
                self.bad += 1;
                self.first.get_or_insert(error);
                Ok(None)
            }
        }
    }

    /// Says how many lines were left out.
    ///
    /// # Errors
    /// The first of them, where they are too many.
    pub(crate) fn finish(self, path: &Path) -> Result<(), Error> {
        let Self { good, bad, first: Some(first), .. } = self else { return Ok(()) };
        let (lines, is_one_layout) = (good + bad, bad <= good);
        if is_one_layout && (bad < FEW || bad.saturating_mul(100) <= lines) {
            tracing::warn!(
                ?path,
                bad,
                lines,
                first = first.chain(),
                hint = "`bad_lines: refuse` takes no such file",
                "left out lines that cannot be read"
            );
            return Ok(());
        }
        Err(match lines {
            1 => first,
            _ => first.context(format!("{bad} of {lines} lines cannot be read, first")),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcome(policy: BadLines, lines: &[bool]) -> Result<u64, String> {
        let mut taken = Lines::new(policy);
        let mut good = 0;
        for (number, is_good) in lines.iter().enumerate() {
            let line = if *is_good { Ok(()) } else { Err(Error::user(format!("line {number} is bad"))) };
            good += u64::from(taken.take(line).map_err(|error| error.chain().to_string())?.is_some());
        }
        taken.finish(Path::new("t.csv")).map_err(|error| error.chain().to_string())?;
        Ok(good)
    }

    #[test]
    fn one_bad_line_refuses_no_table_unless_that_is_asked_for() {
        assert_eq!(outcome(BadLines::Skip, &[true, false, true]), Ok(2));
        assert_eq!(outcome(BadLines::Refuse, &[true, false, true]), Err("line 1 is bad".to_owned()));
        assert_eq!(outcome(BadLines::Skip, &[false]), Err("line 0 is bad".to_owned()));
        let got = outcome(BadLines::Skip, &[true, false, false]).unwrap_err();
        assert_eq!(got, "2 of 3 lines cannot be read, first: line 1 is bad");
        assert_eq!(outcome(BadLines::Skip, &[]), Ok(0));
    }

    proptest! {
        #[test]
        fn a_table_has_at_most_a_few_bad_lines(lines in proptest::collection::vec(prop::bool::weighted(0.97), 0..2_000)) {
            let bad = lines.iter().filter(|is_good| !**is_good).count();
            let good = lines.len() - bad;
            let is_fine = bad == 0 || bad <= good && (bad < 10 || bad * 100 <= lines.len());
            prop_assert_eq!(outcome(BadLines::Skip, &lines).ok(), is_fine.then_some(good as u64));
            prop_assert_eq!(outcome(BadLines::Refuse, &lines).is_ok(), bad == 0);
        }
    }
}
