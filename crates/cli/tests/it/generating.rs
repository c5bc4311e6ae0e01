//! `gen`.

use super::Place;

#[test]
fn the_same_seed_gives_the_same_records() {
    let place = Place::with(&[]);
    let records = |args: &[&str]| place.thalweg(args).ends_with(0).stdout;
    let first = records(&["gen", "payments", "--count", "100", "--seed", "3"]);
    assert_eq!(first.lines().next(), Some("ts,card,merchant,amount"));
    assert_eq!(first.lines().count(), 101);
    assert_eq!(first, records(&["gen", "payments", "--count", "100", "--seed", "3"]));
    assert_ne!(first, records(&["gen", "payments", "--count", "100", "--seed", "4"]));
    let more = records(&["gen", "payments", "--count", "20000", "--seed", "3"]);
    assert!(more.starts_with(&first), "a longer run begins with the shorter one");
}

#[test]
fn fields_and_format_can_be_chosen() {
    let place = Place::with(&[]);
    let ended = place
        .thalweg(&["gen", "payments", "--count", "2", "--fields", "2", "--format", "ndjson"])
        .ends_with(0);
    let first: serde_json::Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(first.as_object().unwrap().keys().collect::<Vec<_>>(), ["ts", "card"]);
    assert_eq!(place.thalweg(&["gen", "readings", "--count", "0"]).ends_with(0).stdout.lines().count(), 1);
}

const FLOWS: &str = "\
name: exchange
sources:
  switches: { type: generator, kind: flows, seed: 5, count: 20000 }
operators:
  networks:
    type: range_join
    input: switches.flows
    table: tables/asn.tsv
    schema: { first: ip, last: ip, asn: uint64, country: string, as_name: string }
    on: { src: src_addr, dst: dst_addr }
  names: { type: lookup_join, input: networks, table: names.thl, on: { src: src_addr, dst: dst_addr } }
  members:
    type: member_join
    input: names
    table: tables/members.csv
    schema: { mac: string, vlan: uint64, member: string }
    on: { src: [src_mac, in_vlan], dst: [dst_mac, out_vlan] }
sinks:
  out: { type: file, input: members, path: out.ndjson, format: ndjson }
";

#[test]
fn flows_find_themselves_in_the_tables_of_their_seed() {
    let place = Place::with(&[("job.yaml", FLOWS)]);
    let made = place.thalweg(&["gen", "flows", "--seed", "5", "--tables", "tables"]).ends_with(0);
    assert_eq!(made.stdout, "", "tables instead of records");
    let lines = |name: &str| place.read(name).lines().count();
    assert_eq!(lines("tables/members.csv"), 401);
    assert!((180_000..240_000).contains(&lines("tables/names.csv")), "{}", lines("tables/names.csv"));
    let networks: std::collections::HashSet<String> = place
        .read("tables/asn.tsv")
        .lines()
        .map(|line| line.split('\t').nth(2).unwrap().to_owned())
        .collect();
    assert!((4_900..5_200).contains(&networks.len()), "{} AS", networks.len());
    place.thalweg(&["table", "build-lookup", "tables/names.csv", "--out", "names.thl"]).ends_with(0);
    assert_eq!(place.thalweg(&["run", "job.yaml", "--quiet"]).ends_with(0).counts(), (20_000, 20_000, 0));
    let (mut found, mut named, mut both, mut across) = (0, 0, 0, 0);
    for line in place.read("out.ndjson").lines() {
        let flow: serde_json::Value = serde_json::from_str(line).unwrap();
        for side in ["src", "dst"] {
            let field = |name: &str| &flow[format!("{side}_{name}")];
            assert!(field("member").is_string(), "{line}");
            found += usize::from(field("asn").is_u64());
            named += usize::from(field("name").is_string());
            // A network that is a member itself is reached through itself.
            both += usize::from(field("member") == field("as_name"));
        }
        across += usize::from(flow["src_member"] != flow["dst_member"]);
    }
    assert!((36_000..40_000).contains(&found), "{found} of 40000 addresses have an AS");
    assert!((15_000..32_000).contains(&named), "{named} of 40000 addresses have a name");
    assert!((15_000..36_000).contains(&both), "{both} of 40000 are of the member's own network");
    assert_eq!(across, 20_000, "nothing stays within a member");
}

#[test]
fn mistakes_about_flows_are_told() {
    let place = Place::with(&[("job.yaml", FLOWS)]);
    let check = |path: &str, expected: &str| {
        let ended = place.thalweg(&["check", "job.yaml", "--set", path]).ends_with(2);
        assert!(ended.stderr.contains(expected), "{path}: {}", ended.stderr);
        assert!(ended.stderr.contains("1 mistake"), "{path}: {}", ended.stderr);
    };
    check("sources.switches.start=tomorrow", "expected a date such as 2026-01-01");
    check("sources.switches.time=time", "sets event time by itself");
    check("sources.switches.agents=100000", "expected agents between 1 and 65536");
    let ended = place.thalweg(&["gen", "payments", "--tables", "tables"]).ends_with(2);
    assert!(ended.stderr.contains("expected flows"), "{}", ended.stderr);
    assert!(
        place.thalweg(&["gen", "flows", "--start", "soon"]).ends_with(2).stderr.contains("expected a date")
    );
}
