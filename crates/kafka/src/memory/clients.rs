//! The clients: a consumer that is delayed, a producer that fails.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Stored;
use super::world::World;
use crate::{
    Acknowledged, Bounds, BusError, Consumer, ConsumerOptions, GroupOffset, Header, Isolation, Message,
    Outgoing, Problem, Producer, ProducerOptions, Sent, Taken, TopicPartition, Wake,
};

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct MemoryConsumer {
    world: Arc<Mutex<World>>,
    client: Arc<str>,
    options: ConsumerOptions,
    /// By number; `None` where it is read no more.
    partitions: Vec<Option<Reading>>,
}

struct Reading {
    of: TopicPartition,
    next: i64,
    /// Where it looks next; not below `next`.
    peeked: i64,
    /// Kept by the world as long as it is here.
    wake: Arc<Wake>,
    /// The end of what it may have.
    gate: Arc<AtomicI64>,
}

impl MemoryConsumer {
    pub(super) fn new(world: Arc<Mutex<World>>, client: Arc<str>, options: ConsumerOptions) -> Self {
        Self { world, client, options, partitions: Vec::new() }
    }

    fn reading(&mut self, partition: usize) -> Result<&mut Reading, BusError> {
        self.partitions.get_mut(partition).and_then(Option::as_mut).ok_or_else(|| {
            BusError::new(Problem::Other, format!("read partition {partition}"), "it was not assigned")
        })
    }
}

impl Consumer for MemoryConsumer {
    fn assign(&mut self, partition: &TopicPartition, offset: i64) -> Result<usize, BusError> {
        let wake = Arc::clone(&self.options.wake);
        self.assign_waking(partition, offset, wake)
    }

    fn assign_waking(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        wake: Wake,
    ) -> Result<usize, BusError> {
        let wake = Arc::new(wake);
        let gate = lock(&self.world).wake_for(&self.client, partition, offset, &wake);
        let reading = Reading { of: partition.clone(), next: offset, peeked: offset, wake, gate };
        self.partitions.push(Some(reading));
        Ok(self.partitions.len() - 1)
    }

    fn unassign(&mut self, partition: usize) -> Result<(), BusError> {
        self.reading(partition)?;
        self.partitions[partition] = None;
        Ok(())
    }

    fn seek(&mut self, partition: usize, offset: i64) -> Result<(), BusError> {
        let reading = self.reading(partition)?;
        (reading.next, reading.peeked) = (offset, offset);
        Ok(())
    }

