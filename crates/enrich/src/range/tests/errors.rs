//! Messages about files that do not fit the options.

use std::io::Read;

use super::*;

/// Loading one file fails with this message and hint; the folder is left out of the message.
fn refused(mut options: RangeOptions, file: (&str, &[u8]), message: &str, hint: &str) {
    let folder = Folder::new();
    options.files = vec![folder.write(file.0, file.1)];
    if let Layout::Delimited(layout) = &mut options.layout {
        layout.bad_lines = BadLines::Refuse;
    }
    let error = RangeTable::load(&options).err().expect("an error");
    let place = format!("{}/", folder.0.path().display());
    assert_eq!(error.chain().replace(&place, ""), message);
    assert_eq!(error.hint(), Some(hint), "{message}");
    assert_eq!(error.class(), thalweg_types::Class::User, "{message}");
}

#[test]
fn lines_that_give_no_range() {
    const CHECK: &str =
        "check which columns hold the range, the delimiter, and whether the first line is a header";
    const FAMILY: &str = "both ends of a range are of one family; split the line into one for each";
    for (line, message, hint) in [
        (
            "1.0.0,1.0.0.255,1,a",
            r#"expected two addresses (IPv4, IPv6 or whole numbers), got "1.0.0" and "1.0.0.255""#,
            CHECK,
        ),
        (
            "1.0.0.9,1.0.0.0,1,a",
            r#"expected a first address that is not above the last, got "1.0.0.9" and "1.0.0.0""#,
            "exchange the two, or check which columns are first and last",
        ),
        ("1.0.0.9,2001::,1,a", r#"expected two addresses of one family, got "1.0.0.9" and "2001::""#, FAMILY),
        (
            "::,::ffff:1.0.0.0,1,a",
            r#"expected two addresses of one family, got "::" and "::ffff:1.0.0.0""#,
            FAMILY,
        ),
    ] {
        let text = format!("first,last,asn,who\n\n1.0.0.0,1.0.0.1,1,a\n{line}\n");
        let message = format!(r#"read "a.csv", line 4: column "first" and column "last": {message}"#);
        refused(with_header(), ("a.csv", text.as_bytes()), &message, hint);
    }
    refused(
        prefixes(),
        ("a.csv", b"10.0.0.1/8,a"),
        r#"read "a.csv", line 1: column 1: expected no bits beyond the prefix, as in 10.0.0.0/8, got "10.0.0.1/8""#,
        "write the network's first address, or give a range by first and last",
    );
    refused(
        prefixes(),
        ("a.csv", format!("{},a", "x".repeat(100)).as_bytes()),
        &format!(
            "read \"a.csv\", line 1: column 1: expected a network such as 192.0.2.0/24 or 2001:db8::/32, got {:?}…",
            "x".repeat(60)
        ),
        CHECK,
    );
}

#[test]
fn lines_that_lack_columns_or_have_others() {
    refused(
        with_header(),
        ("a.csv", b"first,last,asn,who\n1.0.0.0,1.0.0.1,1\n"),
        r#"read "a.csv", line 2: expected at least 4 columns, got 3"#,
        "check the delimiter, which is ',' here",
    );
    refused(
        with_header(),
        ("a.tsv", b"first,last,asn,who\n1.0.0.0,1.0.0.1,1\n"),
        r#"read "a.tsv", line 1: the header lacks column "first": it has "first,last,asn,who""#,
        "name a column of the header, or say that the file has none",
    );
    refused(
        with_header(),
        ("a.csv", b"first,last,asn,who,asn\n"),
        r#"read "a.csv", line 1: the header names column "asn" twice"#,
        "give the column by its position from 1",
    );
    refused(
        with_header(),
        ("a.csv", b"first,last,asn,who\n1.0.0.0,1.0.0.1,AS1,a\n"),
        r#"read "a.csv", line 2: column "asn": expected a whole number from 0 that fits uint64, got "AS1""#,
        "take it as string where not all of its values are such",
    );
    refused(
        with_header(),
        ("a.csv", b"first,last,asn,who\n1.0.0.0,1.0.0.1,1,Telef\xf3nica\n"),
        "read \"a.csv\", line 2: column \"who\": expected UTF-8, got \"Telef\u{fffd}nica\"",
        "convert the file, as with iconv -f latin1 -t utf-8",
    );
}

#[test]
fn options_that_fit_no_file() {
    let mut named = with_header();
    let Layout::Delimited(layout) = &mut named.layout else { unreachable!("lines") };
    layout.header = false;
    refused(
        named,
        ("a.csv", b"1.0.0.0,1.0.0.1,1,a\n"),
        r#"column "first": expected a position, as the file has no header, got a name"#,
        "give positions from 1, or say that the file has a header",
    );
    let mut zero = prefixes();
    zero.values[0].from = Column::Position(0);
    refused(
        zero,
        ("a.csv", b"1.0.0.0,a\n"),
        "column 0: expected a position from 1, got 0",
        "the first column has position 1",
    );
    let mut quotation = prefixes();
    let Layout::Delimited(layout) = &mut quotation.layout else { unreachable!("lines") };
    layout.delimiter = Some(b'"');
    refused(
        quotation,
        ("a.csv", b"1.0.0.0,a\n"),
        "range table: expected an ASCII delimiter other than quotation mark and line break, got '\"'",
        "such as a comma, a semicolon or a tab",
    );
    let mut bytes = prefixes();
    bytes.values[0].data_type = DataType::Bytes;
    refused(
        bytes,
        ("a.csv", b"1.0.0.0,a\n"),
        r#"range table: value "who": expected type string, uint64, int64, float64 or bool, got bytes"#,
        "take it as string and cast it in the query",
    );
    let mut twice = prefixes();
    twice.values.push(twice.values[0].clone());
    refused(
        twice,
        ("a.csv", b"1.0.0.0,a\n"),
        r#"range table: two values are named "who""#,
        "give one of them another name",
    );
    let none = RangeTable::load(&prefixes()).err().expect("an error");
    assert_eq!(none.chain(), "range table: expected at least one file, got none");
}

#[test]
fn files_without_ranges() {
    const HINT: &str = "check whether the file was written to its end; leave it out if it has no ranges";
    const MESSAGE: &str = r#"read "a.csv": expected at least one range, got none"#;
    refused(with_header(), ("a.csv", b""), MESSAGE, HINT);
    refused(with_header(), ("a.csv", b"first,last,asn,who\n"), MESSAGE, HINT);
    refused(with_header(), ("a.csv", &gzip("")), MESSAGE, HINT);

    let folder = Folder::new();
    let mut options = prefixes();
    options.files = vec![folder.0.path().join("gone.csv")];
    let error = RangeTable::load(&options).err().expect("an error");
    assert!(
        error.chain().ends_with("gone.csv\": No such file or directory (os error 2)"),
        "{}",
        error.chain()
    );
    options.files = vec![folder.0.path().to_owned()];
    let error = RangeTable::load(&options).err().expect("an error");
    assert!(error.chain().ends_with(": expected a file, got a folder"), "{}", error.chain());
}

#[test]
fn packed_files_that_are_cut_or_changed() {
    let lines: String = (0..200).map(|n| format!("10.0.{n}.0/24,a{n}\n")).collect();
    let packed = gzip(&lines);
    const HINT: &str = "fetch the file again, and rename it into place when it is whole";
    for cut in [5, packed.len() / 2, packed.len() - 1] {
        let mut options = prefixes();
        let folder = Folder::new();
        options.files = vec![folder.write("a.csv.gz", &packed[..cut])];
        let error = RangeTable::load(&options).err().expect("an error");
        assert!(error.message().ends_with(": expected gzip data to its end"), "{cut}: {}", error.chain());
        assert_eq!(error.hint(), Some(HINT));
    }
    let mut changed = packed.clone();
    let checksum = changed.len() - 8;
    changed[checksum] ^= 1;
    refused(
        prefixes(),
        ("a.csv.gz", &changed),
        "read \"a.csv.gz\", line 201: expected gzip data to its end: corrupt gzip stream does not have a matching checksum",
        HINT,
    );
}

#[test]
fn little_that_unpacks_to_much() {
    // One line of sixty-four megabytes, from sixty-four thousand bytes.
    let mut line = Vec::new();
    flate2::read::GzEncoder::new(std::io::repeat(b'0').take(64 << 20), Compression::best())
        .read_to_end(&mut line)
        .expect("memory");
    assert!(line.len() < 100_000);
    refused(
        prefixes(),
        ("a.csv.gz", &line),
        "read \"a.csv.gz\", line 1: expected at most 1048576 bytes in 16384 cells, got more",
        "check that this is a text file",
    );

    // The same line over and over: the rows are one, the ranges many.
    let mut options = prefixes();
    options.memory_limit = 1 << 20;
    refused(
        options,
        ("a.csv.gz", &gzip("10.0.0.0/24,a\n".repeat(100_000))),
        "read \"a.csv.gz\", line 21844: the table takes more than 1MiB of memory after 21844 ranges",
        "check that the file is the right one, take fewer values, or raise memory_limit",
    );
}
