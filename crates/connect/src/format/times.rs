//! How texts and numbers become times, where there is a choice: `time_format` and `time_zone` of a format.
//!
//! Without options a time is one of
//! * a whole number: counts of the field's unit since 1970;
//! * a number with a decimal point: seconds since 1970, whatever the unit, as long as there are at most eleven digits
//!   before the point. With more (`1700000000123.0`, as some programs write whole numbers) it counts the unit, too;
//! * a date and time as ISO 8601 has them, extended or basic (`2024-01-31T23:59:59.5Z`, `20240131T235959+0100`).
//!
//! Digits finer than the unit are dropped, towards the past; no number goes through a float.
//! With `time_format` a time is a text that one of the formats reads, in their order, and nothing else; it may be said
//! for some fields alone, each with forms of its own.
//! A time without an offset is UTC, or local time of `time_zone`: of a time that a clock shows twice the first one is
//! meant; one that it never shows is no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::format::{Fixed, Item, Numeric, Parsed, StrftimeItems};
use chrono::{
    DateTime, FixedOffset, MappedLocalTime, NaiveDateTime, Offset as _, TimeZone as _, Timelike as _,
};
use chrono_tz::Tz;
use thalweg_types::{DataType, Error, Schema, TimeUnit, days_from_civil, days_in_month, parse_offset};

use super::text::{Problem, whole_number};
use crate::{OptionKind, OptionSpec, Options};

/// The option with the forms in which times are written.
pub(super) const TIME_FORMAT: OptionSpec = OptionSpec {
    key: "time_format",
    kind: OptionKind::TextLists,
    required: false,
    default: None,
    doc: "reading only: how timestamps are written, such as `%d/%m/%Y %H:%M:%S`; of several forms the first that fits is used. `iso` and `epoch` are forms too, and the default. `{ FIELD: FORM }` if fields differ",
};

/// The option with the zone of local times.
pub(super) const TIME_ZONE: OptionSpec = OptionSpec {
    key: "time_zone",
    kind: OptionKind::Text,
    required: false,
    default: Some("UTC"),
    doc: "reading only: time zone of timestamps without one, such as `Europe/Zurich` or `+01:00`",
};

const SECOND: i128 = 1_000_000_000;

/// Digits before the point of a number of seconds, at most: enough for three thousand years, and less than milliseconds
/// have had since 1973.
const MOST_SECOND_DIGITS: usize = 11;

/// How times are read.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    forms: Vec<Form>,
    /// As the job file has them; empty where it does not say.
    written: Vec<String>,
    zone: Zone,
    /// The decimal sign of numbers.
    point: u8,
    /// Fields that are read otherwise.
    by_field: BTreeMap<String, Arc<Times>>,
}

