//! Tables and SQL from outside: queries read the rows that a job stored, while it runs, after it was killed, and
//! afterwards.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::Place;
use super::examples::example;
use super::faults::{Served, post};

/// Rows of CSV without quotes, after the header.
fn cells(text: &str) -> Vec<Vec<String>> {
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

/// First and last address of a network, and its AS, as the table's text has them.
struct Network {
    first: u128,
    last: u128,
    asn: String,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[test]
fn pairs_of_networks_of_the_example_are_those_of_a_recount() {
    const COUNT: u64 = 20_000;
    let place = Place::with(&[]);
    let count = format!("sources.switches.count={COUNT}");
    // Small files, so that all of them are met: sealed ones, their rollups, and fresh rows.
    let arguments = ["run", &example("ixp.yaml"), "--data-dir", "D", "--set", &count];
    let small = ["--set", "sinks.flows.seal_rows=3000", "--set", "cycle={every: 20ms}"];
    let ended = place.thalweg(&[&arguments[..], &small].concat()).ends_with(0);
    assert_eq!(ended.counts().0, COUNT);

    let networks: Vec<Network> = place
        .read("ixp-tables/asn.tsv")
        .lines()
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let address = |place: usize| number(cells[place].parse().expect("an address"));
            Network { first: address(0), last: address(1), asn: cells[2].to_owned() }
        })
        .collect();
    let mut known: HashMap<String, String> = HashMap::new();
    let mut asn_of = |text: &str| {
        let asn = known.entry(text.to_owned()).or_insert_with(|| {
            let address = number(text.parse().expect("an address"));
            let found = networks.iter().find(|network| (network.first..=network.last).contains(&address));
            found.map_or(String::new(), |network| network.asn.clone())
        });
        asn.clone()
    };
    let made = ["gen", "flows", "--count", "20000", "--gap", "43ms"];
    let made = place.thalweg(&made).ends_with(0).stdout;
    let head: Vec<&str> = made.lines().next().expect("a head").split(',').collect();
    let place_of = |name: &str| head.iter().position(|column| *column == name).expect("a column");
    let (src, dst, bytes) = (place_of("src_addr"), place_of("dst_addr"), place_of("bytes"));
    let mut pairs: HashMap<(String, String), (u64, u64)> = HashMap::new();
    for row in cells(&made) {
        let sum = pairs.entry((asn_of(&row[src]), asn_of(&row[dst]))).or_default();
        *sum = (sum.0 + row[bytes].parse::<u64>().expect("bytes"), sum.1 + 1);
    }
    let mut expected: Vec<String> =
        pairs.into_iter().map(|((src, dst), (bytes, rows))| format!("{src},{dst},{bytes},{rows}")).collect();
    expected.sort();
    assert!(expected.len() > 1_000, "{}", expected.len());

    let ask =
        |sql: &str| place.thalweg(&["sql", sql, "--data-dir", "D", "--format", "csv"]).ends_with(0).stdout;
    let pairs = "SELECT src_asn, dst_asn, sum(bytes), count(*) FROM flows GROUP BY 1, 2";
    let mut got: Vec<String> = ask(pairs).lines().skip(1).map(str::to_owned).collect();
    got.sort();
    assert_eq!(got, expected);
    // It was asked of a rollup and of fresh rows.
    let plan = ask(&format!("EXPLAIN {pairs}"));
    assert!(plan.contains("hour"), "{plan}");
    let files = ask("SELECT count(*) FROM flows__hour");
    assert_ne!(cells(&files)[0][0], "0");

    let top = cells(&ask("SELECT * FROM top_as_pairs LIMIT 10"));
    let mut largest: Vec<u64> =
        expected.iter().map(|line| line.split(',').nth(2).expect("bytes").parse().expect("bytes")).collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    let bytes: Vec<u64> = top.iter().map(|row| row[2].parse().expect("bytes")).collect();
    assert_eq!(bytes, largest[..10]);

    let verified = place.thalweg(&["verify", "D"]).ends_with(0).stdout;
    assert!(verified.contains("table of flows, 20000 rows"), "{verified}");
}

