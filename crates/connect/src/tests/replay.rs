//! Sources that repeat their records: files and generators.

use std::path::Path;

use proptest::prelude::*;
use thalweg_flow::{ReplayRun, SourcePosition};

use super::*;
use crate::BuiltSource;

const TEXTS: [(&str, &str); 6] = [
    // Lines to leave out, comments before, after and in place of records, and within quotes.
    (
        "csv of a report",
        "a,b\n\"banner\n# c\n\n#\nb,a\n# x,9\n1,x\n#\"\n2,\"two\n# lines\"\r\n# no\r\n\"open\n3,y\n#a,7\n4,NA\n#",
    ),
    ("csv without names", "9,z\n\"\nx,1\n#x,7\ny,2\n# z,3"),
    ("csv", "b,a\n1,x\n\n2,\"two\nlines\"\n\"open\n3,y\nbad\n4,z\n5,last"),
    ("csv", "\u{feff}a,b\r\nx,1\r\n\r\ny,2\r\n"),
    ("ndjson", "{\"a\":\"x\",\"b\":1}\n\n \nnot json\n{\"a\":\"y\"}\n{\"b\":2}\n{\"a\":\"z\"}"),
    ("line_protocol", POINTS),
];

/// Comments that are points where their first bytes are gone, also before, between and after points.
const POINTS: &str = "# m b=90i\n\nm b=1i\n  # m b=91i\nm a=\"two\n# lines\",b=2i\r\n#\n# m b=92i\r\n \t m b=3i\nbad\n\
                      m a=\"open\n# m b=93i\nm b=4i\n# m b=94i";

fn fields() -> Schema {
    schema("a: string?; b: int64?")
}

fn open(format: &str, path: &Path, entries: &[(&str, OptionValue)]) -> BuiltSource {
    open_as(format_of(format, &[]), path, entries)
}

fn format_of(name: &str, more: &[(&str, OptionValue)]) -> FormatSpec {
    let options = [
        ("comment", text("#")),
        ("skip_lines", OptionValue::Integer(2)),
        ("null", OptionValue::List(vec!["NA".to_owned()])),
        ("header", OptionValue::Bool(false)),
    ];
    match name {
        "csv of a report" => spec("csv", &[&options[..3], more].concat()),
        "csv without names" => spec("csv", &[&options, more].concat()),
        name => spec(name, more),
    }
}

