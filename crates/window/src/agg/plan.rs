//! From calls to states: calls with the same argument share one state where their sums do.
//!
//! | state | answers |
//! |---|---|
//! | moments | `sum`, `avg`, `var`, `stddev`, `count(x)` of one argument; the first also takes `count(*)` |
//! | count | `count(*)`, `count(x)` where there are no moments to take them |
//! | one each | `min`, `max`, `first`, `last` with `prev`, `count(distinct)`, all quantiles, of one argument |
//!
//! `count(distinct)` has its values in itself, or they are groups of their own; where no value leaves by itself, `min`,
//! `max` and `first` keep one value and no queue ([`Leaving`]).

use thalweg_types::{DataType, Error, Micros};

use super::best::Best;
use super::count::Count;
use super::distinct::Distinct;
use super::front::{Front, Largest, Oldest, Rule, Smallest};
use super::kind::{Kind, with_kind};
use super::latest::Latest;
use super::moments::{Decimal, Float, Int, Kept, Moment, Moments, Narrow, Number, UInt, Wide256};
use super::occurrences::Occurrences;
use super::quantile::Quantile;
use super::{Aggregate, Function, output_type};

/// One aggregate call of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub function: Function,
    /// Type of the argument; `None` for `count(*)`.
    pub arg: Option<DataType>,
    /// Number of the argument: calls with the same number have the same argument, and may share a state.
    pub arg_index: Option<usize>,
}

/// How values leave the window that the states are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The oldest first.
    OneByOne,
    /// All at once when a window of this span ends (`TUMBLING`).
    Together(Micros),
    Never,
}

/// Builds the states that answer `calls` in windows that values leave one by one; each call is answered by exactly one
/// of them.
///
/// # Errors
/// As [`output_type`] says, and for a call with a type but no number, or the other way round.
pub fn plan(calls: &[Call]) -> Result<Vec<Box<dyn Aggregate>>, Error> {
    plan_in(calls, Leaving::OneByOne, false)
}

/// As [`plan`], in any window; values of `count(distinct)` may be groups of their own.
///
/// # Errors
/// As [`plan`].
pub(crate) fn plan_in(
    calls: &[Call],
    leaving: Leaving,
    are_values_groups: bool,
) -> Result<Vec<Box<dyn Aggregate>>, Error> {
    plan_of(calls, |share| match &share.arg {
        Some((arg, _)) if share.family == Family::Distinct && are_values_groups => {
            let calls = share.calls.iter().map(|(number, _)| *number).collect();
            let span = if let Leaving::Together(span) = leaving { Some(span) } else { None };
            Box::new(Occurrences::new(calls, *arg, span))
        }
        _ => share.build(leaving),
    })
}

fn plan_of(
    calls: &[Call],
    build: impl Fn(Share) -> Box<dyn Aggregate>,
) -> Result<Vec<Box<dyn Aggregate>>, Error> {
    let mut shares: Vec<Share> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        output_type(call.function, call.arg.as_ref())?;
        let family = Family::of(call.function);
        let arg = match (&call.arg, call.arg_index) {
            (None, None) => None,
            (Some(data_type), Some(index)) => Some((index, data_type.clone())),
            _ => {
                return Err(Error::internal(format!(
                    "{} expects an argument type and its number, or neither",
                    call.function
                )));
            }
        };
        match shares.iter_mut().find(|share| share.family == family && share.arg == arg) {
            Some(share) => share.calls.push((number, call.function)),
            None => shares.push(Share { family, arg, calls: vec![(number, call.function)] }),
        }
    }
    let counts = shares.extract_if(.., |share| share.family == Family::Count).collect::<Vec<_>>();
    let mut alone = Vec::new();
    for count in counts {
        let host = shares
            .iter_mut()
            .find(|share| share.family == Family::Moments && (count.arg.is_none() || share.arg == count.arg));
        match host {
            Some(host) => host.calls.extend(count.calls),
            None => alone.push(count),
        }
    }
    Ok(shares.into_iter().chain(alone).map(build).collect())
}

/// What calls must have in common to share a state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    Count,
    Moments,
    Min,
    Max,
    First,
    Latest,
    Distinct,
    Quantile,
}

impl Family {
    fn of(function: Function) -> Self {
        match function {
            Function::CountAll | Function::Count => Family::Count,
            Function::Sum
            | Function::Avg
            | Function::StdDev
            | Function::StdDevPop
            | Function::Var
            | Function::VarPop => Family::Moments,
            Function::Min => Family::Min,
            Function::Max => Family::Max,
            Function::First => Family::First,
            Function::Last | Function::Prev => Family::Latest,
            Function::CountDistinct => Family::Distinct,
            Function::Quantile(_) => Family::Quantile,
        }
    }
}

/// A state to be.
struct Share {
    family: Family,
    arg: Option<(usize, DataType)>,
    /// Number and function of each call.
    calls: Vec<(usize, Function)>,
}

