//! `src_addr = '10.1.2.3'`: a text that is compared with addresses is read as one.
//!
//! Comparisons are turned when they are planned, as their types are looked at there; `IN` and `BETWEEN` by a rule of
//! the analyzer. And where texts are asked for, an address is written as one: in casts, with `LIKE`, `||` and regular
//! expressions.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ExprSchema, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sqlparser::ast::BinaryOperator;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, lit};
use datafusion::optimizer::AnalyzerRule;
use thalweg_types::is_ipv4;

use super::address::parse;
use super::{ADDRESS, family, ip_text, is_text};

/// For comparisons.
#[derive(Debug)]
pub(crate) struct AddressPlanner;

impl ExprPlanner for AddressPlanner {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>, DataFusionError> {
        use BinaryOperator::{
            Eq, Gt, GtEq, Lt, LtEq, NotEq, PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch,
            StringConcat,
        };
        match expr.op {
            Eq | NotEq | Lt | LtEq | Gt | GtEq => {
                compared(&mut expr.left, &mut expr.right, schema)?;
            }
            StringConcat | PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch => {
                expr.left = written(expr.left, schema);
                expr.right = written(expr.right, schema);
            }
            _ => {}
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
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let turned = expr.transform_up(|expr| turned(expr, &schema))?;
                Ok(turned.update_data(|expr| name.restore(expr)))
            })
        })
        .map(|turned| turned.data)
    }
}

fn turned(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    let mut expr = match expr {
        Expr::Cast(cast) if is_text(cast.field.data_type()) && is_address(&cast.expr, schema) => {
            let kind = cast.field.data_type().clone();
            return Ok(Transformed::yes(ip_text(*cast.expr).cast_to(&kind, schema)?));
        }
        Expr::TryCast(cast) if is_text(cast.field.data_type()) && is_address(&cast.expr, schema) => {
            let kind = cast.field.data_type().clone();
            return Ok(Transformed::yes(ip_text(*cast.expr).cast_to(&kind, schema)?));
        }
        Expr::Like(mut like) if is_address(&like.expr, schema) => {
            like.expr = Box::new(ip_text(*like.expr));
            return Ok(Transformed::yes(Expr::Like(like)));
        }
        Expr::SimilarTo(mut like) if is_address(&like.expr, schema) => {
            like.expr = Box::new(ip_text(*like.expr));
            return Ok(Transformed::yes(Expr::SimilarTo(like)));
        }
        Expr::Between(mut between) if is_address(&between.expr, schema) => {
            let changed = read(&mut between.low)? | read(&mut between.high)?;
            return Ok(Transformed::new_transformed(within_family(between), changed));
        }
        expr => expr,
    };
    let changed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if compares(*op) => compared(left, right, schema)?,
        Expr::InList(InList { expr, list, .. }) if is_address(expr, schema) => list
            .iter_mut()
            .try_fold(false, |changed, value| Ok::<_, DataFusionError>(read(value)? | changed))?,
        _ => false,
    };
    Ok(Transformed::new_transformed(expr, changed))
}

/// Addresses of version 4 have their place among those of version 6, and are in no range of these.
fn within_family(between: Between) -> Expr {
    let is_six = |bound: &Expr| matches!(bound, Expr::Literal(ScalarValue::FixedSizeBinary(16, Some(octets)), _) if octets.as_slice().try_into().is_ok_and(|octets| !is_ipv4(octets)));
    if !(is_six(&between.low) && is_six(&between.high)) {
        return Expr::Between(between);
    }
    let is_six = family((*between.expr).clone()).eq(lit(6_i64));
    let negated = between.negated;
    let within = Expr::Between(Between { negated: false, ..between }).and(is_six);
    if negated { Expr::Not(Box::new(within)) } else { within }
}

/// An address as a text; anything else as it is.
fn written(expr: Expr, schema: &DFSchema) -> Expr {
    if is_address(&expr, schema) { ip_text(expr) } else { expr }
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
