//! What is asked of a stage.

use std::path::Path;
use std::sync::Arc;

use thalweg_cluster::control::Name;
use thalweg_connect::source::kafka::SharedTopic;
use thalweg_connect::{Options, SinkPlugin, SourcePlugin, SourceTime};
use thalweg_types::{Error, Schema};

use super::{Reads, StageCut};
use crate::durable;
use crate::graph::source_context;
use crate::job_file::{Ack, CheckedJob, CheckedSink, CheckedSource};
use crate::operator::PartName;

impl StageCut {
    /// `state.chunk_memory` of the job.
    pub(in crate::cluster) fn chunk_memory(&self) -> Option<u64> {
        self.job.state.chunk_memory
    }

    /// Whether doors wait for answers of the stage.
    pub(in crate::cluster) fn answers(&self) -> bool {
        self.job.sources[0].reply.is_some()
    }

    /// Whether operators of it emit at ticks.
    pub(in crate::cluster) fn has_ticks(&self) -> bool {
        self.job.operators.iter().any(|operator| operator.prepared.at_ticks)
    }

    /// The part of the operator that judges rows by the time that those hold who send them, as the graph names it; `None` where
    /// only doors send.
    pub(in crate::cluster) fn judge(&self) -> Option<Arc<str>> {
        let operator = self.job.operators.iter().find(|operator| operator.name == self.operator)?;
        let part = operator.prepared.parts.iter().find(|part| part.judges)?;
        let name = PartName { operator: Arc::clone(&self.operator), label: part.label.clone() };
        (self.place > 0).then(|| name.to_string().into())
    }

    /// Its sinks that write to other systems, by place.
    pub(in crate::cluster) fn outside(&self) -> Vec<usize> {
        // That which sends to the next stage is not there yet.
        let sinks = self.job.sinks.iter().enumerate();
        let writes = |sink: &CheckedSink| sink.plugin.writes_for_units(&sink.options).unwrap_or(false);
        sinks.filter(|(_, sink)| writes(sink)).map(|(place, _)| place).collect()
    }

    /// Its sinks of type `table`: their names, what they read, and their options.
    #[cfg(feature = "tables")]
    pub(in crate::cluster) fn tables(&self) -> impl Iterator<Item = (&str, &Schema, &Options)> {
        self.table_sinks().map(|sink| (&*sink.name, &sink.schema, &sink.options))
    }

    fn table_sinks(&self) -> impl Iterator<Item = &CheckedSink> {
        self.job.sinks.iter().filter(|sink| sink.plugin.name() == "table")
    }

    /// The names of its tables.
    pub fn table_names(&self) -> impl Iterator<Item = &str> {
        self.table_sinks().map(|sink| &*sink.name)
    }

    /// The names of those that write to other systems.
    pub fn outside_names(&self) -> impl Iterator<Item = &str> {
        self.outside().into_iter().map(|sink| &*self.job.sinks[sink].name)
    }

    /// Its name in the control log.
    pub(in crate::cluster) fn name_in_cluster(&self) -> Result<Name, Error> {
        Name::new(&self.name)
            .ok_or_else(|| Error::internal(format!("stage {:?} has no name in a cluster", self.name)))
    }

    /// The name of the job of one of its units.
    pub(in crate::cluster) fn unit_name(&self, partition: u32) -> Arc<str> {
        format!("{}/{}/{partition}", self.job.name, self.name).into()
    }

    /// Whether its units may go on with the state that those of `before` have kept.
    ///
    /// # Errors
    /// Of class user: says what differs.
    pub(in crate::cluster) fn goes_on_from(&self, before: &StageCut) -> Result<(), Error> {
        durable::check_change(&before.job, &self.job)
    }

    /// The streams of one of its units: records, and what was said of them.
    pub(in crate::cluster) fn outputs(&self) -> Vec<Schema> {
        if self.said.is_empty() {
            return self.streams.to_vec();
        }
        let fields = self.streams[0].fields();
        let records = Schema::new(fields[..fields.len() - self.said.len()].to_vec());
        std::iter::once(records).chain(self.said.iter().cloned()).collect()
    }

    /// The topic of others that it reads.
    pub fn topic(&self) -> Option<&Arc<str>> {
        match &self.reads {
            Reads::Topic(topic) => Some(topic),
            Reads::Log | Reads::Sources => None,
        }
    }

    /// The names of its sinks that are written at its node.
    pub fn written_names(&self) -> impl Iterator<Item = &str> {
        let written = self.job.sinks.iter().filter(|sink| sink.node.is_some());
        written.map(|sink| &*sink.name)
    }

    /// Opens the topic of others that it reads.
    ///
    /// # Errors
    /// As [`SourcePlugin::open_topic`].
    pub(in crate::cluster) fn open_topic(&self, data_dir: &Path) -> Result<SharedTopic, Error> {
        let source = &self.job.sources[0];
        let topic = source.plugin.open_topic(&source_context(&self.job, source, data_dir))?;
        topic.ok_or_else(|| Error::internal(format!("stage {} reads no topic of others", self.name)))
    }

    /// The job of one of its units, which reads `plugin` if that is not the sources of the job, and sends to the next stage by
    /// `outlet` where there is one.
    pub(in crate::cluster) fn job(
        &self,
        partition: u32,
        plugin: Option<Arc<dyn SourcePlugin>>,
        outlet: Option<Arc<dyn SinkPlugin>>,
    ) -> CheckedJob {
        let mut job = self.job.clone();
        if let Some(outlet) = outlet {
            job.sinks[0].plugin = outlet;
        }
        job.name = self.unit_name(partition);
        job.is_held = self.place > 0;
        job.state.memory = job.state.memory.map(|bytes| bytes / u64::from(self.partitions.max(1)));
        let Some(plugin) = plugin else { return job };
        if self.topic().is_some() {
            let source = &mut job.sources[0];
            (source.plugin, source.by_time, source.ack) = (plugin, false, Ack::None);
            (source.tasks, source.declared_tasks) = (1, Some(1));
            return job;
        }
        job.sources[0] = CheckedSource {
            name: "log".into(),
            plugin,
            format: None,
            options: Options::default(),
            schema: self.outputs()[0].clone(),
            time: SourceTime::Arrival,
            id: None,
            dedup: None,
            by_time: false,
            max_ahead: None,
            ack: Ack::None,
            reject_limit: None,
            tasks: 1,
            declared_tasks: Some(1),
            reply_name: None,
            node: None,
            ..job.sources[0].clone()
        };
        job
    }
}
