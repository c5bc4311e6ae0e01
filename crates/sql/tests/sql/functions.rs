//! Functions over addresses, and texts that are read as addresses.

use thalweg_sql::Limits;
use thalweg_types::Class;

use crate::fake::{Flow, START, World, world};

fn addresses() -> World {
    let world = world(Limits::default());
    let row =
        |place: i64, src_addr| Flow { time: START + place, src_addr, src_name: src_addr, ..Flow::default() };
    let rows = [
        row(0, Some("10.1.2.3")),
        row(1, Some("10.1.250.4")),
        row(2, Some("192.0.2.1")),
        row(3, Some("2001:db8:1:2::3")),
        row(4, None),
    ];
    world.add("net", "flows", &[&rows[..3]], &rows[3..]);
    world
}

#[test]
fn addresses_are_made_and_printed() {
    let world = addresses();
    for (expr, expected) in [
        ("ip('10.1.2.3')", "10.1.2.3"),
        ("ip('::ffff:10.1.2.3')", "10.1.2.3"),
        ("ip('2001:DB8::')", "2001:db8::"),
        ("ip('x')", ""),
        ("ip(NULL)", ""),
        ("ip_text(ip('10.1.2.3')) || '!'", "10.1.2.3!"),
        ("prefix(ip('10.1.2.3'), 16)", "10.1.0.0/16"),
        ("prefix(ip('10.1.2.3'), 0)", "0.0.0.0/0"),
        ("prefix(ip('2001:db8:1:2::3'), 16)", "2001:db8:1::/48"),
        ("prefix(ip('2001:db8:1:2::3'), 16, 32)", "2001:db8::/32"),
        ("prefix('10.1.2.3', 24)", "10.1.2.0/24"),
        ("prefix(NULL, 24)", ""),
        ("network(ip('10.1.2.3'), 8)", "10.0.0.0"),
        ("network(ip('2001:db8:1:2::3'), 8, 128)", "2001:db8:1:2::3"),
        ("in_network(ip('10.1.2.3'), '10.0.0.0/8')", "true"),
        ("in_network(ip('11.1.2.3'), '10.0.0.0/8')", "false"),
        ("in_network(ip('2001:db8::1'), '2001:db8::/32')", "true"),
        ("in_network(ip('10.1.2.3'), NULL)", ""),
        ("in_network('10.1.2.3', '::/0')", "false"),
        ("in_network('::1', '0.0.0.0/0')", "false"),
        ("family('10.1.2.3')", "4"),
        ("family(ip('2001:db8::1'))", "6"),
        ("family(NULL)", ""),
    ] {
        assert_eq!(
            world.in_format(&format!("SELECT {expr} AS x"), thalweg_sql::Format::Table).lines().nth(2),
            Some(expected),
            "{expr}"
        );
    }
    assert_eq!(
        world.rows("SELECT ip(src_name) = src_addr FROM flows ORDER BY time"),
        ["true", "true", "true", "true", ""]
    );
    assert_eq!(
        world.rows("SELECT prefix(src_addr, 16) AS p, count(*) FROM flows GROUP BY 1 ORDER BY 1 NULLS FIRST"),
        [",1", "10.1.0.0/16,2", "192.0.0.0/16,1", "2001:db8:1::/48,1"]
    );
}

#[test]
fn a_text_beside_an_address_is_one() {
    let world = addresses();
    for (condition, rows) in [
        ("src_addr = '10.1.2.3'", 1),
        ("'10.1.2.3' = src_addr", 1),
        ("src_addr <> '10.1.2.3'", 3),
        ("src_addr IN ('10.1.2.3', '2001:db8:1:2::3')", 2),
        ("src_addr NOT IN ('10.1.2.3')", 3),
        ("src_addr BETWEEN '10.1.0.0' AND '10.1.255.255'", 2),
        ("src_addr >= '192.0.2.0'", 2),
        ("src_addr IS NOT DISTINCT FROM '192.0.2.1'", 1),
        ("CASE WHEN src_addr = '10.1.2.3' THEN true ELSE false END", 1),
        ("in_network(src_addr, '10.1.0.0/16')", 2),
        ("in_network(src_addr, '::/0')", 1),
        ("in_network(src_addr, '0.0.0.0/0')", 3),
        ("family(src_addr) = 6", 1),
        ("src_addr BETWEEN '::' AND 'ffff::'", 1),
        ("src_addr NOT BETWEEN '::' AND 'ffff::'", 3),
        ("src_addr LIKE '10.1.%'", 2),
        ("src_addr NOT LIKE '10.1.%'", 2),
        ("src_addr ILIKE '2001:DB8:%'", 1),
        ("cast(src_addr AS varchar) = '10.1.2.3'", 1),
        ("src_addr::text LIKE '%.2.%'", 2),
        ("src_addr ~ '^10\\.'", 2),
        ("try_cast(src_addr AS varchar) IS NULL", 1),
        ("src_addr || '/32' = '10.1.2.3/32'", 1),
    ] {
        assert_eq!(
            world.rows(&format!("SELECT count(*) FROM flows WHERE {condition}")),
            [rows.to_string()],
            "{condition}"
        );
    }
    assert_eq!(
        world.in_format("SELECT src_addr::text FROM flows ORDER BY time LIMIT 1", thalweg_sql::Format::Csv),
        "flows.src_addr\n10.1.2.3\n"
    );
    assert_eq!(
        world.rows("SELECT src_addr = '10.1.2.3' FROM flows ORDER BY time LIMIT 2"),
        ["true", "false"]
    );
    assert_eq!(
        world.rows("SELECT count(*) FROM flows f WHERE EXISTS (SELECT 1 FROM flows g WHERE g.src_addr IN ('10.1.2.3') AND g.time = f.time)"),
        ["1"]
    );
}

#[test]
fn wrong_calls_are_errors_of_the_user() {
    let world = addresses();
    for sql in [
        "SELECT * FROM flows WHERE src_addr = 'localhost'",
        "SELECT * FROM flows WHERE src_addr IN ('10.0.0.1', 'x')",
        "SELECT ip(1)",
        "SELECT ip()",
        "SELECT ip_text(time) FROM flows",
        "SELECT prefix(src_addr) FROM flows",
        "SELECT prefix(src_addr, 33) FROM flows",
        "SELECT network(src_addr, 24, 129) FROM flows",
        "SELECT in_network(src_addr, '10/8') FROM flows",
    ] {
        let error = world.error(sql);
        assert_eq!(error.class(), Class::User, "{sql}: {}", error.chain());
    }
}
