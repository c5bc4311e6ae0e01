//! A stage of a grouping, as DataFusion runs it.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::aggregates::{
    AggregateExec, AggregateInputMode, AggregateMode, AggregateOutputMode,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
    ReplaceChildrenOptions,
};
use futures_util::{StreamExt as _, stream};

use super::groups::{Addend, Groups, MAX_KEYS, MAX_SUMS};
use super::key::KeyColumn;
use super::texts::Texts;

/// Groups of a stage that has another one behind it.
pub(super) const MOST_GROUPS: usize = 1 << 20;

/// Fewer are not worth to be handed out early.
const LEAST_GROUPS: usize = 1 << 12;

/// What is summed up for each group.
#[derive(Clone, Debug)]
enum Sum {
    /// Rows.
    Rows,
    /// Rows in which it has a value.
    Present(Arc<dyn PhysicalExpr>),
    /// A number of 64 bits, with a sign or without.
    Of(Arc<dyn PhysicalExpr>),
}

/// A stage of a grouping.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    sums: Vec<Sum>,
    mode: AggregateMode,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl Tally {
    /// In place of one of DataFusion's; `None` where that does what is not known here.
    pub(super) fn of(plan: &AggregateExec) -> Option<Self> {
        let (group, schema, input) = (plan.group_expr(), plan.schema(), plan.input().schema());
        let is_plain = group.is_single() && !group.is_true_no_grouping() && !group.has_grouping_set();
        let is_plain =
            is_plain && plan.limit_options().is_none() && plan.filter_expr().iter().all(Option::is_none);
        if !is_plain || !matches!(plan.input_order_mode(), InputOrderMode::Linear) {
            return None;
        }
        let keys: Vec<_> = group.expr().iter().map(|(key, _)| Arc::clone(key)).collect();
        let types = schema.fields().iter().take(keys.len()).map(|field| field.data_type());
        KeyColumn::all(types)?;
        let is_raw = plan.mode().input_mode() == AggregateInputMode::Raw;
        let sum = |(at, sum): (usize, &Arc<AggregateFunctionExpr>)| match is_raw {
            true => Sum::of_rows(sum, &input),
            false => Sum::of_states(sum, keys.len() + at, &input),
        };
        let sums = plan.aggr_expr().iter().enumerate().map(sum).collect::<Option<Vec<_>>>()?;
        let fits = keys.len() <= MAX_KEYS && sums.len() <= MAX_SUMS;
        let fits = fits && schema.fields().len() == keys.len() + sums.len();
        fits.then(|| Self {
            input: Arc::clone(plan.input()),
            keys,
            sums,
            mode: *plan.mode(),
            properties: Arc::clone(plan.properties()),
            schema,
        })
    }

    /// Whether what it gives out may have a group twice.
    fn is_first(&self) -> bool {
        self.mode.output_mode() == AggregateOutputMode::Partial
    }
}

impl Sum {
    fn of_rows(sum: &AggregateFunctionExpr, input: &SchemaRef) -> Option<Self> {
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
                let is_same = argument.data_type(input).is_ok_and(|of| of == *sum.field().data_type());
                (is_same && is_number(sum.field().data_type())).then(|| Sum::Of(Arc::clone(argument)))
            }
            _ => None,
        }
    }

    /// Of what an earlier stage has summed up, in the column `at`.
    fn of_states(sum: &AggregateFunctionExpr, at: usize, input: &SchemaRef) -> Option<Self> {
        let known = matches!(sum.fun().name(), "count" | "sum") && !sum.is_distinct();
        let state = input.fields().get(at)?;
        (known && is_number(state.data_type()) && state.data_type() == sum.field().data_type())
            .then(|| Sum::Of(Arc::new(Column::new(state.name(), at))))
    }
}

fn is_number(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

impl DisplayAs for Tally {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let (keys, sums) = names.split_at(self.keys.len());
        write!(f, "Tally: mode={:?}, by=[{}], sums=[{}]", self.mode, keys.join(", "), sums.join(", "))
    }
}

