//! Small tables by one or several exact keys, in memory: which member of an exchange a MAC address on a VLAN is.
//!
//! The table is a CSV file with a header, plain or packed with gzip. An empty cell in a key column but the first
//! matches any value, and a row that says a value goes before one that leaves it open. Keys of type `string` that are
//! MAC addresses are the same in every spelling (`aa:bb:cc:00:11:22`, `AA-BB-CC-00-11-22`, `aabb.cc00.1122`) but for
//! the one without separators; so are addresses of keys of type `ip`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringViewBuilder, UInt64Builder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_select::take::take;
use hashbrown::HashMap;
use thalweg_types::{DataType, Error, Field, Micros};

use crate::bad_lines::{BadLines, Lines};
use crate::join::{Found, JoinShape, JoinTable, Key};
use crate::text::{Record, Records, Text, open_text};
use crate::watch::{WatchMetrics, Watched};

/// Rows of a table; more are a mistake, and would better be a lookup table.
const MAX_ROWS: usize = 10_000_000;

/// Between the parts of a key; the length before each part keeps parts apart.
type KeyBytes = Box<[u8]>;

struct MemberTable {
    rows: HashMap<KeyBytes, u32>,
    columns: Vec<ArrayRef>,
    /// Which keys are open in some row: as many tries as there are combinations of them.
    open_sets: Vec<Vec<bool>>,
}

/// A table of members that follows its file.
pub struct MemberJoin {
    table: Watched<MemberTable>,
    shape: JoinShape,
}

impl MemberJoin {
    /// # Errors
    /// Where the file cannot be read, or does not fit `shape`: with line, the expected and the found text.
    pub fn open(
        name: &str,
        path: PathBuf,
        shape: JoinShape,
        bad_lines: BadLines,
        now: Micros,
    ) -> Result<Self, Error> {
        let (files, own) = (vec![path.clone()], shape.clone());
        let table = Watched::open(name, files, move || load(&path, &own, bad_lines), now)?;
        Ok(Self { table, shape })
    }
}

fn load(path: &Path, shape: &JoinShape, bad_lines: BadLines) -> Result<MemberTable, Error> {
    let reading = |error: Error| error.context(format!("read {path:?}"));
    let Text { input, is_packed, .. } = open_text(path)?;
    let mut records = Records::new(input, b',');
    let cells = |record: &Record<'_>| -> Result<Vec<String>, Error> {
        record.check()?;
        let cell = |place| match std::str::from_utf8(record.cell(place)) {
            Ok(cell) => Ok(cell.trim().to_owned()),
            Err(_) => Err(Error::user(format!("cell {}: expected UTF-8", place + 1))
                .with_hint("convert the file, as with iconv -f latin1 -t utf-8")),
        };
        (0..record.len()).map(cell).collect()
    };
    let header = records.next().map_err(|failure| failure.into_error(path, is_packed))?;
    let header = header.map(|header| cells(&header)).transpose().map_err(reading)?.unwrap_or_default();
    let place = |name: &str| {
        header.iter().position(|cell| cell == name).ok_or_else(|| {
            reading(
                Error::user(format!("expected a column {name:?} in the header"))
                    .with_private(format!(", got {}", header.join(", "))),
            )
        })
    };
    let keys: Vec<usize> = shape.keys.iter().map(|key| place(&key.name)).collect::<Result<_, _>>()?;
    let values: Vec<usize> = shape.values.iter().map(|field| place(&field.name)).collect::<Result<_, _>>()?;
    let mut table = Building {
        rows: HashMap::new(),
        count: 0,
        columns: shape.values.iter().map(Column::new).collect(),
        open_sets: Vec::new(),
        key: Vec::new(),
    };
    let mut lines = Lines::new(bad_lines);
    while let Some(record) = records.next().map_err(|failure| failure.into_error(path, is_packed))? {
        let line = record.line;
        let in_line = |error: Error| error.context(format!("read {path:?}, line {line}"));
        let row = cells(&record).and_then(|cells| {
            if cells.len() != header.len() {
                let (expected, got) = (header.len(), cells.len());
                return Err(Error::user(format!("expected {expected} cells, as the header has, got {got}")));
            }
            table.add(&cells, &keys, &values, shape)
        });
        lines.take(row.map_err(in_line))?;
        if table.rows.len() > MAX_ROWS {
            return Err(in_line(
                Error::user(format!("expected at most {MAX_ROWS} rows, got more"))
                    .with_hint("`thalweg table build-lookup` makes tables of any size"),
            ));
        }
    }
    lines.finish(path)?;
    let Building { rows, columns, mut open_sets, .. } = table;
    // Those that leave less open are tried first, and of these the ones that leave later keys open.
    open_sets.sort_by_key(|open| (open.iter().filter(|is_open| **is_open).count(), open.clone()));
    Ok(MemberTable { rows, columns: columns.into_iter().map(Column::finish).collect(), open_sets })
}

