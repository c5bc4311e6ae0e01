//! A file that grows while it is read.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::crash::random::Random;

/// One input file and what is not in it yet.
pub(super) struct Grown {
    pub(super) path: PathBuf,
    rest: Vec<u8>,
}

impl Grown {
    /// A file with all of `text`.
    pub(super) fn whole(path: PathBuf, text: &[u8]) -> Result<Self> {
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(Self { path, rest: Vec::new() })
    }

    /// A file with the first line of `text`: it needs its header to be opened.
    pub(super) fn begun(path: PathBuf, mut text: Vec<u8>) -> Result<Self> {
        let header = text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = text.split_off(header);
        Ok(Self { rest, ..Self::whole(path, &text)? })
    }

    /// Appends a piece, which may end anywhere, also in the middle of a record; now and then nothing.
    pub(super) fn grow(&mut self, random: &mut Random) -> Result<()> {
        let most = random.pick(&[0, 7, 300, 2_000, 8_000]);
        let count = self.rest.len().min(random.between(0, most) as usize);
        if count > 0 {
            let mut file = File::options().append(true).open(&self.path)?;
            file.write_all(&self.rest[..count])?;
            self.rest.drain(..count);
        }
        Ok(())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }
}
