//! Answers with the rule are those without it.

use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray, TimestampSecondArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow_cast::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::{ExecutionPlan, collect as collect_plan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures_util::StreamExt as _;
use proptest::prelude::*;

use super::Sizes;
use super::TallyRule;

type Row = (Option<u8>, Option<u64>, Option<String>, Option<i64>, u8);

/// Columns of keys of each kind, with numbers up to the ends of their types, and some to sum.
fn batch(rows: &[Row]) -> RecordBatch {
    let mut addresses = FixedSizeBinaryBuilder::new(16);
    for row in rows {
        match row.1 {
            Some(number) => addresses.append_value((u128::from(number) << 60).to_be_bytes()).unwrap(),
            None => addresses.append_null(),
        }
    }
    let texts = rows.iter().map(|row| row.2.as_deref());
    let negative = rows.iter().map(|row| (row.4 > 9).then(|| -i16::from(row.4)));
    let ends =
        rows.iter().map(|row| row.3.map(|n| if n < 0 { i32::MIN } else { n.min(i32::MAX.into()) as i32 }));
    let columns: [(&str, ArrayRef); 12] = [
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
        ("negative", Arc::new(negative.collect::<Int16Array>())),
        ("ends", Arc::new(ends.collect::<Int32Array>())),
        ("full", Arc::new(rows.iter().map(|row| row.1.map(|n| n as u32)).collect::<UInt32Array>())),
        (
            "second",
            Arc::new(rows.iter().map(|row| row.3.map(|n| n.min(1 << 40))).collect::<TimestampSecondArray>()),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

const QUERIES: [&str; 22] = [
    "SELECT small, large, sum(signed), count(*), count(large) FROM t GROUP BY 1, 2",
    "SELECT seen, text, sum(large) FROM t GROUP BY 1, 2",
    "SELECT seen, sum(one) AS n FROM t GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT address, time, count(signed), sum(one) FROM t GROUP BY 1, 2",
    "SELECT DISTINCT small, seen FROM t",
    "SELECT negative, large, small, address, seen, one, count(*) FROM t GROUP BY 1, 2, 3, 4, 5, 6",
    "SELECT negative, text, small, sum(large) FROM t GROUP BY 1, 2, 3",
    "SELECT ends, full, sum(signed) FROM t GROUP BY 1, 2",
    "SELECT second, full, address, ends, negative, count(*) FROM t GROUP BY 1, 2, 3, 4, 5",
    "SELECT small, count(DISTINCT large) FROM t GROUP BY 1",
    "SELECT date_bin(INTERVAL '1 second', time) AS second, sum(large) AS s FROM t WHERE one > 10 GROUP BY 1",
    "SELECT one % 3 AS third, signed, text, sum(one + 1) FROM t GROUP BY 1, 2, 3",
    "SELECT small, count(*) AS n FROM (SELECT small, large FROM t GROUP BY 1, 2) GROUP BY 1",
    "SELECT small, avg(n) FROM (SELECT small, text, count(*) AS n FROM t GROUP BY 1, 2) GROUP BY 1",
    "SELECT large, signed, address, count(*), sum(large), sum(one) FROM t GROUP BY 1, 2, 3",
    "SELECT small, large, address, time, signed, count(seen), sum(large), sum(one) FROM t GROUP BY 1, 2, 3, 4, 5",
    "SELECT small, large, address, seen, text, time, signed, count(*), sum(large), sum(one) FROM t GROUP BY 1, 2, 3, 4, 5, 6, 7",
    "SELECT small, large, sum(signed) AS s FROM t GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 4",
    "SELECT small, text, sum(signed) AS s, count(*) FROM t GROUP BY 1, 2 ORDER BY 3 NULLS FIRST, 1, 2 LIMIT 3",
    "SELECT sum(large) AS s, one, small FROM t GROUP BY 2, 3 ORDER BY 1 DESC NULLS LAST, 2, 3 LIMIT 5 OFFSET 2",
    "SELECT small, seen, count(large) AS n FROM t GROUP BY 1, 2 ORDER BY 3, 1, 2 LIMIT 2",
    "SELECT one, count(*) FROM t GROUP BY 1 UNION ALL SELECT small, signed FROM t",
];

fn context(rows: &[RecordBatch], partitions: usize, with_rule: bool) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(16);
    // Otherwise so few rows are not worth a join by partitions.
    let config = config.set_usize("datafusion.optimizer.hash_join_single_partition_threshold", 0);
    let config = config.set_usize("datafusion.optimizer.hash_join_single_partition_threshold_rows", 0);
    let mut state = SessionStateBuilder::new().with_config(config).with_default_features();
    if with_rule {
        // So small that few rows fill them.
        let sizes = Sizes { recent: 16, judged: 40, brought: 24 };
        state = state.with_physical_optimizer_rule(Arc::new(TallyRule { sizes, ..TallyRule::default() }));
    }
    let context = SessionContext::new_with_state(state.build());
    let parts = rows.chunks(2).map(<[RecordBatch]>::to_vec).collect();
    let table = MemTable::try_new(rows[0].schema(), parts).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    context
}

async fn plan(
    rows: &[RecordBatch],
    sql: &str,
    partitions: usize,
) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    let context = context(rows, partitions, true);
    let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    (context, plan)
}

async fn ask(rows: &[RecordBatch], sql: &str, partitions: usize, with_rule: bool) -> (String, bool) {
    let context = context(rows, partitions, with_rule);
    let query = context.sql(sql).await.unwrap();
    let plan = query.clone().create_physical_plan().await.unwrap();
    let is_tally = displayable(plan.as_ref()).indent(false).to_string().contains("Tally");
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
        "SELECT small, count(DISTINCT large), count(DISTINCT one) FROM t GROUP BY 1",
        "SELECT small, sum(large) FILTER (WHERE one > 1) FROM t GROUP BY 1",
        "SELECT small, sum(large * 0.5) FROM t GROUP BY 1",
        "SELECT large * 0.5 AS half, count(*) FROM t GROUP BY 1",
        "SELECT small, large, count(*) FROM t GROUP BY ROLLUP (small, large)",
        "SELECT sum(large), count(*) FROM t",
    ] {
        let (ours, is_tally) = ask(&batches, sql, 2, true).await;
        assert!(!is_tally, "{sql}");
        assert_eq!(ours, ask(&batches, sql, 2, false).await.0, "{sql}");
    }
}

/// If only the first are wanted the others are left out, but not those that are equal to the last of them.
#[tokio::test]
async fn groups_behind_the_first_are_not_given_out() {
    let rows: Vec<Row> =
        (0..900_u64).map(|n| (None, Some(n % 300), None, Some((n % 300 / 3) as i64), 1)).collect();
    let batches: Vec<RecordBatch> = rows.chunks(50).map(batch).collect();
    let grouped = "SELECT large, sum(signed) AS s, count(*) FROM t GROUP BY 1 ORDER BY";
    for (by, limit, least, said) in [
        ("2 DESC", 4, Some(6), "largest=4 of sum(t.signed)"),
        ("2", 1, Some(3), "smallest=1 of sum(t.signed)"),
        ("3, 1", 300, Some(300), "smallest=300 of count(Int64(1))"),
        ("1", 4, None, ""),
    ] {
        let (context, plan) = plan(&batches, &format!("{grouped} {by} LIMIT {limit}"), 1).await;
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!(text.contains("est="), least.is_some(), "{text}");
        assert!(text.contains(said), "{text}");
        let mut tally = Arc::clone(&plan);
        while tally.name() != "Tally" {
            tally = Arc::clone(tally.children()[0]);
        }
        let given = collect(tally.execute(0, context.task_ctx()).unwrap()).await.unwrap();
        let given: usize = given.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(given, least.unwrap_or(300), "{by}");
    }
}

/// More of them than are noted.
#[tokio::test]
async fn of_many_equal_groups_the_first_by_key_are_found() {
    let rows: Vec<Row> =
        (0..70_000_u64).map(|n| (None, Some(n), None, Some(i64::from(n > 69_990)), 1)).collect();
    let batches: Vec<RecordBatch> = rows.chunks(10_000).map(batch).collect();
    for by in ["2 DESC, 1", "2, 1 DESC"] {
        let sql = format!("SELECT large, sum(signed) FROM t GROUP BY 1 ORDER BY {by} LIMIT 3 OFFSET 8");
        let (ours, is_tally) = ask(&batches, &sql, 1, true).await;
        assert!(is_tally);
        assert_eq!(ours, ask(&batches, &sql, 1, false).await.0, "{by}");
    }
}

/// The other side of such a join has been divided by DataFusion's hashes.
#[tokio::test]
async fn a_join_by_partitions_has_its_groupings_from_datafusion() {
    let rows: Vec<Row> = (0..500_u64).map(|n| (Some(n as u8), Some(n % 60), None, None, n as u8)).collect();
    let batches: Vec<RecordBatch> = rows.chunks(50).map(batch).collect();
    let sql = "SELECT a.large, a.n, b.signed, b.one FROM (SELECT large, count(*) AS n FROM t GROUP BY 1) a \
        JOIN t b ON a.large = b.large";
    let (context, plan) = plan(&batches, sql, 3).await;
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("mode=Partitioned"), "{text}");
    assert!(!text.contains("Tally"), "{text}");
    let ours = collect_plan(plan, context.task_ctx()).await.unwrap();
    assert_eq!(ours.iter().map(RecordBatch::num_rows).sum::<usize>(), 500);
}