fn open_as(format: FormatSpec, path: &Path, entries: &[(&str, OptionValue)]) -> BuiltSource {
    let mut all = vec![("path", paths_value([path]))];
    all.extend_from_slice(entries);
    let registry = Registry::builtin();
    registry.source("file").unwrap().build(context(&fields(), Some(format), &all)).unwrap()
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

    /// Wherever a run stopped, another one goes on there with the same records at the same offsets; before that it
    /// gives again any number of them, in runs of any length.
    #[test]
    fn a_file_goes_on_from_any_record(
        which in 0..TEXTS.len(),
        packed in prop::option::of(0_usize..60),
        block in 1_usize..60,
        polls in 0_usize..12,
        runs in prop::collection::vec(1_u64..5, 0..6),
    ) {
        let (format, content) = TEXTS[which];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, packed.map_or(content.into(), |cut| packed_in_two(content, cut))).unwrap();
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

/// Two gzip members, cut anywhere.
fn packed_in_two(content: &str, cut: usize) -> Vec<u8> {
    let (first, second) = content.as_bytes().split_at(cut.min(content.len()));
    [gzip(first), gzip(second)].concat()
}

/// The records of a source that goes on from `position`.
fn rest_behind(position: &SourcePosition, format: &str, path: &Path) -> BTreeMap<u64, String> {
    let mut built = open(format, path, &[]);
    built.source.restore(position).unwrap();
    rest(&mut built, 1 << 16)
}

/// A job may be stopped wherever the writer of a file that is followed has paused.
#[test]
fn a_file_goes_on_from_every_byte_with_the_records_behind_it() {
    let short = [("max_record", OptionValue::Size(24))];
    let long = format!("m b=1i\n# {} m b=90i\nm a=\"{}\"\nm b=2i\nbad\n", "c".repeat(40), "x".repeat(40));
    let texts = TEXTS.iter().map(|(format, text)| (*format, *text)).chain([("line_protocol", &*long)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    for (format, content) in texts {
        let entries = |follow| [("follow", OptionValue::Bool(follow))];
        let open = |follow| open_as(format_of(format, &short), &path, &entries(follow));
        std::fs::write(&path, content).unwrap();
        let whole = rest(&mut open(false), 1 << 16);
        let mut skipping = 0;
        for bytes in 0..=content.len() {
            std::fs::write(&path, &content.as_bytes()[..bytes]).unwrap();
            let mut first = open(true);
            let mut lines = BTreeMap::new();
            let mut decoder = (first.decoder)(&task()).unwrap();
            while let Poll::Block(block) = first.source.poll(1 << 16, ARRIVAL).unwrap() {
                render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
            }
            let position = first.source.position();
            skipping += u64::from(position.place[16] == 1);
            std::fs::write(&path, content).unwrap();
            let mut second = open(false);
            second.source.restore(&position).unwrap();
            let mut before = whole.clone();
            let behind = before.split_off(&position.next);
            let stopped = String::from_utf8_lossy(&content.as_bytes()[..bytes]);
            assert_eq!(lines, before, "{format}, stopped after {stopped:?}");
            assert_eq!(rest(&mut second, 1 << 16), behind, "{format}, gone on after {stopped:?}");
        }
        assert_eq!(skipping > 0, content.contains('#'), "{format}: places within comments");
    }
}

/// The beginning of the file is shown to the splitter again; where that stops says nothing about the place.
#[test]
fn a_comment_where_the_beginning_ends_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    let mut content = String::new();
    let mut points = 0;
    let mut add = |content: &mut String, count: u64| {
        for number in points..points + count {
            writeln!(content, "m b={number}i").unwrap();
        }
        points += count;
    };
    add(&mut content, 6_600);
    assert!(content.len() < 65_530);
    writeln!(content, "# {}", "m b=1i ".repeat(1_000)).unwrap();
    assert!(content.len() > 65_540);
    add(&mut content, 100);
    std::fs::write(&path, &content).unwrap();
    let whole = rest(&mut open("line_protocol", &path, &[]), 1 << 16);
    let mut first = open("line_protocol", &path, &[]);
    let mut polls = 0;
    while let Poll::Block(_) = first.source.poll(100, ARRIVAL).unwrap() {
        let position = first.source.position();
        let expected = whole.clone().split_off(&position.next);
        assert_eq!(rest_behind(&position, "line_protocol", &path), expected);
        polls += 1;
    }
    assert!(polls > 3, "{polls} places");
}

/// Fewer records than a read brings are looked for in it once more, from its beginning.
#[test]
fn runs_are_cut_out_of_reads_that_end_within_a_comment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    std::fs::write(&path, "m b=0i\nm b=1i\nm b=2i\n# m b=9i").unwrap();
    let mut built = open("line_protocol", &path, &[]);
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut blocks = Vec::new();
    for first in 0..3 {
        blocks.push(built.source.replay(ReplayRun { partition: 0, first, count: 1 }, 1 << 16).unwrap());
    }
    assert_eq!(rows_of(&mut *decoder, &blocks), "null | 0\nnull | 1\nnull | 2\n");
    assert_eq!(poll_to_end(&mut *built.source), 0);
}

#[test]
fn a_header_is_found_again_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.csv");
    let header = format!("b,a,{}", "x".repeat(200_000));
    for (content, grown) in [
        (format!("{header}\n1,x,\n"), "2,y,\n"),
        (format!("{header}\n1,x,"), "\n2,y,\n"),
        // Written without a line end at first.
        (header, "\n2,y,\n"),
        ("b,a".to_owned(), "\n2,y\n"),
    ] {
        let position = read_to_the_end(&path, &content);
        std::fs::write(&path, content + grown).unwrap();
        let rest = rest_behind(&position, "csv", &path);
        assert_eq!(rest, [(position.next, "y | 2".to_owned())].into());
    }
}

/// Places as the build before wrote them: five numbers, of which the third says that a line is skipped.
#[test]
fn places_of_earlier_builds_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    let content = "m b=1i\nm b=2i\n";
    std::fs::write(&path, content).unwrap();
    let place = |byte: u64, is_skipping: u64| {
        let words = [byte, 0, is_skipping, 4, thalweg_types::hash_bytes(b"m b=")];
        SourcePosition { next: 7, place: words.iter().flat_map(|word| word.to_le_bytes()).collect() }
    };
    for (position, expected) in [(place(7, 0), vec!["null | 2"]), (place(4, 1), vec!["null | 2"])] {
        let rest = rest_behind(&position, "line_protocol", &path);
        assert_eq!(rest.into_values().collect::<Vec<_>>(), expected);
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
        ("a,b\nX,1\nz,3\n", "is not the file that was read up to byte 12: its first 12 bytes differ"),
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

/// Rotates a file that is followed within the cycle that a crash cuts off: after its first record, which is committed.
/// Gives the place of that.
fn rotated(path: &Path, old: &Path) -> SourcePosition {
    let _ = std::fs::remove_file(old);
    std::fs::write(path, "a,b\nx,1\n").unwrap();
    let mut first = open("csv", path, &[("follow", OptionValue::Bool(true))]);
    let mut next = || loop {
        if let Poll::Block(block) = first.source.poll(1 << 16, ARRIVAL).unwrap() {
            return (block.first, block.count, first.source.position());
        }
    };
    let (.., position) = next();
    std::fs::write(path, "a,b\nx,1\ny,2\nlast").unwrap();
    assert_eq!(next().0, 1);
    std::fs::rename(path, old).unwrap();
    std::fs::write(path, "a,b\nz,3\n").unwrap();
    assert_eq!([next().0, next().0], [2, 3], "the rest of the old file, then the new one");
    position
}

#[test]
fn a_file_that_was_rotated_is_given_again_to_its_end_and_then_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("in.csv"), folder.path().join("in.csv.1"));
    let position = rotated(&path, &old);
    std::fs::write(folder.path().join("other"), "a,b\n").unwrap();
    let mut built = open("csv", &path, &[("follow", OptionValue::Bool(true))]);
    built.source.restore(&position).unwrap();
    let mut decoder = (built.decoder)(&task()).unwrap();
    let mut lines = BTreeMap::new();
    let mut next = 1;
    while next < 4 {
        let run = ReplayRun { partition: 0, first: next, count: 4 - next };
        let block = built.source.replay(run, 1 << 16).unwrap();
        next += u64::from(block.count);
        render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
    }
    assert_eq!(lines[&1], "y | 2");
    assert_eq!(lines[&3], "z | 3");
    std::fs::write(&path, "a,b\nz,3\nlater,4\n").unwrap();
    let Poll::Block(block) = built.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("a block") };
    assert_eq!((block.first, block.count), (4, 1), "it goes on in the new one");

    // Nothing to give again, as after a stop: the unread rest of the old file comes first all the same.
    let mut stopped = open("csv", &path, &[("follow", OptionValue::Bool(true))]);
    stopped.source.restore(&position).unwrap();
    let Poll::Block(block) = stopped.source.poll(1 << 16, ARRIVAL).unwrap() else { panic!("a block") };
    let mut rest = BTreeMap::new();
    render(&decode(&mut *decoder, &block).unwrap(), &mut rest);
    assert_eq!(rest[&1], "y | 2");
}