/// A table while it is loaded.
struct Building {
    rows: HashMap<KeyBytes, u32>,
    /// Values in each column, those of lines among them that turned out to be bad.
    count: u32,
    columns: Vec<Column>,
    open_sets: Vec<Vec<bool>>,
    key: Vec<u8>,
}

impl Building {
    /// Adds a line. One that is bad leaves nothing that could be found.
    fn add(
        &mut self,
        cells: &[String],
        keys: &[usize],
        values: &[usize],
        shape: &JoinShape,
    ) -> Result<(), Error> {
        self.key.clear();
        let mut open = Vec::with_capacity(keys.len());
        for (place, spec) in keys.iter().zip(&shape.keys) {
            let cell = cells[*place].as_str();
            let is_open = cell.is_empty();
            if is_open && open.is_empty() {
                return Err(Error::user(format!("expected a value for key {:?}, got none", spec.name)));
            }
            open.push(is_open);
            match is_open {
                false => push_part(&mut self.key, &part_of_text(cell, spec)?),
                true => push_open(&mut self.key),
            }
        }
        if self.rows.contains_key(self.key.as_slice()) {
            let cells: Vec<&str> = keys.iter().map(|place| cells[*place].as_str()).collect();
            return Err(Error::user("expected one row for each key, got a second one")
                .with_private(format!(" for {}", cells.join(", "))));
        }
        let row = self.count;
        self.count += 1;
        let mut wrong = None;
        for (place, column) in values.iter().zip(&mut self.columns) {
            if let Err(error) = column.push(&cells[*place]) {
                column.push_null();
                wrong.get_or_insert(error);
            }
        }
        if let Some(error) = wrong {
            return Err(error);
        }
        if !self.open_sets.contains(&open) {
            self.open_sets.push(open);
        }
        self.rows.insert(KeyBytes::from(self.key.as_slice()), row);
        Ok(())
    }
}

fn push_part(key: &mut Vec<u8>, part: &[u8]) {
    // Parts of a key are far below 4 GiB.
    key.extend_from_slice(&(part.len() as u32).to_le_bytes());
    key.extend_from_slice(part);
}

fn push_open(key: &mut Vec<u8>) {
    key.extend_from_slice(&u32::MAX.to_le_bytes());
}

/// A key's part, from its text.
fn part_of_text<'a>(text: &'a str, key: &Key) -> Result<Cow<'a, [u8]>, Error> {
    let wrong = || {
        Error::user(format!("expected {} for key {:?}", key.data_type, key.name))
            .with_private(format!(", got {text:?}"))
    };
    Ok(match key.data_type {
        DataType::UInt64 => Cow::Owned(text.parse::<u64>().map_err(|_| wrong())?.to_le_bytes().to_vec()),
        DataType::Int64 => Cow::Owned(text.parse::<i64>().map_err(|_| wrong())?.to_le_bytes().to_vec()),
        DataType::Ip => {
            let address = match text.parse().map_err(|_| wrong())? {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            Cow::Owned(address.octets().to_vec())
        }
        _ => part_of_string(text),
    })
}

/// A text, or the bytes of a MAC address after a byte that no text begins with.
fn part_of_string(text: &str) -> Cow<'_, [u8]> {
    match mac(text) {
        Some([a, b, c, d, e, f]) => Cow::Owned(vec![0xff, a, b, c, d, e, f]),
        None => Cow::Borrowed(text.as_bytes()),
    }
}

/// The six bytes of a MAC address: twelve hexadecimal digits, in pairs or fours with the same separator between.
fn mac(text: &str) -> Option<[u8; 6]> {
    let separator = match text.len() {
        17 => text.as_bytes()[2],
        14 => text.as_bytes()[4],
        _ => return None,
    };
    let group = if text.len() == 17 { 3 } else { 5 };
    let mut mac = [0; 6];
    let mut digits = 0;
    for (place, byte) in text.bytes().enumerate() {
        if place % group == group - 1 {
            if byte != separator || !matches!(byte, b':' | b'-' | b'.') {
                return None;
            }
            continue;
        }
        let digit = (byte as char).to_digit(16)? as u8;
        mac[digits / 2] = mac[digits / 2] << 4 | digit;
        digits += 1;
    }
    (digits == 12).then_some(mac)
}

