//! Families that are in no group: their series have labels of their own, or buckets.

use thalweg_flow::figure::{Figure, Kind, Unit};

pub(crate) const BUILD: Figure = Figure::new(
    "thalweg_build_info",
    Kind::Gauge,
    Unit::Flag,
    "Always 1; the label `version` is the version.",
    "",
);
pub(crate) const READY: Figure = Figure::new(
    "thalweg_ready_info",
    Kind::Gauge,
    Unit::Flag,
    "1 while the node takes records.",
    "At 0 ask `/readyz` which job does not",
);
pub(crate) const OMITTED: Figure = Figure::new(
    "thalweg_metrics_omitted_jobs",
    Kind::Gauge,
    Unit::Count,
    "Jobs without series, as there are more than 2,000 sources, operators and links.",
    "Run fewer jobs in this process",
);

pub(crate) const HTTP_REQUESTS: Figure = Figure::new(
    "thalweg_http_requests_total",
    Kind::Counter,
    Unit::Count,
    "Requests; `status` is `other` for statuses without a series of their own, 499 where the client went away; `route` is \
     `none` where no route fits.",
    "429 and 503: the node is too slow for its clients. 504: look at the operators",
);
pub(crate) const HTTP_DURATION: Figure = Figure::new(
    "thalweg_http_request_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Seconds from the head of a request until its reply begins.",
    "Compare with `thalweg_operator_latency_seconds`; the rest is the queue at the source, or the disk",
);
pub(crate) const HTTP_IN_FLIGHT: Figure = Figure::new(
    "thalweg_http_requests_in_flight",
    Kind::Gauge,
    Unit::Count,
    "Requests in work, this one included; 1,024 at most.",
    "Near the bound: the job is too slow, or clients wait for answers in too many requests",
);
pub(crate) const HTTP_CONNECTIONS: Figure = Figure::new(
    "thalweg_http_connections",
    Kind::Gauge,
    Unit::Count,
    "Open connections; 1,024 at most.",
    "Near the bound: let clients use fewer connections",
);
pub(crate) const HTTP_ACCEPTED: Figure = Figure::new(
    "thalweg_http_connections_accepted_total",
    Kind::Counter,
    Unit::Count,
    "Connections accepted.",
    "",
);
pub(crate) const HTTP_EVICTED: Figure = Figure::new(
    "thalweg_http_connections_evicted_total",
    Kind::Counter,
    Unit::Count,
    "Idle connections closed to make room.",
    "Give the process more open files, or let clients use fewer connections",
);

#[cfg_attr(
    not(all(feature = "sql", target_os = "linux")),
    allow(dead_code, reason = "nobody counts them there")
)]
pub(crate) const SQL_WORKERS: Figure = Figure::new(
    "thalweg_sql_workers",
    Kind::Gauge,
    Unit::Count,
    "Processes that answer SQL; seven at most.",
    "",
);
#[cfg_attr(
    not(all(feature = "sql", target_os = "linux")),
    allow(dead_code, reason = "nobody counts them there")
)]
pub(crate) const SQL_STARTED: Figure = Figure::new(
    "thalweg_sql_workers_started_total",
    Kind::Counter,
    Unit::Count,
    "Such processes that were started.",
    "See `thalweg_sql_stopped_total`",
);
#[cfg_attr(
    not(all(feature = "sql", target_os = "linux")),
    allow(dead_code, reason = "nobody counts them there")
)]
pub(crate) const SQL_STOPPED: Figure = Figure::new(
    "thalweg_sql_stopped_total",
    Kind::Counter,
    Unit::Count,
    "Such processes that ended over a query; `reason` is `time`, `memory`, `depth`, `reader`, `slow` or `other`.",
    "Ask for less, or in smaller statements; of `other` the log says how",
);

pub(crate) const JOB_STATE: Figure = Figure::new(
    "thalweg_job_state_info",
    Kind::Gauge,
    Unit::Flag,
    "1 for the `state` that the job is in: `starting`, `running`, `draining`, `done`, `failed` or `aborted`.",
    "`failed`: `GET /v1/jobs/{job}` has the reason",
);
pub(crate) const LEFT_OUT: Figure = Figure::new(
    "thalweg_source_left_out_total",
    Kind::Counter,
    Unit::Count,
    "Datagrams, and parts of them or of captures, that became neither a record nor a reject.",
    "`kind` says why ([kinds](samples.md#captures)); the last line of a run has the same counts",
);
pub(crate) const LATENCY: Figure = Figure::new(
    "thalweg_operator_latency_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Seconds from the numbering of records to the end of the operator's work on them, since the start of the job.",
    "The first operator whose latency grows is the cause",
);
pub(crate) const MARKERS: Figure = Figure::new(
    "thalweg_operator_marker_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Seconds that a cycle marker stopped a task.",
    "Compare with the next family",
);
pub(crate) const MARKER_CPU: Figure = Figure::new(
    "thalweg_operator_marker_cpu_seconds",
    Kind::Histogram,
    Unit::Seconds,
    "Seconds of processor time of the same.",
    "As long as above: state is handed over in too large pieces. Much less: the task waited for a core, a lock or the disk",
);
