//! Sorts rows that do not fit in memory: sorted runs in temporary files, then one merge.
//!
//! A run is frames of rows, each packed as LZ4: raw length (4), packed length (4), packed bytes.
//! In a frame a row is how many bytes its key shares with the key before it (1), the rest of the key, the
//! length of the name (1) and the name.
//! Of equal keys the one that came last wins: within a run the sort sees to it, among runs the younger one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;

use thalweg_storage::Fs;

use super::error::LookupError;
use super::output::Output;
use super::rows::RowBuffer;

/// Raw bytes of a frame. A merge holds one of each run.
const FRAME: usize = 64 << 10;
/// Runs of one merge; the files are open at once.
const RUNS_MAX: usize = 400;

/// Takes rows in any order and gives them back in order of their keys.
#[derive(Debug)]
pub(crate) struct Sorter {
    fs: Arc<dyn Fs>,
    /// Runs are next to it, with a number after the name.
    base: PathBuf,
    memory: usize,
    rows: RowBuffer,
    runs: Vec<Output>,
    made: u64,
    duplicates: u64,
}

impl Sorter {
    /// `memory`: bytes of rows that are held before they go to a run.
    pub(crate) fn new(fs: &Arc<dyn Fs>, base: PathBuf, memory: usize) -> Self {
        // Names are addressed by four bytes.
        let memory = memory.min(1 << 31);
        let (rows, runs) = (RowBuffer::default(), Vec::new());
        Self { fs: Arc::clone(fs), base, memory, rows, runs, made: 0, duplicates: 0 }
    }

    pub(crate) fn push(&mut self, key: [u8; 16], name: &[u8]) -> Result<(), LookupError> {
        self.rows.push(key, name);
        if self.rows.bytes() >= self.memory { self.spill() } else { Ok(()) }
    }

    /// Hands all rows to `take` in order of their keys, and returns how many a later one replaced.
    pub(crate) fn finish(
        mut self,
        mut take: impl FnMut([u8; 16], &[u8]) -> Result<(), LookupError>,
    ) -> Result<u64, LookupError> {
        if self.runs.is_empty() {
            self.duplicates += self.rows.sort();
            for (key, name) in self.rows.iter() {
                take(key, name)?;
            }
            return Ok(self.duplicates);
        }
        if !self.rows.is_empty() {
            self.spill()?;
        }
        // Frames of the runs take its place.
        self.rows = RowBuffer::default();
        let duplicates = merge(&self.runs, take)?;
        Ok(self.duplicates + duplicates)
    }

    fn spill(&mut self) -> Result<(), LookupError> {
        self.duplicates += self.rows.sort();
        let mut run = RunWriter::new(self.create()?);
        for (key, name) in self.rows.iter() {
            run.push(key, name)?;
        }
        self.rows.clear();
        self.runs.push(run.finish()?);
        if self.runs.len() >= RUNS_MAX {
            let mut merged = RunWriter::new(self.create()?);
            self.duplicates += merge(&self.runs, |key, name| merged.push(key, name))?;
            self.runs = vec![merged.finish()?];
        }
        Ok(())
    }

    fn create(&mut self) -> Result<Output, LookupError> {
        self.made += 1;
        let mut path = self.base.clone().into_os_string();
        path.push(format!(".run-{}", self.made));
        Output::create(&self.fs, path.into())
    }
}

struct RunWriter {
    output: Output,
    frame: Vec<u8>,
    last: [u8; 16],
}

impl RunWriter {
    fn new(output: Output) -> Self {
        Self { output, frame: Vec::with_capacity(FRAME + 300), last: [0; 16] }
    }

    fn push(&mut self, key: [u8; 16], name: &[u8]) -> Result<(), LookupError> {
        let shared = key.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        self.frame.push(shared as u8);
        self.frame.extend_from_slice(&key[shared..]);
        self.frame.push(name.len() as u8);
        self.frame.extend_from_slice(name);
        self.last = key;
        if self.frame.len() >= FRAME { self.end_frame() } else { Ok(()) }
    }

    fn end_frame(&mut self) -> Result<(), LookupError> {
        let packed = lz4_flex::block::compress(&self.frame);
        self.output.write(&(self.frame.len() as u32).to_le_bytes())?;
        self.output.write(&(packed.len() as u32).to_le_bytes())?;
        self.output.write(&packed)?;
        self.frame.clear();
        self.last = [0; 16];
        Ok(())
    }

    fn finish(mut self) -> Result<Output, LookupError> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        self.output.end()?;
        Ok(self.output)
    }
}

/// Reads a run row by row.
struct RunReader<'a> {
    output: &'a Output,
    position: u64,
    packed: Vec<u8>,
    frame: Vec<u8>,
    at: usize,
    key: [u8; 16],
    name: (usize, usize),
}

