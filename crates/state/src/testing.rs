//! One suite for all back ends, for their tests: random steps, crashes among them, against a map.
//!
//! Behind the feature `testing`, so that a crate with a back end of its own runs the same.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::ControlFlow;

use proptest::prelude::*;

use crate::{Backend, Changes, StateError, Version};

/// The storage of a back end; outlives instances.
pub trait Ground: Debug {
    /// # Errors
    /// Of opening.
    fn open(&self, version: Option<&Version>) -> Result<Box<dyn Backend>, StateError>;

    /// Power goes, after the end of an instance; with a seed some unsynced bytes had arrived.
    fn power_cut(&self, torn: Option<u64>);

    /// Holds an instance against what it should hold.
    fn check(&self, backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
        assert_state(backend, expected, keys);
    }
}

/// Live keys with their values.
pub type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Lays changes over a state.
pub fn apply(state: &mut State, changes: &Changes) {
    for change in changes {
        match change.value {
            Some(value) => drop(state.insert(change.key.to_vec(), value.to_vec())),
            None => drop(state.remove(change.key)),
        }
    }
}

/// Everything that a scan hands over; each key once.
///
/// # Errors
/// Of the scan.
pub fn scanned(backend: &dyn Backend) -> Result<State, StateError> {
    let mut state = State::new();
    backend.scan(&mut |key, value| {
        assert!(state.insert(key.to_vec(), value.to_vec()).is_none(), "key {key:02x?} came twice");
        ControlFlow::Continue(())
    })?;
    Ok(state)
}

/// Holds a back end against what it should hold, by scan, by key and by count.
pub fn assert_state(backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
    assert_values(backend, expected, keys);
    assert_eq!(backend.stats().keys, expected.len() as u64);
}

/// Holds a back end that need not count against what it should hold.
pub fn assert_values(backend: &dyn Backend, expected: &State, keys: &[Vec<u8>]) {
    assert_eq!(&scanned(backend).unwrap(), expected);
    for key in keys {
        assert_eq!(backend.get(key).unwrap().as_ref(), expected.get(key), "key {key:02x?}");
    }
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let got = backend.get_many(&asked).unwrap();
    assert!(got.iter().zip(keys).all(|(got, key)| got.as_ref() == expected.get(key)));
    assert!(backend.stats().keys > 0 || expected.is_empty(), "a back end with keys reports none");
}

/// Writes, prepares and commits one cycle.
pub fn commit(backend: &dyn Backend, cycle: u64, changes: &Changes) -> Version {
    backend.write(cycle, changes).unwrap();
    let version = backend.prepare(cycle).unwrap();
    backend.committed(cycle).unwrap();
    version
}

/// Key by number, and the seed of a value or a tombstone.
pub type Slice = Vec<(u8, Option<u16>)>;

/// What happens to a back end, or is asked of it.
#[derive(Clone, Debug)]
pub enum Step {
    Write(Slice),
    Prepare,
    /// The commit record of the oldest version that has none becomes durable.
    Record,
    /// The back end learns of it.
    Tell,
    Get(u8),
    Check,
    Stop(Stop),
}

/// How an instance ends.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    Close,
    /// The process dies, the kernel lives.
    Kill,
    PowerCut {
        torn: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let slice =
        proptest::collection::vec((any::<u8>(), proptest::option::weighted(0.75, any::<u16>())), 0..14);
    prop_oneof![
        12 => slice.prop_map(Step::Write),
        6 => Just(Step::Prepare),
        6 => Just(Step::Record),
        6 => Just(Step::Tell),
        4 => any::<u8>().prop_map(Step::Get),
        2 => Just(Step::Check),
        1 => Just(Step::Stop(Stop::Close)),
        1 => Just(Step::Stop(Stop::Kill)),
        2 => proptest::option::of(any::<u64>()).prop_map(|torn| Step::Stop(Stop::PowerCut { torn })),
    ]
}

const KEYS: u8 = 24;

/// A key that back ends may find by its number.
pub fn numbered(space: u32, number: u32) -> Vec<u8> {
    [&[1][..], &space.to_be_bytes(), &number.to_be_bytes()].concat()
}

/// One of as many keys as there are numbers that all have the same XXH3-128, as anybody can make them.
///
/// That hash takes pieces of 16 bytes, and of each the product of its halves, each xored with a word that everybody knows.
/// Where the first half is that word, the product is zero, and the piece counts with the sum of its halves alone: what the
/// first piece puts in, the third takes out.
pub fn twin(number: u64) -> Vec<u8> {
    /// Words of the secret that the hash has built in, from the first byte and from byte 32.
    const WORDS: [u64; 2] = [0xbe4b_a423_396c_feb8, 0x78e5_c0cc_4ee6_79cb];
    let mut key = vec![b'.'; 160];
    let mut put = |at: usize, word: u64| key[at..at + 8].copy_from_slice(&word.to_le_bytes());
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64) ^ ((product >> 64) as u64)
    };
    put(0, WORDS[0]);
    put(8, number);
    put(32, WORDS[1]);
    // The second piece of each pair, with the words from bytes 16 and 48 of the secret.
    let plain = u64::from_le_bytes([b'.'; 8]);
    let first =
        fold(plain ^ 0xdb97_9083_e96d_d4de, plain ^ 0x1f67_b3b7_a4a4_4072) ^ WORDS[0].wrapping_add(number);
    let second = first.wrapping_add(fold(plain ^ 0x8e24_43f7_7446_08b8, plain ^ 0x4c26_3a81_e690_35e0));
    put(40, second.wrapping_sub(WORDS[1]));
    key
}