#[derive(Clone, Debug)]
enum Form {
    Epoch,
    Iso,
    Pattern(Vec<Item<'static>>),
}

#[derive(Clone, Copy, Debug)]
enum Zone {
    /// Seconds east of UTC.
    Fixed(i64),
    Named(Tz),
}

impl Default for Times {
    fn default() -> Self {
        Self {
            forms: vec![Form::Epoch, Form::Iso],
            written: Vec::new(),
            zone: Zone::Fixed(0),
            point: b'.',
            by_field: BTreeMap::new(),
        }
    }
}

impl Times {
    /// # Errors
    /// If a form or the zone is invalid, or no field is a time.
    pub(super) fn of(options: &Options, schema: &Schema) -> Result<Self, Error> {
        let mut times = Self::default();
        if let Some(name) = options.text("time_zone") {
            times.zone = Zone::of(name)?;
        }
        if let Some(written) = options.list(TIME_FORMAT.key) {
            times = times.with_forms(written)?;
        }
        let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_));
        if let Some(lists) = options.lists(TIME_FORMAT.key) {
            if lists.is_empty() {
                return Err(Error::user("time_format: expected forms for at least one field, got none")
                    .with_hint(FORMS));
            }
            for (name, written) in lists {
                match schema.field(name).map(|(_, field)| &field.data_type) {
                    Some(data_type) if is_time(data_type) => {}
                    found => {
                        let fields = schema.fields().iter().filter(|field| is_time(&field.data_type));
                        let names: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
                        let got = found.map_or_else(
                            || format!("{name:?}, which the schema does not have"),
                            |data_type| format!("{name:?} of type {data_type}"),
                        );
                        let what = format!("time_format: expected a field of type timestamp, got {got}");
                        let hint = format!("its timestamps are {}", names.join(", "));
                        let error = Error::user(what);
                        return Err(if names.is_empty() { error } else { error.with_hint(hint) });
                    }
                }
                let own = times.clone_alone().with_forms(written).map_err(|error| of_field(name, error))?;
                times.by_field.insert(name.clone(), own.into());
            }
        }
        let given = [TIME_FORMAT.key, TIME_ZONE.key].into_iter().find(|key| options.get(key).is_some());
        match given {
            Some(key) if !schema.fields().iter().any(|field| is_time(&field.data_type)) => {
                Err(Error::user(format!("{key}: expected a field of type timestamp in the schema, got none"))
                    .with_hint("declare the field of the time as `timestamp(ms)`"))
            }
            _ => Ok(times),
        }
    }

    fn with_forms(self, written: &[String]) -> Result<Self, Error> {
        if written.is_empty() {
            return Err(Error::user("time_format: expected at least one form, got none").with_hint(FORMS));
        }
        let forms = written.iter().map(|text| Form::of(text)).collect::<Result<_, _>>()?;
        Ok(Self { forms, written: written.to_vec(), ..self })
    }

    /// The same without the settings of single fields.
    fn clone_alone(&self) -> Self {
        Self { by_field: BTreeMap::new(), ..self.clone() }
    }

    /// How the times of a field are read.
    pub(super) fn of_field(self: &Arc<Self>, name: &str) -> Arc<Self> {
        Arc::clone(self.by_field.get(name).unwrap_or(self))
    }

    /// The same where the decimal sign of numbers is a comma.
    pub(super) fn with_comma(self) -> Self {
        let own = |(name, times): (String, Arc<Self>)| {
            (name, Arc::new(Self { point: b',', ..Arc::unwrap_or_clone(times) }))
        };
        Self { point: b',', by_field: self.by_field.into_iter().map(own).collect(), ..self }
    }

    /// Whether a whole number counts the field's unit, whatever else a time may be.
    pub(crate) fn takes_counts(&self) -> bool {
        matches!(self.forms.first(), Some(Form::Epoch))
    }

    /// The forms as messages name them, where the job file gives some.
    pub(crate) fn forms(&self) -> Option<String> {
        let quoted: Vec<String> = self.written.iter().map(|form| format!("{form:?}")).collect();
        (!quoted.is_empty()).then(|| quoted.join(" or "))
    }

    /// The zone as messages name it.
    pub(crate) fn zone(&self) -> String {
        match self.zone {
            Zone::Fixed(_) => "UTC".to_owned(),
            Zone::Named(zone) => zone.name().to_owned(),
        }
    }

    /// The time that a text represents, in the unit.
    pub(crate) fn parse(&self, text: &[u8], unit: TimeUnit) -> Result<i64, Problem> {
        let text = std::str::from_utf8(text).map_err(|_| Problem::Expected)?;
        let mut problem = Problem::Expected;
        for form in &self.forms {
            let read = match form {
                Form::Epoch => epoch(text, unit, self.point),
                Form::Iso => iso(text).ok_or(Problem::Expected).and_then(|moment| self.place(moment, unit)),
                Form::Pattern(items) => by_pattern(text, items).and_then(|moment| self.place(moment, unit)),
            };
            match read {
                Ok(count) => return Ok(count),
                Err(Problem::Expected) => {}
                Err(other) => problem = other,
            }
        }
        Err(problem)
    }

    /// A moment as a count of the unit.
    fn place(&self, moment: Moment, unit: TimeUnit) -> Result<i64, Problem> {
        let offset = match moment.offset {
            Some(offset) => offset,
            None => self.zone.offset(moment.seconds)?,
        };
        let nanos = i128::from(moment.seconds - offset) * SECOND + i128::from(moment.nanos);
        i64::try_from(nanos.div_euclid(size(unit))).map_err(|_| Problem::Range)
    }
}

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    /// From 1970-01-01T00:00:00, by the clock that shows it.
    seconds: i64,
    nanos: u32,
    /// How many seconds that clock is east of UTC, if it says so.
    offset: Option<i64>,
}

/// Nanoseconds of a unit.
fn size(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => SECOND,
        TimeUnit::Milli => 1_000_000,
        TimeUnit::Micro => 1_000,
        TimeUnit::Nano => 1,
    }
}

