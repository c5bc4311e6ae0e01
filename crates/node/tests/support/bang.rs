//! An operator that panics at a record; for tests of this crate and of the program.

use thalweg_flow::{Emit, Get, RecordOperator, Row};
use thalweg_node::job_file::keys::KeySpec;
use thalweg_node::operator::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared, Tasks};
use thalweg_types::Error;

/// Passes everything; panics at the text `bang`.
pub(crate) struct Bang;

struct BangOperator(Get<String>);

impl RecordOperator for BangOperator {
    fn process(&mut self, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        assert!(record.get(self.0) != "bang", "bang is no text");
        out.forward(0, record)
    }
}

impl OperatorPlugin for Bang {
    fn name(&self) -> &'static str {
        "bang"
    }

    fn doc(&self) -> &'static str {
        "passes everything"
    }

    fn options(&self) -> &'static [KeySpec] {
        &[]
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let schema = check.input().schema.clone();
        let field = check.accept("type", Get::of(&schema, "n"))?;
        let outputs = vec![NamedOutput { name: "records".to_owned(), schema }];
        Some(Prepared::per_record(check, outputs, Tasks::Declared, move |_| Ok(BangOperator(field))))
    }
}
