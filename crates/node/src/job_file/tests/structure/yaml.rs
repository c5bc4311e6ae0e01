//! YAML and JSON as texts: texts that are neither, keys given twice, aliases.

use expect_test::expect;

use crate::job_file::JobFile;
use crate::job_file::tests::{EXAMPLE, check, check_example, read};

#[test]
fn json_is_read_by_the_same_rules() {
    let file = JobFile::parse("job.yaml", EXAMPLE, &[]).unwrap();
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
               = expected: type, format, schema, time, id, dedup, order, lateness, late, max_ahead, ack, retention, retention_bytes, reject_limit, parallelism, node, reply, path, follow, header or delimiter
               = hint: did you mean "lateness"?
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
          = hint: a value that holds ": " has to be in quotes, or below `|`
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
           = hint: the first one is in line 8
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
fn yaml_null_is_the_sink_of_that_name() {
    check(
        "name: x\nsources: { in: { type: generator } }\nsinks: { out: { type: null, input: in } }\n",
        expect!["fine"],
    );
}
