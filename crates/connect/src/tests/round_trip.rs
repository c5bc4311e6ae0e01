//! A decoder reads back what the encoder of its format writes, for every type.

use proptest::prelude::*;
use thalweg_types::TimeUnit;

use super::*;

fn a_type() -> impl Strategy<Value = DataType> {
    prop_oneof![
        Just(DataType::Bool),
        Just(DataType::Int64),
        Just(DataType::UInt64),
        Just(DataType::Float64),
        (1_u8..=76, 0_u8..=76).prop_map(|(precision, scale)| DataType::Decimal {
            precision,
            scale: scale.min(precision) as i8
        }),
        Just(DataType::String),
        Just(DataType::Bytes),
        Just(DataType::Timestamp(TimeUnit::Second)),
        Just(DataType::Timestamp(TimeUnit::Milli)),
        Just(DataType::Timestamp(TimeUnit::Micro)),
        Just(DataType::Timestamp(TimeUnit::Nano)),
        Just(DataType::Ip),
    ]
}

/// A value as the text that CSV has for it; `None` is null.
fn a_text(field: &Field) -> BoxedStrategy<Option<String>> {
    let text: BoxedStrategy<String> = match &field.data_type {
        DataType::Bool => any::<bool>().prop_map(|value| value.to_string()).boxed(),
        DataType::Int64 | DataType::Timestamp(_) => any::<i64>().prop_map(|value| value.to_string()).boxed(),
        DataType::UInt64 => any::<u64>().prop_map(|value| value.to_string()).boxed(),
        DataType::Float64 => prop_oneof![
            any::<f64>().prop_map(|value| if value.is_nan() {
                "NaN".to_owned()
            } else {
                format!("{value:?}")
            }),
            (-1_000_000_i64..1_000_000).prop_map(|cents| format!("{}", cents as f64 / 100.0)),
            Just("-Infinity".to_owned()),
        ]
        .boxed(),
        DataType::Decimal { precision, scale } => {
            let (precision, scale) = (usize::from(*precision), *scale as usize);
            (proptest::collection::vec(0_u8..10, 1..=precision), any::<bool>())
                .prop_map(move |(digits, negative)| {
                    let digits: String = digits.iter().map(|digit| char::from(b'0' + digit)).collect();
                    let digits = format!("{digits:0>width$}", width = scale + 1);
                    let (whole, fraction) = digits.split_at(digits.len() - scale);
                    format!("{}{whole}.{fraction}", if negative { "-" } else { "" })
                })
                .boxed()
        }
        DataType::Ip => prop_oneof![
            any::<[u8; 16]>().prop_map(|octets| std::net::Ipv6Addr::from(octets).to_string()),
            any::<[u8; 4]>().prop_map(|octets| std::net::Ipv4Addr::from(octets).to_string()),
        ]
        .boxed(),
        DataType::Bytes => proptest::collection::vec(any::<u8>(), 1..40)
            .prop_map(|bytes| {
                let mut text = Vec::new();
                crate::format::base64::encode(&bytes, &mut text);
                String::from_utf8(text).unwrap()
            })
            .boxed(),
        // Not empty: an empty field is null in a nullable CSV column.
        _ => prop_oneof!["[a-z]{1,20}", "\\PC{1,16}", "[\"\n\r,\\\\ \u{0}-\u{1f}a]{1,8}"].boxed(),
    };
    if field.nullable { proptest::option::of(text).boxed() } else { text.prop_map(Some).boxed() }
}

type Table = (Vec<Field>, Vec<Vec<Option<String>>>);

