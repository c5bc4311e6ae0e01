//! Messages about streams that differ in order and duplicates, and about operators that judge by them.

use expect_test::expect;

use crate::describe::describe;

use super::{check, read};

/// Two sources with keys of their own, and operators and sinks that read them.
fn with(first: &str, second: &str, rest: &str) -> String {
    let schema = "schema: { ts: timestamp(us), id: string, tx: string, k: string, v: float64 }, time: ts";
    format!(
        "name: test
sources:
  a: {{ type: file, path: a.csv, format: csv, {schema}, {first} }}
  b: {{ type: file, path: b.csv, format: csv, {schema}, {second} }}
operators:
{rest}"
    )
}

const METRICS: &str =
    "  m: { type: metrics, input: [a, b], queries: { n: SELECT count(*) AS n FROM a OVER INFINITE } }
sinks:
  out: { type: \"null\", input: m }
";

#[test]
fn who_judges_by_streams_that_do_not_agree_is_refused() {
    check(
        &with("id: id, dedup: 10m", "late: reject", METRICS),
        expect![[r#"
        error: operator "m" looks for duplicates, and its streams do not agree about them: "a" finds duplicates by "id" and "b" has no `id` with `dedup`
         --> job.yaml:6:34
          |
        6 |   m: { type: metrics, input: [a, b], queries: { n: SELECT count(*) AS n FROM a OVER INFINITE } }
          |                                  ^
          = hint: give their sources the same `id` and `dedup`, or read them with an operator each
    "#]],
    );
    check(
        &with("id: id, dedup: 10m", "id: tx, dedup: 10m", METRICS),
        expect![[r#"
        error: operator "m" looks for duplicates, and its streams do not agree about them: "a" finds duplicates by "id" and "b" finds duplicates by "tx"
         --> job.yaml:6:34
          |
        6 |   m: { type: metrics, input: [a, b], queries: { n: SELECT count(*) AS n FROM a OVER INFINITE } }
          |                                  ^
          = hint: give their sources the same `id` and `dedup`, or read them with an operator each
    "#]],
    );
    check(
        &with("late: clamp", "late: reject", METRICS),
        expect![[r#"
        error: operator "m" judges late records, and its streams do not agree about them: "b" rejects late records and "a" clamps them
         --> job.yaml:6:34
          |
        6 |   m: { type: metrics, input: [a, b], queries: { n: SELECT count(*) AS n FROM a OVER INFINITE } }
          |                                  ^
          = hint: give their sources the same `late`, or read them with an operator each
    "#]],
    );
    let union = "  u: { type: union, input: [a, b] }
  f: { type: filter, input: u, where: v > 1 }
  g: { type: aggregate, input: f, key: k, fields: v, every: 1m }
sinks:
  out: { type: \"null\", input: g }
";
    check(
        &with("late: clamp", "late: reject", union),
        expect![[r#"
        error: operator "g" judges late records, and its streams do not agree about them: "b" rejects late records and "a" clamps them
         --> job.yaml:8:32
          |
        8 |   g: { type: aggregate, input: f, key: k, fields: v, every: 1m }
          |                                ^
          = hint: give their sources the same `late`, or read them with an operator each
    "#]],
    );
}

#[test]
fn streams_that_nobody_judges_need_not_agree() {
    let rest = "  f: { type: filter, input: [a, b], where: v > 1 }
  m: { type: map, input: f, keep: [ts, k], select: { w: v } }
sinks:
  out: { type: \"null\", input: [m] }
  both: { type: \"null\", input: [a, b] }
";
    check(&with("id: id, dedup: 10m, late: clamp", "late: reject", rest), expect![["fine"]]);
}

#[test]
fn of_several_spans_the_largest_holds_and_check_prints_it() {
    let text =
        with("id: id, dedup: 10m, lateness: 5s", "id: id, dedup: 1h, lateness: 1s, late: reject", METRICS);
    let told = describe(&read(&text, &[]).unwrap());
    assert!(told.contains("\n  late after 5s and rejected, duplicates by id within 1h\n"), "{told}");
}

#[test]
fn elements_say_what_they_judge_by() {
    let rest = "  c: { type: count, input: a, key: k }
  m: { type: metrics, input: b, queries: { n: SELECT count(*) AS n FROM b OVER INFINITE } }
  d: { type: count, input: m, key: k }
  j: { type: join, input: [a, b], key: k, within: 1m }
  g: { type: aggregate, input: c, key: k, fields: count, every: 1m }
sinks:
  out: { type: \"null\", input: d }
  pairs: { type: \"null\", input: j }
  sums: { type: \"null\", input: g }
";
    let text = with("id: id, dedup: 10m", "id: tx, dedup: 1h, late: clamp, lateness: 1s", rest);
    let told = describe(&read(&text, &[]).unwrap());
    for judged in [
        "output rejects: source, offset, line, code, reason, raw\n  late after 1s and clamped, duplicates by tx within 1h\n",
        "  a: late after 10s and rejected, duplicates by id within 10m\n  b: late after 1s and clamped, duplicates by tx within 1h\n",
        "  late after 10s and rejected\n",
    ] {
        assert!(told.contains(judged), "{judged}\n in {told}");
    }
}

#[test]
fn what_tasks_emit_by_their_own_time_is_not_brought_together_unsaid() {
    let rest = "  j: { type: join, input: [a, b], key: k, within: 16s, left: true }
  one: { type: join, input: [a, b], key: k, within: 16s, left: true, partitions: 1 }
  apart: { type: metrics, input: j, partition_by: k, partitions: 8, queries: { n: SELECT count(*) AS n FROM j GROUP BY k OVER INFINITE } }
  same: { type: metrics, input: one, queries: { n: SELECT count(*) AS n FROM one OVER INFINITE } }
  all: { type: metrics, input: j, queries: { n: SELECT count(*) AS n FROM j OVER INFINITE } }
  fewer: { type: metrics, input: j, partition_by: k, partitions: 2, queries: { n: SELECT count(*) AS n FROM j GROUP BY k OVER INFINITE } }
  g: { type: aggregate, input: a, fields: v, every: 10s, partitions: 2 }
  h: { type: aggregate, input: g, fields: v_count, every: 1m }
sinks:
  out: { type: \"null\", input: [apart, fewer] }
  others: { type: \"null\", input: [same, all] }
  sums: { type: \"null\", input: h }
";
    let text = with("lateness: 0s", "lateness: 0s", rest);
    check(
        &text,
        expect![[r#"
        warning: operator "all" is split by no key, and reads what each of 4 tasks of "j" emits when its own time has passed: what the slower ones emit may be late
          --> job.yaml:10:32
           |
        10 |   all: { type: metrics, input: j, queries: { n: SELECT count(*) AS n FROM j OVER INFINITE } }
           |                                ^
           = hint: `partition_by: [k]` and `partitions: 4` keep the tasks apart, or `partitions: 1` of "j" gives it one time
        warning: operator "fewer" is split by k, and reads what each of 4 tasks of "j" emits when its own time has passed: what the slower ones emit may be late
          --> job.yaml:11:34
           |
        11 |   fewer: { type: metrics, input: j, partition_by: k, partitions: 2, queries: { n: SELECT count(*) AS n FROM j GROUP BY k OVER INFINITE } }
           |                                  ^
           = hint: `partition_by: [k]` and `partitions: 4` keep the tasks apart, or `partitions: 1` of "j" gives it one time
        warning: operator "h" is split by no key, and reads what each of 2 tasks of "g" emits when its own time has passed: what the slower ones emit may be late
          --> job.yaml:13:32
           |
        13 |   h: { type: aggregate, input: g, fields: v_count, every: 1m }
           |                                ^
           = hint: `partitions: 1` of "g" gives it one time
    "#]],
    );
    let told = describe(&read(&text, &[]).unwrap());
    assert!(told.contains("\n  late after 17s and rejected\n"), "{told}");
}

#[test]
fn ids_that_may_come_to_different_tasks_are_warned_of() {
    let rest = |partition: &str| {
        format!(
            "  c: {{ type: count, input: {{ from: a, partition: {partition} }}, partitions: 4 }}
sinks:
  out: {{ type: \"null\", input: [c] }}
  none: {{ type: \"null\", input: b }}
"
        )
    };
    check(
        &with("id: id, dedup: 10m", "", &rest("shuffle")),
        expect![[r#"
        warning: operator "c" has no key, and each of its 4 tasks looks for duplicates among its own records: two with the same "id" may come to different ones
         --> job.yaml:6:50
          |
        6 |   c: { type: count, input: { from: a, partition: shuffle }, partitions: 4 }
          |                                                  ^^^^^^^
          = hint: `input: { from: …, partition: key(id) }` brings them to one
    "#]],
    );
    check(&with("id: id, dedup: 10m", "", &rest("key(id)")), expect![["fine"]]);
}
