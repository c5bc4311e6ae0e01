//! A file that grows while it is read.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use thalweg_harness::random::Random;

/// One input file and the records that are not in it yet.
pub(super) struct Grown {
    pub(super) path: PathBuf,
    rest: Vec<u8>,
    /// What is left for the next file when this one is rotated, and the line that each begins with.
    rotation: Option<(usize, Vec<u8>)>,
    ends_line: bool,
}

impl Grown {
    /// A file with all of `text`.
    pub(super) fn whole(path: PathBuf, text: &[u8]) -> Result<Self> {
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(Self { path, rest: Vec::new(), rotation: None, ends_line: true })
    }

    /// A file with the first line of `text`: it needs its header to be opened.
    pub(super) fn begun(path: PathBuf, mut text: Vec<u8>) -> Result<Self> {
        let header = text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = text.split_off(header);
        Ok(Self { rest, ..Self::whole(path, &text)? })
    }

    /// Has the file that begins with this line rotated, once, somewhere on the way: two rotations between two commits
    /// are more than the engine promises to see.
    pub(super) fn rotating(self, header: &[u8], random: &mut Random) -> Self {
        let left = random.between(0, self.rest.len() as u64) as usize;
        Self { rotation: Some((left, header.to_owned())), ..self }
    }

    /// Appends a piece, which may end anywhere, also in the middle of a record; now and then nothing.
    pub(super) fn grow(&mut self, random: &mut Random) -> Result<()> {
        let most = random.pick(&[0, 7, 300, 2_000, 8_000]);
        self.append(self.rest.len().min(random.between(0, most) as usize))
    }

    fn append(&mut self, count: usize) -> Result<()> {
        if count > 0 {
            let mut file = File::options().append(true).open(&self.path)?;
            file.write_all(&self.rest[..count])?;
            self.ends_line = self.rest[count - 1] == b'\n';
            self.rest.drain(..count);
        }
        Ok(())
    }

    /// Rotates the file if it is due. The rest of the record at hand still belongs to the old one.
    pub(super) fn rotate_if_due(&mut self) -> Result<()> {
        let due = self.rotation.take_if(|(left, _)| self.rest.len() <= *left);
        let Some((_, header)) = due else { return Ok(()) };
        if !self.ends_line {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            self.append(end.map_or(self.rest.len(), |end| end + 1))?;
        }
        std::fs::rename(&self.path, self.path.with_extension("csv.1"))?;
        std::fs::write(&self.path, header)?;
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }
}
