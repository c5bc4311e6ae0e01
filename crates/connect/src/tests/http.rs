//! The way of a request: body, block, order number, answers and rejects, reply.

use arrow_array::Float64Array;
use thalweg_flow::{InputId, Operator, TaskFactory, Waker, collect};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::{BuiltSource, Ingress, Reply, SubmitError};

struct Door {
    built: BuiltSource,
    decoder: Box<dyn Decoder>,
    ingress: Arc<dyn Ingress>,
    replies: Box<dyn Operator>,
    next: u64,
}

impl Door {
    fn new(format: FormatSpec, entries: &[(&str, OptionValue)]) -> Self {
        Self::of(context(&schema("card: string; amount: float64"), Some(format), entries))
    }

    fn of(context: SourceContext) -> Self {
        let mut built = Registry::builtin().source("http").unwrap().build(context).unwrap();
        let (ingress, replies): (_, TaskFactory<dyn Operator>) = built.ingress.take().unwrap();
        built.source.start(Waker::new(|| {})).unwrap();
        let decoder = (built.decoder)(&task()).unwrap();
        Self { built, decoder, ingress, replies: replies(&task()).unwrap(), next: 0 }
    }

    fn submit(&self, body: &str) -> Receiver<Vec<Reply>> {
        self.ingress.submit(Bytes::copy_from_slice(body.as_bytes()), true).unwrap().unwrap()
    }

    /// What sequencer, decoder and a job that answers each record with its amount doubled would do.
    fn step(&mut self) -> bool {
        let Poll::Block(block) = self.built.source.poll(1 << 18, ARRIVAL).unwrap() else { return false };
        // Somebody else's records come in between.
        let range = SeqRange::new(self.next + 10, self.next + 10 + u64::from(block.count));
        self.next = range.end;
        self.built.source.sequenced(&block, range);
        let decoded = self.decoder.decode(&block, range, ARRIVAL).unwrap();
        let answers = doubled(&decoded.records);
        let replies = &mut self.replies;
        collect(|out| replies.process(InputId { port: 0, task: 0 }, answers, out)).unwrap();
        if let Some(rejects) = decoded.rejects {
            collect(|out| replies.process(InputId { port: 1, task: 0 }, rejects, out)).unwrap();
        }
        true
    }

    fn complete(&mut self) {
        let (replies, range) = (&mut self.replies, SeqRange::new(0, self.next));
        collect(|out| replies.complete(range, out)).unwrap();
    }
}

/// Answers of a job that drops the records of card `silent`.
fn doubled(records: &Batch) -> Batch {
    let amounts = records.column(1).as_primitive::<arrow_array::types::Float64Type>();
    let doubled: ArrayRef =
        Arc::new(Float64Array::from_iter(amounts.iter().map(|amount| amount.map(|a| a * 2.0))));
    let schema = schema("card: string; doubled: float64");
    let columns = vec![Arc::clone(records.column(0)), doubled];
    let answers = records
        .with_records(crate::source::record_batch(&schema, columns, records.records().num_rows()).unwrap());
    let cards = records.column(0).as_string_view();
    let rows: Vec<u32> = answers.row_numbers().filter(|row| cards.value(*row as usize) != "silent").collect();
    answers.with_rows(rows.into())
}

fn shown(replies: Vec<Reply>) -> Vec<String> {
    replies
        .into_iter()
        .map(|reply| match reply {
            Reply::Answer(line) => String::from_utf8(line.to_vec()).unwrap(),
            Reply::Rejected { code, message, hint } => {
                assert!(hint.is_some(), "{code} says what to do");
                format!("{code}: {message}")
            }
        })
        .collect()
}

#[test]
fn each_record_of_each_request_gets_its_reply_in_order() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let mut first =
        door.submit("{\"card\":\"c1\",\"amount\":1}\n{\"card\":\"c2\"}\n\n{\"card\":\"c3\",\"amount\":3}");
    assert!(door.ingress.submit("{\"card\":\"c4\",\"amount\":4}".into(), false).unwrap().is_none());
    let mut second = door.submit("{\n  \"card\": \"a card with a long name\",\r\n  \"amount\": 2.25\n}\n");
    let mut third = door.submit("{\"card\":\"silent\",\"amount\":0}");
    assert!(door.step(), "all of it in one block");
    assert!(!door.step());
    assert_eq!(first.try_recv(), Err(TryRecvError::Empty), "not before the range is complete");
    door.complete();
    assert_eq!(
        shown(first.try_recv().unwrap()),
        [
            "{\"card\":\"c1\",\"doubled\":2.0}",
            "parse: field \"amount\": expected float64, got nothing",
            "{\"card\":\"c3\",\"doubled\":6.0}"
        ]
    );
    assert_eq!(shown(second.try_recv().unwrap()), ["{\"card\":\"a card with a long name\",\"doubled\":4.5}"]);
    assert_eq!(shown(third.try_recv().unwrap()), ["no_answer: the job gave no answer for this record"]);
}

