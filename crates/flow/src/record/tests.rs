//! Records in, records out: held against the input itself and against other ways to cut it.

use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::FixedSizeBinaryBuilder;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Decimal128Type, Decimal256Type};
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Float64Array, Int64Array, PrimitiveArray, RecordBatch,
    StringViewArray, StructArray, TimestampMillisecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow_buffer::i256;
use proptest::prelude::*;
use thalweg_types::{DataType, Field, Seq, Seqs, TimeUnit, Value};

use super::*;
use crate::collect;

/// One field of each type, all nullable.
fn all_types() -> Schema {
    let inner = vec![Field::new("n", DataType::Int64).nullable()];
    let types = [
        ("b", DataType::Bool),
        ("i", DataType::Int64),
        ("u", DataType::UInt64),
        ("f", DataType::Float64),
        ("d", DataType::Decimal { precision: 12, scale: 3 }),
        ("e", DataType::Decimal { precision: 60, scale: 3 }),
        ("s", DataType::String),
        ("x", DataType::Bytes),
        ("t", DataType::Timestamp(TimeUnit::Milli)),
        ("v", DataType::Timestamp(TimeUnit::Nano)),
        ("p", DataType::Ip),
        ("q", DataType::Struct(inner)),
    ];
    Schema::new(types.map(|(name, data_type)| Field::new(name, data_type).nullable()).to_vec())
}

