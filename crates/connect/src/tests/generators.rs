//! Made-up records: the same ones always, and as described.

use arrow_array::RecordBatch;
use arrow_array::types::{Float64Type, TimestampMicrosecondType, TimestampMillisecondType};

use super::*;
use crate::generate::{Generator, GeneratorSpec};

/// The fields of the rows of `type: sflow`.
fn sflow_fields() -> Vec<Field> {
    let plugin = Registry::builtin().source("sflow").unwrap().clone();
    plugin.outputs(&Options::default()).swap_remove(0).schema.fields().to_vec()
}

fn generator(kind: &str, change: impl FnOnce(&mut GeneratorSpec)) -> Generator {
    let mut spec = GeneratorSpec::new(kind);
    change(&mut spec);
    spec.build().expect("a spec within its bounds")
}

#[test]
fn any_record_can_be_made_alone() {
    for (kind, fields) in [("payments", 103), ("readings", 66), ("flows", sflow_fields().len())] {
        let generator = generator(kind, |spec| spec.fields = Some(fields));
        assert_eq!(generator.schema().fields().len(), fields);
        let whole = generator.batch(0, 100);
        assert_eq!(whole.slice(50, 50), generator.batch(50, 50), "{kind}");
        assert_eq!(whole.slice(99, 1), generator.batch(99, 1), "{kind}");
        assert_eq!(whole, generator.batch(0, 100));
        let other = self::generator(kind, |spec| (spec.fields, spec.seed) = (Some(fields), 2)).batch(0, 100);
        assert_ne!(whole, other, "{kind}: the seed matters");
        // Records of fewer fields are the beginning of those of all.
        let few = self::generator(kind, |spec| spec.fields = Some(3)).batch(0, 100);
        let indexes: Vec<usize> = (0..3).collect();
        assert_eq!(whole.project(&indexes).unwrap(), few, "{kind}");
    }
}

#[test]
fn payments_have_ascending_times_and_uneven_cards() {
    let generator = generator("payments", |spec| spec.hot = 0.25);
    let batch = generator.batch(1_000, 50_000);
    let times = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(times[0] / 4, (ARRIVAL / 1_000 + 4_000) / 4);
    let cards = batch.column(1).as_string_view();
    let hot = cards.iter().filter(|card| *card == Some("c0000000")).count();
    assert!((12_000..13_500).contains(&hot), "{hot}");
    assert!(cards.iter().flatten().all(|card| card.len() == 8 && card.starts_with('c')));
    let amounts = batch.column(3).as_primitive::<Float64Type>().values();
    assert!(amounts.iter().all(|amount| (0.01..=5_000.0).contains(amount)));
    let mut sorted = amounts.to_vec();
    sorted.sort_by(f64::total_cmp);
    assert!((17.0..19.0).contains(&sorted[25_000]), "median {}", sorted[25_000]);
    let text = format!("{}", amounts[7]);
    assert!(text.split('.').nth(1).is_none_or(|cents| cents.len() <= 2), "{text}");
}

#[test]
fn records_that_are_made_too_far_ahead_are_rejects() {
    let mut context = context(
        &Schema::new(Vec::new()),
        None,
        &[("count", OptionValue::Integer(5)), ("gap", OptionValue::Duration(60_000_000))],
    );
    let plugin = Registry::builtin().source("generator").unwrap().clone();
    context.schema = plugin.own_schema(&context.options).unwrap().unwrap();
    context.time = SourceTime::Field(0);
    context.max_ahead = Some(120_000_000);
    let built = plugin.build(context).unwrap();
    let info = thalweg_flow::TaskInfo::alone("t", "g");
    let mut decoder = (built.decoder)(&info).unwrap();
    let block = RawBlock { partition: 0, first: 0, count: 5, payload: Payload::Offsets };
    let decoded = decoder.decode(&block, SeqRange::new(7, 12), ARRIVAL).unwrap();
    assert_eq!(decoded.records.len(), 2);
    let rejects = decoded.rejects.unwrap();
    let told = |row| Rejects::of(&rejects).get(row);
    assert_eq!(rejects.row_numbers().map(|row| told(row).offset).collect::<Vec<_>>(), [2, 3, 4]);
    assert!(rejects.row_numbers().all(|row| told(row).code == "ahead"));
}

