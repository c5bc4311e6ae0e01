//! Aggregates that rollups answer in place of rows, to the bit.
//!
//! A rule of the optimizer looks for an aggregate over conditions and expressions over one table. It rewrites it if there
//! is a rollup such that
//! * groups, and conditions on other things than event time, are decided by the rollup's keys (`safe`);
//! * conditions on event time are bounds;
//! * aggregates are `sum` of its sums and `count(*)`, which may have a `FILTER` that its keys decide.
//!
//! The bounds are divided (`cover`): whole intervals for the coarsest such rollup, edges for finer ones and for the rows
//! of files. Rows that are in no file are always taken as they are. All these are united and summed once more: sums of
//! integers are exact, so they come out the same in whatever order and grouping; a count is a sum of counts, and 0 where
//! there are no rows.
//!
//! Rows that other nodes of a cluster have are one more part: these nodes compute the same groups of them, from their own
//! rollups too, where all that is asked has a text; else rows come, and are taken as they are.
//!
//! `EXPLAIN` shows the parts as `TABLE[ROLLUP]`, `TABLE[files]`, `TABLE[fresh]`, and `TABLE[groups elsewhere]` or
//! `TABLE[elsewhere]`. They are not looked at again, so the
//! rule may run as often as it likes.

mod cover;
mod kept;
mod peel;
mod rewrite;
mod safe;

use arrow_schema::DataType;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use thalweg_table::Rollup;

use crate::bounds::{Bounds, nanos};
use crate::elsewhere::text;
use crate::shown::shown;
use crate::stored::{Part, StoredTable};
use cover::{Level, Piece};
use kept::{every, kept_from, nanoseconds, open_ends};
use peel::Peeled;
use safe::Keys;

/// The rule. It comes after all others, when `now()` is a literal and conditions have come down to the scans.
#[derive(Debug)]
pub(crate) struct RollupRule;

impl OptimizerRule for RollupRule {
    fn name(&self) -> &str {
        "rollups"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>, DataFusionError> {
        if let LogicalPlan::Aggregate(aggregate) = &plan
            && let Some(asked) = Asked::of(aggregate)
            && let Some(rewritten) = asked.answer(aggregate)?
        {
            return Ok(Transformed::yes(rewritten));
        }
        Ok(Transformed::no(plan))
    }
}

/// What an aggregate is asked for, over columns of the table.
struct Asked {
    peeled: Peeled,
    groups: Vec<Expr>,
    values: Vec<Value>,
    bounds: Bounds,
    /// Conditions in addition to the bounds.
    conditions: Vec<Expr>,
}

/// The same as texts, for other nodes.
struct Question {
    keys: Vec<String>,
    values: Vec<String>,
    conditions: Vec<String>,
}

struct Value {
    kind: Kind,
    filter: Option<Expr>,
}

enum Kind {
    Sum(String),
    Count,
}

impl Asked {
    fn of(aggregate: &Aggregate) -> Option<Self> {
        let mut peeled = peel::peel(&aggregate.input)?;
        let table = stored(&peeled)?;
        let has_rollups = table.use_rollups && !table.snapshot.rollups.is_empty();
        if table.part != Part::Whole || !has_rollups && table.snapshot.elsewhere.is_empty() {
            return None;
        }
        let schema = aggregate.input.schema();
        let groups = aggregate
            .group_expr
            .iter()
            .map(|expr| peeled.resolve(expr, schema))
            .collect::<Option<Vec<_>>>()?;
        let values = aggregate.aggr_expr.iter().map(|expr| {
            let Expr::AggregateFunction(function) = unaliased(expr) else { return None };
            value(function, |expr| peeled.resolve(expr, schema), table)
        });
        let values = values.collect::<Option<Vec<_>>>()?;
        let mut bounds = Bounds::ALL;
        let mut conditions = Vec::new();
        let time = table.time().to_owned();
        for condition in std::mem::take(&mut peeled.conditions) {
            match Bounds::exact(&condition, &time) {
                Some(exact) => bounds = bounds.and(exact),
                None => conditions.push(condition),
            }
        }
        Some(Self { peeled, groups, values, bounds, conditions })
    }

