//! Embedded back ends by the name that job files use; a new one is a file and a line here.

use std::path::PathBuf;
use std::sync::Arc;

use thalweg_storage::Fs;

use crate::files::Files;
use crate::indexed::{Indexed, IndexedOptions};
use crate::{Backend, StateError, Version};

/// Where a task's state is and whose it is.
#[derive(Clone, Debug)]
pub struct Place {
    pub fs: Arc<dyn Fs>,
    /// A folder of the back end's own; made if it is not there.
    pub dir: PathBuf,
    /// Tells the files of this task from those of others.
    pub identity: u64,
}

type Open = fn(Place, Option<&Version>) -> Result<Box<dyn Backend>, StateError>;

/// A back end that can be named.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    pub summary: &'static str,
    open: Open,
}

/// All of them, the default first.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "indexed",
        summary: "append-only segments under an index in memory",
        open: |place, version| {
            let options = IndexedOptions::default();
            Ok(Box::new(Indexed::open(place.fs, &place.dir, place.identity, options, version)?))
        },
    },
    Kind {
        name: "files",
        summary: "one file per key; slow, for comparison",
        open: |place, version| Ok(Box::new(Files::open(place.fs, &place.dir, place.identity, version)?)),
    },
];

/// Opens a back end with the version that the last commit record names; everything else in the folder goes.
///
/// # Errors
/// `UnknownBackend`, and what opening says.
pub fn open(name: &str, place: Place, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError> {
    match KINDS.iter().find(|kind| kind.name == name) {
        Some(kind) => (kind.open)(place, version),
        None => {
            let known = KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
            Err(StateError::UnknownBackend { name: name.to_owned(), known })
        }
    }
}
