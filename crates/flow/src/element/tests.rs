//! Elements called as tasks call them.

mod driver;
mod faults;
mod judged;
mod late;
mod model;
mod scans;
mod settings;
mod tally;

use thalweg_state::memory::{Memory, MemoryDisk};
use thalweg_types::{Micros, Seq};

use super::ElementState;

#[derive(Clone, Debug)]
struct Record {
    port: usize,
    key: Option<u8>,
    value: i64,
    id: Option<u8>,
    time: Micros,
}

#[derive(Clone, Debug)]
enum Event {
    Record(Record),
    Tick(Micros),
    Mark,
}

/// Something emitted: event, time, and the fields as text.
type Told = (Seq, Micros, String);

fn text(key: Option<u8>, what: &str, count: u64, sum: f64) -> String {
    let key = key.map_or("null".to_owned(), |key| format!("k{key}"));
    format!("{key} {what} {count} {:016x}", sum.to_bits())
}

fn state(disk: &MemoryDisk, cycle: u64, position: Option<&[u8]>, memory: usize) -> ElementState {
    ElementState::open(cycle, position, memory, |version| Ok(Box::new(Memory::open(disk, version)?))).unwrap()
}

fn one(key: u8, value: i64, time: Micros) -> Record {
    Record { port: 0, key: Some(key), value, id: None, time }
}

fn whats(told: &[Told]) -> Vec<&str> {
    told.iter().map(|told| told.2.rsplit_once(' ').unwrap().0).collect()
}
