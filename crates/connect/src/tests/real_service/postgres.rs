//! Rows into a real PostgreSQL, exactly once whatever breaks.

use std::sync::Arc;

use arrow_array::types::Decimal128Type;
use arrow_array::{
    BinaryViewArray, BooleanArray, FixedSizeBinaryArray, Float64Array, Int64Array, PrimitiveArray,
    StringViewArray, TimestampMicrosecondArray, UInt64Array,
};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::super::drive::{Driven, context, numbers};
use super::super::*;
use super::proxy::{AtCommit, Proxy};
use super::{eventually, told};
use crate::{SinkContext, SinkResume};

const PASSWORD: &str = "THALWEG_POSTGRES_PASSWORD";

/// `host:port` of the server.
fn server() -> String {
    told("THALWEG_POSTGRES")
}

/// Rows of a statement's answer, values separated by blanks.
fn sql(statement: &str) -> Vec<String> {
    let url = format!("postgres://postgres:{}@{}/postgres", told(PASSWORD), server());
    crate::source::handover::io_runtime().unwrap().block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(statement).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len()).map(|at| row.get(at).unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" "),
            ),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    })
}

/// A table and a job of their own.
struct Case {
    name: &'static str,
    address: String,
    schema: Schema,
}

impl Case {
    fn new(name: &'static str) -> Self {
        sql(&format!("CREATE TABLE {name} (host text, n bigint)"));
        Self { name, address: server(), schema: numbers() }
    }

    fn through(mut self, proxy: &Proxy) -> Self {
        self.address = proxy.address.to_string();
        self
    }

    fn context(&self, durable: Option<SinkResume>, more: &[(&str, OptionValue)]) -> SinkContext {
        let mut entries = vec![
            ("url", text(&format!("postgres://postgres@{}/postgres", self.address))),
            ("password", secret(&format!("env:{PASSWORD}"))),
            ("table", text(&format!("public.{}", self.name))),
            ("retry_wait", OptionValue::Duration(10_000)),
        ];
        entries.extend_from_slice(more);
        let mut context = context(&self.schema, &entries, durable);
        context.job = self.name.into();
        context
    }

    fn durable(&self, resume: SinkResume) -> Driven {
        Driven::new("postgres", self.context(Some(resume), &[]))
    }

    /// How many rows there are, how many different ones, and their sum.
    fn found(&self) -> String {
        sql(&format!("SELECT count(*), count(DISTINCT n), coalesce(sum(n), 0) FROM {}", self.name)).remove(0)
    }

    fn cycle(&self) -> String {
        sql(&format!("SELECT cycle FROM thalweg_cycles WHERE job = '{}' AND sink = 'answers'", self.name))
            .remove(0)
    }

    /// Waits until a transaction of the sink is open and has copied something; returns its process.
    fn backend(&self) -> String {
        let query = format!(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'thalweg {} answers' \
             AND xact_start IS NOT NULL AND query LIKE 'COPY%'",
            self.name
        );
        eventually("an open transaction", || sql(&query).pop())
    }
}

/// The table's contents for the first `total` numbers, each there once.
fn once(total: u64) -> String {
    format!("{total} {total} {}", (0..total).sum::<u64>())
}

