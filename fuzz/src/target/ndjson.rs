//! NDJSON: the first byte picks the schema, the rest is the stream.

use thalweg_connect::format::ndjson::Ndjson;

use super::records;
use crate::{Target, nothing_more};

pub const TARGET: Target = Target { name: "ndjson", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\u0000",
    "\\ud83d\\ude00",
    "\\udead",
    "\\",
    "null",
    "true",
    "false",
    "1e308",
    "-0.0",
    "1E+2",
    "\n",
    "\r\n",
    "\"ts\":",
    "\"card\":",
    "\"amount\":",
    "\"user\":{\"id\":",
    "\"user.id\":",
    "\"NaN\"",
    "\"-Infinity\"",
    "9223372036854775808",
    "\"2024-02-29T13:45:00.5Z\"",
    "\u{feff}",
    "[[[[[[[[",
];

pub fn run(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    records::check(&Ndjson, &records::schema(*choice), &records::options([]), stream);
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |choice: u8, text: &str| [&[choice], text.as_bytes()].concat();
    vec![
        seed(
            0,
            "{\"ts\":1600000000000,\"card\":\"c1\",\"merchant\":\"m9\",\"amount\":3.5}\n{\"ts\":1,\"card\":\"\",\"amount\":-0.0}\n",
        ),
        seed(
            1,
            "{}\n\n{\"amount\":\"NaN\",\"card\":\"a\\u00e9\\n\",\"ts\":null}\r\n{\"ts\":1,\"ts\":2,\"x\":[1,{\"y\":null}]}",
        ),
        seed(
            2,
            "{\"flag\":true,\"int\":-9223372036854775808,\"uint\":18446744073709551615,\"price\":12.34,\"wide\":\"1.5\"}\n",
        ),
        seed(
            3,
            "{\"raw\":\"AAEC\",\"from\":\"1.2.3.4\",\"s\":5,\"us\":\"2020-01-01\",\"ns\":-1,\"user\":{\"id\":\"x\"}}\n[1]\n",
        ),
    ]
}