/// A batch with one row per seed and order number; every third value or so is null.
fn batch_of(rows: &[(Seq, u64)], range: SeqRange) -> Batch {
    let mut at = 0_u64;
    let mut draw = |seed: u64| {
        at += 1;
        let mixed = (seed ^ at << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (!mixed.is_multiple_of(3)).then_some(mixed >> 8)
    };
    macro_rules! column {
        ($array:ty, $value:expr) => {{
            let values: Vec<_> = rows.iter().map(|(_, seed)| draw(*seed).map($value)).collect();
            Arc::new(<$array>::from_iter(values)) as ArrayRef
        }};
    }
    let text = |n: u64| "grüße, ".repeat((n % 5) as usize);
    let decimals: PrimitiveArray<Decimal128Type> =
        rows.iter().map(|(_, seed)| draw(*seed).map(|n| i128::from(n % 1_000_000) - 500)).collect();
    let wide: PrimitiveArray<Decimal256Type> =
        rows.iter().map(|(_, seed)| draw(*seed).map(|n| i256::from_i128(i128::from(n) << 60))).collect();
    let mut ips = FixedSizeBinaryBuilder::new(16);
    for (_, seed) in rows {
        match draw(*seed) {
            None => ips.append_null(),
            Some(n) if n % 2 == 0 => {
                let v4 = std::net::Ipv4Addr::from_bits(n as u32).to_ipv6_mapped();
                ips.append_value(v4.octets()).unwrap();
            }
            Some(n) => ips.append_value((u128::from(n) << 64).to_be_bytes()).unwrap(),
        }
    }
    let inner = column!(Int64Array, |n| n as i64);
    let schema = all_types();
    let arrow_schema::DataType::Struct(fields) = schema.arrow().field(11).data_type().clone() else {
        panic!("field 11 is a struct")
    };
    let valid: Vec<bool> = rows.iter().map(|(_, seed)| draw(*seed).is_some()).collect();
    let columns: Vec<ArrayRef> = vec![
        column!(BooleanArray, |n| n % 2 == 0),
        column!(Int64Array, |n| n as i64),
        column!(UInt64Array, |n| n << 9),
        column!(Float64Array, |n| if n % 5 == 0 {
            f64::from_bits(n | 0xfff8 << 48)
        } else {
            -0.0 * n as f64
        }),
        Arc::new(decimals.with_precision_and_scale(12, 3).unwrap()),
        Arc::new(wide.with_precision_and_scale(60, 3).unwrap()),
        column!(StringViewArray, text),
        column!(BinaryViewArray, |n| vec![n as u8; (n % 30) as usize]),
        column!(TimestampMillisecondArray, |n| n as i64 - 5),
        column!(TimestampNanosecondArray, |n| n as i64),
        Arc::new(ips.finish()),
        Arc::new(StructArray::new(fields, vec![inner], Some(valid.into()))),
    ];
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
    let times: Vec<Micros> = rows.iter().map(|(_, seed)| *seed as i64 % 1_000).collect();
    Batch::new(range, records, times.into(), Seqs::Each(rows.iter().map(|(seq, _)| *seq).collect()))
}

/// Order number, time and values of each row, floats by their bits.
fn contents(batch: &Batch) -> Vec<(Seq, Micros, Vec<String>)> {
    let text = |value: Value| match value {
        Value::Float64(float) => format!("{:x}", float.to_bits()),
        other => format!("{other:?}"),
    };
    let row = |row: u32| {
        let values = batch.records().columns().iter().map(|column| text(Value::at(column, row as usize)));
        (batch.seq(row), batch.times()[row as usize], values.collect())
    };
    batch.row_numbers().map(row).collect()
}

type Rows = Vec<(Seq, Micros, Vec<String>)>;

/// What an operator emits on its outputs when its inputs are given range by range.
fn run(
    operator: impl RecordOperator,
    outputs: &[Schema],
    inputs: &[Batch],
    cuts: &[Seq],
) -> Result<Vec<Rows>, Error> {
    let schemas = vec![all_types(); inputs.len()];
    let mut operator = PerRecord::new(operator, &schemas, outputs);
    let mut rests = inputs.to_vec();
    let mut emitted: Vec<Rows> = vec![Vec::new(); outputs.len()];
    let end = inputs[0].range().end;
    for cut in cuts.iter().copied().chain([end]) {
        let mut range = SeqRange::default();
        let batches = collect(|out| {
            for (port, rest) in rests.iter_mut().enumerate() {
                let (piece, left) = rest.split(cut);
                *rest = left;
                range = piece.range();
                if !piece.is_empty() {
                    operator.process(InputId { port, task: 0 }, piece, out)?;
                }
            }
            operator.complete(range, out)
        })?;
        for (port, batch) in batches {
            emitted[port].extend(contents(&batch));
            assert!(contents(&batch).iter().all(|(seq, ..)| range.contains(*seq)));
        }
    }
    assert!(emitted.iter().all(|rows| rows.is_sorted_by_key(|(seq, ..)| *seq)), "numbers ascend");
    for (port, batch) in collect(|out| operator.finish(out))? {
        emitted[port].extend(contents(&batch));
    }
    Ok(emitted)
}

/// Passes every record on, in one of three ways that should be one.
#[derive(Clone, Copy)]
enum Identity {
    Forward,
    Copy,
    Typed,
    /// Each record another way, after one that is begun and given up.
    Mixed,
}

impl RecordOperator for Identity {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        macro_rules! typed {
            ($new:ident, $($name:literal: $type:ty),+) => {{
                let schema = all_types();
                let $new = $new$(.set(
                    Set::<Option<$type>>::of(&schema, $name)?,
                    record.get(Get::<Option<$type>>::of(&schema, $name)?),
                ))+;
                $new
            }};
        }
        match self {
            Identity::Forward => out.forward(0, record),
            Identity::Copy => out.record(0).copy(record).send(),
            Identity::Typed => {
                let new = out.record(0).copy(record);
                let new = typed!(new, "b": bool, "i": i64, "u": u64, "f": f64, "d": Decimal, "e": Decimal,
                    "s": String, "x": Vec<u8>, "t": Timestamp, "v": Timestamp, "p": IpAddr);
                new.send()
            }
            Identity::Mixed => {
                let ways = [Identity::Forward, Identity::Typed, Identity::Copy];
                if record.seq() % 4 == 1 {
                    let _given_up = out.record(0).copy(record);
                }
                let mut way = ways[record.seq() as usize / 2 % 3];
                way.process(record, out)
            }
        }
    }
}

/// Emits as many copies as the state says, some as they are and some with a field changed, on two outputs.
struct Busy {
    count: i64,
    read: Get<Option<i64>>,
    write: Set<Option<i64>>,
    log: Vec<Seq>,
}