    fn take(
        &mut self,
        partition: usize,
        _: Duration,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError> {
        let (world, client, isolation) =
            (Arc::clone(&self.world), Arc::clone(&self.client), self.options.isolation);
        let reading = self.reading(partition)?;
        let from = (&reading.of, reading.gate.load(Ordering::Relaxed), isolation);
        let outcome = read(&world, &client, from, &mut reading.next, each);
        reading.peeked = reading.peeked.max(reading.next);
        // What was delayed comes later, and whoever sleeps is woken for it.
        let world = lock(&world);
        let gate = reading.gate.load(Ordering::Relaxed);
        let is_more = world.bounds(&reading.of).is_ok_and(|bounds| bounds.end.min(gate) > reading.next);
        let is_cut = world.cut_of(&client).reads;
        drop(world);
        if is_more && !is_cut {
            (reading.wake)();
        }
        outcome
    }

    fn peek(
        &mut self,
        partition: usize,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError> {
        let (world, client, isolation) =
            (Arc::clone(&self.world), Arc::clone(&self.client), self.options.isolation);
        let reading = self.reading(partition)?;
        let from = (&reading.of, reading.gate.load(Ordering::Relaxed), isolation);
        read(&world, &client, from, &mut reading.peeked, each)
    }

    fn peek_again(&mut self, partition: usize) {
        if let Ok(reading) = self.reading(partition) {
            reading.peeked = reading.next;
        }
    }

    fn bounds(&self, partition: usize) -> Option<Bounds> {
        lock(&self.world).bounds(&self.partitions.get(partition)?.as_ref()?.of).ok()
    }

    fn commit_group(&mut self, offsets: &[(usize, i64)]) -> Result<(), BusError> {
        let mut world = lock(&self.world);
        for (partition, offset) in offsets {
            if let Some(Some(Reading { of, .. })) = self.partitions.get(*partition) {
                let committed = GroupOffset { offset: *offset, metadata: String::new() };
                world.write_offset(&self.options.group, of, committed);
            }
        }
        Ok(())
    }
}

/// Shows the messages of a partition below `gate` to `each`, from `next` on.
fn read(
    world: &Mutex<World>,
    client: &str,
    (of, gate, isolation): (&TopicPartition, i64, Isolation),
    next: &mut i64,
    each: &mut dyn FnMut(&Message<'_>) -> bool,
) -> Result<Taken, BusError> {
    let mut taken = Taken::default();
    loop {
        let mut world = lock(world);
        let delays = world.faults.delays;
        if world.cut_of(client).reads || world.is_away(&of.topic) || world.happens(delays) {
            return Ok(taken);
        }
        let Bounds { start, end } = world.bounds(of)?;
        if *next < start || *next > end {
            let said = format!("expected an offset from {start} to {end}, got {next}");
            return Err(BusError::new(Problem::OutOfRange, format!("read {of}"), said));
        }
        let stored = world.next(of, *next, isolation)?.filter(|stored| stored.offset < gate);
        let Some(stored) = stored.cloned() else {
            let end = world.end_for(of, isolation)?.min(gate);
            *next = (*next).max(end);
            taken.end = Some(end);
            return Ok(taken);
        };
        drop(world);
        *next = stored.offset + 1;
        taken.messages += 1;
        let headers = |each: &mut dyn FnMut(Header<'_>)| {
            for (name, value) in &stored.headers {
                each(Header { name, value: value.as_deref() });
            }
        };
        let message = Message {
            offset: stored.offset,
            timestamp: Some(stored.timestamp),
            key: stored.key.as_deref(),
            value: stored.value.as_deref(),
            headers: &headers,
        };
        if !each(&message) {
            return Ok(taken);
        }
    }
}

struct Queued {
    to: TopicPartition,
    message: Stored,
    tag: u64,
    bytes: usize,
    /// It is reported as written, and is not.
    is_lost: bool,
}

pub(super) struct MemoryProducer {
    world: Arc<Mutex<World>>,
    client: Arc<str>,
    options: ProducerOptions,
    /// Its epoch and transactional id.
    epoch: Option<(u64, String)>,
    transaction: Option<u64>,
    queue: VecDeque<Queued>,
    /// Partitions that have been sent something.
    begun: BTreeSet<TopicPartition>,
    /// Tags of messages that were sent and are not written, in order.
    open: VecDeque<(u64, usize)>,
    below: u64,
    in_flight: usize,
    failure: Option<BusError>,
}

impl MemoryProducer {
    pub(super) fn new(
        world: Arc<Mutex<World>>,
        client: Arc<str>,
        options: ProducerOptions,
        epoch: Option<(u64, String)>,
    ) -> Self {
        Self {
            world,
            client,
            options,
            epoch,
            transaction: None,
            queue: VecDeque::new(),
            begun: BTreeSet::new(),
            open: VecDeque::new(),
            below: 0,
            in_flight: 0,
            failure: None,
        }
    }

    fn check(&self) -> Result<(), BusError> {
        match &self.epoch {
            Some((epoch, id)) => lock(&self.world).check_epoch(id, *epoch),
            None => Ok(()),
        }
    }

    /// Writes some of what is queued.
    fn step(&mut self) {
        let mut world = lock(&self.world);
        let faults = world.faults;
        if self.queue.is_empty() || world.cut_of(&self.client).writes || world.happens(faults.delays) {
            return;
        }
        let count = 1 + world.below(self.queue.len());
        for _ in 0..count {
            let goes = |queued: &Queued| !world.is_away(&queued.to.topic);
            let next = self.queue.iter().position(goes);
            let Some(mut first) = next.and_then(|next| self.queue.remove(next)) else { break };
            if !self.begun.contains(&first.to) {
                self.begun.insert(first.to.clone());
                let second = self.queue.iter().position(|queued| queued.to == first.to);
                if let Some(second) = second
                    && self.options.requests != Some(1)
                    && world.happens(faults.refused_firsts)
                    && let Some(second) = self.queue.remove(second)
                {
                    first.is_lost = world.below(2) == 0;
                    self.queue.push_front(std::mem::replace(&mut first, second));
                    world.happened.refused_firsts += 1;
                }
            }
            let Queued { to, message, tag, bytes, is_lost } = first;
            self.in_flight -= bytes;
            let not_written = || {
                let said = "the message was given up";
                BusError::new(Problem::NotWritten, format!("write to {to}"), said)
            };
            if world.happens(faults.given_up) {
                // The next one is written all the same.
                self.failure.get_or_insert_with(not_written);
                world.happened.given_up += 1;
                continue;
            }
            let times = if world.happens(faults.doubles) { 2 } else { 1 };
            let times = if is_lost || world.loses(&to) { 0 } else { times };
            for _ in 0..times {
                if let Err(error) = world.write(&to, message.clone(), self.transaction) {
                    self.failure.get_or_insert(error);
                }
            }
            world.happened.doubles += u32::from(times == 2);
            if world.happens(faults.lost_acknowledgements) {
                world.happened.lost_acknowledgements += 1;
                self.failure.get_or_insert_with(not_written);
            }
            // One that follows a failure is a failure.
            if self.failure.is_none()
                && let Some((_, left)) = self.open.iter_mut().find(|(open, _)| *open == tag)
            {
                *left -= 1;
            }
        }
        while let Some((tag, 0)) = self.open.front() {
            self.below = tag + 1;
            self.open.pop_front();
        }
    }

    fn partition_of(&self, message: &Outgoing<'_>) -> Result<TopicPartition, BusError> {
        let mut world = lock(&self.world);
        let count = world.topics.get(message.topic).map_or(0, |topic| topic.partitions.len());
        if count == 0 {
            let action = format!("write to {:?}", message.topic);
            return Err(BusError::new(Problem::NoTopic, action, "it does not exist"));
        }
        let partition = match (message.partition, message.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => {
                (key.iter().fold(7_u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(*byte)) as usize
                    % count) as i32
            }
            (None, None) => world.below(count) as i32,
        };
        Ok(TopicPartition::new(message.topic, partition))
    }
}

impl Producer for MemoryProducer {
    fn send(&mut self, message: &Outgoing<'_>, tag: u64) -> Result<Sent, BusError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.check()?;
        let bytes = message.value.len() + message.key.map_or(0, <[u8]>::len);
        if bytes > self.options.max_message {
            let action = format!("write to {:?}", message.topic);
            return Err(BusError::new(Problem::TooLarge, action, "the message is too large"));
        }
        if self.in_flight > 0 && self.in_flight + bytes > self.options.queue {
            return Ok(Sent::Full);
        }
        let to = self.partition_of(message)?;
        let headers = message.headers.iter();
        let stored = Stored {
            offset: 0,
            timestamp: 0,
            key: message.key.map(<[u8]>::to_vec),
            value: Some(message.value.to_vec()),
            headers: headers
                .map(|header| (header.name.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
        };
        match self.open.back_mut() {
            Some((last, count)) if *last == tag => *count += 1,
            _ => self.open.push_back((tag, 1)),
        }
        self.in_flight += bytes;
        self.queue.push_back(Queued { to, message: stored, tag, bytes, is_lost: false });
        Ok(Sent::Taken)
    }

    fn acknowledged(&mut self) -> Acknowledged {
        self.step();
        if !self.queue.is_empty() {
            (self.options.wake)();
        }
        Acknowledged { below: self.below, in_flight: self.in_flight, failure: self.failure.clone() }
    }

    fn wait(&mut self, _: Duration) {
        self.step();
    }

    fn partitions(&mut self, topic: &str) -> Result<i32, BusError> {
        let world = lock(&self.world);
        let found = world.topics.get(topic).map(|topic| topic.partitions.len() as i32);
        found.ok_or_else(|| {
            BusError::new(Problem::NoTopic, format!("look up topic {topic:?}"), "it does not exist")
        })
    }

    fn begin(&mut self) -> Result<(), BusError> {
        let Some((epoch, id)) = &self.epoch else {
            let action = "begin a transaction";
            return Err(BusError::new(Problem::Other, action, "the producer has no transactional id"));
        };
        let mut world = lock(&self.world);
        world.check_epoch(id, *epoch)?;
        self.transaction = Some(world.begin_transaction(id));
        Ok(())
    }

    fn commit(&mut self, group: &str, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError> {
        let action = format!("commit a transaction of {group:?}");
        while !self.queue.is_empty() {
            self.step();
        }
        // Until the end under one lock: another producer begins before all of it or after.
        let mut world = lock(&self.world);
        let faults = world.faults;
        if let Some((epoch, id)) = &self.epoch {
            if world.happens(faults.timed_out) {
                world.begin_epoch(id);
            }
            world.check_epoch(id, *epoch)?;
        }
        let Some(transaction) = self.transaction.take() else {
            return Err(BusError::new(Problem::Other, action, "no transaction is open"));
        };
        if self.failure.take().is_some() || world.happens(faults.aborts) {
            self.open.clear();
            world.end_transaction(transaction, false);
            return Err(BusError::new(Problem::Aborted, action, "the transaction was aborted"));
        }
        let unknown = BusError::new(Problem::OutcomeUnknown, action, "no broker has answered");
        if world.happens(faults.lost_commits) {
            // It stays open until the next producer of this id begins.
            return Err(unknown);
        }
        world.end_transaction(transaction, true);
        for (of, offset) in offsets {
            world.write_offset(group, of, offset.clone());
        }
        if world.happens(faults.unknown_commits) {
            return Err(unknown);
        }
        Ok(())
    }

    fn probe(&mut self, group: &str, _: &TopicPartition) -> Result<(), BusError> {
        self.begin()?;
        let mut world = lock(&self.world);
        world.load_whole(group);
        if let Some(transaction) = self.transaction.take() {
            world.end_transaction(transaction, false);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cut, Faults, MemoryBus};
    use super::*;
    use crate::{Bus, Isolation};

    fn options(transactional_id: Option<&str>) -> ProducerOptions {
        ProducerOptions {
            transactional_id: transactional_id.map(str::to_owned),
            ..ProducerOptions::new(1_000, 1 << 20)
        }
    }

    fn message(value: &[u8]) -> Outgoing<'_> {
        Outgoing { topic: "t", partition: Some(0), key: None, value, headers: &[] }
    }

    #[test]
    fn a_message_that_is_to_be_lost_is_acknowledged_and_the_next_one_is_there() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 1);
        let of = TopicPartition::new("t", 0);
        let mut producer = bus.producer(options(None)).unwrap();
        let mut send = |tag: u64| {
            producer.send(&message(&[tag as u8]), tag).unwrap();
            while producer.acknowledged().below <= tag {}
            assert_eq!(producer.acknowledged().failure, None);
        };
        send(0);
        bus.lose_next(&of, 1);
        send(1);
        assert_eq!(bus.to_lose(&of), 0);
        send(2);
        let there: Vec<_> = bus.committed(&of).into_iter().map(|stored| stored.value.unwrap()).collect();
        assert_eq!(there, [[0], [2]]);
    }

    /// Whatever goes wrong: what counts as written is there, in order, and nothing behind a failure counts.
    #[test]
    fn what_is_acknowledged_is_there_and_comes_before_the_first_failure() {
        let faults = Faults { delays: 200, lost_acknowledgements: 20, given_up: 20, ..Faults::default() };
        let (mut failures, mut given_up) = (0, 0);
        for seed in 0..200 {
            let bus = MemoryBus::new(seed, faults);
            bus.make_topic("t", 1);
            let mut producer = bus.producer(options(None)).unwrap();
            for tag in 0..30_u64 {
                let _ = producer.send(&message(&tag.to_le_bytes()), tag);
            }
            let told = (0..1_000).map(|_| producer.acknowledged()).last().unwrap();
            let of = TopicPartition::new("t", 0);
            let there: Vec<u64> = bus
                .committed(&of)
                .iter()
                .map(|stored| u64::from_le_bytes(stored.value.as_deref().unwrap().try_into().unwrap()))
                .collect();
            let acknowledged: Vec<u64> = (0..told.below).collect();
            assert!(there.starts_with(&acknowledged), "seed {seed}: {there:?} {told:?}");
            assert_eq!(told.failure.is_none(), told.below == 30, "seed {seed}");
            failures += u32::from(told.failure.is_some());
            given_up += u32::from(there.windows(2).any(|pair| pair[1] != pair[0] + 1));
        }
        assert!(failures > 20 && given_up > 5, "the worst has happened: {failures} {given_up}");
    }

    /// With one request on its way at a time nothing is there that could be taken in its place.
    #[test]
    fn a_first_message_that_is_refused_is_lost_or_late_where_a_second_one_is_on_its_way() {
        let sent: Vec<u8> = (0..9).collect();
        for (requests, transactional_id) in
            [(None, None), (None, Some("id")), (Some(1), None), (Some(1), Some("id"))]
        {
            let (mut lost, mut late) = (0, 0);
            for seed in 0..40 {
                let bus = MemoryBus::new(seed, Faults { refused_firsts: 500, ..Faults::default() });
                bus.make_topic("t", 1);
                let of = TopicPartition::new("t", 0);
                let mut producer =
                    bus.producer(ProducerOptions { requests, ..options(transactional_id) }).unwrap();
                if transactional_id.is_some() {
                    producer.begin().unwrap();
                }
                for value in &sent {
                    producer.send(&message(&[*value]), u64::from(*value)).unwrap();
                }
                if transactional_id.is_some() {
                    producer.commit("g", &[]).unwrap();
                } else {
                    while producer.acknowledged().below < 9 {}
                }
                assert_eq!(producer.acknowledged().failure, None, "nobody hears of it");
                let there = bus.committed(&of).into_iter().flat_map(|stored| stored.value.unwrap());
                let there: Vec<u8> = there.collect();
                lost += u32::from(there == sent[1..]);
                late += u32::from(there.starts_with(&[1, 0]));
                let is_whole = there == sent;
                assert_eq!(is_whole, bus.happened().refused_firsts == 0, "seed {seed}: {there:?}");
            }
            let is_one = requests == Some(1);
            assert_eq!((lost > 5, late > 5), (!is_one, !is_one), "{requests:?}: {lost} lost, {late} late");
        }
    }

    #[test]
    fn a_younger_producer_fences_the_older_one_and_aborts_what_it_left() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 1);
        let of = TopicPartition::new("t", 0);
        let mut old = bus.producer(options(Some("id"))).unwrap();
        old.begin().unwrap();
        old.send(&message(b"left"), 1).unwrap();
        old.acknowledged();
        let mut new = bus.producer(options(Some("id"))).unwrap();
        assert_eq!(old.send(&message(b"late"), 2).unwrap_err().problem, Problem::Fenced);
        assert_eq!(old.commit("g", &[]).unwrap_err().problem, Problem::Fenced);
        new.begin().unwrap();
        new.send(&message(b"new"), 1).unwrap();
        assert_eq!(bus.committed(&of), [], "nothing is seen before the commit");
        let offset = GroupOffset { offset: 7, metadata: "x".to_owned() };
        new.commit("g", &[(of.clone(), offset.clone())]).unwrap();
        let seen: Vec<_> = bus.committed(&of).into_iter().filter_map(|stored| stored.value).collect();
        assert_eq!(seen, [b"new".to_vec()]);
        assert_eq!(bus.group_offset("g", &of), Some(offset));
    }

    #[test]
    fn a_consumer_is_told_of_ends_and_of_offsets_that_are_not_there() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 1);
        let of = TopicPartition::new("t", 0);
        let stored = |value: u8| Stored {
            offset: 0,
            timestamp: 0,
            key: None,
            value: Some(vec![value]),
            headers: Vec::new(),
        };
        for value in 0..5 {
            bus.append(&of, stored(value));
        }
        let options = ConsumerOptions {
            group: "g".to_owned(),
            isolation: Isolation::Committed,
            queue: 1,
            wake: Arc::new(|| {}),
        };
        let mut consumer = bus.consumer(options).unwrap();
        let number = consumer.assign(&of, 1).unwrap();
        let mut seen = Vec::new();
        let mut take = |consumer: &mut Box<dyn Consumer>, most: usize| {
            consumer.take(number, Duration::ZERO, &mut |message| {
                seen.push(message.offset);
                seen.len() < most
            })
        };
        assert_eq!(take(&mut consumer, 2), Ok(Taken { messages: 2, end: None }));
        bus.retain_from(&of, 4);
        assert_eq!(take(&mut consumer, 9).unwrap_err().problem, Problem::OutOfRange);
        let number = consumer.assign(&of, 4).unwrap();
        let taken = consumer.take(number, Duration::ZERO, &mut |_| true);
        assert_eq!(taken, Ok(Taken { messages: 1, end: Some(5) }));
        bus.cut_from(&of, 4);
        assert_eq!(
            consumer.take(number, Duration::ZERO, &mut |_| true).unwrap_err().problem,
            Problem::OutOfRange
        );
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn a_consumer_at_the_gate_gets_what_it_is_given_and_one_that_is_cut_off_nothing() {
        let bus = MemoryBus::new(1, Faults::default());
        bus.make_topic("t", 1);
        bus.gate();
        let (one, other) = (bus.client("one"), bus.client("other"));
        let of = TopicPartition::new("t", 0);
        let wakes = Arc::new(AtomicI64::new(0));
        let count = Arc::clone(&wakes);
        let mut consumer = one
            .consumer(ConsumerOptions {
                group: String::new(),
                isolation: Isolation::Uncommitted,
                queue: 1_000,
                wake: Arc::new(move || {
                    count.fetch_add(1, Ordering::Relaxed);
                }),
            })
            .unwrap();
        consumer.assign(&of, 0).unwrap();
        let mut producer = other.producer(options(None)).unwrap();
        (0..3).for_each(|tag| assert_eq!(producer.send(&message(b"m"), tag), Ok(Sent::Taken)));
        other.cut("other", Cut { writes: true, reads: false });
        assert_eq!((producer.acknowledged().below, bus.bounds(&of).unwrap().end), (0, 0));
        other.cut("other", Cut::default());
        while producer.acknowledged().below < 3 {}
        let mut take = || consumer.take(0, Duration::ZERO, &mut |_| true).unwrap().messages;
        assert_eq!((take(), wakes.load(Ordering::Relaxed)), (0, 0));
        let held = bus.held_back();
        assert_eq!((held.len(), &*held[0].client, held[0].messages), (1, "one", 3));
        bus.deliver(held[0].reader, 2);
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        bus.cut("one", Cut { writes: false, reads: true });
        assert_eq!(take(), 0);
        bus.cut("one", Cut::default());
        assert_eq!((take(), bus.held_back()[0].messages), (2, 1));
        bus.deliver(held[0].reader, 9);
        assert_eq!((take(), bus.held_back().len()), (1, 0));
    }
}
