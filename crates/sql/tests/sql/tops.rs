//! `top(…)` and the views.

use std::time::{SystemTime, UNIX_EPOCH};

use thalweg_sql::{Format, Limits};
use thalweg_types::Class;

use crate::fake::{Flow, HOUR, START, World, world};

/// Three pairs over two hours: (1, 2) with 60, (3, 4) with 50, (null, 4) with 50, and five with 1 each.
fn pairs() -> World {
    let world = world(Limits::default());
    let row = |hour: i64, src_as, dst_as, bytes| Flow {
        time: START + hour * HOUR + 7,
        src_as,
        dst_as: Some(dst_as),
        bytes: Some(bytes),
        packets: Some(1),
        src_addr: Some("10.1.2.3"),
        ..Flow::default()
    };
    let first = [row(0, Some(1), 2, 10), row(0, Some(3), 4, 50), row(0, None, 4, 20)];
    let mut second = vec![row(1, Some(1), 2, 50), row(1, None, 4, 30)];
    second.extend((10..15).map(|other| row(1, Some(other), other, 1)));
    world.add("net", "flows", &[&first], &second);
    world
}

#[test]
fn the_largest_groups_and_all_others() {
    let world = pairs();
    let csv = |sql: &str| world.in_format(sql, Format::Csv);
    assert_eq!(
        csv("SELECT * FROM top('flows', 'src_as, dst_as', 'sum(bytes)', 3)"),
        "rank,src_as,dst_as,value,is_other\n1,1,2,60,false\n2,3,4,50,false\n3,,4,50,false\n,,,5,true\n"
    );
    assert_eq!(
        csv("SELECT * FROM top('net.flows', 'src_as', 'count(*)', 1, 'dst_as < 10')"),
        "rank,src_as,value,is_other\n1,1,2,false\n,,3,true\n"
    );
    assert_eq!(
        csv("SELECT * FROM top('flows', 'src_as, dst_as', 'sum(bytes)', 2, '', '1 hour')"),
        "bucket,rank,src_as,dst_as,value,is_other\n\
         2026-01-05T00:00:00Z,1,1,2,10,false\n\
         2026-01-05T00:00:00Z,2,3,4,50,false\n\
         2026-01-05T00:00:00Z,,,,20,true\n\
         2026-01-05T01:00:00Z,1,1,2,50,false\n\
         2026-01-05T01:00:00Z,,,,35,true\n"
    );
    assert_eq!(
        csv(
            "SELECT net, value FROM top('flows', 'prefix(src_addr, 8) AS net', 'sum(bytes + packets)', 5) WHERE NOT is_other"
        ),
        "net,value\n10.0.0.0/8,175\n"
    );
    // Null groups are groups, and so are those of the others.
    assert_eq!(world.rows("SELECT count(*) FROM top('flows', 'src_as', 'sum(bytes)', 100)"), ["8"]);
    assert_eq!(
        world.rows("SELECT * FROM top('flows', 'src_as', 'sum(bytes)', 1, 'bytes > 1000')"),
        Vec::<String>::new()
    );
}

#[test]
fn what_top_cannot_do_is_told() {
    let world = pairs();
    for (call, message) in [
        ("top('flows', 'src_as', 'avg(bytes)', 1)", "add up"),
        ("top('flows', 'src_as', 'count(DISTINCT dst_as)', 1)", "add up"),
        ("top('flows', 'src_as', 'bytes', 1)", "add up"),
        ("top('flows', 'src_as', 'sum(bytes)', 0)", "number from 1"),
        ("top('flows', 'src_as', 'sum(bytes)', 'x')", "number from 1"),
        ("top('flows', 'src_as', 'sum(bytes)')", "called with 3"),
        ("top('flow', 'src_as', 'sum(bytes)', 1)", "no table flow"),
        ("top('flows; DROP TABLE x', 'src_as', 'sum(bytes)', 1)", "expected the name of a table"),
        ("top('flows', 'src_as) FROM x --', 'sum(bytes)', 1)", ""),
        ("top('flows', 'src_as; SELECT 1', 'sum(bytes)', 1)", "commas"),
        ("top('flows', 'src_as, src_as', 'sum(bytes)', 1)", "AS another_name"),
        ("top('flows', 'src_as AS value', 'sum(bytes)', 1)", "AS another_name"),
        ("top('flows', 'source', 'sum(bytes)', 1)", "no column"),
        ("top('flows', 'src_as', 'sum(bytes)', 1, 'src_as = ')", ""),
        ("top('flows', 'src_as', 'sum(bytes)', 1, '', 'often')", "span"),
        ("top('flows', 'src_as', 'sum(bytes)', 1, '', '-1 hour')", "longer than nothing"),
    ] {
        let error = world.error(&format!("SELECT * FROM {call}"));
        assert_eq!(error.class(), Class::User, "{call}");
        assert!(error.message().contains(message), "{call}: {error}");
    }
}

