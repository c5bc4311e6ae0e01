//! `max_ahead`: a record whose event time is too far ahead of its arrival is refused, so that one wrong clock cannot
//! make all other records late.
//!
//! One rule for all sources. Arrival is the job's clock when the record was numbered, also for records from files: a
//! record of the year 2093 is ahead of today wherever it comes from. The order log has it, so a replay refuses the
//! same.

use std::borrow::Cow;

use thalweg_types::{Micros, format_duration, format_timestamp};

use crate::SourceContext;

/// How far ahead of their arrival the records of a source may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxAhead(Option<Micros>);

impl MaxAhead {
    /// The code of such rejects.
    pub const CODE: &str = "ahead";

    /// As the job file has it. A decoder that sets event times by itself holds its records to it;
    /// [`super::SourceDecoder`] does so for all others.
    pub fn of(context: &SourceContext) -> Self {
        Self(context.max_ahead)
    }

    /// The latest event time of a record that arrives now.
    pub fn bound(self, arrival: Micros) -> Micros {
        self.0.map_or(Micros::MAX, |ahead| arrival.saturating_add(ahead))
    }

    /// Why a record is refused whose event time, which `what` names, is beyond the bound.
    pub fn reason(self, what: &str, time: Micros, arrival: Micros) -> Cow<'static, str> {
        format!(
            "{what}: event time {} is more than {} ahead of its arrival at {}",
            format_timestamp(time),
            format_duration(self.0.unwrap_or_default()),
            format_timestamp(arrival)
        )
        .into()
    }
}
