//! NDJSON: paths, tokens, null rules, odd values.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

fn check(schema_text: &str, input: &str, expected: Expect) {
    check_with(&[], schema_text, input, expected);
}

fn check_with(entries: &[(&str, OptionValue)], schema_text: &str, input: &str, expected: Expect) {
    let context = context(&schema(schema_text), Some(spec("ndjson", entries)), &[]);
    let result = |step| read(&context, input.as_bytes(), step).expect("lines of JSON");
    let whole = result(usize::MAX);
    expected.assert_eq(&whole);
    for step in 1..=input.len().min(40) {
        assert_eq!(result(step), whole, "given {step} bytes at a time");
    }
}

#[test]
fn keys_come_in_any_order_twice_or_not_at_all() {
    check(
        "ts: timestamp(ms); card: string; amount: float64?",
        "{\"ts\":1,\"card\":\"c1\",\"amount\":12.25}\n\
         {\"amount\":1,\"extra\":{\"a\":[1,\"}\",null]},\"card\":\"c2\",\"ts\":2}\r\n\
         \n  \n\
         { \"ts\" : 3 , \"card\" : \"first\" , \"card\" : \"a card with a long name\" }\n\
         {\"ts\":4,\"amount\":null}\n\
         {\"t\\u0073\":5,\"card\":\"\"}",
        expect![[r#"
            0 1ms | c1 | 12.25
            1 2ms | c2 | 1.0
            2 3ms | a card with a long name | null
            3 ! parse line 6: field "card": expected string, got nothing <{\"ts\":4,\"amount\":null}>
            4 5ms |  | null
        "#]],
    );
}

#[test]
fn paths_read_nested_objects_and_literal_keys_win() {
    check(
        "user.id: int64; user.name.first: string?; user: string?",
        "{\"user\":{\"id\":1,\"name\":{\"first\":\"Ada\"}}}\n\
         {\"user.id\":2,\"user\":null}\n\
         {\"user.id\":3,\"user.name.first\":\"literal\"}\n\
         {\"user.id\":4,\"user\":\"text\"}\n",
        expect![[r#"
            0 ! parse line 1: field "user": expected string, got "{\"id\":1,\"name\":{\"first\":\"Ada\"}}" <{\"user\":{\"id\":1,\"name\":{\"first\":\"Ada\"}}}>
            1 2 | null | null
            2 3 | literal | null
            3 4 | null | text
        "#]],
    );
    check(
        "user.id: int64; user.name.first: string?",
        "{\"user\":{\"id\":1,\"name\":{\"first\":\"Ada\",\"last\":\"L\"},\"x\":0}}\n\
         {\"user.id\":2,\"user\":{\"id\":9,\"name.first\":\"dotted\"}}\n\
         {\"user\":{\"id\":9,\"name\":{}},\"user.id\":3}\n\
         {\"user\":[1]}\n",
        expect![[r#"
            0 1 | Ada
            1 2 | dotted
            2 3 | null
            3 ! parse line 4: field "user.id": expected int64, got nothing <{\"user\":[1]}>
        "#]],
    );
}

#[test]
fn every_type_takes_its_tokens_and_no_others() {
    let cases: &[(&str, &[&str], Expect)] = &[
        (
            "bool",
            &[
                "true",
                "false",
                "1",
                "\"true\"",
                "\"FALSE\"",
                "\"1\"",
                "\"tr\\u0075e\"",
                "\"yes\"",
                "\"\"",
                "null",
            ],
            expect![[r#"
                true | true
                false | false
                1 | ! field "x": expected bool, got "1"
                "true" | true
                "FALSE" | false
                "1" | true
                "tr\u0075e" | true
                "yes" | ! field "x": expected bool, got "\"yes\""
                "" | ! field "x": expected bool, got "\"\""
                null | ! field "x": expected bool, got null
            "#]],
        ),
        (
            "int64",
            &[
                "-5",
                "5.0",
                "1e3",
                "5.5",
                "9223372036854775808",
                "\"5\"",
                "\"-9223372036854775808\"",
                "\"9223372036854775808\"",
                "\"5.5\"",
                "\"five\"",
                "\"\"",
                "\" 5\"",
                "true",
                "[5]",
                "007",
                "-",
                "1.",
                "+1",
            ],
            expect![[r#"
                -5 | -5
                5.0 | 5
                1e3 | 1000
                5.5 | ! field "x": expected int64, got "5.5"
                9223372036854775808 | ! field "x": "9223372036854775808" is out of range for int64
                "5" | 5
                "-9223372036854775808" | -9223372036854775808
                "9223372036854775808" | ! field "x": "\"9223372036854775808\"" is out of range for int64
                "5.5" | ! field "x": expected int64, got "\"5.5\""
                "five" | ! field "x": expected int64, got "\"five\""
                "" | ! field "x": expected int64, got "\"\""
                " 5" | ! field "x": expected int64, got "\" 5\""
                true | ! field "x": expected int64, got "true"
                [5] | ! field "x": expected int64, got "[5]"
                007 | ! expected a number without leading zeros at byte 6, got "007}"
                - | ! expected a digit at byte 7, got "}"
                1. | ! expected a digit at byte 8, got "}"
                +1 | ! expected a JSON value at byte 6, got "+1}"
            "#]],
        ),
        (
            "uint64",
            &["\"18446744073709551615\"", "\"-1\"", "\"1.5\""],
            expect![[r#"
                "18446744073709551615" | 18446744073709551615
                "-1" | ! field "x": "\"-1\"" is out of range for uint64
                "1.5" | ! field "x": expected uint64, got "\"1.5\""
            "#]],
        ),
        (
            "int64?",
            &["\"7\"", "\"\"", "null"],
            expect![[r#"
                "7" | 7
                "" | ! field "x": expected int64, got "\"\""
                null | null
            "#]],
        ),
        (
            "float64",
            &["1", "-2.5e-3", "1e400", "\"NaN\"", "\"-Infinity\"", "\"1.5\"", "\"1e400\"", "\"1,5\"", "0.1"],
            expect![[r#"
                1 | 1.0
                -2.5e-3 | -0.0025
                1e400 | ! field "x": "1e400" is out of range for float64
                "NaN" | NaN
                "-Infinity" | -inf
                "1.5" | 1.5
                "1e400" | ! field "x": "\"1e400\"" is out of range for float64
                "1,5" | ! field "x": expected float64, got "\"1,5\""
                0.1 | 0.1
            "#]],
        ),
        (
            "decimal(38,18)",
            &["0.1", "\"12345678901234567890.123456789012345678\"", "1e-19"],
            expect![[r#"
                0.1 | 100000000000000000e-18
                "12345678901234567890.123456789012345678" | 12345678901234567890123456789012345678e-18
                1e-19 | ! field "x": "1e-19" has more places than decimal(38,18) keeps
            "#]],
        ),
        (
            "string",
            &[
                r#""a\"b\\\u00e9\ud83d\ude00\n""#,
                r#""\ud83d""#,
                r#""\x""#,
                "5",
                "-1.50",
                "4111111111111111",
                "true",
                "[5]",
                "\"long enough to be kept in the block\"",
            ],
            expect![[r#"
                "a\"b\\\u00e9\ud83d\ude00\n" | a"b\é😀

                "\ud83d" | ! field "x": expected string, got "\"\\ud83d\""
                "\x" | ! expected an escape at byte 8, got "x\"}"
                5 | 5
                -1.50 | -1.50
                4111111111111111 | 4111111111111111
                true | ! field "x": expected string, got "true"
                [5] | ! field "x": expected string, got "[5]"
                "long enough to be kept in the block" | long enough to be kept in the block
            "#]],
        ),
        (
            "bytes",
            &["\"aGk=\"", "\"aGk\\u003d\"", "\"?\""],
            expect![[r#"
                "aGk=" | "hi"
                "aGk\u003d" | "hi"
                "?" | ! field "x": expected bytes, got "\"?\""
            "#]],
        ),
        (
            "timestamp(s)",
            &["5", "\"5\"", "\"1970-01-01T00:00:05.9Z\"", "5.5", "1e2"],
            expect![[r#"
                5 | 5s
                "5" | 5s
                "1970-01-01T00:00:05.9Z" | 5s
                5.5 | 5s
                1e2 | 100s
            "#]],
        ),
        (
            "ip",
            &["\"10.0.0.1\"", "\"::1\"", "1"],
            expect![[r#"
                "10.0.0.1" | ::ffff:10.0.0.1
                "::1" | ::1
                1 | ! field "x": expected ip, got "1"
            "#]],
        ),
        (
            "ipv4_int",
            &["3232235777", "0", "4294967296", "-1", "1.5", "\"3232235777\"", "null"],
            expect![[r#"
                3232235777 | ::ffff:192.168.1.1
                0 | ::ffff:0.0.0.0
                4294967296 | ! field "x": "4294967296" is out of range for ipv4_int (0 to 4294967295)
                -1 | ! field "x": "-1" is out of range for ipv4_int (0 to 4294967295)
                1.5 | ! field "x": expected ipv4_int (0 to 4294967295), got "1.5"
                "3232235777" | ::ffff:192.168.1.1
                null | ! field "x": expected ipv4_int (0 to 4294967295), got null
            "#]],
        ),
        (
            "ipv4_int?",
            &["1", "null"],
            expect![[r#"
                1 | ::ffff:0.0.0.1
                null | null
            "#]],
        ),
    ];
    for (data_type, tokens, expected) in cases {
        let context = context(&schema(&format!("x: {data_type}")), Some(spec("ndjson", &[])), &[]);
        let mut out = String::new();
        for token in *tokens {
            let line = format!("{{\"x\":{token}}}\n");
            let read = read(&context, line.as_bytes(), usize::MAX).expect("a line of JSON");
            let value = read.strip_prefix("0 ").expect("one record").strip_suffix('\n').unwrap();
            let value = match value.strip_prefix("! parse line 1: ") {
                Some(reason) => format!("! {}", &reason[..reason.rfind(" <").expect("a raw record")]),
                None => value.to_owned(),
            };
            writeln!(out, "{token} | {value}").expect("a string takes every byte");
        }
        expected.assert_eq(&out);
    }
}

#[test]
fn what_is_no_object_is_a_reject() {
    check(
        "a: int64?",
        "{\"a\":1}\n{\"a\":1\n{\"a\":1}}\n[1]\n{}\n{\"a\":1,}\n{\"a\" 1}\n{a:1}\n{\"b\":\"\t\"}\n\"x\"\n{\"a\":tru}\n",
        expect![[r#"
            0 1
            1 ! parse line 2: expected a comma or the end of the object at byte 7, got the end <{\"a\":1>
            2 ! parse line 3: expected the end of the line at byte 8, got "}" <{\"a\":1}}>
            3 ! parse line 4: expected a JSON object at byte 1, got "[1]" <[1]>
            4 null
            5 ! parse line 6: expected a key at byte 8, got "}" <{\"a\":1,}>
            6 ! parse line 7: expected a colon after a key at byte 6, got "1}" <{\"a\" 1}>
            7 ! parse line 8: expected a key at byte 2, got "a:1}" <{a:1}>
            8 ! parse line 9: expected no control character in a string at byte 7, got "\t\"}" <{\"b\":\"\t\"}>
            9 ! parse line 10: expected a JSON object at byte 1, got "\"x\"" <\"x\">
            10 ! parse line 11: expected a JSON value at byte 6, got "tru}" <{\"a\":tru}>
        "#]],
    );
}

#[test]
fn nesting_is_bounded() {
    for (depth, is_read) in [(100, true), (100_000, false)] {
        let input = format!("{{\"b\":{}{}}}\n", "[".repeat(depth), "]".repeat(depth));
        let context = context(&schema("a: int64?"), Some(spec("ndjson", &[])), &[]);
        let read = read(&context, input.as_bytes(), usize::MAX).unwrap();
        assert_eq!(!read.starts_with("0 !"), is_read, "depth {depth}");
    }
}

#[test]
fn lines_longer_than_allowed_are_rejected_and_reading_goes_on() {
    let entries = [("max_record", OptionValue::Size(12))];
    let context = context(&schema("a: string"), Some(spec("ndjson", &entries)), &[]);
    let input = "{\"a\":\"ok\"}\n{\"a\":\"far too long\"}\n{\"a\":\"fine\"}\n";
    for step in [1, 5, 1000] {
        let read = read(&context, input.as_bytes(), step).unwrap();
        assert!(read.contains("0 ok\n1 ! too_long line 2: "), "{read}");
        assert!(read.ends_with("2 fine\n"), "{read}");
    }
}

#[test]
fn ndjson_is_written_compactly_with_nested_answers() {
    let inner = vec![
        Field::new("spent", DataType::Float64).nullable(),
        Field::new("since", DataType::Int64).omit_null(),
        Field::new("n", DataType::Int64),
    ];
    let schema = Schema::new(vec![
        Field::new("card", DataType::String),
        Field::new("card_1h", DataType::Struct(inner)).nullable(),
        Field::new("late", DataType::List(Box::new(DataType::String))).omit_null(),
    ]);
    expect![[r#"
        {"card":"c1","card_1h":{"spent":12.25,"n":4}}
        {"card":"a \"b\", c","card_1h":{"spent":null,"n":0},"late":["card"]}
        {"card":"","card_1h":null,"late":["card",null]}
        {"card":"line\nend","card_1h":{"spent":"NaN","since":7,"n":2}}
    "#]]
    .assert_eq(&encoded(&spec("ndjson", &[]), &schema, &super::csv::answers(&schema)));
}

/// Text that is often JSON, and often just not.
fn nearly_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?[0-9]{1,3}(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
        "\"([a-z ]|\\\\[nu\"\\\\/x]|\\\\u[0-9a-f]{4}){0,4}\"",
        "[ -~]{0,3}",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec(("[a-c]{1,2}", inner.clone()), 0..4).prop_map(|members| {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", members.join(" ,"))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_line_is_taken_if_it_is_an_object_by_the_book(members in proptest::collection::vec(nearly_json(), 0..3)) {
        let members: Vec<String> =
            members.iter().enumerate().map(|(n, value)| format!("\"k{n}\":{value}")).collect();
        let line = format!("{{{}}}\n", members.join(","));
        let by_the_book = serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok();
        let context = context(&schema("x: int64?"), Some(spec("ndjson", &[])), &[]);
        let read = read(&context, line.as_bytes(), usize::MAX).unwrap();
        prop_assert_eq!(!read.starts_with("0 !"), by_the_book, "{}{}", line, read);
    }
}

#[test]
fn times_are_read_as_the_options_say() {
    check(
        "t: timestamp(ms); u: timestamp(ns)",
        "{\"t\":1700000000.123,\"u\":\"1700000000.123456789\"}\n\
         {\"t\":1700000000123,\"u\":1700000000.1234567891}\n\
         {\"t\":\"20240131T235959.5+0100\",\"u\":1.7e18}\n\
         {\"t\":1700000000123.0,\"u\":0.000000001}\n",
        expect![[r#"
            0 1700000000123ms | 1700000000123456789ns
            1 1700000000123ms | 1700000000123456789ns
            2 1706741999500ms | 1700000000000000000ns
            3 1700000000123ms | 1ns
        "#]],
    );
    let lists = OptionValue::Lists(vec![("d".to_owned(), vec!["%Y%m%d".to_owned()])]);
    check_with(
        &[("time_format", lists)],
        "d: timestamp(s); t: timestamp(s)",
        "{\"d\":20240131,\"t\":1706659200}\n{\"d\":1706659200,\"t\":20240131}\n",
        expect![[r#"
            0 1706659200s | 1706659200s
            1 ! parse line 2: field "d": expected timestamp(s) as "%Y%m%d", got "1706659200" <{\"d\":1706659200,\"t\":20240131}>
        "#]],
    );
    let forms = OptionValue::List(vec!["%Y%m%d".to_owned(), "%d/%m/%Y %H:%M".to_owned()]);
    check_with(
        &[("time_format", forms), ("time_zone", text("America/New_York"))],
        "t: timestamp(s)?",
        "{\"t\":20240131}\n{\"t\":\"20240131\"}\n{\"t\":\"31/01/2024 12:30\"}\n{\"t\":\"10\\/03\\/2024 02:30\"}\n\
         {\"t\":1706659200}\n{\"t\":null}\n{\"t\":\"2024-01-31\"}\n",
        expect![[r#"
            0 1706677200s
            1 1706677200s
            2 1706722200s
            3 ! parse line 4: field "t": expected timestamp(s) as "%Y%m%d" or "%d/%m/%Y %H:%M", got "\"10\\/03\\/2024 02:30\"", which no clock in America/New_York shows: clocks were set forward over it <{\"t\":\"10\\/03\\/2024 02:30\"}>
            4 ! parse line 5: field "t": expected timestamp(s) as "%Y%m%d" or "%d/%m/%Y %H:%M", got "1706659200" <{\"t\":1706659200}>
            5 null
            6 ! parse line 7: field "t": expected timestamp(s) as "%Y%m%d" or "%d/%m/%Y %H:%M", got "\"2024-01-31\"" <{\"t\":\"2024-01-31\"}>
        "#]],
    );
}
