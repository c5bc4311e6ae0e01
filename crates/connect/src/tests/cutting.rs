//! Blocks hold the same records however the bytes arrived, and nothing makes a reader panic.

use proptest::prelude::*;

use super::*;

/// CSV and JSON texts with everything that splitters look at.
fn text() -> impl Strategy<Value = String> {
    "([a-z0-9]|,|\"|\"\"|\n|\r\n|\r|\\{|\\}|\\{\"a\":1\\}|:| ){0,80}"
}

fn formats() -> Vec<SourceContext> {
    let schema = schema("a: string?; b: int64?");
    let no_header = [("header", OptionValue::Bool(false))];
    let short = [("header", OptionValue::Bool(false)), ("max_record", OptionValue::Size(16))];
    vec![
        context(&schema, Some(spec("csv", &no_header)), &[]),
        context(&schema, Some(spec("csv", &short)), &[]),
        context(&schema, Some(spec("csv", &[])), &[]),
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