impl Share {
    fn build(self, leaving: Leaving) -> Box<dyn Aggregate> {
        let calls: Vec<usize> = self.calls.iter().map(|(number, _)| *number).collect();
        let Some((arg, data_type)) = self.arg else { return Box::new(Count::new(calls, None)) };
        let functions = self.calls.iter().map(|(_, function)| *function);
        match self.family {
            Family::Count => Box::new(Count::new(calls, Some(arg))),
            Family::Moments => {
                let moments: Vec<Moment> = functions.map(moment).collect();
                match &data_type {
                    DataType::Float64 => build_moments(Float, arg, calls, moments),
                    DataType::Int64 => build_moments(Int, arg, calls, moments),
                    DataType::UInt64 => build_moments(UInt, arg, calls, moments),
                    DataType::Decimal { precision, scale } => {
                        let output = output_type(Function::Sum, Some(&data_type));
                        let Ok(DataType::Decimal { precision: out, .. }) = output else {
                            unreachable!("the sum of decimals is decimal")
                        };
                        if *precision <= 38 {
                            build_moments(Decimal::<Narrow>::new(out, *scale), arg, calls, moments)
                        } else {
                            build_moments(Decimal::<Wide256>::new(out, *scale), arg, calls, moments)
                        }
                    }
                    other => unreachable!("output_type refuses sums of {other}"),
                }
            }
            Family::Min => {
                with_kind!(data_type, K => build_front::<K, Smallest>(leaving, calls, arg, data_type))
            }
            Family::Max => {
                with_kind!(data_type, K => build_front::<K, Largest>(leaving, calls, arg, data_type))
            }
            Family::First => {
                with_kind!(data_type, K => build_front::<K, Oldest>(leaving, calls, arg, data_type))
            }
            Family::Latest => {
                let behind: Vec<usize> =
                    functions.map(|function| usize::from(function == Function::Prev)).collect();
                if behind.contains(&1) {
                    with_kind!(data_type, K => Box::new(Latest::<K, 2>::new(calls, behind, arg, data_type)))
                } else {
                    with_kind!(data_type, K => Box::new(Latest::<K, 1>::new(calls, behind, arg, data_type)))
                }
            }
            Family::Distinct => with_kind!(data_type, K => Box::new(Distinct::<K>::new(calls, arg))),
            Family::Quantile => {
                let ranks = functions
                    .map(|function| match function {
                        Function::Quantile(q) => q,
                        other => unreachable!("{other} is no quantile"),
                    })
                    .collect();
                Box::new(Quantile::new(calls, ranks, arg))
            }
        }
    }
}

fn build_front<K: Kind, R: Rule<K> + 'static>(
    leaving: Leaving,
    calls: Vec<usize>,
    arg: usize,
    data_type: DataType,
) -> Box<dyn Aggregate> {
    match leaving {
        Leaving::OneByOne => Box::new(Front::<K, R>::new(calls, arg, data_type)),
        Leaving::Together(_) | Leaving::Never => Box::new(Best::<K, R>::new(calls, arg, data_type)),
    }
}

fn moment(function: Function) -> Moment {
    match function {
        Function::CountAll => Moment::Rows,
        Function::Count => Moment::Count,
        Function::Sum => Moment::Sum,
        Function::Avg => Moment::Mean,
        Function::Var => Moment::Variance { sample: true },
        Function::VarPop => Moment::Variance { sample: false },
        Function::StdDev => Moment::Deviation { sample: true },
        Function::StdDevPop => Moment::Deviation { sample: false },
        other => unreachable!("{other} is no moment"),
    }
}

fn build_moments<N: Number>(
    number: N,
    arg: usize,
    calls: Vec<usize>,
    moments: Vec<Moment>,
) -> Box<dyn Aggregate> {
    if moments.iter().any(|moment| moment.needs_squares()) {
        Box::new(Moments::<N, Kept<N::Square>>::new(number, arg, calls, moments))
    } else {
        Box::new(Moments::<N, ()>::new(number, arg, calls, moments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(function: Function, arg: Option<(usize, DataType)>) -> Call {
        let (arg_index, arg) = arg.unzip();
        Call { function, arg, arg_index }
    }

    fn shape(calls: &[Call]) -> Vec<(Vec<usize>, Option<usize>)> {
        plan(calls).unwrap().iter().map(|state| (state.calls().to_vec(), state.arg())).collect()
    }

    #[test]
    fn calls_of_one_argument_share_a_state() {
        let amount = || Some((3, DataType::Float64));
        assert_eq!(
            shape(&[
                call(Function::CountAll, None),
                call(Function::Sum, amount()),
                call(Function::Max, amount()),
                call(Function::StdDev, amount()),
                call(Function::Count, amount()),
                call(Function::Prev, amount()),
                call(Function::Last, amount()),
                call(Function::Count, Some((4, DataType::String))),
                call(Function::Quantile(0.5), amount()),
                call(Function::Quantile(0.9), amount()),
            ]),
            [
                (vec![1, 3, 0, 4], Some(3)),
                (vec![2], Some(3)),
                (vec![5, 6], Some(3)),
                (vec![8, 9], Some(3)),
                (vec![7], Some(4)),
            ]
        );
        assert_eq!(shape(&[call(Function::CountAll, None)]), [(vec![0], None)]);
    }

    #[test]
    fn refused_calls_name_what_was_expected() {
        let error = plan(&[call(Function::Sum, Some((0, DataType::String)))]).err().unwrap();
        assert_eq!(error.message(), "sum expects int64, uint64, float64 or decimal, got string");
        assert!(error.hint().is_some());
    }
}
