//! The way of a request: body, block, order number, answers and rejects, reply.

use arrow_array::Float64Array;
use std::task::{Context, Poll as TaskPoll, Waker as TaskWaker};
use thalweg_flow::{InputId, Operator, Waker, collect};

use super::*;
use crate::{Begun, BuiltSource, Ingress, Replies, SubmitError, Unanswered};

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
        let (ingress, replies) = (built.ingress.take().unwrap(), built.replies.take().unwrap());
        built.source.start(Waker::new(|| {})).unwrap();
        let decoder = (built.decoder)(&task()).unwrap();
        Self { built, decoder, ingress, replies: replies(&task()).unwrap(), next: 0 }
    }

    fn submit(&self, body: &str) -> Replies {
        self.ingress.submit(Bytes::copy_from_slice(body.as_bytes()), true).unwrap().replies.unwrap()
    }

    /// Acts as sequencer, decoder and a job that answers each record with its amount doubled.
    fn step(&mut self) -> bool {
        let Poll::Block(block) = self.built.source.poll(1 << 18, ARRIVAL).unwrap() else { return false };
        // Records of others come in between.
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

/// Polls a future once.
fn now<T>(poll: impl FnOnce(&mut Context<'_>) -> TaskPoll<T>) -> Option<T> {
    match poll(&mut Context::from_waker(TaskWaker::noop())) {
        TaskPoll::Ready(value) => Some(value),
        TaskPoll::Pending => None,
    }
}

fn begun(replies: &mut Replies) -> Option<Result<Begun, Unanswered>> {
    now(|context| replies.poll_begin(context))
}

fn is_waiting(replies: &mut Replies) -> bool {
    begun(replies).is_none()
}

fn is_lost(replies: &mut Replies) -> bool {
    begun(replies) == Some(Err(Unanswered::Stopped))
}

/// The lines that are there.
fn there(replies: &mut Replies) -> Vec<String> {
    let mut text = Vec::new();
    while let Some(Ok(Some(lines))) = now(|context| replies.poll_next(context)) {
        text.extend_from_slice(&lines);
    }
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

/// All lines, errors in short.
fn shown(replies: &mut Replies) -> Vec<String> {
    assert!(matches!(begun(replies), Some(Ok(Begun { whole: Some(_), .. }))), "all of it is there");
    let short = |line: String| {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let error = line.get("error")?;
        assert!(error["hint"].is_string(), "{line} says what to do");
        Some(format!("{}: {}", error["code"].as_str()?, error["message"].as_str()?))
    };
    there(replies).into_iter().map(|line| short(line.clone()).unwrap_or(line)).collect()
}

#[test]
fn each_record_of_each_request_gets_its_reply_in_order() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let mut first =
        door.submit("{\"card\":\"c1\",\"amount\":1}\n{\"card\":\"c2\"}\n\n{\"card\":\"c3\",\"amount\":3}");
    assert!(door.ingress.submit("{\"card\":\"c4\",\"amount\":4}".into(), false).unwrap().replies.is_none());
    let mut second = door.submit("{\n  \"card\": \"a card with a long name\",\r\n  \"amount\": 2.25\n}\n");
    let mut third = door.submit("{\"card\":\"silent\",\"amount\":0}");
    assert!(door.step(), "all of it in one block");
    assert!(!door.step());
    assert!(is_waiting(&mut first), "not before the range is complete");
    door.complete();
    assert_eq!(
        shown(&mut first),
        [
            "{\"card\":\"c1\",\"doubled\":2.0}",
            "parse: field \"amount\": expected float64, got nothing",
            "{\"card\":\"c3\",\"doubled\":6.0}"
        ]
    );
    assert_eq!(shown(&mut second), ["{\"card\":\"a card with a long name\",\"doubled\":4.5}"]);
    assert_eq!(shown(&mut third), ["no_answer: the job gave no answer for this record"]);
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
        let replies = shown(&mut reply);
        assert_eq!(replies.len(), count, "{body:?}: {replies:?}");
        let is_good = body.contains("card");
        assert_eq!(replies.iter().all(|reply| reply.contains("doubled")), is_good, "{body:?}: {replies:?}");
    }
}

#[test]
fn an_array_is_as_many_records_as_it_has_elements() {
    let good = "{\"card\":\"c1\",\"amount\":1}";
    for (body, expected) in [
        (format!("[{good}]"), vec!["ok"]),
        (format!("\u{feff} [ {good} ,\r\n{good}\n,{good}] \n"), vec!["ok", "ok", "ok"]),
        ("[{\"card\":\n\"c1\",\n\n\"amount\":1 }\n]".to_owned(), vec!["ok"]),
        ("[{\"card\":\"a, ] and }\\\"[\",\"amount\":1,\"x\":[1,{\"y\":[]}]}]".to_owned(), vec!["ok"]),
        // An element that is no good has its error in its own place, and those after it are taken.
        (
            format!("[{good},7,null,[{good}],{{}},{good}]"),
            vec![
                "ok",
                "expected a JSON object at byte 1, got \"7\"",
                "expected a JSON object at byte 1, got \"null\"",
                "expected a JSON object at byte 1, got \"[{\\\"card\\\"",
                "field \"card\": expected string, got nothing",
                "ok",
            ],
        ),
        (
            format!("[{{\"card\":tru}},{good},{{\"card\":\"c1\" \"amount\"}},{good} {good},{good}]"),
            vec![
                "expected a JSON value at byte 9",
                "ok",
                "expected a comma or the end of the object at byte 14",
                "expected the end of the line at byte 26",
                "ok",
            ],
        ),
        // Text that is not JSON and takes several lines, too.
        (
            format!("[{good},\n{{\"card\":\"c1\nc2\",\"amount\":1}},\n{{\n\"card\":\"c3\"\n,}},{good}]"),
            vec![
                "ok",
                "element 2 of the array: expected no control character in a string at byte 12, got \"\\nc2",
                "element 3 of the array: expected a key at byte 16, got \"}\"",
                "ok",
            ],
        ),
        (
            format!("[{good},,{good},]"),
            vec![
                "ok",
                "element 2 of the array: expected a JSON value, got nothing",
                "ok",
                "element 4 of the array: expected a JSON value, got nothing",
            ],
        ),
        // An array that does not end: its last element may not be whole.
        (
            format!("[{good},{good}"),
            vec![
                "ok",
                "element 2 of the array: expected a comma or the end of the array, got the end of the body",
            ],
        ),
        (
            format!("[{good},{{\"card\":\"c1,{good}]"),
            vec!["ok", "element 2 of the array: expected a comma or the end of the array, got the end"],
        ),
        (format!("[{good},"), vec!["ok", "element 2 of the array: expected a JSON value, got the end"]),
        ("[".to_owned(), vec!["element 1 of the array: expected a JSON value, got the end of the body"]),
        // No body that is one array: lines, as ever.
        (format!("[1]\n{good}\n"), vec!["expected a JSON object at byte 1, got \"[1]\"", "ok"]),
    ] {
        let mut door = Door::new(spec("ndjson", &[]), &[]);
        let mut reply = door.submit(&body);
        work(&mut door);
        let replies = shown(&mut reply);
        assert_eq!(replies.len(), expected.len(), "{body:?}: {replies:?}");
        for (reply, expected) in replies.iter().zip(expected) {
            let is_right = match expected {
                "ok" => reply.contains("doubled"),
                error => reply.starts_with(&format!("parse: {error}")),
            };
            assert!(is_right, "{body:?}: expected {expected}, got {reply}");
        }
    }
}

/// Errors of many elements take no more memory than those of as many lines.
#[test]
fn elements_that_are_no_json_are_refused_one_by_one_up_to_a_number() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let good = "{\"card\":\"c1\",\"amount\":1}";
    let body = format!("[{good},{}{good}]", "x\ny,".repeat(100_000));
    let mut reply = door.submit(&body);
    work(&mut door);
    let replies = shown(&mut reply);
    assert_eq!(replies.len(), 102, "{:?}", replies.last());
    assert!(replies[0].contains("doubled"), "{}", replies[0]);
    assert!(replies[101].contains("elements 102 and later"), "{}", replies[101]);
}

