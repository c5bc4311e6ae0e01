//! Lookups of one address and of columns, against a scan of the lines.

use std::net::{Ipv4Addr, Ipv6Addr};

use arrow_array::cast::AsArray;
use arrow_array::{Array, FixedSizeBinaryArray};
use arrow_select::take::take;
use proptest::prelude::*;

use super::*;

fn column(addresses: &[Option<&str>]) -> FixedSizeBinaryArray {
    let bytes = addresses.iter().map(|text| text.map(|text| ip(text.parse().expect("an address"))));
    FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).expect("16 bytes each")
}

#[test]
fn a_column_of_addresses_becomes_row_numbers_to_take_values_by() {
    let table = load(prefixes(), &[("a.csv", b"10.0.0.0/8,ten\n12.0.0.0/8,twelve\n2001::/16,six\n")]);
    let addresses = column(&[
        Some("12.1.1.1"),
        None,
        Some("10.1.1.1"),
        Some("11.1.1.1"),
        Some("2001::1"),
        Some("2002::1"),
        Some("10.0.0.0"),
    ]);
    let rows = table.find_all(&addresses);
    let who = take(&table.columns()[0], &rows, None).expect("rows of the table");
    let who: Vec<Option<&str>> = who.as_string_view().iter().collect();
    assert_eq!(who, [Some("twelve"), None, Some("ten"), None, Some("six"), None, Some("ten")]);
    assert!(rows.values().iter().all(|row| *row < 3), "every number is a row, under nulls too");

    let part = table.find_all(&addresses.slice(2, 3));
    assert_eq!(part.iter().collect::<Vec<_>>(), rows.iter().skip(2).take(3).collect::<Vec<_>>());
    assert_eq!(table.find_all(&column(&[])).len(), 0);
}

#[test]
fn a_null_over_bytes_that_are_in_a_range_gives_no_row() {
    let table = load(prefixes(), &[("a.csv", b"::/0,all\n")]);
    // Under a null are zeros, which are the address `::`.
    assert_eq!(table.find_all(&column(&[None, Some("::")])).iter().collect::<Vec<_>>(), [None, Some(0)]);
}

#[test]
#[should_panic(expected = "an ip column has 16 bytes")]
fn a_column_of_another_width_is_no_column_of_addresses() {
    let table = load(prefixes(), &[("a.csv", b"::/0,all\n")]);
    let four = FixedSizeBinaryArray::new(4, vec![1_u8; 8].into(), None);
    table.find_all(&four);
}

/// A line as a test made it: a range, its width, and its text.
#[derive(Clone, Debug)]
struct Line {
    first: IpAddr,
    last: IpAddr,
    who: u8,
}

impl Line {
    fn width(&self) -> u128 {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => u128::from(last.to_bits() - first.to_bits()),
            (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits() - first.to_bits(),
            _ => unreachable!("one family"),
        }
    }

    fn holds(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.first <= address && address <= self.last
    }
}

/// Addresses that are often close to each other and to the ends of their family.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        Just(0_u32),
        Just(u32::MAX),
        any::<u32>(),
        (0_u32..4, 0_u32..6).prop_map(|(slot, low)| (0x0a00 + slot) << 16 | low.wrapping_sub(3) & 0xffff),
    ];
    let v6 = prop_oneof![
        Just(0_u128),
        Just(u128::MAX),
        any::<u128>(),
        (0_u128..4, 0_u128..6).prop_map(|(slot, low)| (0x2001 + slot) << 112 | low),
        // Around the block in which IPv4 is carried, but not in it.
        (0_u128..6).prop_map(|low| 0xffff_0000_0000 - 1 - low),
        (0_u128..6).prop_map(|low| 0x1_0000_0000_0000 + low),
    ];
    prop_oneof![
        v4.prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        v6.prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    (address(), address(), 0_u8..5).prop_filter_map("one family", |(a, b, who)| {
        let is_carried = |address| matches!(address, IpAddr::V6(a) if a.to_ipv4_mapped().is_some());
        (a.is_ipv4() == b.is_ipv4() && !is_carried(a) && !is_carried(b)).then(|| Line {
            first: a.min(b),
            last: a.max(b),
            who,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_table_agrees_with_a_scan_of_its_lines(
        lines in prop::collection::vec(line(), 1..40), more in prop::collection::vec(address(), 40)
    ) {
        let text: String = lines.iter().map(|l| format!("{}\t{}\t{}\tXX\tn\n", l.first, l.last, l.who)).collect();
        let table = load(autonomous_systems(), &[("a.tsv", text.as_bytes())]);
        let ends = lines.iter().flat_map(|line| [line.first, line.last]);
        let addresses: Vec<IpAddr> = ends.chain(more).collect();
        let texts: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let rows = table.find_all(&column(&texts.iter().map(|text| Some(text.as_str())).collect::<Vec<_>>()));
        for (index, address) in addresses.into_iter().enumerate() {
            // Carried IPv4 is IPv4, however it is written.
            let address = address.to_canonical();
            // `max_by_key` gives the last of equals: of equally narrow lines the later one.
            let best = lines.iter().filter(|line| line.holds(address)).max_by_key(|line| !line.width());
            let expected = best.map_or("-".to_owned(), |line| format!("{} XX n", line.who));
            prop_assert_eq!(answer(&table, &address.to_string()), expected);
            prop_assert_eq!(rows.is_valid(index).then(|| rows.value(index)), table.find(ip(address)));
        }
    }
}
