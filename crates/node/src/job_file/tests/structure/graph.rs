//! The graph as a whole: loops, task counts, and operators without readers.

use expect_test::expect;

use crate::job_file::tests::{check, read};

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
