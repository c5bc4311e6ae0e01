//! Counts of the processes that run queries.

use crate::Sql;

use super::text::Text;

/// Nothing where queries run in this process.
#[cfg(all(feature = "sql", target_os = "linux"))]
pub(super) fn write(sql: &Sql, text: &mut Text) {
    use crate::figures::single;
    use thalweg_sql::Stopped;
    let Sql::Workers(workers) = sql else { return };
    let counts = workers.counts();
    text.family(&single::SQL_WORKERS);
    text.series(&[], counts.workers);
    text.family(&single::SQL_STARTED);
    text.series(&[], counts.started);
    text.family(&single::SQL_STOPPED);
    for ((_, reason), count) in Stopped::ALL.iter().zip(counts.stopped) {
        text.series(&[("reason", reason)], count);
    }
}

#[cfg(not(all(feature = "sql", target_os = "linux")))]
pub(super) fn write(_: &Sql, _: &mut Text) {}
