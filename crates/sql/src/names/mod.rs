//! What names mean in one query: tables, their rollups and the views, one snapshot each.
//!
//! A job is a schema. The default schema represents all jobs: there a name is looked for in each, and has to be in one
//! only. It lists nothing, so that `SHOW TABLES` shows everything once, under its job.
//!
//! What a name is, in this order: a table; a rollup, as `TABLE__ROLLUP`; a view.

mod provider;
mod viewed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::datasource::ViewTable;
use thalweg_table::{Catalog, Snapshot, TableName};
use thalweg_types::Error;

use crate::elsewhere::text;
use crate::fault::{self, listed, nearest};
use crate::stored::{Part, StoredTable};
use crate::view::{self, VIEWS};

pub(crate) use provider::Jobs;

/// Name of DataFusion's catalog; nobody has to write it.
pub(crate) const CATALOG: &str = "thalweg";
/// Name of the schema in which all jobs are.
pub(crate) const DEFAULT_SCHEMA: &str = "public";

/// Between the name of a table and that of its rollup.
const ROLLUP_MARK: &str = "__";

/// The name of a table's rollup.
pub(crate) fn rollup_name(table: &str, rollup: &str) -> String {
    format!("{table}{ROLLUP_MARK}{rollup}")
}

/// The tables of one query.
pub(crate) struct Names {
    catalog: Arc<dyn Catalog>,
    use_rollups: bool,
    tables: OnceLock<Vec<TableName>>,
    /// Names that table functions have.
    functions: BTreeSet<String>,
    /// What was wrong with such a name as the name of a table. Which of both it is shows later.
    doubts: Mutex<BTreeMap<String, Error>>,
    /// Held while a snapshot is taken: no two are taken of one table.
    taken: Mutex<BTreeMap<TableName, Option<Arc<Snapshot>>>>,
}