/// Keys that are empty, short, like a path, longer than a file's name, of one public hash, and numbered ones in several
/// pages.
pub fn key(number: u8) -> Vec<u8> {
    match number % KEYS {
        0 => Vec::new(),
        1 => b"../..".to_vec(),
        2 => vec![0xff; 120],
        3 => vec![0xff; 121],
        other @ (5 | 7 | 9) => twin(u64::from(other)),
        other if other % 2 == 0 => numbered(u32::from(other % 4), u32::from(other) * 200),
        other => format!("key-{other}").into_bytes(),
    }
}

/// Up to 900 bytes.
pub fn value(seed: u16) -> Vec<u8> {
    let len = match seed % 16 {
        0 => 0,
        15 => 900,
        other => usize::from(other) * 9,
    };
    (0..len).map(|at| (usize::from(seed) + at) as u8).collect()
}

/// Changes as a step has them.
pub fn changes_of(slice: &[(u8, Option<u16>)]) -> Changes {
    let mut changes = Changes::new();
    for (number, seed) in slice {
        match seed {
            Some(seed) => changes.push(&key(*number), &value(*seed)),
            None => changes.remove(&key(*number)),
        }
    }
    changes
}

/// What a job knows of a back end.
struct Model {
    /// State and version of the last commit record.
    base: State,
    version: Option<(u64, Version)>,
    /// Cycles after it with their slices; a version where one was given out.
    pending: VecDeque<(u64, Vec<Changes>, Option<Version>)>,
    /// All of that together.
    now: State,
    told: Option<u64>,
}

impl Model {
    /// The cycle that is being written.
    fn open_cycle(&mut self) -> &mut (u64, Vec<Changes>, Option<Version>) {
        let last = self.pending.back().map(|(cycle, ..)| *cycle).or(self.version.as_ref().map(|at| at.0));
        if self.pending.back().is_none_or(|(.., version)| version.is_some()) {
            // Numbers may be left out, as by cycles in which this task had no part.
            self.pending.push_back((last.map_or(0, |last| last + 1 + last % 2), Vec::new(), None));
        }
        self.pending.back_mut().unwrap()
    }
}

/// Takes a back end through steps, and holds it against a map all the while.
pub fn run(ground: &dyn Ground, steps: &[Step]) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut backend = ground.open(None).unwrap();
    let (base, now, pending) = (State::new(), State::new(), VecDeque::new());
    let mut model = Model { base, version: None, pending, now, told: None };
    for step in steps {
        match step {
            Step::Write(slice) => {
                let changes = changes_of(slice);
                let (cycle, slices, _) = model.open_cycle();
                backend.write(*cycle, &changes).unwrap();
                slices.push(changes.clone());
                apply(&mut model.now, &changes);
            }
            Step::Prepare => {
                let (cycle, _, version) = model.open_cycle();
                *version = Some(backend.prepare(*cycle).unwrap());
            }
            Step::Record => {
                if let Some((cycle, slices, Some(version))) =
                    model.pending.pop_front_if(|(.., version)| version.is_some())
                {
                    slices.iter().for_each(|changes| apply(&mut model.base, changes));
                    model.version = Some((cycle, version));
                }
            }
            Step::Tell => {
                if let Some((cycle, _)) = model.version.as_ref().filter(|at| Some(at.0) > model.told) {
                    backend.committed(*cycle).unwrap();
                    model.told = Some(*cycle);
                }
            }
            Step::Get(number) => {
                let key = key(*number);
                assert_eq!(backend.get(&key).unwrap().as_ref(), model.now.get(&key));
            }
            Step::Check => ground.check(backend.as_ref(), &model.now, &keys),
            Step::Stop(stop) => {
                if matches!(stop, Stop::Close) {
                    backend.close().unwrap();
                }
                drop(backend);
                if let Stop::PowerCut { torn } = stop {
                    ground.power_cut(*torn);
                }
                backend = ground.open(model.version.as_ref().map(|at| &at.1)).unwrap();
                ground.check(backend.as_ref(), &model.base, &keys);
                run_again(backend.as_ref(), &mut model);
                ground.check(backend.as_ref(), &model.now, &keys);
            }
        }
    }
    ground.check(backend.as_ref(), &model.now, &keys);
}

/// Everything after the commit is replayed: the same cycles with the same content, in one slice each.
fn run_again(backend: &dyn Backend, model: &mut Model) {
    model.told = model.version.as_ref().map(|at| at.0);
    for (cycle, slices, version) in &mut model.pending {
        let mut whole = Changes::new();
        for change in slices.iter().flatten() {
            match change.value {
                Some(value) => whole.push(change.key, value),
                None => whole.remove(change.key),
            }
        }
        backend.write(*cycle, &whole).unwrap();
        if version.is_some() {
            *version = Some(backend.prepare(*cycle).unwrap());
        }
    }
}

/// Thirty to seventy steps.
pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 30..=70)
}

/// How many cases are run; `PROPTEST_CASES` says otherwise.
pub fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, ..ProptestConfig::default() }
}