/// A key's part in a row of a stream; `None` where it is null.
fn part_in_column(column: &ArrayRef, row: usize) -> Option<Cow<'_, [u8]>> {
    if column.is_null(row) {
        return None;
    }
    Some(match column.data_type() {
        arrow_schema::DataType::UInt64 => {
            Cow::Owned(column.as_primitive::<UInt64Type>().value(row).to_le_bytes().to_vec())
        }
        arrow_schema::DataType::Int64 => {
            Cow::Owned(column.as_primitive::<Int64Type>().value(row).to_le_bytes().to_vec())
        }
        arrow_schema::DataType::FixedSizeBinary(_) => Cow::Borrowed(column.as_fixed_size_binary().value(row)),
        _ => {
            let text = column.as_string_view().value(row);
            part_of_string(text)
        }
    })
}

impl MemberTable {
    fn find(&self, parts: &[Option<Cow<'_, [u8]>>], key: &mut Vec<u8>) -> Option<u32> {
        self.open_sets.iter().find_map(|open| {
            key.clear();
            for (part, is_open) in parts.iter().zip(open) {
                match part {
                    _ if *is_open => push_open(key),
                    Some(part) => push_part(key, part),
                    None => return None,
                }
            }
            self.rows.get(key.as_slice()).copied()
        })
    }
}

impl JoinTable for MemberJoin {
    fn look_up(&self, sides: &[Vec<ArrayRef>]) -> Result<Vec<Found>, Error> {
        let table = self.table.current();
        sides.iter().map(|keys| table.look_up(keys, self.shape.keys.len())).collect()
    }

    fn poll(&self, now: Micros) {
        self.table.poll(now);
    }

    fn metrics(&self, now: Micros) -> Option<WatchMetrics> {
        Some(self.table.metrics(now))
    }
}

impl MemberTable {
    fn look_up(&self, keys: &[ArrayRef], expected: usize) -> Result<Found, Error> {
        if keys.len() != expected {
            return Err(Error::internal(format!("the table has {expected} keys, got {}", keys.len())));
        }
        let count = keys.first().map_or(0, |key| key.len());
        let (mut misses, mut key) = (0, Vec::new());
        let rows: UInt32Array = (0..count)
            .map(|row| {
                let parts: Vec<_> = keys.iter().map(|column| part_in_column(column, row)).collect();
                parts[0].as_ref()?;
                let found = self.find(&parts, &mut key);
                misses += u64::from(found.is_none());
                found
            })
            .collect();
        let columns = self.columns.iter().map(|column| {
            take(column, &rows, None)
                .map_err(|error| Error::internal("take the values of a member table").with_source(error))
        });
        Ok(Found { columns: columns.collect::<Result<_, _>>()?, misses })
    }
}

/// A column of values on its way. Empty cells are null.
enum Column {
    Text(StringViewBuilder),
    UInt64(UInt64Builder, String),
    Int64(Int64Builder, String),
    Float64(Float64Builder, String),
    Bool(BooleanBuilder, String),
}

impl Column {
    fn new(field: &Field) -> Self {
        let name = field.name.clone();
        match field.data_type {
            DataType::UInt64 => Self::UInt64(UInt64Builder::new(), name),
            DataType::Int64 => Self::Int64(Int64Builder::new(), name),
            DataType::Float64 => Self::Float64(Float64Builder::new(), name),
            DataType::Bool => Self::Bool(BooleanBuilder::new(), name),
            _ => Self::Text(StringViewBuilder::new()),
        }
    }

