//! Builds a table: rows in, sorted, encoded, checked, written next to the old table and renamed over it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_storage::{Fs, RealFs};

use super::error::{BadLine, LookupError};
use super::layout::{Head, PAGE, Section, SectionKind};
use super::names::is_v4;
use super::output::Output;
use super::sample::Sample;
use super::sort::Sorter;
use super::v4_writer::V4Writer;
use super::v6::V6Writer;

/// The longest name, in bytes; that of the DNS.
pub const NAME_MAX: usize = 255;
/// Rows between two calls of the progress callback.
const PROGRESS_ROWS: u64 = 1 << 16;

/// How a table is built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Bytes of rows that are sorted in memory at a time. The rest of a build takes up to 300 MiB more for a
    /// thousand million rows, most of it templates.
    pub memory: usize,
    /// Lines of sources that may be no rows.
    pub max_bad: u64,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self { memory: 256 << 20, max_bad: 0 }
    }
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    /// Rows that this stage has done.
    pub rows: u64,
    /// Rows that it will do, or, while rows come in, 0.
    pub rows_expected: u64,
    /// Bytes of the source that are read, packed ones where it is packed.
    pub source_bytes: u64,
}

/// What a build does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Reading,
    Writing,
}

/// What was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildReport {
    pub rows: u64,
    /// Rows whose name is empty.
    pub empty: u64,
    /// Rows that a later one of the same address replaced.
    pub duplicates: u64,
    /// Lines that were no rows.
    pub bad: u64,
    /// The first few of them.
    pub first_bad: Vec<BadLine>,
    pub file_bytes: u64,
}

type OnProgress<'a> = Box<dyn FnMut(&Progress) -> ControlFlow<()> + 'a>;

/// Takes rows and makes a table of them. Dropping it before [`TableBuilder::finish`] leaves no files.
pub struct TableBuilder<'a> {
    path: PathBuf,
    fs: Arc<dyn Fs>,
    sorter: Sorter,
    sample: Sample,
    pub(crate) options: BuildOptions,
    pub(crate) report: BuildReport,
    pub(crate) source_bytes: u64,
    pushed: u64,
    on_progress: OnProgress<'a>,
}

impl<'a> TableBuilder<'a> {
    /// A builder of the table `path`. Its temporary files are in the same folder.
    pub fn new(path: impl Into<PathBuf>, options: BuildOptions) -> Self {
        Self::on(Arc::new(RealFs), path.into(), options)
    }

    /// A builder on another file system.
    pub fn on(fs: Arc<dyn Fs>, path: PathBuf, options: BuildOptions) -> Self {
        Self {
            sorter: Sorter::new(&fs, path.clone(), options.memory),
            path,
            fs,
            sample: Sample::default(),
            options,
            report: BuildReport::default(),
            source_bytes: 0,
            pushed: 0,
            on_progress: Box::new(|_| ControlFlow::Continue(())),
        }
    }

    /// Calls `on_progress` every 65,536 rows; `Break` stops the build with [`LookupError::Stopped`].
    #[must_use]
    pub fn with_progress(mut self, on_progress: impl FnMut(&Progress) -> ControlFlow<()> + 'a) -> Self {
        self.on_progress = Box::new(on_progress);
        self
    }

    /// Takes a row, in any order; a later row of the same address replaces it.
    ///
    /// # Errors
    /// A name that is no UTF-8 or too long, a disk that fails, a progress callback that says stop.
    pub fn push(&mut self, address: [u8; 16], name: &[u8]) -> Result<(), LookupError> {
        if let Some(reason) = reason_against(name) {
            return Err(LookupError::Row { reason });
        }
        self.push_checked(address, name)
    }

    pub(crate) fn push_checked(&mut self, address: [u8; 16], name: &[u8]) -> Result<(), LookupError> {
        self.sample.offer(address, name);
        self.sorter.push(address, name)?;
        self.pushed += 1;
        if self.pushed.is_multiple_of(PROGRESS_ROWS) {
            let source_bytes = self.source_bytes;
            let progress =
                Progress { stage: Stage::Reading, rows: self.pushed, rows_expected: 0, source_bytes };
            tell(&mut self.on_progress, &progress, &self.path)?;
        }
        Ok(())
    }