#[test]
#[ignore = "needs PostgreSQL"]
fn every_type_arrives_as_it_is() {
    sql(
        "CREATE TABLE types (i bigint, u numeric, f double precision, d numeric(6,2), s text, b bytea, t timestamptz, \
         o boolean, ip inet, \"card_1h_Spent\" double precision)",
    );
    let inner = DataType::Struct(vec![Field::new("Spent", DataType::Float64)]);
    let mut fields: Vec<Field> =
        schema("i: int64?; u: uint64?; f: float64?; d: decimal(6,2)?; s: string?; b: bytes?; t: timestamp(us)?; o: bool?; ip: ip?")
            .fields()
            .to_vec();
    fields.push(Field::new("card_1h", inner).nullable());
    let schema = Schema::new(fields);
    let arrow_schema::DataType::Struct(inner) = schema.arrow().field(9).data_type().clone() else {
        panic!("a struct")
    };
    let zone = match schema.arrow().field(6).data_type() {
        arrow_schema::DataType::Timestamp(_, zone) => zone.clone(),
        other => panic!("{other}"),
    };
    let mut address = [0_u8; 16];
    address[15] = 1;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(i64::MIN), None])),
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])),
        Arc::new(Float64Array::from(vec![Some(f64::NEG_INFINITY), None])),
        Arc::new(
            PrimitiveArray::<Decimal128Type>::from(vec![Some(-105), None])
                .with_precision_and_scale(6, 2)
                .unwrap(),
        ),
        Arc::new(StringViewArray::from(vec![Some("a\tb\\N\n\"é"), None])),
        Arc::new(BinaryViewArray::from(vec![Some([0_u8, 255].as_slice()), None])),
        Arc::new(
            TimestampMicrosecondArray::from(vec![Some(-62_135_596_800_000_001), None])
                .with_timezone_opt(zone),
        ),
        Arc::new(BooleanArray::from(vec![Some(true), None])),
        Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some(address), None].into_iter(), 16)
                .unwrap(),
        ),
        Arc::new(arrow_array::StructArray::new(
            inner,
            vec![Arc::new(Float64Array::from(vec![1.5, 2.5]))],
            Some(vec![true, false].into()),
        )),
    ];
    let case = Case { name: "types", address: server(), schema: schema.clone() };
    let mut sink = Driven::new("postgres", case.context(None, &[]));
    sink.give_batch(batch(&schema, columns)).unwrap();
    sink.finish().unwrap();
    assert_eq!(
        sql(
            "SET TIME ZONE 'UTC'; SELECT i, u, f, d, encode(convert_to(s, 'UTF8'), 'hex'), b, t, o, ip, \"card_1h_Spent\" FROM types ORDER BY i"
        ),
        [
            "-9223372036854775808 18446744073709551615 -Infinity -1.05 6109625c4e0a22c3a9 \\x00ff \
             0001-12-31 23:59:59.999999+00 BC t ::1 1.5",
            "- - - - - - - - - -",
        ]
    );
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_connection_that_is_ended_in_mid_cycle_changes_nothing() {
    let case = Case::new("mid_cycle");
    let mut sink = case.durable(SinkResume::default());
    sink.give(100).unwrap();
    sink.commit(1).unwrap();
    for round in 0..3 {
        sink.give(5_000).unwrap();
        sink.tick().unwrap();
        let backend = case.backend();
        assert_eq!(sql(&format!("SELECT pg_terminate_backend({backend})")), ["t"]);
        sink.give(50).unwrap();
        assert_eq!(case.found(), once(100 + round * 5_050), "nothing of an open cycle is seen");
        let resume = sink.commit(2 + round).unwrap();
        assert_eq!(resume.position, Some((2 + round).to_le_bytes().to_vec()));
        assert_eq!(case.found(), once(100 + (round + 1) * 5_050));
    }
    sink.finish().unwrap();
    assert_eq!(case.cycle(), "4");
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_commit_of_which_nobody_has_heard_happens_once() {
    let proxy = Proxy::start(&server());
    let case = Case::new("at_commit").through(&proxy);
    let mut sink = case.durable(SinkResume::default());
    let breaks: [&[AtCommit]; 3] = [
        &[AtCommit::Lose, AtCommit::Lose],
        // The cycle table has it then, so there is no second COMMIT.
        &[AtCommit::LoseAnswer],
        &[AtCommit::Lose, AtCommit::LoseAnswer],
    ];
    for (cycle, how) in (1..).zip(breaks) {
        sink.give(1_000).unwrap();
        proxy.break_at_commit(how);
        sink.commit(cycle).unwrap();
        assert_eq!(case.found(), once(cycle * 1_000), "{how:?}");
        assert_eq!((case.cycle(), proxy.breaks_left()), (cycle.to_string(), 0), "{how:?}");
    }
    sink.finish().unwrap();
}

#[test]
#[ignore = "needs PostgreSQL"]
fn cycles_that_come_again_are_dropped() {
    let case = Case::new("again");
    let mut sink = case.durable(SinkResume::default());
    sink.give(100).unwrap();
    let first = sink.commit(1).unwrap();
    sink.give(10).unwrap();
    sink.commit(2).unwrap();
    // The process dies before the job's commit of cycle 2 is durable; some of cycle 3 is on its way.
    sink.give(7).unwrap();
    sink.tick().unwrap();
    let _ = case.backend();
    drop(sink);
    let mut sink = case.durable(first);
    sink.go_on_at(100);
    sink.give(10).unwrap();
    let second = sink.commit(2).unwrap();
    assert_eq!(second.position, Some(2_u64.to_le_bytes().to_vec()));
    assert_eq!(case.found(), once(110));
    sink.give(7).unwrap();
    sink.commit(3).unwrap();
    // A cycle without rows leaves the table as it is.
    let idle = sink.commit(4).unwrap();
    assert_eq!((idle.cycle, idle.position), (4, Some(3_u64.to_le_bytes().to_vec())));
    drop(sink);
    assert_eq!((case.found(), case.cycle().as_str()), (once(117), "3"));
    let mut sink = case.durable(SinkResume {
        cycle: 4,
        position: Some(3_u64.to_le_bytes().to_vec()),
        ..SinkResume::default()
    });
    sink.go_on_at(117);
    sink.give(3).unwrap();
    sink.commit(5).unwrap();
    assert_eq!(case.found(), once(120));
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_database_that_does_not_go_with_the_job_is_refused() {
    let case = Case::new("mismatch");
    let mut sink = case.durable(SinkResume::default());
    for cycle in 1..4 {
        sink.give(1).unwrap();
        sink.commit(cycle).unwrap();
    }
    drop(sink);
    let failure = |resume| case.durable(resume).failure();
    let older = failure(SinkResume {
        cycle: 9,
        position: Some(8_u64.to_le_bytes().to_vec()),
        ..SinkResume::default()
    });
    assert!(
        older.message().ends_with(
            "does not go with job \"mismatch\", sink \"answers\": it has cycle 3 of it, and cycle 8 has been written"
        ),
        "{older}"
    );
    assert!(older.hint().unwrap().contains("older backup"));
    let other = failure(SinkResume::default());
    assert!(
        other.message().ends_with("it has cycle 3 of it, and the job has come to cycle 0 only"),
        "{other}"
    );
    // One cycle is all that the other data directory has come to.
    let short = Case::new("mismatch_short");
    let mut sink = short.durable(SinkResume { is_new: true, ..SinkResume::default() });
    sink.give(1).unwrap();
    sink.commit(1).unwrap();
    drop(sink);
    let other = short.durable(SinkResume { is_new: true, ..SinkResume::default() }).failure();
    assert!(
        other.message().ends_with("it has cycle 1 of it, and the job has come to cycle 0 only"),
        "{other}"
    );
    // Two processes as one job: the second one finds out.
    let resume =
        || SinkResume { cycle: 3, position: Some(3_u64.to_le_bytes().to_vec()), ..SinkResume::default() };
    let (mut one, mut two) = (case.durable(resume()), case.durable(resume()));
    for sink in [&mut one, &mut two] {
        sink.go_on_at(3);
    }
    // Both have looked before anything is committed: a look between the two commits would take the first for its own.
    let looked = "SELECT count(*) FROM pg_stat_activity \
                  WHERE application_name = 'thalweg mismatch answers' AND query LIKE 'ROLLBACK%'";
    eventually("two looks", || (sql(looked) == ["2"]).then_some(()));
    one.give(1).unwrap();
    one.commit(4).unwrap();
    one.give(1).unwrap();
    one.commit(5).unwrap();
    two.give(1).unwrap();
    let told = two.failure();
    assert!(
        told.message().contains("does not go with job \"mismatch\""),
        "the second writer goes on: {told}"
    );
    assert_eq!(case.found(), once(5));
}

#[test]
#[ignore = "needs PostgreSQL"]
fn a_server_that_is_down_at_the_start_and_again_later_is_waited_for() {
    let proxy = Proxy::start(&server());
    proxy.go_down();
    let case = Case::new("down").through(&proxy);
    let context = case.context(Some(SinkResume::default()), &[("queue", OptionValue::Size(32 << 10))]);
    let mut sink = Driven::new("postgres", context);
    let mut given = 0;
    while sink.is_ready() {
        sink.give(100).unwrap();
        given += 100;
        assert!(given < 100_000, "nothing holds the sink back");
    }
    eventually("several tries", || (proxy.refused() > 3).then_some(()));
    proxy.come_back();
    sink.commit(1).unwrap();
    assert_eq!(case.found(), once(given));
    // In mid-cycle, for a while.
    sink.give(100).unwrap();
    sink.tick().unwrap();
    let _ = case.backend();
    proxy.go_down();
    let before = proxy.refused();
    let mut part = {
        sink.give(100).unwrap();
        sink.mark(2).unwrap()
    };
    let committing = std::thread::spawn(move || part.prepare());
    eventually("several tries", || (proxy.refused() > before + 3).then_some(()));
    proxy.come_back();
    assert_eq!(committing.join().unwrap().unwrap(), 2_u64.to_le_bytes());
    assert_eq!(case.found(), once(given + 200));
    assert!(
        sink.most_bytes < (32 << 10) + 2 * ((64 << 10) + 100 * 20),
        "{} bytes were held",
        sink.most_bytes
    );
    sink.finish().unwrap();
}

#[test]
#[ignore = "needs PostgreSQL"]
fn without_cycles_nothing_is_lost_and_what_may_be_there_twice_is_counted() {
    let proxy = Proxy::start(&server());
    let case = Case::new("by_flush").through(&proxy);
    let mut sink = Driven::new("postgres", case.context(None, &[]));
    proxy.break_at_commit(&[AtCommit::Lose, AtCommit::LoseAnswer]);
    for _ in 0..50 {
        sink.give(100).unwrap();
    }
    sink.finish().unwrap();
    assert_eq!(proxy.breaks_left(), 0);
    let found = case.found();
    let counts: Vec<u64> = found.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(counts[1], 5_000, "nothing is lost");
    let twice = counts[0] - counts[1];
    assert!(
        twice > 0 && twice <= sink.report.repeated(),
        "{twice} twice, {} counted",
        sink.report.repeated()
    );
}

#[test]
#[ignore = "needs PostgreSQL"]
fn what_will_not_pass_stops_the_job_and_tells_no_secret() {
    let case = Case::new("refusals");
    let canary = "canary-77ab31";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, canary).unwrap();
    let wrong = ("password", secret(&format!("file:{}", path.display())));
    let _ = thalweg_testing::logs::all();
    let failure = |durable: bool, more: &[(&str, OptionValue)], rows: u64| {
        let resume = durable.then(SinkResume::default);
        let mut sink = Driven::new("postgres", case.context(resume, more));
        if rows > 0 {
            sink.give(rows).unwrap();
        }
        format!("{:?}", sink.failure())
    };
    let told = failure(true, &[wrong], 0);
    assert!(told.contains("28P01") && !told.contains(canary), "{told}");
    assert!(!thalweg_testing::logs::all().contains(canary));
    let told = failure(true, &[("table", text("nowhere"))], 0);
    assert!(told.contains("has no table \\\"nowhere\\\""), "{told}");
    sql("CREATE TABLE other (host text, \"N\" bigint)");
    let told = failure(false, &[("table", text("other"))], 0);
    assert!(told.contains("in table \\\"other\\\" for each field, got none for \\\"n\\\""), "{told}");
    sql(
        "CREATE TABLE more (id bigserial, host text, n bigint, at timestamptz NOT NULL DEFAULT now(), site text NOT NULL)",
    );
    let told = failure(true, &[("table", text("more"))], 0);
    assert!(told.contains("that needs a value, got none for \\\"site\\\""), "{told}");
    sql("CREATE TABLE narrow (host text, n boolean)");
    let told = failure(false, &[("table", text("narrow"))], 9);
    assert!(told.contains("22P02") && told.contains("COPY narrow, line 3, column n"), "{told}");
    let told = failure(true, &[("cycle_bytes", OptionValue::Size(1 << 10))], 500);
    assert!(told.contains("cycle 1 has more rows than fit into cycle_bytes: 1KiB"), "{told}");
    assert_eq!(case.found(), once(0));
}