/// A tally of 40,000 groups, each in two rows that are far apart, of two partitions, into two.
async fn many_groups(memory: usize) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let batches = (0..8_u64).map(|part| {
        let from = part % 4 * 10_000;
        let numbers = UInt64Array::from_iter_values(from..from + 10_000);
        RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap()
    });
    let parts: Vec<Vec<RecordBatch>> =
        batches.collect::<Vec<_>>().chunks(4).map(<[RecordBatch]>::to_vec).collect();
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(memory)));
    let config = SessionConfig::new().with_target_partitions(2);
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(TallyRule::default()))
        .build();
    let context = SessionContext::new_with_state(state);
    let table = MemTable::try_new(parts[0][0].schema(), parts).unwrap();
    context.register_table("t", Arc::new(table)).unwrap();
    let query = context.sql("SELECT n, count(*) AS rows FROM t GROUP BY 1").await.unwrap();
    (query.create_physical_plan().await.unwrap(), context.task_ctx())
}

fn counts(batches: &[RecordBatch]) -> (usize, i64) {
    let sums =
        batches.iter().map(|batch| batch.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>());
    (batches.iter().map(RecordBatch::num_rows).sum(), sums.sum())
}

/// A worker that keeps all of its 40,000 records of 24 bytes takes 1.5 MiB, and their groups 2 MiB.
#[tokio::test]
async fn workers_that_have_no_more_memory_bring_what_they_have_and_go_on() {
    for memory in [64 << 20, 4 << 20] {
        let (plan, context) = many_groups(memory).await;
        let batches = collect_plan(plan, Arc::clone(&context)).await.unwrap();
        assert_eq!(counts(&batches), (40_000, 80_000), "{memory}");
        assert_eq!(context.memory_pool().reserved(), 0, "{memory}");
    }
    let (plan, context) = many_groups(1 << 20).await;
    let error = collect_plan(plan, Arc::clone(&context)).await.unwrap_err().to_string();
    assert!(error.contains("groups"), "{error}");
    assert_eq!(context.memory_pool().reserved(), 0);
}