    fn push(&mut self, cell: &str) -> Result<(), Error> {
        fn parsed<T: std::str::FromStr>(cell: &str, name: &str, expected: &str) -> Result<Option<T>, Error> {
            if cell.is_empty() {
                return Ok(None);
            }
            let wrong = || {
                Error::user(format!("expected {expected} for {name:?}"))
                    .with_private(format!(", got {cell:?}"))
            };
            cell.parse().map(Some).map_err(|_| wrong())
        }
        match self {
            Self::Text(builder) => builder.append_option((!cell.is_empty()).then_some(cell)),
            Self::UInt64(builder, name) => builder.append_option(parsed(cell, name, "uint64")?),
            Self::Int64(builder, name) => builder.append_option(parsed(cell, name, "int64")?),
            Self::Float64(builder, name) => builder.append_option(parsed(cell, name, "float64")?),
            Self::Bool(builder, name) => builder.append_option(parsed(cell, name, "true or false")?),
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Text(builder) => builder.append_null(),
            Self::UInt64(builder, _) => builder.append_null(),
            Self::Int64(builder, _) => builder.append_null(),
            Self::Float64(builder, _) => builder.append_null(),
            Self::Bool(builder, _) => builder.append_null(),
        }
    }

    fn finish(self) -> ArrayRef {
        match self {
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::UInt64(mut builder, _) => ArrayBuilder::finish(&mut builder),
            Self::Int64(mut builder, _) => ArrayBuilder::finish(&mut builder),
            Self::Float64(mut builder, _) => ArrayBuilder::finish(&mut builder),
            Self::Bool(mut builder, _) => ArrayBuilder::finish(&mut builder),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{StringViewArray, UInt64Array};

    use super::*;

    fn shape() -> JoinShape {
        let key = |name: &str, data_type| Key { name: name.to_owned(), data_type };
        JoinShape {
            keys: vec![key("mac", DataType::String), key("vlan", DataType::UInt64)],
            values: vec![
                Field::new("member", DataType::String).nullable(),
                Field::new("asn", DataType::UInt64).nullable(),
            ],
        }
    }

    fn open(text: &str) -> Result<MemberJoin, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("members.csv");
        std::fs::write(&path, text).unwrap();
        MemberJoin::open("members", path, shape(), BadLines::Skip, 0)
    }

    const MEMBERS: &str = "mac,vlan,member,asn,port\n\
        00:1c:c4:47:d3:f9,10,Alpha,64500,1\n\
        001c.c447.d3f9,,Alpha elsewhere,,2\n\
        00-1F-29-7A-D1-32,20,Beta,64501,3\n";

    fn found(join: &MemberJoin, keys: &[(Option<&str>, Option<u64>)]) -> (Vec<Option<String>>, u64) {
        let macs: StringViewArray = keys.iter().map(|(mac, _)| *mac).collect();
        let vlans: UInt64Array = keys.iter().map(|(_, vlan)| *vlan).collect();
        let found = join.look_up(&[vec![Arc::new(macs), Arc::new(vlans)]]).unwrap().remove(0);
        let members = found.columns[0].as_string_view().iter().map(|text| text.map(str::to_owned));
        (members.collect(), found.misses)
    }

    #[test]
    fn a_mac_on_a_vlan_is_a_member_in_every_spelling() {
        let join = open(MEMBERS).unwrap();
        let keys = [
            (Some("00:1c:c4:47:d3:f9"), Some(10)),
            (Some("00:1C:C4:47:D3:F9"), Some(11)),
            (Some("00:1c:c4:47:d3:f9"), None),
            (Some("00:1f:29:7a:d1:32"), Some(20)),
            (Some("00:1f:29:7a:d1:32"), Some(21)),
            (Some("00:1f:29:7a:d1:32"), None),
            (None, Some(10)),
        ];
        let (members, misses) = found(&join, &keys);
        let members: Vec<&str> = members.iter().map(|member| member.as_deref().unwrap_or("-")).collect();
        assert_eq!(members, ["Alpha", "Alpha elsewhere", "Alpha elsewhere", "Beta", "-", "-", "-"]);
        assert_eq!(misses, 2, "a record without a MAC address asks for nobody");
    }

    #[test]
    fn values_have_their_types_and_empty_cells_are_null() {
        let join = open(MEMBERS).unwrap();
        let keys: Vec<ArrayRef> = vec![
            Arc::new(StringViewArray::from(vec!["00:1c:c4:47:d3:f9"; 2])),
            Arc::new(UInt64Array::from(vec![10, 99])),
        ];
        let found = join.look_up(&[keys]).unwrap().remove(0);
        assert_eq!(
            found.columns[1].as_primitive::<UInt64Type>().iter().collect::<Vec<_>>(),
            [Some(64_500), None]
        );
    }

    #[test]
    fn keys_may_be_addresses_in_any_spelling() {
        let key = |name: &str, data_type| Key { name: name.to_owned(), data_type };
        let shape = JoinShape {
            keys: vec![key("agent", DataType::Ip), key("ifindex", DataType::UInt64)],
            values: vec![Field::new("name", DataType::String).nullable()],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("interfaces.csv");
        let lines = "192.0.2.1,5,transit\n::ffff:192.0.2.2,5,peer\n2001:DB8:0::1,5,six\n192.0.2.9,,any\n";
        std::fs::write(&path, format!("agent,ifindex,name\n{lines}")).unwrap();
        let join = MemberJoin::open("interfaces", path.clone(), shape.clone(), BadLines::Skip, 0).unwrap();
        let agents =
            ["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.9", "192.0.2.3"].map(|text| {
                match text.parse().unwrap() {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                }
            });
        let agents = arrow_array::FixedSizeBinaryArray::try_from_iter(agents.iter()).unwrap();
        let keys: Vec<ArrayRef> = vec![Arc::new(agents), Arc::new(UInt64Array::from(vec![5; 5]))];
        let found = join.look_up(&[keys]).unwrap().remove(0);
        let names: Vec<_> = found.columns[0].as_string_view().iter().collect();
        assert_eq!(names, [Some("transit"), Some("peer"), Some("six"), Some("any"), None]);
        std::fs::write(&path, "agent,ifindex,name\n192.0.2,5,x\n").unwrap();
        let error = MemberJoin::open("interfaces", path, shape, BadLines::Skip, 0).err().unwrap();
        assert!(error.chain().contains("line 2: expected ip for key \"agent\""), "{}", error.chain());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = open(text).err().map(|error| error.chain().to_string()).unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        };
        check("mac,member,asn\n", "expected a column \"vlan\" in the header, got mac, member, asn");
        check(
            "mac,vlan,member,asn\n00:1c:c4:47:d3:f9,ten,A,1\n",
            "line 2: expected uint64 for key \"vlan\", got \"ten\"",
        );
        check("mac,vlan,member,asn\n,10,A,1\n", "line 2: expected a value for key \"mac\", got none");
        check("mac,vlan,member,asn\na,1,A,x\n", "line 2: expected uint64 for \"asn\", got \"x\"");
        check("mac,vlan,member,asn\na,1,A,1\na,1,B,2\na,1,C,3\n", "2 of 3 lines cannot be read, first: read");
        check(
            "mac,vlan,member,asn\na,1,A,1\na,1,B,2\na,1,C,3\n",
            "line 3: expected one row for each key, got a second one for a, 1",
        );
        check("mac,vlan,member,asn\na,1\n", "line 2: expected 4 cells, as the header has, got 2");
    }

    #[test]
    fn a_bad_line_costs_itself() {
        let lines =
            "a,1,A,1\na,1,again,9\nb,2,B,no\nc,3\n,4,D,4\nd,five,E,5\ne,6,E,6\nf,7,F,7\ng,8,G,8\nh,9,H,9\n";
        let join = open(&format!("mac,vlan,member,asn\n{lines}")).unwrap();
        let asked = [("a", 1), ("b", 2), ("c", 3), ("d", 5), ("e", 6), ("h", 9)];
        let (members, misses) = found(&join, &asked.map(|(mac, vlan)| (Some(mac), Some(vlan))));
        let members: Vec<&str> = members.iter().map(|member| member.as_deref().unwrap_or("-")).collect();
        assert_eq!(members, ["A", "-", "-", "-", "E", "H"]);
        assert_eq!(misses, 3);
        let strict = tempfile::tempdir().unwrap();
        let path = strict.path().join("members.csv");
        std::fs::write(&path, format!("mac,vlan,member,asn\n{lines}")).unwrap();
        let error = MemberJoin::open("members", path, shape(), BadLines::Refuse, 0).err().unwrap();
        assert!(error.chain().contains("line 3: expected one row"), "{}", error.chain());
    }

    #[test]
    fn what_only_looks_like_a_mac_is_a_text() {
        assert_eq!(mac("00:1c:c4:47:d3:f9"), Some([0, 0x1c, 0xc4, 0x47, 0xd3, 0xf9]));
        for text in
            ["", "00:1c:c4:47:d3", "00:1c:c4-47:d3:f9", "00:1c:c4:47:d3:fg", "001c:c447:d3f9:", "äää:äää:äää"]
        {
            assert_eq!(mac(text), None, "{text}");
        }
    }
}