/// The time that a number represents.
fn epoch(text: &str, unit: TimeUnit, point: u8) -> Result<i64, Problem> {
    if let Ok(count) = text.parse() {
        return Ok(count);
    }
    let (is_negative, number) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let Some(at) = memchr::memchr(point, number) else {
        return i64::try_from(whole_number(text.as_bytes())?).map_err(|_| Problem::Range);
    };
    let (whole, fraction) = (&number[..at], &number[at + 1..]);
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        // An exponent: `1.7e12`.
        return i64::try_from(whole_number(text.as_bytes())?).map_err(|_| Problem::Range);
    }
    let zeros = whole.iter().take_while(|digit| **digit == b'0').count();
    let whole = &whole[zeros..];
    // More digits than these are out of range in every unit.
    if whole.len() > 30 {
        return Err(Problem::Range);
    }
    let value_of =
        |digits: &[u8]| digits.iter().fold(0_i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    let size = if whole.len() > MOST_SECOND_DIGITS { 1 } else { SECOND / size(unit) };
    // In the unit, with the digits that it keeps; finer digits count if the number is negative.
    let places = size.ilog10() as usize;
    let kept = &fraction[..fraction.len().min(places)];
    let is_exact = fraction[kept.len()..].iter().all(|digit| *digit == b'0');
    let count = value_of(whole) * size + value_of(kept) * 10_i128.pow((places - kept.len()) as u32);
    let count = if is_negative { -count - i128::from(!is_exact) } else { count };
    i64::try_from(count).map_err(|_| Problem::Range)
}

/// A moment in the forms of ISO 8601 with days of months.
fn iso(text: &str) -> Option<Moment> {
    let bytes = text.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = bytes.get(range)?;
        digits
            .iter()
            .try_fold(0_i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let is_at = |at: usize, wanted: u8| bytes.get(at) == Some(&wanted);
    let is_extended = is_at(4, b'-');
    let (month, day, mut at) = match is_extended {
        true if is_at(7, b'-') => (number(5..7)? as u32, number(8..10)? as u32, 10),
        true => return None,
        false => (number(4..6)? as u32, number(6..8)? as u32, 8),
    };
    let year = number(0..4)?;
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    let mut seconds = days_from_civil(year, month, day) * 86_400;
    let (mut nanos, mut offset) = (0, None);
    if at < bytes.len() {
        if !matches!(bytes[at], b'T' | b't' | b' ') {
            return None;
        }
        let hour = number(at + 1..at + 3)?;
        at += 3;
        let has_colons = is_at(at, b':');
        if is_extended && !has_colons {
            return None;
        }
        at += usize::from(has_colons);
        let minute = number(at..at + 2)?;
        at += 2;
        let mut second = 0;
        let has_second =
            if has_colons { is_at(at, b':') } else { bytes.get(at).is_some_and(u8::is_ascii_digit) };
        if has_second {
            at += usize::from(has_colons);
            second = number(at..at + 2)?;
            at += 2;
            if is_at(at, b'.') || is_at(at, b',') {
                let start = at + 1;
                at = start;
                let mut unit = 100_000_000;
                while let Some(digit) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
                    nanos += u32::from(digit - b'0') * unit;
                    (unit, at) = (unit / 10, at + 1);
                }
                if at == start {
                    return None;
                }
            }
        }
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        seconds += hour * 3_600 + minute * 60 + second;
        if at < bytes.len() {
            offset = Some(parse_offset(&bytes[at..])?);
        }
    }
    Some(Moment { seconds, nanos, offset })
}