impl Busy {
    fn new() -> Self {
        let schema = all_types();
        Self {
            count: 0,
            read: Get::of(&schema, "i").unwrap(),
            write: Set::of(&schema, "i").unwrap(),
            log: Vec::new(),
        }
    }
}

impl RecordOperator for Busy {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let step = record.get(self.read).unwrap_or(1) % 3 + record.port() as i64;
        self.count += step;
        self.log.push(record.seq());
        for copy in 0..self.count % 4 {
            if copy == 1 {
                out.forward(1, record)?;
            } else {
                out.record(self.count as usize % 2)
                    .copy(record)
                    .set(self.write, Some(self.count))
                    .time(copy)
                    .send()?;
            }
        }
        if self.count % 2 == 0 { out.forward(0, record) } else { Ok(()) }
    }

    fn finish(&mut self, out: &mut Emit<'_>) -> Result<(), Error> {
        assert!(self.log.is_sorted(), "records come in order: {:?}", self.log);
        out.record(1).set(self.write, Some(self.count)).send()
    }
}

prop_compose! {
    /// Up to three inputs over one range, each with a selection of its rows, and where it is cut.
    fn streams(inputs: usize)(
        rows in proptest::collection::vec((0..inputs, any::<u64>(), 0..3_u64, any::<bool>()), 0..60),
        cuts in proptest::collection::vec(0..100_u64, 0..12),
    ) -> (Vec<Batch>, Vec<Seq>) {
        let mut seq = 0;
        let numbered: Vec<_> = rows
            .into_iter()
            .map(|(input, seed, gap, taken)| {
                seq += gap;
                (input, seq, seed, taken)
            })
            .collect();
        let end = seq + 1;
        let input = |wanted: usize| {
            let own: Vec<_> = numbered.iter().filter(|(input, ..)| *input == wanted).collect();
            let rows: Vec<(Seq, u64)> = own.iter().map(|(_, seq, seed, _)| (*seq, *seed)).collect();
            let taken: Vec<u32> = (0..own.len()).filter(|at| own[*at].3).map(|at| at as u32).collect();
            let batch = batch_of(&rows, SeqRange::new(0, end));
            if wanted == 0 { batch.with_rows(taken.into()) } else { batch }
        };
        let mut cuts: Vec<Seq> = cuts.into_iter().map(|cut| cut % end).collect();
        cuts.sort_unstable();
        ((0..inputs).map(input).collect(), cuts)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn identity_in_any_way_and_in_any_batches_is_the_input((inputs, cuts) in streams(1)) {
        for way in [Identity::Forward, Identity::Copy, Identity::Typed, Identity::Mixed] {
            let emitted = run(way, &[all_types()], &inputs, &cuts).unwrap();
            prop_assert_eq!(&emitted[0], &contents(&inputs[0]));
        }
    }

    #[test]
    fn batch_sizes_change_nothing((inputs, cuts) in streams(1)) {
        let outputs = [all_types(), all_types()];
        let whole = run(Busy::new(), &outputs, &inputs, &[]).unwrap();
        prop_assert_eq!(run(Busy::new(), &outputs, &inputs, &cuts).unwrap(), whole);
    }

    #[test]
    fn several_inputs_are_given_in_one_order((inputs, cuts) in streams(3)) {
        let outputs = [all_types(), all_types()];
        let whole = run(Busy::new(), &outputs, &inputs, &[]).unwrap();
        prop_assert_eq!(run(Busy::new(), &outputs, &inputs, &cuts).unwrap(), whole);
    }
}

/// Runs `call` on one record with an output of `fields`.
fn emit_one(fields: Vec<Field>, call: fn(Row<'_>, &Schema, &mut Emit<'_>) -> Result<(), Error>) -> String {
    struct Call(fn(Row<'_>, &Schema, &mut Emit<'_>) -> Result<(), Error>, Schema);
    impl RecordOperator for Call {
        fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
            (self.0)(record, &self.1, out)
        }
    }
    let schema = Schema::new(fields);
    let input = batch_of(&[(0, 2)], SeqRange::new(0, 1));
    match run(Call(call, schema.clone()), &[schema], &[input], &[]) {
        Ok(emitted) => emitted[0].iter().map(|(.., values)| values.join(" ")).collect(),
        Err(error) => error.chain(),
    }
}

