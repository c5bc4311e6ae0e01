//! Tables of jobs, for readers: those of running jobs with their fresh rows, all others with their committed rows.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thalweg_storage::log::LogError;
use thalweg_storage::{RealFs, read_commits};
use thalweg_table::{Catalog, Snapshot, TableName, Tables, read_committed};
use thalweg_types::Error;

use crate::data_dir::JobDir;
use crate::durable::record::{CommitRecord, identity};
use crate::durable::{refuse_without_commits, refuse_without_records};
use crate::inspect::table_position;

/// The tables of a data directory, as their jobs' last commits name them. No lock is taken: jobs may be running.
#[derive(Clone, Debug)]
pub struct CommittedTables {
    data_dir: PathBuf,
}

impl CommittedTables {
    /// # Errors
    /// Of class user, where there is no such folder or it is no data directory.
    pub fn open(data_dir: &Path) -> Result<Self, Error> {
        if !data_dir.join("jobs").is_dir() {
            let what = if data_dir.is_dir() {
                "is no data directory: it has no folder `jobs`"
            } else {
                "is not there"
            };
            return Err(Error::user(format!("{data_dir:?} {what}"))
                .with_hint("name the folder that `thalweg run --data-dir` was given"));
        }
        Ok(Self { data_dir: data_dir.to_owned() })
    }

    fn job(&self, name: &str) -> JobDir {
        JobDir::at(&self.data_dir.join("jobs").join(name))
    }

    /// What the last commit record of a job says about a sink; `None` before its first cycle.
    fn position(&self, name: &TableName) -> Result<Option<Vec<u8>>, Error> {
        let folder = self.job(&name.job);
        refuse_without_commits(&RealFs, &folder)?;
        let path = folder.commit_log();
        let commits = match read_commits(&RealFs, &path, identity(&name.job)) {
            Ok(commits) => commits,
            Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => {
                return Err(Error::from(error).context(format!("the commit log of job {:?}", name.job)));
            }
        };
        let Some(last) = commits.records.last() else {
            refuse_without_records(&RealFs, &folder)?;
            return Ok(None);
        };
        Ok(table_position(&CommitRecord::decode(last)?, &name.table))
    }
}

impl Catalog for CommittedTables {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        let mut tables = Vec::new();
        for job in folders(&self.data_dir.join("jobs"))? {
            for table in folders(&self.job(&job).tables())? {
                tables.push(TableName { job: job.clone(), table });
            }
        }
        Ok(tables)
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        // A name comes from a query: it leads nowhere else.
        if [&name.job, &name.table].into_iter().any(|name| !crate::job_file::section::is_name(name)) {
            return Ok(None);
        }
        let dir = self.job(&name.job).tables().join(&name.table);
        read_committed(name, &dir, || self.position(name))
    }
}

/// Names of folders, in order; none where there is no such folder.
fn folders(path: &Path) -> Result<Vec<String>, Error> {
    use thalweg_storage::Fs as _;
    match RealFs.list_dirs(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| Error::external(format!("list {path:?}")).with_source(error)),
    }
}

/// The tables of all nodes, once this one is in a cluster.
pub(crate) type ClusterTables = Arc<OnceLock<Arc<dyn Catalog>>>;

/// The tables of a node: those of running jobs as they are now, and the committed rows of all others; in a cluster those of
/// its jobs.
pub(crate) struct NodeTables {
    pub(crate) running: Arc<Tables>,
    pub(crate) committed: CommittedTables,
    pub(crate) cluster: ClusterTables,
}

/// Whether a job is a unit of a cluster, whose tables are parts of others.
fn is_unit(name: &TableName) -> bool {
    name.job.contains('/')
}

impl Catalog for NodeTables {
    fn tables(&self) -> Result<Vec<TableName>, Error> {
        let mut tables = self.running.tables()?;
        tables.retain(|name| !is_unit(name));
        tables.extend(self.committed.tables()?);
        if let Some(cluster) = self.cluster.get() {
            tables.extend(cluster.tables()?);
        }
        tables.sort();
        tables.dedup();
        Ok(tables)
    }

    fn snapshot(&self, name: &TableName) -> Result<Option<Snapshot>, Error> {
        if is_unit(name) {
            return Ok(None);
        }
        if let Some(cluster) = self.cluster.get()
            && let Some(snapshot) = cluster.snapshot(name)?
        {
            return Ok(Some(snapshot));
        }
        match self.running.snapshot(name)? {
            Some(snapshot) => Ok(Some(snapshot)),
            None => self.committed.snapshot(name),
        }
    }
}
