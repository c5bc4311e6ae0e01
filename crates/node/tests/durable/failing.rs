//! Queries that fail: one that was added is dropped by itself, and a start leaves out one that stops its job.

use thalweg_expr::testing::TRIPWIRE;
use thalweg_node::drop_query::DropQuery;

use super::*;

const JOB: &str = "
name: failing
cycle: { every: 5ms }
sources:
  a: { type: file, path: DIR/a.csv, follow: true, poll: 1ms, format: csv, schema: { n: int64, card: string } }
operators:
  m:
    type: metrics
    input: a
    partition_by: [card]
    partitions: 2
    queries:
      mine: SELECT count(*) AS n FROM a GROUP BY card OVER INFINITE
sinks:
  out: { type: file, input: m, path: DIR/out.ndjson, format: ndjson }
";

const BAD: &str = "SELECT sum(length(card)) AS len, count(*) AS n FROM a GROUP BY card OVER INFINITE";

struct Growing {
    folder: Folder,
    lines: usize,
}

impl Growing {
    fn new() -> Self {
        let folder = Folder::new();
        fs::write(folder.path("a.csv"), "n,card\n").unwrap();
        Self { folder, lines: 0 }
    }

    fn start(&self, node: &Node, text: &str, dropped: &[&str]) -> Result<Arc<RunningJob>, Error> {
        let text = text.replace("DIR", &self.folder.0.path().display().to_string());
        let job = JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(node.check_options()));
        let dropped: Vec<DropQuery> = dropped.iter().map(|query| query.parse().unwrap()).collect();
        node.start_without(job.unwrap_or_else(|mistakes| panic!("{mistakes}")), &[], &dropped)
    }

    fn append(&mut self, card: &str) {
        append_text(&self.folder.path("a.csv"), &format!("{},{card}\n", self.lines));
        self.lines += 1;
    }

    /// Gives one more record; its answer.
    fn answer(&mut self, card: &str) -> serde_json::Value {
        self.append(card);
        eventually("the answer", || self.folder.read("out.ndjson").lines().count() == self.lines);
        self.last()
    }

    fn last(&self) -> serde_json::Value {
        let answers = self.folder.read("out.ndjson");
        serde_json::from_str(answers.lines().last().expect("an answer")).unwrap()
    }
}

