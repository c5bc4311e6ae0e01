//! Sources that give again what they gave: files and generators.

use std::path::Path;

use proptest::prelude::*;
use thalweg_flow::{ReplayRun, SourcePosition};

use super::*;
use crate::BuiltSource;

const TEXTS: [(&str, &str); 3] = [
    ("csv", "b,a\n1,x\n\n2,\"two\nlines\"\n\"open\n3,y\nbad\n4,z\n5,last"),
    ("csv", "\u{feff}a,b\r\nx,1\r\n\r\ny,2\r\n"),
    ("ndjson", "{\"a\":\"x\",\"b\":1}\n\n \nnot json\n{\"a\":\"y\"}\n{\"b\":2}\n{\"a\":\"z\"}"),
];

fn fields() -> Schema {
    schema("a: string?; b: int64?")
}

fn open(format: &str, path: &Path, entries: &[(&str, OptionValue)]) -> BuiltSource {
    let mut all = vec![("path", text(path.to_str().unwrap()))];
    all.extend_from_slice(entries);
    let registry = Registry::builtin();
    registry.source("file").unwrap().build(context(&fields(), Some(spec(format, &[])), &all)).unwrap()
}

/// All records that the source gives from here on, by their offsets.
fn rest(built: &mut BuiltSource, block_bytes: usize) -> BTreeMap<u64, String> {
    let mut lines = BTreeMap::new();
    let mut decoder = (built.decoder)(&task()).unwrap();
    loop {
        match built.source.poll(block_bytes, ARRIVAL).unwrap() {
            Poll::Block(block) => render(&decode(&mut *decoder, &block).unwrap(), &mut lines),
            Poll::End => break,
            _ => panic!("a file that is not followed has no pauses"),
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Wherever a run stood, another one goes on there with the same records at the same offsets; before that it gives
    /// again any number of them, in runs of any length.
    #[test]
    fn a_file_goes_on_from_any_record(
        which in 0..TEXTS.len(),
        block in 1_usize..60,
        polls in 0_usize..12,
        runs in prop::collection::vec(1_u64..5, 0..6),
    ) {
        let (format, content) = TEXTS[which];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, content).unwrap();
        let whole = rest(&mut open(format, &path, &[]), 1 << 16);
        let total = whole.len() as u64;

        let mut first = open(format, &path, &[]);
        for _ in 0..polls {
            let _ = first.source.poll(block, ARRIVAL).unwrap();
        }
        let position = first.source.position();
        let mut second = open(format, &path, &[]);
        second.source.restore(&position).unwrap();
        prop_assert_eq!(second.source.position(), position.clone(), "and it knows where it is");
        let mut lines = BTreeMap::new();
        let mut decoder = (second.decoder)(&task()).unwrap();
        let mut next = position.next;
        for count in runs {
            let mut left = count.min(total - next);
            while left > 0 {
                let run = ReplayRun { partition: 0, first: next, count: left };
                let block = second.source.replay(run, block).unwrap();
                prop_assert!(block.first == next && u64::from(block.count) <= left && block.count > 0);
                render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
                left -= u64::from(block.count);
                next += u64::from(block.count);
            }
        }
        lines.extend(rest(&mut second, block));
        let expected: BTreeMap<u64, String> = whole.into_iter().filter(|(offset, _)| *offset >= position.next).collect();
        prop_assert_eq!(lines, expected);
    }
}

/// A file that was read to its end, and the place there.
fn read_to_the_end(path: &Path, content: &str) -> SourcePosition {
    std::fs::write(path, content).unwrap();
    let mut built = open("csv", path, &[]);
    rest(&mut built, 1 << 16);
    built.source.position()
}

#[test]
fn a_file_that_grew_gives_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let position = read_to_the_end(&path, "a,b\nx,1\n");
    std::fs::write(&path, "a,b\nx,1\ny,2\n").unwrap();
    let mut built = open("csv", &path, &[]);
    built.source.restore(&position).unwrap();
    assert_eq!(rest(&mut built, 1 << 16), [(1, "y | 2".to_owned())].into());
}

#[test]
fn another_file_in_its_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let position = read_to_the_end(&path, "a,b\nx,1\nz,3\n");
    for (content, said) in [
        ("a,b\nX,1\nz,3\n", "is not the file that was read up to byte 12: its first 12 bytes are others"),
        ("a,b\nx,1\n", "is not the file that was read up to byte 12: it has 8 bytes"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = open("csv", &path, &[]).source.restore(&position).unwrap_err();
        assert!(error.message().contains(said), "{error}");
        assert_eq!(error.class(), thalweg_types::Class::User);
        let mut followed = open("csv", &path, &[("follow", OptionValue::Bool(true))]);
        followed.source.restore(&position).unwrap();
        let Poll::Block(block) = followed.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("a block") };
        assert_eq!(block.first, 2, "a followed one was rotated: offsets go on");
    }
}

#[test]
fn records_that_are_gone_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let position = read_to_the_end(&path, "a,b\nx,1\n");
    let mut built = open("csv", &path, &[]);
    built.source.restore(&position).unwrap();
    let error = built.source.replay(ReplayRun { partition: 0, first: 1, count: 3 }, 1 << 16).unwrap_err();
    assert!(error.message().ends_with("ends with record 1, but 3 more were read from it before"), "{error}");
}

#[test]
fn a_generator_goes_on_where_it_stood() {
    let registry = Registry::builtin();
    let source = registry.source("generator").unwrap();
    let entries = [("count", OptionValue::Integer(10)), ("rate", OptionValue::Number(2.0))];
    let mut built = source.build(context(&Schema::empty(), None, &entries)).unwrap();
    built.source.restore(&SourcePosition { next: 4, place: Vec::new() }).unwrap();
    let block = built.source.replay(ReplayRun { partition: 0, first: 4, count: 3 }, 1 << 16).unwrap();
    assert_eq!((block.first, block.count), (4, 3));
    let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("a block") };
    assert_eq!((block.first, block.count), (7, 1), "the pace begins anew");
    assert!(matches!(built.source.poll(1 << 16, ARRIVAL).unwrap(), Poll::PendingUntil(_)));
}
