//! Points into typed columns.
//!
//! A point is first taken apart, which finds everything that is wrong with its form, then its values go into the
//! columns by name. Names are guessed from the line before: after `host` comes the name that followed it last time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use thalweg_types::{Error, Micros, Schema, TimeUnit};

use super::super::column::{Column, Values, shorten};
use super::super::text::Problem;
use super::super::{BadRecord, Columns, Preamble, RecordDecoder, too_long};
use super::grammar::{Flaw, Next, Point, Value, escape, next_record, unescape, unescape_text};
use super::{LineProtocolFormat, Roles, convert};

pub(super) struct LineProtocolDecoder {
    columns: Vec<Column>,
    roles: Roles,
    max_record: usize,
    rejects_unknown: bool,
    /// When the block at hand arrived.
    arrival: Micros,
    names: Names,
    /// By field, the part that filled it in the present record.
    filled: Vec<Option<Part>>,
    point: Point,
    /// Places of the tags in `point` by name, for the series key and to find those that are there twice.
    order: Vec<usize>,
    scratch: Vec<u8>,
}

/// The part of a line that a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Tag,
    Field,
}

/// Fields by name.
struct Names {
    places: HashMap<Box<[u8]>, usize>,
    names: Vec<Box<[u8]>>,
    /// By field, the one that followed it last.
    follower: Vec<usize>,
    last: usize,
}

impl Names {
    fn new(schema: &Schema, roles: &Roles) -> Self {
        let names: Vec<Box<[u8]>> = schema.names().map(|name| name.as_bytes().into()).collect();
        let places = names.iter().cloned().zip(0..).filter(|(_, place)| !roles.is_special(*place)).collect();
        Self { places, follower: vec![0; names.len()], names, last: 0 }
    }

    fn find(&mut self, name: &[u8]) -> Option<usize> {
        let guess = self.follower.get(self.last).copied()?;
        let found = if *self.names[guess] == *name && self.places.len() == self.names.len() {
            guess
        } else {
            *self.places.get(name)?
        };
        self.follower[self.last] = found;
        self.last = found;
        Some(found)
    }
}

impl LineProtocolDecoder {
    pub(super) fn new(format: &LineProtocolFormat) -> Result<Self, Error> {
        let fields = format.schema.fields();
        Ok(Self {
            columns: fields.iter().map(Column::new).collect::<Result<_, _>>()?,
            roles: format.roles.clone(),
            max_record: format.max_record,
            rejects_unknown: format.rejects_unknown,
            arrival: 0,
            names: Names::new(&format.schema, &format.roles),
            filled: vec![None; fields.len()],
            point: Point::default(),
            order: Vec::new(),
            scratch: Vec::new(),
        })
    }