impl Names {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, use_rollups: bool, functions: BTreeSet<String>) -> Self {
        Self {
            catalog,
            use_rollups,
            functions,
            doubts: Mutex::default(),
            tables: OnceLock::new(),
            taken: Mutex::default(),
        }
    }

    pub(crate) fn tables(&self) -> Result<&[TableName], Error> {
        if let Some(tables) = self.tables.get() {
            return Ok(tables);
        }
        let tables = self.catalog.tables()?;
        Ok(self.tables.get_or_init(|| tables))
    }

    /// The query's snapshot of a table.
    pub(crate) fn snapshot(&self, name: &TableName) -> Result<Option<Arc<Snapshot>>, Error> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(snapshot) = taken.get(name) {
            return Ok(snapshot.clone());
        }
        let snapshot = self.catalog.snapshot(name)?.map(Arc::new);
        taken.insert(name.clone(), snapshot.clone());
        Ok(snapshot)
    }

    pub(crate) fn stored(&self, snapshot: Arc<Snapshot>, part: Part) -> Arc<dyn TableProvider> {
        Arc::new(StoredTable::new(snapshot, part, self.use_rollups))
    }

    fn jobs(&self) -> Result<Vec<String>, Error> {
        let mut jobs: Vec<String> = self.tables()?.iter().map(|name| name.job.clone()).collect();
        jobs.dedup();
        Ok(jobs)
    }

    /// All names of a job.
    fn names_of(&self, job: &str) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for name in self.tables()?.iter().filter(|name| name.job == job) {
            names.push(name.table.clone());
            if let Some(snapshot) = self.snapshot(name)? {
                for rollup in &snapshot.rollups {
                    names.push(rollup_name(&name.table, &rollup.spec.name));
                }
            }
        }
        for view in &VIEWS {
            if !names.iter().any(|name| name == view.name) && !self.fitting(Some(job), view)?.is_empty() {
                names.push(view.name.to_owned());
            }
        }
        Ok(names)
    }

    /// What a name of a job represents.
    fn of_job(&self, job: &str, name: &str) -> Result<Option<Arc<dyn TableProvider>>, Error> {
        if let Some(table) = self.tables()?.iter().find(|table| table.job == job && table.table == name) {
            let snapshot = self.snapshot(table)?;
            return Ok(snapshot.map(|snapshot| self.stored(snapshot, Part::Whole)));
        }
        for table in self.tables()?.iter().filter(|table| table.job == job) {
            let Some(rollup) =
                name.strip_prefix(table.table.as_str()).and_then(|rest| rest.strip_prefix(ROLLUP_MARK))
            else {
                continue;
            };
            let Some(snapshot) = self.snapshot(table)? else { continue };
            if let Some(index) = snapshot.rollups.iter().position(|other| other.spec.name == rollup) {
                return Ok(Some(self.stored(snapshot, Part::NamedRollup(index))));
            }
        }
        match view::find(name) {
            Some(view) if !self.fitting(Some(job), view)?.is_empty() => {
                let snapshot = self.viewed(Some(job), view)?;
                let of = TableReference::partial(snapshot.name.job.as_str(), snapshot.name.table.as_str());
                let plan = view.plan(self.stored(snapshot, Part::Whole), of, None, None);
                let plan = plan.map_err(|error| fault::of(&error, 0))?;
                Ok(Some(Arc::new(ViewTable::new(plan, None))))
            }
            _ => Ok(None),
        }
    }

    /// A name that may be a table's: `None` where it may be a function's instead.
    fn perhaps(&self, job: Option<&str>, name: &str) -> Result<Option<Arc<dyn TableProvider>>, Error> {
        match self.table(job, name) {
            Err(error) if self.functions.contains(name) => {
                let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
                doubts.insert(name.to_owned(), error);
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// The error for DataFusion's message that there is no such table.
    pub(crate) fn doubt(&self, message: &str) -> Option<Error> {
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let name = doubts.keys().find(|name| message.ends_with(&format!(".{name}' not found")))?.clone();
        doubts.remove(&name)
    }

    /// The first file of the query's snapshots that is there no more.
    pub(crate) fn vanished(&self) -> Option<PathBuf> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshots = taken.values().flatten();
        let files = snapshots.flat_map(|snapshot| {
            snapshot.files.iter().chain(snapshot.rollups.iter().flat_map(|rollup| &rollup.files))
        });
        files.map(|file| &file.path).find(|path| !path.exists()).cloned()
    }

    /// What a name represents, of a job or of any.
    pub(crate) fn table(&self, job: Option<&str>, name: &str) -> Result<Arc<dyn TableProvider>, Error> {
        let found = match job {
            // A job may have the name of the default schema; then a name is looked for in it first.
            Some(job) => match self.of_job(job, name)? {
                None if job == DEFAULT_SCHEMA => self.of_any(name)?,
                found => found,
            },
            None => self.of_any(name)?,
        };
        found.ok_or_else(|| self.missing(job, name))
    }

    /// What a name without a job represents.
    fn of_any(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, Error> {
        // A table's name is found without a look into all others.
        let mut owners: Vec<String> = self
            .tables()?
            .iter()
            .filter(|table| table.table == name)
            .map(|table| table.job.clone())
            .collect();
        if owners.is_empty() {
            for job in self.jobs()? {
                if self.of_job(&job, name)?.is_some() {
                    owners.push(job);
                }
            }
        }
        match owners.as_slice() {
            [] => Ok(None),
            [job] => self.of_job(job, name),
            several => {
                let all: Vec<String> = several.iter().map(|job| written(job, name)).collect();
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                Err(Error::user(format!("{name:?} is in several jobs"))
                    .with_hint(format!("name the job: {}", listed(&all))))
            }
        }
    }

    /// The error for a name that represents nothing.
    fn missing(&self, job: Option<&str>, name: &str) -> Error {
        let error = match job {
            Some(job) => Error::user(format!("no table {}", written(job, name))),
            None => Error::user(format!("no table {}", quoted(name))),
        };
        let all = self.all().unwrap_or_default();
        if all.is_empty() {
            return error.with_hint("there are no tables: a job fills them with a sink of type table");
        }
        let known: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
        let shown: Vec<String> = all.iter().map(|(job, name)| written(job, name)).collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let near = nearest(name, &known).and_then(|near| known.iter().position(|name| *name == near));
        match near {
            Some(at) => error.with_hint(format!("did you mean {}?", shown[at])),
            None => error.with_hint(format!("there are {}", listed(&shown))),
        }
    }

    fn all(&self) -> Result<Vec<(String, String)>, Error> {
        let mut all = Vec::new();
        for job in self.jobs()? {
            for name in self.names_of(&job)? {
                all.push((job.clone(), name));
            }
        }
        Ok(all)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").finish_non_exhaustive()
    }
}

fn written(job: &str, name: &str) -> String {
    format!("{}.{}", quoted(job), quoted(name))
}

/// A name as SQL requires it: in quotes unless it is plain.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { text::quoted(name) }
}