fn a_table() -> impl Strategy<Value = Table> {
    proptest::collection::vec((a_type(), any::<bool>()), 1..6)
        .prop_map(|types| {
            let fields = types.into_iter().enumerate().map(|(index, (data_type, nullable))| {
                let field = Field::new(format!("f {index}\""), data_type);
                if nullable { field.nullable() } else { field }
            });
            fields.collect::<Vec<_>>()
        })
        .prop_flat_map(|fields| {
            let row: Vec<_> = fields.iter().map(a_text).collect();
            (Just(fields), proptest::collection::vec(row, 1..8))
        })
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn decoded(schema: &Schema, format: &FormatSpec, input: &str) -> Decoded {
    let context = context(schema, Some(format.clone()), &[]);
    let format = format.reader(schema).unwrap();
    let mut blocks = cut(&*format, input.as_bytes(), usize::MAX).unwrap();
    assert_eq!(blocks.len(), 1, "{input}");
    let decoded =
        decode(&mut SourceDecoder::new(&context, decoders(&format)).unwrap(), &blocks.remove(0)).unwrap();
    let mut lines = BTreeMap::new();
    render(&decoded, &mut lines);
    assert!(decoded.rejects.is_none(), "{lines:?} of {input}");
    decoded
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_formats_read_back_what_they_write((fields, rows) in a_table()) {
        let schema = Schema::new(fields);
        let header: Vec<String> = schema.names().map(quoted).collect();
        let mut input = header.join(",") + "\n";
        for row in &rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.as_deref().map_or_else(String::new, quoted)).collect();
            // A line of one null is a blank line, which is not a record.
            let line = if cells == [""] { "\"\"".to_owned() } else { cells.join(",") };
            input += &(line + "\r\n");
        }
        let csv = spec("csv", &[]);
        let first = decoded(&schema, &csv, &input).records;
        prop_assert_eq!(first.len(), rows.len());
        let digest = crate::sink::digest(&first);
        for format in [csv, spec("ndjson", &[])] {
            let written = encoded(&format, &schema, &first);
            let again = decoded(&schema, &format, &written).records;
            for (a, b) in first.records().columns().iter().zip(again.records().columns()) {
                for row in 0..rows.len() {
                    prop_assert_eq!(Value::at(a, row), Value::at(b, row), "{}", written);
                }
            }
            prop_assert_eq!(crate::sink::digest(&again), digest);
            if format.plugin.name() == "ndjson" {
                for line in written.lines() {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{}", line);
                }
            }
        }
    }

    #[test]
    fn points_read_back_as_they_were_written((mut fields, rows) in a_table()) {
        // So that every point has a field.
        fields.push(Field::new("there", DataType::Bool));
        let schema = Schema::new(fields);
        let header: Vec<String> = schema.names().map(quoted).collect();
        let mut input = header.join(",") + "\n";
        for row in &rows {
            let cells: Vec<String> = row.iter().map(|cell| cell.as_deref().map_or_else(String::new, quoted)).collect();
            input += &(cells.join(",") + ",true\n");
        }
        let first = decoded(&schema, &spec("csv", &[]), &input).records;
        let format = spec("line_protocol", &[("measurement", text("a, b=c"))]);
        let written = encoded(&format, &schema, &first);
        let again = decoded(&schema, &format, &written).records;
        prop_assert_eq!(again.len(), rows.len(), "{}", written);
        for (a, b) in first.records().columns().iter().zip(again.records().columns()) {
            for row in 0..rows.len() {
                prop_assert_eq!(Value::at(a, row), Value::at(b, row), "{}", written);
            }
        }
        prop_assert_eq!(crate::sink::digest(&again), crate::sink::digest(&first));
    }

    #[test]
    fn tags_and_measurements_read_back_or_are_counted(
        rows in proptest::collection::vec(("[a,= \"\\\\\n#é\t]{0,6}", "[a,= \"\\\\\n#é]{0,6}", any::<i64>()), 1..8),
    ) {
        let schema = schema("kind: string; a tag,=: string; n: int64");
        let columns: Vec<ArrayRef> = vec![
            Arc::new(arrow_array::StringViewArray::from_iter_values(rows.iter().map(|row| &row.0))),
            Arc::new(arrow_array::StringViewArray::from_iter_values(rows.iter().map(|row| &row.1))),
            Arc::new(arrow_array::Int64Array::from_iter_values(rows.iter().map(|row| row.2))),
        ];
        let tags = OptionValue::List(vec!["a tag,=".to_owned()]);
        let format = spec("line_protocol", &[("measurement", text("kind")), ("tags", tags)]);
        let mut encoder = format.encoder(&schema).unwrap();
        let mut written = Vec::new();
        encoder.encode(&batch(&schema, columns), &mut written);
        let kept: Vec<&(String, String, i64)> = rows
            .iter()
            .filter(|(kind, tag, _)| {
                let fits = |text: &str| !text.contains('\n') && !text.ends_with('\\');
                !kind.is_empty() && !kind.starts_with(['#', '\t']) && fits(kind) && fits(tag)
            })
            .collect();
        prop_assert_eq!(encoder.take_refused().len(), rows.len() - kept.len());
        if !kept.is_empty() {
            let written = String::from_utf8(written).unwrap();
            let again = decoded(&schema, &format, &written).records;
            prop_assert_eq!(again.len(), kept.len());
            for (row, (kind, tag, n)) in kept.into_iter().enumerate() {
                prop_assert_eq!(Value::at(again.column(0), row), Value::String(kind.clone()), "{}", &written);
                prop_assert_eq!(Value::at(again.column(1), row), Value::String(tag.clone()), "{}", &written);
                prop_assert_eq!(Value::at(again.column(2), row), Value::Int64(*n));
            }
        }
    }
}