const STORED: &str = "\
name: served
cycle: { every: 50ms }
sources:
  lines: { type: http, format: ndjson, schema: { n: int64, who: ip } }
sinks:
  rows: { type: table, input: lines }
";

#[test]
fn a_running_node_shows_rows_at_once_and_its_folder_what_is_committed() {
    let place = Place::with(&[]);
    let mut served = Served::start(&place, STORED);
    let address = served.address();
    let send = |body: &str| {
        let mut stream = post(&address, body.len(), body);
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
    };
    let node = format!("http://{address}");
    let query = "SELECT n, who FROM rows ORDER BY n";
    let live = || place.thalweg(&["sql", query, "--node", &node, "--format", "csv"]).ends_with(0).stdout;
    let stored = || place.thalweg(&["sql", query, "--data-dir", "D", "--format", "csv"]).ends_with(0).stdout;
    let until = |what: &str, ask: &dyn Fn() -> String| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while ask() != what {
            assert!(Instant::now() < deadline, "{}", ask());
        }
    };
    assert_eq!(live(), "n,who\n");
    send("{\"n\":1,\"who\":\"10.0.0.1\"}\n");
    // The reply says that the job has the record; the sink's task takes it on its own time.
    until("n,who\n1,10.0.0.1\n", &live);
    until("n,who\n1,10.0.0.1\n", &stored);
    send("{\"n\":2,\"who\":\"2001:db8::1\"}\n");
    let both = "n,who\n1,10.0.0.1\n2,2001:db8::1\n";
    until(both, &stored);
    served.ends("-KILL");
    assert_eq!(stored(), both);

    // It goes on where it was.
    let mut served = Served::start(&place, STORED);
    let node = format!("http://{}", served.address());
    let live = place.thalweg(&["sql", query, "--server", &node, "--format", "csv"]).ends_with(0).stdout;
    assert_eq!(live, both);
    served.ends("-TERM").ends_with(0);
    assert_eq!(stored(), both);
}

