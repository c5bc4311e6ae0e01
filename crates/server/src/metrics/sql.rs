//! Counts of the processes that run queries.

use crate::Sql;

use super::text::Text;

/// Nothing where queries run in this process.
#[cfg(all(feature = "sql", target_os = "linux"))]
pub(super) fn write(sql: &Sql, text: &mut Text) {
    use thalweg_sql::Stopped;
    let Sql::Workers(workers) = sql else { return };
    let counts = workers.counts();
    text.family("thalweg_sql_workers", "gauge", "Processes that answer SQL.");
    text.series(&[], counts.workers);
    text.family("thalweg_sql_workers_started_total", "counter", "Processes for SQL that were started.");
    text.series(&[], counts.started);
    text.family(
        "thalweg_sql_stopped_total",
        "counter",
        "Processes for SQL that ended or were killed over a query, by reason.",
    );
    for ((_, reason), count) in Stopped::ALL.iter().zip(counts.stopped) {
        text.series(&[("reason", reason)], count);
    }
}

#[cfg(not(all(feature = "sql", target_os = "linux")))]
pub(super) fn write(_: &Sql, _: &mut Text) {}
