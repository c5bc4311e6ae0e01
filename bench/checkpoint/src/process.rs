//! What this process uses, as Linux counts it; zeros elsewhere.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Linux counts processor time in hundredths of a second wherever it shows it.
const TICKS_PER_SECOND: f64 = 100.0;

/// Seconds of processor time of all threads so far.
pub(crate) fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may hold anything; user and system time are fields 14 and 15.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_SECOND
}

/// Bytes of blocks that the files of a folder take, all folders below it included. A file that goes meanwhile counts
/// for nothing.
///
/// # Errors
/// What the disk says.
pub(crate) fn disk_bytes(folder: &Path) -> io::Result<u64> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => sum += disk_bytes(&entry.path())?,
            Ok(metadata) => sum += metadata.blocks() * 512,
            Err(error) if missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}
