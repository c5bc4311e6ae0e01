//! What operators that judge their records say of late ones, in answers and in rejects.

use thalweg_types::{DataType, Micros, RecordPlace, Schema, format_duration, format_span, format_timestamp};

/// Field of an answer that names those who refused its record as late, as a list of texts.
pub const LATE: &str = "late";

/// The place of that field, if the records have it.
pub fn late_place(schema: &Schema) -> Option<usize> {
    let names = DataType::List(Box::new(DataType::String));
    schema.field(LATE).filter(|(_, field)| field.data_type == names).map(|(place, _)| place)
}

/// A record that a task finds late.
pub struct LateRecord<'a> {
    pub time: Micros,
    /// Task time.
    pub now: Micros,
    /// The record that has this time, where it is known.
    pub newest: Option<&'a RecordPlace>,
    pub lateness: Micros,
    /// It is within `lateness`, and below the bound that a smaller one, before a restart, has closed.
    pub is_closed: bool,
}

/// Why a late record is in rejects, without the stage that refused it ([`refused_by`]).
pub fn late_reason(late: &LateRecord<'_>) -> String {
    let and = if late.is_closed { ", and not late before `lateness` was raised" } else { "" };
    let newest = late.newest.map_or_else(String::new, |place| format!(", {place}"));
    format!(
        "expected an event time at most {} before the newest record's ({}{newest}){and}, got {}, {} before it",
        format_duration(late.lateness),
        format_timestamp(late.now),
        format_timestamp(late.time),
        format_span(late.now.saturating_sub(late.time)),
    )
}

/// A reason, with the stage that refused the record for it.
pub fn refused_by(reason: &str, by: &str) -> String {
    format!("{reason} (refused by {by})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_how_far_the_newest_record_is_and_which_it_was() {
        let place = RecordPlace { source: "payments".into(), offset: 12 };
        let second = 1_000_000;
        let mut late = LateRecord {
            time: 77 * second,
            now: 200 * second + 250_000,
            newest: Some(&place),
            lateness: 10 * second,
            is_closed: false,
        };
        assert_eq!(
            refused_by(&late_reason(&late), "card"),
            "expected an event time at most 10s before the newest record's (1970-01-01T00:03:20.25Z, payments@12), \
             got 1970-01-01T00:01:17Z, 2m 3.25s before it (refused by card)"
        );
        (late.newest, late.is_closed, late.lateness) = (None, true, 3600 * second);
        assert_eq!(
            late_reason(&late),
            "expected an event time at most 1h before the newest record's (1970-01-01T00:03:20.25Z), and not late \
             before `lateness` was raised, got 1970-01-01T00:01:17Z, 2m 3.25s before it"
        );
        late.time = Micros::MIN;
        assert!(late_reason(&late).contains("d "), "a span beyond all numbers");
    }
}
