//! The tables that views are of.

use std::sync::Arc;

use thalweg_table::Snapshot;
use thalweg_types::Error;

use super::{Names, quoted, written};
use crate::fault::listed;
use crate::view::View;

impl Names {
    /// The tables, of a job or of all, that a view fits.
    pub(super) fn fitting(&self, job: Option<&str>, view: &View) -> Result<Vec<Arc<Snapshot>>, Error> {
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
}
