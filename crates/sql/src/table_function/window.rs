//! `top_as_pairs('24 hours' [, rows [, table]])` and the like: a view of what came since then.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, TableReference, plan_err};
use datafusion::datasource::ViewTable;
use datafusion::functions::datetime::expr_fn::now;

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
        let plan = self.view.plan(table, name, Some((time, now() - window)), most)?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}
