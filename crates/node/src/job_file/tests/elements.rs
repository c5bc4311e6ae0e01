//! Messages about operators of keyed elements.

use expect_test::expect;

use super::check;

fn with(operator: &str) -> String {
    format!(
        "name: test
sources:
  a: {{ type: file, path: a.csv, format: csv, schema: {{ ts: timestamp(us), k: string, v: float64, count: int64 }}, time: ts }}
  b: {{ type: file, path: b.csv, format: csv, schema: {{ ts: timestamp(us), key: int64, w: float64 }}, time: ts }}
operators:
  op: {{ {operator} }}
sinks:
  out: {{ type: \"null\", input: op }}
"
    )
}

#[test]
fn keys_and_paces_are_told_with_what_they_could_be() {
    check(
        &with("type: count, input: a, key: kk, emit: sometimes"),
        expect![[r#"
        error: "key" names no field of the input: "kk"
         --> job.yaml:6:37
          |
        6 |   op: { type: count, input: a, key: kk, emit: sometimes }
          |                                     ^^
          = hint: did you mean "k"?

        error: "emit" is "sometimes"
         --> job.yaml:6:47
          |
        6 |   op: { type: count, input: a, key: kk, emit: sometimes }
          |                                               ^^^^^^^^^
          = hint: write every record, { every: 100 records } or { every: 5s }
    "#]],
    );
    check(
        &with("type: count, input: a, key: [k, k], emit: { every: 0 records }"),
        expect![[r#"
        error: "key" names "k" twice
         --> job.yaml:6:37
          |
        6 |   op: { type: count, input: a, key: [k, k], emit: { every: 0 records } }
          |                                     ^^^^^^

        error: "emit" is every "0 records"
         --> job.yaml:6:51
          |
        6 |   op: { type: count, input: a, key: [k, k], emit: { every: 0 records } }
          |                                                   ^^^^^^^^^^^^^^^^^^^^
          = hint: write every record, { every: 100 records } or { every: 5s }
    "#]],
    );
    check(
        &with("type: count, input: a, key: count, ttl: 0s"),
        expect![[r#"
        error: "ttl" is 0
         --> job.yaml:6:49
          |
        6 |   op: { type: count, input: a, key: count, ttl: 0s }
          |                                                 ^^
          = hint: leave it out to keep elements for ever
    "#]],
    );
    check(
        &with("type: count, input: a, key: count"),
        expect![[r#"
        error: what "op" emits would have two fields "count"
         --> job.yaml:6:15
          |
        6 |   op: { type: count, input: a, key: count }
          |               ^^^^^
          = hint: rename the field of the input with a `map` before
    "#]],
    );
    check(
        &with("type: count, input: { from: a, partition: shuffle }, key: k"),
        expect![[r#"
        error: operator "op" of type count spreads its input itself
         --> job.yaml:6:51
          |
        6 |   op: { type: count, input: { from: a, partition: shuffle }, key: k }
          |                                                   ^^^^^^^
          = hint: leave out "partition" here; `key` names the fields
    "#]],
    );
    check(
        &with("type: changes, input: a, key: k, value: v, on_ttl: forget"),
        expect![[r#"
        error: "on_ttl" is given without "ttl"
         --> job.yaml:6:60
          |
        6 |   op: { type: changes, input: a, key: k, value: v, on_ttl: forget }
          |                                                            ^^^^^^
          = hint: add `ttl: 1h`
    "#]],
    );
}

#[test]
fn what_is_not_checkpointed_says_so() {
    check(
        &with("type: count, input: a, key: k, checkpoint: none"),
        expect![[r#"
        warning: nothing reads source "b"
         --> job.yaml:4:3
          |
        4 |   b: { type: file, path: b.csv, format: csv, schema: { ts: timestamp(us), key: int64, w: float64 }, time: ts }
          |   ^
        warning: operator "op" is not checkpointed: its state is lost with the process
         --> job.yaml:6:52
          |
        6 |   op: { type: count, input: a, key: k, checkpoint: none }
          |                                                    ^^^^
    "#]],
    );
    check(
        &with("type: count, input: a, key: k, checkpoint: { every: 5s }, partitions: 8"),
        expect![[r#"
            warning: nothing reads source "b"
             --> job.yaml:4:3
              |
            4 |   b: { type: file, path: b.csv, format: csv, schema: { ts: timestamp(us), key: int64, w: float64 }, time: ts }
              |   ^
        "#]],
    );
}

#[test]
fn aggregates_are_of_numbers() {
    check(
        &with("type: aggregate, input: a, key: k, fields: [v, k], every: 1m"),
        expect![[r#"
        error: "fields": field "k" is of type string
         --> job.yaml:6:52
          |
        6 |   op: { type: aggregate, input: a, key: k, fields: [v, k], every: 1m }
          |                                                    ^^^^^^
          = hint: name fields of type int64, uint64 or float64; a `map` before makes others so
    "#]],
    );
    check(
        &with("type: aggregate, input: a, key: k, fields: v"),
        expect![[r#"
        error: operator "op" lacks "every"
         --> job.yaml:6:3
          |
        6 |   op: { type: aggregate, input: a, key: k, fields: v }
          |   ^^
          = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
    "#]],
    );
}

#[test]
fn joins_have_two_inputs_and_keys_of_the_same_types() {
    check(
        &with("type: join, input: a, key: k, within: 1s"),
        expect![[r#"
        error: a join reads two inputs, and "op" reads 1
         --> job.yaml:6:28
          |
        6 |   op: { type: join, input: a, key: k, within: 1s }
          |                            ^
          = hint: write `input: [orders, payments]`
    "#]],
    );
    check(
        &with("type: join, input: [a, b], key: k, other_key: key, within: 1s"),
        expect![[r#"
        error: expected keys of one type, got field "k" of "a", which is string, and field "key" of "b", which is int64
         --> job.yaml:6:55
          |
        6 |   op: { type: join, input: [a, b], key: k, other_key: key, within: 1s }
          |                                                       ^^^
          = hint: bring them to one type with a `map` before
    "#]],
    );
    check(&with("type: join, input: [a, b], key: count, other_key: key, within: 1s"), expect![["fine"]]);
}

#[test]
fn elements_without_a_key_may_have_partitions() {
    check(
        &with("type: count, input: a, parallelism: 3"),
        expect![[r#"
        warning: nothing reads source "b"
         --> job.yaml:4:3
          |
        4 |   b: { type: file, path: b.csv, format: csv, schema: { ts: timestamp(us), key: int64, w: float64 }, time: ts }
          |   ^
        warning: operator "op" has no key, so one task of it runs
         --> job.yaml:6:32
          |
        6 |   op: { type: count, input: a, parallelism: 3 }
          |                                ^^^^^^^^^^^
          = hint: `partitions: 3` makes as many tasks, with an element in each
    "#]],
    );
    check(
        &with("type: count, input: { from: a, partition: key(k) }"),
        expect![[r#"
        error: operator "op" of type count spreads its input itself
         --> job.yaml:6:51
          |
        6 |   op: { type: count, input: { from: a, partition: key(k) } }
          |                                                   ^^^^^^
          = hint: leave it out: without a `key` there is one task; with `partitions: n` there are n, with an element each
    "#]],
    );
    check(
        &with("type: count, input: { from: a, partition: forward }, partitions: 2"),
        expect![[r#"
        error: operator "op" has an element in each partition, and spreads forward, which keeps no record in one task after a restart
         --> job.yaml:6:51
          |
        6 |   op: { type: count, input: { from: a, partition: forward }, partitions: 2 }
          |                                                   ^^^^^^^
          = expected: shuffle, key(a, b), broadcast or one of your own
          = hint: leave it out to spread records evenly
    "#]],
    );
    check(
        &with("type: count, input: [a, { from: a, partition: shuffle }], partitions: 2"),
        expect![[r#"
        error: operator "op" has an element in each partition, and spreads one of a list of inputs
         --> job.yaml:6:55
          |
        6 |   op: { type: count, input: [a, { from: a, partition: shuffle }], partitions: 2 }
          |                                                       ^^^^^^^
          = expected: shuffle, key(a, b), broadcast or one of your own
          = hint: bring the inputs together with a `union` before, and spread that
    "#]],
    );
    check(
        &with("type: join, input: [a, b], within: 1s, partitions: 2"),
        expect![[r#"
        error: "op" has no key, and records in different partitions are no pairs
         --> job.yaml:6:60
          |
        6 |   op: { type: join, input: [a, b], within: 1s, partitions: 2 }
          |                                                            ^
          = hint: name a `key`, or leave out "partitions"
    "#]],
    );
    let metrics =
        "type: metrics, input: a, partitions: 2, queries: { n: SELECT count(*) AS n FROM a OVER INFINITE }";
    check(
        &with(metrics),
        expect![[r#"
        error: operator "op" has "partitions", but no key splits it
         --> job.yaml:6:34
          |
        6 |   op: { type: metrics, input: a, partitions: 2, queries: { n: SELECT count(*) AS n FROM a OVER INFINITE } }
          |                                  ^^^^^^^^^^
          = hint: leave it out: what has no key is one task; `partition_by: [field]` makes a stage keyed
    "#]],
    );
    for (operator, tasks) in [
        ("type: count, input: a, partitions: 3, parallelism: 2", 3),
        ("type: count, input: { from: a, partition: key(k) }, key: [], partitions: 3", 3),
        ("type: count, input: a, partitions: 1", 1),
        ("type: count, input: [a, a], partitions: 2", 2),
    ] {
        let job = super::read(&with(operator), &[]).unwrap();
        assert_eq!(job.operators[0].output_tasks(), tasks, "{operator}");
    }
}
