//! What a node asks: queries in processes of their own, or in this one.

use std::sync::Arc;

use thalweg_table::Catalog;
use thalweg_types::Error;

use crate::engine::Engine;
use crate::output::{Chunks, Format};
#[cfg(target_os = "linux")]
use crate::workers::Workers;

/// Answers queries in a format.
#[derive(Debug)]
pub enum Sql {
    /// In this process: a query may end it. For systems where there are no [`Workers`], and for tests.
    Here(Engine),
    #[cfg(target_os = "linux")]
    Workers(Workers),
}

impl Sql {
    /// Runs one statement that only reads; returns with its first rows, or when it has none.
    ///
    /// # Errors
    /// As of [`Engine::query`].
    pub async fn ask(&self, sql: &str, format: Format) -> Result<Chunks, Error> {
        self.ask_over(None, sql, format).await
    }

    /// As [`Sql::ask`], over the tables of another catalog where one is given.
    ///
    /// # Errors
    /// As of [`Engine::query`].
    pub async fn ask_over(
        &self,
        catalog: Option<Arc<dyn Catalog>>,
        sql: &str,
        format: Format,
    ) -> Result<Chunks, Error> {
        match self {
            Sql::Here(engine) => Ok(engine.query_over(catalog, sql).await?.encode(format)),
            #[cfg(target_os = "linux")]
            Sql::Workers(workers) => workers.ask_over(catalog, sql, format).await,
        }
    }

    /// As [`Sql::ask`], for a thread that may block; not to be called on a thread of an async runtime.
    ///
    /// # Errors
    /// As of [`Engine::query`].
    pub fn ask_blocking(&self, sql: &str, format: Format) -> Result<Chunks, Error> {
        match self {
            Sql::Here(engine) => Ok(engine.query_blocking(sql)?.encode(format)),
            #[cfg(target_os = "linux")]
            Sql::Workers(workers) => workers.ask_blocking(sql, format),
        }
    }
}

impl From<Engine> for Sql {
    fn from(engine: Engine) -> Self {
        Sql::Here(engine)
    }
}

#[cfg(target_os = "linux")]
impl From<Workers> for Sql {
    fn from(workers: Workers) -> Self {
        Sql::Workers(workers)
    }
}
