//! A build without SQL (feature `sql`): nothing answers queries.

/// Answers SQL; there is no value of it.
#[derive(Debug)]
pub enum Sql {}
