//! Each form in which lines may give ranges.

use super::*;

const LINES: &str = "first,last,asn,who\n1.0.0.0,1.0.0.255,15169,Google\n1.0.4.0,1.0.6.255,56203,\n";
const ANSWERS: [(&str, &str); 6] = [
    ("0.255.255.255", "-"),
    ("1.0.0.0", "15169 Google"),
    ("1.0.0.255", "15169 Google"),
    ("1.0.1.0", "-"),
    ("1.0.5.7", "56203 null"),
    ("::1", "-"),
];

#[test]
fn commas_and_a_header() {
    check(&load(with_header(), &[("a.csv", LINES.as_bytes())]), &ANSWERS);
}

#[test]
fn line_breaks_a_mark_and_quotes_as_other_programs_write_them() {
    let lines = format!("\u{feff}{}", LINES.replace('\n', "\r\n").replace("Google", "\"Google\""));
    check(&load(with_header(), &[("a.csv", lines.as_bytes())]), &ANSWERS);
}

#[test]
fn gzip_is_known_by_its_bytes_and_not_by_its_name() {
    let half = LINES.find("1.0.4.0").expect("a second line");
    // As `cat a.gz b.gz` makes it.
    let members = [gzip(&LINES[..half]), gzip(&LINES[half..])].concat();
    check(&load(with_header(), &[("a.csv", &gzip(LINES))]), &ANSWERS);
    check(&load(with_header(), &[("a.csv.gz", &members)]), &ANSWERS);
    check(&load(with_header(), &[("a.csv.gz", LINES.as_bytes())]), &ANSWERS);
}

#[test]
fn a_name_that_ends_in_tsv_means_tabs() {
    let lines = LINES.replace(',', "\t").replace("Google", "\"Google");
    let answers = ANSWERS.map(|(address, who)| (address, who.replace("Google", "\"Google")));
    for (name, bytes) in [("a.tsv", lines.clone().into_bytes()), ("A.TSV.GZ", gzip(&lines))] {
        let table = load(with_header(), &[(name, &bytes)]);
        check(&table, &answers.each_ref().map(|(address, who)| (*address, who.as_str())));
    }
}

#[test]
fn a_delimiter_that_is_given_counts_and_not_the_name() {
    let mut options = with_header();
    let Layout::Delimited(layout) = &mut options.layout else { unreachable!("lines") };
    layout.delimiter = Some(b';');
    check(&load(options, &[("a.tsv", LINES.replace(',', ";").as_bytes())]), &ANSWERS);
}

#[test]
fn positions_and_whole_numbers_without_a_header() {
    let lines = "16777216\t16777471\t15169\tUS\tGoogle\n4294967295\t4294967295\t0\t\t\n\
        42540766411282592856903984951653826560\t42540766411282592875350729025363378175\t6\tJP\tWide\n";
    check(
        &load(autonomous_systems(), &[("a.tsv", lines.as_bytes())]),
        &[
            ("1.0.0.0", "15169 US Google"),
            ("1.0.0.255", "15169 US Google"),
            ("1.0.1.0", "-"),
            ("255.255.255.255", "0 null null"),
            ("2001:db8::1", "6 JP Wide"),
            ("2001:db8:0:1::", "-"),
        ],
    );
}

#[test]
fn networks_nested_equal_and_at_both_ends() {
    let lines = "10.1.0.0/16,wide\n10.1.2.0/24,narrow\n10.1.2.3,one\n10.1.2.0/24,later\n10.1.0.0/16,later too\n\
        0.0.0.0/0,rest\n::/0,rest of six\nffff::/16,end\n::/128,begin\n";
    check(
        &load(prefixes(), &[("a.csv", lines.as_bytes())]),
        &[
            ("10.1.2.3", "one"),
            ("10.1.2.4", "later"),
            ("10.1.1.255", "later too"),
            ("10.1.3.0", "later too"),
            ("0.0.0.0", "rest"),
            ("255.255.255.255", "rest"),
            ("::", "begin"),
            ("::1", "rest of six"),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "end"),
            ("fffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "rest of six"),
        ],
    );
}

#[test]
fn no_range_of_ipv6_answers_for_ipv4() {
    let table = load(prefixes(), &[("a.csv", b"::/0,six\n::ffff:10.0.0.0/104,ten\n")]);
    check(&table, &[("10.0.0.1", "ten"), ("11.0.0.1", "-"), ("::11.0.0.1", "six")]);
}

#[test]
fn the_narrower_of_two_that_overlap_in_part_answers() {
    let mut options = with_header();
    options.values.truncate(1);
    let lines =
        "first,last,asn\n1.0.0.0,1.0.0.9,1\n1.0.0.5,1.0.0.20,2\n1.0.0.18,1.0.0.27,3\n1.0.0.19,1.0.0.28,4\n";
    let table = load(options, &[("a.csv", lines.as_bytes())]);
    check(
        &table,
        &[("1.0.0.5", "1"), ("1.0.0.9", "1"), ("1.0.0.10", "2"), ("1.0.0.18", "3"), ("1.0.0.19", "4")],
    );
}

