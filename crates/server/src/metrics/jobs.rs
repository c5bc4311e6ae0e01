//! Counts of jobs, by job and source, operator or link.
//!
//! Names are users' own, so the number of series is bounded here: jobs beyond the bound are left out whole, in the
//! order of the list, and counted.

use std::time::Duration;

use thalweg_connect::Expired;
use thalweg_connect::source::connections::ConnectionCounts;
use thalweg_flow::{AgentCounts, CacheCounts, JudgedCounts, LatencyCounts, TableCounts};

use super::text::Text;
use crate::snapshot::{
    Commits, JobSnapshot, LinkSnapshot, OperatorSnapshot, SourceSnapshot, State, TaskSnapshot,
};

/// Name, kind, help, and the value of each series.
type Family<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

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
    text.family(
        "thalweg_metrics_omitted_jobs",
        "gauge",
        "Jobs left out here because there are too many series.",
    );
    text.series(&[], jobs.len() - shown.len());
    per_job(&shown, text);
    per_source(&shown, text);
    per_operator(&shown, text);
    per_link(&shown, text);
}

fn commits(job: &JobSnapshot) -> Commits {
    job.commits.unwrap_or_default()
}

fn per_job(jobs: &[&JobSnapshot], text: &mut Text) {
    text.family("thalweg_job_state_info", "gauge", "1 for the state that the job is in.");
    for job in jobs {
        for state in State::ALL {
            text.series(&[("job", &job.name), ("state", state.as_str())], u8::from(job.state == state));
        }
    }
    let families: [Family<JobSnapshot>; 9] = [
        ("thalweg_answers_total", "counter", "Answers that left the job.", |job| job.answers as f64),
        ("thalweg_rejects_removed_bytes_total", "counter", "Rejects that made room for newer ones.", |job| {
            job.rejects_removed as f64
        }),
        ("thalweg_cycles_total", "counter", "Number of the last cycle.", |job| job.last_cycle as f64),
        ("thalweg_committed_cycle", "gauge", "The last cycle that was committed.", |job| {
            commits(job).cycle as f64
        }),
        ("thalweg_commit_seconds", "gauge", "From the marker of that cycle to its commit record.", |job| {
            commits(job).took.as_secs_f64()
        }),
        ("thalweg_cycles_held_back_total", "counter", "Cycles that grew for a slow disk.", |job| {
            commits(job).held_back as f64
        }),
        (
            "thalweg_job_clock_offset_seconds",
            "gauge",
            "How far the job's clock is ahead of the machine's; negative if it is behind.",
            |job| job.clock.ahead as f64 / 1e6,
        ),
        (
            "thalweg_job_clock_jumps_total",
            "counter",
            "How often the machine's clock was set by more than a second.",
            |job| job.clock.jumps as f64,
        ),
        ("thalweg_job_uptime_seconds", "gauge", "Since the start of the job.", |job| {
            job.uptime.as_secs_f64()
        }),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for job in jobs {
            text.series(&[("job", &job.name)], value(job));
        }
    }
}