    /// Sorts and writes the table and puts it in the place of an older one.
    ///
    /// # Errors
    /// The first thing that failed. An older table is then untouched, and no temporary file is left.
    pub fn finish(self) -> Result<BuildReport, LookupError> {
        let Self { path, fs, sorter, sample, mut report, pushed, source_bytes, mut on_progress, .. } = self;
        let mut names = sample.learn();
        let beside = |what: &str| {
            let mut name = path.clone().into_os_string();
            name.push(what);
            Output::create(&fs, name.into())
        };
        let mut output = beside(".tmp")?;
        output.write(&[0; PAGE as usize])?;
        let names_at = output.position();
        let mut v4 = V4Writer::new(&output, beside(".presence.tmp")?);
        let mut v6 = V6Writer::new(beside(".v6.tmp")?, beside(".filter.tmp")?);
        let mut rows = 0_u64;
        report.duplicates = sorter.finish(|key, name| {
            report.empty += u64::from(name.is_empty());
            rows += 1;
            if rows.is_multiple_of(PROGRESS_ROWS) {
                let progress = Progress { stage: Stage::Writing, rows, rows_expected: pushed, source_bytes };
                tell(&mut on_progress, &progress, &path)?;
            }
            if is_v4(&key) {
                v4.push(key, name, &mut names, &mut output)
            } else {
                v6.push(key, name, &mut names)
            }
        })?;
        let v4 = v4.finish(&mut names, &mut output)?;
        let v6 = v6.finish(&mut names)?;

        let mut sections = Vec::new();
        if v4.row_count > 0 {
            let length = output.position() - names_at;
            let (kind, rows) = (SectionKind::V4Names, v4.row_count);
            sections.push(Section { kind, checksum: 0, offset: names_at, length, rows });
            add_file(&mut output, &mut sections, SectionKind::V4Presence, v4.presence, v4.row_count)?;
            add(&mut output, &mut sections, SectionKind::V4Groups, &v4.groups, v4.row_count)?;
            add(&mut output, &mut sections, SectionKind::V4Chunks, &v4.chunks, v4.row_count)?;
        }
        if v6.row_count > 0 {
            add_file(&mut output, &mut sections, SectionKind::V6Names, v6.names, v6.row_count)?;
            add_file(&mut output, &mut sections, SectionKind::V6Filter, v6.filter, v6.row_count)?;
            add(&mut output, &mut sections, SectionKind::V6Blocks, &v6.blocks, v6.row_count)?;
        }
        let (templates, model) = names.sections();
        add(&mut output, &mut sections, SectionKind::Templates, &templates, names.template_count())?;
        add(&mut output, &mut sections, SectionKind::Model, &model, 0)?;

        let length = output.position();
        let (empty, duplicates) = (report.empty, report.duplicates);
        let head = Head { length, rows, empty, duplicates, sections };
        output.publish(&head.to_bytes(), &path)?;
        (report.rows, report.file_bytes) = (rows, length);
        Ok(report)
    }
}

/// Why a name cannot be in a table.
pub(crate) fn reason_against(name: &[u8]) -> Option<String> {
    if name.len() > NAME_MAX {
        return Some(format!("a name has at most {NAME_MAX} bytes, got {}", name.len()));
    }
    let error = std::str::from_utf8(name).err()?;
    Some(format!("a name is UTF-8, got byte {:#04x} at {}", name[error.valid_up_to()], error.valid_up_to()))
}

fn tell(on_progress: &mut OnProgress<'_>, progress: &Progress, path: &Path) -> Result<(), LookupError> {
    match on_progress(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(LookupError::Stopped { path: path.to_owned() }),
    }
}

/// Appends a section that is read whole on opening.
fn add(
    output: &mut Output,
    sections: &mut Vec<Section>,
    kind: SectionKind,
    bytes: &[u8],
    rows: u64,
) -> Result<(), LookupError> {
    debug_assert!(kind.is_small());
    output.pad_to_page()?;
    let (offset, length, checksum) = (output.position(), bytes.len() as u64, crc32fast::hash(bytes));
    sections.push(Section { kind, checksum, offset, length, rows });
    output.write(bytes)
}

/// Appends a section whose pieces have their own checksums.
fn add_file(
    output: &mut Output,
    sections: &mut Vec<Section>,
    kind: SectionKind,
    file: Output,
    rows: u64,
) -> Result<(), LookupError> {
    output.pad_to_page()?;
    let (offset, length) = (output.position(), file.position());
    sections.push(Section { kind, checksum: 0, offset, length, rows });
    output.append(file)
}