#[test]
fn a_body_has_as_many_records_as_the_format_finds_in_it() {
    let object = "{\"card\":\"c1\",\"amount\":1}";
    for (format, body, records) in [
        ("csv", "card,amount\nc1,1\n\nc2,2\n".to_owned(), 2),
        ("csv", "card,amount\n\"c1\nand more\",1\nc2,x\n".to_owned(), 2),
        ("ndjson", format!("{object}\n \n{object}"), 2),
        ("ndjson", format!("{object} {object} {object}"), 3),
        ("ndjson", "{\n  \"card\": \"c1\"\n}\n".to_owned(), 1),
        ("ndjson", format!("[{object},\n7,{object}]"), 3),
        ("ndjson", "nonsense\n{}".to_owned(), 2),
        ("line_protocol", "# a comment\ncards card=\"c1\",amount=1\n".to_owned(), 1),
    ] {
        let door = Door::new(spec(format, &[]), &[]);
        let submitted = door.ingress.submit(body.clone().into(), false).unwrap();
        assert_eq!(submitted.records, records, "{format} {body:?}");
    }
}

#[test]
fn an_array_of_nothing_is_an_empty_body() {
    let door = Door::new(spec("ndjson", &[]), &[]);
    for body in ["[]", " [\n] "] {
        assert_eq!(door.ingress.submit(body.into(), true).map(drop), Err(SubmitError::Empty), "{body}");
    }
}

