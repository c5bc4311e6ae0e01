//! `thalweg sql` in a build without SQL (feature `sql`).

use thalweg_connect::absent;

use crate::Outcome;
use crate::args::Sql;
use crate::output::{Failure, with_hint};

pub(crate) fn sql(_: &Sql) -> Outcome {
    Err(Failure::Usage(with_hint("this build has no SQL", Some(&absent::hint("sql")))))
}

pub(crate) fn work() -> Outcome {
    sql(&Sql { _anything: Vec::new() })
}
