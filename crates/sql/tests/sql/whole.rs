//! Whole numbers are computed exactly or not at all: random expressions and sums of extremes, against 128 bits.

use std::collections::BTreeMap;

use proptest::prelude::*;
use thalweg_sql::Limits;

use crate::fake::{Flow, START, World, world};

fn any_unsigned() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, Just(u64::MAX), Just(u64::MAX - 3), Just(1 << 63), any::<u64>()]
}

fn any_signed() -> impl Strategy<Value = i64> {
    prop_oneof![-9..9_i64, Just(i64::MAX), Just(i64::MIN), Just(i64::MIN + 2), any::<i64>()]
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let signed = prop::option::weighted(0.9, any_signed());
    (0..3_u64, prop::option::weighted(0.9, any_unsigned()), signed).prop_map(|(src_as, bytes, packets)| {
        Flow { time: START, src_as: Some(src_as), bytes, packets, ..Flow::default() }
    })
}

fn table(rows: &[Flow]) -> World {
    let world = world(Limits::default());
    let (files, fresh) = rows.split_at(rows.len() / 2);
    let files: Vec<&[Flow]> = files.chunks(files.len() / 2 + 1).collect();
    world.add("net", "flows", &files, fresh);
    world
}

/// An expression over `bytes` (unsigned) and `packets` (signed).
#[derive(Clone, Debug)]
enum Whole {
    Bytes,
    Packets,
    Literal(i64),
    Negative(Box<Whole>),
    Binary(Box<Whole>, char, Box<Whole>),
}

/// A value of a type; `None`: null.
type Typed = (Option<i128>, bool);

impl Whole {
    fn sql(&self) -> String {
        match self {
            Self::Bytes => "bytes".to_owned(),
            Self::Packets => "packets".to_owned(),
            Self::Literal(value) => format!("({value})"),
            Self::Negative(of) => format!("(- {})", of.sql()),
            Self::Binary(one, op, other) => format!("({} {op} {})", one.sql(), other.sql()),
        }
    }

    /// The value and whether its type is unsigned; an error where it has none.
    fn exact(&self, row: &Flow) -> Result<Typed, ()> {
        let (value, unsigned) = match self {
            Self::Bytes => (row.bytes.map(i128::from), true),
            Self::Packets => (row.packets.map(i128::from), false),
            Self::Literal(value) => (Some(i128::from(*value)), false),
            Self::Negative(of) => (of.exact(row)?.0.map(|value| -value), false),
            Self::Binary(one, op, other) => {
                let (one, other) =
                    ((one.exact(row)?, one.is_natural()), (other.exact(row)?, other.is_natural()));
                let unsigned =
                    *op != '-' && (one.0.1 || one.1) && (other.0.1 || other.1) && (one.0.1 || other.0.1);
                let value = match (one.0.0, other.0.0) {
                    (Some(one), Some(other)) => Some(match op {
                        '+' => one + other,
                        '-' => one - other,
                        '*' => one.checked_mul(other).ok_or(())?,
                        '/' => one.checked_div(other).ok_or(())?,
                        _ => one.checked_rem(other).ok_or(())?,
                    }),
                    _ => None,
                };
                (value, unsigned)
            }
        };
        let fits =
            |value: i128| if unsigned { u64::try_from(value).is_ok() } else { i64::try_from(value).is_ok() };
        if value.is_some_and(|value| !fits(value)) { Err(()) } else { Ok((value, unsigned)) }
    }

    fn is_natural(&self) -> bool {
        matches!(self, Self::Literal(0..))
    }
}

fn any_whole() -> impl Strategy<Value = Whole> {
    let leaf = prop_oneof![
        Just(Whole::Bytes),
        Just(Whole::Packets),
        prop_oneof![-3..9_i64, Just(i64::MAX), Just(100)].prop_map(Whole::Literal),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let op = prop::sample::select(vec!['+', '-', '*', '/', '%']);
        prop_oneof![
            // Of unsigned numbers the planner takes no such sign.
            1 => Just(Whole::Negative(Box::new(Whole::Packets))),
            6 => (inner.clone(), op, inner)
                .prop_map(|(one, op, other)| Whole::Binary(Box::new(one), op, Box::new(other))),
        ]
    })
}

