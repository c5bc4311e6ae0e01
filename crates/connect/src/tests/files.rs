//! Several files of one source, and packed ones.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use thalweg_flow::{ReplayRun, SourcePosition, Wanted};

use super::*;
use crate::BuiltSource;

/// Files in a folder of their own, by name.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let files_of = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, content)| files_of.write(name, content));
        files_of
    }

    fn write(&self, name: &str, content: &[u8]) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn try_open(&self, paths: &[&str], goes_on: bool) -> Result<BuiltSource, Error> {
        let paths = paths.iter().map(|path| self.path(path));
        let context =
            context(&schema("a: string; b: int64"), Some(spec("csv", &[])), &[("path", paths_value(paths))]);
        Registry::builtin().source("file").unwrap().build(SourceContext { goes_on, ..context })
    }

    /// A source in a job that goes on, from where an earlier one stopped.
    fn open(&self, paths: &[&str], position: Option<&SourcePosition>) -> BuiltSource {
        let mut built = self.try_open(paths, true).unwrap();
        if let Some(position) = position {
            built.source.restore(position).unwrap();
        }
        built
    }

    /// All that a source gives, and its position then.
    fn read(&self, paths: &[&str], position: Option<&SourcePosition>) -> (String, SourcePosition) {
        let mut built = self.open(paths, position);
        let lines = rest(&mut built);
        (lines, built.source.position())
    }

    fn refusal(&self, paths: &[&str], position: &SourcePosition) -> String {
        let mut built = self.try_open(paths, true).unwrap();
        built.source.restore(position).unwrap_err().message().replace(self.0.path().to_str().unwrap(), ".")
    }
}

/// Records as `OFFSET a|b`, in a line.
fn rest(built: &mut BuiltSource) -> String {
    let mut lines = BTreeMap::new();
    let mut decoder = (built.decoder)(&task()).unwrap();
    loop {
        match built.source.poll(1 << 16, ARRIVAL).unwrap() {
            Poll::Block(block) => render(&decode(&mut *decoder, &block).unwrap(), &mut lines),
            Poll::End => break,
            _ => panic!("files have no pauses"),
        }
    }
    lines
        .iter()
        .map(|(offset, line)| format!("{offset} {}", line.replace(" | ", "|")))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn files_are_read_one_behind_the_other_with_one_count() {
    let files = Files::new(&[
        ("day-2.csv", b"a,b\ny,3\n"),
        ("day-1.csv", b"a,b\nx,1\nx,2\n"),
        ("day-3.csv", b"b,a\n4,z\n"),
    ]);
    assert_eq!(files.read(&["day-*.csv"], None).0, "0 x|1, 1 x|2, 2 y|3, 3 z|4");
    assert_eq!(files.read(&["day-3.csv", "day-1.csv"], None).0, "0 z|4, 1 x|1, 2 x|2");
    assert_eq!(files.read(&[""], None).0, "0 x|1, 1 x|2, 2 y|3, 3 z|4", "the folder");
}

#[test]
fn a_reject_names_its_file() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,b\nx,1\ny,no\n")]);
    let lines = files.read(&["1.csv", "2.csv"], None).0;
    assert!(
        lines.contains("line 3") && lines.contains("got \"no\", in \"/") && lines.contains("2.csv\""),
        "{lines}"
    );
    let alone = files.read(&["2.csv"], None).0;
    assert!(alone.contains("line 3") && !alone.contains("2.csv"), "{alone}");
}

#[test]
fn the_header_of_each_file_is_looked_at_before_the_start() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,c\nx,1\n")]);
    let error = files.try_open(&["1.csv", "2.csv"], true).err().unwrap();
    assert!(
        error.chain().contains("2.csv") && error.chain().contains("lacks field \"b\""),
        "{}",
        error.chain()
    );
}

#[test]
fn the_next_days_file_may_stand_where_the_last_one_did() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,b\ny,2\n"), ("3.csv", b"a,b\nz,3\n")]);
    let (_, first) = files.read(&["1.csv"], None);
    let (lines, second) = files.read(&["2.csv"], Some(&first));
    assert_eq!(lines, "1 y|2");
    let (lines, third) = files.read(&["*.csv"], Some(&second));
    assert_eq!(lines, "2 z|3", "the two others are known");
    files.write("4.csv", b"a,b\nw,4\n");
    files.write("0.csv", b"a,b\nv,5\n");
    let (lines, last) = files.read(&[""], Some(&third));
    assert_eq!(lines, "3 v|5, 4 w|4");
    assert_eq!(files.read(&[""], Some(&last)).0, "");
}

#[test]
fn a_file_that_was_moved_is_known_by_what_it_holds() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,b\ny,2\n")]);
    let (_, position) = files.read(&["*.csv"], None);
    std::fs::rename(files.path("2.csv"), files.path("3.csv")).unwrap();
    files.write("4.csv", b"a,b\nz,3\n");
    assert_eq!(files.read(&["*.csv"], Some(&position)).0, "2 z|3");
}

#[test]
fn files_that_grew_give_what_is_new() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,b\ny,2")]);
    let (lines, position) = files.read(&["*.csv"], None);
    assert_eq!(lines, "0 x|1", "the end of the other line may be to come");
    files.write("1.csv", b"a,b\nx,1\nx,3\n");
    files.write("2.csv", b"a,b\ny,25\n");
    assert_eq!(files.read(&["*.csv"], Some(&position)).0, "1 x|3, 2 y|25");
}

