//! `count`: how many records of each key there have been.

use thalweg_flow::{Element, OutputPolicy, Packed, Row, Set, Turn};
use thalweg_types::{DataType, Error, Field, Value};

use crate::job_file::keys::KeySpec;
use crate::operator::{NamedOutput, OperatorCheck, OperatorPlugin, Prepared};

use super::{CHECKPOINT, EMIT, ElementPlan, KEY, ON_TTL, TTL, distinct, setters};

pub struct Count;

const OPTIONS: &[KeySpec] = &[KEY, EMIT, TTL, ON_TTL, CHECKPOINT];

impl OperatorPlugin for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn doc(&self) -> &'static str {
        "counts the records of each key"
    }

    fn page(&self) -> &'static str {
        include_str!("count.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn partitions_itself(&self) -> bool {
        true
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let mut plan = ElementPlan::read(check)?;
        if plan.settings.output == OutputPolicy::Never {
            plan.settings.output = OutputPolicy::Records(1);
        }
        let input = &check.input().schema;
        let key: Vec<Field> = plan.keys[0].iter().map(|place| input.fields()[*place].clone()).collect();
        let mut fields = key.clone();
        fields.push(Field::new("count", DataType::Int64));
        let schema = distinct(check, fields)?;
        let shared = CountFields {
            key: check.accept("key", setters(&schema, &key))?,
            count: check.accept("key", Set::of(&schema, "count"))?,
        };
        let outputs = vec![NamedOutput { name: "counts".to_owned(), schema }];
        Some(Prepared::elements::<Counter>(check, plan, outputs, shared))
    }
}

struct CountFields {
    key: Vec<Set<Value>>,
    count: Set<i64>,
}

struct Counter(i64);

impl Element for Counter {
    type Shared = CountFields;

    fn create(_: &CountFields, _: Packed<'_>) -> Self {
        Self(0)
    }

    fn process(&mut self, _: &CountFields, _: Row<'_>, _: &mut Turn<'_, '_>) -> Result<(), Error> {
        // Order numbers have fewer bits.
        self.0 += 1;
        Ok(())
    }

    fn output(&mut self, fields: &CountFields, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        turn.keyed(0, &fields.key)?.set(fields.count, self.0).send()
    }

    fn save(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.0.to_le_bytes());
    }

    fn load(_: &CountFields, bytes: &[u8]) -> Result<Self, Error> {
        let bytes = bytes
            .try_into()
            .map_err(|_| Error::corrupt(format!("a count of {} bytes, expected 8", bytes.len())))?;
        Ok(Self(i64::from_le_bytes(bytes)))
    }
}
