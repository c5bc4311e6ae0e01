//! The file that names a task's space in the store: `space` in the task's folder.
//!
//! Layout (little-endian): magic 8, number 8, checksum 4. A version names the space too, and counts before the file:
//! this is for the time before the first commit, so that what a crash leaves in the store is found and removed.

use std::path::PathBuf;

use thalweg_state::StateError;
use thalweg_state::registry::Place;
use thalweg_state::wire::{self, Fields};
use thalweg_storage::{OpenMode, make_dir, publish};

const MAGIC: [u8; 8] = *b"\xf7ThSpac\n";
const LEN: usize = 20;

fn path(place: &Place) -> PathBuf {
    place.dir.join("space")
}

/// The space of before; `None` if there is none, or if it cannot be read.
///
/// # Errors
/// `Io`.
pub(crate) fn read(place: &Place) -> Result<Option<u64>, StateError> {
    let path = path(place);
    let file = match place.fs.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(StateError::io("open", &path))?,
    };
    let mut bytes = [0; LEN];
    if file.read_exact_at(&mut bytes, 0).is_err() {
        return Ok(None);
    }
    let number = |content: &[u8]| {
        let mut fields = Fields::new(content);
        (fields.bytes(8)? == MAGIC).then(|| fields.u64())?
    };
    Ok(wire::checked(&bytes).ok().and_then(number))
}

/// Names the space, durably.
///
/// # Errors
/// `Io`, `Full`.
pub(crate) fn write(place: &Place, number: u64) -> Result<(), StateError> {
    let dir = place.dir.as_path();
    make_dir(place.fs.as_ref(), dir).map_err(StateError::io("create", dir))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    wire::seal(&mut bytes);
    let path = path(place);
    publish(place.fs.as_ref(), &path, &bytes).map_err(StateError::io("publish", &path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thalweg_storage::{Fs, MemFs};

    use super::*;

    #[test]
    fn the_number_outlives_a_power_cut_and_damage_is_none() {
        let fs = MemFs::new();
        let place = Place { fs: Arc::new(fs.clone()), dir: "/job/state".into(), identity: 1 };
        assert_eq!(read(&place).unwrap(), None);
        write(&place, 0xfeed).unwrap();
        fs.crash();
        assert_eq!(read(&place).unwrap(), Some(0xfeed));
        write(&place, 5).unwrap();
        assert_eq!(read(&place).unwrap(), Some(5));
        fs.open(&path(&place), OpenMode::Write).unwrap().write_all_at(&[1], 9).unwrap();
        assert_eq!(read(&place).unwrap(), None);
    }
}
