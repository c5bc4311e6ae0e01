//! Made-up flows: as those of `type: sflow` are, uneven as traffic is, and of members and agents that there are.

use std::collections::{HashMap, HashSet};

use arrow_array::types::{TimestampMicrosecondType, UInt64Type};
use arrow_array::{Array, RecordBatch};

use super::*;
use crate::generate::{Generator, GeneratorSpec};

fn flows(change: impl FnOnce(&mut GeneratorSpec)) -> Generator {
    let mut spec = GeneratorSpec::new("flows");
    change(&mut spec);
    spec.build().expect("a spec within its bounds")
}

fn numbers(batch: &RecordBatch, field: &str) -> Vec<u64> {
    let column = batch.column_by_name(field).unwrap();
    assert_eq!(column.null_count(), 0, "{field}");
    column.as_primitive::<UInt64Type>().values().to_vec()
}

fn addresses(batch: &RecordBatch, field: &str) -> Vec<u128> {
    let column = batch.column_by_name(field).unwrap().as_fixed_size_binary();
    (0..column.len()).map(|row| u128::from_be_bytes(column.value(row).try_into().unwrap())).collect()
}

#[test]
fn rows_are_those_of_samples() {
    let registry = Registry::builtin();
    let options = Options([("kind".to_owned(), OptionValue::Text("flows".to_owned()))].into());
    let made = registry.source("generator").unwrap().outputs(&options).swap_remove(0);
    let sampled = registry.source("sflow").unwrap().outputs(&Options::default()).swap_remove(0);
    assert_eq!((made.name, made.schema), (sampled.name, sampled.schema));
    let own_time = |name: &str| registry.source(name).unwrap().own_time(&options);
    assert_eq!(own_time("generator"), own_time("sflow"));
}

#[test]
fn batches_of_any_size_hold_the_same_rows() {
    let generator = flows(|spec| spec.seed = 9);
    let whole = generator.batch(1_000_000, 4_096);
    for (first, count) in [(0, 1), (1, 63), (64, 1_000), (4_095, 1)] {
        assert_eq!(whole.slice(first, count), generator.batch(1_000_000 + first as u64, count), "{first}");
    }
    assert_ne!(whole, flows(|spec| spec.seed = 10).batch(1_000_000, 4_096));
}

#[test]
fn what_a_row_says_fits_together() {
    let batch = flows(|_| {}).batch(0, 50_000);
    let times = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    let [rate, bytes, packets, frame, length, ethertype, agents] =
        ["sampling_rate", "bytes", "packets", "frame_length", "ip_length", "ethertype", "source_index"]
            .map(|field| numbers(&batch, field));
    let (from, to) = (addresses(&batch, "src_addr"), addresses(&batch, "dst_addr"));
    let mut six = 0;
    for row in 0..batch.num_rows() {
        assert_eq!((packets[row], bytes[row]), (rate[row], rate[row] * frame[row]));
        assert!(frame[row] == length[row] + 22 || (frame[row] == 64 && length[row] < 42));
        assert!((64..=1_522).contains(&frame[row]) && agents[row] > 0);
        let is_v6 = from[row] >> 32 != 0xffff;
        assert_eq!((is_v6, ethertype[row] == 0x86dd), (to[row] >> 32 != 0xffff, is_v6));
        six += usize::from(is_v6);
    }
    assert!((2_000..15_000).contains(&six), "{six} of IPv6");
    let flags = batch.column_by_name("tcp_flags").unwrap();
    let protocols = batch.column_by_name("protocol").unwrap().as_primitive::<UInt64Type>();
    assert!((0..batch.num_rows()).all(|row| flags.is_valid(row) == (protocols.value(row) == 6)));
}

#[test]
fn agents_and_members_are_as_many_as_were_asked_for() {
    let batch = flows(|spec| (spec.agents, spec.members) = (3, 50)).batch(0, 20_000);
    let agents: HashSet<u128> = addresses(&batch, "agent").into_iter().collect();
    assert_eq!(agents.len(), 3);
    let macs = batch.column_by_name("src_mac").unwrap().as_string_view();
    let vlans = numbers(&batch, "in_vlan");
    let members: HashSet<(&str, u64)> = macs.iter().flatten().zip(vlans).collect();
    let macs: HashSet<&str> = members.iter().map(|(mac, _)| *mac).collect();
    // Each tenth member is behind the router of another.
    assert_eq!((members.len(), macs.len()), (50, 45));
}

#[test]
fn few_pairs_carry_much_of_the_traffic() {
    let batch = flows(|_| {}).batch(0, 200_000);
    let mut pairs: HashMap<(u128, u128), u64> = HashMap::new();
    let ends = addresses(&batch, "src_addr").into_iter().zip(addresses(&batch, "dst_addr"));
    for (pair, bytes) in ends.zip(numbers(&batch, "bytes")) {
        *pairs.entry(pair).or_default() += bytes;
    }
    let mut bytes: Vec<u64> = pairs.into_values().collect();
    bytes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    let top: u64 = bytes.iter().take(bytes.len() / 100).sum();
    let share = top as f64 / bytes.iter().sum::<u64>() as f64;
    assert!(bytes.len() > 20_000 && (0.3..0.9).contains(&share), "{share} on {} pairs", bytes.len());
}

#[test]
fn the_busiest_hour_has_more_than_twice_what_the_quietest_has() {
    const HOUR: i64 = 3_600_000_000;
    // One record a second: a day.
    let batch = flows(|spec| spec.gap = 1_000_000).batch(0, 86_400);
    let mut hours: HashMap<i64, u32> = HashMap::new();
    for time in batch.column(0).as_primitive::<TimestampMicrosecondType>().values() {
        *hours.entry(time / HOUR).or_default() += 1;
    }
    let whole_hours: Vec<u32> = hours.values().copied().filter(|count| *count > 10).collect();
    assert_eq!(whole_hours.len(), 24);
    assert!(whole_hours.iter().max() > whole_hours.iter().min().map(|least| least * 2).as_ref());
}

#[test]
fn flows_begin_when_they_are_told_to() {
    let start = ARRIVAL + 3_723_000_000;
    let batch = flows(|spec| spec.start = Some(start)).batch(0, 1);
    let time = batch.column(0).as_primitive::<TimestampMicrosecondType>().value(0);
    assert!((start..start + 10_000).contains(&time), "{time}");
}

#[test]
fn records_without_tables_say_so() {
    let generator = GeneratorSpec::new("payments").build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = generator.write_tables(folder.path()).unwrap_err();
    assert!(error.to_string().contains("expected flows"), "{error}");
}
