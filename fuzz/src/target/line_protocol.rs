//! Line protocol: the first byte picks the schema, the second the options, the rest is the stream.

use thalweg_connect::OptionValue;
use thalweg_connect::format::line_protocol::LineProtocol;

use super::records;
use crate::{Target, nothing_more};

pub const TARGET: Target =
    Target { name: "line_protocol", run, seeds, words: WORDS, allowance: nothing_more };

const WORDS: &[&str] = &[
    "m,",
    " ",
    ",",
    "=",
    "\"",
    "\\",
    "\\,",
    "\\ ",
    "\\=",
    "\\\"",
    "#",
    "\n",
    "\r\n",
    "card=",
    "amount=",
    "ts=",
    "flag=",
    "int=",
    "price=",
    "raw=",
    "from=",
    "user.id=",
    "t",
    "False",
    "1i",
    "-9223372036854775808i",
    "18446744073709551615u",
    "1e400",
    "-.5",
    "NaN",
    " 1465839830100400200\n",
    " 92233720368547758080000000\n",
    "\u{feff}",
];

pub fn run(data: &[u8]) {
    let [choice, shape, stream @ ..] = data else { return };
    let mut given = vec![("measurement", OptionValue::Text("m".to_owned()))];
    let tag = ["card", "int", "user.id"][usize::from(shape >> 4) % 3];
    if shape & 1 == 1 && records::schema(*choice).field(tag).is_some() {
        given.push(("tags", OptionValue::List(vec![tag.to_owned()])));
    }
    if shape & 2 == 2 {
        given.push(("unknown", OptionValue::Text("reject".to_owned())));
    }
    let precision = ["ns", "us", "ms", "s"][usize::from(shape >> 2) % 4];
    given.push(("precision", OptionValue::Text(precision.to_owned())));
    records::check(&LineProtocol, &records::schema(*choice), &records::options(given), stream);
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |choice: u8, shape: u8, text: &str| [&[choice, shape], text.as_bytes()].concat();
    vec![
        seed(
            0,
            0,
            "m,card=c1,merchant=m9 amount=3.5 1600000000000000000\nm card=\"a \\\"b\\\"\",amount=-0 1\r\n",
        ),
        seed(
            1,
            1,
            "# nothing\n\nm,card=c\\ 1\\,x amount=NaN\nm amount=1e400 5\nm,card=a card=\"b\",amount=1,amount=2\n",
        ),
        seed(1, 4, "m card=\"two\nlines\" 1600000000\nm card=\"open 1\nm amount=1i\n"),
        seed(
            2,
            17,
            "m,int=5 flag=t,uint=18446744073709551615u,price=12.34,wide=1i\nm,int=-1 flag=FALSE,price=-0.01\n",
        ),
        seed(
            3,
            35,
            "m,user.id=x raw=\"AAEC\",from=\"1.2.3.4\",s=5i,us=\"2020-01-01\",ns=-1i 7\nm,user.id=\\=y from=\"::1\"\n",
        ),
    ]
}
