//! Blocks that go through a journal.

use std::borrow::Cow;

use thalweg_types::Class;

use super::*;
use crate::FormatPlugin as _;
use crate::format::ndjson::Ndjson;
use crate::format::{RecordFormat, csv::Csv};
use crate::source::{BlockCodec, BlockContext, JournalBlock};

const ARRIVAL: i64 = -7;

fn record(codec: &BlockCodec, block: &RawBlock) -> Bytes {
    record_of(codec, block, false)
}

fn record_of(codec: &BlockCodec, block: &RawBlock, is_told: bool) -> Bytes {
    let mut head = Vec::new();
    let data = codec.encode(block, ARRIVAL, is_told, &mut head).unwrap();
    head.extend_from_slice(data);
    head.into()
}

fn formats() -> Vec<(FormatSpec, &'static [u8])> {
    let report = [
        ("comment", text("#")),
        ("skip_lines", OptionValue::Integer(2)),
        ("null", OptionValue::List(vec!["none".to_owned()])),
        ("header", OptionValue::Bool(false)),
    ];
    vec![
        (spec("csv", &[]), b"b,a\r\n1,x\r\n\"oh\n1,y\n2,z\nnone,w\n"),
        (spec("csv", &report[..3]), b"x,y\n\"\n\n#a,b\nb,a\r\n1,x\r\n#\n\"oh\n1,y\n#2,z\nnone,w\n"),
        (spec("csv", &report), b"1,2\n\"\nx,1\r\n#\n\"oh\ny,1\n#z,2\nnone,none\n"),
        (spec("ndjson", &[]), b"{\"a\":\"x\",\"b\":1}\nnot json\n{\"a\":\"y\"}\n"),
    ]
}

/// A block is decoded to the same records whether it comes from its source or from the journal.
#[test]
fn a_block_comes_back_with_all_that_its_decoder_needs() {
    let schema = schema("a: string; b: int64?");
    for (format, text) in formats() {
        let context = context(&schema, Some(format), &[]);
        let format = context.format.as_ref().unwrap().reader(&schema).unwrap();
        let codec = BlockCodec::new(Some(Arc::clone(&format)));
        let mut decoder = SourceDecoder::new(&context, decoders(&format)).unwrap();
        let blocks = cut(&*format, text, 7).unwrap();
        assert!(blocks.len() > 1, "the text is cut into several blocks");
        for block in blocks {
            let bytes = record(&codec, &block);
            assert_eq!(BlockCodec::range(&bytes).unwrap(), (block.first, block.count));
            let JournalBlock { block: again, arrival, is_told } = codec.decode(&bytes).unwrap();
            assert_eq!((arrival, is_told), (Some(ARRIVAL), false));
            let told = codec.decode(&record_of(&codec, &block, true)).unwrap();
            assert!(told.is_told);
            assert_eq!(record(&codec, &told.block), bytes, "and nothing else differs");
            assert_eq!(record(&codec, &again), bytes, "and would be written the same");
            let mut outcome = |block: &RawBlock| {
                let range = SeqRange::new(5, 5 + u64::from(block.count));
                let decoded = decoder.decode(block, range, 77).unwrap();
                let rejects = decoded.rejects.map(|rejects| format!("{:?}", rejects.records()));
                (format!("{:?}", decoded.records.records()), rejects)
            };
            assert_eq!(outcome(&again), outcome(&block));
        }
    }
}

#[test]
fn what_is_no_block_is_damage_and_never_a_panic() {
    let schema = schema("a: string; b: int64?");
    let reader: Arc<dyn RecordFormat> = Csv.reader(&schema, &Options::default()).unwrap();
    let codec = BlockCodec::new(Some(Arc::clone(&reader)));
    let refused = Some((Cow::Borrowed("parse"), Cow::Borrowed("no good")));
    let preamble_text = Some(Bytes::from_static(b"a,b\n"));
    let block_context =
        BlockContext { first_line: Some(7), preamble_text, refused, ..BlockContext::default() };
    let payload = Payload::Bytes { data: "x,1\n".into(), context: Some(Arc::new(block_context)) };
    let bytes = record(&codec, &RawBlock { partition: 3, first: 9, count: 1, payload });
    for len in 0..bytes.len() {
        match codec.decode(&bytes.slice(..len)) {
            Err(error) => assert!(error.message().contains("no block"), "{error}"),
            // The records themselves may be cut: the checksum finds that.
            Ok(JournalBlock { block, .. }) => assert!(block.payload.len() < 4),
        }
    }
    let mut wrong = bytes.to_vec();
    for (version, class) in [(0, Class::Corrupt), (3, Class::User)] {
        wrong[0] = version;
        assert_eq!(codec.decode(&wrong.clone().into()).map(|_| ()).unwrap_err().class(), class, "{version}");
    }
    let reader = Ndjson.reader(&schema, &Options::default()).unwrap();
    assert_eq!(BlockCodec::new(Some(reader)).decode(&bytes).unwrap().block.first, 9);
}

