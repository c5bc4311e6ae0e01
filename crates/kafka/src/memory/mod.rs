//! A bus in memory, for tests: brokers and clients in one process, which do from a seed what real ones do at their worst.
//!
//! What a producer or consumer is asked for happens in steps; at each step the generator decides whether it is delayed,
//! fails, or happens and is reported as failed ([`Faults`]). Nothing depends on a clock: a run with the same calls and
//! the same seed is the same run.
//!
//! A test may own what consumers get, too: behind a *gate* each of them has to be given its messages, so that one thread
//! decides who goes on, and a run is a function of its decisions whatever threads there are.
//!
//! Not modelled: time-outs by the clock, batches, replicas, access control.

mod clients;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::clients::{MemoryConsumer, MemoryProducer};
use self::world::World;
use crate::{
    Bounds, Bus, BusError, Consumer, ConsumerOptions, Group, GroupOffset, NewTopic, Problem, Producer,
    ProducerOptions, Topic, TopicId, TopicPartition,
};

/// How often, of 1,000 times, something goes wrong. All zeros are a cluster in which nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A step of a producer or consumer does nothing.
    pub delays: u32,
    /// A message is written and reported as not written.
    pub lost_acknowledgements: u32,
    /// A queued message is given up, and the next one is written.
    pub given_up: u32,
    /// A message is written twice, as after a change of the producer's epoch.
    pub doubles: u32,
    /// The first message of a producer for a partition is refused, as by a broker that does not lead it yet, and the second
    /// is taken, as no number of this producer is known there. The first is written later, or, as by librdkafka, reported as
    /// written together with the second and never there. Not where one request at a time is on its way
    /// ([`ProducerOptions::requests`]).
    pub refused_firsts: u32,
    /// A commit of a transaction happens, and its outcome is unknown.
    pub unknown_commits: u32,
    /// A commit of a transaction does not happen, and its outcome is unknown.
    pub lost_commits: u32,
    /// A transaction is aborted by the broker.
    pub aborts: u32,
    /// A transaction was open for too long: the broker has aborted it, and refuses its producer as if another one had taken
    /// over.
    pub timed_out: u32,
    /// The coordinator of a group has loaded a part of its log: until something is written to it, it answers with the offset
    /// that it was given first.
    pub partial_loads: u32,
    /// As that, but it takes the part for the whole: the group has that offset then, until another one is committed.
    pub lost_offsets: u32,
    /// A call finds no broker.
    pub outages: u32,
}

/// A message as the cluster has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What a client is cut off from, while what it does else works: it waits, and fails nowhere. Not for transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// What its producers have been given stays in their queues.
    pub writes: bool,
    /// Its consumers get nothing.
    pub reads: bool,
}

/// A consumer of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// Its number, in the order in which partitions were assigned.
    pub reader: u64,
    pub client: Arc<str>,
    pub of: TopicPartition,
    /// How many messages it may not have yet.
    pub messages: i64,
}

/// A cluster, and a client of it. Clones are the same client.
#[derive(Clone)]
pub struct MemoryBus {
    world: Arc<Mutex<World>>,
    client: Arc<str>,
}

impl MemoryBus {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(seed, faults))), client: "".into() }
    }

    /// Another client of the same cluster, under a name.
    #[must_use]
    pub fn client(&self, name: &str) -> Self {
        Self { world: Arc::clone(&self.world), client: name.into() }
    }

    /// From now on a consumer gets of a partition that it is assigned what [`MemoryBus::deliver`] gives it, and is woken then
    /// alone.
    pub fn gate(&self) {
        self.world().is_gated = true;
    }

    /// The consumers that may not have all messages yet, in the order of their numbers.
    pub fn held_back(&self) -> Vec<HeldBack> {
        let mut readers = self.world().readers();
        readers.retain(|reader| reader.messages > 0);
        readers
    }

    /// The consumers that there are, in the same order.
    pub fn readers(&self) -> Vec<HeldBack> {
        self.world().readers()
    }

    /// Gives a consumer so many messages more, and wakes it.
    pub fn deliver(&self, reader: u64, messages: i64) {
        let wake = self.world().deliver(reader, messages);
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Cuts a client off, or no more. Where it is cut off from both, other calls find no broker.
    pub fn cut(&self, client: &str, cut: Cut) {
        let wakes = {
            let mut world = self.world();
            world.cuts.insert(client.into(), cut);
            if cut.reads { Vec::new() } else { world.wakes_where(|of, _| of == client) }
        };
        // They have missed what came meanwhile.
        wakes.iter().for_each(|wake| wake());
    }

    /// Takes a topic away, or brings it back: no broker leads its partitions. Producers keep what is for it, consumers get
    /// nothing of it, and who asks for its offsets finds no broker. Not for transactions.
    pub fn take_away(&self, topic: &str, is_away: bool) {
        let wakes = {
            let mut world = self.world();
            if is_away {
                world.away.insert(topic.to_owned());
                Vec::new()
            } else {
                world.away.remove(topic);
                world.wakes_where(|_, of| *of.topic == *topic)
            }
        };
        wakes.iter().for_each(|wake| wake());
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.world().faults = faults;
    }

    /// How often messages were given up, doubled, refused as the first ones, or written and reported as not written.
    pub fn happened(&self) -> Faults {
        self.world().happened
    }

    /// What time it is for the brokers, in milliseconds since 1970; each message takes one.
    pub fn set_time(&self, now: i64) {
        self.world().clock = now;
    }

    /// As [`MemoryBus::set_time`], but never back.
    pub fn pass_time(&self, now: i64) {
        let mut world = self.world();
        world.clock = now.max(world.clock);
    }

    /// Makes a topic, or one in its place: with another id, and without messages.
    pub fn make_topic(&self, name: &str, partitions: i32) {
        self.world().make_topic(name, partitions);
    }

    /// Adds partitions to a topic.
    pub fn widen_topic(&self, name: &str, partitions: i32) {
        self.world().widen_topic(name, partitions);
    }

    /// Appends a message, as another client would; its offset.
    ///
    /// # Panics
    /// If the partition does not exist.
    pub fn append(&self, to: &TopicPartition, message: Stored) -> i64 {
        self.world().append(to, message).expect("a partition that exists")
    }

    /// The next messages of clients for a partition, `count` of them, are acknowledged and never there, as where brokers lose
    /// what they had.
    pub fn lose_next(&self, to: &TopicPartition, count: u32) {
        self.world().losing.insert(to.clone(), count);
    }

    /// Messages of [`MemoryBus::lose_next`] that are still to come.
    pub fn to_lose(&self, to: &TopicPartition) -> u32 {
        self.world().losing.get(to).copied().unwrap_or(0)
    }

    /// Deletes messages below an offset, as retention does.
    pub fn retain_from(&self, of: &TopicPartition, offset: i64) {
        self.world().retain_from(of, offset);
    }

    /// Cuts messages from an offset on, as a broker that has lost its end.
    pub fn cut_from(&self, of: &TopicPartition, offset: i64) {
        self.world().cut_from(of, offset);
    }

    /// The messages of a partition that a reader with `read_committed` sees.
    pub fn committed(&self, of: &TopicPartition) -> Vec<Stored> {
        self.world().committed(of)
    }

    /// What a group has committed.
    pub fn group_offset(&self, group: &str, of: &TopicPartition) -> Option<GroupOffset> {
        self.world().groups.get(&(group.to_owned(), of.clone())).cloned()
    }

    fn reach(&self, action: &str) -> Result<MutexGuard<'_, World>, BusError> {
        let mut world = self.world();
        let outages = world.faults.outages;
        let is_cut = world.cut_of(&self.client) == Cut { writes: true, reads: true };
        if is_cut || world.happens(outages) {
            return Err(BusError::new(Problem::Unreachable, action, "no broker answers"));
        }
        Ok(world)
    }
}

