//! CSV: the first byte picks the schema, the second header and delimiter, the rest is the stream.

use thalweg_connect::OptionValue;
use thalweg_connect::format::csv::Csv;

use super::records;
use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "csv", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "\"",
    "\"\"",
    ",",
    ";",
    "\t",
    "\r\n",
    "\n",
    "\n\n",
    "\u{feff}",
    "ts",
    "card",
    "amount",
    "NaN",
    "-inf",
    "1e308",
    "-0",
    "9223372036854775808",
    "2024-02-29T13:45:00.123456789+01:00",
    "::ffff:1.2.3.4",
    "AAECAw==",
    "true",
];

pub fn run(data: &[u8]) {
    let [choice, shape, stream @ ..] = data else { return };
    let header = OptionValue::Bool(shape & 1 == 0);
    let delimiter = OptionValue::Text([",", ";", "\\t"][usize::from(shape >> 1) % 3].to_owned());
    let options = records::options([("header", header), ("delimiter", delimiter)]);
    records::check(&Csv, &records::schema(*choice), &options, stream);
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |choice: u8, shape: u8, text: &str| [&[choice, shape], text.as_bytes()].concat();
    vec![
        seed(0, 0, "ts,card,merchant,amount\n1600000000000,c1,m9,3.50\n1600000000001,\"c,\"\"2\",m1,-0\r\n"),
        seed(1, 0, "amount,ts\n,\nNaN,5\n\n1e400,x\n"),
        seed(1, 3, "1;c1;2.5\n2;;\n\"3\";\"a\nb\";inf"),
        seed(2, 1, "true,-9223372036854775808,18446744073709551615,12.34,1\nfalse,0,,-0.01,\n"),
        seed(3, 1, "AAEC,1.2.3.4,5,2020-01-01T00:00:00Z,-1,x\n,::1,,,,\n"),
        seed(3, 4, "raw\tfrom\ts\tus\tns\tuser.id\n\t\t\t\t\t\"\"\n"),
    ]
}