#[test]
fn a_file_that_is_another_one_is_refused_by_name() {
    let files = Files::new(&[("1.csv", b"a,b\nx,1\n"), ("2.csv", b"a,b\ny,2\n")]);
    let (_, position) = files.read(&["*.csv"], None);
    files.write("2.csv", b"a,b\nq,2\n");
    let said = files.refusal(&["*.csv"], &position);
    assert!(said.starts_with("\"./2.csv\" is not the file that was read up to byte 8"), "{said}");
}

#[test]
fn packed_files_are_unpacked_whatever_their_names() {
    let two = [gzip(b"a,b\nx,1\n"), gzip(b"y,2\nz,3")].concat();
    let files = Files::new(&[("in", &two)]);
    let (lines, position) = files.read(&["in"], None);
    assert_eq!(lines, "0 x|1, 1 y|2, 2 z|3", "nobody writes the end of its last line any more");
    assert_eq!(files.read(&["in"], Some(&position)).0, "");
    let three = [&two[..], &gzip(b"\nw,4\n")].concat();
    files.write("in", &three);
    assert_eq!(files.read(&["in"], Some(&position)).0, "3 w|4", "members may come");
    files.write("in", &gzip(b"a,b\nother,1\nother,2\nother,3\n"));
    assert!(files.refusal(&["in"], &position).contains("is not the file that was read"));
}

#[test]
fn a_packed_file_that_is_cut_or_damaged_says_so_behind_what_is_good() {
    let lines: String = (0..50_000).map(|n| format!("x{n},{n}\n")).collect();
    let packed = gzip(format!("a,b\n{lines}").as_bytes());
    let mut damaged = packed.clone();
    let len = damaged.len();
    damaged[len - 6] ^= 1;
    for bad in [&packed[..packed.len() - 9], &damaged] {
        let files = Files::new(&[("in.gz", bad)]);
        let mut built = files.open(&["in.gz"], None);
        let mut records = 0;
        let error = loop {
            match built.source.poll(1 << 16, ARRIVAL) {
                Ok(Poll::Block(block)) => records += block.count,
                Ok(_) => panic!("it does not end here"),
                Err(error) => break error,
            }
        };
        assert!(records > 10_000, "{records}");
        assert!(error.message().starts_with("unpack "), "{}", error.chain());
    }
}

#[test]
fn a_packed_file_is_not_followed() {
    let files = Files::new(&[("in.gz", &gzip(b"a,b\n")), ("2.csv", b"a,b\n")]);
    let entries = [("path", paths_value([files.path("in.gz")])), ("follow", OptionValue::Bool(true))];
    let context = context(&schema("a: string; b: int64"), Some(spec("csv", &[])), &entries);
    let error = Registry::builtin().source("file").unwrap().build(context).err().unwrap();
    assert!(error.message().contains("packed by gzip"), "{error}");
    let several =
        [("path", paths_value([Path::new("a"), Path::new("b")])), ("follow", OptionValue::Bool(true))];
    let mistakes = Registry::builtin().source("file").unwrap().check(&options(&several));
    assert_eq!(mistakes.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Wherever a run stopped, and whatever was taken of which file in which order, another one gives the same again.
    #[test]
    fn what_was_taken_of_several_files_is_given_again(
        counts in prop::collection::vec(0_u64..6, 2..5),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 1_u64..4), 0..20),
        committed in 0_usize..20,
        packed in any::<bool>(),
    ) {
        let texts: Vec<(String, Vec<u8>)> = counts.iter().enumerate().map(|(file, count)| {
            let lines: String = (0..*count).map(|n| format!("f{file},{n}\n")).collect();
            let text = format!("a,b\n{lines}").into_bytes();
            (format!("{file}.csv"), if packed { gzip(&text) } else { text })
        }).collect();
        let files: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let files = Files::new(&files);
        let mut built = files.open(&["*.csv"], None);
        let mut decoder = (built.decoder)(&task()).unwrap();
        let mut left = counts.clone();
        let (mut position, mut runs, mut lines) = (built.source.position(), Vec::new(), BTreeMap::new());
        for (step, (pick, wanted)) in picks.iter().enumerate() {
            let file = pick.index(left.len());
            let wanted = (*wanted).min(left[file]);
            if step == committed {
                position = built.source.position();
                (runs, lines) = (Vec::new(), BTreeMap::new());
            }
            if wanted == 0 {
                continue;
            }
            let wanted = [Wanted { partition: file as u32, count: wanted }];
            let block = built.source.take(&wanted, 1 << 16).unwrap();
            left[file] -= u64::from(block.count);
            runs.push(ReplayRun { partition: file as u32, first: block.first, count: u64::from(block.count) });
            render(&decode(&mut *decoder, &block).unwrap(), &mut lines);
        }
        // A file that comes meanwhile changes nothing.
        files.write("00.csv", b"a,b\nnew,1\n");
        let mut again = files.open(&["*.csv"], Some(&position).filter(|position| position.next > 0));
        prop_assume!(position.next > 0);
        let mut replayed = BTreeMap::new();
        for run in runs {
            let mut run = run;
            while run.count > 0 {
                let block = again.source.replay(run, 1 << 16).unwrap();
                prop_assert_eq!(block.partition, run.partition);
                run = ReplayRun { first: run.first + u64::from(block.count), count: run.count - u64::from(block.count), ..run };
                render(&decode(&mut *decoder, &block).unwrap(), &mut replayed);
            }
        }
        prop_assert_eq!(replayed, lines);
        let behind = rest(&mut again);
        prop_assert_eq!(behind.matches('f').count() as u64, left.iter().sum::<u64>());
        prop_assert!(behind.contains("new|1"));
    }
}