impl ExecutionPlan for Tally {
    fn name(&self) -> &str {
        "Tally"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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
        let sums = self.sums.iter().filter_map(|sum| match sum {
            Sum::Rows => None,
            Sum::Present(of) | Sum::Of(of) => Some(of),
        });
        for expression in self.keys.iter().chain(sums) {
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
            Some(input) if children.is_empty() => Ok(Arc::new(Self { input, ..Self::clone(&self) })),
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
        let input = self.input.execute(partition, Arc::clone(&context))?;
        let memory = MemoryConsumer::new("groups").register(context.memory_pool());
        let types = self.schema.fields().iter().take(self.keys.len()).map(|field| field.data_type());
        let Some((columns, words)) = KeyColumn::all(types) else {
            return internal_err!("a tally of columns that it does not know");
        };
        let work = Work {
            plan: self.clone(),
            columns,
            texts: Texts::default(),
            groups: Groups::new(words, self.sums.len()),
            words,
            keys: Vec::new(),
            nulls: Vec::new(),
            memory,
            batch_rows: context.session_config().batch_size(),
            given_out: None,
            is_over: false,
        };
        let steps = stream::try_unfold((work, input), |(mut work, mut input)| async move {
            loop {
                if let Some(batch) = work.give_out()? {
                    return Ok(Some((batch, (work, input))));
                }
                if work.is_over {
                    return Ok(None);
                }
                match input.next().await {
                    Some(batch) => work.take(&batch?)?,
                    None => work.end(),
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), steps)))
    }
}

/// A stage at work on one partition.
struct Work {
    plan: Tally,
    columns: Vec<KeyColumn>,
    texts: Texts,
    groups: Groups,
    /// Words of a key.
    words: usize,
    /// Keys of the rows that are being added, and which of their columns are null.
    keys: Vec<u64>,
    nulls: Vec<u8>,
    memory: MemoryReservation,
    batch_rows: usize,
    /// Up to which place groups were given out; `None`: rows come in.
    given_out: Option<usize>,
    is_over: bool,
}

impl Work {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let rows = batch.num_rows();
        self.keys.clear();
        self.keys.resize(rows * self.words, 0);
        self.nulls.clear();
        self.nulls.resize(rows, 0);
        for (column, key) in self.columns.iter_mut().zip(&self.plan.keys) {
            let values = key.evaluate(batch)?.into_array(rows)?;
            column.write(&values, &mut self.texts, &mut self.keys, self.words, &mut self.nulls)?;
        }
        let values =
            self.plan.sums.iter().map(|sum| Values::of(sum, batch)).collect::<Result<Vec<_>, _>>()?;
        let sums = values.iter().map(Values::addend).collect::<Result<Vec<_>, _>>()?;
        self.groups.add(&self.keys, &self.nulls, &sums);
        self.hold(rows)
    }

    /// Takes the memory that the next rows may need, if they are as many as these; hands out early where there is none.
    fn hold(&mut self, rows: usize) -> Result<(), DataFusionError> {
        let texts = self.texts.bytes() + self.columns.iter().map(KeyColumn::bytes).sum::<usize>();
        let held = self.memory.try_resize(self.groups.bytes_with(rows) + texts);
        let may_end = self.plan.is_first() && self.groups.len() >= LEAST_GROUPS;
        if may_end && (held.is_err() || self.groups.len() >= MOST_GROUPS) {
            self.given_out = Some(0);
            return Ok(());
        }
        held
    }

    fn end(&mut self) {
        self.is_over = true;
        self.given_out = Some(0);
    }

    /// The next groups, while they are given out.
    fn give_out(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let Some(from) = self.given_out else { return Ok(None) };
        let (groups, next) = self.groups.from(from, self.batch_rows);
        if groups.is_empty() {
            self.given_out = None;
            self.groups.clear();
            self.columns.iter_mut().for_each(KeyColumn::clear);
            self.texts.clear();
            self.memory.free();
            return Ok(None);
        }
        let mut columns = self
            .columns
            .iter()
            .map(|column| column.read(&groups, &self.texts))
            .collect::<Result<Vec<_>, _>>()?;
        let fields = self.plan.schema.fields().iter().skip(columns.len());
        for (number, field) in fields.enumerate() {
            let sums = groups.iter().map(|group| group.sum(number));
            columns.push(match (field.data_type(), field.is_nullable()) {
                // A count of nothing is 0, a sum of nothing null.
                (DataType::Int64, false) => {
                    Arc::new(Int64Array::from_iter_values(sums.map(|sum| sum.unwrap_or(0).cast_signed())))
                }
                (DataType::Int64, true) => {
                    Arc::new(sums.map(|sum| sum.map(u64::cast_signed)).collect::<Int64Array>()) as ArrayRef
                }
                _ => Arc::new(sums.collect::<UInt64Array>()),
            });
        }
        self.given_out = Some(next);
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.plan.schema), columns)?))
    }
}

/// What a sum adds for the rows of a batch.
enum Values {
    One,
    Numbers(ArrayRef),
    Present(NullBuffer),
}

impl Values {
    fn of(sum: &Sum, batch: &RecordBatch) -> Result<Self, DataFusionError> {
        let rows = batch.num_rows();
        Ok(match sum {
            Sum::Rows => Values::One,
            Sum::Present(of) => {
                let present = of.evaluate(batch)?.into_array(rows)?.logical_nulls();
                present.map_or(Values::One, Values::Present)
            }
            Sum::Of(of) => Values::Numbers(of.evaluate(batch)?.into_array(rows)?),
        })
    }

    fn addend(&self) -> Result<Addend<'_>, DataFusionError> {
        Ok(match self {
            Values::One => Addend::One,
            Values::Present(present) => Addend::Present(present),
            Values::Numbers(numbers) => match numbers.data_type() {
                DataType::Int64 => {
                    Addend::Signed(numbers.as_primitive::<Int64Type>().values(), numbers.nulls())
                }
                DataType::UInt64 => {
                    Addend::Unsigned(numbers.as_primitive::<UInt64Type>().values(), numbers.nulls())
                }
                other => return internal_err!("a sum of {other}"),
            },
        })
    }
}
