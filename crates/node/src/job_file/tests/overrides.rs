//! `--set`.

use expect_test::expect;

use super::{EXAMPLE, check_with, read};

#[test]
fn values_of_the_run_replace_those_of_the_file() {
    let job = read(
        EXAMPLE,
        &[
            "sources.payments.path=other=file.csv",
            "operators.features.partitions=7",
            "cycle.records=1000",
            "name=again",
        ],
    )
    .unwrap();
    assert_eq!(
        job.sources[0].options.path("path").map(|path| path.as_path()),
        Some(std::path::Path::new("other=file.csv"))
    );
    assert_eq!(job.operators[0].partitions, 7);
    assert_eq!(job.cycle.records, Some(1000));
    assert_eq!(&*job.name, "again");
    assert_eq!(job.json["sources"]["payments"]["path"], "other=file.csv");
}

#[test]
fn keys_and_list_places_are_found_or_made() {
    let job = read(
        EXAMPLE,
        &[
            "sources.more={type: generator, count: 5}",
            "sinks.all.type='null'",
            "sinks.all.input=[more]",
            "operators.features.partition_by.0=card",
        ],
    )
    .unwrap();
    assert_eq!(job.sources.len(), 2);
    assert_eq!(job.sinks.len(), 2);
}

#[test]
fn mistakes_in_overrides_are_told_as_such() {
    check_with(
        EXAMPLE,
        &["sources.payments.lateness=5"],
        expect![[r#"
        error: "lateness" of source "payments" is the number 5
         --> --set sources.payments.lateness:1:1
          |
        1 | 5
          | ^
          = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
          = hint: add a unit, such as 5s
    "#]],
    );
    check_with(
        EXAMPLE,
        &["sources.payments.latenes=5s"],
        expect![[r#"
            error: source "payments" has no key "latenes"
             --> --set sources.payments.latenes:1:1
              |
            1 | 5s
              | ^^
              = expected: type, format, schema, time, id, dedup, order, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, node, reply, path, follow, header or delimiter
              = hint: did you mean "lateness"?
        "#]],
    );
    check_with(
        EXAMPLE,
        &["sources.payments"],
        expect![[r#"
        error: "sources.payments" is no override
         --> --set sources.payments
         = expected: PATH=VALUE, such as sources.payments.path=x.csv
    "#]],
    );
    check_with(
        EXAMPLE,
        &["name.x=5"],
        expect![[r#"
        error: "name" is the text "payments" and has no keys
         --> --set name.x:1:1
          |
        1 | 5
          | ^
    "#]],
    );
    check_with(
        EXAMPLE,
        &["operators.features.partition_by.7=card"],
        expect![[r#"
        error: "7" is no place of a list of 2
         --> --set operators.features.partition_by.7:1:1
          |
        1 | card
          | ^^^^
    "#]],
    );
    check_with(
        EXAMPLE,
        &["sources.payments.path=[a"],
        expect![[r#"
        error: this is not YAML: unclosed bracket '['
         --> --set sources.payments.path:1:1
          |
        1 | [a
          | ^
    "#]],
    );
    check_with(
        EXAMPLE,
        &["operators.features.queries.card_1h=SELECT sum(amuont) FROM payments GROUP BY card OVER INFINITE"],
        expect![[r#"
        error: query "card_1h": there is no field "amuont"
         --> --set operators.features.queries.card_1h:1:12
          |
        1 | SELECT sum(amuont) FROM payments GROUP BY card OVER INFINITE
          |            ^^^^^^
          = hint: did you mean "amount"?
    "#]],
    );
}

const SHORTENED: &str = "
name: short
shortcuts:
  rows: { sources.made.count: '{}' }
  file: { sources.made: { type: file, path: '{}', format: csv, schema: { n: int64 } }, name: from-file }
sources: { made: { type: generator, count: 5 } }
sinks: { out: { type: 'null', input: made } }
";

#[test]
fn a_shortcut_sets_what_the_file_says() {
    let job = read(SHORTENED, &["rows=7"]).unwrap();
    assert_eq!(job.sources[0].options.integer("count"), Some(7));
    let job = read(SHORTENED, &["file=some file.csv"]).unwrap();
    assert_eq!((job.sources[0].plugin.name(), &*job.name), ("file", "from-file"));
    assert_eq!(
        job.sources[0].options.path("path").map(|path| path.as_path()),
        Some(std::path::Path::new("some file.csv"))
    );
    // A name that is not a shortcut is a path, and a shortcut's value is checked as if it were at that path.
    assert_eq!(&*read(SHORTENED, &["name=other"]).unwrap().name, "other");
    assert!(read(SHORTENED, &["rows=many"]).err().unwrap().contains("count"));
    assert!(read(SHORTENED, &["colour=red"]).err().unwrap().contains("colour"));
}
