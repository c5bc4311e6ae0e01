//! The aggregate functions: their names, and the types that they take and give.

use std::fmt;

use thalweg_types::{DataType, Error};

/// An aggregate function of a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// `count(*)`
    CountAll,
    /// `count(x)`: values that are not null.
    Count,
    Sum,
    Avg,
    /// Sample standard deviation (n − 1).
    StdDev,
    /// Population standard deviation (n).
    StdDevPop,
    Var,
    VarPop,
    Min,
    Max,
    /// The oldest value that is not null.
    First,
    /// The newest value that is not null.
    Last,
    /// The value before the last.
    Prev,
    CountDistinct,
    /// The value of rank `floor(q · (n − 1))`, counted from 0, within 1 %.
    Quantile(f64),
}

impl Function {
    /// Its name in a query, and as the name of an output; `count(distinct x)` is `count_distinct` there.
    pub fn name(self) -> &'static str {
        match self {
            Function::CountAll | Function::Count => "count",
            Function::Sum => "sum",
            Function::Avg => "avg",
            Function::StdDev => "stddev",
            Function::StdDevPop => "stddev_pop",
            Function::Var => "var",
            Function::VarPop => "var_pop",
            Function::Min => "min",
            Function::Max => "max",
            Function::First => "first",
            Function::Last => "last",
            Function::Prev => "prev",
            Function::CountDistinct => "count_distinct",
            Function::Quantile(_) => "quantile",
        }
    }

    /// Whether it depends on the order of elements, so that streams must carry times and arrival numbers.
    pub fn is_ordered(self) -> bool {
        matches!(self, Function::Min | Function::Max | Function::First | Function::Last | Function::Prev)
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Function::CountAll => "count(*)",
            Function::CountDistinct => "count(distinct)",
            other => other.name(),
        })
    }
}

/// The type of a function's value.
///
/// | function | of | gives |
/// |---|---|---|
/// | `count(*)`, `count`, `count(distinct)` | anything but lists and structs | int64 |
/// | `sum` | int64, uint64, float64 | the same |
/// | `sum` | decimal(p,s) | decimal(38,s) up to p = 19, else decimal(76,s): 10^19 values fit |
/// | `avg`, `var`, `var_pop`, `stddev`, `stddev_pop`, `quantile` | a number | float64 |
/// | `min`, `max`, `first`, `last`, `prev` | anything but lists and structs | the same |
///
/// # Errors
/// An argument that is missing, superfluous or of a type that the function does not take, or a quantile
/// outside 0 to 1.
pub fn output_type(function: Function, arg: Option<&DataType>) -> Result<DataType, Error> {
    let Some(arg) = arg else {
        return match function {
            Function::CountAll => Ok(DataType::Int64),
            _ => Err(Error::user(format!("{function} expects an argument, got none"))
                .with_hint(format!("write {}", example(function)))),
        };
    };
    if matches!(arg, DataType::List(_) | DataType::Struct(_)) {
        return Err(Error::user(format!("{function} expects a single value, got {arg}")));
    }
    match function {
        Function::CountAll => {
            Err(Error::user(format!("count(*) expects no argument, got one of type {arg}")))
        }
        Function::Count | Function::CountDistinct => Ok(DataType::Int64),
        Function::Min | Function::Max | Function::First | Function::Last | Function::Prev => Ok(arg.clone()),
        Function::Quantile(q) if !(0.0..=1.0).contains(&q) => {
            Err(Error::user(format!("quantile expects a rank from 0 to 1, got {q}"))
                .with_hint("the median is quantile(x, 0.5)"))
        }
        _ if !arg.is_numeric() => {
            Err(Error::user(format!("{function} expects int64, uint64, float64 or decimal, got {arg}"))
                .with_hint(hint_for(arg)))
        }
        Function::Sum => Ok(match arg {
            DataType::Decimal { precision, scale } => {
                DataType::Decimal { precision: if *precision <= 19 { 38 } else { 76 }, scale: *scale }
            }
            other => other.clone(),
        }),
        Function::Avg
        | Function::StdDev
        | Function::StdDevPop
        | Function::Var
        | Function::VarPop
        | Function::Quantile(_) => Ok(DataType::Float64),
    }
}

fn example(function: Function) -> &'static str {
    match function {
        Function::CountAll => "count(*)",
        Function::Count => "count(x), or count(*) for all records",
        Function::CountDistinct => "count(distinct x)",
        Function::Quantile(_) => "quantile(x, 0.99)",
        Function::Prev | Function::First | Function::Last => "last(x)",
        _ => "sum(x)",
    }
}

fn hint_for(arg: &DataType) -> &'static str {
    match arg {
        DataType::String => "declare the field as a number in the source's schema, or cast it",
        DataType::Timestamp(_) => "min, max, first, last, prev and count take timestamps",
        _ => "min, max, first, last, prev and count take every type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: Function, arg: &str, expected: &str) {
        let arg = (!arg.is_empty()).then(|| DataType::parse(arg).unwrap());
        let got = match output_type(function, arg.as_ref()) {
            Ok(data_type) => data_type.to_string(),
            Err(error) => format!("{error}"),
        };
        assert_eq!(got, expected, "{function} of {arg:?}");
    }

    #[test]
    fn each_function_takes_and_gives_its_types() {
        check(Function::CountAll, "", "int64");
        check(Function::Count, "ip", "int64");
        check(Function::Sum, "int64", "int64");
        check(Function::Sum, "uint64", "uint64");
        check(Function::Sum, "float64", "float64");
        check(Function::Sum, "decimal(19,2)", "decimal(38,2)");
        check(Function::Sum, "decimal(20,2)", "decimal(76,2)");
        check(Function::Avg, "decimal(20,2)", "float64");
        check(Function::Max, "timestamp(ms)", "timestamp(ms)");
        check(Function::Prev, "string", "string");
        check(Function::Quantile(0.5), "uint64", "float64");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        check(Function::Sum, "", "sum expects an argument, got none");
        check(Function::CountAll, "int64", "count(*) expects no argument, got one of type int64");
        check(Function::Sum, "string", "sum expects int64, uint64, float64 or decimal, got string");
        check(
            Function::Avg,
            "timestamp(s)",
            "avg expects int64, uint64, float64 or decimal, got timestamp(s)",
        );
        check(Function::Quantile(1.5), "int64", "quantile expects a rank from 0 to 1, got 1.5");
        check(Function::Quantile(f64::NAN), "int64", "quantile expects a rank from 0 to 1, got NaN");
        check(Function::Quantile(0.5), "ip", "quantile expects int64, uint64, float64 or decimal, got ip");
    }
}
