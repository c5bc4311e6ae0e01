//! `percentile_cont` to the last bit of a float: DataFusion's weighs the two values next to a rank with six
//! decimal places, cut off.
//!
//! The rank is `p × (n - 1)`, from the first value in the order of `WITHIN GROUP`; the result is
//! `lower + (upper - lower) × fraction`, as in PostgreSQL.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, ListArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::cast;
use datafusion::common::{DataFusionError, ScalarValue, internal_err, plan_err};
use datafusion::functions_aggregate::percentile_cont::PercentileCont;
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, GroupsAccumulator, Signature,
};

/// The function, to be registered.
pub(crate) fn percentile_cont() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Percentile { of: PercentileCont::new() }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Percentile {
    of: PercentileCont,
}

impl AggregateUDFImpl for Percentile {
    fn name(&self) -> &str {
        self.of.name()
    }

    fn aliases(&self) -> &[String] {
        self.of.aliases()
    }

    fn signature(&self) -> &Signature {
        self.of.signature()
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType, DataFusionError> {
        self.of.return_type(given)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>, DataFusionError> {
        if args.input_fields[0].data_type().is_null() {
            return self.of.state_fields(args);
        }
        let item = Field::new_list_field(DataType::Float64, true);
        Ok(vec![Arc::new(Field::new(format!("{}[values]", args.name), DataType::List(Arc::new(item)), true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>, DataFusionError> {
        if args.expr_fields[0].data_type().is_null() {
            return self.of.accumulator(args);
        }
        let order = args.order_bys.first();
        Ok(Box::new(Values {
            values: Vec::new(),
            share: share(&args)?,
            is_descending: order.is_some_and(|order| order.options.descending),
            is_distinct: args.is_distinct,
            kind: args.return_field.data_type().clone(),
        }))
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        false
    }

    fn create_groups_accumulator(
        &self,
        _: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>, DataFusionError> {
        internal_err!("percentile_cont has an accumulator for each group")
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        self.of.simplify()
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The number between 0 and 1 that it is called with.
fn share(args: &AccumulatorArgs<'_>) -> Result<f64, DataFusionError> {
    let empty = arrow_array::RecordBatch::new_empty(Arc::new(args.schema.clone()));
    let value = match args.exprs.get(1).map(|expr| expr.evaluate(&empty)) {
        Some(Ok(ColumnarValue::Scalar(value))) => value.cast_to(&DataType::Float64).ok(),
        _ => None,
    };
    match value {
        Some(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(&share) => Ok(share),
        Some(ScalarValue::Float64(Some(share))) => {
            plan_err!("percentile_cont: expected a number from 0 to 1, got {share}")
        }
        _ => plan_err!("percentile_cont: expected a literal number from 0 to 1"),
    }
}

#[derive(Debug)]
struct Values {
    values: Vec<f64>,
    share: f64,
    is_descending: bool,
    is_distinct: bool,
    /// A type of floats.
    kind: DataType,
}

impl Values {
    fn take(&mut self, column: &ArrayRef) -> Result<(), DataFusionError> {
        let column = cast(column, &DataType::Float64)?;
        self.values.extend(column.as_primitive::<Float64Type>().iter().flatten());
        Ok(())
    }

    fn result(&mut self) -> Option<f64> {
        let values = &mut self.values;
        if self.is_distinct {
            values.sort_unstable_by(f64::total_cmp);
            // Zeros of both signs are one value, and so are all NaNs.
            values.dedup_by(|a, b| a == b || a.is_nan() && b.is_nan());
        }
        let last = values.len().checked_sub(1)?;
        let rank = self.share * last as f64;
        let lower = (rank.floor() as usize).min(last);
        let fraction = rank - lower as f64;
        let is_descending = self.is_descending;
        let order = |a: &f64, b: &f64| if is_descending { b.total_cmp(a) } else { a.total_cmp(b) };
        let (_, at, behind) = values.select_nth_unstable_by(lower, order);
        let at = *at;
        // The one after it in their order.
        let next = behind.iter().copied().min_by(order);
        match next.filter(|next| fraction > 0.0 && *next != at) {
            Some(next) => Some(at + (next - at) * fraction),
            None => Some(at),
        }
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<(), DataFusionError> {
        self.take(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<(), DataFusionError> {
        let lists = states[0].as_list::<i32>();
        lists.iter().flatten().try_for_each(|values| self.take(&values))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>, DataFusionError> {
        let values = Float64Array::from(std::mem::take(&mut self.values));
        let count = i32::try_from(values.len())
            .map_err(|_| DataFusionError::ResourcesExhausted("values of percentile_cont".to_owned()))?;
        let ends = OffsetBuffer::new(ScalarBuffer::from(vec![0, count]));
        let item = Arc::new(Field::new_list_field(DataType::Float64, true));
        Ok(vec![ScalarValue::List(Arc::new(ListArray::new(item, ends, Arc::new(values), None)))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue, DataFusionError> {
        let result = self.result();
        ScalarValue::Float64(result).cast_to(&self.kind)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.capacity() * size_of::<f64>()
    }
}