#[test]
fn what_cannot_be_asked_is_told() {
    let place = super::place("sinks: { rows: { type: table, input: payments } }\n");
    place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
    for (arguments, code, expected) in [
        (vec!["SELECT 1"], 2, "--data-dir"),
        (vec!["SELECT 1", "--data-dir", "D", "--server", "x"], 2, "cannot be used with"),
        (vec!["SELECT 1", "--data-dir", "nowhere"], 2, "is not there"),
        (vec!["SELECT 1", "--data-dir", "."], 2, "no folder `jobs`"),
        (vec!["SELECT * FROM rosw", "--data-dir", "D"], 2, "did you mean demo.rows?"),
        (vec!["SELECT crad FROM rows", "--data-dir", "D"], 2, "crad"),
        (vec!["SELECT FROM WHERE", "--data-dir", "D"], 2, "error"),
        (vec!["DROP TABLE rows", "--data-dir", "D"], 2, "error"),
        (vec!["SELECT 1; SELECT 2", "--data-dir", "D"], 2, "error"),
        (vec!["SELECT 1", "--node", "http://127.0.0.1:1"], 1, "--listen"),
        (
            vec![
                "SELECT a.n FROM generate_series(1, 100000000000) a(n) ORDER BY 1 DESC",
                "--data-dir",
                "D",
                "--timeout",
                "200ms",
            ],
            2,
            "200ms",
        ),
    ] {
        let ended = place.thalweg(&[&["sql"], arguments.as_slice()].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
    let shown =
        place.thalweg(&["sql", "SELECT card, amount FROM demo.rows ORDER BY amount", "--data-dir", "D"]);
    let shown = shown.ends_with(0).stdout;
    assert_eq!(shown.lines().filter(|line| line.contains("c1")).count(), 2, "{shown}");
}

#[test]
fn a_damaged_table_is_found() {
    let place = super::place(
        "sinks: { rows: { type: table, input: payments, seal_rows: 1 } }\ncycle: { records: 1 }\n",
    );
    place.thalweg(&["run", "job.yaml", "--data-dir", "D"]).ends_with(0);
    let told = place.thalweg(&["inspect", "D"]).ends_with(0).stdout;
    assert!(told.contains("table of rows, 4 rows"), "{told}");
    place.thalweg(&["verify", "D"]).ends_with(0);
    let folder = place.path().join("D/jobs/demo/tables/rows/rows/1970-01-01");
    let path =
        std::fs::read_dir(folder).expect("a partition").next().expect("a file").expect("a file").path();
    let mut bytes = std::fs::read(&path).expect("its bytes");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let verified = place.thalweg(&["verify", "D"]).ends_with(3);
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(verified.stdout.contains(&name) || verified.stderr.contains(&name), "{}", verified.stdout);
    std::fs::remove_file(&path).expect("removed");
    place.thalweg(&["verify", "D"]).ends_with(3);
    let sql = ["sql", "SELECT sum(amount) FROM rows", "--data-dir", "D"];
    let ended = place.thalweg(&sql).ends_with(3);
    assert!(ended.stderr.contains(&name), "{}", ended.stderr);
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes[..middle]).expect("written");
    place.thalweg(&sql).ends_with(3);
    std::fs::write(&path, &bytes).expect("written");
    place.thalweg(&sql).ends_with(0);
    place.thalweg(&["sql", "SELECT sum(amount) FROM rows", "--data-dir", "D/../D"]).ends_with(0);

    std::fs::remove_file(place.path().join("D/jobs/demo/commit.log")).expect("removed");
    for verb in [["run", "job.yaml", "--data-dir", "D"].as_slice(), &sql, &["verify", "D"]] {
        place.thalweg(verb).ends_with(3);
    }
}

/// Each damage is found where it is read: a query over all columns reads all of a file.
#[test]
fn a_changed_bit_of_a_parquet_file_is_never_another_answer() {
    const QUERY: &str = "SELECT count(*) n, sum(amount) s, count(distinct card) c, min(ts) t0, max(ts) t1, count(distinct merchant) m FROM t";
    let place = super::Place::with(&[(
        "job.json",
        r#"{"name":"j","sources":{"p":{"type":"generator","kind":"payments","count":30000,"cards":5000,"time":"ts"}},
            "sinks":{"t":{"type":"table","input":"p","seal_rows":10000}}}"#,
    )]);
    place.thalweg(&["run", "job.json", "--data-dir", "D", "--quiet"]).ends_with(0);
    let ask = || place.thalweg(&["sql", QUERY, "--data-dir", "D", "--format", "json"]);
    let right = ask().ends_with(0).stdout;
    let mut files = Vec::new();
    let mut folders = vec![place.path().join("D/jobs/j/tables/t")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    let (mut same, mut numbers) = (0, Rng::with_seed(3));
    let mut random = |below: usize| numbers.usize(..below);
    for case in 0..12 {
        let path = &files[random(files.len())];
        let whole = std::fs::read(path).expect("its bytes");
        // The footer as well as pages.
        let at = if case % 3 == 0 { whole.len() - 1 - random(2_000) } else { random(whole.len()) };
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random(8);
        std::fs::write(path, &bytes).expect("written");
        let ended = ask();
        std::fs::write(path, &whole).expect("written");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        match ended.code {
            // A column that is not asked for.
            Some(0) => {
                assert_eq!(ended.stdout, right, "byte {at} of {name}");
                same += 1;
            }
            Some(3) => {
                assert!(ended.stderr.contains(&name) && ended.stderr.contains("byte"), "{}", ended.stderr)
            }
            code => panic!("byte {at} of {name}: {code:?}, {}", ended.stderr),
        }
    }
    assert!(same < 6, "{same} of 12 were not read");
    assert_eq!(ask().ends_with(0).stdout, right);
}
