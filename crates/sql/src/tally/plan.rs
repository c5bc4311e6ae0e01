//! A grouping in a plan of DataFusion.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, Partitioning,
    PlanProperties, ReplaceChildrenOptions,
};

use super::Sizes;
use super::Wanted;
use super::groups::{MAX_KEYS, MAX_SUMS};
use super::spare::Spare;
use super::work::{Output, Runs};

/// What is summed up for each group.
#[derive(Clone, Debug)]
pub(super) enum Sum {
    /// Rows.
    Rows,
    /// Rows in which it has a value.
    Present(Arc<dyn PhysicalExpr>),
    /// A number of 64 bits, with a sign or without.
    Of(Arc<dyn PhysicalExpr>),
}

/// Which groups are given out, if their reader keeps only the first of each partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    /// By this sum.
    pub(super) sum: usize,
    pub(super) is_descending: bool,
    /// A group after this number of groups of its partition may be left out.
    pub(super) count: usize,
}

/// So many groups are looked for at most.
pub(super) const MOST_BEST: usize = 1 << 14;

impl Best {
    /// For a reader that takes this of an answer with `keys` keys before its sums.
    fn of(Wanted { column, rows, is_descending }: Wanted, keys: usize) -> Option<Self> {
        let sum = column.checked_sub(keys)?;
        (rows > 0 && rows <= MOST_BEST).then_some(Self { sum, is_descending, count: rows })
    }
}

/// The values and keys of a grouping.
#[derive(Debug)]
pub(super) struct Grouping {
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) sums: Vec<Sum>,
    /// Of its answer: the keys, then the sums.
    pub(super) schema: SchemaRef,
    pub(super) best: Option<Best>,
}

/// All stages of a grouping. Which group is in which partition of its output is its own affair.
#[derive(Debug)]
pub(super) struct Tally {
    input: Arc<dyn ExecutionPlan>,
    grouping: Arc<Grouping>,
    properties: Arc<PlanProperties>,
    runs: Runs,
    /// The expression that it replaces, for sums that may be more than 64 bits hold.
    wide: Arc<dyn ExecutionPlan>,
}

impl Tally {
    /// In place of the last stage of one of DataFusion's and all that is before it; `None` if that has parts that are
    /// not known here.
    pub(super) fn of(
        plan: &Arc<dyn ExecutionPlan>,
        wanted: Option<Wanted>,
        sizes: Sizes,
        spare: &Arc<Spare>,
    ) -> Option<Self> {
        let any: &dyn Any = plan.as_ref();
        let last = any.downcast_ref::<AggregateExec>()?;
        let first = match last.mode() {
            AggregateMode::Single | AggregateMode::SinglePartitioned => last,
            AggregateMode::Final | AggregateMode::FinalPartitioned => first_stage(last.input())?,
            _ => return None,
        };
        if !is_plain(first) || !is_plain(last) {
            return None;
        }
        let schema = last.schema();
        let keys: Vec<_> = first.group_expr().expr().iter().map(|(key, _)| Arc::clone(key)).collect();
        let input = first.input().schema();
        let sums = first.aggr_expr().iter().map(|sum| Sum::of(sum, &input)).collect::<Option<Vec<_>>>()?;
        let fits = keys.len() <= MAX_KEYS && sums.len() <= MAX_SUMS;
        let fits = fits && schema.fields().len() == keys.len() + sums.len();
        let best = wanted.and_then(|wanted| Best::of(wanted, keys.len()));
        let grouping = Grouping { keys, sums, schema, best };
        grouping.columns().ok()?;
        let outputs = last.properties().output_partitioning().partition_count();
        fits.then(|| Self {
            input: Arc::clone(first.input()),
            grouping: Arc::new(grouping),
            properties: Arc::new(
                PlanProperties::clone(last.properties())
                    .with_partitioning(Partitioning::UnknownPartitioning(outputs)),
            ),
            runs: Runs::new(sizes, Arc::clone(spare)),
            wide: Arc::clone(plan),
        })
    }

    pub(super) fn input(&self) -> Arc<dyn ExecutionPlan> {
        Arc::clone(&self.input)
    }

    /// The same over another input.
    pub(super) fn over(self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, ..self }
    }
}

/// The stage that has summed up the input of the last one.
fn first_stage(mut plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    loop {
        let any: &dyn Any = plan.as_ref();
        if let Some(first) = any.downcast_ref::<AggregateExec>() {
            return (*first.mode() == AggregateMode::Partial).then_some(first);
        }
        let is_passed =
            any.is::<RepartitionExec>() || any.is::<CoalescePartitionsExec>() || any.is::<CooperativeExec>();
        match plan.children().as_slice() {
            [input] if is_passed => plan = input,
            _ => return None,
        }
    }
}

fn is_plain(stage: &AggregateExec) -> bool {
    let group = stage.group_expr();
    group.is_single()
        && !group.is_true_no_grouping()
        && !group.has_grouping_set()
        && stage.limit_options().is_none()
        && stage.filter_expr().iter().all(Option::is_none)
        && matches!(stage.input_order_mode(), InputOrderMode::Linear)
}

impl Sum {
    fn of(sum: &Arc<AggregateFunctionExpr>, input: &SchemaRef) -> Option<Self> {
        let (arguments, order) = (sum.expressions(), sum.order_bys());
        let [argument] = arguments.as_slice() else { return None };
        if sum.is_distinct() || sum.ignore_nulls() || sum.is_reversed() || !order.is_empty() {
            return None;
        }
        let literal = argument.downcast_ref::<Literal>();
        match sum.fun().name() {
            "count" if literal.is_some_and(|literal| !literal.value().is_null()) => Some(Sum::Rows),
            "count" if literal.is_none() => Some(Sum::Present(Arc::clone(argument))),
            "sum" => {
                let field = sum.field();
                let is_number = matches!(field.data_type(), DataType::Int64 | DataType::UInt64);
                let is_same = argument.data_type(input).is_ok_and(|of| of == *field.data_type());
                (is_number && is_same).then(|| Sum::Of(Arc::clone(argument)))
            }
            _ => None,
        }
    }
}

impl DisplayAs for Tally {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.grouping.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let (keys, sums) = names.split_at(self.grouping.keys.len());
        write!(f, "Tally: by=[{}], sums=[{}]", keys.join(", "), sums.join(", "))?;
        if let Some(Best { sum, is_descending, count }) = self.grouping.best {
            let order = if is_descending { "largest" } else { "smallest" };
            write!(f, ", {order}={count} of {}", sums.get(sum).copied().unwrap_or_default())?;
        }
        Ok(())
    }
}

impl ExecutionPlan for Tally {
    fn name(&self) -> &str {
        "Tally"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.grouping.schema)
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        let sums = self.grouping.sums.iter().filter_map(|sum| match sum {
            Sum::Rows => None,
            Sum::Present(of) | Sum::Of(of) => Some(of),
        });
        for expression in self.grouping.keys.iter().chain(sums) {
            if f(expression)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        match children.pop() {
            Some(input) if children.is_empty() => Ok(Arc::new(Self {
                input,
                grouping: Arc::clone(&self.grouping),
                properties: Arc::clone(&self.properties),
                runs: self.runs.anew(),
                wide: Arc::clone(&self.wide),
            })),
            _ => internal_err!("a tally has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let outputs = self.properties.output_partitioning().partition_count();
        let output = Output { partition, of: outputs };
        let batches = self.runs.join(output, (&self.grouping, &self.wide), &self.input, &context)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}