#[tokio::test]
async fn a_plan_is_run_as_often_as_it_is_asked_for_and_outputs_in_any_order() {
    let (plan, context) = many_groups(64 << 20).await;
    for outputs in [[0, 1], [1, 0]] {
        let mut batches = Vec::new();
        for output in outputs {
            // The first one is read before the other is asked for.
            batches.extend(collect(plan.execute(output, Arc::clone(&context)).unwrap()).await.unwrap());
        }
        assert_eq!(counts(&batches), (40_000, 80_000));
    }
    let outputs: Vec<_> =
        [0, 0, 1, 1].map(|output| plan.execute(output, Arc::clone(&context)).unwrap()).into();
    let mut batches = Vec::new();
    for output in outputs {
        batches.push(collect(output).await.unwrap());
    }
    for run in [[0, 2], [1, 3]] {
        assert_eq!(counts(&run.map(|output| batches[output].clone()).concat()), (40_000, 80_000));
    }
}

#[tokio::test]
async fn a_tally_that_nobody_waits_for_ends() {
    let (plan, context) = many_groups(64 << 20).await;
    let mut output = plan.execute(0, Arc::clone(&context)).unwrap();
    assert!(futures_util::poll!(output.next()).is_pending());
    drop((output, plan));
    while context.memory_pool().reserved() > 0 {
        tokio::task::yield_now().await;
    }
}
