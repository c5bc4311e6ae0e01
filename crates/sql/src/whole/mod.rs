//! Whole numbers that never wrap around.
//!
//! | operation | result |
//! |---|---|
//! | `+`, `*`, `/`, `%` of unsigned numbers | uint64 |
//! | `-` of unsigned numbers, all with a signed one, `-x` | int64 |
//! | `sum` | int64 of signed ones, uint64 of unsigned ones |
//!
//! A literal that is not negative is as unsigned as the other side. All is computed exactly; a result that its type does not
//! hold is an error that names the expression. `/` cuts off, as in PostgreSQL.
//!
//! A rule of the analyzer ([`WholeNumbers`]) puts functions ([`arithmetic`]) in place of the operators, before types are made
//! equal: what DataFusion does with one signed and one unsigned number is a decimal, and with two of a kind it wraps
//! around. `sum` is an aggregate of ours ([`sum`]) under the same name.

mod arithmetic;
mod sum;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

use arithmetic::{Op, Whole};

pub(crate) use sum::{exact_sum, sum};

/// Comes before the rule that makes types equal.
#[derive(Debug)]
pub(crate) struct WholeNumbers;

impl AnalyzerRule for WholeNumbers {
    fn name(&self) -> &str {
        "whole_numbers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan, DataFusionError> {
        plan.transform_up_with_subqueries(|plan| {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            let turned = plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let turned = expr.transform_up(|expr| turned(expr, &schema))?;
                Ok(turned.update_data(|expr| name.restore(expr)))
            })?;
            // Types of the plan's inputs may be others, too.
            turned.map_data(LogicalPlan::recompute_schema)
        })
        .data()
    }
}

fn turned(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, DataFusionError> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let both = (Side::of(&left, schema), Side::of(&right, schema));
            let (Some(whole), (Some(one), Some(other))) = (Op::of(op), both) else {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
            };
            let unsigned = one.may_be_unsigned() && other.may_be_unsigned();
            let unsigned = unsigned && (one == Side::Unsigned || other == Side::Unsigned);
            let args = [(*left, one), (*right, other)].map(|(expr, side)| match (side, expr) {
                (Side::Natural, Expr::Literal(value, metadata)) if unsigned => {
                    Expr::Literal(unsigned_of(value), metadata)
                }
                (_, expr) => expr,
            });
            let function = Whole::new(whole, unsigned && op != Operator::Minus);
            Ok(Transformed::yes(function.call(args.into())))
        }
        Expr::Negative(of) if Side::of(&of, schema).is_some() => {
            Ok(Transformed::yes(Whole::new(Op::Negative, false).call(vec![*of])))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

/// The operand on one side of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Signed,
    Unsigned,
    /// A literal of a signed type that is not negative.
    Natural,
}

impl Side {
    /// `None`: no whole number.
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Self> {
        let kind = expr.get_type(schema).ok()?;
        if kind.is_unsigned_integer() {
            return Some(Self::Unsigned);
        }
        if !kind.is_signed_integer() {
            return None;
        }
        let natural = matches!(expr, Expr::Literal(ScalarValue::Int64(Some(0..)), _));
        Some(if natural { Self::Natural } else { Self::Signed })
    }

    fn may_be_unsigned(self) -> bool {
        self != Self::Signed
    }
}

fn unsigned_of(value: ScalarValue) -> ScalarValue {
    match value {
        ScalarValue::Int64(Some(value)) => ScalarValue::UInt64(Some(value.unsigned_abs())),
        other => other,
    }
}
