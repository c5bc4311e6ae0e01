//! `src_addr = '10.1.2.3'`: a text that is compared with addresses is read as one.
//!
//! Comparisons are turned when they are planned, as their types are looked at there; `IN` and `BETWEEN` by a rule of
//! the analyzer.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ExprSchema, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sqlparser::ast::BinaryOperator;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use super::ADDRESS;
use super::address::parse;

/// For comparisons.
#[derive(Debug)]
pub(crate) struct AddressPlanner;

impl ExprPlanner for AddressPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>, DataFusionError> {
        use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
        if matches!(expr.op, Eq | NotEq | Lt | LtEq | Gt | GtEq) {
            compared(&mut expr.left, &mut expr.right, schema)?;
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// For `IN` and `BETWEEN`, and for comparisons that come from elsewhere (`CASE`, joins).
#[derive(Debug)]
pub(crate) struct AddressLiterals;

impl AnalyzerRule for AddressLiterals {
    fn name(&self) -> &str {
        "address_literals"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan, DataFusionError> {
        plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            plan.map_expressions(|expr| expr.transform_up(|expr| turned(expr, &schema)))
        })
        .map(|turned| turned.data)
    }
}

fn turned(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => compared(left, right, schema)?,
        Expr::InList(InList { expr, list, .. }) if is_address(expr, schema) => list
            .iter_mut()
            .try_fold(false, |changed, value| Ok::<_, DataFusionError>(read(value)? | changed))?,
        Expr::Between(Between { expr, low, high, .. }) if is_address(expr, schema) => {
            read(low)? | read(high)?
        }
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, changed))
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn compared(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> Result<bool, DataFusionError> {
    if is_address(left, schema) {
        read(right)
    } else if is_address(right, schema) {
        read(left)
    } else {
        Ok(false)
    }
}

fn is_address(expr: &Expr, schema: &dyn ExprSchema) -> bool {
    !matches!(expr, Expr::Literal(..)) && expr.get_type(schema).is_ok_and(|kind| kind == ADDRESS)
}

/// Replaces a text by the address that it is.
fn read(expr: &mut Expr) -> Result<bool, DataFusionError> {
    let Expr::Literal(value, metadata) = expr else { return Ok(false) };
    let Some(Some(text)) = value.try_as_str() else { return Ok(false) };
    let Some(octets) = parse(text) else {
        return plan_err!("expected an address such as 10.1.2.3, got {text:?}");
    };
    *expr = Expr::Literal(ScalarValue::FixedSizeBinary(16, Some(octets.to_vec())), metadata.take());
    Ok(true)
}
