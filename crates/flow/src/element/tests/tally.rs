//! The element of the tests, and the records that it reads and emits.

use std::sync::Arc;

use thalweg_types::{DataType, Error, Field, Micros, Schema, Value};

use crate::element::{
    Element, ElementSettings, ElementState, Elements, InputRules, LateAt, LateRecords, Turn,
};
use crate::{Emit, Get, Packed, Row, Set};

/// An element of the tests: it counts, reports everything, wakes itself, and ends with [`LAST`].
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) sum: f64,
}

pub(super) struct TallyFields {
    number: Get<i64>,
    weight: Get<f64>,
    key: Set<Value>,
    what: Set<String>,
    count: Set<i64>,
    sum: Set<f64>,
}

pub(super) const LAST: i64 = 13;
pub(super) const POISON: i64 = 666;
/// What it rounds up the times to at which it is woken.
pub(super) const WAKES: Micros = 16;

impl Tally {
    fn tell(&self, fields: &TallyFields, what: &str, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let record = turn.keyed(0, &[fields.key])?.set(fields.what, what);
        record.set(fields.count, self.count as i64).set(fields.sum, self.sum).send()
    }
}

impl Element for Tally {
    type Shared = TallyFields;

    fn create(_: &TallyFields, _: Packed<'_>) -> Self {
        Self { count: 0, sum: 0.0 }
    }

    fn process(
        &mut self,
        fields: &TallyFields,
        record: Row<'_>,
        turn: &mut Turn<'_, '_>,
    ) -> Result<(), Error> {
        self.count += 1;
        let is_last = match record.port() {
            0 => {
                let number = record.get(fields.number);
                if number == POISON {
                    return Err(Error::user("the number is poison"));
                }
                if number % 4 == 0 {
                    turn.wake_at((turn.task_time() + number).div_euclid(WAKES) * WAKES);
                }
                self.sum += number as f64;
                number == LAST
            }
            _ => {
                self.sum *= record.get(fields.weight);
                false
            }
        };
        self.tell(fields, "record", turn)?;
        if is_last {
            turn.forget();
        }
        Ok(())
    }

    fn output(&mut self, fields: &TallyFields, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        self.tell(fields, "output", turn)?;
        self.sum = 0.0;
        Ok(())
    }

    fn wake(&mut self, fields: &TallyFields, due: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        self.tell(fields, &format!("wake {due}"), turn)?;
        self.count += 100;
        Ok(())
    }

    fn save(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.count.to_le_bytes());
        into.extend_from_slice(&self.sum.to_le_bytes());
    }

    fn load(_: &TallyFields, bytes: &[u8]) -> Result<Self, Error> {
        let (count, sum) = bytes.split_at(8);
        Ok(Self {
            count: u64::from_le_bytes(count.try_into().unwrap()),
            sum: f64::from_le_bytes(sum.try_into().unwrap()),
        })
    }
}

pub(super) fn numbers() -> Schema {
    let key = Field::new("key", DataType::String).nullable();
    Schema::new(vec![
        key,
        Field::new("number", DataType::Int64),
        Field::new("id", DataType::UInt64).nullable(),
    ])
}

pub(super) fn weights() -> Schema {
    let key = Field::new("name", DataType::String).nullable();
    Schema::new(vec![
        Field::new("weight", DataType::Float64),
        key,
        Field::new("id", DataType::UInt64).nullable(),
    ])
}

fn told() -> Schema {
    Schema::new(vec![
        Field::new("key", DataType::String).nullable(),
        Field::new("what", DataType::String),
        Field::new("count", DataType::Int64),
        Field::new("sum", DataType::Float64),
    ])
}

/// Where the number is in the first schema.
pub(super) const NUMBER_PLACE: usize = 1;
/// Where the id is in both schemas.
pub(super) const ID_PLACE: usize = 2;

/// Tells late records that are refused.
struct Late {
    what: Set<String>,
    count: Set<i64>,
    sum: Set<f64>,
}

impl LateRecords for Late {
    fn refuse(&mut self, record: Row<'_>, late: LateAt<'_>, emit: &mut Emit<'_>) -> Result<(), Error> {
        let told = emit.record(0).set(self.what, if late.is_closed { "closed" } else { "late" });
        told.set(self.count, record.port() as i64).set(self.sum, 0.0).send()
    }
}

pub(super) fn elements(inputs: usize, settings: ElementSettings, state: ElementState) -> Elements<Tally> {
    judged(&[InputRules::ALL; 2][..inputs], settings, state)
}

/// Inputs are the numbers, or numbers and weights; one for each of the rules.
pub(super) fn judged(
    rules: &[InputRules],
    settings: ElementSettings,
    state: ElementState,
) -> Elements<Tally> {
    let inputs = rules.len();
    let told = told();
    let shared = TallyFields {
        number: Get::of(&numbers(), "number").unwrap(),
        weight: Get::of(&weights(), "weight").unwrap(),
        key: Set::of(&told, "key").unwrap(),
        what: Set::of(&told, "what").unwrap(),
        count: Set::of(&told, "count").unwrap(),
        sum: Set::of(&told, "sum").unwrap(),
    };
    let (schemas, keys) = ([numbers(), weights()], [vec![0], vec![1]]);
    let late = Late {
        what: Set::of(&told, "what").unwrap(),
        count: Set::of(&told, "count").unwrap(),
        sum: Set::of(&told, "sum").unwrap(),
    };
    let elements =
        Elements::new(Arc::new(shared), &schemas[..inputs], &[told], &keys[..inputs], settings, state);
    elements.unwrap().judged(&schemas[..inputs], rules, Box::new(late)).unwrap()
}
