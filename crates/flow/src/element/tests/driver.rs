//! What calls elements in place of a task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use thalweg_types::{Batch, Error, Micros, Seq, SeqRange, Seqs, Value};

use super::tally::{Tally, numbers, weights};
use super::{Event, Record, Told, text};
use crate::element::Elements;
use crate::job::JobCore;
use crate::operator::At;
use crate::{CyclePart, CycleStart, Cycles, InputId, Operator, Output};

/// Parts as tasks hand them over.
#[derive(Default)]
pub(super) struct Parts(pub(super) Mutex<VecDeque<(u64, Box<dyn CyclePart>)>>);

impl Cycles for Parts {
    fn expect(&self, _: Vec<(Arc<str>, u32)>) {}

    fn may_begin(&self) -> bool {
        true
    }

    fn begin(&self, _: CycleStart) {}

    fn part(&self, _: &Arc<str>, _: u32, cycle: u64, part: Box<dyn CyclePart>) {
        self.0.lock().unwrap().push_back((cycle, part));
    }

    fn end(&self) {}

    fn stop(&self) {}
}

/// What a task is called with and what it says.
pub(super) struct Driver {
    pub(super) elements: Elements<Tally>,
    pub(super) parts: Arc<Parts>,
    pub(super) core: JobCore,
    pub(super) told: Vec<Told>,
}

impl Driver {
    pub(super) fn new(elements: Elements<Tally>) -> Self {
        let parts = Arc::new(Parts::default());
        let cycles: Arc<dyn Cycles> = Arc::clone(&parts) as Arc<dyn Cycles>;
        let core = JobCore::new("test".into(), vec![], vec![], 1, None, Some(cycles));
        Self { elements, parts, core, told: Vec::new() }
    }

    pub(super) fn call(
        &mut self,
        range: SeqRange,
        call: impl FnOnce(&mut Elements<Tally>, &mut Output<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut emitted, mut at) = (Vec::new(), At::Unsaid);
        let name: Arc<str> = "elements".into();
        let mut out = Output {
            who: Some((&name, 0)),
            emitted: &mut emitted,
            at: &mut at,
            range,
            core: Some(&self.core),
            parts: None,
        };
        call(&mut self.elements, &mut out)?;
        for (_, batch) in emitted {
            for row in batch.row_numbers() {
                let at = row as usize;
                let value = |place: usize| Value::at(batch.column(place), at);
                let key = match value(0) {
                    Value::String(key) => Some(key[1..].parse().unwrap()),
                    _ => None,
                };
                let (Value::String(what), Value::Int64(count), Value::Float64(sum)) =
                    (value(1), value(2), value(3))
                else {
                    panic!("a field has another type");
                };
                self.told.push((batch.seq(row), batch.times()[at], text(key, &what, count as u64, sum)));
            }
        }
        Ok(())
    }

    /// Records of consecutive events.
    pub(super) fn records(&mut self, start: Seq, records: &[&Record]) -> Result<(), Error> {
        let range = SeqRange::new(start, start + records.len() as Seq);
        self.range(range, &(start..).zip(records.iter().copied()).collect::<Vec<_>>())
    }

    /// Records of these order numbers, from 0 on.
    pub(super) fn records_at(&mut self, records: &[(Seq, &Record)]) {
        let end = records.last().map_or(0, |(seq, _)| seq + 1);
        self.range(SeqRange::new(0, end), records).unwrap();
    }

    fn range(&mut self, range: SeqRange, records: &[(Seq, &Record)]) -> Result<(), Error> {
        for port in 0..2 {
            let rows: Vec<(Seq, &Record)> =
                records.iter().copied().filter(|(_, record)| record.port == port).collect();
            if rows.is_empty() {
                continue;
            }
            let keys: ArrayRef = Arc::new(StringViewArray::from_iter(
                rows.iter().map(|(_, record)| record.key.map(|key| format!("k{key}"))),
            ));
            let ids: ArrayRef =
                Arc::new(UInt64Array::from_iter(rows.iter().map(|(_, record)| record.id.map(u64::from))));
            let columns: Vec<ArrayRef> = if port == 0 {
                vec![
                    keys,
                    Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, record)| record.value))),
                    ids,
                ]
            } else {
                let weights = rows.iter().map(|(_, record)| record.value as f64 / 8.0);
                vec![Arc::new(Float64Array::from_iter_values(weights)), keys, ids]
            };
            let schema = if port == 0 { numbers() } else { weights() };
            let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), columns).unwrap();
            let times: Vec<Micros> = rows.iter().map(|(_, record)| record.time).collect();
            let seqs: Arc<[Seq]> = rows.iter().map(|(seq, _)| *seq).collect();
            let batch = Batch::new(range, batch, times.into(), Seqs::Each(seqs));
            self.call(range, |elements, out| elements.process(InputId { port, task: 0 }, batch, out))?;
        }
        self.call(range, |elements, out| elements.complete(range, out))
    }

    /// Takes over all that a scan finds and memory takes.
    pub(super) fn fill(&mut self) -> Result<(), Error> {
        while self.elements.filling.is_some() {
            self.elements.fill(1)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Runs events from one on, records in batches of these sizes; stops when the tape says so.
    pub(super) fn run(
        &mut self,
        events: &[Event],
        from: usize,
        sizes: &mut dyn Iterator<Item = usize>,
        cycle: &mut u64,
    ) {
        let mut at = from;
        while at < events.len() {
            let range = SeqRange::new(at as Seq, at as Seq + 1);
            match &events[at] {
                Event::Record(_) => {
                    let size = sizes.next().unwrap();
                    let records: Vec<&Record> = events[at..]
                        .iter()
                        .map_while(|event| match event {
                            Event::Record(record) => Some(record),
                            _ => None,
                        })
                        .take(size)
                        .collect();
                    self.records(at as Seq, &records).unwrap();
                    at += records.len();
                    continue;
                }
                Event::Tick(now) => self.call(range, |elements, out| elements.tick(*now, out)).unwrap(),
                Event::Mark => {
                    *cycle += 1;
                    let cycle = *cycle;
                    self.call(range, |elements, out| elements.cycle(cycle, out)).unwrap();
                }
            }
            at += 1;
        }
    }
}
