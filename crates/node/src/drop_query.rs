//! `--drop-query OPERATOR/NAME`: a start without a query that stops its job.
//!
//! One that was added while the job ran, and so is in the last commit record or in the order log after it, is gone for
//! good once the next commit is made. One of the job file is left out of this run; its state goes with the next commit.

/// A query that a start leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropQuery {
    pub operator: String,
    pub query: String,
}

impl DropQuery {
    pub(crate) fn is(&self, operator: &str, query: &str) -> bool {
        self.operator == operator && self.query == query
    }
}

impl std::str::FromStr for DropQuery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((operator, query)) if !operator.is_empty() && !query.is_empty() => {
                Ok(Self { operator: operator.to_owned(), query: query.to_owned() })
            }
            _ => Err(format!("expected OPERATOR/NAME, such as features/card_1h, got {text:?}")),
        }
    }
}

impl std::fmt::Display for DropQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.operator, self.query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_an_operator_and_a_name() {
        let query = DropQuery { operator: "features".to_owned(), query: "card_1h".to_owned() };
        assert_eq!("features/card_1h".parse(), Ok(query.clone()));
        assert_eq!(query.to_string(), "features/card_1h");
        for text in ["features", "features/", "/card_1h", "/"] {
            assert!(text.parse::<DropQuery>().is_err(), "{text}");
        }
    }
}
