//! Reads all of a table and holds it together; and what a table is made of.

use std::path::Path;

use super::error::LookupError;
use super::layout::Section;
use super::table::{Found, LookupTable, OpenOptions, damaged};
use super::template;
use super::{address, presence};

/// What a table is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    pub rows: u64,
    /// Rows whose name is empty.
    pub empty: u64,
    /// Rows of the source that a later one of the same address replaced.
    pub duplicates: u64,
    pub file_bytes: u64,
    pub sections: Vec<Section>,
    /// Templates that blocks share; each block may have more of its own.
    pub template_count: usize,
    /// Bytes of the heap that the open table takes.
    pub heap_bytes: usize,
}

impl TableSummary {
    /// Bytes of the file for each row.
    pub fn bytes_per_row(&self) -> f64 {
        self.file_bytes as f64 / self.rows.max(1) as f64
    }
}

impl LookupTable {
    pub fn summary(&self) -> TableSummary {
        TableSummary {
            rows: self.head.rows,
            empty: self.head.empty,
            duplicates: self.head.duplicates,
            file_bytes: self.head.length,
            sections: self.head.sections.clone(),
            template_count: self.template_count,
            heap_bytes: self.heap_bytes(),
        }
    }

    /// The templates of the file, for people, in the order of their numbers.
    pub fn templates(&self) -> impl Iterator<Item = String> {
        let dictionary = self.dictionary();
        (0..dictionary.len() as u32).filter_map(move |number| dictionary.get(number).map(template::show))
    }

    /// Reads every row of a table: all checksums are compared, all names decoded, all rows counted.
    ///
    /// # Errors
    /// What [`LookupTable::open`] says, and the first damage, with its place.
    pub fn verify(path: impl AsRef<Path>) -> Result<TableSummary, LookupError> {
        // A walk has no use for a page that it has passed.
        let table = Self::open_with(path, OpenOptions { resident: 64 << 20 })?;
        let mut seen = Seen::default();
        table.verify_v4(&mut seen)?;
        table.verify_v6(&mut seen)?;
        for (what, expected, got) in
            [("rows", table.head.rows, seen.rows), ("empty names", table.head.empty, seen.empty)]
        {
            if expected != got {
                return Err(damaged(&table.map, 0, what, &expected.to_string(), &got.to_string()));
            }
        }
        Ok(table.summary())
    }

    fn verify_v4(&self, seen: &mut Seen) -> Result<(), LookupError> {
        let Some(reader) = &self.v4 else { return Ok(()) };
        for number in 0..reader.chunk_count() {
            let chunk = reader.chunk(&self.map, number, &self.counters)?;
            for net in reader.nets_of(number, chunk) {
                let pos = reader.chunk_range(number).start;
                if reader.chunk_of(net) as usize != number {
                    return Err(damaged(&self.map, pos, "chunk", "its own /24s", "those of another"));
                }
                let hosts = match reader.group(&self.map, (net >> 8) as u16)? {
                    Some(group) => presence::hosts(group, net as u8),
                    None => Vec::new(),
                };
                for host in hosts {
                    let v4 = net << 8 | u32::from(host);
                    self.verify_row(address::from_v4(v4), pos, seen)?;
                }
            }
        }
        Ok(())
    }

    fn verify_v6(&self, seen: &mut Seen) -> Result<(), LookupError> {
        let Some(reader) = &self.v6 else { return Ok(()) };
        for piece in 0..reader.count() {
            let keyed = reader.block(&self.map, piece, &self.counters)?;
            for row in 0..keyed.rows {
                self.verify_row(keyed.key(row), reader.range(piece).start, seen)?;
            }
        }
        Ok(())
    }

    fn verify_row(&self, key: [u8; 16], pos: u64, seen: &mut Seen) -> Result<(), LookupError> {
        seen.name.clear();
        match self.find(key, &mut seen.name)? {
            Found::Value if std::str::from_utf8(&seen.name).is_err() => {
                return Err(damaged(&self.map, pos, "name", "UTF-8", &address::show(&key)));
            }
            Found::Value => {}
            Found::Empty => seen.empty += 1,
            Found::Absent => {
                return Err(damaged(&self.map, pos, "row", &address::show(&key), "nothing"));
            }
        }
        seen.rows += 1;
        Ok(())
    }
}

#[derive(Default)]
struct Seen {
    rows: u64,
    empty: u64,
    name: Vec<u8>,
}
