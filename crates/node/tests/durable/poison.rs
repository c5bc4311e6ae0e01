//! Records that a job cannot get past: each start stops at the same one, until it is left out.

use thalweg_connect::format::lines::{BadLine, Cells, LineFormat, LineReader};
use thalweg_connect::format::{Encoder, RecordFormat};
use thalweg_connect::{FormatPlugin, OptionSpec, Options};
use thalweg_node::skip::Skip;
use thalweg_node::{JobFile, Node};
use thalweg_types::Schema;

use self::bang::Bang;
use super::*;

#[path = "../support/bang.rs"]
mod bang;

/// Numbers, one a line; panics at `boom`.
struct Numbers;

struct NumberReader;

impl LineReader for NumberReader {
    fn read(&mut self, line: &str, record: &mut Cells<'_>) -> Result<(), BadLine> {
        record.set(0, line)?;
        assert!(line != "boom", "boom is no number");
        Ok(())
    }
}

impl FormatPlugin for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn doc(&self) -> &'static str {
        "numbers"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn reader(&self, schema: &Schema, _: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        Ok(Arc::new(LineFormat::new(schema, || NumberReader)?))
    }

    fn encoder(&self, _: &Schema, _: &Options) -> Result<Box<dyn Encoder>, Error> {
        Err(Error::user("numbers are only read"))
    }
}

const JOB: &str = "
name: poison
cycle: { every: 1ms }
sources:
  a: { type: file, path: DIR/a.txt, format: numbers, schema: { n: string } }
operators:
  op: { type: bang, input: a }
  counted: { type: count, input: op, key: n }
sinks:
  out: { type: file, input: counted, path: DIR/out.csv, format: csv }
";

fn run(folder: &Folder, skips: &[&str]) -> JobEnd {
    let node = Node::builder()
        .data_dir(folder.path("data"))
        .workers(2)
        .format(Numbers)
        .operator(Bang)
        .open()
        .unwrap();
    let text = JOB.replace("DIR", &folder.0.path().display().to_string());
    let job = JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
    let skips: Vec<Skip> = skips.iter().map(|skip| skip.parse().unwrap()).collect();
    let job = node.start(job.unwrap_or_else(|mistakes| panic!("{mistakes}")), &skips).unwrap();
    job.wait_timeout(LIMIT).expect("the job ends")
}

/// Enough for several blocks, with poison at some places. Two in one block are found in order; blocks are decoded side by
/// side.
fn input(folder: &Folder, poison: &[(usize, &str)]) {
    let mut lines: Vec<String> = (0..60_000).map(|n| (n % 1_000).to_string()).collect();
    for (place, text) in poison {
        lines[*place] = (*text).to_owned();
    }
    fs::write(folder.path("a.txt"), lines.join("\n") + "\n").unwrap();
}

/// The answers to `lines`, counted by hand.
fn expected(lines: &str) -> String {
    let mut counts = std::collections::HashMap::new();
    let mut out = "n,count\n".to_owned();
    for line in lines.lines().filter(|line| !["boom", "bang"].contains(line)) {
        let count = counts.entry(line).or_insert(0);
        *count += 1;
        out.push_str(&format!("{line},{count}\n"));
    }
    out
}

#[track_caller]
fn stops_at(end: &JobEnd, operator: &str, record: &str, message: &str) {
    let failure = end.failure().unwrap_or_else(|| panic!("{:?}", end.state));
    assert!(failure.panic, "{failure}");
    assert_eq!((&*failure.operator, failure.record.as_deref()), (operator, Some(record)), "{failure}");
    assert!(failure.message.contains(message), "{failure}");
}

#[test]
fn a_record_that_panics_stops_every_start_until_it_is_left_out() {
    for (poison, operator, code) in [("boom", "a", "its decoder panicked: boom"), ("bang", "op", "left out")]
    {
        let folder = Folder::new();
        input(&folder, &[(31_234, poison), (31_235, "x"), (45_000, poison)]);
        for _ in 0..2 {
            stops_at(&run(&folder, &[]), operator, "a@31234", &format!("{poison} is no"));
        }
        stops_at(&run(&folder, &["a@31234"]), operator, "a@45000", &format!("{poison} is no"));
        let end = run(&folder, &["a@31234", "a@45000"]);
        assert_eq!(end.state, JobState::Done, "{:?}", end.failure());
        assert_eq!(folder.read("out.csv"), expected(&folder.read("a.txt")));
        let rejects = folder.read("data/jobs/poison/rejects/rejects-0.ndjson");
        let lines: Vec<&str> = rejects.lines().collect();
        assert_eq!(lines.len(), 2, "{rejects}");
        for (line, offset) in lines.iter().zip([31_234, 45_000]) {
            assert!(line.contains(&format!(r#""offset":{offset},"#)) && line.contains("skipped"), "{line}");
            assert!(line.contains(code) && line.contains(poison), "{line}");
        }
    }
}