fn per_source(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<SourceSnapshot>; 6] = [
        ("thalweg_records_total", "counter", "Records that the source gave.", |source| source.records as f64),
        ("thalweg_rejects_total", "counter", "Records that could not be used.", |source| {
            source.rejects as f64
        }),
        ("thalweg_source_bytes_total", "counter", "Bytes that the source gave.", |source| {
            source.bytes as f64
        }),
        ("thalweg_source_queued_bytes", "gauge", "Bytes that wait to be decoded.", |source| {
            source.tasks.iter().map(|task| task.queued_bytes).sum::<u64>() as f64
        }),
        ("thalweg_source_busy_seconds_total", "counter", "Time spent on decoding.", |source| {
            busy(&source.tasks)
        }),
        ("thalweg_source_blocked_info", "gauge", "1 while the source is held up.", |source| {
            f64::from(u8::from(source.blocked))
        }),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for job in jobs {
            for source in &job.sources {
                text.series(&[("job", &job.name), ("source", &source.name)], value(source));
            }
        }
    }
    let sources = || jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
    text.family(
        "thalweg_source_lag_seconds",
        "gauge",
        "How far the newest event time given is behind the job's clock.",
    );
    for (job, source) in sources() {
        if let Some(lag) = source.lag {
            text.series(&[("job", &job.name), ("source", &source.name)], lag.as_secs_f64());
        }
    }
    let connections =
        || sources().filter_map(|(job, source)| Some((job, source, source.connections.as_ref()?)));
    text.family("thalweg_source_connections", "gauge", "Open connections of a source.");
    for (job, source, counts) in connections() {
        text.series(&[("job", &job.name), ("source", &source.name)], counts.open());
    }
    text.family(
        "thalweg_source_connections_accepted_total",
        "counter",
        "Connections that a source has taken.",
    );
    for (job, source, counts) in connections() {
        text.series(&[("job", &job.name), ("source", &source.name)], counts.accepted());
    }
    text.family(
        "thalweg_source_connections_closed_total",
        "counter",
        "Connections that a source has closed by itself: silent for too long, or while others waited, or with the \
         largest of too many unfinished records.",
    );
    for (job, source, counts) in connections() {
        for (reason, count) in ConnectionCounts::REASONS.into_iter().zip(counts.closed()) {
            text.series(&[("job", &job.name), ("source", &source.name), ("reason", reason)], count);
        }
    }
    text.family("thalweg_source_unfinished_bytes", "gauge", "Bytes that wait for the end of their record.");
    for (job, source, counts) in connections() {
        text.series(&[("job", &job.name), ("source", &source.name)], counts.unfinished_bytes());
    }
    let datagrams =
        || sources().filter_map(|(job, source)| Some((job, source, &source.datagrams.as_ref()?.total)));
    text.family("thalweg_source_datagrams_total", "counter", "Datagrams received, lost ones among them.");
    for (job, source, counts) in datagrams() {
        text.series(&[("job", &job.name), ("source", &source.name)], counts.datagrams);
    }
    text.family("thalweg_source_lost_datagrams_total", "counter", "Datagrams received and not taken.");
    for (job, source, counts) in datagrams() {
        for (reason, count) in
            [("queue_full", counts.dropped_datagrams), ("not_allowed", counts.refused_datagrams)]
        {
            text.series(&[("job", &job.name), ("source", &source.name), ("reason", reason)], count);
        }
    }
    text.family(
        "thalweg_source_lost_records_total",
        "counter",
        "Records in datagrams that found the queue full.",
    );
    for (job, source, counts) in datagrams() {
        text.series(&[("job", &job.name), ("source", &source.name)], counts.dropped_records);
    }
    text.family(
        "thalweg_source_left_out_total",
        "counter",
        "Datagrams and parts of them that became neither a record nor a reject, by kind.",
    );
    for (job, source) in sources() {
        for (kind, count) in source.datagrams.iter().flat_map(|datagrams| datagrams.all_left_out()) {
            text.series(&[("job", &job.name), ("source", &source.name), ("kind", kind)], count);
        }
    }
    per_agent(jobs, text);
}

/// Of sources of packet samples, by agent: those that lost most.
fn per_agent(jobs: &[&JobSnapshot], text: &mut Text) {
    const FAMILIES: [Family<AgentCounts>; 6] = [
        ("thalweg_agent_datagrams_total", "counter", "Datagrams of an agent that were received.", |counts| {
            counts.datagrams as f64
        }),
        ("thalweg_agent_samples_total", "counter", "Samples in them.", |counts| counts.samples as f64),
        ("thalweg_agent_lost_datagrams_total", "counter", "Datagrams that never came.", |counts| {
            counts.lost as f64
        }),
        (
            "thalweg_agent_malformed_total",
            "counter",
            "Datagrams, samples and records that end too early.",
            |counts| counts.malformed as f64,
        ),
        (
            "thalweg_agent_unknown_total",
            "counter",
            "Samples and records of kinds that are not known.",
            |counts| counts.unknown as f64,
        ),
        ("thalweg_agent_netflow_total", "counter", "Datagrams of NetFlow or IPFIX.", |counts| {
            counts.netflow as f64
        }),
    ];
    let datagrams = || {
        let sources = jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source)));
        sources.filter_map(|(job, source)| Some((job, source, source.datagrams.as_ref()?)))
    };
    text.family("thalweg_source_kernel_drops_total", "counter", "Datagrams that the kernel dropped.");
    for (job, source, datagrams) in datagrams() {
        if let Some(drops) = datagrams.kernel_drops {
            text.series(&[("job", &job.name), ("source", &source.name)], drops);
        }
    }
    for (name, kind, help, value) in FAMILIES {
        text.family(name, kind, help);
        for (job, source, datagrams) in datagrams() {
            for (agent, counts) in datagrams.agents.iter().flat_map(|agents| &agents.worst) {
                let agent = agent.to_string();
                text.series(
                    &[("job", &job.name), ("source", &source.name), ("agent", &agent)],
                    value(counts),
                );
            }
        }
    }
}

