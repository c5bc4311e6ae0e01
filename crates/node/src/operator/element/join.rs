//! `join`: pairs of records of two inputs with the same key and event times at most `within` apart.
//!
//! A pair is emitted when its second record comes, in the order in which the first ones came. A record waits for
//! others until task time is `within` and the streams' `lateness` past it; whether it still waits is decided by
//! the times alone, so it does not matter when it is let go of. With `left: true` a record of the first input that
//! found no other is emitted alone, soon after its wait has ended.

use std::collections::VecDeque;

use thalweg_connect::OptionKind;
use thalweg_flow::{Element, Packed, Packer, Row, Set, Turn};
use thalweg_types::{Error, Field, Micros, Schema, Value};

use crate::job_file::keys::{KeySpec, Shape};
use crate::operator::{Inputs, Later, NamedOutput, OperatorCheck, OperatorPlugin, Prepared, TEXTS};

use super::{CHECKPOINT, ElementPlan, KEY, distinct, places};

pub struct Join;

const OPTIONS: &[KeySpec] = &[
    KEY,
    KeySpec::new("other_key", TEXTS, "key fields of the second input, if their names differ"),
    KeySpec::new(
        "within",
        Shape::Option(OptionKind::Duration),
        "largest difference between the event times of a pair",
    )
    .required(),
    KeySpec::new(
        "left",
        Shape::Option(OptionKind::Bool),
        "whether records of the first input without a pair are emitted too",
    )
    .default("false"),
    CHECKPOINT,
];

/// Times at which records are let go of, within the time that they wait.
const STEPS: Micros = 16;

impl OperatorPlugin for Join {
    fn name(&self) -> &'static str {
        "join"
    }

    fn doc(&self) -> &'static str {
        "joins records of two inputs that have the same key and are close in event time"
    }

    fn page(&self) -> &'static str {
        include_str!("join.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn inputs(&self) -> Inputs {
        Inputs::Many
    }

    fn partitions_itself(&self) -> bool {
        true
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let [first, second] = check.inputs() else {
            let message =
                format!("a join reads two inputs, and {:?} reads {}", check.name(), check.inputs().len());
            check.error("input", message, Some("write `input: [orders, payments]`".to_owned()));
            return None;
        };
        let names = check.options().list("key").unwrap_or_default();
        let (other_key, other) = match check.options().list("other_key") {
            Some(other) => ("other_key", other),
            None => ("key", names),
        };
        let keys = places(check, "key", names, &first.schema)
            .zip(places(check, other_key, other, &second.schema))
            .map(|(first, second)| vec![first, second]);
        if let Some(keys) = &keys {
            check_types(check, other_key, [&first.schema, &second.schema], keys);
        }
        let within = check.options().duration("within");
        if within.is_some_and(|within| within < 0) {
            check.error("within", "\"within\" is below 0", None);
        }
        let plan = ElementPlan::with_keys(check, keys);
        let (plan, within) = (plan?, within?);
        let is_left = check.options().flag("left").unwrap_or(false);
        let sides = [&first.schema, &second.schema].map(Packer::all);
        let [first_side, second_side] = sides.map(|side| check.accept("input", side));
        if plan.keys[0].is_empty() && check.partitions.is_some_and(|partitions| partitions > 1) {
            let message =
                format!("{:?} has no key, and records in different partitions are no pairs", check.name());
            check.error("partitions", message, Some("name a `key`, or leave out \"partitions\"".to_owned()));
        }
        let (fields, targets) = fields(check, &plan.keys, is_left);
        let named = |place: &usize| targets[0][*place].clone();
        let key: Vec<String> = plan.keys[0].iter().filter_map(named).collect();
        let schema = distinct(check, fields)?;
        let targets = targets.map(|side| {
            let set = |name: Option<String>| name.map(|name| Set::of(&schema, &name)).transpose();
            check.accept("input", side.into_iter().map(set).collect::<Result<Vec<_>, Error>>())
        });
        let [first_targets, second_targets] = targets;
        let shared = Pairs {
            within,
            wait: within.saturating_add(first.lateness.max(second.lateness)),
            is_left,
            sides: [first_side?, second_side?],
            targets: [first_targets?, second_targets?],
        };
        let outputs = vec![NamedOutput { name: "pairs".to_owned(), schema }];
        let later = is_left.then(|| Later { behind: shared.behind(), key });
        // Records wait whole.
        let mut prepared = Prepared::elements::<Waiting>(check, plan, outputs, shared).also_kept_by(|kept| {
            kept.fields("schema of input 1", first.schema.fields());
            kept.fields("schema of input 2", second.schema.fields());
        });
        prepared.later = later;
        Some(prepared)
    }
}