#[test]
fn bodies_are_one_object_or_several() {
    let object = "{\"card\":\"c1\",\"amount\":1}";
    for (body, count) in [
        (object.to_owned(), 1),
        (format!("\u{feff}{object}\n"), 1),
        (format!("{object} {object}"), 2),
        ("{ \"card\":\n\"c1\",\n\n\"amount\":1 }\n{\"card\":\n\"c1\", \"amount\":1}".to_owned(), 2),
        (format!("{object}\r\n\r\n{object}\r\n"), 2),
        ("not json\nat all".to_owned(), 2),
        ("{\n".to_owned(), 1),
    ] {
        let mut door = Door::new(spec("ndjson", &[]), &[]);
        let mut reply = door.submit(&body);
        door.step();
        door.complete();
        let replies = shown(reply.try_recv().unwrap());
        assert_eq!(replies.len(), count, "{body:?}: {replies:?}");
        let is_good = body.contains("card");
        assert_eq!(replies.iter().all(|reply| reply.contains("doubled")), is_good, "{body:?}: {replies:?}");
    }
}

#[test]
fn csv_bodies_bring_their_header() {
    let mut door = Door::new(spec("csv", &[]), &[]);
    let mut good = door.submit("amount,card\n1,c1\n2,c2\n");
    let mut bad = door.submit("amount,kard\n1,c1\n");
    while door.step() {}
    door.complete();
    assert_eq!(
        shown(good.try_recv().unwrap()),
        ["{\"card\":\"c1\",\"doubled\":2.0}", "{\"card\":\"c2\",\"doubled\":4.0}"]
    );
    let replies = shown(bad.try_recv().unwrap());
    assert!(replies[0].starts_with("parse: the CSV header lacks field \"card\""), "{replies:?}");
}

#[test]
fn who_wants_no_reply_is_told_when_its_records_are_safe() {
    let context = context(&schema("card: string; amount: float64"), Some(spec("ndjson", &[])), &[]);
    let mut door = Door::of(SourceContext { acknowledges: true, ..context });
    let body = "{\"card\":\"c1\",\"amount\":1}\n{\"card\":\"c2\"}\n";
    let mut silent = door.ingress.submit(body.into(), false).unwrap().expect("it is not at once");
    let mut other = door.submit("{\"card\":\"c3\",\"amount\":3}");
    while door.step() {}
    assert_eq!(silent.try_recv(), Err(TryRecvError::Empty), "the order is not known to be durable");
    door.complete();
    assert_eq!(silent.try_recv().unwrap(), []);
    assert_eq!(shown(other.try_recv().unwrap()), ["{\"card\":\"c3\",\"doubled\":6.0}"]);

    let mut never = door.ingress.submit(body.into(), false).unwrap().unwrap();
    drop(door);
    assert_eq!(never.try_recv(), Err(TryRecvError::Closed), "the outcome is unknown");
}

#[test]
fn full_queues_large_bodies_and_empty_ones_are_refused() {
    let door = Door::new(spec("ndjson", &[]), &[("queue", OptionValue::Size(2_048))]);
    let body = format!("{{\"card\":\"{}\",\"amount\":1}}", "x".repeat(700));
    let submit = |body: &str| door.ingress.submit(Bytes::copy_from_slice(body.as_bytes()), false).map(drop);
    assert_eq!(submit(" \n"), Err(SubmitError::Empty));
    assert!(matches!(submit(&body.repeat(2)), Err(SubmitError::TooLarge { bound: 1_024, .. })));
    submit(&body).unwrap();
    submit(&body).unwrap();
    assert!(matches!(submit(&body), Err(SubmitError::Full { .. })));
    let mut door = door;
    assert!(door.step());
    door.ingress.submit(body.into(), false).unwrap();
    door.built.source.drain();
    assert!(matches!(door.ingress.submit("{}".into(), false), Err(SubmitError::Draining { .. })));
    assert_eq!(poll_to_end(&mut *door.built.source), 1, "what was queued before the drain is given");
}

#[test]
fn who_still_waits_when_the_job_ends_learns_that_the_outcome_is_unknown() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let mut sequenced = door.submit("{\"card\":\"c1\",\"amount\":1}");
    assert!(door.step());
    let mut queued = door.submit("{\"card\":\"c1\",\"amount\":1}");
    let Door { built, replies, ingress, .. } = door;
    drop(replies);
    drop(built);
    assert_eq!(sequenced.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(queued.try_recv(), Err(TryRecvError::Closed));
    assert!(ingress.submit("{\"a\":1}".into(), true).is_err(), "nobody is behind the door");
}
