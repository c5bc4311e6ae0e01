//! CSV: quoting, headers, null rules, odd values.

use expect_test::{Expect, expect};

use super::*;

fn check(schema_text: &str, entries: &[(&str, OptionValue)], input: &str, expected: Expect) {
    let context = context(&schema(schema_text), Some(spec("csv", entries)), &[]);
    let result = |step| match read(&context, input.as_bytes(), step) {
        Ok(text) => text,
        Err(error) => format!("{}\n{}\n", error.chain(), error.hint().unwrap_or_default()),
    };
    let whole = result(usize::MAX);
    expected.assert_eq(&whole);
    for step in 1..=input.len().min(40) {
        assert_eq!(result(step), whole, "given {step} bytes at a time");
    }
}

fn no_header() -> [(&'static str, OptionValue); 1] {
    [("header", OptionValue::Bool(false))]
}

#[test]
fn payments_with_a_header_in_any_order() {
    check(
        "ts: timestamp(ms); card: string; merchant: string; amount: float64",
        &[],
        "card,amount,ts,note,merchant\nc0000001,12.25,1767225600000,x,m00001\nc2,3,1,,a merchant with a long name\n",
        expect![[r#"
            0 1767225600000ms | c0000001 | m00001 | 12.25
            1 1ms | c2 | a merchant with a long name | 3.0
        "#]],
    );
}

#[test]
fn quotes_hold_delimiters_quotes_and_line_ends() {
    check(
        "a: string; b: string?; n: int64",
        &[],
        "\"a\",b,\"n\"\r\n\"x, \"\"y\"\"\nz\",\"\",1\r\nplain \"quote\",\" b \",\"2\"\r\n\"exactly twelve and more\",\"\"\"\",3",
        expect![[r#"
            0 x, "y"
            z | null | 1
            1 plain "quote" |  b  | 2
            2 exactly twelve and more | " | 3
        "#]],
    );
}

#[test]
fn quotes_gone_wrong_cost_their_own_line() {
    check(
        "a: string; n: int64",
        &no_header(),
        "\"a\"b,1\nok,2\n\"\"\"x\",3\n\"never closed,4\nok,5\n",
        expect![[r#"
            0 ! parse line 1: expected a delimiter or the line's end after a closing quote, got 'b' <\"a\"b,1>
            1 ok | 2
            2 "x | 3
            3 ! parse line 4: expected a closing quote, got the end of the input <\"never closed,4>
            4 ok | 5
        "#]],
    );
}

#[test]
fn empty_fields_are_null_or_empty_strings_or_rejects() {
    check(
        "s: string; t: string?; n: int64?; m: int64",
        &no_header(),
        ",,,1\n\"\",\"\",\"\",2\na,b,3,\n",
        expect![[r#"
            0  | null | null | 1
            1  | null | null | 2
            2 ! parse line 3: field "m": expected int64, got nothing <a,b,3,>
        "#]],
    );
}

#[test]
fn records_that_end_early_or_late() {
    check(
        "a: int64; b: int64?; c: string?",
        &no_header(),
        "1\n2,3\n4,5,six\n7,8,9,10\n\n\r\n,1,2\n",
        expect![[r#"
            0 1 | null | null
            1 2 | 3 | null
            2 4 | 5 | six
            3 7 | 8 | 9
            4 ! parse line 7: field "a": expected int64, got nothing <,1,2>
        "#]],
    );
    check(
        "a: int64; b: int64?",
        &[],
        "a,b\n1\n2,3\n4,5,6\n",
        expect![[r#"
            0 1 | null
            1 2 | 3
            2 ! parse line 4: expected 2 fields as the header has, got more <4,5,6>
        "#]],
    );
    check(
        "a: int64; b: int64",
        &no_header(),
        "1\n",
        expect![[r#"
            0 ! parse line 1: field "b": expected int64, got nothing <1>
        "#]],
    );
}

#[test]
fn a_header_must_name_what_is_not_nullable() {
    check(
        "ts: timestamp(ms); card: string; fee: float64?",
        &[],
        "time,card\n1,c1\n",
        expect![[r#"
            the CSV header lacks field "ts": it has "time", "card"
            name the fields as the header does, mark them nullable with `?`, or set header: false if the file has none
        "#]],
    );
    check(
        "card: string; fee: float64?",
        &[],
        "\u{feff}id, card \n1,c1\n",
        expect![[r#"
            0 c1 | null
        "#]],
    );
    check(
        "card: string",
        &[],
        "card,card\nc1,c2\n",
        expect![[r#"
            the CSV header names column "card" twice

        "#]],
    );
    check("card: string", &[], "card\n", expect![""]);
    check("card: string", &[], "", expect![""]);
    check("card: string", &[], "\n\ncard", expect![""]);
}

#[test]
fn every_type_reads_its_text_and_names_what_is_wrong() {
    let cases: &[(&str, &[&str], Expect)] = &[
        (
            "bool",
            &["true", "FALSE", "1", "0", "yes"],
            expect![[r#"
                true | true
                FALSE | false
                1 | true
                0 | false
                yes | ! field "x": expected bool, got "yes"
            "#]],
        ),
        (
            "int64",
            &[
                "-9223372036854775808",
                "9223372036854775808",
                "007",
                "+7",
                " 7 ",
                "7.0",
                "7.5",
                "1e3",
                "",
                "-",
                "12345678",
                "1234567890123456",
                "1 2",
            ],
            expect![[r#"
                -9223372036854775808 | -9223372036854775808
                9223372036854775808 | ! field "x": "9223372036854775808" is out of range for int64
                007 | 7
                +7 | 7
                 7  | 7
                7.0 | 7
                7.5 | ! field "x": expected int64, got "7.5"
                1e3 | 1000
                 | ! field "x": expected int64, got nothing
                - | ! field "x": expected int64, got "-"
                12345678 | 12345678
                1234567890123456 | 1234567890123456
                1 2 | ! field "x": expected int64, got "1 2"
            "#]],
        ),
        (
            "uint64",
            &["18446744073709551615", "-1", "18446744073709551616", "-0"],
            expect![[r#"
                18446744073709551615 | 18446744073709551615
                -1 | ! field "x": "-1" is out of range for uint64
                18446744073709551616 | ! field "x": "18446744073709551616" is out of range for uint64
                -0 | 0
            "#]],
        ),
        (
            "float64",
            &[
                "1.5",
                "-0",
                "-0.0",
                "1e308",
                "1e309",
                "NaN",
                "-Infinity",
                "inf",
                "0.1",
                "123456789.123456789",
                ".5",
                "5.",
                "0x10",
                "9007199254740993",
                "1.7976931348623157e308",
                "4.9e-324",
                "1,5",
            ],
            expect![[r#"
                1.5 | 1.5
                -0 | -0.0
                -0.0 | -0.0
                1e308 | 1e308
                1e309 | ! field "x": "1e309" is out of range for float64
                NaN | NaN
                -Infinity | -inf
                inf | inf
                0.1 | 0.1
                123456789.123456789 | 123456789.12345679
                .5 | 0.5
                5. | 5.0
                0x10 | ! field "x": expected float64, got "0x10"
                9007199254740993 | 9007199254740992.0
                1.7976931348623157e308 | 1.7976931348623157e308
                4.9e-324 | 5e-324
                1,5 | 1.0
            "#]],
        ),
        (
            "decimal(6,2)",
            &["12.34", "-0.1", "9999.99", "10000", "1.005", "1.50000", "1e2", "NaN"],
            expect![[r#"
                12.34 | 1234e-2
                -0.1 | -10e-2
                9999.99 | 999999e-2
                10000 | ! field "x": "10000" is out of range for decimal(6,2)
                1.005 | ! field "x": "1.005" has more places than decimal(6,2) keeps
                1.50000 | 150e-2
                1e2 | 10000e-2
                NaN | ! field "x": expected decimal(6,2), got "NaN"
            "#]],
        ),
        (
            "decimal(60,10)",
            &["12345678901234567890123456789012345678901234567890.0123456789"],
            expect![[r#"
                12345678901234567890123456789012345678901234567890.0123456789 | 123456789012345678901234567890123456789012345678900123456789e-10
            "#]],
        ),
        (
            "bytes",
            &["aGk=", "aGk", "a", "!"],
            expect![[r#"
                aGk= | "hi"
                aGk | "hi"
                a | ! field "x": expected bytes, got "a"
                ! | ! field "x": expected bytes, got "!"
            "#]],
        ),
        (
            "timestamp(us)",
            &[
                "1767225600000000",
                "-5",
                "2012-02-22T16:46:28.9670320+00:00",
                "2012-02-22 16:46:28",
                "2012-02-30",
                "1.5",
                "9223372036854775808",
            ],
            expect![[r#"
                1767225600000000 | 1767225600000000us
                -5 | -5us
                2012-02-22T16:46:28.9670320+00:00 | 1329929188967032us
                2012-02-22 16:46:28 | 1329929188000000us
                2012-02-30 | ! field "x": expected timestamp(us), got "2012-02-30"
                1.5 | 1500000us
                9223372036854775808 | ! field "x": "9223372036854775808" is out of range for timestamp(us)
            "#]],
        ),
        (
            "timestamp(ns)",
            &["2012-02-22T16:46:28.967032012", "2500-01-01"],
            expect![[r#"
                2012-02-22T16:46:28.967032012 | 1329929188967032012ns
                2500-01-01 | ! field "x": "2500-01-01" is out of range for timestamp(ns)
            "#]],
        ),
        (
            "ip",
            &["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", "10.0.0.256"],
            expect![[r#"
                10.0.0.1 | ::ffff:10.0.0.1
                2001:db8::1 | 2001:db8::1
                ::ffff:10.0.0.1 | ::ffff:10.0.0.1
                10.0.0.256 | ! field "x": expected ip, got "10.0.0.256"
            "#]],
        ),
        (
            "ipv4_int",
            &[
                "3232235777",
                "\"3232235777\"",
                "0",
                "4294967295",
                "4294967296",
                "-1",
                "1.5",
                "192.168.1.1",
                "99999999999999999999",
                "",
            ],
            expect![[r#"
                3232235777 | ::ffff:192.168.1.1
                "3232235777" | ::ffff:192.168.1.1
                0 | ::ffff:0.0.0.0
                4294967295 | ::ffff:255.255.255.255
                4294967296 | ! field "x": "4294967296" is out of range for ipv4_int (0 to 4294967295)
                -1 | ! field "x": "-1" is out of range for ipv4_int (0 to 4294967295)
                1.5 | ! field "x": expected ipv4_int (0 to 4294967295), got "1.5"
                192.168.1.1 | ! field "x": expected ipv4_int (0 to 4294967295), got "192.168.1.1"
                99999999999999999999 | ! field "x": "99999999999999999999" is out of range for ipv4_int (0 to 4294967295)
                 | ! field "x": expected ipv4_int (0 to 4294967295), got nothing
            "#]],
        ),
        (
            "ipv4_int?",
            &["3232235777", "", "x"],
            expect![[r#"
                3232235777 | ::ffff:192.168.1.1
                 | null
                x | ! field "x": expected ipv4_int (0 to 4294967295), got "x"
            "#]],
        ),
    ];
    for (data_type, texts, expected) in cases {
        let context =
            context(&schema(&format!("x: {data_type}; end: string?")), Some(spec("csv", &no_header())), &[]);
        let mut out = String::new();
        for text in *texts {
            let line = format!("{text},.\n");
            let read = read(&context, line.as_bytes(), usize::MAX).expect("a line of CSV");
            let value = read.strip_prefix("0 ").expect("one record").trim_end();
            let value = match value.strip_prefix("! parse line 1: ") {
                Some(reason) => format!("! {}", &reason[..reason.rfind(" <").expect("a raw record")]),
                None => value.split(" | ").next().unwrap_or_default().to_owned(),
            };
            writeln!(out, "{text} | {value}").expect("a string takes every byte");
        }
        expected.assert_eq(&out);
    }
}

#[test]
fn delimiters_can_be_chosen() {
    let tabs = [("header", OptionValue::Bool(false)), ("delimiter", text("\\t"))];
    check(
        "a: string; n: int64",
        &tabs,
        "x,y\t1\n\"a\tb\"\t2\n",
        expect![[r#"
            0 x,y | 1
            1 a	b | 2
        "#]],
    );
    check(
        "a: string",
        &[("delimiter", text("||"))],
        "a\n",
        expect![[r#"
            delimiter: expected one ASCII character other than a quote or a line end, got "||"
            write delimiter: "\t" for tab-separated values
        "#]],
    );
}

#[test]
fn bytes_that_are_no_text_cost_their_record_only() {
    let context = context(&schema("a: string; n: int64"), Some(spec("csv", &no_header())), &[]);
    let input = b"ok,1\n\xFF\xFE,2\nfine,3\n";
    expect![[r#"
        0 ok | 1
        1 ! parse line 2: expected UTF-8, got other bytes <\xff\xfe,2>
        2 fine | 3
    "#]]
    .assert_eq(&read(&context, input, usize::MAX).unwrap());
}

#[test]
fn records_longer_than_allowed_are_rejected_and_reading_goes_on() {
    let entries = [("header", OptionValue::Bool(false)), ("max_record", OptionValue::Size(10))];
    check(
        "a: string; n: int64",
        &entries,
        "ok,1\nthis is far too long,2\nok,3\n0123456,8\n01234567,9\nok,4",
        expect![[r#"
            0 ok | 1
            1 ! too_long line 2: expected a record of at most 10B, got a longer one <this is fa>
            2 ok | 3
            3 0123456 | 8
            4 01234567 | 9
            5 ok | 4
        "#]],
    );
}

#[test]
fn csv_is_written_with_flat_columns() {
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
    let batch = answers(&schema);
    expect![[r#"
        card,card_1h.spent,card_1h.n
        c1,12.25,4
        "a ""b"", c",,0
        ,,
        "line
        end",NaN,2
    "#]]
    .assert_eq(&encoded(&spec("csv", &[]), &schema, &batch));
}

/// Four answers with a struct, its nulls, and fields that are left out.
pub(super) fn answers(schema: &Schema) -> Batch {
    use arrow_array::builder::{ListBuilder, StringViewBuilder};
    use arrow_array::{Array, Float64Array, Int64Array, StringViewArray, StructArray};
    let card: ArrayRef = Arc::new(StringViewArray::from_iter_values(["c1", "a \"b\", c", "", "line\nend"]));
    let arrow_schema::DataType::Struct(fields) = schema.arrow().field(1).data_type().clone() else {
        panic!("the second field is a struct")
    };
    let spent = Float64Array::from(vec![Some(12.25), None, Some(1.0), Some(f64::NAN)]);
    let since = Int64Array::from(vec![None, None, None, Some(7)]);
    let count = Int64Array::from(vec![4, 0, 1, 2]);
    let answers = StructArray::new(
        fields,
        vec![Arc::new(spent), Arc::new(since), Arc::new(count)],
        Some(vec![true, true, false, true].into()),
    );
    let mut late = ListBuilder::new(StringViewBuilder::new());
    late.append_null();
    late.append_value([Some("card")]);
    late.append_value([Some("card"), None]);
    late.append_null();
    let late = late.finish();
    assert_eq!(late.len(), 4);
    batch(schema, vec![card, Arc::new(answers), Arc::new(late)])
}

/// The message of GR-IX's producer (Touloupas, 2015, section 3.2.2), as its "split fields" stage hands it on: addresses as texts
/// and as numbers, protocol, ports, length of the packet, and the time in microseconds.
#[test]
fn the_messages_of_an_exchange_are_read_as_they_are() {
    check(
        "sourceIP: ip; sourceIPInt: ipv4_int; destinationIP: ip; destinationIPInt: ipv4_int; protocol: uint64; \
         sourcePort: uint64; destinationPort: uint64; ipSize: uint64; dateTime: timestamp(us)",
        &no_header(),
        "194.177.210.54,3266433590,62.1.46.9,1040264713,6,443,51514,1500,1393632000123456\n\
         194.177.210.54,194.177.210.54,62.1.46.9,1040264713,6,443,51514,1500,1393632000123457\n",
        expect![[r#"
            0 ::ffff:194.177.210.54 | ::ffff:194.177.210.54 | ::ffff:62.1.46.9 | ::ffff:62.1.46.9 | 6 | 443 | 51514 | 1500 | 1393632000123456us
            1 ! parse line 2: field "sourceIPInt": expected ipv4_int (0 to 4294967295), got "194.177.210.54" <194.177.210.54,194.177.210.54,62.1.46.9,1040264713,6,443,51514,1500,1393632000123457>
        "#]],
    );
}

fn list(texts: &[&str]) -> OptionValue {
    OptionValue::List(texts.iter().map(|text| (*text).to_owned()).collect())
}

#[test]
fn texts_that_mean_null_do_so_where_a_field_is_nullable() {
    check(
        "s: string?; t: string; n: int64?; x: float64?; m: int64; d: timestamp(ms)?",
        &[("null", list(&["NA", "\\N", "-", "-999"]))],
        "s,t,n,x,m,d\nNA,NA,-999,-999,1,-\n\"NA\",-,\\N, NA ,2,NA\nNAN, NA,-9990,-999.5,3,-1\nna,,-,-,-,1\nN\\A,\\N,\"-\",-,-999,1\n",
        expect![[r#"
            0 null | NA | null | null | 1 | null
            1 null | - | null | null | 2 | null
            2 NAN |  NA | -9990 | -999.5 | 3 | -1ms
            3 ! parse line 5: field "m": expected int64, got null, written "-" <na,,-,-,-,1>
            4 ! parse line 6: field "m": expected int64, got null, written "-999" <N\\A,\\N,\"-\",-,-999,1>
        "#]],
    );
}

#[test]
fn a_decimal_comma_is_the_only_decimal_sign() {
    check(
        "x: float64; d: decimal(10,2); n: int64; s: string",
        &[("decimal_comma", OptionValue::Bool(true)), ("delimiter", text(";"))],
        "x;d;n;s\n12,25;-3,5;7;1,5\n\"1234567890,123456789\";,5;7,0;a.b\n-0,5e3;1e2;-1; \n1.5;1;1;\n1.234,5;1;1;\n1;1.00;1;\n1;1;1.000;\n",
        expect![[r#"
            0 12.25 | -350e-2 | 7 | 1,5
            1 1234567890.1234567 | 50e-2 | 7 | a.b
            2 -500.0 | 10000e-2 | -1 |  
            3 ! parse line 5: field "x": expected float64, got "1.5" <1.5;1;1;>
            4 ! parse line 6: field "x": expected float64, got "1.234,5" <1.234,5;1;1;>
            5 ! parse line 7: field "d": expected decimal(10,2), got "1.00" <1;1.00;1;>
            6 ! parse line 8: field "n": expected int64, got "1.000" <1;1;1.000;>
        "#]],
    );
    // Numbers in quotes may have the delimiter as their sign.
    check(
        "x: float64; y: float64?",
        &[("decimal_comma", OptionValue::Bool(true)), ("delimiter", text(",")), ("null", list(&["k.A."]))],
        "x,y\n\"1,5\",\"2\"\n1,k.A.\n1,5,2\n",
        expect![[r#"
            0 1.5 | 2.0
            1 1.0 | null
            2 ! parse line 4: expected 2 fields as the header has, got more <1,5,2>
        "#]],
    );
}

#[test]
fn comments_and_lines_at_the_beginning_are_no_records() {
    check(
        "a: string; n: int64",
        &[("comment", text("#"))],
        "\u{feff}# exported, \"today\n\n#\r\nn,a\n1,x\n#2,y\n 3,#z\n#\n\"4\",\"# in\n# quotes\"\n#\"5\",a\n6,\"#\"\n# last",
        expect![[r#"
            0 x | 1
            1 #z | 3
            2 # in
            # quotes | 4
            3 # | 6
        "#]],
    );
    check(
        "a: string; n: int64",
        &[("skip_lines", OptionValue::Integer(3)), ("comment", text("//"))],
        "Report \"of\r\n\n// 2024\n// the names:\n\nn,a\n1,x\n/,/\n//,/\n2,/",
        expect![[r#"
            0 x | 1
            1 ! parse line 8: field "n": expected int64, got "/" </,/>
            2 / | 2
        "#]],
    );
    check(
        "a: string; n: int64",
        &[
            ("skip_lines", OptionValue::Integer(2)),
            no_header()[0].clone(),
            ("max_record", OptionValue::Size(12)),
        ],
        "a long line before the records\n\"\nx,1,y\ny,2\nz,123456789012\n",
        expect![[r#"
            0 x | 1
            1 y | 2
            2 ! too_long line 5: expected a record of at most 12B, got a longer one <z,1234567890>
        "#]],
    );
    // Neither header nor record.
    for input in ["one\ntwo", "one\ntwo\n", "one\ntwo\n# three\n", "one\ntwo\n\n#"] {
        let entries = [("skip_lines", OptionValue::Integer(2)), ("comment", text("#"))];
        check("a: string; n: int64", &entries, input, expect![[""]]);
    }
}

#[test]
fn comments_are_no_records_of_a_text_whose_quote_is_open() {
    check(
        "a: string; n: int64",
        &[("comment", text("#")), no_header()[0].clone()],
        "\"open,0\n#a,1\n#b,2\n#c,3\n#d,4\n#e,5\nf,6\n#\ng,7\n\"stray,1\nh,8\ni,9\nj,10\nk,11\n#l,12\n",
        expect![[r#"
            0 ! parse line 1: expected a closing quote, got one within a field of a later line <\"open,0>
            1 f | 6
            2 g | 7
            3 ! parse line 10: expected a closing quote, got lines that are records <\"stray,1>
            4 h | 8
            5 i | 9
            6 j | 10
            7 k | 11
        "#]],
    );
}

#[test]
fn what_comes_before_a_header_has_an_end() {
    let entries = [("comment", text("#")), ("skip_lines", OptionValue::Integer(1))];
    let context = context(&schema("a: string"), Some(spec("csv", &entries)), &[]);
    let lead = "x\n".to_owned() + &"# text\n".repeat(40_000);
    for step in [4_096, usize::MAX] {
        let error = read(&context, format!("{lead}a\nx\n").as_bytes(), step.min(lead.len())).unwrap_err();
        assert_eq!(error.chain(), "the CSV header does not begin within 256KiB");
    }
}

#[test]
fn options_that_say_nothing_are_refused() {
    let of = |entries: &[(&str, OptionValue)]| {
        let error = spec("csv", entries).reader(&schema("x: float64")).err().unwrap();
        format!("{}\n{}", error.chain(), error.hint().unwrap_or_default())
    };
    assert_eq!(
        of(&[("decimal_comma", OptionValue::Bool(true))]),
        "decimal_comma: expected another delimiter than the comma, which would end the field of a number, got none\n\
         write delimiter: \";\"; where the fields are split by commas and the numbers are in quotes, write delimiter: \",\""
    );
    for comment in ["", "\"", ",", " #", "#\n", "########## too long"] {
        assert!(
            of(&[("comment", text(comment))]).starts_with("comment: expected 1 to 16 bytes"),
            "{comment:?}"
        );
    }
    for (key, value) in
        [("null", list(&["NA"])), ("skip_lines", OptionValue::Integer(1)), ("time_zone", text("UTC"))]
    {
        let error = spec("csv", &[(key, value)]).encoder(&schema("x: float64")).err().unwrap();
        assert_eq!(error.chain(), format!("format \"csv\" takes {key:?} only where it is read"));
    }
}

#[test]
fn times_are_read_as_the_options_say() {
    check(
        "t: timestamp(ms); u: timestamp(us)?; s: string",
        &no_header(),
        "1700000000.123,1700000000.1234567,a\n1700000000123,\"1700000000.5\",b\n20231114T221320.5Z, -0.25 ,c\n1700000000.1.2,,d\n1700000000123.0,,e\n",
        expect![[r#"
            0 1700000000123ms | 1700000000123456us | a
            1 1700000000123ms | 1700000000500000us | b
            2 1700000000500ms | -250000us | c
            3 ! parse line 4: field "t": expected timestamp(ms), got "1700000000.1.2" <1700000000.1.2,,d>
            4 1700000000123ms | null | e
        "#]],
    );
    check(
        "t: timestamp(ms); u: timestamp(s)?",
        &[("time_format", list(&["%d/%m/%Y %H:%M:%S", "%Y%m%d"])), ("time_zone", text("Europe/Zurich"))],
        "t,u\n31/01/2024 23:59:59,20240731\n\"31/07/2024 00:00:00\", 20240131\n31/03/2024 02:30:00,\n27/10/2024 02:30:00,\n1706742000000,\n20240131,1706742000\n",
        expect![[r#"
            0 1706741999000ms | 1722376800s
            1 1722376800000ms | 1706655600s
            2 ! parse line 4: field "t": expected timestamp(ms) as "%d/%m/%Y %H:%M:%S" or "%Y%m%d", got "31/03/2024 02:30:00", which no clock in Europe/Zurich shows: clocks were set forward over it <31/03/2024 02:30:00,>
            3 1729989000000ms | null
            4 ! parse line 6: field "t": expected timestamp(ms) as "%d/%m/%Y %H:%M:%S" or "%Y%m%d", got "1706742000000" <1706742000000,>
            5 ! parse line 7: field "u": expected timestamp(s) as "%d/%m/%Y %H:%M:%S" or "%Y%m%d", got "1706742000" <20240131,1706742000>
        "#]],
    );
    let lists = |entries: &[(&str, &[&str])]| {
        let texts = |forms: &[&str]| forms.iter().map(|form| (*form).to_owned()).collect();
        OptionValue::Lists(entries.iter().map(|(name, forms)| ((*name).to_owned(), texts(forms))).collect())
    };
    check(
        "start: timestamp(s); end: timestamp(s); made: timestamp(s)?",
        &[("time_format", lists(&[("start", &["%d.%m.%Y"]), ("end", &["%s", "iso"])]))],
        "start,end,made\n31.01.2024,1706659200,2024-01-31\n31.01.2024,20240131T00Z,1706659200\n1706659200,1,\n31.01.2024,31.01.2024,\n",
        expect![[r#"
            0 1706659200s | 1706659200s | 1706659200s
            1 ! parse line 3: field "end": expected timestamp(s) as "%s" or "iso", got "20240131T00Z" <31.01.2024,20240131T00Z,1706659200>
            2 ! parse line 4: field "start": expected timestamp(s) as "%d.%m.%Y", got "1706659200" <1706659200,1,>
            3 ! parse line 5: field "end": expected timestamp(s) as "%s" or "iso", got "31.01.2024" <31.01.2024,31.01.2024,>
        "#]],
    );
    check(
        "t: timestamp(ms); x: float64",
        &[
            ("decimal_comma", OptionValue::Bool(true)),
            ("delimiter", text(";")),
            ("time_format", list(&["%d.%m.%Y %H:%M:%S", "epoch"])),
            ("null", list(&["-"])),
        ],
        "t;x\n31.01.2024 00:00:00;1,5\n1706659200,25;2\n1706659200123;3\n1706659200.25;4\n-;5\n",
        expect![[r#"
            0 1706659200000ms | 1.5
            1 1706659200250ms | 2.0
            2 1706659200123ms | 3.0
            3 ! parse line 5: field "t": expected timestamp(ms) as "%d.%m.%Y %H:%M:%S" or "epoch", got "1706659200.25" <1706659200.25;4>
            4 ! parse line 6: field "t": expected timestamp(ms) as "%d.%m.%Y %H:%M:%S" or "epoch", got null, written "-" <-;5>
        "#]],
    );
}
