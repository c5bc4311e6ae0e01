//! Answers with the rule are those without it.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray, UInt8Array,
    UInt64Array,
};
use arrow_cast::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::{ExecutionPlan, collect as collect_plan};
use datafusion::prelude::{SessionConfig, SessionContext};
use proptest::prelude::*;

use super::TallyRule;

type Row = (Option<u8>, Option<u64>, Option<String>, Option<i64>, u8);

/// Columns of all types that may be keys, and some to sum.
fn batch(rows: &[Row]) -> RecordBatch {
    let mut addresses = FixedSizeBinaryBuilder::new(16);
    for row in rows {
        match row.1 {
            Some(number) => addresses.append_value((u128::from(number) << 60).to_be_bytes()).unwrap(),
            None => addresses.append_null(),
        }
    }
    let texts = rows.iter().map(|row| row.2.as_deref());
    let columns: [(&str, ArrayRef); 8] = [
        ("small", Arc::new(rows.iter().map(|row| row.0.map(|n| n % 5)).collect::<UInt8Array>())),
        ("large", Arc::new(rows.iter().map(|row| row.1).collect::<UInt64Array>())),
        ("address", Arc::new(addresses.finish())),
        ("seen", Arc::new(texts.clone().collect::<StringViewArray>())),
        ("text", Arc::new(texts.collect::<StringArray>())),
        (
            "time",
            Arc::new(rows.iter().map(|row| row.3.map(|n| n / 1_000)).collect::<TimestampMicrosecondArray>()),
        ),
        ("signed", Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>())),
        ("one", Arc::new(rows.iter().map(|row| Some(row.4)).collect::<UInt8Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

const QUERIES: [&str; 7] = [
    "SELECT small, large, sum(signed), count(*), count(large) FROM t GROUP BY 1, 2",
    "SELECT seen, text, sum(large) FROM t GROUP BY 1, 2",
    "SELECT address, time, count(signed), sum(one) FROM t GROUP BY 1, 2",
    "SELECT DISTINCT small, seen FROM t",
    "SELECT date_bin(INTERVAL '1 second', time) AS second, sum(large) AS s FROM t WHERE one > 10 GROUP BY 1",
    "SELECT one % 3 AS third, signed, text, sum(one + 1) FROM t GROUP BY 1, 2, 3",
    "SELECT small, count(*) AS n FROM (SELECT small, large FROM t GROUP BY 1, 2) GROUP BY 1",
];

async fn ask(rows: &[RecordBatch], sql: &str, partitions: usize, with_rule: bool) -> (String, bool) {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(16);
    let mut state = SessionStateBuilder::new().with_config(config).with_default_features();
    if with_rule {
        state = state.with_physical_optimizer_rule(Arc::new(TallyRule));
    }
    let context = SessionContext::new_with_state(state.build());
    let parts = rows.chunks(2).map(<[RecordBatch]>::to_vec).collect();
    let table = MemTable::try_new(rows[0].schema(), parts).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    let query = context.sql(sql).await.unwrap();
    let plan = query.clone().create_physical_plan().await.unwrap();
    let is_tally =
        datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string().contains("Tally");
    let text = pretty_format_batches(&query.collect().await.unwrap()).unwrap().to_string();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    (lines.join("\n"), is_tally)
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row = (
        any::<Option<u8>>(),
        prop::option::of(prop_oneof![0..8_u64, Just(u64::MAX)]),
        prop::option::of("[ab]{0,2}|[ab]{13,14}"),
        prop::option::of(prop_oneof![0..8_000_000_i64, Just(i64::MAX), Just(-1)]),
        any::<u8>(),
    );
    prop::collection::vec(row, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn answers_are_those_of_datafusion(
        batches in prop::collection::vec(rows(), 1..6),
        query in 0..QUERIES.len(),
        partitions in 1..4_usize,
    ) {
        let batches: Vec<RecordBatch> = batches.iter().map(|rows| batch(rows)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (ours, is_tally) = runtime.block_on(ask(&batches, QUERIES[query], partitions, true));
        let (theirs, is_other) = runtime.block_on(ask(&batches, QUERIES[query], partitions, false));
        prop_assert!(is_tally && !is_other, "{}", QUERIES[query]);
        prop_assert_eq!(ours, theirs, "{}", QUERIES[query]);
    }
}

#[tokio::test]
async fn what_is_not_known_is_left_to_datafusion() {
    let batches = [batch(&[(None, Some(1), Some("a".to_owned()), None, 3)])];
    for sql in [
        "SELECT small, avg(large) FROM t GROUP BY 1",
        "SELECT small, count(DISTINCT large) FROM t GROUP BY 1",
        "SELECT small, sum(large) FILTER (WHERE one > 1) FROM t GROUP BY 1",
        "SELECT small, sum(large * 0.5) FROM t GROUP BY 1",
        "SELECT large * 0.5 AS half, count(*) FROM t GROUP BY 1",
        "SELECT small, large, count(*) FROM t GROUP BY ROLLUP (small, large)",
        "SELECT sum(large), count(*) FROM t",
    ] {
        let (ours, is_tally) = ask(&batches, sql, 2, true).await;
        // A distinct count has an inner grouping, and a last stage knows nothing of grouping sets: those are known.
        assert!(!is_tally || sql.contains("DISTINCT") || sql.contains("ROLLUP"), "{sql}");
        assert_eq!(ours, ask(&batches, sql, 2, false).await.0, "{sql}");
    }
}

/// 40,000 groups, each in two rows that are far apart.
async fn many_groups(memory: usize) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let batches = (0..8_u64).map(|part| {
        let from = part % 4 * 10_000;
        let numbers = UInt64Array::from_iter_values(from..from + 10_000);
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap()
    });
    let batches: Vec<RecordBatch> = batches.collect();
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(memory)));
    // One partition of rows, two of groups.
    let config = SessionConfig::new().with_target_partitions(2);
    let config = config.with_round_robin_repartition(false).with_repartition_file_scans(false);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(TallyRule))
        .build();
    let context = SessionContext::new_with_state(state);
    let table = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    let query = context.sql("SELECT n, count(*) AS rows FROM t GROUP BY 1").await.unwrap();
    (query.create_physical_plan().await.unwrap(), context.task_ctx())
}

/// The tally that is next to the rows.
fn first_stage(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let deeper = plan.children().into_iter().find_map(first_stage);
    deeper.or_else(|| (plan.name() == "Tally").then(|| Arc::clone(plan)))
}

fn counts(batches: &[RecordBatch]) -> (usize, i64) {
    let sums =
        batches.iter().map(|batch| batch.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>());
    (batches.iter().map(RecordBatch::num_rows).sum(), sums.sum())
}

#[tokio::test]
async fn a_first_stage_that_has_no_more_memory_hands_out_what_it_has() {
    for (memory, groups) in [(1 << 20, 80_000), (64 << 20, 40_000)] {
        let (plan, context) = many_groups(memory).await;
        let first = first_stage(&plan).unwrap();
        let batches = collect(first.execute(0, context).unwrap()).await.unwrap();
        assert_eq!(counts(&batches), (groups, 80_000), "{memory}");
    }
}

#[tokio::test]
async fn a_last_stage_without_memory_fails() {
    let (plan, context) = many_groups(64 << 20).await;
    assert_eq!(counts(&collect_plan(plan, context).await.unwrap()), (40_000, 80_000));
    let (plan, context) = many_groups(500 << 10).await;
    let error = collect_plan(plan, context).await.unwrap_err().to_string();
    assert!(error.contains("groups"), "{error}");
}
