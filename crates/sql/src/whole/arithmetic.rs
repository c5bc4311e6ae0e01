//! The operators as functions.

use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Datum, Int64Array, PrimitiveArray, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::common::{DataFusionError, ScalarValue, exec_datafusion_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Plus,
    Minus,
    Times,
    Divide,
    Modulo,
    /// Of one number.
    Negative,
}

impl Op {
    pub(super) fn of(operator: Operator) -> Option<Self> {
        Some(match operator {
            Operator::Plus => Self::Plus,
            Operator::Minus => Self::Minus,
            Operator::Multiply => Self::Times,
            Operator::Divide => Self::Divide,
            Operator::Modulo => Self::Modulo,
            _ => return None,
        })
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Plus => "+",
            Self::Minus | Self::Negative => "-",
            Self::Times => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }

    fn function(self) -> &'static str {
        match self {
            Self::Plus => "whole_add",
            Self::Minus => "whole_subtract",
            Self::Times => "whole_multiply",
            Self::Divide => "whole_divide",
            Self::Modulo => "whole_modulo",
            Self::Negative => "whole_negative",
        }
    }

    /// As an infinitely large type has it; `None` if there is no result. Numbers of 64 bits have products of 128.
    fn exact(self, one: i128, other: i128) -> Option<i128> {
        match self {
            Self::Plus => one.checked_add(other),
            Self::Minus => one.checked_sub(other),
            Self::Times => one.checked_mul(other),
            Self::Divide => one.checked_div(other),
            Self::Modulo => one.checked_rem(other),
            Self::Negative => one.checked_neg(),
        }
    }
}

/// An operator of whole numbers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Whole {
    op: Op,
    /// Whether its result is.
    unsigned: bool,
    signature: Signature,
}

impl Whole {
    pub(super) fn new(op: Op, unsigned: bool) -> Self {
        Self { op, unsigned, signature: Signature::user_defined(Volatility::Immutable) }
    }

    pub(super) fn call(self, args: Vec<Expr>) -> Expr {
        ScalarUDF::from(self).call(args)
    }

    /// As the operator is written.
    fn written(&self, args: &[impl fmt::Display]) -> String {
        let sign = self.op.sign();
        match args {
            [one, other] => format!("{one} {sign} {other}"),
            [one] => format!("(- {one})"),
            _ => self.name().to_owned(),
        }
    }

    fn result(&self) -> DataType {
        if self.unsigned { DataType::UInt64 } else { DataType::Int64 }
    }

    /// Without a look at each number, where both have the type of the result.
    fn at_once(&self, one: &dyn Datum, other: &dyn Datum) -> Option<Result<ArrayRef, ArrowError>> {
        let result = self.result();
        if [one, other].iter().any(|side| *side.get().0.data_type() != result) {
            return None;
        }
        Some(match self.op {
            Op::Plus => numeric::add(one, other),
            Op::Minus => numeric::sub(one, other),
            Op::Times => numeric::mul(one, other),
            Op::Divide => numeric::div(one, other),
            Op::Modulo => numeric::rem(one, other),
            Op::Negative => return None,
        })
    }

    fn one_by_one(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        shown: impl Fn() -> String,
    ) -> Result<ArrayRef, DataFusionError> {
        let nulls = columns.iter().fold(None, |nulls: Option<NullBuffer>, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let numbers = columns.iter().map(Numbers::of).collect::<Result<Vec<_>, _>>()?;
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                results.push(0);
                continue;
            }
            let one = numbers[0].at(row);
            let other = numbers.get(1).map_or(0, |numbers| numbers.at(row));
            let exact = self.op.exact(one, other);
            let fits = match self.unsigned {
                true => exact.and_then(|exact| u64::try_from(exact).ok()),
                false => exact.and_then(|exact| i64::try_from(exact).ok()).map(i64::cast_unsigned),
            };
            let Some(fits) = fits else {
                let values: Vec<i128> = numbers.iter().map(|numbers| numbers.at(row)).collect();
                let values = self.written(&values);
                return Err(match self.op {
                    Op::Divide | Op::Modulo if other == 0 => {
                        exec_datafusion_err!("{}: {values} divides by zero", shown())
                    }
                    _ => exec_datafusion_err!(
                        "{}: {values} is out of the range of {}",
                        shown(),
                        name(&self.result())
                    ),
                });
            };
            results.push(fits);
        }
        Ok(match self.unsigned {
            true => Arc::new(UInt64Array::new(results.into(), nulls)),
            false => {
                let results: Vec<i64> = results.into_iter().map(u64::cast_signed).collect();
                Arc::new(Int64Array::new(results.into(), nulls))
            }
        })
    }
}

/// As the docs call a type.
pub(super) fn name(kind: &DataType) -> &'static str {
    if *kind == DataType::UInt64 { "uint64" } else { "int64" }
}

enum Numbers<'a> {
    Signed(&'a PrimitiveArray<Int64Type>),
    Unsigned(&'a PrimitiveArray<UInt64Type>),
}

impl<'a> Numbers<'a> {
    fn of(column: &'a ArrayRef) -> Result<Self, DataFusionError> {
        match column.data_type() {
            DataType::Int64 => Ok(Self::Signed(column.as_primitive())),
            DataType::UInt64 => Ok(Self::Unsigned(column.as_primitive())),
            other => internal_err!("whole numbers of {other}"),
        }
    }

    fn at(&self, row: usize) -> i128 {
        match self {
            Self::Signed(numbers) => numbers.value(row).into(),
            Self::Unsigned(numbers) => numbers.value(row).into(),
        }
    }
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        self.op.function()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(self.result())
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>, DataFusionError> {
        let taken = given.iter().map(|kind| match kind {
            kind if kind.is_unsigned_integer() => Ok(DataType::UInt64),
            kind if kind.is_signed_integer() => Ok(DataType::Int64),
            other => plan_err!("{} of {other}", self.name()),
        });
        taken.collect()
    }

    fn display_name(&self, args: &[Expr]) -> Result<String, DataFusionError> {
        Ok(self.written(args))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String, DataFusionError> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(self.written(&names))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let is_one = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        if let [one, other] = args.args.as_slice()
            && !is_one
        {
            let (one, other) = (datum(one)?, datum(other)?);
            // A value that wraps around is found below, and reported with its numbers.
            if let Some(Ok(result)) = self.at_once(&*one, &*other) {
                return Ok(ColumnarValue::Array(result));
            }
        }
        let rows = if is_one { 1 } else { args.number_rows };
        let columns = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>, _>>()?;
        let shown = || {
            let args = args.args.iter().zip(&args.arg_fields);
            let args: Vec<String> = args
                .map(|(arg, field)| match arg {
                    ColumnarValue::Scalar(value) => value.to_string(),
                    ColumnarValue::Array(_) => field.name().clone(),
                })
                .collect();
            self.written(&args)
        };
        let result = self.one_by_one(&columns, rows, shown)?;
        Ok(if is_one {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)
        } else {
            ColumnarValue::Array(result)
        })
    }
}

fn datum(value: &ColumnarValue) -> Result<Box<dyn Datum>, DataFusionError> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(Arc::clone(array)),
        ColumnarValue::Scalar(scalar) => Box::new(scalar.to_scalar()?),
    })
}