fn per_operator(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<OperatorSnapshot>; 6] = [
        ("thalweg_operator_records_in_total", "counter", "Records that came in.", |operator| {
            operator.records_in() as f64
        }),
        ("thalweg_operator_records_out_total", "counter", "Records that left.", |operator| {
            operator.records_out() as f64
        }),
        (
            "thalweg_operator_busy_seconds_total",
            "counter",
            "Time that its tasks spent on work.",
            |operator| busy(&operator.tasks),
        ),
        ("thalweg_operator_queued_bytes", "gauge", "Bytes that wait for its tasks.", |operator| {
            operator.tasks.iter().map(|task| task.queued_bytes).sum::<u64>() as f64
        }),
        ("thalweg_operator_state_bytes", "gauge", "State in memory.", |operator| {
            operator.tasks.iter().map(|task| task.state_bytes).sum::<u64>() as f64
        }),
        (
            "thalweg_operator_blocked_tasks",
            "gauge",
            "Tasks held up because a later queue is full.",
            |operator| operator.tasks.iter().filter(|task| task.blocked).count() as f64,
        ),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for job in jobs {
            for operator in &job.operators {
                text.series(&[("job", &job.name), ("operator", &operator.name)], value(operator));
            }
        }
    }
    per_operator_caches(jobs, text);
    per_operator_judged(jobs, text);
    per_operator_tables(jobs, text);
    per_operator_expired(jobs, text);
    per_operator_times(jobs, text);
}

/// Families that some operators have and others do not.
fn per_operator_with<T>(
    jobs: &[&JobSnapshot],
    text: &mut Text,
    families: &[Family<T>],
    of: fn(&OperatorSnapshot) -> Option<T>,
) {
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for job in jobs {
            for operator in &job.operators {
                if let Some(counts) = of(operator) {
                    text.series(&[("job", &job.name), ("operator", &operator.name)], value(&counts));
                }
            }
        }
    }
}

/// Of operators that judge their records.
fn per_operator_judged(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<JudgedCounts>; 2] = [
        ("thalweg_operator_late_total", "counter", "Records that came late.", |judged| judged.late as f64),
        ("thalweg_operator_duplicates_total", "counter", "Records whose id had come before.", |judged| {
            judged.duplicates as f64
        }),
    ];
    per_operator_with(jobs, text, &families, OperatorSnapshot::judged);
}

/// Of operators that ask a table.
fn per_operator_tables(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<TableCounts>; 4] = [
        ("thalweg_operator_table_lookups_total", "counter", "Keys that were asked for.", |table| {
            table.lookups as f64
        }),
        ("thalweg_operator_table_misses_total", "counter", "Keys that are not in the table.", |table| {
            table.misses as f64
        }),
        ("thalweg_operator_table_reloads_total", "counter", "Tables that were loaded anew.", |table| {
            table.reloads as f64
        }),
        ("thalweg_operator_table_failed_reloads_total", "counter", "Files that were not a table.", |table| {
            table.failed_reloads as f64
        }),
    ];
    per_operator_with(jobs, text, &families, OperatorSnapshot::table);
    text.family("thalweg_operator_table_age_seconds", "gauge", "Since the table was put in place.");
    for job in jobs {
        for operator in &job.operators {
            if let Some(age) = operator.table().and_then(|table| table.age_seconds) {
                text.series(&[("job", &job.name), ("operator", &operator.name)], age);
            }
        }
    }
}