#[test]
fn values_that_do_not_fit_are_refused_by_name() {
    let decimal = |scale| vec![Field::new("d", DataType::Decimal { precision: 4, scale })];
    let set = |unscaled: i128, scale| Decimal { unscaled: i256::from_i128(unscaled), scale };
    assert_eq!(
        emit_one(vec![Field::new("n", DataType::Int64)], |_, _, out| out.record(0).send()),
        "field \"n\": expected int64, got null"
    );
    assert_eq!(
        emit_one(vec![Field::new("n", DataType::Int64)], |_, schema, out| {
            out.record(0).set(Set::<Value>::of(schema, "n")?, Value::Bool(true)).send()
        }),
        "field \"n\": expected int64, got a bool"
    );
    assert_eq!(
        emit_one(vec![Field::new("n", DataType::Int64)], |record, _, out| out.forward(0, record)),
        "output 0 has other fields than input 0"
    );
    assert_eq!(emit_one(vec![], |_, _, out| out.record(7).send()), "emitted on output 7; the operator has 1");
    let of = |value: Decimal, scale| {
        let mut builder = build::Builder::new(&decimal(scale)[0]);
        builder.push_decimal(value).map(|()| Value::at(&builder.finish().unwrap(), 0)).map_err(|e| e.chain())
    };
    assert_eq!(of(set(125, 1), 2), Ok(Value::Decimal(i256::from_i128(1250), 2)));
    assert_eq!(of(set(1250, 2), 1), Ok(Value::Decimal(i256::from_i128(125), 1)));
    for (value, scale) in [(set(1251, 2), 1), (set(10_000, 0), 0), (set(-1_000, 0), 1)] {
        let told = of(value, scale).unwrap_err();
        assert!(told.starts_with(&format!("field \"d\": expected decimal(4,{scale}), got ")), "{told}");
    }
    assert_eq!(of(set(-999, 0), 1), Ok(Value::Decimal(i256::from_i128(-9990), 1)));
}

#[test]
fn times_change_their_unit_and_round_down() {
    let of = |count, unit, field| {
        let mut builder = build::Builder::new(&Field::new("t", DataType::Timestamp(field)));
        builder.push_timestamp(Timestamp { count, unit }).ok()?;
        match Value::at(&builder.finish().unwrap(), 0) {
            Value::Timestamp(count, _) => Some(count),
            _ => None,
        }
    };
    assert_eq!(of(-1, TimeUnit::Nano, TimeUnit::Milli), Some(-1));
    assert_eq!(of(1_999, TimeUnit::Micro, TimeUnit::Milli), Some(1));
    assert_eq!(of(2, TimeUnit::Second, TimeUnit::Nano), Some(2_000_000_000));
    assert_eq!(of(i64::MAX, TimeUnit::Second, TimeUnit::Milli), None);
    assert_eq!(Timestamp::from_micros(7).micros(), Some(7));
}

#[test]
fn fields_are_found_once_with_their_types() {
    let schema =
        Schema::new(vec![Field::new("n", DataType::Int64), Field::new("s", DataType::String).nullable()]);
    let told = |error: Error| format!("{error}; {}", error.hint().unwrap_or_default());
    assert_eq!(Get::<i64>::of(&schema, "n").unwrap().place(), 0);
    assert_eq!(Get::<Option<i64>>::of(&schema, "n").unwrap().place(), 0, "what is never null may be read so");
    assert_eq!(Set::<String>::of(&schema, "s").unwrap().place(), 1);
    assert_eq!(
        Get::<f64>::of(&schema, "n").map_err(told).unwrap_err(),
        "field \"n\" is of type int64; name a field of type float64"
    );
    assert_eq!(
        Get::<String>::of(&schema, "s").map_err(told).unwrap_err(),
        "field \"s\" may be null; declare it as string, without the ?"
    );
    assert_eq!(
        Set::<i64>::of(&schema, "m").map_err(told).unwrap_err(),
        "there is no field \"m\"; the fields are n, s"
    );
    let nested = Set::<Value>::of(&all_types(), "q").map_err(told).unwrap_err();
    assert!(nested.starts_with("field \"q\" is of type {n: int64}"), "{nested}");
}

