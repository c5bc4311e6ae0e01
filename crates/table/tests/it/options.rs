//! What may be asked of a table, and the errors where it cannot be.

use thalweg_connect::{OptionValue, Options, SinkPlugin, SinkResume};
use thalweg_table::{Catalog, TablePlugin, Tables};
use thalweg_types::{DataType, Field, Schema, TimeUnit};

use crate::drive::{Driven, list, name, options, rollups, schema};

/// The key and the text of the first mistake.
fn mistake(schema: &Schema, options: &Options) -> (String, String) {
    let plugin = TablePlugin { tables: std::sync::Arc::new(Tables::default()) };
    let mistakes = plugin.check(schema, options);
    let first = mistakes.into_iter().next().expect("a mistake");
    let hint = first.error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    (first.key, format!("{}{hint}", first.error.message()))
}

#[test]
fn mistakes_say_what_there_is() {
    let columns = "its columns are ts, key, addr, bytes, rare";
    let cases: [(&str, OptionValue, &str); 8] = [
        ("columns", list(&["ts", "kye"]), &format!("\"kye\" is no column of the input ({columns})")),
        (
            "columns",
            list(&["key"]),
            "column \"ts\" has the event time (a table keeps it; `time` names another timestamp field)",
        ),
        (
            "drop",
            list(&["ts"]),
            "column \"ts\" has the event time (a table keeps it; `time` names another timestamp field)",
        ),
        (
            "truncate",
            list(&["key"]),
            "column \"key\" is of type string (addresses, columns of type ip, are truncated)",
        ),
        (
            "truncate",
            list(&["addr/40"]),
            "expected 0 to 32 bits of IPv4, got \"40\" (COLUMN, COLUMN/IPV4 or COLUMN/IPV4/IPV6, such as src_addr/24/48)",
        ),
        (
            "time",
            OptionValue::Text("key".into()),
            "column \"key\" is of type string (the event time is a timestamp)",
        ),
        ("time", OptionValue::Text("at".into()), "\"at\" is no field of the input"),
        ("retention", OptionValue::Duration(0), "expected a time above 0, got 0s"),
    ];
    for (key, value, expected) in cases {
        assert_eq!(mistake(&schema(), &options(&[(key, value)])), (key.to_owned(), expected.to_owned()));
    }
}

#[test]
fn mistakes_of_rollups_name_them() {
    let rollup = |key: &str, value: OptionValue| {
        let OptionValue::Sections(mut sections) = rollups() else { unreachable!() };
        sections[0].1.0.insert(key.to_owned(), value);
        options(&[("rollups", OptionValue::Sections(sections))])
    };
    let tell = |options: &Options| mistake(&schema(), options).1;
    assert!(
        tell(&rollup("every", OptionValue::Duration(7_000_000)))
            .contains("whole seconds that divide a day, got 7s")
    );
    assert!(
        tell(&rollup("by", list(&["kye"]))).contains("rollup \"hour\": \"kye\" is no column of the table")
    );
    assert!(tell(&rollup("by", list(&["ts"]))).contains("the event time is a key already"));
    assert!(tell(&rollup("by", list(&["key", "key"]))).contains("has the column \"key\" twice"));
    assert!(
        tell(&rollup("sum", list(&["key"])))
            .contains("expected a column of integers to sum up, got \"key\" of type string")
    );
    let (key, _) = mistake(&schema(), &rollup("every", OptionValue::Duration(7_000_000)));
    assert_eq!(key, "rollups.hour");
}

#[test]
fn the_event_time_is_found_or_asked_for() {
    let stamp = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Second));
    let two = Schema::new(vec![stamp("sent"), stamp("received")]);
    let (key, text) = mistake(&two, &options(&[]));
    assert_eq!(
        (key.as_str(), text.as_str()),
        ("time", "the input has several timestamps, and none is called `time` (name one of sent, received)")
    );
    let plugin = TablePlugin { tables: std::sync::Arc::new(Tables::default()) };
    assert!(plugin.check(&two, &options(&[("time", OptionValue::Text("sent".into()))])).is_empty());
    assert!(plugin.check(&Schema::new(vec![stamp("sent"), stamp("ts")]), &options(&[])).is_empty());
    assert!(plugin.check(&Schema::new(vec![Field::new("n", DataType::Int64)]), &options(&[])).is_empty());
    let taken = Schema::new(vec![Field::new("time", DataType::Int64)]);
    assert_eq!(mistake(&taken, &options(&[])).0, "time");
}

#[test]
fn what_is_dropped_or_truncated_is_never_written() {
    let root = tempfile::tempdir().unwrap();
    let options = options(&[("drop", list(&["key", "bytes", "rare"])), ("truncate", list(&["addr/20"]))]);
    let mut driven = Driven::open(root.path(), &options, Some(SinkResume::default())).unwrap();
    driven.give(&[
        (1, "a secret text of a row".to_owned(), Some([10, 1, 0xff, 7]), Some(3)),
        (2, String::new(), None, None),
    ]);
    driven.commit(1);
    let snapshot = driven.tables.snapshot(&name()).unwrap().unwrap();
    let rows = &snapshot.fresh[0];
    let names: Vec<&str> = rows.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["ts", "addr"]);
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;
    let addrs = rows.column(1).as_fixed_size_binary();
    assert_eq!(addrs.value(0)[12..], [10, 1, 0xf0, 0]);
    assert!(addrs.is_null(1));
    drop((snapshot, driven));
    let path = crate::drive::folder(root.path()).join("fresh").join("00000000.frames");
    let bytes = std::fs::read(path).unwrap();
    assert!(!bytes.windows(8).any(|window| window == b"a secret"));
}
