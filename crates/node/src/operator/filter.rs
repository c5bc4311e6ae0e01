//! `filter`: records for which an expression is true; all others leave by the output `rest`.

use std::sync::Arc;

use thalweg_expr::Bound;
use thalweg_flow::{InputId, Operator, Output};
use thalweg_types::{Batch, Error};

use crate::job_file::keys::{KeySpec, Shape};

use super::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};

pub struct Filter;

const OPTIONS: &[KeySpec] =
    &[KeySpec::new("where", Shape::Expression, "condition; records for which it is true pass").required()];

impl OperatorPlugin for Filter {
    fn name(&self) -> &'static str {
        "filter"
    }

    fn doc(&self) -> &'static str {
        "passes the records for which an expression is true; the others go to the output `rest`"
    }

    fn page(&self) -> &'static str {
        include_str!("filter.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let schema = check.input().schema.clone();
        let condition = Arc::new(check.condition("where", &schema)?);
        let outputs = vec![
            NamedOutput { name: "pass".to_owned(), schema: schema.clone() },
            NamedOutput { name: "rest".to_owned(), schema },
        ];
        Some(Prepared::one(1, outputs, Tasks::Declared, move |_| {
            Ok(Box::new(FilterOperator { condition: Arc::clone(&condition) }))
        }))
    }
}

struct FilterOperator {
    condition: Arc<Bound>,
}

impl Operator for FilterOperator {
    fn process(&mut self, _: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        let batch = batch.compact();
        let passes = self.condition.evaluate_filter(batch.records()).map_err(Error::from)?;
        let count = passes.count_set_bits();
        if count == batch.len() {
            out.emit(0, batch);
        } else if count == 0 {
            out.emit(1, batch);
        } else {
            let (pass, rest): (Vec<u32>, Vec<u32>) =
                batch.row_numbers().partition(|row| passes.value(*row as usize));
            out.emit(0, batch.with_rows(pass.into()));
            out.emit(1, batch.with_rows(rest.into()));
        }
        Ok(())
    }
}