    fn decode_record(
        &mut self,
        data: &[u8],
        place: Range<usize>,
        rows: usize,
    ) -> Result<(), Cow<'static, str>> {
        let mut point = std::mem::take(&mut self.point);
        let read = match point.read(data, place.clone()) {
            Ok(()) => self.fill(data, &point, rows),
            Err(flaw) => Err(describe(&flaw, data, place)),
        };
        self.point = point;
        read
    }

    fn fill(&mut self, data: &[u8], point: &Point, rows: usize) -> Result<(), Cow<'static, str>> {
        self.filled.fill(None);
        if let Some(place) = self.roles.measurement {
            self.set_escaped(place, data, &point.measurement)?;
        }
        self.order_tags(data, point)?;
        if let Some(place) = self.roles.series {
            let key = self.series(data, point);
            let pushed = self.columns[place].push_text(&key, None);
            self.scratch = key;
            pushed.map_err(|problem| self.columns[place].describe(problem, &self.scratch))?;
        }
        for (name, value) in &point.tags {
            if let Some(place) = self.find(data, name, Part::Tag, rows)? {
                self.set_escaped(place, data, value)?;
            }
        }
        for (name, value, whole) in &point.fields {
            if let Some(place) = self.find(data, name, Part::Field, rows)? {
                self.set_value(place, data, value, whole)?;
            }
        }
        if let Some((place, unit)) = self.roles.time {
            let column = &mut self.columns[place];
            let (text, count) = match &point.time {
                Some(time) => (&data[time.clone()], time_of(&data[time.clone()], self.roles.precision, unit)),
                None if column.nullable => return self.finish(rows),
                None => {
                    let arrival = convert(i128::from(self.arrival), TimeUnit::Micro, unit);
                    (&b""[..], i64::try_from(arrival).map_err(|_| Problem::Range))
                }
            };
            count
                .and_then(|count| column.push_text(itoa::Buffer::new().format(count).as_bytes(), None))
                .map_err(|problem| column.describe(problem, text))?;
        }
        self.finish(rows)
    }

    /// Sorts the tags by name.
    fn order_tags(&mut self, data: &[u8], point: &Point) -> Result<(), Cow<'static, str>> {
        let name = |tag: &usize| &data[point.tags[*tag].0.clone()];
        self.order.clear();
        self.order.extend(0..point.tags.len());
        self.order.sort_by(|one, other| name(one).cmp(name(other)));
        match self.order.windows(2).find(|two| name(&two[0]) == name(&two[1])) {
            Some(two) => {
                Err(Cow::Owned(format!("tag {:?}: expected it once, got it twice", shorten(name(&two[0])))))
            }
            None => Ok(()),
        }
    }

    /// All tags in order, each name and value written in one way.
    fn series(&mut self, data: &[u8], point: &Point) -> Vec<u8> {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        let mut plain = Vec::new();
        for tag in &self.order {
            let (name, value) = &point.tags[*tag];
            for (before, text) in [(b',', name), (b'=', value)] {
                if before == b'=' || !key.is_empty() {
                    key.push(before);
                }
                plain.clear();
                unescape(&data[text.clone()], &mut plain);
                escape(&plain, &mut key);
            }
        }
        key
    }

    /// The field that a name means, without its earlier value.
    fn find(
        &mut self,
        data: &[u8],
        name: &Range<usize>,
        part: Part,
        rows: usize,
    ) -> Result<Option<usize>, Cow<'static, str>> {
        let written = &data[name.clone()];
        let found = if memchr::memchr(b'\\', written).is_none() {
            self.names.find(written)
        } else {
            self.scratch.clear();
            unescape(written, &mut self.scratch);
            self.names.find(&self.scratch)
        };
        let (kind, other) = match part {
            Part::Tag => ("tag", "field"),
            Part::Field => ("field", "tag"),
        };
        let Some(place) = found.filter(|place| self.may_fill(*place, part)) else {
            return if self.rejects_unknown {
                Err(Cow::Owned(format!("expected what the schema names, got {kind} {:?}", shorten(written))))
            } else {
                Ok(None)
            };
        };
        if self.filled[place].is_some_and(|before| before != part) {
            let name = shorten(written);
            return Err(Cow::Owned(format!(
                "field {name:?}: expected a {other} or a {kind} of that name, got both"
            )));
        }
        self.filled[place] = Some(part);
        self.columns[place].truncate(rows);
        Ok(Some(place))
    }

    fn may_fill(&self, place: usize, part: Part) -> bool {
        let Some(tags) = &self.roles.tags else { return true };
        let is_tag = tags.iter().any(|tag| tag.as_bytes() == &*self.names.names[place]);
        is_tag == (part == Part::Tag)
    }

    fn set_escaped(
        &mut self,
        place: usize,
        data: &[u8],
        text: &Range<usize>,
    ) -> Result<(), Cow<'static, str>> {
        let written = &data[text.clone()];
        let column = &mut self.columns[place];
        let pushed = if memchr::memchr(b'\\', written).is_none() {
            column.push_text(written, Some(text.start))
        } else {
            self.scratch.clear();
            unescape(written, &mut self.scratch);
            column.push_text(&self.scratch, None)
        };
        pushed.map_err(|problem| column.describe(problem, written))
    }

    fn set_value(
        &mut self,
        place: usize,
        data: &[u8],
        value: &Value,
        whole: &Range<usize>,
    ) -> Result<(), Cow<'static, str>> {
        let column = &mut self.columns[place];
        let pushed = match (value, &column.values) {
            (
                Value::Whole(text) | Value::Number(text),
                Values::Int64(_)
                | Values::UInt64(_)
                | Values::Ipv4Int(_)
                | Values::Float64(_)
                | Values::Decimal128 { .. }
                | Values::Decimal256 { .. }
                | Values::Time { .. },
            ) => column.push_text(&data[text.clone()], None),
            (Value::Bool(value), Values::Bool(_)) => {
                column.push_text(if *value { b"true" } else { b"false" }, None)
            }
            (
                Value::Text(text),
                Values::String(_)
                | Values::Bytes(_)
                | Values::Ip(_)
                | Values::Time { .. }
                | Values::Decimal128 { .. }
                | Values::Decimal256 { .. },
            ) => {
                let written = &data[text.clone()];
                if memchr::memchr(b'\\', written).is_none() {
                    column.push_text(written, Some(text.start))
                } else {
                    self.scratch.clear();
                    unescape_text(written, &mut self.scratch);
                    column.push_text(&self.scratch, None)
                }
            }
            _ => Err(Problem::Expected),
        };
        pushed.map_err(|problem| column.describe(problem, &data[whole.clone()]))
    }

    /// Makes missing values null.
    fn finish(&mut self, rows: usize) -> Result<(), Cow<'static, str>> {
        for (place, column) in self.columns.iter_mut().enumerate().filter(|(_, column)| column.len() == rows)
        {
            let is_tag =
                |tags: &Vec<String>| tags.iter().any(|tag| tag.as_bytes() == &*self.names.names[place]);
            if !column.nullable
                && self.roles.tags.as_ref().is_some_and(is_tag)
                && let Values::String(views) = &mut column.values
            {
                views.push_copy(b"");
                continue;
            }
            column.push_null().map_err(|problem| column.describe(problem, b""))?;
        }
        Ok(())
    }
}

