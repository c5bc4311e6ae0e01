//! Names as DataFusion asks for them.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::DataFusionError;

use super::{DEFAULT_SCHEMA, Names};
use crate::fault::ours;

/// The catalog that DataFusion sees.
#[derive(Debug)]
pub(crate) struct Jobs(pub(crate) Arc<Names>);

impl CatalogProvider for Jobs {
    fn schema_names(&self) -> Vec<String> {
        // What fails here fails again, with an error, where a table is named.
        self.0.jobs().unwrap_or_default()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        // Names that represent nothing have a schema too: it knows better than DataFusion what to say.
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
        self.names.perhaps(self.job.as_deref(), name).map_err(ours)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.job.as_ref().is_some_and(|job| matches!(self.names.of_job(job, name), Ok(Some(_))))
    }
}
