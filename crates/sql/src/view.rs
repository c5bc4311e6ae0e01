//! Views: the usual questions about flows, for every table with the columns for it.
//!
//! A view is a row of [`VIEWS`]: a name and its keys, each with the columns that it may be made of. For a table that has
//! one for each key there is `SELECT keys, sum(bytes) AS bytes, sum(packets) AS packets, count(*) AS samples … GROUP BY
//! keys ORDER BY bytes DESC`, and a table function of the same name that looks back from `now()`.

use std::sync::Arc;

use arrow_schema::{DataType, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::{Column, DataFusionError, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions_aggregate::expr_fn::{count, sum};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, lit};

use crate::function::{self, ADDRESS};

/// A view of flows.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) name: &'static str,
    keys: &'static [Key],
}

/// A key of a view: the name of its column, and what it is made of.
#[derive(Debug)]
struct Key {
    name: &'static str,
    /// The first of them that a table has.
    columns: &'static [&'static str],
    of: Of,
}

#[derive(Debug)]
enum Of {
    Value,
    /// The network, /24 of version 4 and /48 of version 6.
    Network,
}

const fn value(name: &'static str, columns: &'static [&'static str]) -> Key {
    Key { name, columns, of: Of::Value }
}

const fn network(name: &'static str, columns: &'static [&'static str]) -> Key {
    Key { name, columns, of: Of::Network }
}

/// All of them.
#[rustfmt::skip]
pub(crate) static VIEWS: [View; 6] = [
    View { name: "top_as_pairs",   keys: &[value("src_as", &["src_asn", "src_as"]), value("dst_as", &["dst_asn", "dst_as"])] },
    View { name: "top_name_pairs", keys: &[value("src_name", &["src_name", "src_host"]), value("dst_name", &["dst_name", "dst_host"])] },
    View { name: "top_members",    keys: &[value("src_member", &["src_member"]), value("dst_member", &["dst_member"])] },
    View { name: "top_ports",      keys: &[value("protocol", &["protocol"]), value("dst_port", &["dst_port"])] },
    View { name: "top_protocols",  keys: &[value("protocol", &["protocol"])] },
    View { name: "top_prefixes",   keys: &[network("src_prefix", &["src_addr", "src_ip"])] },
];

/// Sums of a view, largest first by the first that a table has: what a sample represents.
const SUMS: [&str; 2] = ["bytes", "packets"];

/// Number of rows, which are samples.
const SAMPLES: &str = "samples";

pub(crate) fn find(name: &str) -> Option<&'static View> {
    VIEWS.iter().find(|view| view.name == name)
}

impl View {
    /// Whether a table has the columns for it.
    pub(crate) fn fits(&self, schema: &Schema) -> bool {
        self.keys.iter().all(|key| key.column(schema).is_some())
    }

    /// The plan of the view over a table that it fits; from an instant on, and of the first rows.
    pub(crate) fn plan(
        &self,
        table: Arc<dyn TableProvider>,
        name: TableReference,
        since: Option<(&str, Expr)>,
        most: Option<usize>,
    ) -> Result<LogicalPlan, DataFusionError> {
        let schema = table.schema();
        let mut plan = LogicalPlanBuilder::scan(name.clone(), provider_as_source(table), None)?;
        let own = |column: &str| Expr::Column(Column::new(Some(name.clone()), column));
        if let Some((time, since)) = since {
            plan = plan.filter(own(time).gt_eq(since))?;
        }
        let keys = self.keys.iter().filter_map(|key| {
            let column = own(key.column(&schema)?);
            Some(match key.of {
                Of::Value => column.alias(key.name),
                Of::Network => function::prefix(column, 24, 48).alias(key.name),
            })
        });
        let sums: Vec<&str> = SUMS.into_iter().filter(|column| is_number(&schema, column)).collect();
        let values = sums
            .iter()
            .map(|column| sum(own(column)).alias(*column))
            .chain([count(lit(1_i64)).alias(SAMPLES)]);
        plan = plan.aggregate(keys, values)?;
        let first = sums.first().copied().unwrap_or(SAMPLES);
        // Ties in the order of the keys, so that an answer is the same every time.
        let mut order = vec![bare(first).sort(false, false)];
        order.extend(self.keys.iter().map(|key| bare(key.name).sort(true, false)));
        ordered(plan, order, most)
    }
}

impl Key {
    fn column(&self, schema: &Schema) -> Option<&'static str> {
        self.columns.iter().copied().find(|column| {
            schema.field_with_name(column).is_ok_and(|field| match self.of {
                Of::Value => true,
                Of::Network => *field.data_type() == ADDRESS,
            })
        })
    }
}

/// Sorts what a query selects from. The order of a subquery counts for nothing unless it has a limit, so it has one.
pub(crate) fn ordered(
    plan: LogicalPlanBuilder,
    order: Vec<SortExpr>,
    most: Option<usize>,
) -> Result<LogicalPlan, DataFusionError> {
    /// More groups than any memory holds.
    const ALL: usize = u32::MAX as usize;
    plan.sort(order)?.limit(0, Some(most.unwrap_or(ALL)))?.build()
}

fn is_number(schema: &Schema, column: &str) -> bool {
    schema.field_with_name(column).map(|field| field.data_type()).is_ok_and(DataType::is_numeric)
}

fn bare(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}
