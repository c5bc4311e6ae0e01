//! Random steps, crashes among them, of every back end against a map.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_state::memory::MemoryDisk;
use thalweg_state::{Backend, Changes, Version, registry};
use thalweg_storage::{Fs, MemFs};

use crate::harness::{DIR, Disk, State, apply, assert_state, commit, numbered, small};

/// Key by number, and the seed of a value or a tombstone.
type Slice = Vec<(u8, Option<u16>)>;

#[derive(Clone, Debug)]
enum Step {
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

#[derive(Clone, Copy, Debug)]
enum Stop {
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

/// Empty, short, like a path, longer than a file's name, and numbered ones in several pages.
fn key(number: u8) -> Vec<u8> {
    match number % KEYS {
        0 => Vec::new(),
        1 => b"../..".to_vec(),
        2 => vec![0xff; 120],
        3 => vec![0xff; 121],
        other if other % 2 == 0 => numbered(u32::from(other % 4), u32::from(other) * 200),
        other => format!("key-{other}").into_bytes(),
    }
}

fn value(seed: u16) -> Vec<u8> {
    let len = match seed % 16 {
        0 => 0,
        15 => 900,
        other => usize::from(other) * 9,
    };
    (0..len).map(|at| (usize::from(seed) + at) as u8).collect()
}

fn changes_of(slice: &Slice) -> Changes {
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
    /// Cycles behind it with their slices; a version where one was given out.
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

fn run(disk: &Disk, steps: &[Step]) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut backend = disk.open(None).unwrap();
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
            Step::Check => assert_state(backend.as_ref(), &model.now, &keys),
            Step::Stop(stop) => {
                if matches!(stop, Stop::Close) {
                    backend.close().unwrap();
                }
                drop(backend);
                if let Stop::PowerCut { torn } = stop {
                    disk.power_cut(*torn);
                }
                backend = disk.open(model.version.as_ref().map(|at| &at.1)).unwrap();
                assert_state(backend.as_ref(), &model.base, &keys);
                run_again(backend.as_ref(), &mut model);
                assert_state(backend.as_ref(), &model.now, &keys);
            }
        }
    }
    assert_state(backend.as_ref(), &model.now, &keys);
}

/// What was behind the commit comes again: the same cycles with the same content, in one slice each.
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

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 30..=70)
}

/// `PROPTEST_CASES` says otherwise.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn indexed_is_a_map(steps in steps(), segment_bytes in prop_oneof![Just(1_u64), 100_u64..3000, Just(1 << 20)]) {
        run(&Disk::indexed(small(segment_bytes)), &steps);
    }

    #[test]
    fn files_are_a_map(steps in steps()) {
        run(&Disk::Files { fs: MemFs::new() }, &steps);
    }

    #[test]
    fn memory_is_a_map(steps in steps()) {
        run(&Disk::Memory { disk: MemoryDisk::new() }, &steps);
    }
}

/// Each back end alike.
fn all() -> [Disk; 3] {
    [Disk::indexed(small(300)), Disk::Files { fs: MemFs::new() }, Disk::Memory { disk: MemoryDisk::new() }]
}

#[test]
fn cycles_out_of_order_are_refused() {
    for disk in all() {
        let backend = disk.open(None).unwrap();
        let some = changes_of(&vec![(4, Some(7))]);
        backend.write(3, &some).unwrap();
        assert!(
            backend.write(2, &some).is_err() && backend.prepare(2).is_err() && backend.committed(3).is_err()
        );
        let version = backend.prepare(3).unwrap();
        assert!(backend.write(3, &some).is_err() && backend.prepare(3).is_err());
        backend.committed(3).unwrap();
        drop(backend);
        let backend = disk.open(Some(&version)).unwrap();
        assert!(backend.write(3, &some).is_err());
        backend.write(4, &some).unwrap();
    }
}

#[test]
fn a_scan_stops_when_told() {
    for disk in all() {
        let backend = disk.open(None).unwrap();
        backend.write(1, &changes_of(&(0..20).map(|number| (number, Some(9))).collect())).unwrap();
        let mut seen = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            seen += 1;
            if seen == 5 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
        };
        backend.scan(visit).unwrap();
        assert_eq!(seen, 5);
    }
}

#[test]
fn the_version_of_another_back_end_is_refused() {
    let versions: Vec<_> = all()
        .iter()
        .map(|disk| {
            let backend = disk.open(None).unwrap();
            backend.write(1, &changes_of(&vec![(5, Some(1))])).unwrap();
            backend.prepare(1).unwrap()
        })
        .collect();
    for (own, disk) in all().iter().enumerate() {
        for (other, version) in versions.iter().enumerate() {
            assert!(own == other || disk.open(Some(version)).is_err(), "{other} by {own}");
        }
    }
}

#[test]
fn a_scan_hands_over_what_rests_while_others_are_written() {
    let disk = Disk::indexed(small(600));
    let backend = disk.open(None).unwrap();
    let name = |kind: &str, number: u64| format!("{kind}-{number}").into_bytes();
    for cycle in 1..60 {
        let mut changes = Changes::new();
        changes.push(&name("resting", cycle), b"as it was");
        changes.push(&name("fading", cycle), &[7; 200]);
        commit(backend.as_ref(), cycle, &changes);
    }
    let hot = || changes_of(&(4..12).map(|number| (number, Some(7))).collect());
    let before = backend.stats().compactions;
    let (mut seen, mut cycle) = (Vec::new(), 60);
    let visit = &mut |key: &[u8], _: &[u8]| {
        if key.starts_with(b"resting") {
            seen.push(key.to_vec());
        }
        // Four fifths of all segments die, and enough is written to compact them all.
        if cycle == 60 {
            let mut changes = Changes::new();
            (1..60).for_each(|number| changes.remove(&name("fading", number)));
            commit(backend.as_ref(), cycle, &changes);
            for cycle in 61..120 {
                commit(backend.as_ref(), cycle, &hot());
            }
            cycle = 120;
        }
        std::ops::ControlFlow::Continue(())
    };
    backend.scan(visit).unwrap();
    seen.sort();
    let mut expected: Vec<_> = (1..60).map(|number| name("resting", number)).collect();
    expected.sort();
    assert_eq!(seen, expected);
    assert_eq!(backend.stats().compactions, before, "nothing moves under a scan");
    for cycle in 120..160 {
        commit(backend.as_ref(), cycle, &hot());
    }
    assert!(backend.stats().compactions > before + 10, "and afterwards it goes on");
}

#[test]
fn back_ends_open_by_name() {
    for kind in registry::KINDS {
        let fs: Arc<dyn Fs> = Arc::new(MemFs::new());
        let place = registry::Place { fs, dir: DIR.into(), identity: 7 };
        let backend = registry::open(kind.name, place.clone(), None).unwrap();
        let version = commit(backend.as_ref(), 1, &changes_of(&vec![(5, Some(3))]));
        drop(backend);
        let backend = registry::open(kind.name, place, Some(&version)).unwrap();
        assert_eq!(backend.get(&key(5)).unwrap().unwrap(), value(3));
    }
    let place = registry::Place { fs: Arc::new(MemFs::new()), dir: DIR.into(), identity: 7 };
    let error = registry::open("redis", place, None).unwrap_err();
    assert_eq!(error.to_string(), "there is no back end \"redis\"; there are indexed, files");
}