#[test]
fn much_of_one_record_leaves_in_several_batches() {
    struct Many(usize);
    impl RecordOperator for Many {
        fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
            out.forward(0, record)?;
            (0..self.0).try_for_each(|_| out.record(0).copy(record).send())
        }
    }
    let count = 150_000;
    let mut operator = PerRecord::new(Many(count), [all_types()], [all_types()]);
    let input = batch_of(&[(0, 1), (1, 2)], SeqRange::new(0, 2));
    let id = InputId { port: 0, task: 0 };
    let batches = collect(|out| operator.process(id, input, out)).unwrap();
    assert_eq!(batches.iter().map(|(_, batch)| batch.len()).sum::<usize>(), 2 * count + 2);
    assert!(batches.iter().all(|(_, batch)| batch.len() <= 1 << 16));
    assert!(crate::merge::ascend(&batches.into_iter().map(|(_, batch)| batch).collect::<Vec<_>>()));
}

#[test]
fn what_is_made_of_one_record_shares_its_texts() {
    struct Many;
    impl RecordOperator for Many {
        fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
            // Of one that is given up the next shares nothing.
            let _given_up = out.record(0).copy(record);
            (0..1_000).try_for_each(|_| out.record(0).copy(record).send())
        }
    }
    let schema = Schema::new(vec![Field::new("t", DataType::String), Field::new("b", DataType::Bytes)]);
    let texts = ["x".repeat(100_000), "y".repeat(100_000)];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter_values(&texts)),
        Arc::new(BinaryViewArray::from_iter_values(texts.iter().map(|text| text.as_bytes()))),
    ];
    let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
    let range = SeqRange::new(0, 2);
    let input = Batch::new(range, records, vec![0, 0].into(), Seqs::Dense(0));
    let mut operator = PerRecord::new(Many, [schema.clone()], [schema]);
    let emitted = collect(|out| operator.process(InputId { port: 0, task: 0 }, input, out)).unwrap();
    let [(0, made)] = emitted.as_slice() else { panic!("{} batches", emitted.len()) };
    let (text, blob) = (made.column(0).as_string_view(), made.column(1).as_binary_view());
    for row in 0..2_000 {
        let whole = &texts[row / 1_000];
        assert!(text.value(row) == whole && blob.value(row) == whole.as_bytes(), "row {row}");
    }
    for buffers in [text.data_buffers(), blob.data_buffers()] {
        let held: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        assert!(held <= 400_000, "{held} bytes");
    }
}

#[test]
fn what_is_emitted_on_a_tick_has_its_time() {
    struct Beat(Set<i64>);
    impl RecordOperator for Beat {
        fn process(&mut self, _: Row<'_>, _: &mut Emit<'_>) -> Result<(), Error> {
            Ok(())
        }

        fn tick(&mut self, now: Micros, out: &mut Emit<'_>) -> Result<(), Error> {
            out.record(0).set(self.0, now).send()
        }

        fn cycle(&mut self, cycle: u64, out: &mut Emit<'_>) -> Result<(), Error> {
            out.record(0).set(self.0, cycle as i64).send()
        }
    }
    let schema = Schema::new(vec![Field::new("n", DataType::Int64)]);
    let beat = Beat(Set::of(&schema, "n").unwrap());
    let mut operator = PerRecord::new(beat, [schema.clone()], [schema]);
    let emitted = collect(|out| {
        operator.tick(1_000, out)?;
        operator.cycle(7, out)
    });
    let rows: Vec<_> = emitted.unwrap().iter().flat_map(|(_, batch)| contents(batch)).collect();
    assert_eq!(
        rows.iter().map(|(_, time, values)| (*time, &*values[0])).collect::<Vec<_>>(),
        [(1_000, "Int64(1000)"), (1_000, "Int64(7)")]
    );
}