#[test]
fn distributions_reach_from_even_to_steep() {
    let top_share = |zipf: f64| {
        let generator = generator("payments", |spec| (spec.zipf, spec.cards) = (zipf, 1_000));
        let batch = generator.batch(0, 20_000);
        let cards = batch.column(1).as_string_view();
        let top = cards.iter().flatten().filter(|card| *card < "c0000010").count();
        assert!(cards.iter().flatten().all(|card| card < "c0001000"));
        top
    };
    let shares: Vec<usize> = [0.0, 0.5, 0.8, 1.0, 1.5].map(top_share).to_vec();
    assert!((150..250).contains(&shares[0]), "{shares:?}");
    assert!(shares.windows(2).all(|pair| pair[0] < pair[1]), "{shares:?}");
}

/// Times at which a state changes, with the new one.
fn changes(batch: &RecordBatch, column: usize) -> Vec<(i64, bool)> {
    let times = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
    let states = batch.column(column).as_boolean();
    (1..states.len())
        .filter(|row| states.value(*row) != states.value(row - 1))
        .map(|row| (times[row], states.value(row)))
        .collect()
}

#[test]
fn each_valve_follows_its_sensor() {
    let generator = generator("readings", |_| {});
    let names: Vec<&str> = generator.schema().names().collect();
    assert_eq!(&names[..5], ["ts", "index", "mf01", "mf02", "mf03"]);
    assert_eq!(&names[12..18], ["bm05", "bm06", "bm07", "bm08", "bm09", "bm10"]);
    let batch = generator.batch(0, 60_000);
    let times = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    for sensor in 0..3 {
        let (sensors, valves) = (changes(&batch, 12 + sensor), changes(&batch, 15 + sensor));
        assert!(
            sensors.len() > 100 && sensors.len() - valves.len() <= 1,
            "{} {}",
            sensors.len(),
            valves.len()
        );
        for ((changed, state), (followed, same)) in sensors.iter().zip(&valves) {
            assert_eq!(state, same);
            let delay = followed - changed;
            assert!((9_000..=511_000).contains(&delay), "sensor {sensor} at {changed}: {delay} us");
        }
        for pair in sensors.windows(2) {
            assert!(pair[0].0 < pair[1].0);
        }
    }
}

#[test]
fn numbered_batches_have_the_times_of_their_records() {
    for kind in Generator::KINDS {
        let batch = generator(kind, |_| {}).numbered(25, 2);
        assert_eq!((batch.seq(1), batch.range()), (26, SeqRange::new(25, 27)));
        let Value::Timestamp(count, unit) = Value::at(batch.column(0), 1) else { panic!("ts comes first") };
        assert_eq!(unit.to_micros(count), Some(batch.times()[1]));
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    for change in [
        (|spec| spec.fields = Some(104)) as fn(&mut GeneratorSpec),
        |spec| spec.fields = Some(0),
        |spec| spec.gap = 1_500,
        |spec| spec.cards = 0,
        |spec| spec.hot = 1.5,
        |spec| spec.zipf = f64::NAN,
        |spec| spec.kind = "flow".to_owned(),
        |spec| spec.agents = 0,
        |spec| spec.members = 1 << 21,
        |spec| spec.hosts = 999,
        |spec| spec.start = Some(i64::MAX),
    ] {
        let mut spec = GeneratorSpec::new("payments");
        change(&mut spec);
        assert!(spec.build().is_err(), "{spec:?}");
    }
}

#[test]
fn the_source_numbers_records_and_keeps_to_its_rate() {
    let registry = Registry::builtin();
    let plugin = registry.source("generator").unwrap();
    let entries = [("count", OptionValue::Integer(10_000)), ("rate", OptionValue::Number(1_000.0))];
    let mut context = context(&Schema::empty(), None, &entries);
    context.schema = plugin.own_schema(&context.options).unwrap().unwrap();
    context.time = SourceTime::Field(0);
    let mut built = plugin.build(context).unwrap();
    let mut counts = Vec::new();
    for milliseconds in [0_i64, 0, 5, 100, 100, 60_000, 60_000] {
        counts.push(match built.source.poll(1 << 20, ARRIVAL + milliseconds * 1_000).unwrap() {
            Poll::Block(block) => i64::from(block.count),
            Poll::PendingUntil(_) => -1,
            Poll::Pending => -2,
            Poll::End => -3,
            Poll::Told { .. } => -4,
        });
    }
    assert_eq!(counts, [1, -1, 5, 95, -1, 9_899, -3]);
    let block = RawBlock { partition: 0, first: 7, count: 2, payload: Payload::Offsets };
    let mut decoder = (built.decoder)(&task()).unwrap();
    let decoded = decoder.decode(&block, SeqRange::new(70, 72), ARRIVAL).unwrap();
    assert_eq!(decoded.records.len(), 2);
    assert_eq!(decoded.records.seq(1), 71);
    assert_eq!(decoded.records.times()[0] / 4_000, (ARRIVAL + 7 * 4_000) / 4_000);
}
