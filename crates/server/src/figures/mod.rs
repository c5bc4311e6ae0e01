//! All figures of a node: what `/metrics`, the JSON of jobs, `/openapi.json` and `docs/metrics.md` are made of.
//!
//! * `groups`: those of jobs that are made of a snapshot.
//! * `single`: families with labels of their own.
//! * `shown`: a group as JSON, with its schema.
//!
//! Groups that are counted further down are declared there, with [`thalweg_flow::figures!`]. [`sections`] lists all, as the
//! documentation has them; a test holds the document to it.

pub(crate) mod groups;
mod shown;
pub(crate) mod single;

#[cfg(test)]
mod tests;

pub(crate) use shown::{Shown, rounded};

#[cfg(test)]
use thalweg_connect::{DeliveryCounts, Expired};
#[cfg(test)]
use thalweg_flow::figure::{Figure, Figures};
#[cfg(test)]
use thalweg_flow::{
    AgentCounts, CacheCounts, ClockStats, DatagramCounts, JudgedCounts, PartitionCounts, TableCounts,
};

/// A section of the documentation: its title, and its figures with the labels of each.
#[cfg(test)]
struct Section {
    title: &'static str,
    figures: Vec<(&'static [&'static str], Figure)>,
}

#[cfg(test)]
impl Section {
    fn new(title: &'static str) -> Self {
        Self { title, figures: Vec::new() }
    }

    fn single(mut self, labels: &'static [&'static str], figures: &[Figure]) -> Self {
        self.figures.extend(figures.iter().map(|figure| (labels, *figure)));
        self
    }

    fn group<T: Figures>(self, labels: &'static [&'static str]) -> Self {
        self.single(labels, T::FIGURES)
    }
}

#[cfg(test)]
fn sections() -> Vec<Section> {
    use groups::{Commits, Connections, JobFigures, Kernel, LinkFigures, OperatorFigures, SourceFigures};
    use single::*;
    use thalweg_node::cluster_view::{ClusterFigures, DoorFigures, UnitFigures};
    const JOB: &[&str] = &["job"];
    const SOURCE: &[&str] = &["job", "source"];
    const AGENT: &[&str] = &["job", "source", "agent"];
    const OPERATOR: &[&str] = &["job", "operator"];
    vec![
        Section::new("Node").single(&["version"], &[BUILD]).single(&[], &[READY, OMITTED]),
        Section::new("HTTP and SQL")
            .single(&["method", "route", "status"], &[HTTP_REQUESTS])
            .single(&["method", "route"], &[HTTP_DURATION])
            .single(&[], &[HTTP_IN_FLIGHT, HTTP_CONNECTIONS, HTTP_ACCEPTED, HTTP_EVICTED])
            .single(&[], &[SQL_WORKERS, SQL_STARTED])
            .single(&["reason"], &[SQL_STOPPED]),
        Section::new("Jobs")
            .single(&["job", "state"], &[JOB_STATE])
            .group::<JobFigures>(JOB)
            .group::<Commits>(JOB)
            .group::<ClockStats>(JOB),
        Section::new("Sources").group::<SourceFigures>(SOURCE).group::<Connections>(SOURCE),
        Section::new("Datagrams and agents")
            .group::<DatagramCounts>(SOURCE)
            .group::<Kernel>(SOURCE)
            .single(&["job", "source", "kind"], &[LEFT_OUT])
            .group::<AgentCounts>(AGENT),
        Section::new("Partitions").group::<PartitionCounts>(&["job", "source", "partition"]),
        Section::new("Operators and sinks")
            .group::<OperatorFigures>(OPERATOR)
            .group::<JudgedCounts>(OPERATOR)
            .single(OPERATOR, &[LATENCY, MARKERS, MARKER_CPU])
            .group::<CacheCounts>(OPERATOR)
            .group::<TableCounts>(OPERATOR)
            .group::<Expired>(OPERATOR)
            .group::<DeliveryCounts>(OPERATOR),
        Section::new("Links").group::<LinkFigures>(&["job", "from", "output", "to"]),
        Section::new("Cluster")
            .group::<ClusterFigures>(&[])
            .group::<UnitFigures>(&["job", "stage", "partition"])
            .group::<DoorFigures>(JOB),
    ]
}