/// A time stamp as a count of a field's unit.
fn time_of(text: &[u8], precision: TimeUnit, unit: TimeUnit) -> Result<i64, Problem> {
    // Times of coarse units have more digits in nanoseconds than 64 bits hold.
    let text = std::str::from_utf8(text).map_err(|_| Problem::Expected)?;
    let count: i128 = text.parse().map_err(|_| Problem::Range)?;
    if count.unsigned_abs() > 1 << 94 {
        return Err(Problem::Range);
    }
    i64::try_from(convert(count, precision, unit)).map_err(|_| Problem::Range)
}

fn describe(flaw: &Flaw, data: &[u8], place: Range<usize>) -> Cow<'static, str> {
    let (at, expected) = (flaw.at - place.start, flaw.expected);
    let got = shorten(&data[flaw.at..place.end]);
    if got.is_empty() {
        Cow::Owned(format!("expected {expected} at byte {at}, got the end of the line"))
    } else {
        Cow::Owned(format!("expected {expected} at byte {at}, got {got:?}"))
    }
}

impl RecordDecoder for LineProtocolDecoder {
    fn arrived(&mut self, arrival: Micros) {
        self.arrival = arrival;
    }

    fn decode(&mut self, data: &Bytes, count: usize, _: Option<&Preamble>) -> Result<Columns, Error> {
        let is_text = simdutf8::basic::from_utf8(data).is_ok();
        self.columns.iter_mut().for_each(|column| column.reserve(count));
        let (mut rows, mut index, mut at, mut bad) = (0, 0_u32, 0, Vec::new());
        while let Next::Record { place, next } = next_record(data, at) {
            at = next;
            let result = if place.len() > self.max_record {
                Err(Cow::Borrowed(""))
            } else if is_text || std::str::from_utf8(&data[place.clone()]).is_ok() {
                self.decode_record(data, place.clone(), rows)
            } else {
                Err(Cow::Borrowed("expected UTF-8, got other bytes"))
            };
            match result {
                Ok(()) => rows += 1,
                Err(reason) => {
                    self.columns.iter_mut().for_each(|column| column.truncate(rows));
                    let (code, kept, reason) = if place.len() > self.max_record {
                        too_long(self.max_record)
                    } else {
                        ("parse", place.len(), reason)
                    };
                    bad.push(BadRecord { index, raw: place.start..place.start + kept, code, reason });
                }
            }
            index += 1;
        }
        if index as usize != count {
            return Err(Error::internal(format!(
                "a block of {count} points has {index}: splitter and decoder disagree"
            )));
        }
        let columns = self.columns.iter_mut().map(|column| column.finish(data)).collect();
        Ok(Columns { columns, rows, bad })
    }

    fn locate(&self, data: &[u8], indexes: &[u32]) -> Vec<Range<usize>> {
        let mut at = 0;
        let mut places = std::iter::from_fn(|| match next_record(data, at) {
            Next::Record { place, next } => {
                at = next;
                Some(place)
            }
            _ => None,
        })
        .zip(0_u32..);
        let mut place = |wanted: &u32| places.find(|(_, index)| index == wanted).map(|(place, _)| place);
        indexes.iter().map(|index| place(index).unwrap_or_default()).collect()
    }
}