fn check_types(check: &OperatorCheck<'_>, key: &str, schemas: [&Schema; 2], keys: &[Vec<usize>]) {
    if keys[0].len() != keys[1].len() {
        let message = format!("the keys of the inputs have {} and {} fields", keys[0].len(), keys[1].len());
        check.error(
            key,
            message,
            Some("name as many fields of the second input, in the same order".to_owned()),
        );
        return;
    }
    for (first, second) in keys[0].iter().zip(&keys[1]) {
        let (first, second) = (&schemas[0].fields()[*first], &schemas[1].fields()[*second]);
        if first.data_type != second.data_type {
            let [of_first, of_second] = [&check.input_names[0], &check.input_names[1]];
            let message = format!(
                "expected keys of one type, got field {:?} of {of_first:?}, which is {}, and field {:?} of {of_second:?}, \
                 which is {}",
                first.name, first.data_type, second.name, second.data_type
            );
            check.error(key, message, Some("bring them to one type with a `map` before".to_owned()));
        }
    }
}

/// The fields of a pair, and for the fields of each side their names in it; `None` for a key field that the other side
/// has given.
fn fields(
    check: &OperatorCheck<'_>,
    keys: &[Vec<usize>],
    is_left: bool,
) -> (Vec<Field>, [Vec<Option<String>>; 2]) {
    let schemas = [&check.inputs()[0].schema, &check.inputs()[1].schema];
    let (mut fields, mut targets) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (side, targets) in targets.iter_mut().enumerate() {
        for (place, field) in schemas[side].fields().iter().enumerate() {
            let is_shared = |mine: &usize, theirs: &usize| {
                *mine == place && schemas[1 - side].fields()[*theirs].name == field.name
            };
            let is_key = keys[side].iter().zip(&keys[1 - side]).any(|(mine, theirs)| is_shared(mine, theirs));
            if is_key && side == 1 {
                targets.push(None);
                continue;
            }
            let clashes = !is_key && schemas[1 - side].field(&field.name).is_some();
            let mut field = field.clone();
            if clashes {
                field.name = format!("{}_{}", check.input_names[side].replace('.', "_"), field.name);
            }
            field.nullable |= side == 1 && is_left;
            targets.push(Some(field.name.clone()));
            fields.push(field);
        }
    }
    (fields, targets)
}

struct Pairs {
    within: Micros,
    /// How long records are kept, in task time.
    wait: Micros,
    is_left: bool,
    sides: [Packer; 2],
    targets: [Vec<Option<Set<Value>>>; 2],
}

impl Pairs {
    fn waits(&self, time: Micros, task_time: Micros) -> bool {
        task_time.saturating_sub(time) <= self.wait
    }

    fn step(&self) -> Micros {
        (self.wait / STEPS).max(1)
    }

    /// How much older than task time an unmatched record is when it is emitted, where time comes record by record: it
    /// waits to its end, and then for the step. One that came out of order may wait for the last one of its key.
    fn behind(&self) -> Micros {
        self.wait.saturating_add(self.step())
    }

    /// When a record that has waited to its end has to be looked at.
    fn due(&self, time: Micros) -> Micros {
        let step = self.step();
        let ends = time.saturating_add(self.wait).saturating_add(1);
        ends.saturating_add(step - 1).div_euclid(step).saturating_mul(step).max(ends)
    }

    fn emit(&self, records: [Option<&[u8]>; 2], time: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let mut pair = turn.record(0).time(time);
        for ((packer, targets), bytes) in self.sides.iter().zip(&self.targets).zip(records) {
            let Some(bytes) = bytes else { continue };
            for (target, value) in targets.iter().zip(packer.unpack(bytes).values()?) {
                if let Some(target) = target {
                    pair = pair.set(*target, value);
                }
            }
        }
        pair.send()
    }
}

struct Kept {
    time: Micros,
    has_pair: bool,
    values: Vec<u8>,
}

