//! What is read by whom: names of inputs, their fields, and how records are spread.

use expect_test::expect;

use crate::job_file::tests::{check, check_example};

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
           = hint: leave out "partition" here; `partition_by` names the fields
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
