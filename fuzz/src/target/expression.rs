//! SQL expressions: parse, bind to a schema of every type, evaluate over a few rows.

use std::sync::Arc;
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use bytes::Bytes;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin, Options};
use thalweg_expr::Expr;
use thalweg_types::{DataType, Field, Schema, TimeUnit};

use crate::Target;

pub const TARGET: Target = Target { name: "expression", run, seeds, words: WORDS, allowance };

/// A text that an expression makes, in a buffer that has grown by doubling; folded characters.
fn allowance(_: &[u8]) -> usize {
    8 << 20
}

const WORDS: &[&str] = &[
    " AND ",
    " OR ",
    "NOT ",
    " IS NULL",
    " IS DISTINCT FROM ",
    " BETWEEN ",
    " IN (",
    " LIKE ",
    " ESCAPE '!'",
    "CASE ",
    " WHEN ",
    " THEN ",
    " ELSE ",
    " END",
    "CAST(",
    " AS ",
    "TRY_CAST(",
    "decimal(38,9)",
    "timestamp(ns)",
    "int64",
    "NULL",
    "TRUE",
    "'text'",
    "''",
    "\"quoted\"",
    "--",
    "/*",
    "*/",
    "(",
    ")",
    ",",
    "||",
    "%",
    "-",
    "1e308",
    "0.1",
    "9223372036854775808",
    "TIMESTAMP '2024-02-29 13:45:00'",
    "DATE_TRUNC('month', ",
    "EXTRACT(DOW FROM ",
    "SUBSTR(",
    "REPLACE(",
    "POWER(",
    "ROUND(",
    "COALESCE(",
    "GREATEST(",
    "card",
    "amount",
    "price",
    "count",
    "ts",
    "addr",
];

fn stream() -> &'static (Schema, RecordBatch) {
    static STREAM: OnceLock<(Schema, RecordBatch)> = OnceLock::new();
    STREAM.get_or_init(|| {
        let schema = Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Milli)).nullable(),
            Field::new("card", DataType::String).nullable(),
            Field::new("amount", DataType::Float64).nullable(),
            Field::new("price", DataType::Decimal { precision: 12, scale: 2 }).nullable(),
            Field::new("count", DataType::Int64).nullable(),
            Field::new("total", DataType::UInt64).nullable(),
            Field::new("flag", DataType::Bool).nullable(),
            Field::new("addr", DataType::Ip).nullable(),
            Field::new("raw", DataType::Bytes).nullable(),
        ]);
        let text = concat!(
            r#"{"ts":1600000000000,"card":"c1","amount":3.5,"price":1.25,"count":7,"total":9,"flag":true,"addr":"::1","raw":"AA=="}"#,
            "\n{}\n",
            r#"{"ts":-9223372036854775808,"card":"é%_","amount":"NaN","price":-9999999999.99,"count":-9223372036854775808,"total":18446744073709551615,"flag":false,"addr":"1.2.3.4","raw":""}"#,
            "\n",
        );
        let format = Ndjson.reader(&schema, &Options::default()).expect("a schema of every type");
        let columns = format.decoder().decode(&Bytes::from_static(text.as_bytes()), 3, None).expect("three records");
        assert_eq!(columns.rows, 3, "{:?}", columns.bad);
        let records = RecordBatch::try_new(Arc::clone(schema.arrow()), columns.columns).expect("the schema's columns");
        (schema, records)
    })
}

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(parsed) = Expr::parse(text) else { return };
    let (schema, records) = stream();
    let Ok(bound) = parsed.bind(schema) else { return };
    let values = bound.evaluate(records).expect("nothing fails while a stream runs");
    assert_eq!(values.len(), records.num_rows(), "one value per row");
    assert_eq!(values.data_type(), &bound.data_type().to_arrow(), "the type that was announced");
}

fn seeds() -> Vec<Vec<u8>> {
    [
        "amount > 1 AND card LIKE 'c%' OR flag IS NOT TRUE",
        "CASE WHEN count % 2 = 0 THEN price * 2 ELSE -price END BETWEEN 1 AND 2.5",
        "CAST(amount AS decimal(38,9)) + count / 0",
        "DATE_TRUNC('month', ts) < TIMESTAMP '2024-02-29 13:45:00' AND EXTRACT(DOW FROM ts) IN (1, 2, NULL)",
        "SUBSTR(UPPER(card) || '-' || TRIM(card), 2, 3) NOT ILIKE '%!_%' ESCAPE '!'",
        "COALESCE(NULLIF(total, 9), GREATEST(count, 3), 0)",
        "addr = '10.0.0.1' OR ROUND(POWER(amount, 2), 2) IS DISTINCT FROM SQRT(ABS(amount))",
        "STRPOS(REPLACE(card, 'c', ''), '1') + LENGTH(card)",
        "LENGTH(REPLACE(REPLACE(REPLACE(card, 'c', 'cccccccccccccccc'), 'c', 'cccccccccccccccc'), 'c', 'cccccccccccccccc'))",
        "card LIKE '%c%c%c_%_%' OR card ILIKE card || '\\'",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
