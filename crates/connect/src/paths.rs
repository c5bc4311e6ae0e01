//! The files that paths of a job file match: a path is one file, a pattern (`day-*.csv`), or a folder.

use std::collections::HashSet;
use std::path::PathBuf;

use glob::{MatchOptions, glob_with};
use thalweg_types::Error;

use crate::JobPath;

/// Files that one source may have.
const MOST_FILES: usize = 10_000;

/// A star matches neither a slash nor the dot of a hidden file.
const MATCHING: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Whether a path may match several files: it is a folder, or a pattern and no file of that name.
pub fn is_open(path: &JobPath) -> bool {
    path.is_dir() || is_pattern(path)
}

fn is_pattern(path: &JobPath) -> bool {
    path.to_str().is_some_and(|text| text.contains(['*', '?', '['])) && !path.exists()
}

/// The files that `paths` match, in their order; those of a pattern or a folder by name. No file comes
/// twice. Folders are not entered; their hidden files are left out.
///
/// # Errors
/// If a pattern is invalid, a folder cannot be read, or a path matches no file or too many.
pub fn files_of(paths: &[JobPath]) -> Result<Vec<JobPath>, Error> {
    let mut files = Vec::new();
    for path in paths {
        let found = if is_pattern(path) {
            matching(path)?
        } else if path.is_dir() {
            within(path)?
        } else {
            files.push(path.clone());
            continue;
        };
        if found.is_empty() {
            return Err(Error::user(format!("no file is or matches {path:?}")).with_hint(
                "relative paths start at the current directory; a folder's hidden files do not count",
            ));
        }
        files.extend(found.into_iter().map(|found| path.found(found)));
        if files.len() > MOST_FILES {
            return Err(Error::user(format!("{path:?} matches more than {MOST_FILES} files"))
                .with_hint("put them together, or read them in several jobs"));
        }
    }
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(file.canonicalize().unwrap_or_else(|_| file.to_path_buf())));
    Ok(files)
}

fn matching(path: &JobPath) -> Result<Vec<PathBuf>, Error> {
    let pattern = path.to_string_lossy();
    let found = glob_with(&pattern, MATCHING)
        .map_err(|error| Error::user(format!("{path:?} is no pattern for files")).with_source(error))?;
    let mut files = Vec::new();
    for entry in found {
        let entry = entry.map_err(|error| {
            Error::external(format!("look for files that match {path:?}")).with_source(error)
        })?;
        if !entry.is_dir() {
            files.push(entry);
        }
    }
    files.sort();
    Ok(files)
}

fn within(path: &JobPath) -> Result<Vec<PathBuf>, Error> {
    let failed =
        |error: std::io::Error| Error::external(format!("look into folder {path:?}")).with_source(error);
    path.recheck()?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn names(folder: &Path, paths: &[&str]) -> String {
        let paths: Vec<JobPath> = paths.iter().map(|path| folder.join(path).into()).collect();
        match files_of(&paths) {
            Ok(files) => {
                let names = files.iter().map(|file| file.strip_prefix(folder).unwrap().to_str().unwrap());
                names.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.chain().replace(folder.to_str().unwrap(), "."),
        }
    }

    #[test]
    fn a_path_is_a_file_a_pattern_or_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        std::fs::create_dir_all(folder.join("in/deeper")).unwrap();
        for name in ["in/b.csv", "in/a.csv", "in/.c.csv", "in/deeper/d.csv", "e[1].csv", "e1.csv"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(names(folder, &["in"]), "in/a.csv in/b.csv");
        assert_eq!(names(folder, &["in/*.csv"]), "in/a.csv in/b.csv");
        assert_eq!(names(folder, &["**/*.csv"]), "e1.csv e[1].csv in/a.csv in/b.csv in/deeper/d.csv");
        assert_eq!(names(folder, &["e[1].csv"]), "e[1].csv", "a file of that name");
        assert_eq!(names(folder, &["e[0-9].csv"]), "e1.csv");
        assert_eq!(names(folder, &["e1.csv", "in/b.csv", "in/*", "./e1.csv"]), "e1.csv in/b.csv in/a.csv");
        assert_eq!(names(folder, &["in/missing.csv"]), "in/missing.csv", "the open reports it");
        assert_eq!(names(folder, &["in/*.json"]), "no file is or matches \"./in/*.json\"");
        assert_eq!(names(folder, &["in/[.csv"]), "\"./in/[.csv\" is no pattern for files: Pattern syntax error near position 8: invalid range pattern".replace("position 8", &format!("position {}", folder.to_str().unwrap().len() + 4)));
    }
}
