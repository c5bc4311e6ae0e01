//! Blocks hold the same records however the bytes arrived, and nothing makes a reader panic.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::format::{RecordDecoder, Split, Splitter};

/// Texts with everything that splitters look at.
fn text() -> impl Strategy<Value = String> {
    "([a-z0-9]|,|\n#|a=|NA|31/01/2024|20240331T023000|2024033[0-9]|\"|\"\"|\n|\r\n|\r|\\{|\\}|\\{\"a\":1\\}|:| |=|=\"|m a=|#|\\\\|\nm a=\"x\"\n){0,80}"
}

fn formats() -> Vec<SourceContext> {
    let schema = schema("a: string?; b: int64?");
    let no_header = [("header", OptionValue::Bool(false))];
    let short = [("header", OptionValue::Bool(false)), ("max_record", OptionValue::Size(16))];
    let few_lines = [("max_lines", OptionValue::Integer(3))];
    let comment = ("comment", super::text("#"));
    let long_comment = ("comment", super::text("a="));
    let lead = ("skip_lines", OptionValue::Integer(2));
    let odd = [
        ("null", OptionValue::List(vec!["NA".to_owned(), "a".to_owned(), "0".to_owned()])),
        ("decimal_comma", OptionValue::Bool(true)),
        ("delimiter", super::text(":")),
        comment.clone(),
    ];
    let times = [
        (
            "time_format",
            OptionValue::List(vec!["%d/%m/%Y".to_owned(), "%Y%m%d".to_owned(), "iso".to_owned()]),
        ),
        ("time_zone", super::text("Europe/Zurich")),
    ];
    let dated = super::schema("a: timestamp(ms)?; b: string?");
    vec![
        context(
            &dated,
            Some(spec("csv", &[&times[..], &no_header, std::slice::from_ref(&comment)].concat())),
            &[],
        ),
        context(&dated, Some(spec("ndjson", &times)), &[]),
        context(&schema, Some(spec("csv", &odd)), &[]),
        context(&schema, Some(spec("csv", &[&odd[..], &short].concat())), &[]),
        context(&schema, Some(spec("csv", &[comment.clone(), lead.clone()])), &[]),
        context(&schema, Some(spec("csv", &[no_header[0].clone(), comment.clone(), lead.clone()])), &[]),
        context(&schema, Some(spec("csv", &[&short[..], std::slice::from_ref(&long_comment)].concat())), &[]),
        context(&schema, Some(spec("csv", &[long_comment, lead.clone(), short[1].clone()])), &[]),
        context(&schema, Some(spec("csv", &[lead, short[1].clone(), few_lines[0].clone()])), &[]),
        context(&schema, Some(spec("csv", &no_header)), &[]),
        context(&schema, Some(spec("csv", &short)), &[]),
        context(&schema, Some(spec("csv", &[])), &[]),
        context(&schema, Some(spec("csv", &few_lines)), &[]),
        context(&schema, Some(spec("line_protocol", &[])), &[]),
        context(&schema, Some(spec("line_protocol", &short[1..])), &[]),
        context(&schema, Some(spec("line_protocol", &few_lines)), &[]),
        context(&schema, Some(spec("ndjson", &[])), &[]),
        context(&schema, Some(spec("ndjson", &short[1..])), &[]),
    ]
}

