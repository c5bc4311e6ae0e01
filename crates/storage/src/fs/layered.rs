//! A file system laid over another: it forwards what it has no say in.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{File, Fs, OpenMode};

/// What a file system does in place of the one below it. A method that is not written forwards the call.
pub trait Layer: Send + Sync + fmt::Debug + 'static {
    /// The file system below.
    fn inner(&self) -> &dyn Fs;

    /// Comes before every call that has no method of its own here; its error is the call's.
    fn before(&self) -> io::Result<()> {
        Ok(())
    }

    /// [`Fs::remove`].
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.before()?;
        self.inner().remove(path)
    }

    /// [`File::read_at`] of the file that has this path, which is `file` below.
    fn read_at(&self, _path: &Path, file: &dyn File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        file.read_at(buffer, position)
    }

    /// [`File::write_at`], likewise.
    fn write_at(&self, _path: &Path, file: &dyn File, bytes: &[u8], position: u64) -> io::Result<usize> {
        file.write_at(bytes, position)
    }

    /// [`File::sync_data`], likewise.
    fn sync_data(&self, _path: &Path, file: &dyn File) -> io::Result<()> {
        file.sync_data()
    }
}

/// The file system that a [`Layer`] makes of the one below it; clones share the layer.
#[derive(Debug)]
pub struct Layered<L>(Arc<L>);

#[derive(Debug)]
struct LayeredFile<L> {
    layer: Arc<L>,
    path: PathBuf,
    inner: Arc<dyn File>,
}

impl<L: Layer> Layered<L> {
    /// Lays it over the file system that it names.
    pub fn over(layer: L) -> Self {
        Self(Arc::new(layer))
    }

    /// The layer.
    pub fn layer(&self) -> &L {
        &self.0
    }
}

impl<L> Clone for Layered<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: Layer> Fs for Layered<L> {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.0.before()?;
        let inner = self.0.inner().open(path, mode)?;
        Ok(Arc::new(LayeredFile { layer: Arc::clone(&self.0), path: path.to_owned(), inner }))
    }

    fn is_dir(&self, path: &Path) -> io::Result<bool> {
        self.0.before()?;
        self.0.inner().is_dir(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.before()?;
        self.0.inner().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.before()?;
        self.0.inner().list(dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.before()?;
        self.0.inner().list_dirs(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.before()?;
        self.0.inner().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.before()?;
        self.0.inner().remove_dir(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.before()?;
        self.0.inner().sync_dir(dir)
    }
}

impl<L: Layer> File for LayeredFile<L> {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.layer.read_at(&self.path, &*self.inner, buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.layer.write_at(&self.path, &*self.inner, bytes, position)
    }

    fn len(&self) -> io::Result<u64> {
        self.layer.before()?;
        self.inner.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.layer.before()?;
        self.inner.truncate(len)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.layer.before()?;
        self.inner.preallocate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.layer.sync_data(&self.path, &*self.inner)
    }
}