impl<'a> RunReader<'a> {
    fn new(output: &'a Output) -> Self {
        let (packed, frame) = (Vec::new(), Vec::new());
        Self { output, position: 0, packed, frame, at: 0, key: [0; 16], name: (0, 0) }
    }

    /// Goes to the next row; false at the end.
    fn advance(&mut self) -> Result<bool, LookupError> {
        if self.at == self.frame.len() && !self.read_frame()? {
            return Ok(false);
        }
        self.read_row().ok_or_else(|| self.damaged())?;
        Ok(true)
    }

    fn read_row(&mut self) -> Option<()> {
        let rest = self.frame.get(self.at..)?;
        let shared = usize::from(*rest.first()?);
        let key = rest.get(1..17_usize.checked_sub(shared)?)?;
        self.key[shared..].copy_from_slice(key);
        let length = usize::from(*rest.get(1 + key.len())?);
        let start = self.at + 2 + key.len();
        self.name = (start, start + length);
        self.at = start + length;
        (self.at <= self.frame.len()).then_some(())
    }

    fn read_frame(&mut self) -> Result<bool, LookupError> {
        if self.position == self.output.position() {
            return Ok(false);
        }
        let mut head = [0; 8];
        self.output.read_exact_at(&mut head, self.position)?;
        let (raw, packed) =
            (super::layout::le_u32(&head) as usize, super::layout::le_u32(&head[4..]) as usize);
        if raw > FRAME + 300 || packed > lz4_flex::block::get_maximum_output_size(raw) {
            return Err(self.damaged());
        }
        self.packed.resize(packed, 0);
        self.output.read_exact_at(&mut self.packed, self.position + 8)?;
        self.frame.resize(raw, 0);
        match lz4_flex::block::decompress_into(&self.packed, &mut self.frame) {
            Ok(length) if length == raw => {}
            _ => return Err(self.damaged()),
        }
        self.position += 8 + packed as u64;
        (self.at, self.key) = (0, [0; 16]);
        Ok(true)
    }

    fn damaged(&self) -> LookupError {
        LookupError::Damaged {
            path: self.output.path().to_owned(),
            pos: self.position,
            what: "a frame of sorted rows",
            expected: "what was written".to_owned(),
            got: "something else".to_owned(),
        }
    }
}

/// Hands rows of all runs to `take` in order of their keys; of equal ones the row of the youngest run.
fn merge(
    runs: &[Output],
    mut take: impl FnMut([u8; 16], &[u8]) -> Result<(), LookupError>,
) -> Result<u64, LookupError> {
    let mut readers: Vec<RunReader<'_>> = runs.iter().map(RunReader::new).collect();
    let mut heap = BinaryHeap::new();
    for (number, reader) in readers.iter_mut().enumerate() {
        if reader.advance()? {
            heap.push((Reverse(u128::from_be_bytes(reader.key)), number));
        }
    }
    let (mut duplicates, mut last) = (0, None);
    while let Some(mut top) = heap.peek_mut() {
        let (Reverse(key), number) = *top;
        let reader = &mut readers[number];
        if last == Some(key) {
            duplicates += 1;
        } else {
            take(reader.key, &reader.frame[reader.name.0..reader.name.1])?;
            last = Some(key);
        }
        if reader.advance()? {
            top.0 = Reverse(u128::from_be_bytes(reader.key));
        } else {
            std::collections::binary_heap::PeekMut::pop(top);
        }
    }
    Ok(duplicates)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;
    use thalweg_storage::{MemFs, make_dir};

    use super::*;

    proptest! {
        #[test]
        fn rows_come_in_order_and_the_last_of_a_key_wins(
            rows in prop::collection::vec((0_u128..60, "[a-z]{0,5}"), 0..400),
            memory in 1_usize..4000,
        ) {
            let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
            make_dir(fs.as_ref(), Path::new("t")).unwrap();
            let mut sorter = Sorter::new(&fs, "t/table".into(), memory);
            let mut expected = BTreeMap::new();
            for (key, name) in &rows {
                sorter.push(key.to_be_bytes(), name.as_bytes()).unwrap();
                expected.insert(*key, name.clone());
            }
            let mut got = Vec::new();
            let duplicates = sorter
                .finish(|key, name| {
                    got.push((u128::from_be_bytes(key), String::from_utf8(name.to_vec()).unwrap()));
                    Ok(())
                })
                .unwrap();
            prop_assert_eq!(duplicates as usize, rows.len() - expected.len());
            prop_assert_eq!(got, expected.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(fs.list(Path::new("t")).unwrap(), Vec::<String>::new());
        }
    }
}
