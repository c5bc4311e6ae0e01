//! `/metrics` in the text format of Prometheus.
//!
//! * `cluster`: counts of units and doors, where the node is in a cluster.
//! * `http`: counts of this server.
//! * `jobs`: counts of jobs.
//! * `sql`: counts of the processes that run queries.
//! * `text`: how a family of series is written.

mod cluster;
mod http;
mod jobs;
mod sql;
mod text;

use crate::Sql;
use crate::figures::single;
use crate::snapshot::JobSnapshot;
use thalweg_node::cluster_view::NodeFigures;

#[cfg(test)]
pub(crate) use http::STATUSES;
pub(crate) use http::Telemetry;

use text::Text;

pub(crate) fn render(
    telemetry: &Telemetry,
    evicted: u64,
    jobs: &[JobSnapshot],
    cluster: Option<&NodeFigures>,
    queries: Option<&Sql>,
    is_ready: bool,
) -> String {
    let mut text = Text::default();
    text.family(&single::BUILD);
    text.series(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(&single::READY);
    text.series(&[], u8::from(is_ready));
    jobs::write(jobs, &mut text);
    if let Some(cluster) = cluster {
        cluster::write(cluster, &mut text);
    }
    telemetry.write(evicted, &mut text);
    if let Some(queries) = queries {
        sql::write(queries, &mut text);
    }
    text.finish()
}
