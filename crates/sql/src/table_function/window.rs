//! `top_as_pairs('24 hours' [, rows [, table]])` and the like: a view of the rows since then.
//!
//! It looks back from now; of a table whose newest row is older than the span, which would show nothing, from that row.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::cast::AsArray as _;
use arrow_array::types::TimestampMicrosecondType;
use arrow_schema::{DataType, TimeUnit};

use arrow_cast::cast;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, ScalarValue, TableReference, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::functions::datetime::expr_fn::now;
use datafusion::prelude::Expr;
use thalweg_table::Snapshot;
use thalweg_types::Micros;

use super::{object_name, rows, span, text};
use crate::fault::ours;
use crate::names::Names;
use crate::stored::{Part, StoredTable};
use crate::view::View;

#[derive(Debug)]
pub(super) struct Window {
    pub(super) names: Arc<Names>,
    pub(super) view: &'static View,
}

impl TableFunctionImpl for Window {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let args = args.exprs();
        let usage = format!("{}(window [, rows [, table]])", self.view.name);
        if !(1..=3).contains(&args.len()) {
            return plan_err!("{usage} called with {} arguments", args.len());
        }
        let window = span(args, 0, &usage)?;
        let most = if args.len() > 1 { Some(rows(args, 1, &usage)?) } else { None };
        let snapshot = match args.get(2) {
            None => self.names.viewed(None, self.view).map_err(ours)?,
            Some(_) => {
                let name = text(args, 2, &usage)?;
                let (job, table) = match object_name(name)?.as_slice() {
                    [table] => (None, table.clone()),
                    [job, table] => (Some(job.clone()), table.clone()),
                    _ => return plan_err!("expected the name of a table, got {name:?}"),
                };
                self.names.viewed_of(job.as_deref(), &table, self.view).map_err(ours)?
            }
        };
        let name = TableReference::partial(snapshot.name.job.as_str(), snapshot.name.table.as_str());
        let table = self.names.stored(Arc::clone(&snapshot), Part::Whole);
        let time = StoredTable::time_of(&snapshot);
        let from = match newest(&snapshot)? {
            // Which rows of other nodes are the newest is not known.
            Some(newest) if snapshot.elsewhere.is_empty() && is_older(newest, &window) => {
                Expr::Literal(ScalarValue::TimestampMicrosecond(Some(newest), None), None)
            }
            _ => now(),
        };
        let plan = self.view.plan(table, name, Some((time, from - window)), most)?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

/// The greatest event time of a table.
fn newest(snapshot: &Snapshot) -> Result<Option<Micros>, DataFusionError> {
    let rollups = snapshot.rollups.iter().flat_map(|rollup| &rollup.files);
    let mut newest = snapshot.files.iter().chain(rollups).map(|file| file.last).max();
    for rows in &snapshot.fresh {
        let times = cast(rows.column(snapshot.time), &DataType::Timestamp(TimeUnit::Microsecond, None))?;
        newest = newest.max(times.as_primitive::<TimestampMicrosecondType>().iter().flatten().max());
    }
    Ok(newest)
}

/// Whether an instant was longer ago than a span is; months have 31 days.
fn is_older(instant: Micros, span: &Expr) -> bool {
    const DAY: i128 = 86_400_000_000;
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), _) = span else { return false };
    let span = i128::from(span.months) * 31 * DAY
        + i128::from(span.days) * DAY
        + i128::from(span.nanoseconds) / 1_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros() as i128);
    i128::from(instant) < now - span
}
