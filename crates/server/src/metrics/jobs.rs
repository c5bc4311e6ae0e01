//! Counts of jobs, by job and source, operator or link.
//!
//! Names are users' own, so the number of series is bounded here: jobs beyond the bound are left out whole, in the
//! order of the list, and counted.

use std::time::Duration;

use thalweg_flow::LatencyCounts;
use thalweg_flow::figure::Figures;

use super::text::Text;
use crate::figures::groups::{Connections, JobFigures, Kernel, LinkFigures, OperatorFigures, SourceFigures};
use crate::figures::single;
use crate::snapshot::{JobSnapshot, OperatorSnapshot, SourceSnapshot, State};

/// Upper bounds of latencies in microseconds. Powers of two, as counts are exact for those.
const BOUNDS: [u64; 10] =
    [1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

/// Sources, operators and links together.
const MOST_PARTS: usize = 2_000;

pub(super) fn write(jobs: &[JobSnapshot], text: &mut Text) {
    let mut parts = 0;
    let mut shown: Vec<&JobSnapshot> = Vec::new();
    for job in jobs {
        parts += job.sources.len() + job.operators.len() + job.links.len() + 1;
        if parts > MOST_PARTS {
            break;
        }
        shown.push(job);
    }
    text.family(&single::OMITTED);
    text.series(&[], jobs.len() - shown.len());
    per_job(&shown, text);
    per_source(&shown, text);
    per_operator(&shown, text);
    per_link(&shown, text);
}

fn per_job(jobs: &[&JobSnapshot], text: &mut Text) {
    text.family(&single::JOB_STATE);
    for job in jobs {
        for state in State::ALL {
            text.series(&[("job", &job.name), ("state", state.as_str())], u8::from(job.state == state));
        }
    }
    group(jobs, text, JobFigures::of);
    group(jobs, text, |job| job.commits.unwrap_or_default());
    group(jobs, text, |job| job.clock);
}

fn group<T: Figures>(jobs: &[&JobSnapshot], text: &mut Text, of: impl Fn(&JobSnapshot) -> T) {
    let all = jobs.iter().map(|job| (vec![("job", job.name.as_str())], of(job)));
    text.group(&all.collect::<Vec<_>>());
}

/// The group of each source that has it.
fn sources<T: Figures>(jobs: &[&JobSnapshot], text: &mut Text, of: impl Fn(&SourceSnapshot) -> Option<T>) {
    let all = jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
    let all = all.filter_map(|(job, source)| {
        Some((vec![("job", job.name.as_str()), ("source", source.name.as_str())], of(source)?))
    });
    text.group(&all.collect::<Vec<_>>());
}

fn per_source(jobs: &[&JobSnapshot], text: &mut Text) {
    sources(jobs, text, |source| Some(SourceFigures::of(source)));
    sources(jobs, text, |source| source.connections.as_deref().map(Connections::of));
    sources(jobs, text, |source| source.datagrams.as_ref().map(|datagrams| datagrams.total));
    sources(jobs, text, |source| {
        source.datagrams.as_ref().map(|datagrams| Kernel { kernel_drops: datagrams.kernel_drops })
    });
    text.family(&single::LEFT_OUT);
    for job in jobs {
        for source in &job.sources {
            for (kind, count) in source.datagrams.iter().flat_map(|datagrams| datagrams.all_left_out()) {
                text.series(&[("job", &job.name), ("source", &source.name), ("kind", kind)], count);
            }
        }
    }
    per_agent(jobs, text);
    per_partition(jobs, text);
}

/// Of sources of partitions, by partition: the ones that are most behind.
fn per_partition(jobs: &[&JobSnapshot], text: &mut Text) {
    let sources = jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
    let all = sources.flat_map(|(job, source)| {
        let mut partitions: Vec<_> = source.partitions.iter().flatten().collect();
        partitions.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.lag));
        partitions.truncate(MOST_PARTITIONS);
        partitions.sort_by(|one, other| one.0.cmp(&other.0));
        partitions.into_iter().map(move |(partition, counts)| {
            let labels = vec![
                ("job", job.name.as_str()),
                ("source", source.name.as_str()),
                ("partition", &**partition),
            ];
            (labels, *counts)
        })
    });
    text.group(&all.collect::<Vec<_>>());
}

