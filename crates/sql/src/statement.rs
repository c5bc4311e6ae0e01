//! One statement, and one that only reads.

use datafusion::logical_expr::sqlparser::ast::{Query, Select, SetExpr, Statement as Ast};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use thalweg_types::Error;

use crate::fault;

/// Longest text of a query, in bytes: far more than anybody writes, and little to parse.
const MOST_BYTES: usize = 1 << 20;

const READS: &str = "tables are written by their jobs; here SELECT, WITH, VALUES, EXPLAIN, SHOW TABLES, SHOW COLUMNS and DESCRIBE run";

/// Reads exactly one statement.
///
/// # Errors
/// Of class user, with line and column where it is no SQL.
pub(crate) fn parse(sql: &str) -> Result<Statement, Error> {
    check_length(sql)?;
    let mut statements = DFParserBuilder::new(sql)
        .build()
        .and_then(|mut parser| parser.parse_statements())
        .map_err(|error| fault::of(&error, 0))?;
    let statement = match (statements.pop_front(), statements.len()) {
        (Some(statement), 0) => statement,
        (None, _) => return Err(Error::user("expected a statement, got none").with_hint("SELECT …")),
        (Some(_), more) => {
            return Err(Error::user(format!("expected one statement, got {}", more + 1))
                .with_hint("send them one after the other"));
        }
    };
    reads(&statement)?;
    Ok(statement)
}

/// Reads a statement and throws it away; whether it is one that only reads. Nested parts take stack.
///
/// # Errors
/// Of class user, with line and column where it is no SQL.
pub fn check(sql: &str) -> Result<(), Error> {
    parse(sql).map(drop)
}

/// Refuses a text that is too long.
///
/// # Errors
/// Of class user.
pub(crate) fn check_length(sql: &str) -> Result<(), Error> {
    if sql.len() <= MOST_BYTES {
        return Ok(());
    }
    Err(Error::user(format!("a query of {} bytes, where at most {MOST_BYTES} are read", sql.len())))
}

/// Refuses a statement that does not only read.
fn reads(statement: &Statement) -> Result<(), Error> {
    match statement {
        Statement::Statement(ast) => reads_ast(ast),
        Statement::Explain(explain) => reads(&explain.statement),
        Statement::CreateExternalTable(_) => Err(refused("CREATE EXTERNAL TABLE")),
        Statement::CopyTo(_) => Err(refused("COPY")),
        Statement::Reset(_) => Err(refused("RESET")),
    }
}

fn reads_ast(ast: &Ast) -> Result<(), Error> {
    match ast {
        Ast::Query(query) => reads_query(query),
        Ast::Explain { statement, .. } => reads_ast(statement),
        Ast::ExplainTable { .. }
        | Ast::ShowTables { .. }
        | Ast::ShowColumns { .. }
        | Ast::ShowFunctions { .. } => Ok(()),
        other => {
            let text = other.to_string();
            Err(refused(text.split([' ', '(', ';']).next().unwrap_or_default()))
        }
    }
}

/// Looks for statements that SQL allows inside of a query although they write.
fn reads_query(query: &Query) -> Result<(), Error> {
    if let Some(with) = &query.with {
        for table in &with.cte_tables {
            reads_query(&table.query)?;
        }
    }
    reads_body(&query.body)
}

fn reads_body(body: &SetExpr) -> Result<(), Error> {
    match body {
        SetExpr::Select(select) => match &**select {
            Select { into: Some(_), .. } => Err(refused("SELECT … INTO")),
            _ => Ok(()),
        },
        SetExpr::Query(query) => reads_query(query),
        SetExpr::SetOperation { left, right, .. } => {
            // Long chains lean to the left; they are walked, not climbed.
            let mut left = left;
            let mut rights = vec![right];
            while let SetExpr::SetOperation { left: next, right, .. } = &**left {
                rights.push(right);
                left = next;
            }
            reads_body(left)?;
            rights.into_iter().try_for_each(|right| reads_body(right))
        }
        SetExpr::Values(_) | SetExpr::Table(_) => Ok(()),
        SetExpr::Insert(_) => Err(refused("INSERT")),
        SetExpr::Update(_) => Err(refused("UPDATE")),
        SetExpr::Delete(_) => Err(refused("DELETE")),
        SetExpr::Merge(_) => Err(refused("MERGE")),
    }
}

fn refused(what: &str) -> Error {
    Error::user(format!("{what} is no statement that only reads")).with_hint(READS)
}

#[cfg(test)]
mod tests {
    use thalweg_types::Class;

    use super::*;

    #[test]
    fn statements_that_read_pass() {
        for sql in [
            "SELECT 1",
            "select 1;",
            "WITH a AS (SELECT 1) SELECT * FROM a UNION ALL VALUES (2)",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE SELECT 1",
            "SHOW TABLES",
            "SHOW COLUMNS FROM flows",
            "DESCRIBE flows",
        ] {
            assert!(parse(sql).is_ok(), "{sql}: {:?}", parse(sql).err());
        }
    }

    #[test]
    fn statements_that_write_are_refused_by_name() {
        for (sql, name) in [
            ("INSERT INTO flows VALUES (1)", "INSERT"),
            ("CREATE TABLE x AS SELECT 1", "CREATE"),
            ("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/x'", "CREATE EXTERNAL TABLE"),
            ("COPY flows TO '/tmp/x.csv'", "COPY"),
            ("SET datafusion.execution.batch_size = 1", "SET"),
            ("DROP TABLE flows", "DROP"),
            ("DELETE FROM flows", "DELETE"),
            ("UPDATE flows SET a = 1", "UPDATE"),
            ("EXPLAIN DELETE FROM flows", "DELETE"),
            ("SELECT 1 INTO x", "SELECT … INTO"),
            ("SHOW ALL", "SHOW"),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.class(), Class::User, "{sql}");
            assert!(error.message().starts_with(&format!("{name} is no")), "{sql}: {error}");
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn what_is_not_one_statement_is_refused() {
        for (sql, text) in [
            ("", "got none"),
            (" ; ", "got none"),
            ("SELECT 1; SELECT 2", "got 2"),
            ("SELEC 1", "Line: 1, Column: 1"),
            ("SELECT a\n FROM a WHERE b ==== c", "Line: 2"),
            ("SELECT 'open", "Line: 1, Column: 8"),
        ] {
            let error = parse(sql).expect_err(sql);
            assert_eq!(error.class(), Class::User, "{sql}");
            assert!(error.message().contains(text), "{sql}: {error}");
        }
        assert!(parse(&" ".repeat(MOST_BYTES + 1)).is_err());
    }
}
