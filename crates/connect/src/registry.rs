//! The list of plug-ins that this build has. Users' own are added with [`Registry::add_source`] and its kin.

use std::sync::Arc;

use crate::absent::Absent;
use crate::{FormatPlugin, SinkPlugin, SourcePlugin, format, sink, source};

/// Plug-ins by name, in the order in which they are listed to users.
#[derive(Clone, Default)]
pub struct Registry {
    sources: Vec<Arc<dyn SourcePlugin>>,
    sinks: Vec<Arc<dyn SinkPlugin>>,
    formats: Vec<Arc<dyn FormatPlugin>>,
    absent_sources: Vec<Absent>,
    absent_sinks: Vec<Absent>,
}

impl Registry {
    /// Everything that comes with this build.
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        registry.add_format(format::csv::Csv);
        registry.add_format(format::ndjson::Ndjson);
        registry.add_format(format::line_protocol::LineProtocol);
        registry.add_format(format::plain::Lines);
        registry.add_source(source::file::FilePlugin);
        registry.add_source(source::stdin::StdinPlugin);
        registry.add_source(source::http::HttpPlugin);
        registry.add_source(source::tcp::TcpPlugin);
        registry.add_source(source::udp::UdpPlugin);
        registry.add_source(source::sflow::SflowPlugin);
        registry.add_source(source::pcap::PcapPlugin);
        registry.add_source(source::generator::GeneratorPlugin);
        #[cfg(feature = "kafka")]
        registry.add_source(source::kafka::KafkaPlugin::default());
        #[cfg(not(feature = "kafka"))]
        registry.add_absent_source(Absent { name: "kafka", feature: "kafka" });
        registry.add_sink(sink::file::FilePlugin);
        registry.add_sink(sink::stdout::StdoutPlugin);
        registry.add_sink(sink::null::NullPlugin);
        #[cfg(feature = "influxdb")]
        registry.add_sink(sink::influx::InfluxPlugin);
        #[cfg(not(feature = "influxdb"))]
        registry.add_absent_sink(Absent { name: "influx", feature: "influxdb" });
        #[cfg(feature = "kafka")]
        registry.add_sink(sink::kafka::KafkaPlugin::default());
        #[cfg(not(feature = "kafka"))]
        registry.add_absent_sink(Absent { name: "kafka", feature: "kafka" });
        #[cfg(feature = "postgres")]
        registry.add_sink(sink::postgres::PostgresPlugin);
        #[cfg(not(feature = "postgres"))]
        registry.add_absent_sink(Absent { name: "postgres", feature: "postgres" });
        registry
    }

    pub fn add_source(&mut self, plugin: impl SourcePlugin + 'static) {
        self.sources.push(Arc::new(plugin));
    }

    pub fn add_sink(&mut self, plugin: impl SinkPlugin + 'static) {
        self.sinks.push(Arc::new(plugin));
    }

    /// Adds a source in place of one of its name.
    pub fn replace_source(&mut self, plugin: impl SourcePlugin + 'static) {
        self.sources.retain(|other| other.name() != plugin.name());
        self.add_source(plugin);
    }

    /// Adds a sink in place of one of its name.
    pub fn replace_sink(&mut self, plugin: impl SinkPlugin + 'static) {
        self.sinks.retain(|other| other.name() != plugin.name());
        self.add_sink(plugin);
    }

    /// Names a source that this build leaves out, so that a job file which asks for it learns how to get it.
    pub fn add_absent_source(&mut self, absent: Absent) {
        self.absent_sources.push(absent);
    }

    /// Names a sink that this build leaves out, so that a job file which asks for it learns how to get it.
    pub fn add_absent_sink(&mut self, absent: Absent) {
        self.absent_sinks.push(absent);
    }

    pub fn add_format(&mut self, plugin: impl FormatPlugin + 'static) {
        self.formats.push(Arc::new(plugin));
    }

    pub fn sources(&self) -> &[Arc<dyn SourcePlugin>] {
        &self.sources
    }

    pub fn sinks(&self) -> &[Arc<dyn SinkPlugin>] {
        &self.sinks
    }

    pub fn formats(&self) -> &[Arc<dyn FormatPlugin>] {
        &self.formats
    }

    pub fn source(&self, name: &str) -> Option<&Arc<dyn SourcePlugin>> {
        self.sources.iter().find(|plugin| plugin.name() == name)
    }

    pub fn sink(&self, name: &str) -> Option<&Arc<dyn SinkPlugin>> {
        self.sinks.iter().find(|plugin| plugin.name() == name)
    }

    /// The sources that this build leaves out.
    pub fn absent_sources(&self) -> &[Absent] {
        &self.absent_sources
    }

    /// The source of this name, if this build leaves it out.
    pub fn absent_source(&self, name: &str) -> Option<&Absent> {
        self.absent_sources.iter().find(|absent| absent.name == name)
    }

    /// The sinks that this build leaves out.
    pub fn absent_sinks(&self) -> &[Absent] {
        &self.absent_sinks
    }

    /// The sink of this name, if this build leaves it out.
    pub fn absent_sink(&self, name: &str) -> Option<&Absent> {
        self.absent_sinks.iter().find(|absent| absent.name == name)
    }

    pub fn format(&self, name: &str) -> Option<&Arc<dyn FormatPlugin>> {
        self.formats.iter().find(|plugin| plugin.name() == name)
    }
}
