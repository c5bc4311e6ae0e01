//! The nodes between an aggregate and its table, taken away: conditions and expressions over the table's own columns.
//!
//! A column of the table is written here without a qualifier, whatever names subqueries and aliases gave it. So no name
//! of the query can be taken for another one.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::stored;

/// A table, and the operations on its rows.
pub(super) struct Peeled {
    pub(super) table: Arc<dyn TableProvider>,
    pub(super) name: TableReference,
    /// All of them hold for a row that is passed on.
    pub(super) conditions: Vec<Expr>,
    /// What the columns of the plan are, by place.
    columns: Vec<Expr>,
}

impl Peeled {
    /// An expression over the plan as one over the table; `None` where it needs more than a row.
    pub(super) fn resolve(&self, expr: &Expr, schema: &DFSchema) -> Option<Expr> {
        resolve(expr, schema, &self.columns)
    }
}

/// Takes a plan apart; `None` where it is more than conditions and expressions over a table.
pub(super) fn peel(plan: &LogicalPlan) -> Option<Peeled> {
    match plan {
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
            let table = stored::stored(&scan.source)?;
            let columns: Vec<Expr> =
                scan.projected_schema.fields().iter().map(|field| own(field.name())).collect();
            let mut conditions = Vec::new();
            for filter in &scan.filters {
                // Filters of a scan may use columns that it does not pass on.
                if !is_of_row(filter) {
                    return None;
                }
                let bare = filter.clone().transform_up(|expr| {
                    Ok(match expr {
                        Expr::Column(column) => Transformed::yes(own(&column.name)),
                        other => Transformed::no(other),
                    })
                });
                conditions.extend(split_conjunction_owned(bare.ok()?.data));
            }
            Some(Peeled { table, name: scan.table_name.clone(), conditions, columns })
        }
        LogicalPlan::Filter(filter) => {
            let mut peeled = peel(&filter.input)?;
            let condition = peeled.resolve(&filter.predicate, filter.input.schema())?;
            for condition in split_conjunction_owned(condition) {
                // A condition that the scan checks too is there twice.
                if !peeled.conditions.contains(&condition) {
                    peeled.conditions.push(condition);
                }
            }
            Some(peeled)
        }
        LogicalPlan::Projection(projection) => {
            let mut peeled = peel(&projection.input)?;
            let schema = projection.input.schema();
            peeled.columns = projection
                .expr
                .iter()
                .map(|expr| peeled.resolve(expr, schema))
                .collect::<Option<Vec<_>>>()?;
            Some(peeled)
        }
        LogicalPlan::SubqueryAlias(alias) => peel(&alias.input),
        _ => None,
    }
}

fn own(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn resolve(expr: &Expr, schema: &DFSchema, columns: &[Expr]) -> Option<Expr> {
    if !is_of_row(expr) {
        return None;
    }
    let mut complete = true;
    let resolved = expr.clone().unalias_nested().data.transform_up(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let at = schema.maybe_index_of_column(column);
        match at.and_then(|at| columns.get(at)) {
            Some(column) => Ok(Transformed::yes(column.clone())),
            None => {
                complete = false;
                Ok(Transformed::no(expr))
            }
        }
    });
    resolved.ok().map(|resolved| resolved.data).filter(|_| complete)
}

/// Whether an expression is a function of one row and of nothing else.
fn is_of_row(expr: &Expr) -> bool {
    let mut of_row = true;
    let seen = expr.apply(|expr| {
        of_row &= matches!(
            expr,
            Expr::Alias(_)
                | Expr::Column(_)
                | Expr::Literal(..)
                | Expr::BinaryExpr(_)
                | Expr::Like(_)
                | Expr::SimilarTo(_)
                | Expr::Not(_)
                | Expr::IsNotNull(_)
                | Expr::IsNull(_)
                | Expr::IsTrue(_)
                | Expr::IsFalse(_)
                | Expr::IsUnknown(_)
                | Expr::IsNotTrue(_)
                | Expr::IsNotFalse(_)
                | Expr::IsNotUnknown(_)
                | Expr::Negative(_)
                | Expr::Between(_)
                | Expr::Case(_)
                | Expr::Cast(_)
                | Expr::TryCast(_)
                | Expr::ScalarFunction(_)
                | Expr::InList(_)
        );
        Ok(if of_row { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    seen.is_ok() && of_row && !expr.is_volatile()
}
