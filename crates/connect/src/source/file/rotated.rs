//! Followed files that were emptied, rotated or exchanged.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use thalweg_types::Error;
use tracing::warn;

use super::input::Input;
use super::known::{Look, Stamp, inode};
use super::one::{FileSource, open};
use super::place::Place;

impl FileSource {
    /// At the end of a followed file: whether it was emptied or rotated. If so reading goes on there, once
    /// the rest of the old one has been given.
    pub(super) fn has_new_file(&self) -> bool {
        self.is_emptied || self.is_rotated()
    }

    /// Whether the path leads to another file.
    pub(super) fn is_rotated(&self) -> bool {
        let (Ok(there), Ok(here)) = (std::fs::metadata(&self.path), self.input.file().metadata()) else {
            return false; // rotated away, and the new file is not there yet
        };
        inode(&there) != inode(&here)
    }

    /// Says that reading begins anew, in a file that was emptied or in the one after a file that was rotated.
    pub(super) fn is_over(&mut self, was: &str) {
        self.is_ended = true;
        warn!(
            path = %self.path.display(),
            position = self.position,
            "followed file was {was}, reading the new one from its beginning"
        );
    }

    /// Goes on in the file at the path, if that has all that was read and the one that was followed is gone: a program
    /// that writes a file anew and puts it in the place of the old one.
    ///
    /// # Errors
    /// Where the path cannot be opened, or the file there begins alike and was edited.
    pub(super) fn take_exchanged(&mut self) -> Result<bool, Error> {
        let is_gone = self.input.file().metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        if !is_gone || self.seen.is_none() || self.next == 0 {
            return Ok(false);
        }
        let (mut input, metadata) = open(&self.path)?;
        if !metadata.is_file() {
            return Ok(false);
        }
        let held = self.cutter.unfinished();
        match self.look(&input.contents(), held).map_err(|error| self.unreadable(error))? {
            Look::Same => {
                input.go_to(self.position).map_err(|error| self.unreadable(error))?;
                (self.input, self.total, self.seen) = (input, metadata.len(), Some(Stamp::of(&metadata)));
                tracing::info!(
                    path = %self.path.display(),
                    position = self.position,
                    "followed file was exchanged for one that has all of it, going on there"
                );
                Ok(true)
            }
            Look::Edited => Err(self.changed()),
            Look::Shorter | Look::Another => Ok(false),
        }
    }

    /// Takes the file that was read for the one that is followed, if it was rotated within its folder: the rest of
    /// it comes before the new one. Of copies the longest; none where the new one begins alike.
    pub(super) fn take_rotated(&mut self, place: &Place, is_alike: bool) -> bool {
        if self.follow.is_none() {
            return false;
        }
        // Where nobody may look, it is as good as gone.
        let Ok(entries) = std::fs::read_dir(self.folder()) else { return false };
        let longest = entries
            .filter_map(|entry| {
                let entry = entry.ok().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))?;
                let file = File::open(entry.path()).ok()?;
                self.path.verify(&file).ok()?;
                let metadata = file.metadata().ok()?;
                let (is_it, len) = (place.inode == Some(inode(&metadata)), metadata.len());
                let input = Input::new(file, &metadata).ok()?;
                let is_like_it = place.look(&input.contents()).ok()? == Look::Same && (is_it || !is_alike);
                is_like_it.then(|| (len, entry.path(), input))
            })
            .max_by_key(|(len, ..)| *len);
        let Some((len, found, input)) = longest else { return false };
        self.between = self.written_behind(input.file());
        if let Some(between) = &self.between {
            warn!(
                path = %self.path.display(),
                between = %between.display(),
                "followed file was rotated more than once while nobody read it: the files in between are not read"
            );
        }
        tracing::info!(
            path = %self.path.display(),
            rotated = %found.display(),
            "followed file was rotated while nobody read it, going on in the old one"
        );
        (self.input, self.total) = (input, len);
        true
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// A file in the folder of the followed one, whose name begins like that one's, that was written after `file`.
    fn written_behind(&self, file: &File) -> Option<PathBuf> {
        let written = file.metadata().ok()?.modified().ok()?;
        let name = self.path.file_name()?.as_encoded_bytes();
        let entries = std::fs::read_dir(self.folder()).ok()?.flatten();
        entries.map(|entry| entry.path()).find(|path| {
            let is_named = path.file_name().is_some_and(|other| other.as_encoded_bytes().starts_with(name));
            let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
            is_named
                && path.file_name() != self.path.file_name()
                && modified.is_ok_and(|modified| modified > written)
        })
    }
}