fn by_pattern(text: &str, items: &[Item<'static>]) -> Result<Moment, Problem> {
    let mut parsed = Parsed::new();
    chrono::format::parse(&mut parsed, text, items.iter()).map_err(|_| Problem::Expected)?;
    moment_of(&parsed).ok_or(Problem::Expected)
}

/// `None` where the fields are not enough for a moment, or contradict each other.
fn moment_of(parsed: &Parsed) -> Option<Moment> {
    if let Some(seconds) = parsed.timestamp() {
        return Some(Moment { seconds, nanos: parsed.nanosecond().unwrap_or(0), offset: Some(0) });
    }
    let date = parsed.to_naive_date().ok()?;
    let of_day =
        [parsed.hour_div_12(), parsed.hour_mod_12(), parsed.minute(), parsed.second(), parsed.nanosecond()];
    let time = match of_day.iter().all(Option::is_none) {
        true => chrono::NaiveTime::MIN,
        false => parsed.to_naive_time().ok()?,
    };
    // A leap second, which no other form has either.
    if time.nanosecond() >= 1_000_000_000 {
        return None;
    }
    let moment = NaiveDateTime::new(date, time).and_utc();
    Some(Moment {
        seconds: moment.timestamp(),
        nanos: time.nanosecond(),
        offset: parsed.offset().map(i64::from),
    })
}

const FORMS: &str = "write `time_format: \"%d/%m/%Y %H:%M:%S\"`, with %.f for a fraction of a second and %z for an offset; `iso` \
                     and `epoch` are forms too";

/// A mistake in the forms of one field, with its name.
fn of_field(name: &str, error: Error) -> Error {
    let what = error.message().replacen("time_format: ", &format!("time_format: field {name:?}: "), 1);
    Error::user(what).with_hint(FORMS)
}

impl Form {
    fn of(text: &str) -> Result<Self, Error> {
        let refused =
            |what: &str| Err(Error::user(format!("time_format: {what}, got {text:?}")).with_hint(FORMS));
        match text {
            "epoch" => return Ok(Self::Epoch),
            "iso" => return Ok(Self::Iso),
            _ if !text.contains('%') => return refused("expected `iso`, `epoch` or a form with %"),
            _ => {}
        }
        // A fraction with its point, as `%f` means elsewhere.
        let Ok(items) = StrftimeItems::new(&text.replace(".%f", "%.f")).parse_to_owned() else {
            return refused("expected letters that mean something after each %");
        };
        for item in &items {
            match item {
                Item::Numeric(Numeric::Nanosecond, _) => {
                    return refused("expected a fraction as %.f, or as %3f, %6f or %9f without its point");
                }
                Item::Fixed(Fixed::TimezoneName) => {
                    return refused(
                        "expected an offset (%z), or local time of `time_zone`, and no name of a zone (%Z)",
                    );
                }
                _ => {}
            }
        }
        // The written text has to be enough to read the time again.
        let utc = FixedOffset::east_opt(0).expect("no offset is one");
        let some = DateTime::from_timestamp(1_006_997_525, 0).expect("a time of 2001").with_timezone(&utc);
        let written = some.format_with_items(items.iter()).to_string();
        match by_pattern(&written, &items) {
            Ok(_) => Ok(Self::Pattern(items)),
            Err(_) => refused(
                "expected year, month and day (%Y, %m, %d), and with an hour (%H, or %I and %p) its minute (%M)",
            ),
        }
    }
}

impl Zone {
    fn of(name: &str) -> Result<Self, Error> {
        if let Some(offset) = parse_offset(name.as_bytes()) {
            return Ok(Self::Fixed(offset));
        }
        if let Ok(zone) = name.parse() {
            return Ok(Self::Named(zone));
        }
        let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_lowercase().replace(' ', "_");
        let meant = chrono_tz::TZ_VARIANTS.iter().find(|zone| last(zone.name()) == last(name));
        let hint = match meant {
            Some(zone) => format!("did you mean {:?}?", zone.name()),
            None => "its names are those of the IANA time zone database".to_owned(),
        };
        let what = format!(
            "time_zone: expected a zone such as Europe/Zurich, or an offset such as +01:00, got {name:?}"
        );
        Err(Error::user(what).with_hint(hint))
    }

    /// How many seconds a clock of the zone is east of UTC when it shows `seconds`.
    fn offset(self, seconds: i64) -> Result<i64, Problem> {
        let zone = match self {
            Self::Fixed(offset) => return Ok(offset),
            Self::Named(zone) => zone,
        };
        let local = DateTime::from_timestamp(seconds, 0).ok_or(Problem::Range)?.naive_utc();
        let east = |offset: &<Tz as chrono::TimeZone>::Offset| i64::from(offset.fix().local_minus_utc());
        match zone.offset_from_local_datetime(&local) {
            MappedLocalTime::Single(offset) => Ok(east(&offset)),
            // The first of the two is the one that is further east.
            MappedLocalTime::Ambiguous(one, other) => Ok(east(&one).max(east(&other))),
            MappedLocalTime::None => Err(Problem::Gap),
        }
    }
}

/// Options of formats that say how times are read.
pub(super) const READ_ONLY: [&str; 2] = [TIME_FORMAT.key, TIME_ZONE.key];

/// Times as they are read where no option says more.
pub(crate) fn plain() -> Arc<Times> {
    Arc::default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thalweg_types::{format_timestamp, parse_timestamp};

    use super::*;
    use crate::OptionValue;

    fn times(forms: &[&str], zone: &str) -> Times {
        let forms: Vec<String> = forms.iter().map(|form| (*form).to_owned()).collect();
        let mut options = Options::default();
        if !forms.is_empty() {
            options.0.insert("time_format".to_owned(), OptionValue::List(forms));
        }
        options.0.insert("time_zone".to_owned(), OptionValue::Text(zone.to_owned()));
        let schema = Schema::new(vec![thalweg_types::Field::declared("ts", "timestamp(ms)").unwrap()]);
        Times::of(&options, &schema).unwrap()
    }

    fn refusal(key: &str, value: OptionValue) -> String {
        let options = Options([(key.to_owned(), value)].into());
        let schema = Schema::new(vec![thalweg_types::Field::declared("ts", "timestamp(ms)").unwrap()]);
        let error = Times::of(&options, &schema).unwrap_err();
        format!("{}; {}", error.chain(), error.hint().unwrap_or_default())
    }

    #[test]
    fn fields_have_forms_of_their_own() {
        let fields =
            [("start", "timestamp(ms)"), ("end", "timestamp(ms)?"), ("n", "int64"), ("made", "timestamp(s)")];
        let declared = |(name, data_type)| thalweg_types::Field::declared(name, data_type).unwrap();
        let schema = Schema::new(fields.map(declared).to_vec());
        let read = |lists: &[(&str, &[&str])]| {
            let texts = |forms: &[&str]| forms.iter().map(|form| (*form).to_owned()).collect();
            let lists = lists.iter().map(|(name, forms)| ((*name).to_owned(), texts(forms))).collect();
            let options = [
                ("time_format".to_owned(), OptionValue::Lists(lists)),
                ("time_zone".to_owned(), OptionValue::Text("+01:00".to_owned())),
            ];
            Times::of(&Options(options.into()), &schema)
        };
        let times =
            Arc::new(read(&[("start", &["%d.%m.%Y"]), ("end", &["%s", "iso"])]).unwrap().with_comma());
        let parse = |field: &str, text: &str| times.of_field(field).parse(text.as_bytes(), TimeUnit::Second);
        let midnight = 1_706_655_600;
        for (field, text, expected) in [
            ("start", "31.01.2024", Ok(midnight)),
            ("start", "2024-01-31", Err(Problem::Expected)),
            ("start", "1706655600", Err(Problem::Expected)),
            ("end", "1706655600", Ok(midnight)),
            ("end", "2024-01-31", Ok(midnight)),
            ("end", "31.01.2024", Err(Problem::Expected)),
            ("made", "2024-01-31", Ok(midnight)),
            ("made", "1706655600,5", Ok(midnight)),
            ("made", "31.01.2024", Err(Problem::Expected)),
        ] {
            assert_eq!(parse(field, text), expected, "{field} {text}");
        }
        for (lists, expected) in [
            (&[][..], "time_format: expected forms for at least one field, got none"),
            (&[("start", &[][..])], "time_format: field \"start\": expected at least one form, got none"),
            (&[("start", &["%d.%m"])], "time_format: field \"start\": expected year, month and day"),
            (&[("n", &["iso"])], "time_format: expected a field of type timestamp, got \"n\" of type int64"),
            (
                &[("strat", &["iso"])],
                "time_format: expected a field of type timestamp, got \"strat\", which the schema does not have",
            ),
        ] {
            let error = read(lists).unwrap_err();
            assert!(error.chain().starts_with(expected), "{}", error.chain());
            assert!(error.hint().is_some());
        }
        assert!(read(&[("n", &["iso"])]).unwrap_err().hint().unwrap().ends_with("start, end, made"));
    }

    #[test]
    fn a_number_with_a_point_counts_seconds() {
        use TimeUnit::{Micro, Milli, Nano, Second};
        for (text, unit, expected) in [
            ("1700000000.123", Second, Ok(1_700_000_000)),
            ("1700000000.123", Milli, Ok(1_700_000_000_123)),
            ("1700000000.123", Micro, Ok(1_700_000_000_123_000)),
            ("1700000000.123456789", Nano, Ok(1_700_000_000_123_456_789)),
            ("1700000000.123456789", Micro, Ok(1_700_000_000_123_456)),
            ("1700000000.1239999999999999999", Milli, Ok(1_700_000_000_123)),
            ("1700000000.", Milli, Ok(1_700_000_000_000)),
            ("1700000000.0", Milli, Ok(1_700_000_000_000)),
            (".5", Milli, Ok(500)),
            ("-0.5", Milli, Ok(-500)),
            ("-0.5", Second, Ok(-1)),
            ("-1.0000000001", Nano, Ok(-1_000_000_001)),
            ("+0.25", Milli, Ok(250)),
            ("0001700000000.5", Milli, Ok(1_700_000_000_500)),
            // Too many digits for seconds: the unit.
            ("1700000000123.0", Milli, Ok(1_700_000_000_123)),
            ("1700000000123.9", Milli, Ok(1_700_000_000_123)),
            ("-1700000000123.9", Milli, Ok(-1_700_000_000_124)),
            ("1700000000123456.5", Micro, Ok(1_700_000_000_123_456)),
            ("99999999999.5", Nano, Err(Problem::Range)),
            ("99999999999999999999.5", Milli, Err(Problem::Range)),
            ("9999999999999999999999999999999999999999.5", Milli, Err(Problem::Range)),
            ("1.7e12", Milli, Ok(1_700_000_000_000)),
            ("1e3", Milli, Ok(1_000)),
            ("1.7.1", Milli, Err(Problem::Expected)),
            (".", Milli, Err(Problem::Expected)),
            ("-", Milli, Err(Problem::Expected)),
            ("", Milli, Err(Problem::Expected)),
            ("1,5", Milli, Err(Problem::Expected)),
            ("1_0.5", Milli, Err(Problem::Expected)),
        ] {
            assert_eq!(Times::default().parse(text.as_bytes(), unit), expected, "{text} {unit:?}");
        }
        let comma = Times::default().with_comma();
        assert_eq!(comma.parse(b"1700000000,5", Milli), Ok(1_700_000_000_500));
        assert_eq!(comma.parse(b"1700000000.5", Milli), Err(Problem::Expected));
    }

    #[test]
    fn times_are_counts_or_dates() {
        let parse = |text: &str, unit| Times::default().parse(text.as_bytes(), unit);
        assert_eq!(parse("-5", TimeUnit::Milli), Ok(-5));
        assert_eq!(parse("1970-01-01T00:00:01.9999", TimeUnit::Second), Ok(1));
        assert_eq!(parse("1969-12-31T23:59:59.5", TimeUnit::Second), Ok(-1));
        assert_eq!(parse("9999-01-01", TimeUnit::Nano), Err(Problem::Range));
        assert_eq!(parse("yesterday", TimeUnit::Milli), Err(Problem::Expected));
    }

    #[test]
    fn iso_has_a_basic_form() {
        let expected = parse_timestamp("2024-01-31T23:59:59Z").unwrap() as i64;
        for (text, more) in [
            ("20240131T235959Z", 0),
            ("20240131T235959", 0),
            ("20240131t235959.5z", 500_000_000),
            ("20240131T235959,123456789Z", 123_456_789),
            ("20240131T235959.1234567891Z", 123_456_789),
            ("20240201T005959+0100", 0),
            ("20240131T225959-01", 0),
            ("20240131T225959.25-01:00", 250_000_000),
            ("20240131 23:59:59", 0),
            ("20240131T2359Z", -59_000_000_000),
            ("2024-01-31T23:59:59Z", 0),
            ("2024-01-31 23:59", -59_000_000_000),
        ] {
            let read = Times::default().parse(text.as_bytes(), TimeUnit::Nano);
            assert_eq!(read, Ok(expected + more), "{text}");
        }
        for text in [
            "20240131T",
            "20240131T23",
            "20240131T2359595",
            "20240131T235959.",
            "20240131T240000",
            "20240230T000000",
            "20241301T000000",
            "20240131T235959+1",
            "20240131T235959Zulu",
            "2024-01-31T235959",
            "2024-0131T235959",
            "20240131X235959",
            "2024é1",
        ] {
            assert_eq!(
                Times::default().parse(text.as_bytes(), TimeUnit::Milli),
                Err(Problem::Expected),
                "{text}"
            );
        }
        // Digits alone are a number, unless the format says otherwise.
        assert_eq!(Times::default().parse(b"20240131", TimeUnit::Milli), Ok(20_240_131));
        assert_eq!(times(&["iso"], "UTC").parse(b"20240131", TimeUnit::Second), Ok(1_706_659_200));
        assert_eq!(times(&["iso"], "UTC").parse(b"1706659200", TimeUnit::Second), Err(Problem::Expected));
    }

    #[test]
    fn a_form_is_what_a_time_has_to_look_like() {
        let noon = 1_706_702_400_000;
        for (forms, text, expected) in [
            (&["%d/%m/%Y %H:%M:%S"][..], "31/01/2024 12:00:00", Ok(noon)),
            (&["%d/%m/%Y %H:%M:%S"], "31/1/2024 12:00:00", Ok(noon)),
            (&["%d/%m/%Y %H:%M:%S"], "01/31/2024 12:00:00", Err(Problem::Expected)),
            (&["%d/%m/%Y %H:%M:%S"], "31/01/2024 12:00:60", Err(Problem::Expected)),
            (&["%d/%m/%Y %H:%M:%S"], "31/01/2024 12:00:00 x", Err(Problem::Expected)),
            (&["%d/%m/%Y %H:%M:%S"], "1706702400000", Err(Problem::Expected)),
            (&["%d/%m/%Y %H:%M:%S"], "2024-01-31T12:00:00Z", Err(Problem::Expected)),
            (&["%d.%m.%y"], "31.01.24", Ok(noon - 43_200_000)),
            (&["%Y%m%d"], "20240131", Ok(noon - 43_200_000)),
            (&["%Y%m%d%H%M%S%3f"], "20240131120000250", Ok(noon + 250)),
            (&["%b %e %Y %I:%M:%S %p"], "Jan 31 2024 12:00:00 PM", Ok(noon)),
            (&["%d/%b/%Y:%H:%M:%S %z"], "31/Jan/2024:13:00:00 +0100", Ok(noon)),
            (&["%Y-%m-%d %H:%M:%S.%f"], "2024-01-31 12:00:00.25", Ok(noon + 250)),
            (&["%Y-%m-%d %H:%M:%S%.f"], "2024-01-31 12:00:00.25", Ok(noon + 250)),
            (&["%Y-%m-%d %H:%M:%S,%3f"], "2024-01-31 12:00:00,250", Ok(noon + 250)),
            (&["%s"], "1706702400", Ok(noon)),
            (&["%d/%m/%Y", "iso"], "2024-01-31T12:00Z", Ok(noon)),
            (&["%d/%m/%Y", "epoch"], "1706702400000", Ok(noon)),
            (&["%Y%m%d", "epoch"], "1706702400000", Ok(noon)),
        ] {
            assert_eq!(
                times(forms, "UTC").parse(text.as_bytes(), TimeUnit::Milli),
                expected,
                "{forms:?} {text}"
            );
        }
    }

    #[test]
    fn a_zone_holds_for_times_that_say_none() {
        let zurich = times(&[], "Europe/Zurich");
        let read = |text: &str| {
            zurich.parse(text.as_bytes(), TimeUnit::Second).map(|s| format_timestamp(s * 1_000_000))
        };
        for (text, expected) in [
            ("2024-01-31T12:00", "2024-01-31T11:00:00Z"),
            ("2024-07-31T12:00", "2024-07-31T10:00:00Z"),
            ("20240731T120000", "2024-07-31T10:00:00Z"),
            ("2024-07-31", "2024-07-30T22:00:00Z"),
            ("2024-07-31T12:00Z", "2024-07-31T12:00:00Z"),
            ("2024-07-31T12:00+05:30", "2024-07-31T06:30:00Z"),
            ("1706702400", "2024-01-31T12:00:00Z"),
            ("2024-03-31T01:59:59", "2024-03-31T00:59:59Z"),
            ("2024-03-31T03:00", "2024-03-31T01:00:00Z"),
            // Shown twice: the first one.
            ("2024-10-27T02:00", "2024-10-27T00:00:00Z"),
            ("2024-10-27T02:59:59", "2024-10-27T00:59:59Z"),
            ("2024-10-27T03:00", "2024-10-27T02:00:00Z"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(read("2024-03-31T02:00"), Err(Problem::Gap));
        assert_eq!(read("2024-03-31T02:59:59.999"), Err(Problem::Gap));
        let new_york = times(&["%m/%d/%Y %H:%M"], "America/New_York");
        assert_eq!(new_york.parse(b"11/03/2024 01:30", TimeUnit::Second), Ok(1_730_611_800));
        assert_eq!(new_york.parse(b"03/10/2024 02:30", TimeUnit::Second), Err(Problem::Gap));
        let fixed = times(&[], "-03:30");
        assert_eq!(fixed.parse(b"1970-01-01T00:00", TimeUnit::Second), Ok(12_600));
    }

    #[test]
    fn forms_and_zones_that_are_none_are_refused() {
        for (form, expected) in [
            ("", "expected `iso`, `epoch` or a form with %"),
            ("ISO", "expected `iso`, `epoch` or a form with %"),
            ("dd/MM/yyyy", "expected `iso`, `epoch` or a form with %"),
            ("%Y-%m-%d %Q", "expected letters that mean something after each %"),
            ("%H:%M:%S", "expected year, month and day"),
            ("%m/%d", "expected year, month and day"),
            (
                "%Y-%m-%d %I:%M",
                "expected year, month and day (%Y, %m, %d), and with an hour (%H, or %I and %p)",
            ),
            ("%Y-%m-%d %H:%M:%S %Z", "expected an offset (%z)"),
            ("%Y-%m-%d %H:%M:%S,%f", "expected a fraction as %.f"),
        ] {
            let refusal = refusal("time_format", OptionValue::List(vec![form.to_owned()]));
            assert!(refusal.contains(expected) && refusal.contains(&format!("got {form:?}")), "{refusal}");
        }
        for (zone, expected) in [
            ("europe/zurich", "did you mean \"Europe/Zurich\"?"),
            ("Zurich", "did you mean \"Europe/Zurich\"?"),
            ("Switzerland", "IANA"),
            ("+25:00", "IANA"),
        ] {
            let refusal = refusal("time_zone", OptionValue::Text(zone.to_owned()));
            assert!(refusal.contains(expected) && refusal.contains(&format!("got {zone:?}")), "{refusal}");
        }
        let schema = Schema::new(vec![thalweg_types::Field::declared("n", "int64").unwrap()]);
        let options = Options([("time_zone".to_owned(), OptionValue::Text("UTC".to_owned()))].into());
        let error = Times::of(&options, &schema).unwrap_err();
        assert_eq!(error.chain(), "time_zone: expected a field of type timestamp in the schema, got none");
    }

    proptest! {
        /// Forms that are not new are read as before.
        #[test]
        fn extended_forms_are_those_of_the_expressions(
            text in "[0-9]{4}-[01][0-9]-[0-3][0-9]([Tt ][0-2][0-9]:[0-5][0-9](:[0-6][0-9]([.,][0-9]{0,11})?)?([Zz]|[+-][0-9]{2}:?([0-9]{2})?)?)?",
        ) {
            let read = iso(&text).map(|moment| {
                i128::from(moment.seconds - moment.offset.unwrap_or(0)) * SECOND + i128::from(moment.nanos)
            });
            prop_assert_eq!(read, parse_timestamp(&text), "{}", text);
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,24}", digits in "[-+0-9.,eTZ: /]{0,40}") {
            let forms = times(&["%d/%m/%Y %H:%M:%S", "iso", "epoch"], "Europe/Zurich");
            for unit in [TimeUnit::Second, TimeUnit::Milli, TimeUnit::Micro, TimeUnit::Nano] {
                for text in [&text, &digits] {
                    let _ = (forms.parse(text.as_bytes(), unit), Times::default().parse(text.as_bytes(), unit));
                }
            }
        }

        /// A number of seconds is read by its digits, in every unit.
        #[test]
        fn seconds_are_exact(seconds in 0_i64..100_000_000_000, nanos in 0_u32..1_000_000_000) {
            let text = format!("{seconds}.{nanos:09}");
            let all = i128::from(seconds) * SECOND + i128::from(nanos);
            for unit in [TimeUnit::Second, TimeUnit::Milli, TimeUnit::Micro, TimeUnit::Nano] {
                for (text, all) in [(text.clone(), all), (format!("-{text}"), -all)] {
                    let expected = i64::try_from(all.div_euclid(size(unit))).map_err(|_| Problem::Range);
                    prop_assert_eq!(Times::default().parse(text.as_bytes(), unit), expected, "{} {:?}", text, unit);
                }
            }
        }
    }
}
