//! Partitions that a topic of others gets while a job reads it.
//!
//! How many are read is part of a job's text, so that all nodes go by the same number. The oldest node asks the brokers of
//! the topic, as often as its source says (`refresh`), and gives the job a text with all of them.
//!
//! A partition that was made while the job ran is read from its beginning, whatever `from` says: that is of what was there
//! before. Its units are to find so, and the group has it before the text counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use thalweg_cluster::control::{Name, Record};
use thalweg_cluster::fold::{Job, State};
use thalweg_connect::source::kafka::SharedTopic;
use thalweg_kafka::{GroupOffset, TopicPartition};
use thalweg_types::{Error, Micros};

use super::actor::{Actor, Next, since};
use super::asked::{changed, texts_of};
use super::host::{spec_of, stage_topic};
use super::member::Member;
use super::texts::Texts;
use super::units::units_group;
use crate::job_file::CheckOptions;

/// How soon it is seen that this node is the oldest one, or a job has another text.
const LOOK: Duration = Duration::from_secs(1);

/// A node that has not heard itself for so long may be the oldest no more.
const RECENT: Duration = Duration::from_secs(3);

/// Looks for such partitions.
pub(super) struct Growing {
    member: Arc<Member>,
    check: CheckOptions,
    /// Of stages whose operator does not say.
    partitions: Option<u32>,
    /// Jobs of the control log, and their topics.
    read: BTreeMap<Name, Read>,
}

/// What a job reads by one of its texts.
struct Read {
    number: u64,
    texts: Arc<Texts>,
    /// `None` where it reads no topic.
    topic: Option<Topic>,
}

struct Topic {
    stage: Arc<str>,
    shared: SharedTopic,
    /// Those that are read.
    partitions: u32,
    asked: Option<Micros>,
}

impl Growing {
    pub(super) fn new(member: Arc<Member>, check: CheckOptions, partitions: Option<u32>) -> Self {
        Self { member, check, partitions, read: BTreeMap::new() }
    }

    /// Asks for the topics of all jobs whose time has come.
    fn look(&mut self, state: &State, now: Micros) -> Duration {
        let mut known = std::mem::take(&mut self.read);
        known.retain(|name, _| state.job(name).is_some_and(|job| !job.stopped));
        let mut wait = LOOK;
        for (name, job) in state.jobs().filter(|(_, job)| !job.stopped) {
            if known.get(name).is_none_or(|read| read.number != job.number) {
                known.insert(name.clone(), self.open(name, job));
            }
            let Some(read) = known.get_mut(name) else { continue };
            let Some(topic) = &mut read.topic else { continue };
            let every = topic.shared.refresh;
            wait = wait.min(every);
            if topic.asked.is_some_and(|asked| since(asked, now) < every) {
                continue;
            }
            topic.asked = Some(now);
            let looked = topic.shared.partitions().and_then(|count| match count > topic.partitions {
                true => self.grow((name, job), &read.texts, topic, count),
                false => Ok(()),
            });
            if let Err(error) = looked {
                tracing::warn!(
                    job = %name,
                    source = &*topic.stage,
                    error = error.chain(),
                    "whether the topic has more partitions is not known"
                );
            }
        }
        self.read = known;
        wait
    }

    /// A text that cannot be read here, or a topic that cannot be opened, is said by the host.
    fn open(&self, name: &Name, job: &Job) -> Read {
        let texts = texts_of(self.check.clone(), self.partitions);
        let topic = texts.cut(&spec_of(job)).ok().and_then(|cut| {
            let stage = cut.stages.iter().find(|stage| stage.topic().is_some())?;
            let shared = stage.open_topic(Path::new("")).ok()?;
            let partitions = stage.partitions;
            Some(Topic { stage: Arc::clone(&stage.name), shared, partitions, asked: None })
        });
        tracing::debug!(job = %name, number = job.number, reads = topic.is_some(), "looks for partitions");
        Read { number: job.number, texts, topic }
    }

    /// Gives a job a text by which it reads so many partitions.
    fn grow(
        &self,
        (name, job): (&Name, &Job),
        texts: &Texts,
        topic: &Topic,
        count: u32,
    ) -> Result<(), Error> {
        let Topic { stage, shared, partitions: before, .. } = topic;
        let options = (&self.check, self.partitions);
        let spec = changed(texts, job, options, |json| {
            json["sources"][&**stage]["partitions"] = count.into();
            Ok(())
        })?;
        let new: Vec<TopicPartition> = (*before..count)
            .map(|partition| {
                TopicPartition::new(&*shared.topic, i32::try_from(partition).unwrap_or(i32::MAX))
            })
            .collect();
        let group = units_group(&stage_topic(&self.member.options().prefix, name.as_str(), stage));
        let mut group = shared.bus.group(&group)?;
        let known = group.offsets(&new)?;
        let unknown = new.into_iter().zip(known).filter(|(_, known)| known.is_none());
        let begin = unknown.map(|(of, _)| {
            let offset = shared.bus.bounds(&of)?.start;
            Ok((of, GroupOffset { offset, metadata: String::new() }))
        });
        let begin: Vec<_> = begin.collect::<Result<_, Error>>()?;
        if !begin.is_empty() {
            group.commit(&begin)?;
        }
        tracing::info!(
            job = %name,
            number = spec.number,
            source = &**stage,
            topic = &*shared.topic,
            "the topic has {count} partitions, and the job reads the first {before}: it gets a text with all"
        );
        self.member.append(Record::Spec(spec));
        Ok(())
    }
}

impl Actor for Growing {
    fn step(&mut self, now: Micros) -> Next {
        if self.member.is_over() {
            return Next::Over;
        }
        let state = self.member.state();
        let is_oldest = state.by_age().first().is_some_and(|oldest| **oldest == self.member.process().name);
        if !is_oldest || !self.member.is_recent(now, RECENT) {
            self.read.clear();
            return Next::Within(LOOK);
        }
        Next::Within(self.look(&state, now))
    }
}
