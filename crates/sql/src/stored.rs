//! A snapshot of a table as DataFusion reads it: Parquet files, rows in memory, and rows of other nodes.
//!
//! A file whose times are outside of the query's bounds is not opened; row groups and pages are skipped by their
//! statistics. Conditions are checked again after the scan (`Inexact`), as a file is left out whole or not at all.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DFSchema, DataFusionError, ScalarValue, Statistics};
use datafusion::config::TableParquetOptions;
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::object_store::ObjectStoreUrl;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::path::Path;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use thalweg_table::{Snapshot, StoredFile};
use thalweg_types::Error;

use crate::bounds::Bounds;
#[cfg(target_os = "linux")]
use crate::cached::CachedReads;
use crate::elsewhere::{self, Wanted};
use crate::fault::ours;
use crate::names::rollup_name;
use crate::pieces::pieces;
use crate::shown::{as_shown, shown};
use crate::verified::VerifiedReads;

/// Which rows of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// All of them, each once: `files`, `fresh` and `elsewhere`.
    Whole,
    /// Those of `files`.
    Files,
    /// Those of `fresh`.
    Fresh,
    /// Those of other nodes.
    Elsewhere,
    /// Those of the rollup at this place, which represent rows of `files`.
    Rollup(usize),
    /// The same rollup by its name: with those of other nodes.
    NamedRollup(usize),
}

/// Rows of a table at one moment.
pub(crate) struct StoredTable {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) part: Part,
    /// Whether rollups may answer in its place.
    pub(crate) use_rollups: bool,
    schema: SchemaRef,
}

impl StoredTable {
    pub(crate) fn new(snapshot: Arc<Snapshot>, part: Part, use_rollups: bool) -> Self {
        let schema = match part {
            Part::Rollup(index) | Part::NamedRollup(index) => &snapshot.rollups[index].schema,
            _ => &snapshot.schema,
        };
        let schema = shown(schema);
        Self { snapshot, part, use_rollups, schema }
    }

    /// Name of the column with event time, the same in rollups.
    pub(crate) fn time(&self) -> &str {
        Self::time_of(&self.snapshot)
    }

    /// The same of a table.
    pub(crate) fn time_of(snapshot: &Snapshot) -> &str {
        snapshot.schema.field(snapshot.time).name()
    }

    pub(crate) fn files(&self) -> &[Arc<StoredFile>] {
        match self.part {
            Part::Whole | Part::Files => &self.snapshot.files,
            Part::Fresh | Part::Elsewhere => &[],
            Part::Rollup(index) | Part::NamedRollup(index) => &self.snapshot.rollups[index].files,
        }
    }

    fn fresh(&self) -> &[RecordBatch] {
        match self.part {
            Part::Whole | Part::Fresh => &self.snapshot.fresh,
            Part::Files | Part::Elsewhere | Part::Rollup(_) | Part::NamedRollup(_) => &[],
        }
    }

    /// What other nodes are asked for, if anything.
    fn name_elsewhere(&self) -> Option<String> {
        let table = &self.snapshot.name.table;
        let name = match self.part {
            Part::Whole | Part::Elsewhere => table.clone(),
            Part::NamedRollup(index) => rollup_name(table, &self.snapshot.rollups[index].spec.name),
            Part::Files | Part::Fresh | Part::Rollup(_) => return None,
        };
        (!self.snapshot.elsewhere.is_empty()).then_some(name)
    }