/// Records of both inputs that wait, in the order in which they came.
struct Waiting {
    sides: [VecDeque<Kept>; 2],
    /// The last time at which it is to be woken.
    woken: Micros,
}

impl Waiting {
    /// Drops records that wait no more, and emits those without a match if that is asked for.
    fn let_go(&mut self, pairs: &Pairs, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let task_time = turn.task_time();
        if pairs.is_left {
            for kept in &self.sides[0] {
                if !kept.has_pair && !pairs.waits(kept.time, task_time) {
                    pairs.emit([Some(&kept.values), None], kept.time, turn)?;
                }
            }
        }
        for side in &mut self.sides {
            side.retain(|kept| pairs.waits(kept.time, task_time));
        }
        if self.sides.iter().all(VecDeque::is_empty) {
            turn.forget();
        }
        Ok(())
    }
}

impl Element for Waiting {
    type Shared = Pairs;

    fn create(_: &Pairs, _: Packed<'_>) -> Self {
        Self { sides: [VecDeque::new(), VecDeque::new()], woken: Micros::MIN }
    }

    fn process(&mut self, pairs: &Pairs, record: Row<'_>, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        let (side, time, task_time) = (record.port(), record.time(), turn.task_time());
        let mut values = Vec::new();
        pairs.sides[side].pack(record, &mut values);
        let mut has_pair = false;
        for other in &mut self.sides[1 - side] {
            let is_near = time.abs_diff(other.time) <= pairs.within.unsigned_abs();
            if is_near && pairs.waits(other.time, task_time) {
                (has_pair, other.has_pair) = (true, true);
                let mut records = [Some(&values[..]), Some(&other.values[..])];
                if side == 1 {
                    records.swap(0, 1);
                }
                pairs.emit(records, time.max(other.time), turn)?;
            }
        }
        self.sides[side].push_back(Kept { time, has_pair, values });
        let due = pairs.due(time);
        if due > self.woken {
            self.woken = due;
            turn.wake_at(due);
        }
        Ok(())
    }

    fn wake(&mut self, pairs: &Pairs, due: Micros, turn: &mut Turn<'_, '_>) -> Result<(), Error> {
        self.let_go(pairs, turn)?;
        let newest = self.sides.iter().flatten().map(|kept| kept.time).max();
        if let Some(newest) = newest.filter(|_| due >= self.woken) {
            // They wait longer than when this was the last time, as the job has been changed.
            self.woken = pairs.due(newest);
            turn.wake_at(self.woken);
        }
        Ok(())
    }

    /// Woken (8), then per record: side and whether it has a pair (1), time (8), length (4), values.
    fn save(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.woken.to_le_bytes());
        for (number, side) in (0_u8..).zip(&self.sides) {
            for kept in side {
                into.push(number | u8::from(kept.has_pair) << 1);
                into.extend_from_slice(&kept.time.to_le_bytes());
                // A record has fewer bytes than a column holds.
                into.extend_from_slice(&(kept.values.len() as u32).to_le_bytes());
                into.extend_from_slice(&kept.values);
            }
        }
    }

    fn load(pairs: &Pairs, bytes: &[u8]) -> Result<Self, Error> {
        let mut waiting = Self::create(pairs, pairs.sides[0].unpack(&[]));
        waiting
            .read(bytes)
            .ok_or_else(|| Error::corrupt(format!("{} bytes are no records that wait", bytes.len())))?;
        Ok(waiting)
    }

    fn heap_bytes(&self) -> usize {
        let side = |side: &VecDeque<Kept>| {
            let values: usize = side.iter().map(|kept| kept.values.capacity()).sum();
            side.capacity() * size_of::<Kept>() + values
        };
        self.sides.iter().map(side).sum()
    }
}

impl Waiting {
    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let (woken, mut rest) = bytes.split_first_chunk::<8>()?;
        self.woken = Micros::from_le_bytes(*woken);
        while let Some((flags, behind)) = rest.split_first() {
            let (time, behind) = behind.split_first_chunk::<8>()?;
            let (length, behind) = behind.split_first_chunk::<4>()?;
            let (values, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            self.sides[usize::from(flags & 1)].push_back(Kept {
                time: Micros::from_le_bytes(*time),
                has_pair: flags & 2 != 0,
                values: values.to_vec(),
            });
            rest = behind;
        }
        Some(())
    }
}
