//! Looks for new topics and partitions while a source runs, and sees that those it reads stay what they are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use regex::Regex;
use thalweg_kafka::{Bus, Topic, TopicId, TopicPartition};
use thalweg_types::Error;
use tracing::warn;

use super::place::{Known, Place};
use super::source::Shared;

/// The topics of a source.
#[derive(Clone)]
pub(super) enum Wanted {
    Names(Vec<Arc<str>>),
    /// Topics whose whole name it matches.
    Pattern(Regex),
}

impl Wanted {
    /// The topics that there are now, in the order in which they are named, or of their names.
    ///
    /// # Errors
    /// If no broker says, or a name is no topic.
    pub(super) fn topics(&self, bus: &dyn Bus) -> Result<Vec<Topic>, Error> {
        match self {
            Self::Names(names) => Ok(bus.topics(Some(names))?),
            Self::Pattern(pattern) => {
                // Topics of Kafka's own begin so, and nobody means them.
                let is_wanted =
                    |topic: &Topic| !topic.name.starts_with("__") && pattern.is_match(&topic.name);
                let mut topics: Vec<Topic> = bus.topics(None)?.into_iter().filter(is_wanted).collect();
                topics.sort_by(|one, other| one.name.cmp(&other.name));
                Ok(topics)
            }
        }
    }
}

pub(super) struct Watch {
    /// `None`: nothing is looked for.
    task: Option<Task>,
    /// Dropped to end the thread.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

struct Task {
    bus: Arc<dyn Bus>,
    wanted: Wanted,
    every: Duration,
}

impl Watch {
    pub(super) fn nothing() -> Self {
        Self { task: None, running: None }
    }

    pub(super) fn new(bus: Arc<dyn Bus>, wanted: Wanted, every: Duration) -> Self {
        Self { task: Some(Task { bus, wanted, every }), running: None }
    }

    /// Starts to look.
    ///
    /// # Errors
    /// If there is no thread.
    pub(super) fn start(
        &mut self,
        shared: Arc<Shared>,
        known: impl Iterator<Item = (TopicPartition, Option<TopicId>)>,
    ) -> Result<(), Error> {
        let Some(task) = self.task.take() else { return Ok(()) };
        let (end, ended) = mpsc::channel();
        let mut ids: HashMap<Arc<str>, Option<TopicId>> = HashMap::new();
        let mut counts: HashMap<Arc<str>, i32> = HashMap::new();
        for (of, id) in known {
            ids.insert(Arc::clone(&of.topic), id);
            let count = counts.entry(of.topic).or_default();
            *count = (*count).max(of.partition + 1);
        }
        let watch = move || {
            while ended.recv_timeout(task.every) == Err(RecvTimeoutError::Timeout) {
                match task.wanted.topics(&*task.bus) {
                    Ok(topics) => look(&*task.bus, &topics, &mut ids, &mut counts, &shared),
                    Err(error) => warn!(error = error.chain(), "cannot look for new partitions"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("connect:kafka".to_owned()).spawn(watch);
        let thread = thread
            .map_err(|error| Error::external("start a thread that watches topics").with_source(error))?;
        self.running = Some((end, thread));
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // A panic there has said so by itself.
            let _ = thread.join();
        }
    }
}

fn look(
    bus: &dyn Bus,
    topics: &[Topic],
    ids: &mut HashMap<Arc<str>, Option<TopicId>>,
    counts: &mut HashMap<Arc<str>, i32>,
    shared: &Shared,
) {
    let mut found = Vec::new();
    for Topic { name, id, partitions, .. } in topics {
        match ids.get(name) {
            Some(Some(had)) if id.is_some_and(|id| id != *had) => {
                shared.news().failure = Some(topic_made_anew(name));
                shared.wake();
                return;
            }
            _ => {
                ids.insert(Arc::clone(name), *id);
            }
        }
        let count = counts.entry(Arc::clone(name)).or_default();
        while *count < *partitions {
            let of = TopicPartition::new(Arc::clone(name), *count);
            // From its beginning, whatever `from` says: it had none of its records before.
            let place = match bus.bounds(&of) {
                Ok(bounds) => Place::at(bounds.start),
                Err(error) => {
                    warn!(%error, "cannot read a new partition yet");
                    break;
                }
            };
            found.push(Known { of, id: *id, place });
            *count += 1;
        }
    }
    if !found.is_empty() {
        shared.news().found.append(&mut found);
        shared.wake();
    }
}

/// A topic is not the one that was read.
pub(super) fn topic_made_anew(name: &str) -> Error {
    Error::corrupt(format!(
        "topic {name:?} was deleted and made anew: it has another id than the one that was read"
    ))
    .with_hint("begin anew with another job name or --data-dir")
}
