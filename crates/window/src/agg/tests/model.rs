//! Random schedules: out of order, in several batches, with nulls, resets and values of every kind.

use arrow_buffer::i256;
use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use thalweg_types::{DataType, TimeUnit, Value};

use super::naive::{check, same};
use super::rig::{Rig, Step};
use crate::agg::reference::doubles;
use crate::agg::{Function, NO_GROUP};

const GROUPS: u32 = 4;

const ANY: [Function; 8] = [
    Function::CountAll,
    Function::Count,
    Function::Min,
    Function::Max,
    Function::First,
    Function::Last,
    Function::Prev,
    Function::CountDistinct,
];

const NUMERIC: [Function; 8] = [
    Function::Sum,
    Function::Avg,
    Function::Var,
    Function::VarPop,
    Function::StdDev,
    Function::StdDevPop,
    Function::Quantile(0.5),
    Function::Quantile(0.99),
];

fn numeric() -> Vec<Function> {
    [ANY, NUMERIC].concat()
}

fn floats() -> BoxedStrategy<Value> {
    prop_oneof![
        12 => doubles(),
        1 => prop_oneof![Just(f64::NAN), Just(-f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
    ]
    .prop_map(Value::Float64)
    .boxed()
}

fn ints() -> BoxedStrategy<Value> {
    prop_oneof![-100_i64..100, any::<i64>(), Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Int64).boxed()
}

fn uints() -> BoxedStrategy<Value> {
    prop_oneof![0_u64..100, any::<u64>(), Just(u64::MAX)].prop_map(Value::UInt64).boxed()
}

fn decimals(precision: u32, scale: i8) -> BoxedStrategy<Value> {
    let limit = i256::from_i128(10).checked_pow(precision).unwrap();
    let near = i256::from_i128(1_000_000).min(limit);
    prop_oneof![
        (any::<i128>(), any::<u128>()).prop_map(move |(high, low)| i256::from_parts(low, high) % limit),
        any::<i128>().prop_map(move |x| i256::from_i128(x) % near),
        Just(limit - i256::ONE),
        Just(i256::ONE - limit),
    ]
    .prop_map(move |x| Value::Decimal(x, scale))
    .boxed()
}

/// Values of few different contents, so that they meet again.
fn others(data_type: &DataType) -> BoxedStrategy<Value> {
    match data_type {
        DataType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        DataType::String => "[a-c]{0,2}|a string that is longer than a view".prop_map(Value::String).boxed(),
        DataType::Bytes => vec(250_u8..=255, 0..3).prop_map(Value::Bytes).boxed(),
        DataType::Ip => (0_u8..4)
            .prop_map(|last| Value::Ip([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, last]))
            .boxed(),
        DataType::Timestamp(unit) => {
            let unit = *unit;
            (-5_i64..5).prop_map(move |count| Value::Timestamp(count, unit)).boxed()
        }
        other => panic!("no values of {other}"),
    }
}

/// Steps whose elements come up to 40 late.
fn steps(values: BoxedStrategy<Value>) -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![9 => values, 1 => Just(Value::Null)];
    let element = (0..GROUPS, prop_oneof![4 => Just(0_i64), 1 => 0_i64..40], value);
    let step = (
        vec(element, 0..3),
        vec(0..GROUPS, 0..3),
        prop_oneof![12 => 0..GROUPS, 1 => Just(NO_GROUP)],
        prop::bool::weighted(0.02),
    );
    vec(step, 1..80).prop_map(|steps| {
        steps
            .into_iter()
            .enumerate()
            .map(|(now, (adds, removes, read, reset))| Step {
                reset: reset && read != NO_GROUP,
                adds: adds
                    .into_iter()
                    .map(|(group, late, value)| (group, now as i64 / 2 - late, value))
                    .collect(),
                removes,
                read,
            })
            .collect()
    })
}

fn run(functions: &[Function], data_type: &DataType, script: &[Step], batch: usize) {
    let mut rig = Rig::new(functions, data_type, GROUPS as usize);
    for (number, batch) in script.chunks(batch).enumerate() {
        if number % 2 == 1 {
            rig.reload();
        }
        for reading in rig.run(batch) {
            check(functions, data_type, &reading);
        }
        for group in rig.groups() {
            check(functions, data_type, &rig.read(group));
        }
    }
}

/// The bits of every value of a group.
fn fingerprint(rig: &Rig, group: u32) -> Vec<Value> {
    rig.read(group).values.into_iter().map(|(value, _)| value).collect()
}

proptest! {
    #[test]
    fn float64(script in steps(floats()), batch in 1_usize..100) {
        run(&numeric(), &DataType::Float64, &script, batch);
    }

    #[test]
    fn float64_sums_without_squares(script in steps(floats()), batch in 1_usize..100) {
        run(&[Function::CountAll, Function::Sum, Function::Avg], &DataType::Float64, &script, batch);
    }

    #[test]
    fn int64(script in steps(ints()), batch in 1_usize..100) {
        run(&numeric(), &DataType::Int64, &script, batch);
    }

    #[test]
    fn uint64(script in steps(uints()), batch in 1_usize..100) {
        run(&numeric(), &DataType::UInt64, &script, batch);
    }

    #[test]
    fn decimals_of_every_width((script, precision, scale) in prop_oneof![
        Just((9, 2)), Just((19, 0)), Just((38, 38)), Just((39, 3)), Just((76, 20)), Just((76, 76)),
    ].prop_flat_map(|(p, s)| (steps(decimals(p, s)), Just(p as u8), Just(s))), batch in 1_usize..100) {
        run(&numeric(), &DataType::Decimal { precision, scale }, &script, batch);
    }

    #[test]
    fn values_of_other_types((data_type, script) in prop_oneof![
        Just(DataType::Bool), Just(DataType::String), Just(DataType::Bytes), Just(DataType::Ip),
        Just(DataType::Timestamp(TimeUnit::Second)), Just(DataType::Timestamp(TimeUnit::Milli)),
        Just(DataType::Timestamp(TimeUnit::Micro)), Just(DataType::Timestamp(TimeUnit::Nano)),
    ].prop_flat_map(|data_type| (Just(data_type.clone()), steps(others(&data_type)))), batch in 1_usize..100) {
        run(&ANY, &data_type, &script, batch);
    }

    /// Whatever the bytes, an image is loaded or refused.
    #[test]
    fn damaged_images_are_loaded_or_refused(
        floats in steps(floats()),
        texts in steps(others(&DataType::String)),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        for (functions, data_type, script) in [
            (&numeric()[..], DataType::Float64, floats),
            (&ANY[..], DataType::String, texts),
        ] {
            let mut rig = Rig::new(functions, &data_type, GROUPS as usize);
            rig.run(&script);
            for (state, images) in rig.images().iter().enumerate() {
                for image in images {
                    prop_assert!(rig.load_foreign(state, image).is_ok());
                    prop_assert!(rig.load_foreign(state, &image[..cut.index(image.len())]).is_err());
                    let mut damaged = image.clone();
                    damaged[place.index(image.len())] = byte;
                    let _ = rig.load_foreign(state, &damaged);
                }
            }
        }
    }

    /// One window is filled in order of time; the other in another order, with elements that have left again.
    #[test]
    fn values_are_a_function_of_the_window(
        content in vec(floats(), 0..30), gone in vec(floats(), 0..30), shuffle in any::<u64>()
    ) {
        let functions = numeric();
        let mut straight = Rig::new(&functions, &DataType::Float64, 1);
        let element = |time: usize, value: &Value| (0, time as i64, value.clone());
        let adds = content.iter().enumerate().map(|(time, value)| element(time, value)).collect();
        straight.run(&[Step { adds, ..Step::default() }]);

        let mut crooked = Rig::new(&functions, &DataType::Float64, 1);
        let gone = gone.iter().enumerate().map(|(index, value)| (0, index as i64 - 1000, value.clone()));
        let mut adds: Vec<_> =
            content.iter().enumerate().map(|(time, value)| element(time, value)).chain(gone.clone()).collect();
        Rng::with_seed(shuffle).shuffle(&mut adds);
        let removes = vec![0; gone.count()];
        crooked.run(&[Step { adds, removes, ..Step::default() }]);
        for (a, b) in fingerprint(&straight, 0).iter().zip(&fingerprint(&crooked, 0)) {
            prop_assert!(same(a, b), "{a:?} {b:?}");
        }
    }

    #[test]
    fn an_emptied_state_holds_what_an_empty_one_holds(script in steps(floats())) {
        let mut rig = Rig::new(&NUMERIC[..6], &DataType::Float64, GROUPS as usize);
        let empty = rig.states[0].bytes();
        rig.run(&script);
        let removes = (0..GROUPS).flat_map(|group| vec![group; 300]).collect();
        rig.run(&[Step { removes, ..Step::default() }]);
        for group in rig.groups() {
            check(&NUMERIC[..6], &DataType::Float64, &rig.read(group));
        }
        // The table of outliers keeps its places.
        prop_assert!(rig.states[0].bytes() <= empty + 200, "{} {empty}", rig.states[0].bytes());
    }
}
