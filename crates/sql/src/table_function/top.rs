//! `top(table, by, value, n [, where [, every]])`: the largest groups, and one row for all others.
//!
//! Groups are ranked by their value over all rows that are asked for, ties by their keys. With `every` each has a row per
//! bucket of time in which it has data, and so have the others together.
//!
//! Without `every` groups are read once and numbered. With it they are read twice: once for the first n, which is a short
//! list, and once by bucket; so memory goes with the number of groups and not with that of groups times buckets.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{
    Column, DataFusionError, NullEquality, TableReference, plan_datafusion_err, plan_err,
};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::session_state::SessionState;
use datafusion::functions::datetime::expr_fn::date_bin;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::sqlparser::tokenizer::Token;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, JoinType, LogicalPlan, LogicalPlanBuilder, SortExpr, lit, when,
};
use datafusion::sql::parser::DFParserBuilder;

use super::{rows, span, table, text};
use crate::names::Names;
use crate::stored::StoredTable;
use crate::view::ordered;
use crate::whole::sum;

const USAGE: &str = "top(table, by, value, n [, where [, every]])";

/// Columns of the result in addition to those of `by`.
const BUCKET: &str = "bucket";
const RANK: &str = "rank";
const VALUE: &str = "value";
const IS_OTHER: &str = "is_other";

#[derive(Debug)]
pub(super) struct Top(pub(super) Arc<Names>);

impl TableFunctionImpl for Top {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let Some(state) = args.session().as_any().downcast_ref::<SessionState>() else {
            return plan_err!("top is planned without a session");
        };
        let args = args.exprs();
        if !(4..=6).contains(&args.len()) {
            return plan_err!("{USAGE} called with {} arguments", args.len());
        }
        let (name, provider) = table(&self.0, text(args, 0, USAGE)?)?;
        let time = {
            let any: &dyn std::any::Any = provider.as_ref();
            any.downcast_ref::<StoredTable>().map(|table| table.time().to_owned())
        };
        let name = TableReference::bare(name);
        let mut of = LogicalPlanBuilder::scan(name.clone(), provider_as_source(provider), None)?;
        let schema = Arc::clone(of.schema());
        let by = keys(state, text(args, 1, USAGE)?, &schema)?;
        let value = value(state.create_logical_expr(text(args, 2, USAGE)?, &schema)?)?;
        let n = rows(args, 3, USAGE)?;
        let condition = if args.len() > 4 { text(args, 4, USAGE)?.trim() } else { "" };
        if !condition.is_empty() {
            of = of.filter(state.create_logical_expr(condition, &schema)?)?;
        }
        let bucket = match (args.len() > 5, time) {
            (false, _) => None,
            (true, Some(time)) => {
                Some(date_bin(span(args, 5, USAGE)?, Expr::Column(Column::new(Some(name), time)), epoch()))
            }
            (true, None) => {
                return plan_err!("top: only a table has buckets of time, {:?} is not one", args[0]);
            }
        };
        let asked = Asked { of: of.build()?, by, value, n };
        let plan = match bucket {
            None => asked.at_once()?,
            Some(bucket) => asked.by_bucket(bucket)?,
        };
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

/// What `top` is asked for.
struct Asked {
    /// The rows.
    of: LogicalPlan,
    by: Vec<(String, Expr)>,
    value: Expr,
    n: usize,
}

impl Asked {
    fn at_once(&self) -> Result<LogicalPlan, DataFusionError> {
        let ranked = self.grouped(None)?.window(vec![self.numbered()?])?;
        let first = bare(RANK).lt_eq(lit(self.n as u64));
        let mut columns = vec![when(first.clone(), bare(RANK)).end()?.alias(RANK)];
        for (name, _) in &self.by {
            columns.push(when(first.clone(), key(name)).end()?.alias(name));
        }
        columns.push(bare(VALUE));
        columns.push(Expr::Not(Box::new(first)).alias(IS_OTHER));
        self.summed(ranked.project(columns)?, false)
    }