fn names(job: &RunningJob) -> Vec<String> {
    job.queries("m").unwrap().list().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn an_added_query_that_fails_is_dropped_by_itself_and_its_job_goes_on() {
    // Cycles that end soon and that never end: the replay begins after the drop, or before the query came.
    for every in ["5ms", "1h"] {
        let text = JOB.replace("every: 5ms", &format!("every: {every}"));
        let mut growing = Growing::new();
        let node = growing.folder.node(2);
        let job = growing.start(&node, &text, &[]).unwrap_or_else(|error| panic!("{}", error.chain()));
        assert_eq!(growing.answer("c")["mine"]["n"], 1);
        job.queries("m").unwrap().add(job.job(), "bad", BAD).unwrap();
        assert_eq!(growing.answer("c")["bad"]["len"], 1);
        let answer = growing.answer(TRIPWIRE);
        assert_eq!(answer["errors"], serde_json::json!(["bad.len"]), "{answer}");
        assert_eq!(
            (&answer["bad"]["len"], &answer["bad"]["n"]),
            (&serde_json::Value::Null, &1.into()),
            "{answer}"
        );
        assert_eq!(answer["mine"]["n"], 1);
        eventually("the drop", || names(&job) == ["mine"]);
        let dropped = job.queries("m").unwrap().dropped();
        assert_eq!(dropped.len(), 1);
        assert_eq!((dropped[0].name.as_str(), dropped[0].text.as_str()), ("bad", BAD));
        assert!(dropped[0].said.contains("a planted panic"), "{:?}", dropped[0]);
        let answer = growing.answer(TRIPWIRE);
        assert_eq!(
            (&answer["mine"]["n"], answer.get("bad"), answer.get("errors")),
            (&2.into(), None, None),
            "{answer}"
        );

        // The name is free for another.
        job.queries("m")
            .unwrap()
            .add(job.job(), "bad", "SELECT max(n) AS n FROM a GROUP BY card OVER INFINITE")
            .unwrap();
        assert_eq!(growing.answer("c")["bad"]["n"], 4);
        let before = growing.folder.read("out.ndjson");
        job.abort();
        job.wait();
        drop((job, node));

        let node = growing.folder.node(1);
        let job = growing.start(&node, &text, &[]).unwrap_or_else(|error| panic!("{}", error.chain()));
        let answer = growing.answer(TRIPWIRE);
        assert_eq!((&answer["mine"]["n"], &answer["bad"]["n"]), (&3.into(), &5.into()), "{answer}");
        assert!(growing.folder.read("out.ndjson").starts_with(&before), "the same after a replay");
        assert_eq!(names(&job), ["mine", "bad"]);
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    }
}

#[test]
fn a_query_of_the_file_that_fails_stops_its_job_and_a_start_leaves_it_out() {
    let text = JOB.replace("    queries:\n", &format!("    queries:\n      bad: {BAD}\n"));
    let mut growing = Growing::new();
    let node = growing.folder.node(2);
    let job = growing.start(&node, &text, &[]).unwrap();
    assert_eq!(growing.answer("c")["bad"]["len"], 1);
    growing.append(TRIPWIRE);
    for _ in 0..2 {
        let job = match job.state() {
            JobState::Running => Arc::clone(&job),
            _ => growing.start(&node, &text, &[]).unwrap(),
        };
        let end = job.wait_timeout(LIMIT).expect("the job ends");
        let failure = end.failure().unwrap_or_else(|| panic!("{:?}", end.state));
        assert!(failure.panic && failure.message.contains("query \"bad\": "), "{failure}");
        assert!(failure.message.contains("a planted panic"), "{failure}");
        assert_eq!((&*failure.operator, failure.record.as_deref()), ("m/card", Some("a@1")), "{failure}");
    }
    let job = growing.start(&node, &text, &["m/bad"]).unwrap();
    eventually("the answer", || growing.folder.read("out.ndjson").lines().count() == 2);
    let answer = growing.last();
    assert_eq!((&answer["mine"]["n"], answer.get("bad")), (&1.into(), None), "{answer}");
    job.drain();
    assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
    // For that run alone.
    let job = growing.start(&node, &text, &[]).unwrap();
    let answer = growing.answer("c");
    assert_eq!(answer["mine"]["n"], 2, "{answer}");
    // Its count has the state of the other query's, which is the same.
    assert_eq!((&answer["bad"]["len"], &answer["bad"]["n"]), (&1.into(), &2.into()), "{answer}");
    assert_eq!(answer["bad"]["since_of"], serde_json::json!(["len"]), "{answer}");
    job.abort();
    job.wait();
}

#[test]
fn an_added_query_is_left_out_for_good_whether_or_not_it_was_committed() {
    for every in ["5ms", "1h"] {
        let text = JOB.replace("every: 5ms", &format!("every: {every}"));
        let mut growing = Growing::new();
        let node = growing.folder.node(2);
        let job = growing.start(&node, &text, &[]).unwrap();
        job.queries("m").unwrap().add(job.job(), "extra", BAD).unwrap();
        assert_eq!(growing.answer("c")["extra"]["n"], 1);
        if every == "5ms" {
            job.drain();
        } else {
            job.abort();
        }
        job.wait();
        let job = growing.start(&node, &text, &["m/extra"]).unwrap();
        let answer = growing.answer("c");
        assert_eq!((&answer["mine"]["n"], answer.get("extra")), (&2.into(), None), "{answer}");
        assert_eq!(names(&job), ["mine"]);
        job.drain();
        assert_eq!(job.wait_timeout(LIMIT).expect("it drains").state, JobState::Done);
        let job = growing.start(&node, &text, &[]).unwrap();
        let answer = growing.answer("c");
        assert_eq!((&answer["mine"]["n"], answer.get("extra")), (&3.into(), None), "{answer}");
        job.abort();
        job.wait();
    }
}