impl Bus for MemoryBus {
    fn topics(&self, names: Option<&[Arc<str>]>) -> Result<Vec<Topic>, BusError> {
        let world = self.reach("look up topics")?;
        let named: Vec<Arc<str>> = match names {
            Some(names) => names.to_vec(),
            None => world.topics.keys().map(|name| name.as_str().into()).collect(),
        };
        let look = |name: Arc<str>| match world.topics.get(&*name) {
            Some(topic) => {
                let (id, partitions) = (Some(TopicId(topic.id)), topic.partitions.len() as i32);
                Ok(Topic { name, id, partitions, copies: 1 })
            }
            None => {
                let action = format!("look up topic {name:?}");
                Err(BusError::new(Problem::NoTopic, action, "it does not exist"))
            }
        };
        named.into_iter().map(look).collect()
    }

    fn bounds(&self, of: &TopicPartition) -> Result<Bounds, BusError> {
        let action = format!("look up the offsets of {of}");
        let world = self.reach(&action)?;
        if world.is_away(&of.topic) {
            return Err(BusError::new(Problem::Unreachable, action, "no broker leads it"));
        }
        world.bounds(of)
    }

    fn offsets_at(&self, of: &[TopicPartition], time: i64) -> Result<Vec<i64>, BusError> {
        let world = self.reach("look up offsets by time")?;
        of.iter().map(|of| world.offset_at(of, time)).collect()
    }

    fn consumer(&self, options: ConsumerOptions) -> Result<Box<dyn Consumer>, BusError> {
        Ok(Box::new(MemoryConsumer::new(Arc::clone(&self.world), Arc::clone(&self.client), options)))
    }

    fn producer(&self, options: ProducerOptions) -> Result<Box<dyn Producer>, BusError> {
        let mut world = self.reach("make a producer")?;
        let id = options.transactional_id.clone();
        let epoch = id.map(|id| (world.begin_epoch(&id), id));
        drop(world);
        let (world, client) = (Arc::clone(&self.world), Arc::clone(&self.client));
        Ok(Box::new(MemoryProducer::new(world, client, options, epoch)))
    }

    fn group(&self, group: &str) -> Result<Box<dyn Group>, BusError> {
        Ok(Box::new(MemoryGroup { bus: self.clone(), name: group.to_owned() }))
    }

    fn create_topic(&self, topic: &NewTopic) -> Result<bool, BusError> {
        let mut world = self.reach("make a topic")?;
        let is_new = !world.topics.contains_key(&topic.name);
        if is_new {
            world.make_topic(&topic.name, topic.partitions);
        }
        Ok(is_new)
    }

    fn delete_records(&self, of: &TopicPartition, below: i64) -> Result<(), BusError> {
        self.reach("delete records")?.retain_from(of, below);
        Ok(())
    }
}

/// Offsets of a group.
struct MemoryGroup {
    bus: MemoryBus,
    name: String,
}

impl Group for MemoryGroup {
    fn offsets(&mut self, of: &[TopicPartition]) -> Result<Vec<Option<GroupOffset>>, BusError> {
        let mut world = self.bus.reach("look up the offsets of a group")?;
        world.may_load_in_part(&self.name);
        world.may_lose_offsets(&self.name);
        Ok(of.iter().map(|of| world.told_offset(&self.name, of)).collect())
    }

    fn commit(&mut self, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError> {
        let mut world = self.bus.reach("commit offsets of a group")?;
        for (of, offset) in offsets {
            world.write_offset(&self.name, of, offset.clone());
        }
        Ok(())
    }
}