#[test]
fn several_files_are_one_table_and_it_knows_what_it_holds() {
    let four = "1.0.0.0\t1.0.0.255\t7\tUS\ta name of many letters\n1.0.1.0\t1.0.1.255\t7\tUS\ta name of many letters\n";
    let six = "2001::\t2001::ff\t7\tUS\ta name of many letters\n2001::100\t2001::1ff\t8\tDE\tb\n";
    let folder = Folder::new();
    let mut options = autonomous_systems();
    options.files = vec![folder.write("four.tsv", four), folder.write("six.tsv.gz", gzip(six))];
    let table = RangeTable::load(&options).expect("a table");

    let stats = table.stats();
    assert_eq!((stats.given_count, stats.v4_count, stats.v6_count, stats.row_count), (4, 1, 2, 2));
    assert!(stats.memory_bytes > 2 * 65_537 * 4, "{stats:?}");
    let names: Vec<String> = table
        .schema()
        .fields()
        .iter()
        .map(|f| format!("{} {} {}", f.name, f.data_type, f.nullable))
        .collect();
    assert_eq!(names, ["asn uint64 true", "country string true", "name string true"]);
    for (column, field) in table.columns().iter().zip(table.schema().fields()) {
        assert_eq!((column.len(), column.data_type()), (2, &field.data_type.to_arrow()));
    }
    for ((path, identity), expected) in table.files().iter().zip(&options.files) {
        let metadata = std::fs::metadata(expected).expect("a file");
        assert_eq!(path, expected);
        assert_eq!(identity.modified, metadata.modified().ok());
        assert_eq!(identity.size, metadata.len());
    }
}

#[test]
fn a_table_without_values_knows_which_addresses_are_in_it() {
    let mut options = prefixes();
    options.values.clear();
    let table = load(options, &[("a.csv", b"10.0.0.0/8\n12.0.0.0/8\n")]);
    check(&table, &[("10.1.1.1", ""), ("11.1.1.1", "-"), ("12.1.1.1", "")]);
    assert_eq!(table.stats().row_count, 1);
}

#[test]
fn every_type_of_value() {
    let range = RangeColumns::Prefix(name("network"));
    let types = [DataType::Bool, DataType::Int64, DataType::UInt64, DataType::Float64, DataType::String];
    let values = types.map(|data_type| {
        let column = data_type.to_string();
        ValueColumn::string(name(&column), column).with_type(data_type)
    });
    let layout =
        Layout::Delimited(Delimited { delimiter: None, header: true, range, bad_lines: BadLines::Skip });
    let lines = "network,string,float64,uint64,int64,bool\n1.0.0.0/8,a, 1.5 ,7,-7,True\n2.0.0.0/8,,,,,\n";
    let table = load(options(layout, values.to_vec()), &[("a.csv", lines.as_bytes())]);
    check(&table, &[("1.1.1.1", "true -7 7 1.5 a"), ("2.1.1.1", "null null null null null")]);
}

/// Tables as pyasn writes them and as RouteViews publishes them.
#[test]
fn comments_and_lengths_in_a_column_of_their_own() {
    let tabs = |range| {
        Layout::Delimited(Delimited {
            delimiter: Some(b'\t'),
            header: false,
            range,
            bad_lines: BadLines::Skip,
        })
    };
    let lines = b"; IP-ASN32-DAT file\n# made up\n;\n10.0.0.0/8\t64500\n10.1.0.0/16\t64501\n";
    let who = |place| vec![ValueColumn::string(Column::Position(place), "who")];
    let table = load(options(tabs(RangeColumns::Prefix(Column::Position(1))), who(2)), &[("a.dat", lines)]);
    check(&table, &[("10.1.2.3", "64501"), ("10.2.0.1", "64500"), ("11.0.0.1", "-")]);

    let range = || RangeColumns::PrefixLength { prefix: Column::Position(1), length: Column::Position(2) };
    let lines = b"10.0.0.0\t8\t64500\n10.1.0.0\t16\t64501_64502\n2001:db8::\t32\t7\n10.9.0.0/16\t\t9\n";
    let table = load(options(tabs(range()), who(3)), &[("a.tsv", lines)]);
    check(
        &table,
        &[("10.1.2.3", "64501_64502"), ("10.2.0.1", "64500"), ("2001:db8::1", "7"), ("10.9.1.1", "9")],
    );
    for (line, expected) in [
        ("10.0.0.0\t33\tx\n", "column 1 and column 2: expected a prefix length of at most 32"),
        ("10.0.0.1\t8\tx\n", "expected no bits beyond the prefix"),
        ("10.0.0.0\t\tx\n", "expected a network such as"),
    ] {
        let error = try_load(options(tabs(range()), who(3)), &[("a.tsv", line.as_bytes())]).err().unwrap();
        assert!(error.chain().contains(expected), "{}", error.chain());
    }
}

/// First addresses of networks alone would each be the range of that address, and nothing would be found.
#[test]
fn networks_without_their_lengths_are_refused() {
    let lines = b"10.0.0.0,8,a\n10.1.0.0,16,b\n";
    let error = try_load(prefixes(), &[("a.csv", lines)]).err().unwrap();
    assert!(error.message().contains("got first addresses of networks alone"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("`length`")), "{error}");
    let table = load(prefixes(), &[("a.csv", b"10.0.0.0,a\n10.1.0.7,b\n")]);
    check(&table, &[("10.0.0.0", "a"), ("10.1.0.7", "b"), ("10.1.0.0", "-")]);
}

#[test]
fn a_bad_line_costs_itself() {
    let lines = "10.0.0.0/8,ten\n10.0.0.0/x,bad\n11.0.0.0/8\n12.0.0.1/8,bad\n13.0.0.0/8,thirteen\n14.0.0.0/8,fourteen\n";
    let table = load(prefixes(), &[("a.csv", lines.as_bytes())]);
    check(&table, &[("10.0.0.1", "ten"), ("11.0.0.1", "-"), ("12.0.0.1", "-"), ("14.0.0.1", "fourteen")]);

    let folder = Folder::new();
    let mut options = prefixes();
    options.files = vec![folder.write("a.csv", "10.0.0.0/8,ten\nnonsense,1\nnonsense,2\n")];
    let error = RangeTable::load(&options).err().expect("another layout");
    assert!(error.chain().contains("2 of 3 lines cannot be read, first: read"), "{}", error.chain());
}
