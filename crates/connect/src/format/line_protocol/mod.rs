//! Influx line protocol: `measurement,tag=v,tag2=v field=1i,f2=2.5,f3="text",f4=t 1465839830100400200`.
//!
//! Tags and fields are values of the record by name, the measurement, the time stamp and the *series key* under names
//! that options give. All field types work; names that are not in the schema are checked and ignored.
//!
//! * A tag is text and is read as in every text format (`text.rs`). A field is a number (`1i`, `1u`: whole ones; `1`,
//!   `1e3`, `2.5`), a boolean (`t`, `T`, `true`, `True`, `TRUE` and so for false) or a text in quotes. A whole number
//!   fits every numeric type and timestamps (in their unit), other numbers `float64` and `decimal` (exactly), and
//!   integers where they are whole after all. A text fits `string`, `bytes` (base64), `ip`, `decimal` and timestamps
//!   (a date).
//! * `\` escapes a comma, an equals sign or a space outside of quotes, and a quote or `\` within; elsewhere it is
//!   itself. Line ends may be in quotes only. If a quote turns out not to be one, its own line is a reject
//!   (`quotes.rs`).
//! * A tag that is there twice is a reject; of a field that is there twice the last one counts. A name that is both a
//!   tag and a field is a reject unless `tags` says which one is meant.
//! * A missing value is null if the field is nullable, and a reject otherwise. A time stamp that is missing is null
//!   where its field is nullable, and the arrival of the point otherwise. A missing
//!   tag and an empty one are the same: a `string` that `tags` names is empty then.
//! * Time stamps are in `precision` and become counts of the field's unit; finer digits round down.
//! * The series key is all tags, those that the schema does not name too, ordered by name: points with equal tags have
//!   equal keys in whatever order they were written.
//! * Blank lines and those that begin with `#` are no records. Lines end in `\n` or `\r\n`.
//!
//! Written are the measurement, the tags in the order of their names, the other fields (those of structs as
//! `card_1h.spent`, lists as text in JSON, nulls not at all) and the time stamp: that of its field, and where the
//! schema has none the event time. Whole numbers have `i` (`u` only where they are too large for it), decimals all
//! their places. A record that has no field, or a measurement or tag that cannot be said (one with a line end, or a
//! backslash at its end), is skipped and counted. NaN and the infinities are written by their names; databases have no
//! such numbers, and the sinks for them leave them out.

mod decode;
mod encode;
mod grammar;
mod split;

use std::sync::Arc;

use thalweg_types::{DataType, Error, Schema, TimeUnit};

pub(crate) use self::encode::{LineEncoder, NonFinite};

use self::decode::LineProtocolDecoder;
use self::split::LineProtocolSplitter;
use super::{Encoder, RecordDecoder, RecordFormat, Splitter, quotes};
use crate::{FormatPlugin, OptionKind, OptionSpec, Options};

const fn text(key: &'static str, default: Option<&'static str>, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Text, required: false, default, doc }
}

pub(crate) const MEASUREMENT: OptionSpec = text(
    "measurement",
    Some("measurement"),
    "field with the measurement; when writing, if there is no such field, this text is the measurement",
);
pub(crate) const TAGS: OptionSpec = OptionSpec {
    key: "tags",
    kind: OptionKind::TextList,
    required: false,
    default: None,
    doc: "fields that are tags. If absent, no field is written as a tag, and each is read from tags and fields alike",
};
pub(crate) const TIMESTAMP: OptionSpec = text(
    "timestamp",
    None,
    "field with the timestamp. If absent: `time`, or the only timestamp in the schema; when writing, the event time",
);
pub(crate) const PRECISION: OptionSpec = OptionSpec {
    key: "precision",
    kind: OptionKind::Choice(&["ns", "us", "ms", "s"]),
    required: false,
    default: Some("ns"),
    doc: "unit of timestamps",
};
const SERIES: OptionSpec = text(
    "series",
    None,
    "reading only: string field that gets the series key, which is all tags, ordered by name",
);
const UNKNOWN: OptionSpec = OptionSpec {
    key: "unknown",
    kind: OptionKind::Choice(&["ignore", "reject"]),
    required: false,
    default: Some("ignore"),
    doc: "reading only: whether tags and fields that the schema does not name are ignored, or their line is written to rejects",
};

/// The plug-in.
pub struct LineProtocol;

