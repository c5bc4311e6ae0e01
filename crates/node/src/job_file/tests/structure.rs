//! YAML itself, keys, names, inputs, the graph.

mod files;
mod graph;
mod inputs;
mod keys;
mod yaml;

use expect_test::expect;

use super::{EXAMPLE, check};

#[test]
fn the_example_is_fine() {
    check(EXAMPLE, expect!["fine"]);
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
              = expected: version, name, shortcuts, cycle, order, state, rejects, sources, operators or sinks
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

            error: field "card" has invalid type "strin"
             --> job.yaml:7:40
              |
            7 |     schema: { ts: timestamp(ms), card: strin }
              |                                        ^^^^^
              = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
              = hint: did you mean "string"?

            error: source "in" has no key "latness"
             --> job.yaml:8:5
              |
            8 |     latness: 5
              |     ^^^^^^^
              = expected: type, format, schema, time, id, dedup, order, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, node, reply, path, follow, header or delimiter
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
               = expected: metrics, filter, map, union, relay, split, count, aggregate, join, changes, range_join, lookup_join or member_join
               = hint: did you mean "map"?

            error: sink "out" lacks "path"
              --> job.yaml:13:3
               |
            13 |   out: { type: file, input: keep, format: xml }
               |   ^^^
               = expected: a path

            error: sink "out" has unknown format "xml"
              --> job.yaml:13:43
               |
            13 |   out: { type: file, input: keep, format: xml }
               |                                           ^^^
               = expected: csv or ndjson
        "#]],
    );
}
