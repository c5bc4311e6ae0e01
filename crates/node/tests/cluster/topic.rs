//! Jobs that read a topic of others: each of its records counts once, whichever nodes read it.

use thalweg_kafka::memory::Stored;

use super::*;

fn reads() -> String {
    reading("type: kafka\n    brokers: nowhere:1\n    topics: [payments]")
}

/// The topic, and what of it has to count.
struct Payments<'a> {
    bus: &'a MemoryBus,
    next: i64,
    tally: Tally,
}

impl<'a> Payments<'a> {
    fn new(site: &'a Site) -> Self {
        site.bus.make_topic("payments", 3);
        Self { bus: &site.bus, next: 0, tally: Tally::default() }
    }

    /// Writes records into the first of the partitions: a message has one or a few of them, or none that can be read.
    fn write(&mut self, messages: i64, partitions: i64) {
        for message in 0..messages {
            let mut value = String::new();
            let is_read = message % 10 != 9;
            for _ in 0..=message % 3 {
                value += &record(self.next);
                if is_read {
                    self.tally.add(self.next);
                }
                self.next += 1;
            }
            let value = if is_read { value } else { "no record".to_owned() };
            let to = TopicPartition::new("payments", (message % partitions) as i32);
            let stored = Stored {
                offset: 0,
                timestamp: TIME + self.next,
                key: None,
                value: Some(value.into_bytes()),
                headers: Vec::new(),
            };
            self.bus.append(&to, stored);
        }
    }
}

#[test]
fn a_record_of_a_topic_counts_once_whichever_nodes_read_it() {
    let site = Site::new();
    let mut payments = Payments::new(&site);
    payments.write(40, 3);
    let a = site.join("a");
    a.submit(&reads());
    payments.tally.are_counted(&[&a], "q");
    eventually("the job is in the list of the node", || a.node.job("j").is_some());
    let (b, c) = (site.join("b"), site.join("c"));
    let all = ["a", "b", "c"];
    eventually("units on all nodes", || [&a, &b, &c].iter().all(|peer| peer.are_spread(11, &all)));
    payments.write(50, 3);
    payments.tally.are_counted(&[&a, &b, &c], "q");

    // One dies, in the middle of it; others go on where the group is.
    payments.write(50, 3);
    drop(b);
    payments.write(50, 3);
    eventually("units on those that are left", || {
        a.are_spread(11, &["a", "c"]) && c.are_spread(11, &["a", "c"])
    });
    payments.tally.are_counted(&[&a, &c], "q");

    // It comes back, with commits from before that.
    let b = site.join("b");
    eventually("units on all nodes again", || [&a, &b, &c].iter().all(|peer| peer.are_spread(11, &all)));
    payments.write(50, 3);
    a.cluster.leave();
    payments.write(50, 3);
    eventually("a has left", || a.cluster.has_left() && c.are_spread(11, &["b", "c"]));
    payments.tally.are_counted(&[&b, &c], "q");
}

#[test]
fn a_job_that_reads_a_topic_gets_new_queries_and_no_other_records() {
    let site = Site::new();
    let mut payments = Payments::new(&site);
    payments.write(40, 3);
    let (a, b) = (site.join("a"), site.join("b"));
    a.submit(&reads());
    eventually("units on both", || [&a, &b].iter().all(|peer| peer.are_spread(11, &["a", "b"])));
    payments.tally.are_counted(&[&a, &b], "q");

    let more = "queries:\n      r: SELECT count(*) AS c, sum(n) AS s FROM some GROUP BY card OVER INFINITE\n";
    b.submit(&reads().replace("queries:\n", more));
    payments.write(50, 3);
    payments.tally.are_counted(&[&a, &b], "q");

    for (changed, why) in [
        (reads().replace("n <> 13", "n <> 14"), "the operators above the key are other ones"),
        (reads().replace("max_ahead: none", "max_ahead: 1h"), "would make other records"),
        (reads().replace("[payments]", "[payments, others]"), "reads several topics"),
    ] {
        let failure = site.refusal_of(&changed);
        assert!(failure.contains(why), "{failure}");
    }
}

#[test]
fn partitions_that_a_topic_gets_while_it_is_read_are_read_from_their_beginning() {
    let site = Site::new();
    let mut payments = Payments::new(&site);
    let latest =
        reads().replace("topics: [payments]", "topics: [payments]\n    from: latest\n    refresh: 50ms");
    let (a, b) = (site.join("a"), site.join("b"));
    a.submit(&latest);
    eventually("units on both", || [&a, &b].iter().all(|peer| peer.are_spread(11, &["a", "b"])));
    let of: Vec<TopicPartition> =
        (0..3).map(|partition| TopicPartition::new("payments", partition)).collect();
    eventually("all have begun", || {
        site.bus.group_offsets("t.j.payments.units", &of).unwrap().iter().all(Option::is_some)
    });
    payments.write(40, 3);
    payments.tally.are_counted(&[&a, &b], "q");

    site.bus.widen_topic("payments", 5);
    payments.write(50, 5);
    payments.tally.are_counted(&[&a, &b], "q");
    eventually("units of more partitions", || [&a, &b].iter().all(|peer| peer.are_spread(13, &["a", "b"])));

    // A file that says how many there were changes nothing, nor does one that does not say it.
    let text = |peer: &Peer| -> serde_json::Value {
        serde_json::from_str(&peer.cluster.state().job(&Name::new("j").unwrap()).unwrap().text).unwrap()
    };
    let before = text(&a);
    a.submit(&latest.replace("from: latest", "from: latest\n    partitions: 3"));
    b.submit(&latest);
    payments.write(50, 5);
    payments.tally.are_counted(&[&a, &b], "q");
    assert_eq!(text(&a), before);
    assert!(a.cluster.failure().is_none() && b.cluster.failure().is_none());

    // The oldest node dies.
    drop(a);
    eventually("b has all", || b.are_spread(13, &["b"]));
    site.bus.widen_topic("payments", 6);
    payments.write(50, 6);
    payments.tally.are_counted(&[&b], "q");
    eventually("units of one more", || b.are_spread(14, &["b"]));
}

#[test]
fn a_unit_whose_messages_were_deleted_says_so_and_goes_on_without_them_if_it_may() {
    let site = Site::new();
    let mut payments = Payments::new(&site);
    payments.write(40, 3);
    let a = site.join("a");
    a.submit(&reads());
    payments.tally.are_counted(&[&a], "q");
    drop(a);
    // Of the next messages the first of partition 0 goes before anybody has read it.
    let of = TopicPartition::new("payments", 0);
    let end = site.bus.bounds(&of).unwrap().end;
    site.bus.append(&of, Stored { offset: 0, timestamp: TIME, key: None, value: None, headers: Vec::new() });
    payments.write(30, 3);
    site.bus.retain_from(&of, end + 1);
    let a = site.join("a");
    a.submit(&reads());
    let why = || {
        // It may not have heard of the job yet.
        let units = a.cluster.view().snapshot(Some("j")).ok()?.units;
        units.into_iter().find_map(|unit| unit.failure)
    };
    // It tries again and again.
    let mut last = String::new();
    eventually("a unit does not start", || {
        last = why().unwrap_or_default();
        last.contains("does not start") && last.contains("were deleted before they were read")
    });
    a.submit(&reads().replace("topics:", "missing: skip\n    topics:"));
    payments.tally.are_counted(&[&a], "q");
}