/// After the header alone the two files do not differ.
#[test]
fn a_rotated_file_of_which_only_the_header_was_read_is_not_taken_for_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("in.csv"), folder.path().join("in.csv.1"));
    std::fs::write(&path, "a,b\n").unwrap();
    let followed = || open("csv", &path, &[("follow", OptionValue::Bool(true))]);
    let mut first = followed();
    assert!(matches!(first.source.poll(1 << 16, ARRIVAL).unwrap(), Poll::PendingUntil(_)));
    let position = first.source.position();
    std::fs::write(&path, "a,b\nx,1\n").unwrap();
    std::fs::rename(&path, &old).unwrap();
    std::fs::write(&path, "a,b\ny,2\n").unwrap();
    let mut again = followed();
    again.source.restore(&position).unwrap();
    let mut decoder = (again.decoder)(&task()).unwrap();
    let mut lines = BTreeMap::new();
    for first in [0, 1] {
        let block = again.source.replay(ReplayRun { partition: 0, first, count: 1 }, 1 << 16).unwrap();
        render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
    }
    assert_eq!(lines, [(0, "x | 1".to_owned()), (1, "y | 2".to_owned())].into());
    // Copied, as from a backup: another file with the same beginning will do.
    std::fs::remove_file(&old).unwrap();
    let mut copied = followed();
    copied.source.restore(&position).unwrap();
    assert_eq!(
        copied.source.replay(ReplayRun { partition: 0, first: 0, count: 1 }, 1 << 16).unwrap().count,
        1
    );
}

#[test]
fn records_of_a_file_that_was_rotated_away_are_taken_from_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("in.csv"), folder.path().join("in.csv.1"));
    let position = rotated(&path, &old);
    std::fs::remove_file(&old).unwrap();
    let mut built = open("csv", &path, &[("follow", OptionValue::Bool(true))]);
    built.source.restore(&position).unwrap();
    let error = built.source.replay(ReplayRun { partition: 0, first: 1, count: 3 }, 1 << 16).unwrap_err();
    let said =
        "is not the file that 3 records were read from after the last commit, and no file of its folder is";
    assert!(error.message().ends_with(said), "{error}");
    assert_eq!(error.class(), thalweg_types::Class::User);
}

#[test]
fn records_of_files_that_were_rotated_twice_are_not_taken_from_the_third() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("in.csv"), folder.path().join("in.csv.2"));
    let position = rotated(&path, &old);
    let between = folder.path().join("in.csv.1");
    std::fs::rename(&path, &between).unwrap();
    std::fs::write(&path, "a,b\nz,4\n").unwrap();
    let later = std::fs::metadata(&old).unwrap().modified().unwrap() + Duration::from_secs(1);
    std::fs::File::options().append(true).open(&between).unwrap().set_modified(later).unwrap();
    let mut built = open("csv", &path, &[("follow", OptionValue::Bool(true))]);
    built.source.restore(&position).unwrap();
    for first in [1, 2] {
        let run = ReplayRun { partition: 0, first, count: 1 };
        assert_eq!(built.source.replay(run, 1 << 16).unwrap().count, 1, "of the oldest");
    }
    let error = built.source.replay(ReplayRun { partition: 0, first: 3, count: 1 }, 1 << 16).unwrap_err();
    assert!(error.message().contains("was rotated more than once since the last commit"), "{error}");
    assert!(error.message().contains("in.csv.1"), "{error}");
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
