//! The plan that takes the place of an aggregate: parts of the table united, and summed once more.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, Union, lit, when,
};
use thalweg_table::Rollup;

use super::cover::Piece;
use super::{Asked, Kind, Question};
use crate::bounds::Bounds;
use crate::elsewhere::Groups;
use crate::stored::{Part, StoredTable};
use crate::whole::sum;

/// Builds the plan; its columns are those of the aggregate, with their names and types.
pub(super) fn rewrite(
    asked: &Asked,
    table: &StoredTable,
    pieces: &[Piece],
    elsewhere: Option<&Question>,
    aggregate: &Aggregate,
) -> Result<LogicalPlan, DataFusionError> {
    let mut parts: Vec<(Part, Bounds)> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Rollup(index, span) => (Part::Rollup(*index), *span),
            Piece::Files(span) => (Part::Files, *span),
        })
        .collect();
    if table.snapshot.fresh.iter().any(|batch| batch.num_rows() > 0) {
        parts.push((Part::Fresh, asked.bounds));
    }
    if !table.snapshot.elsewhere.is_empty() && elsewhere.is_none() {
        parts.push((Part::Elsewhere, asked.bounds));
    }
    let mut inputs = parts
        .into_iter()
        .map(|(part, span)| branch(asked, table, part, span).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(question) = elsewhere {
        inputs.push(Arc::new(groups_elsewhere(asked, table, question, aggregate)?));
    }
    let united = match inputs.len() {
        1 => inputs.remove(0),
        _ => Arc::new(LogicalPlan::Union(Union::try_new(inputs)?)),
    };
    let groups = (0..asked.groups.len()).map(|place| column(&group_name(place))).collect();
    // A sum that is out of range is reported under the name that it was asked by.
    let name = |place: usize| aggregate.schema.field(asked.groups.len() + place).name().clone();
    let sums =
        (0..asked.values.len()).map(|place| sum(column(&value_name(place))).alias(name(place))).collect();
    let summed = LogicalPlan::Aggregate(Aggregate::try_new(united, groups, sums)?);
    let columns: Vec<Column> = summed.schema().columns();
    let out = columns.into_iter().enumerate().map(|(place, column)| {
        let (qualifier, field) = aggregate.schema.qualified_field(place);
        let counts = place
            .checked_sub(asked.groups.len())
            .and_then(|place| asked.values.get(place))
            .is_some_and(|value| matches!(value.kind, Kind::Count));
        let expr = match counts {
            true => coalesce(vec![Expr::Column(column), lit(0_i64)]),
            false => Expr::Column(column),
        };
        let expr = expr.cast_to(field.data_type(), summed.schema())?;
        Ok(expr.alias_qualified(qualifier.cloned(), field.name()))
    });
    let out = out.collect::<Result<Vec<_>, DataFusionError>>()?;
    Ok(LogicalPlan::Projection(Projection::try_new(out, Arc::new(summed))?))
}

/// One part of the table: groups and the values to be summed, row by row.
fn branch(
    asked: &Asked,
    table: &StoredTable,
    part: Part,
    span: Bounds,
) -> Result<LogicalPlan, DataFusionError> {
    let shown = match part {
        Part::Rollup(index) | Part::NamedRollup(index) => table.snapshot.rollups[index].spec.name.as_str(),
        Part::Files => "files",
        Part::Fresh | Part::Whole => "fresh",
        Part::Elsewhere => "elsewhere",
    };
    let name = TableReference::bare(format!("{}[{shown}]", asked.peeled.name.table()));
    // Not to be rewritten again.
    let provider = StoredTable::new(Arc::clone(&table.snapshot), part, false);
    let source = provider_as_source(Arc::new(provider));
    let mut plan = LogicalPlanBuilder::scan(name.clone(), source, None)?;
    let own = |expr: &Expr| qualified(expr.clone(), &name);
    for condition in asked.conditions.iter().map(own).chain([Ok(within(span, table, &name))]) {
        plan = plan.filter(condition?)?;
    }
    let mut out = Vec::with_capacity(asked.groups.len() + asked.values.len());
    for (place, group) in asked.groups.iter().enumerate() {
        out.push(own(group)?.alias(group_name(place)));
    }
    for (place, value) in asked.values.iter().enumerate() {
        let of_row = match (&value.kind, part) {
            (Kind::Sum(column), _) => Expr::Column(Column::new(Some(name.clone()), column)),
            (Kind::Count, Part::Rollup(_) | Part::NamedRollup(_)) => {
                Expr::Column(Column::new(Some(name.clone()), Rollup::COUNT))
            }
            (Kind::Count, _) => lit(1_i64),
        };
        let of_row = match &value.filter {
            Some(filter) => when(own(filter)?, of_row).end()?,
            None => of_row,
        };
        out.push(of_row.alias(value_name(place)));
    }
    plan.project(out)?.build()
}

/// The part that other nodes compute: groups and values, as those of rows.
fn groups_elsewhere(
    asked: &Asked,
    table: &StoredTable,
    question: &Question,
    aggregate: &Aggregate,
) -> Result<LogicalPlan, DataFusionError> {
    let mut fields = Vec::with_capacity(asked.groups.len() + asked.values.len());
    for place in 0..asked.groups.len() {
        let (_, field) = aggregate.schema.qualified_field(place);
        fields.push(Field::new(group_name(place), field.data_type().clone(), true));
    }
    for (place, value) in asked.values.iter().enumerate() {
        let data_type = match &value.kind {
            Kind::Sum(column) => table.snapshot.schema.field_with_name(column)?.data_type().clone(),
            Kind::Count => DataType::Int64,
        };
        fields.push(Field::new(value_name(place), data_type, true));
    }
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let Question { keys, values, conditions } = question;
    let snapshot = Arc::clone(&table.snapshot);
    let groups = Groups::new(snapshot, keys, values, conditions, Arc::new(Schema::new(fields)));
    let name = TableReference::bare(format!("{}[groups elsewhere]", asked.peeled.name.table()));
    let plan = LogicalPlanBuilder::scan(name.clone(), provider_as_source(Arc::new(groups)), None)?;
    let columns =
        names.iter().map(|column| Expr::Column(Column::new(Some(name.clone()), column)).alias(column));
    plan.project(columns.collect::<Vec<Expr>>())?.build()
}

/// Names that only the parts and their sum see.
fn group_name(place: usize) -> String {
    format!("group_{place}")
}

fn value_name(place: usize) -> String {
    format!("value_{place}")
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// The expression over the columns of a part.
fn qualified(expr: Expr, name: &TableReference) -> Result<Expr, DataFusionError> {
    let done = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new(Some(name.clone()), column.name)))
            }
            other => Transformed::no(other),
        })
    });
    done.map(|done| done.data)
}

/// The bounds as a condition on the part's time.
fn within(span: Bounds, table: &StoredTable, name: &TableReference) -> Expr {
    let time = Expr::Column(Column::new(Some(name.clone()), table.time()));
    let data_type = table.snapshot.schema.field(table.snapshot.time).data_type();
    span.condition(&time, data_type).unwrap_or_else(|| lit(true))
}