impl FormatPlugin for LineProtocol {
    fn name(&self) -> &'static str {
        "line_protocol"
    }

    fn doc(&self) -> &'static str {
        "InfluxDB line protocol, one point on each line"
    }

    fn page(&self) -> &'static str {
        include_str!("page.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[MEASUREMENT, TAGS, TIMESTAMP, PRECISION, SERIES, UNKNOWN, super::MAX_RECORD, quotes::MAX_LINES]
    }

    fn refuses(&self) -> bool {
        true
    }

    fn reader(&self, schema: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        let format = LineProtocolFormat {
            schema: schema.clone(),
            roles: Roles::new(schema, options)?,
            max_record: super::max_record(options),
            max_lines: quotes::max_lines(options),
            rejects_unknown: options.text("unknown") == Some("reject"),
        };
        let names = format.roles.tags.iter().flatten();
        if let Some(name) = names.into_iter().find(|name| schema.field(name).is_none()) {
            return Err(no_field("tags", name));
        }
        // Made once here, so that a schema which cannot be read is reported before the start.
        LineProtocolDecoder::new(&format)?;
        Ok(Arc::new(Arc::new(format)))
    }

    fn encoder(&self, schema: &Schema, options: &Options) -> Result<Box<dyn Encoder>, Error> {
        Ok(Box::new(LineEncoder::new(schema, options, NonFinite::Named)?))
    }
}

/// The parts of a line that the fields of a schema are.
#[derive(Clone)]
struct Roles {
    measurement: Option<usize>,
    time: Option<(usize, TimeUnit)>,
    series: Option<usize>,
    /// Names that are tags; `None`: any may be.
    tags: Option<Vec<String>>,
    precision: TimeUnit,
}

impl Roles {
    /// # Errors
    /// If an option names a field that does not exist or has the wrong type.
    fn new(schema: &Schema, options: &Options) -> Result<Self, Error> {
        let of_type =
            |key: &str, name: &str, fits: fn(&DataType) -> bool, expected: &str| match schema.field(name) {
                Some((place, field)) if fits(&field.data_type) => Ok(Some(place)),
                Some((_, field)) => Err(Error::user(format!(
                    "{key}: expected a {expected}, got field {name:?} of type {}",
                    field.data_type
                ))),
                None => Ok(None),
            };
        let is_string = |data_type: &DataType| *data_type == DataType::String;
        let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_));
        let measurement = options.text("measurement").unwrap_or("measurement");
        let measurement = of_type("measurement", measurement, is_string, "string")?;
        let series = match options.text("series") {
            None => None,
            Some(name) => {
                Some(of_type("series", name, is_string, "string")?.ok_or_else(|| no_field("series", name))?)
            }
        };
        let time = match options.text("timestamp") {
            Some(name) => Some(
                of_type("timestamp", name, is_time, "timestamp")?
                    .ok_or_else(|| no_field("timestamp", name))?,
            ),
            None => default_time(schema),
        };
        let time = time.and_then(|place| match schema.fields()[place].data_type {
            DataType::Timestamp(unit) => Some((place, unit)),
            _ => None,
        });
        let precision = match options.text("precision") {
            Some("s") => TimeUnit::Second,
            Some("ms") => TimeUnit::Milli,
            Some("us") => TimeUnit::Micro,
            _ => TimeUnit::Nano,
        };
        Ok(Self { measurement, time, series, tags: options.list("tags").map(<[String]>::to_vec), precision })
    }

    /// Whether a field is neither tag nor field of a line.
    fn is_special(&self, place: usize) -> bool {
        self.measurement == Some(place)
            || self.series == Some(place)
            || self.time.is_some_and(|(time, _)| time == place)
    }
}

fn no_field(key: &str, name: &str) -> Error {
    Error::user(format!("{key}: expected the name of a field, got {name:?}"))
}

/// A field `time`, else the only one that is a timestamp.
fn default_time(schema: &Schema) -> Option<usize> {
    let is_time = |place: &usize| matches!(schema.fields()[*place].data_type, DataType::Timestamp(_));
    if let Some((place, _)) = schema.field("time").filter(|(place, _)| is_time(place)) {
        return Some(place);
    }
    let mut times = (0..schema.fields().len()).filter(is_time);
    times.next().filter(|_| times.next().is_none())
}

fn nanos_of(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Milli => 1_000_000,
        TimeUnit::Micro => 1_000,
        TimeUnit::Nano => 1,
    }
}

/// A count of one unit in another, rounded down.
fn convert(count: i128, from: TimeUnit, to: TimeUnit) -> i128 {
    (count * nanos_of(from)).div_euclid(nanos_of(to))
}

struct LineProtocolFormat {
    schema: Schema,
    roles: Roles,
    max_record: usize,
    max_lines: usize,
    rejects_unknown: bool,
}

/// Splitters keep it: there may be one for each datagram.
impl RecordFormat for Arc<LineProtocolFormat> {
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(LineProtocolSplitter::new(Arc::clone(self)))
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        Box::new(LineProtocolDecoder::new(self).expect("the schema was checked when the format was made"))
    }

    fn max_record(&self) -> usize {
        self.max_record
    }

    fn block_records(&self) -> u32 {
        super::block_records(&self.schema)
    }
}
