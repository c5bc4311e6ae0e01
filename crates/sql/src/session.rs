//! What a query is planned with: one template for the engine, a copy with its own names for each query.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::cache::cache_manager::CacheManagerConfig;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SQLOptions, SessionConfig};
use datafusion::sql::parser::Statement;
use futures_util::StreamExt;
use thalweg_table::Catalog;
use thalweg_types::{Class, Error};
use tokio::sync::OwnedSemaphorePermit;

use crate::fault::{self, Fault};
use crate::function::{self, AddressLiterals, AddressPlanner};
use crate::interrupt::{Flag, interruptible};
use crate::limits::Limits;
use crate::names::{CATALOG, DEFAULT_SCHEMA, Jobs, Names};
use crate::percentile::percentile_cont;
use crate::rollup::RollupRule;
use crate::table_function;
use crate::tally::TallyRule;
use crate::whole::{WholeNumbers, exact_sum};

/// Consumers of memory that are named when it is used up.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Makes the template.
pub(crate) fn template(limits: &Limits) -> Result<SessionState, Error> {
    let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
    let metadata = usize::try_from(limits.metadata).unwrap_or(usize::MAX);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TrackConsumersPool::new(GreedyMemoryPool::new(memory), NAMED_CONSUMERS)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled))
        .with_cache_manager(CacheManagerConfig::default().with_metadata_cache_limit(metadata))
        .build_arc()
        .map_err(|error| fault::of(&error, limits.memory))?;
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true)
        .with_target_partitions(limits.threads.max(1));
    // Errors name line and column.
    config.options_mut().sql_parser.collect_spans = true;
    // Addresses and whole numbers before the rules that look at types, rollups after all that brings conditions to the scans.
    let mut analyzer: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        vec![Arc::new(AddressLiterals), Arc::new(WholeNumbers)];
    analyzer.extend(Analyzer::new().rules);
    let mut optimizer = Optimizer::new().rules;
    optimizer.push(Arc::new(RollupRule));
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_analyzer_rules(analyzer)
        .with_optimizer_rules(optimizer)
        .with_physical_optimizer_rule(Arc::new(TallyRule::default()))
        .build();
    let registered = state.register_expr_planner(Arc::new(AddressPlanner)).and_then(|()| {
        function::all().into_iter().try_for_each(|function| state.register_udf(function).map(drop))
    });
    let registered = registered.and_then(|()| {
        [exact_sum(), percentile_cont()].into_iter().try_for_each(|ours| state.register_udaf(ours).map(drop))
    });
    registered.map_err(|error| fault::of(&error, limits.memory))?;
    Ok(state)
}

/// A query that runs. It holds its snapshots, and its place.
pub(crate) struct Query {
    names: Arc<Names>,
    stream: SendableRecordBatchStream,
    memory: u64,
    _place: Arc<OwnedSemaphorePermit>,
}

/// What a query has while it runs: its place, and the flag by which it is given up.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) place: Arc<OwnedSemaphorePermit>,
    pub(crate) flag: Flag,
}

/// Plans a statement and starts it, over new snapshots.
pub(crate) async fn start(
    template: &SessionState,
    catalog: Arc<dyn Catalog>,
    limits: &Limits,
    statement: Statement,
    held: Held,
) -> Result<Query, Fault> {
    let mut functions: BTreeSet<String> = template.table_functions().keys().cloned().collect();
    functions.extend(table_function::names());
    let names = Arc::new(Names::new(catalog, limits.use_rollups, functions));
    match plan_and_start(template, &names, statement, held.flag).await {
        Ok(stream) => Ok(Query { names, stream, memory: limits.memory, _place: held.place }),
        Err(error) => Err(judge(error, &names, limits.memory)),
    }
}

impl Query {
    pub(crate) fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// The next rows; `None` after the last.
    pub(crate) async fn step(&mut self) -> Result<Option<RecordBatch>, Fault> {
        loop {
            match self.stream.next().await.transpose() {
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                Ok(next) => return Ok(next),
                Err(error) => return Err(judge(error, &self.names, self.memory)),
            }
        }
    }
}

/// What went wrong, and whether it was that a file has gone.
fn judge(error: DataFusionError, names: &Names, memory: u64) -> Fault {
    let error = match names.doubt(&error.message()) {
        Some(doubt) => doubt,
        None => fault::of(&error, memory),
    };
    // Readers wrap what the system says in texts; so the files are looked for.
    if error.class() != Class::User
        && let Some(path) = names.vanished()
    {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let error = Error::external(format!("file {file:?} of a table is gone"))
            .with_hint("it was merged or has expired; send the query again");
        return Fault { error, vanished: Some(path) };
    }
    Fault { error, vanished: None }
}

async fn plan_and_start(
    template: &SessionState,
    names: &Arc<Names>,
    statement: Statement,
    flag: Flag,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(CATALOG.to_owned(), Arc::new(Jobs(Arc::clone(names))));
    // One copy: a state has hundreds of functions by name, and with three more of them `count(*)` took a third longer.
    let mut state = template.clone();
    state.register_catalog_list(Arc::new(catalogs));
    for (name, function) in table_function::all(names) {
        state.register_udtf(name, function);
    }
    // From here on it is one moment for `now()`.
    state.mark_start_execution();
    let plan = state.statement_to_plan(statement).await?;
    // `statement` has refused all that; this is the same once more, by the plan.
    SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false)
        .verify_plan(&plan)?;
    let plan = state.create_physical_plan(&plan).await?;
    execute_stream(interruptible(plan, &flag)?, state.task_ctx())
}