    /// The plan with rollups in it; `None` where rows have to answer.
    fn answer(&self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>, DataFusionError> {
        let Some(table) = stored(&self.peeled) else { return Ok(None) };
        let pieces = self.pieces(table);
        let elsewhere = self.question(table, aggregate);
        if elsewhere.is_none() && !pieces.iter().any(|piece| matches!(piece, Piece::Rollup(..))) {
            return Ok(None);
        }
        rewrite::rewrite(self, table, &pieces, elsewhere.as_ref(), aggregate).map(Some)
    }

    /// What other nodes are asked for, if they have rows; `None` where a part of it has no text.
    fn question(&self, table: &StoredTable, aggregate: &Aggregate) -> Option<Question> {
        if table.snapshot.elsewhere.is_empty() {
            return None;
        }
        let schema = shown(&table.snapshot.schema);
        let of = |expr: &Expr| text::of(expr, &schema);
        // Equal floats may differ in bits, and are one group here.
        let mut keys = (0..self.groups.len()).map(|place| aggregate.schema.field(place).data_type());
        if keys.any(DataType::is_floating) {
            return None;
        }
        let mut conditions = text::of_bounds(table.time(), &schema, self.bounds)?;
        for condition in &self.conditions {
            conditions.push(of(condition)?);
        }
        let value = |value: &Value| {
            let sum = match &value.kind {
                Kind::Sum(column) => format!("sum({})", text::quoted(column)),
                Kind::Count => "count(*)".to_owned(),
            };
            Some(match &value.filter {
                Some(filter) => format!("{sum} FILTER (WHERE {})", of(filter)?),
                None => sum,
            })
        };
        Some(Question {
            keys: self.groups.iter().map(of).collect::<Option<_>>()?,
            values: self.values.iter().map(value).collect::<Option<_>>()?,
            conditions,
        })
    }

    /// Who answers for what; parts without data are left out.
    fn pieces(&self, table: &StoredTable) -> Vec<Piece> {
        let snapshot = &*table.snapshot;
        let mut levels: Vec<Level> = snapshot
            .rollups
            .iter()
            .enumerate()
            .filter(|(_, rollup)| table.use_rollups && self.fits(rollup, table))
            .map(|(index, rollup)| Level { index, every: every(rollup), from: kept_from(rollup) })
            .collect();
        levels.sort_by_key(|level| level.every);
        let first = snapshot.files.iter().map(|file| nanoseconds(file.first)).min().unwrap_or(i128::MAX);
        // Where no row was ever dropped, files have everything, also before their first row: that there is nothing.
        let dropped = snapshot.complete_from.map(nanoseconds);
        let files_from = dropped.map_or(i128::MIN, |complete_from| first.max(complete_from));
        let mut pieces = cover::cover(open_ends(self.bounds, snapshot), &levels, files_from);
        pieces.retain(|piece| {
            let (files, span) = match piece {
                Piece::Rollup(index, span) => (&snapshot.rollups[*index].files, span),
                Piece::Files(span) => (&snapshot.files, span),
            };
            files.iter().any(|file| Bounds::of_file(file.first, file.last).meets(*span))
        });
        pieces
    }

    /// Whether a rollup knows all that is asked.
    fn fits(&self, rollup: &Rollup, table: &StoredTable) -> bool {
        let snapshot = &table.snapshot;
        let of_rows = shown(&snapshot.schema);
        let of_rollup = shown(&rollup.schema);
        let same = |name: &str| match (of_rows.field_with_name(name), of_rollup.field_with_name(name)) {
            (Ok(one), Ok(other)) => one.data_type() == other.data_type(),
            _ => false,
        };
        let DataType::Timestamp(unit, None) = snapshot.schema.field(snapshot.time).data_type() else {
            return false;
        };
        // Starts of intervals that the column cannot hold are rounded, and then are no starts.
        if every(rollup) <= 0 || every(rollup) % nanos(*unit) != 0 || !same(table.time()) {
            return false;
        }
        let counts = of_rollup.field_with_name(Rollup::COUNT);
        if !counts.is_ok_and(|field| *field.data_type() == DataType::Int64) {
            return false;
        }
        // Equal floats may differ in bits, and then their order would show.
        let is_key = |name: &&String| {
            same(name) && of_rows.field_with_name(name).is_ok_and(|field| !field.data_type().is_floating())
        };
        let by = rollup.spec.by.iter().filter(is_key).map(String::as_str).collect();
        let keys = Keys { time: table.time(), by, every: every(rollup) };
        let filters = self.values.iter().filter_map(|value| value.filter.as_ref());
        let decided = self.groups.iter().chain(&self.conditions).chain(filters).all(|expr| keys.decide(expr));
        decided
            && self.values.iter().all(|value| match &value.kind {
                Kind::Sum(column) => same(column) && rollup.spec.sum.contains(column),
                Kind::Count => true,
            })
    }
}

fn stored(peeled: &Peeled) -> Option<&StoredTable> {
    let any: &dyn std::any::Any = peeled.table.as_ref();
    any.downcast_ref()
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// The aggregate as one that rollups have.
fn value(
    function: &AggregateFunction,
    resolve: impl Fn(&Expr) -> Option<Expr>,
    table: &StoredTable,
) -> Option<Value> {
    let AggregateFunctionParams { args, distinct: false, filter, order_by, null_treatment: None } =
        &function.params
    else {
        return None;
    };
    let [arg] = args.as_slice() else { return None };
    if !order_by.is_empty() {
        return None;
    }
    let filter = match filter {
        Some(filter) => Some(resolve(filter)?),
        None => None,
    };
    let field = |name: &str| table.snapshot.schema.field_with_name(name).ok();
    let kind = match (function.func.name(), resolve(arg)?) {
        ("sum", Expr::Column(column)) => {
            let kind = field(&column.name)?.data_type();
            matches!(kind, DataType::Int64 | DataType::UInt64).then(|| Kind::Sum(column.name))?
        }
        ("count", Expr::Literal(value, _)) if !value.is_null() => Kind::Count,
        ("count", Expr::Column(column)) if !field(&column.name)?.is_nullable() => Kind::Count,
        _ => return None,
    };
    Some(Value { kind, filter })
}
