//! Line protocol: escapes, types, time stamps, series keys, and points that are refused.

use expect_test::{Expect, expect};

use super::*;

fn list(names: &[&str]) -> OptionValue {
    OptionValue::List(names.iter().map(|name| (*name).to_owned()).collect())
}

fn check(schema_text: &str, entries: &[(&str, OptionValue)], input: &str, expected: Expect) {
    let context = context(&schema(schema_text), Some(spec("line_protocol", entries)), &[]);
    let result = |step| read(&context, input.as_bytes(), step).expect("a stream of lines");
    let whole = result(usize::MAX);
    expected.assert_eq(&whole);
    for step in 1..=input.len().min(60) {
        assert_eq!(result(step), whole, "given {step} bytes at a time");
    }
}

#[test]
fn a_point_has_a_measurement_tags_fields_and_a_time() {
    check(
        "measurement: string; host: string?; cpu: float64?; n: int64?; note: string?; up: bool?; time: timestamp(ns)?",
        &[],
        "load,host=a,rack=7 cpu=0.5,n=1i,note=\"a \\\"b\\\", c=d\\\\\",up=t 1465839830100400200\n\
         # load,host=b cpu=1\n\
         \x20\t\r\n\
         \x20 load n=-5i,up=FALSE\r\n\
         load,host=a\\ b\\,c\\=d\\x,rack=8   cpu=2,cpu=3e1   -7  \n\
         lo\\ ad\\,x,host=c note=\"two\nlines\" 1\n\
         load note=\"\",extra=12u,more=\"x\" 1\n\
         # the end",
        expect![[r#"
            0 load | a | 0.5 | 1 | a "b", c=d\ | true | 1465839830100400200ns
            1 load | null | null | -5 | null | false | null
            2 load | a b,c=d\x | 30.0 | null | null | null | -7ns
            3 lo ad,x | c | null | null | two
            lines | null | 1ns
            4 load | null | null | null |  | null | 1ns
        "#]],
    );
}

#[test]
fn every_spelling_of_a_boolean_counts() {
    check(
        "x: bool",
        &[],
        "m x=t\nm x=T\nm x=true\nm x=True\nm x=TRUE\nm x=f\nm x=F\nm x=false\nm x=False\nm x=FALSE\nm x=tRUE\nm x=1\nm,x=False y=1",
        expect![[r#"
            0 true
            1 true
            2 true
            3 true
            4 true
            5 false
            6 false
            7 false
            8 false
            9 false
            10 ! parse line 11: expected a number, a boolean or a text in quotes at byte 4, got "tRUE" <m x=tRUE>
            11 ! parse line 12: field "x": expected bool, got "1" <m x=1>
            12 false
        "#]],
    );
}

#[test]
fn each_type_takes_what_fits_it_and_nothing_else() {
    let cases: &[(&str, &[&str], Expect)] = &[
        (
            "int64",
            &["1i", "-9223372036854775808i", "9223372036854775808i", "5u", "5.0", "5.5", "\"5\"", "t", "NaN"],
            expect![[r#"
                1i | 1
                -9223372036854775808i | -9223372036854775808
                9223372036854775808i | ! field "x": "9223372036854775808i" is out of range for int64
                5u | 5
                5.0 | 5
                5.5 | ! field "x": expected int64, got "5.5"
                "5" | ! field "x": expected int64, got "\"5\""
                t | ! field "x": expected int64, got "t"
                NaN | ! field "x": expected int64, got "NaN"
            "#]],
        ),
        (
            "uint64",
            &["18446744073709551615u", "-1i", "-1u", "1.5i"],
            expect![[r#"
                18446744073709551615u | 18446744073709551615
                -1i | ! field "x": "-1i" is out of range for uint64
                -1u | ! expected a number, a boolean or a text in quotes at byte 4, got "-1u"
                1.5i | ! expected a number, a boolean or a text in quotes at byte 4, got "1.5i"
            "#]],
        ),
        (
            "float64",
            &["1", "-.5e+3", "2i", "NaN", "-Infinity", "inf", "1e400", "1_0", "\"1\"", "+"],
            expect![[r#"
                1 | 1.0
                -.5e+3 | -500.0
                2i | 2.0
                NaN | NaN
                -Infinity | -inf
                inf | ! expected a number, a boolean or a text in quotes at byte 4, got "inf"
                1e400 | ! field "x": "1e400" is out of range for float64
                1_0 | ! expected a number, a boolean or a text in quotes at byte 4, got "1_0"
                "1" | ! field "x": expected float64, got "\"1\""
                + | ! expected a number, a boolean or a text in quotes at byte 4, got "+"
            "#]],
        ),
        (
            "decimal(5,2)",
            &["12.34", "12i", "12.345", "\"1.5\"", "1234"],
            expect![[r#"
                12.34 | 1234e-2
                12i | 1200e-2
                12.345 | ! field "x": "12.345" has more places than decimal(5,2) keeps
                "1.5" | 150e-2
                1234 | ! field "x": "1234" is out of range for decimal(5,2)
            "#]],
        ),
        (
            "string",
            &["\"a\\\\b\\n\"", "5", "t", "\"open"],
            expect![[r#"
                "a\\b\n" | a\b\n
                5 | ! field "x": expected string, got "5"
                t | ! field "x": expected string, got "t"
                "open | ! expected a closing quote, got the end of the input
            "#]],
        ),
        (
            "ip",
            &["\"::1\"", "\"1.2.3.4\"", "\"x\"", "1.2"],
            expect![[r#"
                "::1" | ::1
                "1.2.3.4" | ::ffff:1.2.3.4
                "x" | ! field "x": expected ip, got "\"x\""
                1.2 | ! field "x": expected ip, got "1.2"
            "#]],
        ),
        (
            "bytes",
            &["\"AAEC\"", "\"!\""],
            expect![[r#"
                "AAEC" | "\\x00\\x01\\x02"
                "!" | ! field "x": expected bytes, got "\"!\""
            "#]],
        ),
    ];
    for (data_type, values, expected) in cases {
        let context = context(&schema(&format!("x: {data_type}")), Some(spec("line_protocol", &[])), &[]);
        let mut out = String::new();
        for value in *values {
            let line = read(&context, format!("m x={value}").as_bytes(), usize::MAX).unwrap();
            let line = line.trim_end().strip_prefix("0 ").unwrap();
            let said = match line.strip_prefix("! parse line 1: ") {
                Some(reject) => format!("! {}", &reject[..reject.rfind(" <").unwrap()]),
                None => line.to_owned(),
            };
            writeln!(out, "{value} | {said}").unwrap();
        }
        expected.assert_eq(&out);
    }
}

#[test]
fn time_stamps_are_in_the_precision_and_become_the_unit_of_their_field() {
    check(
        "ts: timestamp(ms)?; x: int64",
        &[],
        "m x=1i 1500000\nm x=2i -1\nm x=3i\nm x=4i 92233720368547758080000000\nm x=5i 1.5\nm x=6i 1 2\n",
        expect![[r#"
            0 1ms | 1
            1 -1ms | 2
            2 null | 3
            3 ! parse line 4: field "ts": "92233720368547758080000000" is out of range for timestamp(ms) <m x=4i 92233720368547758080000000>
            4 ! parse line 5: expected a time stamp, a whole number at byte 7, got "1.5" <m x=5i 1.5>
            5 ! parse line 6: expected the end of the line after the time stamp at byte 9, got "2" <m x=6i 1 2>
        "#]],
    );
    check(
        "a: timestamp(s); b: timestamp(us); x: int64",
        &[("timestamp", text("b")), ("precision", text("s"))],
        "m x=1i,a=5i 7\nm x=1i,a=5i\nm x=1i,a=5i 9999999999999\n",
        expect![[r#"
            0 5s | 7000000us | 1
            1 5s | 1767225600000000us | 1
            2 ! parse line 3: field "b": "9999999999999" is out of range for timestamp(us) <m x=1i,a=5i 9999999999999>
        "#]],
    );
}

#[test]
fn equal_tags_give_equal_series_whatever_their_order() {
    check(
        "key: string; host: string; x: int64",
        &[("series", text("key"))],
        "m,host=a,dc=n\\ 1 x=1i\nm,dc=n\\ 1,host=a x=2i\nm,host=a,dc=n\\ 2 x=3i\nm,host=a x=4i\nm x=5i,host=\"f\"\nm,host=a\\b,b\\x=1 x=6i\n",
        expect![[r#"
            0 dc=n\ 1,host=a | a | 1
            1 dc=n\ 1,host=a | a | 2
            2 dc=n\ 2,host=a | a | 3
            3 host=a | a | 4
            4  | f | 5
            5 b\x=1,host=a\b | a\b | 6
        "#]],
    );
}

#[test]
fn tags_and_fields_of_one_name_are_told_apart_only_where_tags_says_so() {
    let input = "m,x=1 x=2i\nm,x=3 y=1\nm x=4i\nm,y=1,y=2 x=5i\n";
    check(
        "x: int64?",
        &[],
        input,
        expect![[r#"
            0 ! parse line 1: field "x": expected a tag or a field of that name, got both <m,x=1 x=2i>
            1 3
            2 4
            3 ! parse line 4: tag "y": expected it once, got it twice <m,y=1,y=2 x=5i>
        "#]],
    );
    check(
        "x: int64?",
        &[("tags", list(&["x"]))],
        input,
        expect![[r#"
            0 1
            1 3
            2 null
            3 ! parse line 4: tag "y": expected it once, got it twice <m,y=1,y=2 x=5i>
        "#]],
    );
    check(
        "x: string; n: int64?",
        &[("tags", list(&["x"])), ("unknown", text("reject"))],
        "m n=1i\nm,x=a n=2i\nm,y=a n=2i\nm z=1\n",
        expect![[r#"
            0  | 1
            1 a | 2
            2 ! parse line 3: expected what the schema names, got tag "y" <m,y=a n=2i>
            3 ! parse line 4: expected what the schema names, got field "z" <m z=1>
        "#]],
    );
}

#[test]
fn what_is_no_point_says_where_it_went_wrong() {
    check(
        "x: float64?",
        &[],
        "m\nm \nm,\nm,a x=1\nm,a= x=1\nm,=b x=1\nm,a=b=c x=1\nm x\nm x=\nm =1\nm x=1,\nm x=1,,\nm x=\"a\"b\n,a=b x=1\nm,a=b,x=1\nm x=1 t\n",
        expect![[r#"
            0 ! parse line 1: expected the name of a field at byte 1, got the end of the line <m>
            1 ! parse line 2: expected the name of a field at byte 2, got the end of the line <m >
            2 ! parse line 3: expected the name of a tag at byte 2, got the end of the line <m,>
            3 ! parse line 4: expected an equals sign after the name of a tag at byte 3, got " x=1" <m,a x=1>
            4 ! parse line 5: expected the value of a tag at byte 4, got " x=1" <m,a= x=1>
            5 ! parse line 6: expected the name of a tag at byte 2, got "=b x=1" <m,=b x=1>
            6 ! parse line 7: expected a comma or a blank after a tag at byte 5, got "=c x=1" <m,a=b=c x=1>
            7 ! parse line 8: expected an equals sign after the name of a field at byte 3, got the end of the line <m x>
            8 ! parse line 9: expected a number, a boolean or a text in quotes at byte 4, got the end of the line <m x=>
            9 ! parse line 10: expected the name of a field at byte 2, got "=1" <m =1>
            10 ! parse line 11: expected the name of a field at byte 6, got the end of the line <m x=1,>
            11 ! parse line 12: expected the name of a field at byte 6, got "," <m x=1,,>
            12 ! parse line 13: expected a comma or a blank after a field at byte 7, got "b" <m x=\"a\"b>
            13 ! parse line 14: expected a measurement at byte 0, got ",a=b x=1" <,a=b x=1>
            14 ! parse line 15: expected the name of a field at byte 9, got the end of the line <m,a=b,x=1>
            15 ! parse line 16: expected a time stamp, a whole number at byte 6, got "t" <m x=1 t>
        "#]],
    );
}

#[test]
fn long_lines_and_comments_are_the_same_however_they_arrive() {
    check(
        "x: string?",
        &[("max_record", OptionValue::Size(12))],
        "# a comment that is longer than a record\nm x=\"0123456\"\nm x=\"01234567\"\nm x=\"01\n345678\"\nm x=\"9\"\n   # a comment at the end",
        expect![[r#"
            0 ! too_long line 2: expected a record of at most 12B, got a longer one <m x=\"0123456>
            1 ! too_long line 3: expected a record of at most 12B, got a longer one <m x=\"0123456>
            2 ! too_long line 4: expected a record of at most 12B, got a longer one <m x=\"01>
            3 ! parse line 5: expected the name of a field at byte 7, got the end of the line <345678\">
            4 9
        "#]],
    );
}

#[test]
fn points_are_written_with_flat_fields_and_without_nulls() {
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
    let answers = super::csv::answers(&schema);
    let format = spec("line_protocol", &[("measurement", text("my answers")), ("tags", list(&["card"]))]);
    expect![[r#"
        my\ answers,card=c1 card_1h.spent=12.25,card_1h.n=4i 0
        my\ answers,card=a\ "b"\,\ c card_1h.n=0i 0
    "#]]
    .assert_eq(&encoded(&format, &schema, &answers));
    let mut encoder = format.encoder(&schema).unwrap();
    encoder.encode(&answers, &mut Vec::new());
    let refused: Vec<(u32, String)> =
        encoder.take_refused().into_iter().map(|record| (record.row, record.reason)).collect();
    let tag = "tag \"card\": expected no line end, and no backslash at its end, got \"line\\nend\"";
    let expected = [(2, "expected a field with a value, got none".to_owned()), (3, tag.to_owned())];
    assert_eq!(refused, expected);
    assert!(encoder.take_refused().is_empty(), "each is reported once");
}

#[test]
fn a_tag_that_is_no_field_is_refused() {
    let read = |tag: &str| {
        let format = spec("line_protocol", &[("tags", list(&["site", tag]))]);
        format.reader(&schema("device: string; site: string; x: int64")).map(|_| ())
    };
    assert!(read("device").is_ok());
    assert_eq!(read("devise").unwrap_err().message(), "tags: expected the name of a field, got \"devise\"");
}

#[test]
fn a_measurement_and_a_field_are_needed_to_write() {
    let error = |schema_text: &str, entries: &[(&str, OptionValue)]| {
        let error = spec("line_protocol", entries).encoder(&schema(schema_text)).err().unwrap();
        error.message().to_owned()
    };
    assert_eq!(error("x: int64", &[]), "line protocol needs a measurement, got none");
    let measurement = ("measurement", text("m"));
    assert_eq!(
        error("t: timestamp(ms); a: string", &[measurement.clone(), ("tags", list(&["a"]))]),
        "line protocol needs a field that is no tag, got none"
    );
    assert_eq!(
        error("m: int64", std::slice::from_ref(&measurement)),
        "measurement: expected a string, got field \"m\" of type int64"
    );
    assert_eq!(
        error("a: int64", &[measurement.clone(), ("tags", list(&["b"]))]),
        "tags: expected names of fields, got \"b\""
    );
    assert_eq!(
        error("a: int64", &[measurement, ("timestamp", text("a"))]),
        "timestamp: expected a timestamp, got field \"a\" of type int64"
    );
}