/// Partitions of a source that are shown.
const MOST_PARTITIONS: usize = 256;

/// Of sources of packet samples, by agent: those that lost most.
fn per_agent(jobs: &[&JobSnapshot], text: &mut Text) {
    let sources = jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
    let agents = sources.flat_map(|(job, source)| {
        let agents = source.datagrams.iter().flat_map(|datagrams| &datagrams.agents);
        agents.flat_map(|agents| &agents.worst).map(move |(agent, counts)| (job, source, agent, counts))
    });
    let agents: Vec<_> =
        agents.map(|(job, source, agent, counts)| (job, source, agent.to_string(), *counts)).collect();
    let all = agents.iter().map(|(job, source, agent, counts)| {
        let labels =
            vec![("job", job.name.as_str()), ("source", source.name.as_str()), ("agent", agent.as_str())];
        (labels, *counts)
    });
    text.group(&all.collect::<Vec<_>>());
}

/// The group of each operator that has it.
fn operators<T: Figures>(
    jobs: &[&JobSnapshot],
    text: &mut Text,
    of: impl Fn(&OperatorSnapshot) -> Option<T>,
) {
    let all = jobs.iter().flat_map(|job| job.operators.iter().map(move |operator| (job, operator)));
    let all = all.filter_map(|(job, operator)| {
        Some((vec![("job", job.name.as_str()), ("operator", operator.name.as_str())], of(operator)?))
    });
    text.group(&all.collect::<Vec<_>>());
}

fn per_operator(jobs: &[&JobSnapshot], text: &mut Text) {
    operators(jobs, text, |operator| Some(OperatorFigures::of(operator)));
    operators(jobs, text, OperatorSnapshot::judged);
    operators(jobs, text, OperatorSnapshot::cache);
    operators(jobs, text, OperatorSnapshot::table);
    operators(jobs, text, |operator| operator.expired);
    operators(jobs, text, |operator| operator.delivery);
    text.family(&single::LATENCY);
    histogram(jobs, text, |operator| &operator.latency);
    text.family(&single::MARKERS);
    histogram(jobs, text, |operator| &operator.markers);
    text.family(&single::MARKER_CPU);
    histogram(jobs, text, |operator| &operator.marker_cpu);
}

fn histogram(jobs: &[&JobSnapshot], text: &mut Text, counts: fn(&OperatorSnapshot) -> &LatencyCounts) {
    for (job, operator) in
        jobs.iter().flat_map(|job| job.operators.iter().map(move |operator| (job, operator)))
    {
        let (counts, all) = (counts(operator), counts(operator).records());
        if all == 0 {
            continue;
        }
        let labels = [("job", job.name.as_str()), ("operator", operator.name.as_str())];
        for micros in BOUNDS {
            let bound = (micros as f64 / 1e6).to_string();
            let below = counts.below(Duration::from_micros(micros));
            text.part("_bucket", &[labels[0], labels[1], ("le", &bound)], below);
        }
        text.part("_bucket", &[labels[0], labels[1], ("le", "+Inf")], all);
        text.part("_sum", &labels, counts.sum().as_secs_f64());
        text.part("_count", &labels, all);
    }
}

fn per_link(jobs: &[&JobSnapshot], text: &mut Text) {
    let links = jobs.iter().flat_map(|job| job.links.iter().map(move |link| (job, link)));
    let links: Vec<_> = links.map(|(job, link)| (job, link, link.output.to_string())).collect();
    let all = links.iter().map(|(job, link, output)| {
        let labels = vec![
            ("job", job.name.as_str()),
            ("from", link.from.as_str()),
            ("output", output.as_str()),
            ("to", link.to.as_str()),
        ];
        (labels, LinkFigures::of(link))
    });
    text.group(&all.collect::<Vec<_>>());
}