#[test]
fn csv_bodies_bring_their_header() {
    let mut door = Door::new(spec("csv", &[]), &[]);
    let mut good = door.submit("amount,card\n1,c1\n2,c2\n");
    let mut bad = door.submit("amount,kard\n1,c1\n");
    while door.step() {}
    door.complete();
    assert_eq!(shown(&mut good), ["{\"card\":\"c1\",\"doubled\":2.0}", "{\"card\":\"c2\",\"doubled\":4.0}"]);
    let replies = shown(&mut bad);
    assert!(replies[0].starts_with("parse: the CSV header lacks field \"card\""), "{replies:?}");
}

#[test]
fn who_wants_no_reply_is_told_when_its_records_are_safe() {
    let context = context(&schema("card: string; amount: float64"), Some(spec("ndjson", &[])), &[]);
    let mut door = Door::of(SourceContext { acknowledges: true, ..context });
    let body = "{\"card\":\"c1\",\"amount\":1}\n{\"card\":\"c2\"}\n";
    let mut silent = door.ingress.submit(body.into(), false).unwrap().replies.expect("it is not at once");
    let mut other = door.submit("{\"card\":\"c3\",\"amount\":3}");
    while door.step() {}
    assert!(is_waiting(&mut silent), "the order is not known to be durable");
    door.complete();
    assert!(matches!(begun(&mut silent), Some(Ok(_))));
    assert!(there(&mut silent).is_empty());
    assert_eq!(shown(&mut other), ["{\"card\":\"c3\",\"doubled\":6.0}"]);

    let mut never = door.ingress.submit(body.into(), false).unwrap().replies.unwrap();
    drop(door);
    assert!(is_lost(&mut never), "the outcome is unknown");
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
    assert!(is_lost(&mut sequenced));
    assert!(is_lost(&mut queued));
    assert!(ingress.submit("{\"a\":1}".into(), true).is_err(), "nobody is behind the door");
}

/// Runs the job until it waits.
fn work(door: &mut Door) {
    while door.step() {
        door.complete();
    }
}

fn good(count: usize) -> String {
    "{\"card\":\"c1\",\"amount\":1}\n".repeat(count)
}

#[test]
fn of_a_body_without_a_good_record_the_first_ones_are_looked_at() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let mut reply = door.submit(&"0\n".repeat(1 << 20));
    work(&mut door);
    let begun = begun(&mut reply).unwrap().unwrap();
    assert!(!begun.is_any_accepted && begun.whole.is_some_and(|bytes| bytes < 1 << 20), "{begun:?}");
    let lines = there(&mut reply);
    assert_eq!(lines.len(), 4_097);
    let last = "none of the first 4096 records was accepted, and the other 1044480 were not taken";
    assert!(lines[4_096].contains(last), "{}", lines[4_096]);
    assert!(lines[..4_096].iter().all(|line| line.contains("\"code\":\"parse\"")));
    assert_eq!(door.next, 4_106, "no more were numbered");
    let mut next = door.submit(&good(1));
    work(&mut door);
    assert_eq!(shown(&mut next).len(), 1);
}

