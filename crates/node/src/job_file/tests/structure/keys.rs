//! Keys, types and names: those that are not there, are missing or may not be.

use expect_test::expect;

use crate::job_file::tests::{EXAMPLE, check, check_example, read};

#[test]
fn keys_that_are_not_there_name_the_nearest() {
    check_example(
        "    lateness: 5s",
        "    latness: 5s",
        expect![[r#"
            error: source "payments" has no key "latness"
              --> job.yaml:12:5
               |
            12 |     latness: 5s
               |     ^^^^^^^
               = expected: type, format, schema, time, id, dedup, order, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, node, reply, path, follow, header or delimiter
               = hint: did you mean "lateness"?
        "#]],
    );
    check_example(
        "    input: payments",
        "    inputs: payments",
        expect![[r#"
        error: operator "features" lacks "input"
          --> job.yaml:14:3
           |
        14 |   features:
           |   ^^^^^^^^
           = expected: the name of a source or an operator

        error: operator "features" has no key "inputs"
          --> job.yaml:16:5
           |
        16 |     inputs: payments
           |     ^^^^^^
           = expected: type, input, parallelism, partitions, schedule, partition_by or queries
           = hint: did you mean "input"?
    "#]],
    );
    check_example(
        "path: answers.ndjson",
        "pfad: answers.ndjson",
        expect![[r#"
            error: sink "answers" lacks "path"
              --> job.yaml:22:3
               |
            22 |   answers: { type: file, input: features, pfad: answers.ndjson, format: ndjson }
               |   ^^^^^^^
               = expected: a path

            error: sink "answers" has no key "pfad"
              --> job.yaml:22:43
               |
            22 |   answers: { type: file, input: features, pfad: answers.ndjson, format: ndjson }
               |                                           ^^^^
               = expected: type, input, format, node, path or follow
        "#]],
    );
    check_example(
        "cycle: { every: 1s }",
        "cycle: { evry: 1s }",
        expect![[r#"
        error: "cycle" of the job file has no key "evry"
         --> job.yaml:3:10
          |
        3 | cycle: { evry: 1s }                # optional: every, bytes, records
          |          ^^^^
          = expected: every, bytes or records
          = hint: did you mean "every"?
    "#]],
    );
    check_example(
        "format: csv ",
        "format: csv\n    headr: true ",
        expect![[r#"
            error: source "payments" has no key "headr"
              --> job.yaml:10:5
               |
            10 |     headr: true                     # csv | ndjson | line_protocol | …
               |     ^^^^^
               = expected: type, format, schema, time, id, dedup, order, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, node, reply, path, follow, header or delimiter
               = hint: did you mean "header"?
        "#]],
    );
}

#[test]
fn plug_ins_that_are_not_there_name_the_nearest() {
    check_example(
        "type: file    ",
        "type: fil    ",
        expect![[r#"
        error: source "payments" is of type "fil", which is no source
         --> job.yaml:7:11
          |
        7 |     type: fil                      # file | stdin | http | tcp | udp | generator | kafka | sflow | pcap | …
          |           ^^^
          = expected: file, http or generator
          = hint: did you mean "file"?
    "#]],
    );
    check_example(
        "type: metrics",
        "type: metric",
        expect![[r#"
            error: operator "features" is of type "metric", which is no operator
              --> job.yaml:15:11
               |
            15 |     type: metric
               |           ^^^^^^
               = expected: metrics, filter, map, union, relay, split, count, aggregate, join, changes, range_join, lookup_join or member_join
               = hint: did you mean "metrics"?
        "#]],
    );
    check_example(
        "format: ndjson",
        "format: njson",
        expect![[r#"
        error: sink "answers" has unknown format "njson"
          --> job.yaml:22:73
           |
        22 |   answers: { type: file, input: features, path: answers.ndjson, format: njson }
           |                                                                         ^^^^^
           = expected: csv or ndjson
           = hint: did you mean "ndjson"?
    "#]],
    );
    check_example(
        "answers: { type: file",
        "answers: { type: files",
        expect![[r#"
        error: sink "answers" is of type "files", which is no sink
          --> job.yaml:22:20
           |
        22 |   answers: { type: files, input: features, path: answers.ndjson, format: ndjson }
           |                    ^^^^^
           = expected: file or null
           = hint: did you mean "file"?
    "#]],
    );
}

#[test]
fn what_is_required_is_missed() {
    check(
        "name: x\n",
        expect![[r#"
        error: the job file lacks "sources"
         --> job.yaml:1:1
          |
        1 | name: x
          | ^
          = expected: at least one source
    "#]],
    );
    check(
        "name: x\nsources: {}\n",
        expect![[r#"
        error: the job has no source
         --> job.yaml:2:1
          |
        2 | sources: {}
          | ^^^^^^^
          = expected: at least one source
    "#]],
    );
    check(
        "name: x\nsources: { in: { type: file } }\n",
        expect![[r#"
        error: source "in" lacks "format"
         --> job.yaml:2:12
          |
        2 | sources: { in: { type: file } }
          |            ^^
          = expected: csv or ndjson

        error: source "in" lacks "path"
         --> job.yaml:2:12
          |
        2 | sources: { in: { type: file } }
          |            ^^
          = expected: a path

        error: source "in" lacks "schema"
         --> job.yaml:2:12
          |
        2 | sources: { in: { type: file } }
          |            ^^
          = expected: field names and types, such as { ts: timestamp(ms), card: string }
    "#]],
    );
    check(
        "name:\nsources: { in: { type: generator } }\nsinks: { out: { type: ~, input: in } }\n",
        expect![[r#"
        error: the job file has nothing after "name"
         --> job.yaml:1:1
          |
        1 | name:
          | ^^^^
          = expected: a name such as payments

        error: sink "out" has nothing after "type"
         --> job.yaml:3:17
          |
        3 | sinks: { out: { type: ~, input: in } }
          |                 ^^^^
          = expected: file or null
    "#]],
    );
    check_example(
        "    partition_by: [card, merchant]  # one keyed stage each; answers are merged per record\n    queries:\n",
        "    queries: {}\n    x:\n",
        expect![[r#"
        error: there is no query
          --> job.yaml:17:14
           |
        17 |     queries: {}
           |              ^^
           = hint: name one, or the keys of queries that are added while the job runs: partition_by: card

        error: operator "features" has no key "x"
          --> job.yaml:18:5
           |
        18 |     x:
           |     ^
           = expected: type, input, parallelism, partitions, schedule, partition_by or queries
    "#]],
    );
}

#[test]
fn names_have_room_in_a_folder() {
    let named = |length: usize| {
        read(&EXAMPLE.replace("name: payments", &format!("name: {}", "x".repeat(length))), &[])
    };
    assert!(named(128).is_ok());
    let told = named(129).err().unwrap();
    assert!(
        told.contains("the name of the job has 129 characters") && told.contains("at most 128"),
        "{told}"
    );
}

#[test]
fn names_are_restricted() {
    check_example(
        "name: payments",
        "name: 1st job",
        expect![[r#"
        error: "1st job" is no name for the job
         --> job.yaml:2:7
          |
        2 | name: 1st job
          |       ^^^^^^^
          = expected: a letter or _, then letters, digits, _ and -
    "#]],
    );
    check_example(
        "  features:",
        "  my.features:",
        expect![[r#"
        error: "my.features" is no name for an operator
          --> job.yaml:14:3
           |
        14 |   my.features:
           |   ^^^^^^^^^^^
           = expected: a letter or _, then letters, digits, _ and -

        error: sink "answers" reads "features", which is no source and no operator
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: features, path: answers.ndjson, format: ndjson }
           |                                 ^^^^^^^^
           = expected: my.features or payments
           = hint: did you mean "my.features"?
    "#]],
    );
    check_example(
        "  features:",
        "  payments:",
        expect![[r#"
        error: "payments" is a source and an operator
          --> job.yaml:14:3
           |
        14 |   payments:
           |   ^^^^^^^^
           = hint: `input` could mean either; give one of them another name

        error: sink "answers" reads "features", which is no source and no operator
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: features, path: answers.ndjson, format: ndjson }
           |                                 ^^^^^^^^
           = expected: payments
    "#]],
    );
}
