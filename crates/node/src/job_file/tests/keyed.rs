//! Operators of users that keep state by a key: which ways to read their input are taken.

use std::sync::Arc;

use thalweg_connect::{Reach, Registry};
use thalweg_flow::{Emit, Partitioner, RecordOperator, Row};
use thalweg_types::{Batch, Error, Schema};

use crate::job_file::keys::KeySpec;
use crate::job_file::{CheckOptions, JobFile};
use crate::operator::{Inputs, NamedOutput, OperatorCheck, OperatorPlugin, Operators, Prepared, Tasks};

/// Counts per card; knows nothing of how it is fed.
struct Counts {
    name: &'static str,
    inputs: Inputs,
    tasks: Tasks,
}

impl OperatorPlugin for Counts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "counts per card"
    }

    fn options(&self) -> &'static [KeySpec] {
        &[]
    }

    fn inputs(&self) -> Inputs {
        self.inputs
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let outputs = vec![NamedOutput { name: "counts".to_owned(), schema: check.input().schema.clone() }];
        let (card, _) = check.input().schema.field("card")?;
        let (merchant, _) = check.input().schema.field("merchant")?;
        let mut prepared = Prepared::per_record(check, outputs, self.tasks, |_| Ok(Nothing));
        for input in 0..check.inputs().len() {
            prepared = prepared.keyed_by(input, [card, merchant]);
        }
        Some(prepared)
    }
}

struct Nothing;

impl RecordOperator for Nothing {
    fn process(&mut self, _: Row<'_>, _: &mut Emit<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Keeps cards together, or says that it does not.
struct Cards(bool);

impl Partitioner for Cards {
    fn partition(&self, batch: &Batch, tasks: &mut [Vec<u32>]) {
        tasks[0].extend(batch.row_numbers());
    }

    fn keeps_together(&self, schema: &Schema, fields: &[usize]) -> bool {
        self.0 && fields.iter().any(|place| schema.fields()[*place].name == "card")
    }
}

/// Messages about an operator with these lines in it.
fn told(lines: &str) -> String {
    let mut operators = Operators::builtin();
    operators.add(Counts { name: "counts", inputs: Inputs::One, tasks: Tasks::Declared });
    operators.add(Counts { name: "many", inputs: Inputs::Many, tasks: Tasks::Declared });
    operators.add(Counts { name: "lone", inputs: Inputs::One, tasks: Tasks::One });
    operators.add_partitioner("by_card", Arc::new(Cards(true)));
    operators.add_partitioner("anyhow", Arc::new(Cards(false)));
    let source = "{ type: generator, count: 1 }";
    let text = format!(
        "name: keyed\nsources:\n  a: {source}\n  b: {source}\noperators:\n  op:\n    {lines}\n\
         sinks:\n  nowhere: {{ type: null, input: [op, b] }}\n"
    );
    let options =
        CheckOptions { registry: Registry::builtin(), operators, workers: 2, reach: Reach::anything() };
    match JobFile::parse("job.yaml", &text, &[]).and_then(|file| file.check(&options)) {
        Ok(_) => "fine".to_owned(),
        Err(mistakes) => {
            let lines = mistakes.0.iter().map(|mistake| {
                let Some(hint) = &mistake.hint else { return mistake.to_string() };
                format!("{}:{}: {}; {hint}", mistake.line, mistake.column, mistake.message)
            });
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

#[test]
fn inputs_that_keep_a_key_together_are_taken() {
    for input in [
        "type: counts\n    input: { from: a, partition: 'key(card, merchant)' }",
        "type: counts\n    input: { from: a, partition: key(card) }\n    partitions: 7",
        "type: counts\n    input: { from: a, partition: by_card }\n    parallelism: 3",
        "type: counts\n    input: { from: a, partition: global }",
        "type: counts\n    input: a\n    parallelism: 1",
        "type: counts\n    input: [a, b]",
        "type: lone\n    input: a",
        "type: many\n    input: [{ from: a, partition: key(card) }, { from: b, partition: key(card) }]",
    ] {
        assert_eq!(told(input), "fine", "{input}");
    }
}

#[test]
fn inputs_that_tear_a_key_apart_are_told_with_place_and_hint() {
    let hint = "write `input: { from: a, partition: key(card, merchant) }`";
    let keeps = "operator \"op\" keeps state by card, merchant, but";
    for (input, place, how) in [
        ("input: a", "8:12", "without a partition"),
        ("input: { from: a, partition: shuffle }", "8:34", "shuffle"),
        ("input: { from: a, partition: forward }", "8:34", "forward"),
        ("input: { from: a, partition: broadcast }", "8:34", "broadcast"),
        ("input: { from: a, partition: 'key(card, amount)' }", "8:34", "by another key"),
        ("input: { from: a, partition: anyhow }", "8:34", "in a way that does not keep it together"),
    ] {
        let expected = format!("{place}: {keeps} reads \"a\" {how}; {hint}");
        assert_eq!(told(&format!("type: counts\n    {input}")), expected, "{input}");
    }
    let many = "type: many\n    parallelism: 1\n    input: [a, { from: b, partition: key(card) }]";
    assert_eq!(
        told(many),
        format!("9:13: {keeps} reads \"a\" without a partition; {hint}"),
        "one key makes partitions"
    );
    assert_eq!(
        told("type: counts\n    input: [a, b]\n    parallelism: 2"),
        format!(
            "9:5: {keeps} a list of inputs is not split by it; \
             bring the inputs together with a `union` before, and read it key(card, merchant)"
        )
    );
}
