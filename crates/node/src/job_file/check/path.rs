//! Files that sinks write: each is one sink's alone, and no source reads it, as a sink empties its file when its job begins.
//!
//! Devices and pipes may be named as often as one likes. What another job or another program does with a file is not known
//! here: sinks lock what they write.

use std::path::{Path, PathBuf};

use thalweg_connect::paths::files_of;
use thalweg_connect::{OptionSpec, Options};

use super::{CheckedSink, CheckedSource, Named};
use crate::job_file::section::{Report, Section};

pub(super) fn check(report: &Report, named: &Named<'_>, sources: &[CheckedSource], sinks: &[CheckedSink]) {
    let mut taken: Vec<(PathBuf, String)> = Vec::new();
    for source in sources {
        for (_, path) in files(source.plugin.options(), &source.options) {
            taken.push((path, format!("source {:?} reads", source.name)));
        }
    }
    for sink in sinks {
        for (key, path) in files(sink.plugin.options(), &sink.options) {
            let other = taken.iter().find(|(other, _)| *other == path);
            if let Some((_, other)) = other
                && let Some((_, span, node)) = named.sinks.iter().find(|(name, ..)| *name == *sink.name)
                && let Some(section) = Section::of(report, format!("sink {:?}", sink.name), *span, node)
                && let Some(value) = section.get(key)
            {
                report
                    .at(value.span, format!("{} writes a file that {other}, too", section.what))
                    .expected("a file of its own")
                    .report();
            }
            taken.push((path, format!("sink {:?} writes", sink.name)));
        }
    }
}

/// The files among some options, with their keys.
fn files<'a>(
    specs: &'static [OptionSpec],
    options: &'a Options,
) -> impl Iterator<Item = (&'static str, PathBuf)> + 'a {
    let paths = specs.iter().flat_map(|spec| {
        let several = options.paths(spec.key).unwrap_or_default();
        // What cannot be found is said where it is opened.
        let several = files_of(several).unwrap_or_else(|_| several.to_vec());
        options.path(spec.key).cloned().into_iter().chain(several).map(|path| (spec.key, path))
    });
    paths.filter_map(|(key, path)| Some((key, identity(path.as_path())?)))
}

/// What all names of one file have in common, whether it exists or not; `None` if the path is not a file.
fn identity(path: &Path) -> Option<PathBuf> {
    if let Ok(there) = path.canonicalize() {
        return there.is_file().then_some(there);
    }
    let path = std::path::absolute(path).ok()?;
    let folder = path.parent()?.canonicalize().ok();
    Some(match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    })
}
