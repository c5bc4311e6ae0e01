//! Values: durations, sizes, numbers, truth, types, fields.

use expect_test::expect;
use thalweg_types::Reading;

use super::{check, check_example, read};

#[test]
fn durations_have_units() {
    check_example(
        "lateness: 5s",
        "lateness: 5",
        expect![[r#"
        error: "lateness" of source "payments" is the number 5
          --> job.yaml:12:15
           |
        12 |     lateness: 5
           |               ^
           = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
           = hint: add a unit, such as 5s
    "#]],
    );
    check_example(
        "lateness: 5s",
        "lateness: 5 seconds",
        expect![[r#"
        error: "lateness" of source "payments" is the text "5 seconds"
          --> job.yaml:12:15
           |
        12 |     lateness: 5 seconds
           |               ^^^^^^^^^
           = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
           = hint: write 5s
    "#]],
    );
    check_example(
        "lateness: 5s",
        "lateness: -5s",
        expect![[r#"
        error: "lateness" of source "payments" is the text "-5s"
          --> job.yaml:12:15
           |
        12 |     lateness: -5s
           |               ^^^
           = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
    "#]],
    );
    check_example(
        "lateness: 5s",
        "lateness: soon",
        expect![[r#"
        error: "lateness" of source "payments" is the text "soon"
          --> job.yaml:12:15
           |
        12 |     lateness: soon
           |               ^^^^
           = expected: a duration such as 500ms, 5s, 10m, 1h or 7d
    "#]],
    );
    check_example(
        "cycle: { every: 1s }",
        "cycle: { every: 0s }",
        expect![[r#"
        error: "every" of "cycle" of the job file is zero
         --> job.yaml:3:17
          |
        3 | cycle: { every: 0s }                # optional: every, bytes, records
          |                 ^^
          = expected: a duration above zero
    "#]],
    );
}

#[test]
fn sizes_have_units() {
    check_example(
        "memory: 512MiB",
        "memory: 512M",
        expect![[r#"
        error: "memory" of "state" of the job file is the text "512M"
         --> job.yaml:4:36
          |
        4 | state: { backend: indexed, memory: 512M }     # optional; also chunk_memory, retention of reservoirs
          |                                    ^^^^
          = expected: a size such as 64KiB, 8MiB or 1GiB
          = hint: write 512MiB
    "#]],
    );
    check_example(
        "memory: 512MiB",
        "memory: { a: 1 }",
        expect![[r#"
        error: "memory" of "state" of the job file is a mapping
         --> job.yaml:4:36
          |
        4 | state: { backend: indexed, memory: { a: 1 } }     # optional; also chunk_memory, retention of reservoirs
          |                                    ^^^^^^^^
          = expected: a size such as 64KiB, 8MiB or 1GiB
    "#]],
    );
}

#[test]
fn yaml_does_not_guess() {
    check_example(
        "path: payments.csv",
        "path: 2024",
        expect![[r#"
        error: "path" of source "payments" is the number 2024
         --> job.yaml:8:11
          |
        8 |     path: 2024
          |           ^^^^
          = expected: a path
          = hint: put it in quotes where the text "2024" is meant
    "#]],
    );
    check_example(
        "path: payments.csv",
        "path: true",
        expect![[r#"
        error: "path" of source "payments" is true
         --> job.yaml:8:11
          |
        8 |     path: true
          |           ^^^^
          = expected: a path
          = hint: put it in quotes where the text "true" is meant
    "#]],
    );
    check_example(
        "path: payments.csv",
        "path: ~",
        expect![[r#"
        error: source "payments" has nothing after "path"
         --> job.yaml:8:5
          |
        8 |     path: ~
          |     ^^^^
          = expected: a path
    "#]],
    );
    check_example(
        "path: payments.csv",
        "path: payments.csv\n    follow: yes",
        expect![[r#"
        error: "follow" of source "payments" is the text "yes"
         --> job.yaml:9:13
          |
        9 |     follow: yes
          |             ^^^
          = expected: true or false
          = hint: write true
    "#]],
    );
    check_example(
        "path: payments.csv",
        "path: payments.csv\n    follow: \"true\"",
        expect![[r#"
        error: "follow" of source "payments" is the text "true"
         --> job.yaml:9:13
          |
        9 |     follow: "true"
          |             ^^^^^^
          = expected: true or false
          = hint: leave out the quotes
    "#]],
    );
    check_example(
        "version: 1 ",
        "version: \"1\" ",
        expect![[r#"
        error: "version" of the job file is the text "1"
         --> job.yaml:1:10
          |
        1 | version: "1"                          # optional
          |          ^^^
          = expected: 1
          = hint: leave out the quotes
    "#]],
    );
    check_example(
        "version: 1 ",
        "version: 2 ",
        expect![[r#"
        error: "version" of the job file is the number 2
         --> job.yaml:1:10
          |
        1 | version: 2                          # optional
          |          ^
          = expected: 1
    "#]],
    );
    check_example(
        "    time: ts",
        "    parallelism: 1_000\n    time: ts",
        expect![[r#"
        error: "parallelism" of source "payments" is the text "1_000"
          --> job.yaml:11:18
           |
        11 |     parallelism: 1_000
           |                  ^^^^^
           = expected: an integer from 1 to 4096
           = hint: write 1000
    "#]],
    );
    check_example(
        "    time: ts",
        "    parallelism: 0\n    time: ts",
        expect![[r#"
        error: "parallelism" of source "payments" is the number 0
          --> job.yaml:11:18
           |
        11 |     parallelism: 0
           |                  ^
           = expected: an integer from 1 to 4096
    "#]],
    );
    check_example(
        "    time: ts",
        "    late: rejct\n    time: ts",
        expect![[r#"
        error: "late" of source "payments" is the text "rejct"
          --> job.yaml:11:11
           |
        11 |     late: rejct
           |           ^^^^^
           = expected: reject or clamp
           = hint: did you mean "reject"?
    "#]],
    );
}

#[test]
fn options_of_a_format_are_checked_by_it() {
    check_example(
        "format: csv ",
        "format: csv\n    delimiter: ab ",
        expect![[r#"
        error: source "payments": the delimiter "ab" is not one character
         --> job.yaml:9:5
          |
        9 |     format: csv
          |     ^^^^^^
    "#]],
    );
}

#[test]
fn types_are_ours() {
    check_example(
        "amount: float64",
        "amount: double",
        expect![[r#"
        error: field "amount" has invalid type "double"
          --> job.yaml:10:74
           |
        10 |     schema: { ts: timestamp(ms), card: string, merchant: string, amount: double }
           |                                                                          ^^^^^^
           = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
           = hint: did you mean "float64"?
    "#]],
    );
    check_example(
        "amount: float64",
        "amount: decimal(80,2)",
        expect![[r#"
        error: field "amount" has invalid type "decimal(80,2)"
          --> job.yaml:10:74
           |
        10 |     schema: { ts: timestamp(ms), card: string, merchant: string, amount: decimal(80,2) }
           |                                                                          ^^^^^^^^^^^^^
           = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
           = hint: decimal takes precision 1 to 76 and a scale up to it: decimal(18,2)
    "#]],
    );
    check_example(
        "amount: float64",
        "amount: flot64?",
        expect![[r#"
        error: field "amount" has invalid type "flot64"
          --> job.yaml:10:74
           |
        10 |     schema: { ts: timestamp(ms), card: string, merchant: string, amount: flot64? }
           |                                                                          ^^^^^^^
           = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
           = hint: did you mean "float64"?
    "#]],
    );
    check_example(
        "amount: float64",
        "amount:",
        expect![[r#"
        error: field "amount" has no type
          --> job.yaml:10:72
           |
        10 |     schema: { ts: timestamp(ms), card: string, merchant: string, amount: }
           |                                                                        ^
           = expected: bool, int64, uint64, float64, decimal(p,s), string, bytes, timestamp(s|ms|us|ns), ip or ipv4_int, with ? where it may be null
    "#]],
    );
    check_example(
        "{ ts: timestamp(ms), card: string, merchant: string, amount: float64 }",
        "[ts, card]",
        expect![[r#"
        error: "schema" of source "payments" is a list
          --> job.yaml:10:13
           |
        10 |     schema: [ts, card]
           |             ^^^^^^^^^^
           = expected: a mapping of keys and values
    "#]],
    );
    check_example(
        "{ ts: timestamp(ms), card: string, merchant: string, amount: float64 }",
        "{}",
        expect![[r#"
        error: "schema" of source "payments" has no field
          --> job.yaml:10:13
           |
        10 |     schema: {}
           |             ^^
           = expected: at least one field
    "#]],
    );
}

#[test]
fn commas_in_parentheses_belong_to_their_value() {
    let text = super::EXAMPLE
        .replace("amount: float64", "amount: \"decimal(10,2)?\", fee: decimal(10, 2)?, n: int64");
    let job = read(&text, &[]).unwrap();
    let types: Vec<String> =
        job.sources[0].schema.fields().iter().map(|field| field.data_type.to_string()).collect();
    assert_eq!(types[3..], ["decimal(10,2)", "decimal(10,2)", "int64"]);
    assert!(job.sources[0].schema.fields()[4].nullable);
}

#[test]
fn addresses_may_be_declared_as_numbers() {
    let text = super::EXAMPLE.replace("amount: float64", "amount: float64, from: ipv4_int?, to: ip");
    let job = read(&text, &[]).unwrap();
    let [from, to] = &job.sources[0].schema.fields()[4..] else { panic!("two more fields") };
    assert_eq!((&from.data_type, from.nullable, from.reading), (&to.data_type, true, Reading::Ipv4Int));
    assert_eq!(to.reading, Reading::Plain);
}

#[test]
fn time_and_id_name_fields() {
    check_example(
        "time: ts",
        "time: tss",
        expect![[r#"
        error: "time" of source "payments" names no field: "tss"
          --> job.yaml:11:11
           |
        11 |     time: tss                        # absent: arrival time
           |           ^^^
           = expected: one of the fields ts, card, merchant, amount
           = hint: did you mean "ts"?
    "#]],
    );
    check_example(
        "time: ts",
        "time: card",
        expect![[r#"
        error: "time" of source "payments" is field "card" of type string
          --> job.yaml:11:11
           |
        11 |     time: card                        # absent: arrival time
           |           ^^^^
           = expected: a field of type timestamp(s|ms|us|ns)
           = hint: declare it as `card: timestamp(ms)`
    "#]],
    );
    check_example(
        "time: ts",
        "time: \"card || ' ' || merchnt\"",
        expect![[r#"
        error: "time" of source "payments": there is no field "merchnt"
          --> job.yaml:11:27
           |
        11 |     time: "card || ' ' || merchnt"                        # absent: arrival time
           |                           ^^^^^^^
           = hint: did you mean "merchant"?
    "#]],
    );
    check_example(
        "time: ts",
        "time: \"card || ' ' || merchant\"",
        expect![[r#"
        error: "time" of source "payments" is an expression of type string
          --> job.yaml:11:11
           |
        11 |     time: "card || ' ' || merchant"                        # absent: arrival time
           |           ^^^^^^^^^^^^^^^^^^^^^^^^^
           = expected: a field, or an expression, of type timestamp(s|ms|us|ns)
           = hint: make a timestamp of it, such as CAST(date || ' ' || clock AS TIMESTAMP)
    "#]],
    );
    let computed =
        super::EXAMPLE.replace("time: ts ", "time: \"CAST(card || ' ' || merchant AS TIMESTAMP)\" ");
    let job = read(&computed, &[]).unwrap();
    let thalweg_connect::SourceTime::Computed(time) = &job.sources[0].time else { panic!("an expression") };
    assert_eq!(time.text(), "CAST(card || ' ' || merchant AS TIMESTAMP)");
    check_example(
        "time: ts",
        "time: ts\n    dedup: 10m",
        expect![[r#"
        error: source "payments" has "dedup" but no "id"
          --> job.yaml:12:5
           |
        12 |     dedup: 10m                        # absent: arrival time
           |     ^^^^^
           = hint: `id: field` says which field names a record
    "#]],
    );
    check_example(
        "time: ts",
        "time: ts\n    dedup: 10m\n    id: crad",
        expect![[r#"
        error: "id" of source "payments" names no field: "crad"
          --> job.yaml:13:9
           |
        13 |     id: crad                        # absent: arrival time
           |         ^^^^
           = expected: one of the fields ts, card, merchant, amount
           = hint: did you mean "card"?
    "#]],
    );
}

#[test]
fn a_sink_looks_at_its_options_beside_the_schema_of_its_input() {
    let job = |path: &str, follow: &str| {
        format!(
            "name: j\nsources:\n  in: {{ type: generator }}\nsinks:\n  \
             out: {{ type: file, input: in, path: '{path}', follow: {follow}, format: csv }}\n"
        )
    };
    check(&job("{card}/{ts}", "true"), expect!["fine"]);
    check(
        &job("{crad}/{ts}", "true"),
        expect![[r#"
            error: "path" of sink "out": there is no field to fill in for "{crad}"
             --> job.yaml:5:39
              |
            5 |   out: { type: file, input: in, path: '{crad}/{ts}', follow: true, format: csv }
              |                                       ^^^^^^^^^^^^^
              = hint: ts, card, amount
        "#]],
    );
    let both = read(&job("{crad}/{ts}", "perhaps"), &[]).err().unwrap();
    assert!(
        both.contains("\"follow\"") && !both.contains("{crad}\""),
        "only options of the right kind are looked at"
    );
}