/// Rows and rejects, or the sentence why the stream cannot be read.
fn outcome(context: &SourceContext, input: &[u8], step: usize) -> String {
    read(context, input, step).unwrap_or_else(|error| error.chain())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn records_do_not_depend_on_how_bytes_arrive(input in text(), step in 1_usize..40) {
        for context in &formats() {
            let whole = outcome(context, input.as_bytes(), usize::MAX);
            prop_assert_eq!(outcome(context, input.as_bytes(), step), whole);
        }
    }

    #[test]
    fn records_do_not_depend_on_how_small_blocks_are(
        input in text(), step in 1_usize..100, window in 1_usize..60, most in 1_u32..6,
    ) {
        for context in &formats() {
            let whole = read(context, input.as_bytes(), usize::MAX);
            let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
            let small = cut_by(Cutter::new(&*format).within(window, most), input.as_bytes(), step);
            let Ok(blocks) = small else {
                prop_assert!(whole.is_err());
                continue;
            };
            prop_assert!(blocks.iter().all(|block| block.count <= most));
            let mut decoder = SourceDecoder::new(context, decoders(&format)).unwrap();
            let mut lines = BTreeMap::new();
            for block in &blocks {
                render(&decode(&mut decoder, block).unwrap(), &mut lines);
            }
            let all: String = lines.iter().map(|(offset, line)| format!("{offset} {line}\n")).collect();
            prop_assert_eq!(all, whole.unwrap());
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic_or_lose_count(
        input in proptest::collection::vec(any::<u8>(), 0..200),
        step in 1_usize..50,
    ) {
        for context in formats() {
            let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
            let mut decoder = SourceDecoder::new(&context, decoders(&format)).unwrap();
            let Ok(blocks) = cut(&*format, &input, step) else { continue };
            for block in blocks {
                let decoded = decode(&mut decoder, &block).unwrap();
                let rejects = decoded.rejects.map_or(0, |rejects| rejects.len());
                prop_assert_eq!(decoded.records.len() + rejects, block.count as usize);
            }
        }
    }

    #[test]
    fn nearly_readable_bytes_keep_their_count(input in text(), step in 1_usize..50) {
        for context in formats() {
            let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
            let mut decoder = SourceDecoder::new(&context, decoders(&format)).unwrap();
            let Ok(blocks) = cut(&*format, input.as_bytes(), step) else { continue };
            for block in blocks {
                let decoded = decode(&mut decoder, &block).unwrap();
                let rejects = decoded.rejects.map_or(0, |rejects| rejects.len());
                prop_assert_eq!(decoded.records.len() + rejects, block.count as usize);
            }
        }
    }
}

#[test]
fn event_times_that_cannot_be_used_are_rejects_with_their_raw_record() {
    let mut context = context(
        &schema("ts: timestamp(s)?; n: int64"),
        Some(spec("csv", &[("header", OptionValue::Bool(false))])),
        &[],
    );
    context.time = SourceTime::Field(0);
    context.max_ahead = Some(60_000_000);
    let arrival = ARRIVAL / 1_000_000;
    let (ok, ahead) = (arrival + 60, arrival + 61);
    let input = format!("{ok},1\n\n,2\nx,3\n{ahead},4\n9223372036854775807,5\n-5,6\n");
    expect_test::expect![[r#"
        0 1767225660s | 1
        1 ! time line 3: field "ts": expected the event time, got null <,2>
        2 ! parse line 4: field "ts": expected timestamp(s), got "x" <x,3>
        3 ! ahead line 5: field "ts": event time 2026-01-01T00:01:01Z is more than 1m ahead of its arrival at 2026-01-01T00:00:00Z <1767225661,4>
        4 ! time line 6: field "ts": 9223372036854775807 s is out of range for an event time <9223372036854775807,5>
        5 -5s | 6
    "#]]
    .assert_eq(&read(&context, input.as_bytes(), usize::MAX).unwrap());
}

#[test]
fn the_first_and_the_last_event_time_that_there_would_be_are_none() {
    let mut context = context(
        &schema("ts: timestamp(us); n: int64"),
        Some(spec("csv", &[("header", OptionValue::Bool(false))])),
        &[],
    );
    context.time = SourceTime::Field(0);
    let (low, high) = (i64::MIN, i64::MAX);
    let input = format!("{low},1\n{},2\n{},3\n{high},4\n", low + 1, high - 1);
    let read = read(&context, input.as_bytes(), usize::MAX).unwrap();
    let refused: Vec<&str> =
        read.lines().filter(|line| line.contains("out of range for an event time")).collect();
    assert_eq!(refused.len(), 2, "{read}");
    assert!(refused[0].starts_with("0 ! time line 1") && refused[1].starts_with("3 ! time line 4"), "{read}");
}

#[test]
fn order_numbers_are_dense_where_nothing_is_rejected() {
    use thalweg_types::Seqs;
    let context =
        context(&schema("n: int64"), Some(spec("csv", &[("header", OptionValue::Bool(false))])), &[]);
    let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
    let mut decoder = SourceDecoder::new(&context, decoders(&format)).unwrap();
    let range = SeqRange::new(100, 102);
    let decoded = decoder.decode(&block("1\n2\n", 2), range, ARRIVAL).unwrap();
    assert!(matches!(decoded.records.seqs(), Seqs::Dense(100)) && decoded.rejects.is_none());
    assert_eq!(decoded.records.times().as_ref(), [ARRIVAL, ARRIVAL]);
    let decoded = decoder.decode(&block("x\n2\n", 2), range, ARRIVAL).unwrap();
    assert_eq!(decoded.records.seq(0), 101);
    assert_eq!(decoded.rejects.unwrap().seq(0), 100);
    assert!(decoder.decode(&block("1\n", 1), range, ARRIVAL).is_err(), "a range of another length");
}

/// Records and rejects of a text, which are the same however its bytes arrive.
fn check_quotes(fields: &str, format: FormatSpec, input: &str, expected: expect_test::Expect) {
    let context = context(&schema(fields), Some(format), &[]);
    let whole = outcome(&context, input.as_bytes(), usize::MAX);
    for step in [1, 2, 3, 5, 7, 11, 40] {
        assert_eq!(outcome(&context, input.as_bytes(), step), whole, "{step} bytes at a time");
    }
    expected.assert_eq(&whole);
}

const PAYMENTS: &str = "ts: timestamp(ms); k: string; x: float64";

#[test]
fn a_quote_that_is_closed_in_another_record_costs_its_own_line() {
    check_quotes(
        PAYMENTS,
        spec("csv", &[]),
        "ts,k,x\n1000,a,1\n2000,\"5 inch,2\n3000,a,3\n4000,a,4\n5000,a,5\n6000,\"q\",6\n7000,a,7\n",
        expect_test::expect![[r#"
            0 1000ms | a | 1.0
            1 ! parse line 3: expected a closing quote, got one within a field of a later line <2000,\"5 inch,2>
            2 3000ms | a | 3.0
            3 4000ms | a | 4.0
            4 5000ms | a | 5.0
            5 6000ms | q | 6.0
            6 7000ms | a | 7.0
        "#]],
    );
    // One after the other, at the end of a line, before a field that has to be in quotes, closed after another field.
    check_quotes(
        PAYMENTS,
        spec("csv", &[]),
        "ts,k,x\r\n1,\"5 inch,1\r\n2,\"6 inch,2\r\n3,\"a\nb\",3\r\n4,\"\r\n5,\"x, y\",5\r\n6,\"7 inch,6\r\n7,8\",7,7\r\n8,a,8\r\n",
        expect_test::expect![[r#"
            0 ! parse line 2: expected a closing quote, got one within a field of a later line <1,\"5 inch,1>
            1 ! parse line 3: expected a closing quote, got one within a field of a later line <2,\"6 inch,2>
            2 3ms | a
            b | 3.0
            3 ! parse line 6: expected a closing quote, got one within a field of a later line <4,\">
            4 5ms | x, y | 5.0
            5 ! parse line 8: expected 3 fields as the header has, got more <6,\"7 inch,6\r\n7,8\",7,7>
            6 8ms | a | 8.0
        "#]],
    );
    check_quotes(
        "k: string; n: string?",
        spec("csv", &[("header", OptionValue::Bool(false)), ("delimiter", super::text(";"))]),
        "a;\"5 inch\nb;c\nd;\"e\"\nf;\"g\nh\";\n",
        expect_test::expect![[r#"
            0 ! parse line 1: expected a closing quote, got one within a field of a later line <a;\"5 inch>
            1 b | c
            2 d | e
            3 f | g
            h
        "#]],
    );
    check_quotes(
        "b: int64?; a: string?",
        spec("line_protocol", &[]),
        "m a=\"x\",b=1i\nm a=\"5 inch,b=2i\nm b=3i\nm a=\"q\",b=4i\nm a=\"two\nlines\",b=5i\n",
        expect_test::expect![[r#"
            0 1 | x
            1 ! parse line 2: expected a closing quote, got one within a field of a later line <m a=\"5 inch,b=2i>
            2 3 | null
            3 4 | q
            4 5 | two
            lines
        "#]],
    );
}

#[test]
fn a_quote_that_nothing_closes_is_given_up_where_records_follow() {
    let lines: String = (3..9).map(|number| format!("{number}000,a,{number}\n")).collect();
    let stray = format!("ts,k,x\n2000,\"5 inch,2\n\nnone\n{lines}");
    for step in [1, 7, usize::MAX] {
        let context = context(&schema(PAYMENTS), Some(spec("csv", &[])), &[]);
        let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
        let mut cutter = Cutter::new(&*format);
        let mut records = 0;
        for piece in stray.as_bytes().chunks(step.min(stray.len())) {
            cutter.push(piece);
            while let Some(cut) = cutter.next(false).unwrap() {
                records += cut.count;
            }
        }
        assert_eq!(records, 1 + 1 + 6, "{step} bytes at a time, and the input goes on");
    }
    // A text may have lines that look like records, but not that many, and any number of others.
    check_quotes(
        PAYMENTS,
        spec("csv", &[]),
        "ts,k,x\n1,\"see\n2,b,2\n3,b,3\n4,b,4\nand\n5,b,5\n\",1\n6,c,6\n",
        expect_test::expect![[r#"
            0 1ms | see
            2,b,2
            3,b,3
            4,b,4
            and
            5,b,5
             | 1.0
            1 6ms | c | 6.0
        "#]],
    );
    check_quotes(
        "k: string; n: string",
        spec("csv", &[]),
        "k,n\na,\"one, two\nthree,four\nfive,six\nseven,eight\nnine,ten\n\"\n",
        expect_test::expect![[r#"
            0 a | one, two
            three,four
            five,six
            seven,eight
            nine,ten

        "#]],
    );
    check_quotes(
        "b: int64?; a: string?",
        spec("line_protocol", &[]),
        "m a=\"5 inch,b=1i\nm b=2i\nm b=3i\n# m b=9i\nm b=4i\nm b=5i\nm b=6i\nm b=7i\nm a=\"x\"\n",
        expect_test::expect![[r#"
            0 ! parse line 1: expected a closing quote, got lines that are records <m a=\"5 inch,b=1i>
            1 2 | null
            2 3 | null
            3 4 | null
            4 5 | null
            5 6 | null
            6 7 | null
            7 null | x
        "#]],
    );
}

#[test]
fn a_record_has_only_so_many_lines() {
    let three = [("max_lines", OptionValue::Integer(3))];
    check_quotes(
        "k: string; n: string?",
        spec("csv", &[&three[..], &[("header", OptionValue::Bool(false))]].concat()),
        "\"a\nb\nc\",1\n\"a\nb\nc\nd\",2\ne,3\n",
        expect_test::expect![[r#"
            0 a
            b
            c | 1
            1 ! parse line 4: expected a closing quote, got more lines than a record may have <\"a>
            2 b | null
            3 c | null
            4 d" | 2
            5 e | 3
        "#]],
    );
    check_quotes(
        "b: int64?; a: string?",
        spec("line_protocol", &three),
        "m a=\"a\nb\nc\"\nm a=\"a\nb\nc\nd\"\nm b=1i\n",
        expect_test::expect![[r#"
            0 null | a
            b
            c
            1 ! parse line 4: expected a closing quote, got more lines than a record may have <m a=\"a>
            2 ! parse line 5: expected the name of a field at byte 1, got the end of the line <b>
            3 ! parse line 6: expected the name of a field at byte 1, got the end of the line <c>
            4 ! parse line 7: expected the name of a field at byte 2, got the end of the line <d\">
            5 1 | null
        "#]],
    );
}

/// Records over several lines of the right form but with wrong contents.
#[test]
fn a_bad_record_over_several_lines_is_one_reject_where_none_of_its_lines_is_a_record() {
    check_quotes(
        PAYMENTS,
        spec("csv", &[]),
        "ts,k,x\nx,\"two\nlines\",1\n2,\"two\nlines\",2,2\n3,\"two\n4,a,4\nlines\",y\n5,b,5\n",
        expect_test::expect![[r#"
            0 ! parse line 2: field "ts": expected timestamp(ms), got "x" <x,\"two\nlines\",1>
            1 ! parse line 4: expected 3 fields as the header has, got more <2,\"two\nlines\",2,2>
            2 ! parse line 6: expected a closing quote, got lines that are records <3,\"two>
            3 4ms | a | 4.0
            4 ! parse line 8: field "ts": expected timestamp(ms), got "lines\"" <lines\",y>
            5 5ms | b | 5.0
        "#]],
    );
}

/// Of a text in which every line leaves a quote open, no line is looked at together with all that follow: with the
/// first thousand of them, or this takes minutes.
#[test]
fn quotes_that_no_line_closes_cost_each_line_and_not_its_time() {
    const LINES: usize = 50_000;
    for (format, header, line) in [("csv", "f,g\n", "x\",\"\n"), ("line_protocol", "", "a f=x\",g=\"\n")] {
        let input = header.to_owned() + &line.repeat(LINES);
        let context = context(&schema("f: string; g: string"), Some(spec(format, &[])), &[]);
        let format = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
        let mut cutter = Cutter::new(&*format);
        cutter.push(input.as_bytes());
        let (mut cuts, mut records) = (0, 0);
        while let Some(cut) = cutter.next(true).unwrap() {
            (cuts, records) = (cuts + 1, records + cut.count as usize);
        }
        assert!(cuts > LINES / 3 && records >= cuts, "{cuts} cuts of {records} records");
    }
}

/// Lines, and how many bytes were looked at for them.
#[derive(Clone, Default)]
struct Lines(Arc<AtomicUsize>);

impl RecordFormat for Lines {
    fn splitter(&self) -> Box<dyn Splitter> {
        Box::new(self.clone())
    }

    fn decoder(&self) -> Box<dyn RecordDecoder> {
        unreachable!("nothing is decoded")
    }
}

impl Splitter for Lines {
    fn split(&mut self, _: u64, data: &[u8], _: bool) -> Result<Split, Error> {
        self.0.fetch_add(data.len(), Ordering::Relaxed);
        let bytes = data.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        Ok(Split { bytes, records: u32::from(bytes > 0), lines: u64::from(bytes > 0), ..Split::default() })
    }
}

#[test]
fn of_a_line_that_arrives_byte_by_byte_each_is_looked_at_once() {
    const LEN: usize = 10_000;
    let format = Lines::default();
    let mut cutter = Cutter::new(&format);
    for _ in 0..LEN {
        cutter.push(b"a");
        assert!(cutter.next(false).unwrap().is_none());
    }
    cutter.push(b"\nb");
    let cut = cutter.next(false).unwrap().expect("the line is there");
    assert_eq!((cut.count, cut.data.len()), (1, LEN + 1));
    assert!(cutter.next(false).unwrap().is_none());
    cutter.push(b"\n");
    assert_eq!(cutter.next(false).unwrap().expect("and the next").data, "b\n");
    let looked = format.0.load(Ordering::Relaxed);
    assert!(looked < 2 * LEN, "{looked} bytes");
}

/// What decoders of one source log, all of them together, while they read blocks.
fn said_of(field: &str, blocks: &[&str]) -> String {
    let format = spec("csv", &[("header", OptionValue::Bool(false))]);
    let reader = format.reader(&schema(field)).unwrap();
    let mut context = context(&schema(field), Some(format), &[("path", path_value("/dev/null"))]);
    context.time = SourceTime::Field(0);
    let built = Registry::builtin().source("file").unwrap().build(context).unwrap();
    let mut decoders = [(built.decoder)(&task()).unwrap(), (built.decoder)(&task()).unwrap()];
    thalweg_testing::logs::said_here(|| {
        for (place, text) in blocks.iter().enumerate() {
            for block in cut(&*reader, text.as_bytes(), usize::MAX).unwrap() {
                decode(&mut *decoders[place % 2], &block).unwrap();
            }
        }
    })
}

#[test]
fn a_time_that_looks_like_another_unit_is_told_once_for_each_source() {
    let said = said_of("ts: timestamp(ms)", &["1700000000\n1700000001\n", "1700000002\n", "1700000003\n"]);
    assert_eq!(said.matches("looks as if it were in another unit").count(), 1, "{said}");
    for part in [
        "source=payments",
        "field=\"ts\"",
        "value=1700000000",
        "timestamp(ms): 1970-01-20T16:13:20Z",
        "timestamp(s): 2023-11-14T22:13:20Z",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // One among others, and too large for a time.
    let said = said_of("ts: timestamp(ms)", &["1700000000000\n", "1700000000000\n1700000000\n"]);
    assert_eq!(said.matches("looks as if").count(), 1, "{said}");
    let said = said_of("ts: timestamp(s)?", &["\n\n,\n", ",\n1700000000000000000\n"]);
    assert!(
        said.contains("timestamp(s): out of range") && said.contains("timestamp(ns): 2023-11-14"),
        "{said}"
    );
    assert_eq!(said_of("ts: timestamp(ms)?", &["0\n5\n-1\n1700000000000\n,\n", "\n"]), "");
}

/// Twice the value of a field, null where that is negative.
struct Doubled;

impl crate::ComputeTime for Doubled {
    fn text(&self) -> &str {
        "n + n"
    }

    fn times(&self, records: &arrow_array::RecordBatch) -> ArrayRef {
        use arrow_array::types::{Int64Type, TimestampSecondType};
        let numbers = records.column(1).as_primitive::<Int64Type>().iter();
        let times = numbers.map(|number| number.filter(|number| *number >= 0).map(|number| 2 * number));
        Arc::new(times.collect::<arrow_array::PrimitiveArray<TimestampSecondType>>())
    }
}

#[test]
fn an_event_time_may_be_computed() {
    let format = spec("csv", &[("header", OptionValue::Bool(false))]);
    let mut context = context(&schema("s: string; n: int64"), Some(format), &[]);
    context.time = SourceTime::Computed(Arc::new(Doubled));
    context.max_ahead = Some(60_000_000);
    let reader = context.format.as_ref().unwrap().reader(&context.schema).unwrap();
    let mut decoder = SourceDecoder::new(&context, decoders(&reader)).unwrap();
    let input = "a,5\nb,x\nc,-1\nd,7\ne,9000000000\n";
    let decoded = decode(&mut decoder, &cut(&*reader, input.as_bytes(), usize::MAX).unwrap()[0]).unwrap();
    assert_eq!(decoded.records.times().as_ref(), [10_000_000, 14_000_000]);
    expect_test::expect![[r#"
        0 a | 5
        1 ! parse line 2: field "n": expected int64, got "x" <b,x>
        2 ! time line 3: time "n + n": expected the event time, got null <c,-1>
        3 d | 7
        4 ! ahead line 5: time "n + n": event time 2540-05-25T08:00:00Z is more than 1m ahead of its arrival at 2026-01-01T00:00:00Z <e,9000000000>
    "#]].assert_eq(&read(&context, input.as_bytes(), usize::MAX).unwrap());
}
