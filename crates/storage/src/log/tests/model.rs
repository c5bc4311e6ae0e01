//! Random steps against a vector of records.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append {
        len: usize,
        count: usize,
    },
    Flush,
    Sync,
    Read {
        share: usize,
    },
    TruncateBefore {
        share: usize,
    },
    TruncateBehind {
        share: usize,
    },
    Close,
    /// The process dies: written bytes are there.
    Kill,
    /// The power goes: synced bytes are there, and with a seed some of the rest.
    PowerCut {
        torn: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let share = 0_usize..=16;
    prop_oneof![
        12 => (0_usize..90, 1_usize..8).prop_map(|(len, count)| Step::Append { len, count }),
        1 => (600_usize..2000).prop_map(|len| Step::Append { len, count: 1 }),
        4 => Just(Step::Flush),
        4 => Just(Step::Sync),
        3 => share.clone().prop_map(|share| Step::Read { share }),
        1 => share.clone().prop_map(|share| Step::TruncateBefore { share }),
        1 => share.prop_map(|share| Step::TruncateBehind { share }),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        3 => proptest::option::of(any::<u64>()).prop_map(|torn| Step::PowerCut { torn }),
    ]
}

/// Reads everything from `from` on and compares it with `model`.
fn compare(log: &Log, from: u64, model: &[Vec<u8>]) {
    let mut reader = log.read_from(LogPosition(from)).unwrap();
    while let Some((position, bytes)) = reader.next_record().unwrap() {
        assert_eq!(bytes, model[position.0 as usize]);
    }
    assert_eq!(reader.position(), log.written());
}

fn run(steps: &[Step], ahead_bytes: u64, writeback_bytes: u64) {
    let fs = MemFs::new();
    let open = |promised: usize| {
        let promised = LogPosition(promised as u64);
        let options = LogOptions { ahead_bytes, writeback_bytes, promised, ..options() };
        Log::open(Arc::new(fs.clone()), DIR, options).unwrap().log
    };
    let mut log = open(0);
    let mut model: Vec<Vec<u8>> = Vec::new();
    let mut synced = 0;
    let mut tag = 0_u32;
    for step in steps {
        let (first, next) = (log.first().0, log.next().0);
        let pick = |share: usize, until: u64| first + (until - first) * share as u64 / 16;
        match *step {
            Step::Append { len, count } => {
                for _ in 0..count {
                    // Of its own also if a number is given again after a cut.
                    tag += 1;
                    let bytes: Vec<u8> = tag.to_le_bytes().into_iter().cycle().take(len).collect();
                    assert_eq!(log.append(&[&bytes]).unwrap().0, model.len() as u64);
                    model.push(bytes);
                }
            }
            Step::Flush => assert_eq!(log.flush().unwrap().0, next),
            Step::Sync => {
                assert_eq!(log.sync().unwrap().0, next);
                synced = model.len();
            }
            Step::Read { share } => compare(&log, pick(share, log.written().0), &model),
            Step::TruncateBefore { share } => {
                let position = pick(share, log.written().0);
                log.truncate_before(LogPosition(position)).unwrap();
                assert!(log.first().0 <= position.max(first));
            }
            Step::TruncateBehind { share } => {
                let position = pick(share, next);
                log.truncate_behind(LogPosition(position)).unwrap();
                model.truncate(position as usize);
                synced = synced.min(position as usize);
            }
            Step::Close => {
                log.close().unwrap();
                synced = model.len();
                log = open(synced);
                assert_eq!(log.next().0, next);
            }
            Step::Kill => {
                let written = log.written();
                drop(log);
                log = open(synced);
                assert_eq!(log.next(), written);
                model.truncate(written.0 as usize);
                synced = model.len();
            }
            Step::PowerCut { torn } => {
                let written = log.written().0;
                drop(log);
                match torn {
                    Some(seed) => fs.crash_torn(seed),
                    None => fs.crash(),
                }
                let summary = verify(&fs, Path::new(DIR)).unwrap();
                log = open(synced);
                assert_eq!(summary.next(), log.next(), "inspect sees what opening keeps");
                assert!((synced as u64..=written).contains(&log.next().0));
                model.truncate(log.next().0 as usize);
                synced = model.len();
            }
        }
        synced = synced.max(log.synced().0 as usize);
        assert!(log.synced() <= log.written() && log.written() <= log.next());
        assert_eq!(log.next().0 as usize, model.len());
        assert!(log.first().0 >= first);
        compare(&log, log.first().0, &model);
    }
}

proptest! {
    #[test]
    fn any_steps(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps, 0, 0);
    }

    #[test]
    fn any_steps_with_zeros_ahead(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps, 1024, 0);
    }

    #[test]
    fn any_steps_with_syncs_beside_the_work(steps in proptest::collection::vec(step(), 1..80)) {
        run(&steps, 0, 100);
    }
}
