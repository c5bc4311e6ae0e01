//! A file as a stream of text: gzip is known by its first bytes and unpacked on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use thalweg_types::Error;

use crate::watch::FileIdentity;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER_BYTES: usize = 64 << 10;

/// A file that is read from its beginning to its end.
pub(crate) struct Text {
    pub(crate) input: Box<dyn BufRead>,
    pub(crate) is_packed: bool,
    pub(crate) identity: FileIdentity,
}

/// # Errors
/// Where the path cannot be opened or read, or is no file.
pub(crate) fn open_text(path: &Path) -> Result<Text, Error> {
    let (file, identity) = open(path)?;
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let is_packed = file.fill_buf().map_err(|error| read_error(path, error))?.starts_with(&GZIP);
    let input: Box<dyn BufRead> = if is_packed {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    };
    Ok(Text { input, is_packed, identity })
}

/// # Errors
/// Where the path cannot be opened, or is no file.
pub(crate) fn open(path: &Path) -> Result<(File, FileIdentity), Error> {
    let failed = |error: io::Error| {
        let message = format!("open {path:?}");
        let wrapped = if error.kind() == io::ErrorKind::NotFound {
            Error::user(message).with_hint("relative paths start at the current directory")
        } else {
            Error::external(message).with_hint("look for the cause (disk, mount, permissions)")
        };
        wrapped.with_source(error)
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::user(format!("open {path:?}: expected a file, got a folder"))
            .with_hint("name the file in it"));
    }
    Ok((file, FileIdentity::of(&metadata)))
}

pub(crate) fn read_error(path: &Path, error: io::Error) -> Error {
    Error::external(format!("read {path:?}"))
        .with_hint("look for the cause (disk, mount, permissions)")
        .with_source(error)
}

/// Whether the error is about the content of a packed file, and not about reading it.
pub(crate) fn is_of_packing(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}