#[test]
fn a_record_of_a_build_that_wrote_no_arrival_is_read() {
    let mut bytes = vec![1, 1];
    bytes.extend_from_slice(&3_u32.to_le_bytes());
    bytes.extend_from_slice(&9_u64.to_le_bytes());
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(&7_u64.to_le_bytes());
    bytes.extend_from_slice(b"x,1\n");
    let JournalBlock { block, arrival, is_told } = BlockCodec::new(None).decode(&bytes.into()).unwrap();
    assert_eq!((block.partition, block.first, block.count, arrival, is_told), (3, 9, 1, None, false));
    let Payload::Bytes { data, context } = &block.payload else { panic!("it has bytes") };
    assert_eq!(data.as_ref(), b"x,1\n");
    let context = context.as_ref().unwrap().downcast_ref::<BlockContext>().unwrap();
    assert_eq!(context.first_line, Some(7));
}

/// A text as it arrives at once in a request or from a large buffer: the blocks that a journal would be given.
fn record_lens(format: &Arc<dyn RecordFormat>, text: &[u8]) -> Vec<(u32, usize)> {
    let codec = BlockCodec::new(Some(Arc::clone(format)));
    let blocks = cut(&**format, text, usize::MAX).unwrap();
    blocks.iter().map(|block| (block.count, record(&codec, block).len())).collect()
}

#[test]
fn no_block_is_longer_than_a_record_of_a_journal() {
    let schema = schema("a: string");
    let ndjson = Ndjson.reader(&schema, &Options::default()).unwrap();
    let csv = Csv.reader(&schema, &Options::default()).unwrap();
    let most = ndjson.max_record();
    let line = |len: usize| [r#"{"a":""#.as_bytes(), &vec![b'y'; len - 8], b"\"}\r\n"].concat();

    // The longest record, one that is longer by a byte, and both between short ones.
    let text = [line(20), line(most), line(20), line(most + 1), line(20)].concat();
    let lens = record_lens(&ndjson, &text);
    assert_eq!(lens.iter().map(|(count, _)| count).sum::<u32>(), 5);
    assert!(lens.iter().all(|(_, len)| *len < BlockCodec::MAX_BYTES), "{lens:?}");
    assert!(lens.iter().any(|(_, len)| *len > most), "the longest is let through: {lens:?}");

    // Short ones and a long one, after a header that takes as much as it may.
    let longest = 256 << 10;
    let header = |len: usize| [b"a,".as_slice(), &vec![b'x'; len - 2], b"\n"].concat();
    let long = [&vec![b'y'; most - 1], b",\n".as_slice()].concat();
    let text = [header(longest), b"1,\n".repeat(100_000), long].concat();
    let lens = record_lens(&csv, &text);
    assert_eq!(lens.iter().map(|(count, _)| *count as usize).sum::<usize>(), 100_001);
    assert!(lens.iter().all(|(_, len)| *len < BlockCodec::MAX_BYTES), "{lens:?}");
    assert!(lens.iter().any(|(_, len)| *len > most + longest), "{lens:?}");
    // Each block takes it along, so that it may not be longer, whether it comes to its end or not.
    for text in [header(longest + 1), vec![b'x'; 2 * longest]] {
        let error = cut(&*csv, &text, 64 << 10).err().unwrap();
        assert_eq!(error.message(), "the first line is no header: it does not end within 256KiB");
    }
}

#[test]
fn a_format_that_lets_longer_records_through_is_refused() {
    let entries = |bytes| options(&[("max_record", OptionValue::Size(bytes))]);
    let check = |bytes| {
        let format = Csv.reader(&schema("a: string"), &entries(bytes)).unwrap();
        BlockCodec::new(Some(format)).check()
    };
    check(16 << 20).unwrap();
    let error = check((16 << 20) + 1).unwrap_err();
    assert_eq!(error.class(), Class::User);
    assert!(
        error.message().starts_with("max_record: a journal takes records of at most 16MiB, got "),
        "{error}"
    );
    BlockCodec::new(None).check().unwrap();
}
