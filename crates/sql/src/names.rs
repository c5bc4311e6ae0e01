//! What names stand for in one query: tables, their rollups and the views, one snapshot each.
//!
//! A job is a schema. The default schema stands for all jobs: there a name is looked for in each, and has to be in one
//! only. It lists nothing, so that `SHOW TABLES` shows everything once, under its job.
//!
//! What a name is, in this order: a table; a rollup, as `TABLE__ROLLUP`; a view.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, TableReference};
use datafusion::datasource::ViewTable;
use thalweg_table::{Catalog, Snapshot, TableName};
use thalweg_types::Error;

use crate::fault::{self, listed, nearest, ours};
use crate::stored::{Part, StoredTable};
use crate::view::{self, VIEWS, View};

/// Name of DataFusion's catalog; nobody has to write it.
pub(crate) const CATALOG: &str = "thalweg";
/// Name of the schema in which all jobs are.
pub(crate) const DEFAULT_SCHEMA: &str = "public";

/// Between the name of a table and that of its rollup.
const ROLLUP_MARK: &str = "__";

/// The tables of one query.
pub(crate) struct Names {
    catalog: Arc<dyn Catalog>,
    use_rollups: bool,
    tables: OnceLock<Vec<TableName>>,
    /// Held while a snapshot is taken: no two are taken of one table.
    taken: Mutex<BTreeMap<TableName, Option<Arc<Snapshot>>>>,
}

impl Names {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, use_rollups: bool) -> Self {
        Self { catalog, use_rollups, tables: OnceLock::new(), taken: Mutex::default() }
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
                    names.push(format!("{}{ROLLUP_MARK}{}", name.table, rollup.spec.name));
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

    /// What a name of a job stands for.
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
                return Ok(Some(self.stored(snapshot, Part::Rollup(index))));
            }
        }
        match view::find(name) {
            Some(view) if !self.fitting(Some(job), view)?.is_empty() => {
                let snapshot = self.viewed(Some(job), view)?;
                let of = TableReference::partial(snapshot.name.job.as_str(), snapshot.name.table.as_str());
                let plan = view.plan(self.stored(snapshot, Part::Whole), of, None, None);
                let plan = plan.map_err(|error| fault::of(error).error)?;
                Ok(Some(Arc::new(ViewTable::new(plan, None))))
            }
            _ => Ok(None),
        }
    }

    /// The tables, of a job or of all, that a view fits.
    fn fitting(&self, job: Option<&str>, view: &View) -> Result<Vec<Arc<Snapshot>>, Error> {
        let mut fitting = Vec::new();
        for name in self.tables()?.iter().filter(|name| job.is_none_or(|job| name.job == job)) {
            if let Some(snapshot) = self.snapshot(name)?
                && view.fits(&snapshot.schema)
            {
                fitting.push(snapshot);
            }
        }
        Ok(fitting)
    }

    /// The one table, of a job or of all, that a view is of.
    pub(crate) fn viewed(&self, job: Option<&str>, view: &View) -> Result<Arc<Snapshot>, Error> {
        let mut fitting = self.fitting(job, view)?;
        if fitting.len() > 1 {
            let names: Vec<String> = fitting.iter().map(|of| written(&of.name.job, &of.name.table)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(Error::user(format!("several tables have the columns of {}", view.name)).with_hint(
                format!(
                    "{}('24 hours', 10, '{}') names the table; there are {}",
                    view.name,
                    names[0],
                    listed(&names)
                ),
            ));
        }
        fitting.pop().ok_or_else(|| {
            Error::user(format!("no table has the columns of {}", view.name))
                .with_hint("docs/sql.md says which columns it needs")
        })
    }

    /// A table that is named, for a view.
    pub(crate) fn viewed_of(
        &self,
        job: Option<&str>,
        table: &str,
        view: &View,
    ) -> Result<Arc<Snapshot>, Error> {
        let mut named = self.fitting(job, view)?;
        named.retain(|snapshot| snapshot.name.table == table);
        match named.len() {
            1 => Ok(named.remove(0)),
            0 => {
                self.table(job, table)?;
                Err(Error::user(format!(
                    "table {} does not have the columns of {}",
                    quoted(table),
                    view.name
                )))
            }
            _ => Err(Error::user(format!("{table:?} is in several jobs")).with_hint("name it as JOB.TABLE")),
        }
    }

    /// What a name stands for, of a job or of any.
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

    /// What a name without a job stands for.
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

    /// The error for a name that stands for nothing.
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

/// A name as SQL wants it: in quotes unless it is plain.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The catalog that DataFusion sees.
#[derive(Debug)]
pub(crate) struct Jobs(pub(crate) Arc<Names>);

impl CatalogProvider for Jobs {
    fn schema_names(&self) -> Vec<String> {
        // What fails here fails again, and is told, where a table is named.
        self.0.jobs().unwrap_or_default()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        // Names that stand for nothing have a schema too: it knows better than DataFusion what to say.
        let exists = self.0.jobs().is_ok_and(|jobs| jobs.iter().any(|job| job == name));
        let job = (exists || name != DEFAULT_SCHEMA).then(|| name.to_owned());
        Some(Arc::new(Schema { names: Arc::clone(&self.0), job }))
    }
}

/// A job, or all of them.
#[derive(Debug)]
struct Schema {
    names: Arc<Names>,
    job: Option<String>,
}

#[async_trait]
impl SchemaProvider for Schema {
    fn table_names(&self) -> Vec<String> {
        self.job.as_ref().map_or_else(Vec::new, |job| self.names.names_of(job).unwrap_or_default())
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        self.names.table(self.job.as_deref(), name).map(Some).map_err(ours)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.job.as_ref().is_some_and(|job| matches!(self.names.of_job(job, name), Ok(Some(_))))
    }
}