#[test]
fn a_reply_comes_bit_by_bit_and_holds_a_bounded_part_of_the_queue() {
    const RECORDS: usize = 70_000;
    let mut door = Door::new(spec("ndjson", &[]), &[("queue", OptionValue::Size(4 << 20))]);
    let mut slow = door.submit(&good(RECORDS));
    assert!(door.step() && !door.step(), "no second piece before the first is known");
    door.complete();
    work(&mut door);
    let taken = door.next;
    assert!(taken < 50_000, "{taken} records were taken for a client that reads nothing");
    // Others pass it.
    let mut other = door.submit(&good(3));
    work(&mut door);
    assert_eq!(shown(&mut other).len(), 3);

    let mut lines = Vec::new();
    loop {
        lines.extend(there(&mut slow));
        if !door.step() {
            break;
        }
        door.complete();
    }
    assert_eq!(lines.len(), RECORDS);
    assert!(lines.iter().all(|line| line == "{\"card\":\"c1\",\"doubled\":2.0}"));
}

#[test]
fn a_client_that_goes_away_loses_its_lines_and_no_record() {
    let mut door = Door::new(spec("ndjson", &[]), &[("queue", OptionValue::Size(8 << 20))]);
    let reply = door.submit(&good(100_000));
    work(&mut door);
    drop(reply);
    work(&mut door);
    assert!(door.next >= 100_000, "{}", door.next);
}

#[test]
fn a_job_that_stops_in_the_middle_of_a_reply_says_how_many_lines_are_missing() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    let mut reply = door.submit(&good(10_000));
    assert!(door.step());
    door.complete();
    drop(door);
    assert_eq!(there(&mut reply).len(), 4_096);
    assert_eq!(now(|context| reply.poll_next(context)), Some(Err(Unanswered::Stopped)));
    assert_eq!(reply.missing(), 10_000 - 4_096);
}

#[test]
fn blocks_have_few_records_where_rows_are_wide() {
    let fields: Vec<String> = (0..400).map(|field| format!("f{field}: string?")).collect();
    let context = context(&schema(&fields.join("; ")), Some(spec("ndjson", &[])), &[]);
    let mut door = Door::of(context);
    assert!(door.ingress.submit("{}\n".repeat(100_000).into(), false).unwrap().replies.is_none());
    let mut counts = Vec::new();
    while let Poll::Block(block) = door.built.source.poll(1 << 18, ARRIVAL).unwrap() {
        counts.push(block.count);
    }
    assert_eq!(counts.iter().sum::<u32>(), 100_000);
    assert!(counts.iter().all(|count| *count < 1_300), "{counts:?}");
}

#[test]
fn no_later_body_passes_one_that_was_accepted_when_it_came() {
    let mut door = Door::new(spec("ndjson", &[]), &[]);
    for card in ["first", "second"] {
        let body = format!("{{\"card\":\"{card}\",\"amount\":1}}\n").repeat(20_000);
        assert!(door.ingress.submit(body.into(), false).unwrap().replies.is_none());
    }
    let mut last = door.submit("{\"card\":\"third\",\"amount\":1}");
    let mut cards = Vec::new();
    while let Poll::Block(block) = door.built.source.poll(1 << 18, ARRIVAL).unwrap() {
        assert!(block.count < 20_000, "a body has more than one piece");
        let range = SeqRange::new(door.next, door.next + u64::from(block.count));
        door.next = range.end;
        door.built.source.sequenced(&block, range);
        let decoded = door.decoder.decode(&block, range, ARRIVAL).unwrap();
        let column = decoded.records.column(0).as_string_view();
        cards.extend(column.iter().map(|card| card.expect("a card").to_owned()));
    }
    cards.dedup();
    assert_eq!(cards, ["first", "second", "third"]);
    assert!(is_waiting(&mut last));
}
