//! A small data directory with damage in it, and the file of its sink: the job gives the same answers as without, or is
//! refused as damaged with a path named. Never a panic, never another answer.
//!
//! The first byte says which directory ([`base::VARIANTS`]), then every [`Damage::LEN`] bytes are one [`Damage`]. The
//! directories are made once, by the real engine. Of Parquet files only the names count here: another crate reads them.

mod base;

use std::collections::BTreeMap;
use std::path::PathBuf;

use base::{Bench, Outcome, Stored};

use crate::Target;

pub const TARGET: Target =
    Target { name: "data_directory", run, seeds, words: &[], allowance: a_whole_engine };

/// Blocks that disks lose.
const SECTOR: usize = 4 << 10;
/// More damage at once finds nothing that less does not.
const MOST: usize = 4;

/// What an input did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The damage changed nothing that counts, or no byte.
    Harmless,
    Detected,
}

/// One damage to one file.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    pub kind: u8,
    pub file: u8,
    pub at: u32,
    pub value: u8,
}

impl Damage {
    /// Bytes of one in an input.
    pub const LEN: usize = 6;
    pub const KINDS: u8 = 10;

    fn read(bytes: &[u8]) -> Self {
        let at = u32::from(bytes[2]) | u32::from(bytes[3]) << 8 | u32::from(bytes[4]) << 16;
        Self { kind: bytes[0] % Self::KINDS, file: bytes[1], at, value: bytes[5] }
    }

    #[must_use]
    pub fn write(self) -> [u8; Self::LEN] {
        let [a, b, c, _] = self.at.to_le_bytes();
        [self.kind, self.file, a, b, c, self.value]
    }

    /// Does it; `other` are the files of another run of the same job, `older` those of an earlier time of this one.
    fn apply(
        self,
        files: &mut BTreeMap<PathBuf, Stored>,
        other: &BTreeMap<PathBuf, Stored>,
        older: &BTreeMap<PathBuf, Stored>,
    ) {
        let Some(path) = files.keys().nth(usize::from(self.file) % files.len().max(1)).cloned() else {
            return;
        };
        let Some(stored) = files.get_mut(&path) else { return };
        let bytes = &mut stored.bytes;
        let at = self.at as usize % bytes.len().max(1);
        match self.kind {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << (self.value % 8),
            1 => {
                bytes.truncate(at);
                stored.len = at as u64;
            }
            2 => {
                let from = at / SECTOR * SECTOR;
                let to = (from + SECTOR).min(bytes.len());
                bytes[from..to].fill(0);
            }
            3 => {
                // With another file of the same folder.
                let beside = |name: &&PathBuf| name.parent() == path.parent() && **name != path;
                let names: Vec<PathBuf> = files.keys().filter(beside).cloned().collect();
                let Some(name) = names.get(usize::from(self.value) % names.len().max(1)) else { return };
                let (one, two) = (files[&path].clone(), files[name].clone());
                files.insert(path, two);
                files.insert(name.clone(), one);
            }
            4 if !bytes.is_empty() => {
                let tail = bytes[at..].to_vec();
                bytes.extend(tail);
                stored.len = stored.len.max(bytes.len() as u64);
            }
            5 => drop(files.remove(&path)),
            6 => *stored = Stored { bytes: Vec::new(), len: 0 },
            7 => {
                if let Some(found) = other.get(&path) {
                    files.insert(path, found.clone());
                }
            }
            8 if !bytes.is_empty() => bytes[at] = self.value,
            9 => {
                if let Some(found) = older.get(&path) {
                    files.insert(path, found.clone());
                }
            }
            _ => {}
        }
    }
}

pub fn run(data: &[u8]) {
    found(data);
}

/// What becomes of an input.
///
/// # Panics
/// Where neither the answers are the same nor the damage is found.
pub fn found(data: &[u8]) -> Found {
    let Some((variant, rest)) = data.split_first() else { return Found::Harmless };
    let bench = Bench::get();
    let base = &bench.bases[usize::from(*variant) % bench.bases.len()];
    let mut files = base.files.clone();
    let damage: Vec<Damage> = rest.chunks_exact(Damage::LEN).take(MOST).map(Damage::read).collect();
    for one in &damage {
        one.apply(&mut files, &base.other, &base.older);
    }
    let names: Vec<&PathBuf> = base
        .files
        .iter()
        .filter(|(path, was)| files.get(*path) != Some(*was))
        .map(|(path, _)| path)
        .collect();
    if names.is_empty() {
        return Found::Harmless;
    }
    match bench.run(base, &files) {
        Outcome::Answers(answers) => {
            assert!(
                answers == base.answers,
                "{damage:?} of {names:?} changed the answers:\n{answers:?}\nfor\n{:?}",
                base.answers
            );
            Found::Harmless
        }
        Outcome::Damaged(said) => {
            assert!(
                said.contains(bench.root()) || said.contains("out.ndjson"),
                "{damage:?} of {names:?}: no path in {said}"
            );
            Found::Detected
        }
        // State that no crash leaves, reported by the note of a sink.
        Outcome::Other(said) if said.contains("it is an older copy") => Found::Detected,
        Outcome::Other(said) => panic!("{damage:?} of {names:?}: {said}"),
    }
}

/// Byte lengths of the files of a variant, in the order in which [`Damage::file`] counts them.
pub fn files(variant: u8) -> Vec<(PathBuf, usize)> {
    let bench = Bench::get();
    let base = &bench.bases[usize::from(variant) % bench.bases.len()];
    base.files.iter().map(|(path, stored)| (path.clone(), stored.bytes.len())).collect()
}

/// How many directories there are.
pub fn variants() -> u8 {
    Bench::get().bases.len() as u8
}

/// The engine runs whole: what it takes for itself is no matter of the input.
fn a_whole_engine(_: &[u8]) -> usize {
    1 << 30
}

fn seeds() -> Vec<Vec<u8>> {
    // The directories are made before the first input, which would be charged with them.
    Bench::get();
    let one = |variant, kind, file, at, value| {
        let mut input = vec![variant];
        input.extend(Damage { kind, file, at, value }.write());
        input
    };
    let mut seeds = vec![vec![0], one(0, 0, 0, 0, 0), one(3, 9, 0, 0, 0)];
    seeds.extend((0..Damage::KINDS).map(|kind| one(kind % 4, kind, kind * 3, 100, 3)));
    seeds
}
