//! `sum` of whole numbers with 128 bits, which no number of rows fills; of other things as DataFusion has it.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, Decimal128Array, Int64Array, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, ScalarValue, exec_datafusion_err, internal_err};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature,
};

use super::arithmetic::name;

static SUM: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::from(ExactSum { of: Sum::new() })));

/// The function, to be registered.
pub(crate) fn exact_sum() -> Arc<AggregateUDF> {
    Arc::clone(&SUM)
}

/// `sum(of)` as an expression.
pub(crate) fn sum(of: Expr) -> Expr {
    SUM.call(vec![of])
}

/// The summed type: decimals without places, whose sums are added with 128 bits.
const WIDE: DataType = DataType::Decimal128(38, 0);

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    of: Sum,
}

fn is_whole(kind: &DataType) -> bool {
    matches!(kind, DataType::Int64 | DataType::UInt64)
}

fn wide_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, WIDE, true))
}

/// Calls with arguments that say that decimals are summed.
fn widened<T>(args: AccumulatorArgs<'_>, call: impl FnOnce(AccumulatorArgs<'_>) -> T) -> T {
    let result = wide_field(args.return_field.name());
    let fields: Vec<FieldRef> = args.expr_fields.iter().map(|field| wide_field(field.name())).collect();
    call(AccumulatorArgs { return_field: result, expr_fields: &fields, ..args })
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.of.name()
    }

    fn signature(&self) -> &Signature {
        self.of.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType, DataFusionError> {
        self.of.return_type(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>, DataFusionError> {
        if !is_whole(args.return_field.data_type()) {
            return self.of.accumulator(args);
        }
        let to = Narrowing::of(&args);
        let wide = widened(args, |args| self.of.accumulator(args))?;
        Ok(Box::new(One { wide, to }))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>, DataFusionError> {
        if !is_whole(args.return_field.data_type()) {
            return self.of.create_sliding_accumulator(args);
        }
        let to = Narrowing::of(&args);
        let wide = widened(args, |args| self.of.create_sliding_accumulator(args))?;
        Ok(Box::new(One { wide, to }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>, DataFusionError> {
        if !is_whole(args.return_field.data_type()) {
            return self.of.state_fields(args);
        }
        let result = wide_field(args.return_field.name());
        self.of.state_fields(StateFieldsArgs { return_field: result, ..args })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>, DataFusionError> {
        if !is_whole(args.return_field.data_type()) {
            return self.of.create_groups_accumulator(args);
        }
        let to = Narrowing::of(&args);
        let wide = widened(args, |args| self.of.create_groups_accumulator(args))?;
        Ok(Box::new(Groups { wide, to }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.of.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.of.order_sensitivity()
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.of.set_monotonicity(kind)
    }
}

/// Where a sum goes to in the end.
#[derive(Debug)]
struct Narrowing {
    to: DataType,
    /// The sum as it is written, for errors.
    shown: String,
}

impl Narrowing {
    fn of(args: &AccumulatorArgs<'_>) -> Self {
        Self { to: args.return_field.data_type().clone(), shown: args.name.to_owned() }
    }

    fn leaves(&self, sum: i128) -> DataFusionError {
        exec_datafusion_err!("{}: {sum} is out of the range of {}", self.shown, name(&self.to))
    }

    fn column(&self, sums: &Decimal128Array) -> Result<ArrayRef, DataFusionError> {
        Ok(match self.to {
            DataType::UInt64 => Arc::new(
                sums.try_unary::<_, UInt64Type, _>(|sum| u64::try_from(sum).map_err(|_| self.leaves(sum)))?,
            ) as ArrayRef,
            _ => Arc::new(
                sums.try_unary::<_, Int64Type, _>(|sum| i64::try_from(sum).map_err(|_| self.leaves(sum)))?,
            ),
        })
    }
}

/// The numbers with 128 bits.
fn wide(values: &[ArrayRef]) -> Result<ArrayRef, DataFusionError> {
    let [values] = values else { return internal_err!("a sum of {} columns", values.len()) };
    let wide: Decimal128Array = match values.data_type() {
        DataType::Int64 => {
            let values: &Int64Array = values.as_primitive();
            values.unary::<_, Decimal128Type>(i128::from)
        }
        DataType::UInt64 => {
            let values: &UInt64Array = values.as_primitive();
            values.unary::<_, Decimal128Type>(i128::from)
        }
        other => return internal_err!("a sum of whole numbers of {other}"),
    };
    Ok(Arc::new(wide.with_data_type(WIDE)))
}

#[derive(Debug)]
struct One {
    wide: Box<dyn Accumulator>,
    to: Narrowing,
}

impl Accumulator for One {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<(), DataFusionError> {
        self.wide.update_batch(&[wide(values)?])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<(), DataFusionError> {
        self.wide.retract_batch(&[wide(values)?])
    }

    fn supports_retract_batch(&self) -> bool {
        self.wide.supports_retract_batch()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<(), DataFusionError> {
        self.wide.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>, DataFusionError> {
        self.wide.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue, DataFusionError> {
        let sum = self.wide.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&self.to.column(sum.as_primitive())?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.wide.size()
    }
}

struct Groups {
    wide: Box<dyn GroupsAccumulator>,
    to: Narrowing,
}

impl GroupsAccumulator for Groups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<(), DataFusionError> {
        self.wide.update_batch(&[wide(values)?], groups, filter, group_count)
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> Result<(), DataFusionError> {
        self.wide.merge_batch(states, groups, group_count)
    }

    fn evaluate(&mut self, which: EmitTo) -> Result<ArrayRef, DataFusionError> {
        let sums = self.wide.evaluate(which)?;
        self.to.column(sums.as_primitive())
    }

    fn state(&mut self, which: EmitTo) -> Result<Vec<ArrayRef>, DataFusionError> {
        self.wide.state(which)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>, DataFusionError> {
        self.wide.convert_to_state(&[wide(values)?], filter)
    }

    fn size(&self) -> usize {
        self.wide.size()
    }
}