#[test]
fn views_are_there_where_the_columns_are() {
    let world = pairs();
    assert_eq!(
        world.in_format("SELECT * FROM top_as_pairs LIMIT 3", Format::Csv),
        "src_as,dst_as,bytes,packets,samples\n1,2,60,2,2\n3,4,50,1,1\n,4,50,2,2\n"
    );
    assert_eq!(world.rows("SELECT src_prefix, bytes FROM net.top_prefixes"), ["10.1.2.0/24,165"]);
    let shown = world.in_format("SHOW TABLES", Format::Csv);
    assert!(shown.contains("net,top_as_pairs,VIEW") && !shown.contains("top_members"), "{shown}");
    assert!(world.error("SELECT * FROM top_members").message().contains("no table top_members"));
    assert!(
        world.error("SELECT * FROM top_members('1h')").message().contains("has the columns of top_members")
    );

    // A second table with the same columns.
    world.add(
        "lab",
        "flows",
        &[],
        &[Flow { time: START, src_as: Some(9), dst_as: Some(9), ..Flow::default() }],
    );
    assert_eq!(
        world.error("SELECT * FROM top_as_pairs").hint(),
        Some("name the job: lab.top_as_pairs, net.top_as_pairs")
    );
    assert_eq!(world.rows("SELECT src_as FROM lab.top_as_pairs"), ["9"]);
    assert!(world.error("SELECT * FROM top_as_pairs('1h')").hint().unwrap().contains("lab.flows, net.flows"));
}

#[test]
fn views_over_a_window_look_back_from_now_or_from_the_newest_row_of_old_data() {
    let world = pairs();
    assert_eq!(world.rows("SELECT src_as, bytes FROM top_as_pairs('30 minutes', 2)"), ["1,50", ",30"]);
    assert_eq!(world.rows("SELECT src_as, bytes FROM top_as_pairs('1 hour', 2)"), ["1,60", "3,50"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    let flow = |time, src_as| Flow { time, src_as: Some(src_as), dst_as: Some(1), ..Flow::default() };
    world.add("live", "flows", &[], &[flow(now - 2 * HOUR, 7), flow(now - HOUR / 2, 8)]);
    assert_eq!(world.rows("SELECT src_as FROM top_as_pairs('1 hour', 9, 'live.flows')"), ["8"]);
    assert_eq!(
        world.rows("SELECT src_as FROM top_as_pairs('1 minute', 9, 'live.flows')"),
        ["8"],
        "the newest"
    );
    let world = pairs();
    let all = "'100000 days'";
    assert_eq!(world.rows(&format!("SELECT src_as, bytes FROM top_as_pairs({all}, 2)")), ["1,60", "3,50"]);
    assert_eq!(world.rows(&format!("SELECT bytes FROM top_as_pairs({all}, 1, 'net.flows')")), ["60"]);
    assert_eq!(world.rows(&format!("SELECT count(*) FROM top_as_pairs(INTERVAL {all})")), ["8"]);
    for call in
        ["top_as_pairs()", "top_as_pairs('x')", "top_as_pairs('1h', -1)", "top_as_pairs('1h', 1, 'a.b.c')"]
    {
        assert_eq!(world.error(&format!("SELECT * FROM {call}")).class(), Class::User, "{call}");
    }
}
