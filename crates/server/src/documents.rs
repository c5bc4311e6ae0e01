//! `docs/http.md` has every route, parameter and error code, and no other.

use std::collections::BTreeSet;

use crate::error::Code;
use crate::route::ROUTES;

const HTTP: &str = include_str!("../../../docs/http.md");

/// The first column of the rows of a table that begins with this cell, without its marks.
fn column(text: &str, head: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut is_in = false;
    for line in text.lines() {
        let cell = line.strip_prefix('|').and_then(|rest| rest.split('|').next()).map(str::trim);
        match cell {
            None => is_in = false,
            Some(cell) if cell == head => is_in = true,
            Some(cell) if is_in && !cell.starts_with('-') => {
                cells.extend(cell.split(", ").map(|part| part.trim_matches('`').to_owned()));
            }
            Some(_) => {}
        }
    }
    cells
}

#[test]
fn every_route_is_documented() {
    let expected: Vec<String> =
        ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let documented: BTreeSet<String> = column(HTTP, "route").into_iter().collect();
    assert_eq!(documented, expected.into_iter().collect());
}

#[test]
fn every_error_code_is_documented_with_its_status() {
    let documented: BTreeSet<String> = column(HTTP, "code").into_iter().collect();
    let expected: BTreeSet<String> = Code::ALL.iter().map(|code| code.name().to_owned()).collect();
    assert_eq!(documented, expected);
    for code in Code::ALL {
        let row =
            HTTP.lines().find(|line| line.starts_with("| `") && line.contains(&format!("`{}`", code.name())));
        let row = row.expect("a row");
        assert!(row.contains(&format!("| {} |", code.status().as_u16())), "{row}");
    }
}

#[test]
fn every_parameter_is_documented() {
    for name in ["reply=none", "drain=false", "format=", "compression=lz4", "addresses=text", "job=pay"] {
        assert!(HTTP.contains(&format!("?{name}")), "{name} is not in docs/http.md");
    }
}

#[test]
fn every_status_of_an_error_has_a_series_of_its_own() {
    for code in Code::ALL {
        let status = code.status().as_u16();
        assert!(crate::metrics::STATUSES.contains(&status), "{} is counted as other", status);
    }
}