/// Whether a query says that a number is out of range, or its rows.
fn outcome(world: &World, sql: &str) -> Result<Vec<String>, ()> {
    let mut out = Vec::new();
    let done =
        world.reply(sql).and_then(|reply| thalweg_sql::write(reply, thalweg_sql::Format::Csv, &mut out));
    match done {
        Ok(()) => Ok(String::from_utf8(out).unwrap().lines().skip(1).map(str::to_owned).collect()),
        Err(error) => {
            let said = error.chain();
            assert!(
                said.contains("is out of the range of") || said.contains("divides by zero"),
                "{sql}: {said}"
            );
            Err(())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_are_exact_or_told(
        rows in prop::collection::vec(any_flow(), 1..4),
        expressions in prop::collection::vec(any_whole(), 8),
    ) {
        let world = table(&rows);
        for expression in &expressions {
            let sql = format!("SELECT coalesce(cast({} AS varchar), 'null') FROM flows", expression.sql());
            let exact: Result<Vec<Typed>, ()> = rows.iter().map(|row| expression.exact(row)).collect();
            let exact = exact.map(|values| {
                let mut values: Vec<String> =
                    values.into_iter().map(|(value, _)| value.map_or("null".to_owned(), |value| value.to_string())).collect();
                values.sort();
                values
            });
            let got = outcome(&world, &sql).map(|mut rows| {
                rows.sort();
                rows
            });
            prop_assert_eq!(got, exact, "{} of {:?}", sql, rows);
        }
    }

    #[test]
    fn sums_are_exact_or_told(rows in prop::collection::vec(any_flow(), 1..12)) {
        let world = table(&rows);
        let sums = |rows: &[&Flow]| {
            let of = |values: &mut dyn Iterator<Item = i128>| {
                values.fold(None, |sum: Option<i128>, value| Some(sum.unwrap_or(0) + value))
            };
            let bytes = of(&mut rows.iter().filter_map(|row| row.bytes).map(i128::from));
            let packets = of(&mut rows.iter().filter_map(|row| row.packets).map(i128::from));
            (bytes, packets)
        };
        let told = |(bytes, packets): (Option<i128>, Option<i128>)| {
            let in_range = bytes.is_none_or(|sum| u64::try_from(sum).is_ok())
                && packets.is_none_or(|sum| i64::try_from(sum).is_ok());
            let shown = |sum: Option<i128>| sum.map_or(String::new(), |sum| sum.to_string());
            in_range.then(|| format!("{},{}", shown(bytes), shown(packets))).ok_or(())
        };
        let all: Vec<&Flow> = rows.iter().collect();
        prop_assert_eq!(
            outcome(&world, "SELECT sum(bytes), sum(packets) FROM flows"),
            told(sums(&all)).map(|line| vec![line])
        );
        let mut groups: BTreeMap<u64, Vec<&Flow>> = BTreeMap::new();
        for row in &rows {
            groups.entry(row.src_as.unwrap()).or_default().push(row);
        }
        let by_group: Result<Vec<String>, ()> =
            groups.iter().map(|(key, rows)| Ok(format!("{key},{}", told(sums(rows))?))).collect();
        // By the tally, and by DataFusion's own grouping, as it has a filter.
        for filter in ["", " FILTER (WHERE src_as < 9)"] {
            let sql = format!(
                "SELECT src_as, sum(bytes){filter}, sum(packets){filter} FROM flows GROUP BY 1 ORDER BY 1"
            );
            prop_assert_eq!(outcome(&world, &sql), by_group.clone(), "{}", sql);
        }
        let largest = outcome(&world, "SELECT * FROM top('flows', 'src_as', 'sum(bytes)', 2)");
        let total = sums(&all).0;
        if total.is_some_and(|total| u64::try_from(total).is_ok()) {
            let values: i128 = largest
                .unwrap()
                .iter()
                .filter_map(|line| line.split(',').nth(2)?.parse::<i128>().ok())
                .sum();
            prop_assert_eq!(values, total.unwrap());
        }
        // A frame of two rows, one of which leaves when the next one comes.
        let framed = "SELECT sum(packets) OVER (ORDER BY packets ROWS 1 PRECEDING) FROM flows WHERE packets IS NOT NULL ORDER BY packets";
        let mut packets: Vec<i64> = rows.iter().filter_map(|row| row.packets).collect();
        packets.sort_unstable();
        let pairs: Option<Vec<String>> = (0..packets.len())
            .map(|at| {
                let before = at.checked_sub(1).map_or(0, |before| packets[before]);
                before.checked_add(packets[at]).map(|sum| sum.to_string())
            })
            .collect();
        prop_assert_eq!(outcome(&world, framed), pairs.ok_or(()));
    }
}

#[test]
fn what_is_out_of_range_is_named() {
    let flow = |bytes, packets| Flow {
        time: START,
        src_as: Some(1),
        bytes: Some(bytes),
        packets: Some(packets),
        ..Flow::default()
    };
    let world = table(&[flow(1 << 63, 1 << 62), flow(1 << 63, 1 << 62), flow(5, 0)]);
    for (sql, said) in [
        ("sum(bytes)", "sum(flows.bytes): 18446744073709551621 is out of the range of uint64"),
        ("sum(packets)", "sum(flows.packets): 9223372036854775808 is out of the range of int64"),
        ("bytes * 2", "bytes * 2: 9223372036854775808 * 2 is out of the range of uint64"),
        ("-9 - bytes", "-9 - bytes: -9 - 9223372036854775808 is out of the range of int64"),
        ("packets / (bytes - bytes)", "divides by zero"),
    ] {
        let error = world.error(&format!("SELECT {sql} FROM flows"));
        assert!(error.chain().contains(said), "{sql}: {}", error.chain());
        assert_eq!(error.class(), thalweg_types::Class::User, "{sql}");
    }
    // The sum is out of range, values computed of it need not be: an error all the same, as for each row.
    assert!(world.error("SELECT sum(bytes) - sum(bytes) FROM flows").chain().contains("sum(flows.bytes)"));
    assert_eq!(world.rows("SELECT sum(bytes) * 8 FROM flows WHERE bytes = 5"), ["40"]);
}

#[test]
fn one_rule_for_all_whole_numbers() {
    let flow = |bytes, packets| Flow {
        time: START,
        src_as: Some(1),
        bytes: Some(bytes),
        packets: Some(packets),
        ..Flow::default()
    };
    let world = table(&[flow(64, 2), flow(65, 3), flow(1_500, -7)]);
    for (sql, rows) in [
        ("SELECT bytes/100*100 AS bin, count(*) FROM flows GROUP BY 1 ORDER BY 1", &["0,2", "1500,1"][..]),
        ("SELECT sum(bytes)/count(*) FROM flows", &["543"]),
        ("SELECT sum(bytes)/3 FROM flows", &["543"]),
        ("SELECT packets/2, packets%2 FROM flows ORDER BY packets", &["-3,-1", "1,0", "1,1"]),
        ("SELECT bytes - 100 FROM flows ORDER BY 1", &["-36", "-35", "1400"]),
        ("SELECT packets * bytes FROM flows ORDER BY 1", &["-10500", "128", "195"]),
        ("SELECT date_part('year', time) * 1000000000 FROM flows LIMIT 1", &["2026000000000"]),
        ("SELECT sum(bytes) - sum(packets) FROM flows", &["1631"]),
        ("SELECT (SELECT max(bytes) FROM flows) - bytes FROM flows ORDER BY 1 LIMIT 1", &["0"]),
        ("SELECT a.bytes + b.bytes FROM flows a JOIN flows b ON a.packets + 1 = b.packets", &["129"]),
        ("SELECT bytes + 1 FROM flows UNION ALL SELECT packets - 1 FROM flows ORDER BY 1 LIMIT 1", &["-8"]),
        ("SELECT count(*) FROM flows WHERE bytes * 2 > 128", &["2"]),
        ("SELECT count(*) FROM flows HAVING count(*) - 4 < 0", &["3"]),
    ] {
        assert_eq!(world.rows(sql), rows, "{sql}");
    }
    let json = world.in_format("SELECT sum(bytes)*8 AS bits FROM flows", thalweg_sql::Format::Json);
    assert!(json.contains("\"bits\":13032"), "{json}");
}