    fn parquet(
        &self,
        state: &dyn Session,
        files: Vec<(PartitionedFile, u64)>,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let url = ObjectStoreUrl::local_filesystem();
        let runtime = state.runtime_env();
        let factory = CachedParquetFileReaderFactory::new(
            runtime.object_store(&url)?,
            runtime.cache_manager.get_file_metadata_cache(),
        );
        #[cfg(target_os = "linux")]
        let factory = CachedReads(factory);
        let factory =
            VerifiedReads { reads: factory, metadata: runtime.cache_manager.get_file_metadata_cache() };
        let options = TableParquetOptions {
            global: state.config_options().execution.parquet.clone(),
            ..Default::default()
        };
        let mut source = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(factory));
        if let Some(predicate) = conjunction(filters.iter().cloned()) {
            let schema = DFSchema::try_from(Arc::clone(&self.schema))?;
            source = source.with_predicate(state.create_physical_expr(predicate, &schema)?);
        }
        let statistics = Statistics::try_merge_iter(
            files.iter().filter_map(|(file, _)| file.statistics.as_deref()),
            &self.schema,
        )?;
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(pieces(files, state.config().target_partitions()))
            .with_statistics(statistics)
            .with_limit(limit)
            .with_projection_indices(projection.cloned())?
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    fn partitioned(&self, file: &Arc<StoredFile>) -> Result<PartitionedFile, DataFusionError> {
        // A data directory may be named from where the program was started, by way of the folder above too.
        let goes_up = file.path.components().any(|part| part == std::path::Component::ParentDir);
        let path = if goes_up { file.path.canonicalize() } else { std::path::absolute(&file.path) };
        let path =
            path.map_err(|error| ours(Error::external(format!("find {:?}", file.path)).with_source(error)))?;
        let location = Path::from_absolute_path(&path).map_err(|error| {
            ours(Error::internal(format!("path of a file of {}: {error}", self.snapshot.name)))
        })?;
        let mut out = PartitionedFile::new("", file.bytes);
        out.object_meta.location = location;
        // The file lives as long as it has a holder.
        Ok(out.with_statistics(Arc::new(self.statistics_of(file))).with_extension(Arc::clone(file)))
    }

    /// Rows and times of a file, without a look into it.
    fn statistics_of(&self, file: &StoredFile) -> Statistics {
        let mut out = Statistics::new_unknown(&self.schema);
        out.num_rows = Precision::Exact(usize::try_from(file.rows).unwrap_or(usize::MAX));
        let at = self.schema.index_of(self.time());
        if let Some(column) = at.ok().and_then(|at| out.column_statistics.get_mut(at)) {
            *column = ColumnStatistics { null_count: Precision::Exact(0), ..ColumnStatistics::new_unknown() };
            // Other units are rounded, or hold times that microseconds do not.
            let unit = self.schema.field_with_name(self.time()).map(Field::data_type);
            if let Ok(DataType::Timestamp(TimeUnit::Microsecond, None)) = unit {
                column.min_value =
                    Precision::Exact(ScalarValue::TimestampMicrosecond(Some(file.first), None));
                column.max_value = Precision::Exact(ScalarValue::TimestampMicrosecond(Some(file.last), None));
            }
        }
        out
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let bounds = Bounds::around(filters, self.time());
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
        let files = self
            .files()
            .iter()
            .filter(|file| Bounds::of_file(file.first, file.last).meets(bounds))
            .map(|file| Ok((self.partitioned(file)?, file.rows)))
            .collect::<Result<Vec<_>, DataFusionError>>()?;
        if !files.is_empty() {
            inputs.push(self.parquet(state, files, projection, filters, limit)?);
        }
        if self.fresh().iter().any(|batch| batch.num_rows() > 0) {
            let batches = self
                .fresh()
                .iter()
                .map(|batch| as_shown(batch, &self.schema))
                .collect::<Result<Vec<_>, _>>()?;
            let source =
                MemorySourceConfig::try_new(&[batches], Arc::clone(&self.schema), projection.cloned())?;
            inputs.push(DataSourceExec::from_data_source(source.with_limit(limit)));
        }
        if let Some(table) = self.name_elsewhere() {
            let wanted = Wanted { table, time: self.time(), bounds, filters, limit };
            inputs.push(elsewhere::scan(&self.snapshot, &self.schema, projection, wanted)?);
        }
        match inputs.len() {
            0 => {
                let schema = match projection {
                    Some(columns) => Arc::new(self.schema.project(columns)?),
                    None => Arc::clone(&self.schema),
                };
                Ok(Arc::new(EmptyExec::new(schema)))
            }
            1 => Ok(inputs.remove(0)),
            _ => UnionExec::try_new(inputs),
        }
    }
}

impl fmt::Debug for StoredTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredTable")
            .field("name", &self.snapshot.name)
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

/// The table of a scan, if it is one of ours.
pub(crate) fn stored(
    source: &Arc<dyn datafusion::logical_expr::TableSource>,
) -> Option<Arc<dyn TableProvider>> {
    let provider = datafusion::datasource::source_as_provider(source).ok()?;
    let any: &dyn Any = provider.as_ref();
    any.is::<StoredTable>().then_some(provider)
}
