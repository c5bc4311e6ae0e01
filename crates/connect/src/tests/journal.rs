//! Blocks that go through a journal.

use std::borrow::Cow;

use thalweg_types::Class;

use super::*;
use crate::FormatPlugin as _;
use crate::format::ndjson::Ndjson;
use crate::format::{RecordFormat, csv::Csv};
use crate::source::{BlockCodec, BlockContext};

fn record(codec: &BlockCodec, block: &RawBlock) -> Bytes {
    let mut head = Vec::new();
    let data = codec.encode(block, &mut head).unwrap();
    head.extend_from_slice(data);
    head.into()
}

fn formats() -> Vec<(&'static str, &'static [u8])> {
    vec![
        ("csv", b"b,a\r\n1,x\r\n\"oh\n1,y\n2,z\nnone,w\n"),
        ("ndjson", b"{\"a\":\"x\",\"b\":1}\nnot json\n{\"a\":\"y\"}\n"),
    ]
}

/// What a block becomes is the same whether it comes from its source or from the journal.
#[test]
fn a_block_comes_back_with_all_that_its_decoder_needs() {
    let schema = schema("a: string; b: int64?");
    for (name, text) in formats() {
        let context = context(&schema, Some(spec(name, &[])), &[]);
        let format = context.format.as_ref().unwrap().reader(&schema).unwrap();
        let codec = BlockCodec::new(Some(Arc::clone(&format)));
        let mut decoder = SourceDecoder::new(&context, decoders(&format)).unwrap();
        let blocks = cut(&*format, text, 7).unwrap();
        assert!(blocks.len() > 1, "the text is cut into several blocks");
        for block in blocks {
            let bytes = record(&codec, &block);
            assert_eq!(BlockCodec::range(&bytes).unwrap(), (block.first, block.count));
            let again = codec.decode(&bytes).unwrap();
            assert_eq!(record(&codec, &again), bytes, "and would be written the same");
            let mut outcome = |block: &RawBlock| {
                let range = SeqRange::new(5, 5 + u64::from(block.count));
                let decoded = decoder.decode(block, range, 77).unwrap();
                let rejects = decoded.rejects.map(|rejects| format!("{:?}", rejects.records()));
                (format!("{:?}", decoded.records.records()), rejects)
            };
            assert_eq!(outcome(&again), outcome(&block), "{name}");
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
    let block_context = BlockContext { first_line: Some(7), preamble: None, preamble_text, refused };
    let payload = Payload::Bytes { data: "x,1\n".into(), context: Some(Arc::new(block_context)) };
    let bytes = record(&codec, &RawBlock { partition: 3, first: 9, count: 1, payload });
    for len in 0..bytes.len() {
        match codec.decode(&bytes.slice(..len)) {
            Err(error) => assert!(error.message().contains("no block"), "{error}"),
            // The records themselves may be cut: that is the checksum's to find.
            Ok(block) => assert!(block.payload.len() < 4),
        }
    }
    let mut wrong = bytes.to_vec();
    for (version, class) in [(0, Class::Corrupt), (2, Class::User)] {
        wrong[0] = version;
        assert_eq!(codec.decode(&wrong.clone().into()).map(|_| ()).unwrap_err().class(), class, "{version}");
    }
    let reader = Ndjson.reader(&schema, &Options::default()).unwrap();
    assert_eq!(BlockCodec::new(Some(reader)).decode(&bytes).unwrap().first, 9);
}
