//! YAML itself, keys, names, inputs, the graph.

use expect_test::expect;

use super::{EXAMPLE, check, check_example, read};

#[test]
fn the_example_is_fine() {
    check(EXAMPLE, expect!["fine"]);
}

#[test]
fn json_is_read_by_the_same_rules() {
    let file = super::JobFile::parse("job.yaml", EXAMPLE, &[]).unwrap();
    let pretty = serde_json::to_string_pretty(&file.to_json()).unwrap();
    assert!(read(&pretty, &[]).is_ok());
    let tabs = pretty.replace("  ", "\t");
    assert!(read(&tabs, &[]).is_ok(), "JSON may be indented with tabs");
    assert!(read(&file.to_json().to_string(), &[]).is_ok());
    check(
        &pretty.replace("\"lateness\"", "\"latenes\""),
        expect![[r#"
        error: source "payments" has no key "latenes"
          --> job.yaml:23:7
           |
        23 |       "latenes": "5s"
           |       ^^^^^^^^^
           = expected: type, format, schema, time, id, dedup, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, reply, path, follow, header or delimiter
           = hint: did you mean "lateness"?
    "#]],
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    check(
        "\
naem: payments
sources:
  in:
    type: file
    path: [1]
    format: csv
    schema: { ts: timestamp(ms), card: strin }
    latness: 5
operators:
  keep: { type: filter, input: inn, where: amount > }
  double: { type: mpa, input: in }
sinks:
  out: { type: file, input: keep, format: xml }
",
        expect![[r#"
            error: the job file has no key "naem"
             --> job.yaml:1:1
              |
            1 | naem: payments
              | ^^^^
              = expected: version, name, cycle, state, sources, operators or sinks
              = hint: did you mean "name"?

            error: the job file lacks "name"
             --> job.yaml:1:1
              |
            1 | naem: payments
              | ^
              = expected: a name such as payments

            error: "path" of source "in" is a list
             --> job.yaml:5:11
              |
            5 |     path: [1]
              |           ^^^
              = expected: a path

            error: field "card" is of type "strin", which is none
             --> job.yaml:7:40
              |
            7 |     schema: { ts: timestamp(ms), card: strin }
              |                                        ^^^^^
              = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns) or ip, with ? where it may be null
              = hint: did you mean "string"?

            error: source "in" has no key "latness"
             --> job.yaml:8:5
              |
            8 |     latness: 5
              |     ^^^^^^^
              = expected: type, format, schema, time, id, dedup, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, reply, path, follow, header or delimiter
              = hint: did you mean "lateness"?

            error: operator "keep" reads "inn", which is no source and no operator
              --> job.yaml:10:32
               |
            10 |   keep: { type: filter, input: inn, where: amount > }
               |                                ^^^
               = expected: double or in
               = hint: did you mean "in"?

            error: "where" of operator "keep": the expression is incomplete
              --> job.yaml:10:52
               |
            10 |   keep: { type: filter, input: inn, where: amount > }
               |                                                    ^
               = expected: an expression

            error: operator "double" is of type "mpa", which is no operator
              --> job.yaml:11:19
               |
            11 |   double: { type: mpa, input: in }
               |                   ^^^
               = expected: metrics, filter, map, union, relay, split, count, aggregate, join or changes
               = hint: did you mean "map"?

            error: sink "out" lacks "path"
              --> job.yaml:13:3
               |
            13 |   out: { type: file, input: keep, format: xml }
               |   ^^^
               = expected: a path

            error: sink "out" has format "xml", which is none
              --> job.yaml:13:43
               |
            13 |   out: { type: file, input: keep, format: xml }
               |                                           ^^^
               = expected: csv or ndjson
        "#]],
    );
}

#[test]
fn what_is_no_yaml_is_told_with_its_place() {
    check(
        "name: a: b\n",
        expect![[r#"
        error: this is not YAML: mapping values are not allowed in this context
         --> job.yaml:1:8
          |
        1 | name: a: b
          |        ^
          = hint: a value that holds ": " has to stand in quotes, or below `|`
    "#]],
    );
    check(
        "name: x\nsources:\n\tin: { type: file }\n",
        expect![[r#"
        error: this is not YAML: tabs disallowed within this context (block indentation)
         --> job.yaml:3:2
          |
        3 |  in: { type: file }
          |  ^
          = hint: the line is indented with a tab; YAML indents with blanks
    "#]],
    );
    check(
        "name: [a\n",
        expect![[r#"
        error: this is not YAML: unclosed bracket '['
         --> job.yaml:1:7
          |
        1 | name: [a
          |       ^
    "#]],
    );
    check(
        "name: *missing\n",
        expect![[r#"
        error: this is not YAML: while parsing node, found unknown anchor
         --> job.yaml:1:7
          |
        1 | name: *missing
          |       ^
    "#]],
    );
    check(
        "- a\n- b\n",
        expect![[r#"
        error: the job file is a list
         --> job.yaml:1:1
          |
        1 | - a
          | ^^^
          = expected: a mapping of keys and values
    "#]],
    );
    check(
        "name: x\n---\nname: y\n",
        expect![[r#"
        error: a job file holds one document, and a second one begins here
         --> job.yaml:2:1
          |
        2 | ---
          | ^^^
          = hint: put each job into its own file
    "#]],
    );
    check(
        "",
        expect![[r#"
        error: the job file lacks "name"
         --> job.yaml:1:1
          |
        1 | 
          | ^
          = expected: a name such as payments

        error: the job file lacks "sources"
         --> job.yaml:1:1
          |
        1 | 
          | ^
          = expected: at least one source
    "#]],
    );
}

#[test]
fn keys_given_twice_are_refused() {
    check_example(
        "    time: ts",
        "    path: other.csv\n    time: ts",
        expect![[r#"
        error: key "path" is given twice
          --> job.yaml:11:5
           |
        11 |     path: other.csv
           |     ^^^^
           = hint: the first one stands in line 8
    "#]],
    );
}

#[test]
fn aliases_are_fine_and_alias_bombs_are_not() {
    let text = EXAMPLE.replace("schema: {", "schema: &fields {").replace(
        "operators:",
        "  more: { type: file, path: b.csv, format: csv, schema: *fields, time: ts }\noperators:",
    );
    check(
        &text,
        expect![[r#"
        warning: nothing reads source "more"
          --> job.yaml:13:3
           |
        13 |   more: { type: file, path: b.csv, format: csv, schema: *fields, time: ts }
           |   ^^^^
    "#]],
    );

    let mut bomb = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("b{level}: &a{level} [{items}]\n"));
    }
    check(
        &bomb,
        expect![[r#"
        error: aliases make more than 200000 nodes of this file
         --> job.yaml:6:10
          |
        6 | b5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]
          |          ^^^
    "#]],
    );
    check(
        &format!("name: {}x{}\n", "[".repeat(100), "]".repeat(100)),
        expect![[r#"
        error: this is not YAML: recursion limit exceeded
         --> job.yaml:1:71
          |
        1 | name: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]
          |                                                                       ^
    "#]],
    );
}

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
           = expected: type, format, schema, time, id, dedup, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, reply, path, follow, header or delimiter
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
           = expected: type, input, format, path or follow
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
           = expected: type, format, schema, time, id, dedup, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, reply, path, follow, header or delimiter
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
               = expected: metrics, filter, map, union, relay, split, count, aggregate, join or changes
               = hint: did you mean "metrics"?
        "#]],
    );
    check_example(
        "format: ndjson",
        "format: njson",
        expect![[r#"
        error: sink "answers" has format "njson", which is none
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
        error: the job file has nothing behind "name"
         --> job.yaml:1:1
          |
        1 | name:
          | ^^^^
          = expected: a name such as payments

        error: sink "out" has nothing behind "type"
         --> job.yaml:3:17
          |
        3 | sinks: { out: { type: ~, input: in } }
          |                 ^^^^
          = expected: file or null
    "#]],
    );
    check_example(
        "    queries:\n",
        "    queries: {}\n    x:\n",
        expect![[r#"
        error: there is no query
          --> job.yaml:18:14
           |
        18 |     queries: {}
           |              ^^

        error: operator "features" has no key "x"
          --> job.yaml:19:5
           |
        19 |     x:
           |     ^
           = expected: type, input, parallelism, partitions, schedule, partition_by or queries
    "#]],
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

#[test]
fn inputs_have_to_exist() {
    check_example(
        "input: features",
        "input: featurs",
        expect![[r#"
        error: sink "answers" reads "featurs", which is no source and no operator
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: featurs, path: answers.ndjson, format: ndjson }
           |                                 ^^^^^^^
           = expected: features or payments
           = hint: did you mean "features"?
    "#]],
    );
    check_example(
        "input: features",
        "input: features.answer",
        expect![[r#"
        error: "features" has no output "answer"
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: features.answer, path: answers.ndjson, format: ndjson }
           |                                 ^^^^^^^^^^^^^^^
           = expected: answers or rejects
           = hint: did you mean "answers"?
    "#]],
    );
    check_example(
        "input: features",
        "input: answers",
        expect![[r#"
        error: sink "answers" reads "answers", which is no source and no operator
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: answers, path: answers.ndjson, format: ndjson }
           |                                 ^^^^^^^
           = expected: features or payments
           = hint: "answers" is a sink, from which nothing can be read
    "#]],
    );
    check_example(
        "input: features",
        "input: []",
        expect![[r#"
        error: "input" of sink "answers" is an empty list
          --> job.yaml:22:33
           |
        22 |   answers: { type: file, input: [], path: answers.ndjson, format: ndjson }
           |                                 ^^
           = expected: at least one name
    "#]],
    );
    check_example(
        "input: features",
        "input: [features, 5]",
        expect![[r#"
        error: sink "answers" reads "5", which is no source and no operator
          --> job.yaml:22:44
           |
        22 |   answers: { type: file, input: [features, 5], path: answers.ndjson, format: ndjson }
           |                                            ^
           = expected: features or payments
    "#]],
    );
    check_example(
        "input: features",
        "input: { from: features, partition: keys(card) }",
        expect![[r#"
        error: "partition" of "input" of sink "answers" is "keys(card)"
          --> job.yaml:22:62
           |
        22 |   answers: { type: file, input: { from: features, partition: keys(card) }, path: answers.ndjson, format: ndjson }
           |                                                              ^^^^^^^^^^
           = expected: key(a, b), shuffle, forward, broadcast or global
           = hint: write key(field) or key(field, field)
    "#]],
    );
    check_example(
        "input: features",
        "input: { from: features, partition: key(crd), bufer: 64KiB }",
        expect![[r#"
        error: sink "answers" is partitioned by "crd", which is no field of "features"
          --> job.yaml:22:62
           |
        22 |   answers: { type: file, input: { from: features, partition: key(crd), bufer: 64KiB }, path: answers.ndjson, format: ndjson }
           |                                                              ^^^^^^^^
           = expected: one of the fields ts, card, merchant, amount, card_1h, shop_5m, late, duplicate, errors
           = hint: did you mean "card"?

        error: "input" of sink "answers" has no key "bufer"
          --> job.yaml:22:72
           |
        22 |   answers: { type: file, input: { from: features, partition: key(crd), bufer: 64KiB }, path: answers.ndjson, format: ndjson }
           |                                                                        ^^^^^
           = expected: from, partition, buffer or flush
           = hint: did you mean "buffer"?
    "#]],
    );
    check_example(
        "input: features",
        "input: { from: features, partition: key(card, merchant), flush: 2ms }",
        expect!["fine"],
    );
}

const LOOP: &str = "\
name: x
sources:
  in: { type: generator }
operators:
  a: { type: union, input: [in, c] }
  b: { type: relay, input: a }
  c: { type: relay, input: b }
  d: { type: relay, input: c }
  e: { type: relay, input: e }
sinks:
  out: { type: 'null', input: d }
";

#[test]
fn loops_are_told_once_each() {
    check(
        LOOP,
        expect![[r#"
        error: operators read each other in a loop: a <- c <- b <- a
         --> job.yaml:5:33
          |
        5 |   a: { type: union, input: [in, c] }
          |                                 ^
          = expected: a graph in which records flow one way

        error: operators read each other in a loop: e <- e
         --> job.yaml:9:28
          |
        9 |   e: { type: relay, input: e }
          |                            ^
          = expected: a graph in which records flow one way
    "#]],
    );
    assert_eq!(
        read(&LOOP.replace("[in, c]", "[in]").replace("input: e", "input: d"), &[]).map(|job| {
            job.operators.iter().map(|operator| operator.name.to_string()).collect::<Vec<_>>()
        }),
        Ok(vec!["a".to_owned(), "b".to_owned(), "c".to_owned(), "d".to_owned(), "e".to_owned()])
    );
}

#[test]
fn task_counts_of_forward_links_have_to_fit() {
    check(
        "\
name: x
sources:
  in: { type: generator, parallelism: 2 }
operators:
  a: { type: relay, input: { from: in, partition: forward }, parallelism: 3 }
  b: { type: relay, input: { from: a, partition: global }, parallelism: 2 }
  c: { type: relay, input: in, partitions: 4 }
sinks:
  out: { type: 'null', input: { from: b, partition: forward } }
  other: { type: 'null', input: c }
",
        expect![[r#"
            error: operator "a" reads "in" forward, but 3 and 2 are not equally many tasks
             --> job.yaml:5:51
              |
            5 |   a: { type: relay, input: { from: in, partition: forward }, parallelism: 3 }
              |                                                   ^^^^^^^
              = expected: 2, as many tasks as "in" has
              = hint: give both the same `parallelism`, or use shuffle

            error: operator "b" reads "a" global, but has 2 tasks
             --> job.yaml:6:50
              |
            6 |   b: { type: relay, input: { from: a, partition: global }, parallelism: 2 }
              |                                                  ^^^^^^
              = expected: one task, since global gives every record to the first
              = hint: leave out `parallelism`, or use shuffle

            error: operator "c" has "partitions", but no key splits it
             --> job.yaml:7:32
              |
            7 |   c: { type: relay, input: in, partitions: 4 }
              |                                ^^^^^^^^^^
              = hint: `parallelism` says how many tasks run; `input: { from: …, partition: key(field) }` makes it keyed

            error: sink "out" reads "b" forward, but 1 and 2 are not equally many tasks
             --> job.yaml:9:53
              |
            9 |   out: { type: 'null', input: { from: b, partition: forward } }
              |                                                     ^^^^^^^
              = expected: 2, as many tasks as "b" has
              = hint: give both the same `parallelism`, or use shuffle
        "#]],
    );
}

#[test]
fn yaml_null_is_the_sink_of_that_name() {
    check(
        "name: x\nsources: { in: { type: generator } }\nsinks: { out: { type: null, input: in } }\n",
        expect!["fine"],
    );
}

#[test]
fn metrics_spread_their_input_themselves() {
    check_example(
        "    input: payments",
        "    input: { from: payments, partition: shuffle }",
        expect![[r#"
        error: operator "features" of type metrics spreads its input itself
          --> job.yaml:16:41
           |
        16 |     input: { from: payments, partition: shuffle }
           |                                         ^^^^^^^
           = hint: leave out "partition" here; `partition_by` says by what
    "#]],
    );
}

#[test]
fn lists_of_inputs_need_the_same_fields() {
    check(
        "\
name: x
sources:
  one: { type: generator }
  two: { type: file, path: x, format: csv, schema: { ts: timestamp(s), card: string, amount: float64 } }
sinks:
  out: { type: 'null', input: [one, two] }
",
        expect![[r#"
            error: sink "out" reads "one" and "two", which differ: field "ts" is of type timestamp(ms) and timestamp(s)
             --> job.yaml:6:37
              |
            6 |   out: { type: 'null', input: [one, two] }
              |                                     ^^^
              = hint: bring them to the same fields with a `map` before
        "#]],
    );
}

#[test]
fn what_nobody_reads_is_a_warning() {
    check(
        "\
name: x
sources:
  one: { type: generator }
  two: { type: generator }
operators:
  kept: { type: filter, input: one, where: amount > 1 }
sinks:
  out: { type: 'null', input: one }
",
        expect![[r#"
            warning: nothing reads source "two"
             --> job.yaml:4:3
              |
            4 |   two: { type: generator }
              |   ^^^
            warning: nothing reads operator "kept"
             --> job.yaml:6:3
              |
            6 |   kept: { type: filter, input: one, where: amount > 1 }
              |   ^^^^
        "#]],
    );
}
