//! The commit log of a job: its last record, in words.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use thalweg_storage::log::LogError;
use thalweg_storage::{CommitSummary, OpenMode, read_commits};
use thalweg_types::{Class, Error};

use super::report::{CommitLook, Damage, LastCommit, PartLook, SourceLook, Thing, Torn, What, thing};
use super::{Found, Looker, parts, source_name, steady};
use crate::data_dir::JobDir;
use crate::durable::record::{self, CommitRecord};
use crate::durable::refuse_without_records;

impl Looker {
    /// What a commit log holds, and its last record.
    pub(super) fn commits(&self, path: &Path) -> (Thing, Option<CommitRecord>) {
        let mut found = Found::default();
        let folder = path.parent().unwrap_or(Path::new(""));
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let mut job = unit_of(&absolute).unwrap_or_else(|| name_of(&absolute));
        let outcome = match self.read_commits(path, &job) {
            // A copy under another name: the job file says which job it is.
            Err(damage @ LogError::Damaged { .. }) => {
                let named = self.job_name(folder).filter(|name| *name != job);
                let again = named.map(|name| (self.read_commits(path, &name), name));
                match again {
                    Some((Ok(again), name)) => {
                        job = name;
                        Ok(again)
                    }
                    _ => Err(damage),
                }
            }
            outcome => outcome,
        };
        let read = match outcome {
            Ok(read) => read,
            Err(error) => {
                match error {
                    error @ (LogError::Damaged { .. } | LogError::NewerFormat { .. }) => {
                        found.damage.push(Damage::of_log(&error, path));
                    }
                    LogError::Io(disk) if disk.kind() == ErrorKind::NotFound => {
                        // It is made before the first entry of an order log.
                        if self.fs.list(&JobDir::at(folder).order()).is_ok_and(|names| !names.is_empty()) {
                            found.misfit(
                                path.to_owned(),
                                "there is an order log, and no commit log".to_owned(),
                            );
                        } else {
                            found.notes.push("the job has not begun".to_owned());
                        }
                    }
                    error => found.trouble.push(Error::from(error).chain()),
                }
                return (thing(path, "commit log", None, What::Unread, found), None);
            }
        };
        found.torn.extend(read.torn.map(|bytes| Torn { path: path.to_owned(), pos: read.bytes, bytes }));
        let last = read.records.last().and_then(|bytes| match CommitRecord::decode(bytes) {
            Ok(record) => Some(record),
            Err(error) => {
                found.misfit(path.to_owned(), error.chain());
                None
            }
        });
        if read.records.is_empty()
            && let Err(error) = refuse_without_records(self.fs.as_ref(), &JobDir::at(folder))
            && error.class() == Class::Corrupt
        {
            found.misfit(path.to_owned(), error.message().to_owned());
        }
        let what = What::Commits(CommitLook {
            job,
            run: read.run,
            records: read.records.len() as u64,
            bytes: read.bytes,
            last: last.as_ref().map(look_at),
        });
        (thing(path, "commit log", None, what, found), last)
    }

    fn read_commits(&self, path: &Path, job: &str) -> Result<CommitSummary, LogError> {
        // Damage is a finding here, to be seen twice; a failed read is an error.
        let look = || match read_commits(self.fs.as_ref(), path, record::identity(job)) {
            Err(error @ LogError::Io(_)) => Err(error),
            read => Ok(read),
        };
        steady(look, |read| read.as_ref().err().map(ToString::to_string))?
    }

    /// The name in a job's kept job file.
    pub(super) fn job_name(&self, folder: &Path) -> Option<String> {
        Some(self.job_file(folder)?.get("name")?.as_str()?.to_owned())
    }

    /// The job file as it was started; `None` where it cannot be read.
    pub(super) fn job_file(&self, folder: &Path) -> Option<serde_json::Value> {
        let file = self.fs.open(&folder.join("job.json"), OpenMode::Read).ok()?;
        let mut bytes = vec![0; usize::try_from(file.len().ok()?).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

fn name_of(folder: &Path) -> String {
    folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The name of the unit of a cluster whose folder this is, if it is one: `JOB/units/STAGE/PARTITION`.
fn unit_of(folder: &Path) -> Option<String> {
    let stage = folder.parent()?;
    let units = stage.parent().filter(|units| units.ends_with("units"))?;
    let partition: u32 = name_of(folder).parse().ok()?;
    let job = source_name(&name_of(units.parent()?));
    Some(format!("{job}/{}/{partition}", source_name(&name_of(stage))))
}

fn look_at(record: &CommitRecord) -> LastCommit {
    let sources = record.sources.iter().map(|source| SourceLook {
        name: source.name.clone(),
        next: source.next,
        journal: super::journal::place_of(source),
    });
    let part = |bytes: &[u8]| PartLook { bytes: bytes.len() as u64, says: parts::words(bytes) };
    let parts: BTreeMap<String, PartLook> =
        record.parts.iter().map(|(name, position)| (name.clone(), part(&position.0))).collect();
    let queries = record.queries.iter().map(|change| match &change.text {
        Some(text) => format!("{}/{}: {text}", change.operator, change.query),
        None => format!("{}/{}: dropped", change.operator, change.query),
    });
    LastCommit {
        cycle: record.cycle,
        next: record.next,
        now: record.now,
        order: record.order,
        sources: sources.collect(),
        parts,
        queries: queries.collect(),
    }
}
