//! Text of SQL over tables: parsed, and refused where it is not one statement that only reads.
//!
//! What is made of a statement afterwards may take any stack and any memory, and runs in a process that may die of it; so it
//! is tried there, by queries at random against the real program (`crates/cli/tests/it/hostile_sql`), and not here.

use thalweg_types::Class;

use crate::Target;

pub const TARGET: Target = Target { name: "sql", run, seeds, words: WORDS, allowance: tokens };

/// A letter may be a token, which takes a hundred bytes, in a list that doubles.
fn tokens(input: &[u8]) -> usize {
    256 * input.len()
}

/// Chains nest, and nested expressions are dropped by recursion: a megabyte of `1+` takes this.
const STACK: usize = 256 << 20;

const WORDS: &[&str] = &[
    "SELECT ",
    " FROM t",
    " WHERE ",
    " GROUP BY ",
    " ORDER BY ",
    " UNION ALL ",
    " JOIN ",
    " ON ",
    "WITH RECURSIVE ",
    " AS (",
    "(",
    ")",
    "[1]",
    "::int",
    "+1",
    " OR ",
    " AND ",
    "NOT ",
    "- ",
    "||",
    "CASE WHEN ",
    " THEN ",
    " ELSE ",
    " END",
    " IN (",
    " BETWEEN ",
    " LIKE ",
    "INTERVAL '1 day'",
    "EXPLAIN ",
    "INSERT INTO ",
    "COPY ",
    "SET ",
    "DROP TABLE ",
    " INTO x",
    "DESCRIBE ",
    "SHOW TABLES",
    "VALUES (1)",
    "'",
    "\"",
    "--",
    "/*",
    ";",
    "$$",
    "E'\\",
    "1e999",
    "0x",
    "repeat('a', 99999999999)",
    "OVER (PARTITION BY ",
    " ROWS BETWEEN ",
    "LATERAL ",
    "UNNEST(",
    "CUBE(",
    "EXCEPT ",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    std::thread::scope(|scope| {
        let checked = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || {
            if let Err(error) = thalweg_sql::check(text) {
                assert!(matches!(error.class(), Class::User | Class::Internal), "{}", error.chain());
                assert!(!error.message().is_empty() && error.message().len() < 8 << 10, "{}", error.chain());
            }
        });
        if let Err(panic) = checked.expect("a thread").join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn seeds() -> Vec<Vec<u8>> {
    let chain = |first: &str, more: &str| first.to_owned() + &more.repeat(1_829);
    [
        "SELECT src_as, sum(bytes) AS bytes FROM flows WHERE time >= now() - interval '1 day' GROUP BY src_as ORDER BY bytes DESC LIMIT 10".to_owned(),
        "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r) SELECT * FROM top('flows', 'src_as', 'sum(bytes)', 10), r".to_owned(),
        "EXPLAIN SELECT a, lag(b) OVER (PARTITION BY c ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t JOIN LATERAL (SELECT 1) ON true".to_owned(),
        "INSERT INTO t VALUES (1); DROP TABLE t".to_owned(),
        chain("SELECT 1", "+1"),
        chain("SELECT 1", " UNION ALL SELECT 1"),
        chain("SELECT [1]", "[1]"),
        format!("SELECT {}1{}", "(".repeat(1_000), ")".repeat(1_000)),
    ]
    .map(String::into_bytes)
    .into()
}