    fn by_bucket(&self, bucket: Expr) -> Result<LogicalPlan, DataFusionError> {
        let first = self.grouped(None)?.sort_with_limit(self.order(), Some(self.n))?;
        let first = first.window(vec![self.numbered()?])?;
        let mut columns = vec![bare(RANK)];
        columns.extend(self.by.iter().map(|(name, _)| key(name).alias(format!("of_{}", key_name(name)))));
        let first = first.project(columns)?.build()?;
        let left: Vec<Column> =
            self.by.iter().map(|(name, _)| Column::new_unqualified(key_name(name))).collect();
        let right: Vec<Column> =
            left.iter().map(|column| Column::new_unqualified(format!("of_{}", column.name))).collect();
        let joined = self.grouped(Some(bucket))?.join_detailed(
            first,
            JoinType::Left,
            (left, right),
            None,
            NullEquality::NullEqualsNull,
        )?;
        let mut columns = vec![bare(BUCKET), bare(RANK)];
        for (name, _) in &self.by {
            columns.push(when(bare(RANK).is_not_null(), key(name)).end()?.alias(name));
        }
        columns.push(bare(VALUE));
        columns.push(bare(RANK).is_null().alias(IS_OTHER));
        self.summed(joined.project(columns)?, true)
    }

    /// Groups with their values; keys have names of their own, so that none is taken for a column of the result.
    fn grouped(&self, bucket: Option<Expr>) -> Result<LogicalPlanBuilder, DataFusionError> {
        let groups = self.by.iter().map(|(name, expr)| expr.clone().alias(key_name(name)));
        let groups = groups.chain(bucket.map(|bucket| bucket.alias(BUCKET)));
        LogicalPlanBuilder::from(self.of.clone())
            .aggregate(groups.collect::<Vec<_>>(), [self.value.clone().alias(VALUE)])
    }

    fn order(&self) -> Vec<SortExpr> {
        let keys = self.by.iter().map(|(name, _)| key(name).sort(true, false));
        [bare(VALUE).sort(false, false)].into_iter().chain(keys).collect()
    }

    fn numbered(&self) -> Result<Expr, DataFusionError> {
        Ok(row_number().order_by(self.order()).build()?.alias(RANK))
    }

    /// One row per bucket and rank.
    fn summed(&self, rows: LogicalPlanBuilder, buckets: bool) -> Result<LogicalPlan, DataFusionError> {
        let bucket = || buckets.then(|| bare(BUCKET));
        let names = || self.by.iter().map(|(name, _)| bare(name));
        let groups: Vec<Expr> =
            bucket().into_iter().chain([bare(RANK)]).chain(names()).chain([bare(IS_OTHER)]).collect();
        let columns: Vec<Expr> = bucket()
            .into_iter()
            .chain([bare(RANK)])
            .chain(names())
            .chain([bare(VALUE), bare(IS_OTHER)])
            .collect();
        let order = bucket().into_iter().chain([bare(RANK)]).map(|column| column.sort(true, false));
        let rows = rows.aggregate(groups, [sum(bare(VALUE)).alias(VALUE)])?.project(columns)?;
        ordered(rows, order.collect(), None)
    }
}

/// The keys: `src_as, prefix(src_addr, 24) AS net`.
fn keys(
    state: &SessionState,
    text: &str,
    schema: &datafusion::common::DFSchema,
) -> Result<Vec<(String, Expr)>, DataFusionError> {
    let mut parser = DFParserBuilder::new(text).build()?;
    let asts = parser.parser.parse_comma_separated(|parser| parser.parse_expr_with_alias())?;
    if parser.parser.peek_token().token != Token::EOF {
        return plan_err!("expected columns with commas between them, got {text:?}");
    }
    let mut keys: Vec<(String, Expr)> = Vec::new();
    for ast in asts {
        let expr = state.create_logical_expr_from_sql_expr(ast, schema)?;
        let (name, expr) = match expr {
            Expr::Alias(alias) => (alias.name, *alias.expr),
            Expr::Column(column) => (column.name.clone(), Expr::Column(column)),
            other => {
                let name = other.schema_name().to_string();
                (name, other)
            }
        };
        if [BUCKET, RANK, VALUE, IS_OTHER].contains(&name.as_str())
            || keys.iter().any(|(other, _)| *other == name)
        {
            return plan_err!("two columns of top are called {name:?}: write {name} AS another_name");
        }
        keys.push((name, expr));
    }
    Ok(keys)
}

/// The value, which has to add up over groups.
fn value(expr: Expr) -> Result<Expr, DataFusionError> {
    let bare = expr.unalias();
    if let Expr::AggregateFunction(function) = &bare
        && matches!(function.func.name(), "sum" | "count")
        && !function.params.distinct
        && function.params.order_by.is_empty()
    {
        return Ok(bare);
    }
    Err(plan_datafusion_err!("top: expected sum(…) or count(…), which add up over groups, got {bare}"))
}

fn epoch() -> Expr {
    Expr::Literal(datafusion::common::ScalarValue::TimestampNanosecond(Some(0), None), None)
}

fn bare(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn key(name: &str) -> Expr {
    bare(&key_name(name))
}

fn key_name(name: &str) -> String {
    format!("key of {name}")
}