/// Of sinks that keep records for a time.
fn per_operator_expired(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<Expired>; 3] = [
        ("thalweg_expired_rows_total", "counter", "Rows that were deleted for their age.", |expired| {
            expired.rows as f64
        }),
        ("thalweg_expired_files_total", "counter", "Files that were deleted for their age.", |expired| {
            expired.files as f64
        }),
        ("thalweg_expired_bytes_total", "counter", "Bytes that were deleted for their age.", |expired| {
            expired.bytes as f64
        }),
    ];
    per_operator_with(jobs, text, &families, |operator| operator.expired);
}

/// Of operators whose state may be out of memory.
fn per_operator_caches(jobs: &[&JobSnapshot], text: &mut Text) {
    let families: [Family<CacheCounts>; 7] = [
        ("thalweg_operator_cache_stored_keys", "gauge", "Keys that have state, in memory or not.", |cache| {
            cache.stored as f64
        }),
        ("thalweg_operator_cache_key_bytes", "gauge", "Memory in which all those are found.", |cache| {
            cache.key_bytes as f64
        }),
        ("thalweg_operator_cache_keys", "gauge", "Keys whose state is in memory.", |cache| cache.keys as f64),
        ("thalweg_operator_cache_hits_total", "counter", "Looks at keys that were in memory.", |cache| {
            cache.hits as f64
        }),
        ("thalweg_operator_cache_misses_total", "counter", "Keys that a record had read back.", |cache| {
            cache.misses as f64
        }),
        ("thalweg_operator_cache_filled_total", "counter", "Keys read back after a restart.", |cache| {
            cache.filled as f64
        }),
        ("thalweg_operator_cache_evictions_total", "counter", "Keys that left memory.", |cache| {
            cache.evictions as f64
        }),
    ];
    per_operator_with(jobs, text, &families, OperatorSnapshot::cache);
}

fn per_operator_times(jobs: &[&JobSnapshot], text: &mut Text) {
    let operators = || jobs.iter().flat_map(|job| job.operators.iter().map(move |operator| (job, operator)));
    text.family(
        "thalweg_operator_task_time_seconds",
        "gauge",
        "Largest event time that has moved its windows, since 1970.",
    );
    for (job, operator) in operators() {
        if let Some(time) = operator.task_time {
            text.series(&[("job", &job.name), ("operator", &operator.name)], time as f64 / 1e6);
        }
    }
    text.family(
        "thalweg_operator_lag_seconds",
        "gauge",
        "How far the newest event time taken is behind the job's clock.",
    );
    for (job, operator) in operators() {
        if let Some(lag) = operator.lag {
            text.series(&[("job", &job.name), ("operator", &operator.name)], lag.as_secs_f64());
        }
    }
    text.family(
        "thalweg_operator_latency_seconds",
        "histogram",
        "From the numbering of records to the end of the operator's work on them.",
    );
    histogram(text, operators(), |operator| &operator.latency);
    text.family(
        "thalweg_operator_marker_seconds",
        "histogram",
        "For how long cycle markers stopped a task of the operator.",
    );
    histogram(text, operators(), |operator| &operator.markers);
    text.family(
        "thalweg_operator_marker_cpu_seconds",
        "histogram",
        "Processor time of cycle markers in a task of the operator.",
    );
    histogram(text, operators(), |operator| &operator.marker_cpu);
}

fn histogram<'a>(
    text: &mut Text,
    operators: impl Iterator<Item = (&'a &'a JobSnapshot, &'a OperatorSnapshot)>,
    counts: fn(&OperatorSnapshot) -> &LatencyCounts,
) {
    for (job, operator) in operators {
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
    let families: [Family<LinkSnapshot>; 3] = [
        ("thalweg_link_bytes_total", "counter", "Sent over the link.", |link| link.bytes as f64),
        ("thalweg_link_queued_bytes", "gauge", "In the rings of the link.", |link| link.queued_bytes as f64),
        ("thalweg_link_full_total", "counter", "How often a ring of the link became full.", |link| {
            link.high_watermark_hits as f64
        }),
    ];
    for (name, kind, help, value) in families {
        text.family(name, kind, help);
        for job in jobs {
            for link in &job.links {
                let output = link.output.to_string();
                let labels =
                    [("job", job.name.as_str()), ("from", &link.from), ("output", &output), ("to", &link.to)];
                text.series(&labels, value(link));
            }
        }
    }
}

fn busy(tasks: &[TaskSnapshot]) -> f64 {
    tasks.iter().map(|task| task.busy.as_secs_f64()).sum()
}
