//! Lineages: whoever opens a unit's folder for writing makes an id for what comes from there on.
//!
//! Two nodes may go on from one commit, and what they write is no longer one thing, though both compute the same. The file
//! `lineage` in the unit's folder names the lineage that writes there, and travels with it.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thalweg_storage::{Fs, OpenMode, publish};
use thalweg_types::Error;

use crate::durable::new_run;

/// The name of the file.
pub(super) const FILE: &str = "lineage";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineageId(pub(super) u64);

impl fmt::Display for LineageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for LineageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LineageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// What has written a unit's folder since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lineage {
    pub(super) id: LineageId,
    /// The lineage whose commit it went on from; none where it began at the beginning of the log.
    pub(super) parent: Option<LineageId>,
    /// The position of that commit.
    pub(super) fork: u64,
}

impl Lineage {
    /// Begins a lineage in a folder whose last commit is at `fork`, and says so there.
    ///
    /// # Errors
    /// Damage, and the disk's errors.
    pub(super) fn begin(fs: &dyn Fs, folder: &Path, fork: u64) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let before = read(fs, &path)?;
        let lineage = Self { id: LineageId(new_run()), parent: before.map(|before| before.id), fork };
        let bytes = serde_json::to_vec(&lineage)
            .map_err(|error| Error::internal("write the lineage of a unit").with_source(error))?;
        publish(fs, &path, &bytes).map_err(|error| Error::disk(format!("write {path:?}"), error))?;
        Ok(lineage)
    }
}

fn read(fs: &dyn Fs, path: &Path) -> Result<Option<Lineage>, Error> {
    let failed = |error| Error::disk(format!("read {path:?}"), error);
    let file = match fs.open(path, OpenMode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut bytes = vec![0; usize::try_from(file.len().map_err(failed)?.min(4_096)).unwrap_or(4_096)];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        Error::corrupt(format!("{path:?} is damaged: expected the lineage of a unit"))
            .with_source(error)
            .with_hint(
                "remove the file: the unit goes on from its last commit, and its snapshots name no parent",
            )
    })
}

#[cfg(test)]
mod tests {
    use thalweg_storage::MemFs;

    use super::*;

    #[test]
    fn each_life_of_a_folder_names_the_one_before() {
        let fs = MemFs::new();
        thalweg_storage::make_dir(&fs, Path::new("/u")).unwrap();
        let first = Lineage::begin(&fs, Path::new("/u"), 0).unwrap();
        assert_eq!((first.parent, first.fork), (None, 0));
        let second = Lineage::begin(&fs, Path::new("/u"), 70).unwrap();
        assert_eq!((second.parent, second.fork), (Some(first.id), 70));
        assert_ne!(second.id, first.id);
        fs.crash();
        assert_eq!(read(&fs, Path::new("/u/lineage")).unwrap(), Some(second));
        fs.open(Path::new("/u/lineage"), OpenMode::Write).unwrap().write_all_at(b"x", 0).unwrap();
        let error = Lineage::begin(&fs, Path::new("/u"), 70).unwrap_err();
        assert_eq!(error.class(), thalweg_types::Class::Corrupt);
    }
}
