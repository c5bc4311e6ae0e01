//! Random steps against a model: chunks are a function of their number, so the model is two numbers.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Seal {
        keep: bool,
    },
    Read {
        chunk: usize,
        projection: usize,
    },
    Prefetch {
        chunk: usize,
        projection: usize,
    },
    Release {
        chunk: usize,
    },
    Delete {
        chunk: usize,
    },
    Sync,
    /// Closed in order.
    Close,
    /// The process dies: written bytes are there.
    Kill,
    /// The power goes: synced bytes are there, and with a seed some of the rest.
    PowerCut {
        torn: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (chunk, projection) = (0_usize..60, 0_usize..2);
    prop_oneof![
        12 => any::<bool>().prop_map(|keep| Step::Seal { keep }),
        8 => (chunk.clone(), projection.clone()).prop_map(|(chunk, projection)| Step::Read { chunk, projection }),
        6 => (chunk.clone(), projection).prop_map(|(chunk, projection)| Step::Prefetch { chunk, projection }),
        3 => chunk.clone().prop_map(|chunk| Step::Release { chunk }),
        2 => chunk.prop_map(|chunk| Step::Delete { chunk }),
        2 => Just(Step::Sync),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => proptest::option::of(any::<u64>()).prop_map(|torn| Step::PowerCut { torn }),
    ]
}

/// `synced`: chunks that must survive anything. `needed`: the oldest chunk that was not given up.
fn run(steps: &[Step], threads: usize, budget_bytes: u64) {
    let fs = disk();
    let pool = IoPool::new(threads);
    let budget = ChunkBudget::new(budget_bytes);
    let open = |committed| {
        ChunkStore::open(
            Arc::new(fs.clone()),
            DIR,
            Arc::clone(&pool),
            Arc::clone(&budget),
            options(committed),
        )
    };
    let mut store = open(None).unwrap();
    let (mut synced, mut needed) = (0, 0);
    let projections = projections();
    for step in steps {
        let pick = |store: &ChunkStore, chunk: usize| {
            let count = store.index().len();
            (count > 0).then(|| store.index()[chunk % count.max(1)].id)
        };
        match *step {
            Step::Seal { keep } => {
                let (seal, batch) = sealed(store.next().0);
                store.seal(Seal { keep, ..seal }, batch).unwrap();
            }
            Step::Read { chunk, projection } => {
                if let Some(id) = pick(&store, chunk) {
                    let read = store.read(id, &projections[projection]).unwrap();
                    assert_eq!(*read, expected(id.0, &projections[projection]));
                }
            }
            Step::Prefetch { chunk, projection } => {
                if let Some(id) = pick(&store, chunk) {
                    store.prefetch(id, &projections[projection]).unwrap();
                }
            }
            Step::Release { chunk } => {
                if let Some(id) = pick(&store, chunk) {
                    store.release(id);
                }
            }
            Step::Delete { chunk } => {
                // As the engine does it: only what no commit names any more.
                if let Some(id) = pick(&store, chunk).filter(|id| id.0 <= synced) {
                    store.delete_before(id).unwrap();
                    needed = needed.max(id.0);
                    assert!(store.first().0 <= needed);
                }
            }
            Step::Sync => synced = store.sync().unwrap().0,
            Step::Close => {
                synced = store.next().0;
                store.close().unwrap();
                store = open(None).unwrap();
                assert_eq!(store.next().0, synced);
                assert_whole(&mut store);
            }
            Step::Kill => {
                let next = store.next().0;
                drop(store);
                assert_eq!(budget.used(), 0, "a closed store holds nothing");
                store = open(None).unwrap();
                assert!((synced..=next).contains(&store.next().0));
                assert_whole(&mut store);
            }
            Step::PowerCut { torn } => {
                drop(store);
                match torn {
                    Some(seed) => fs.crash_torn(seed),
                    None => fs.crash(),
                }
                store = open(Some(ChunkId(needed)..ChunkId(synced))).unwrap();
                assert_eq!(store.next().0, synced, "exactly what the commit names");
                assert!(store.first().0 <= needed);
                assert_whole(&mut store);
            }
        }
        // Under the lock, where background jobs count too: between two reads one of them may give bytes back.
        let state = store.shared.lock();
        assert_eq!(state.stats.memory_bytes, budget.used(), "one store counts all that the budget lent");
    }
    assert_whole(&mut store);
    drop(store);
    assert_eq!(budget.used(), 0);
}

proptest! {
    #[test]
    fn any_steps_inline(steps in proptest::collection::vec(step(), 1..80), small in any::<bool>()) {
        run(&steps, 0, if small { 8_000 } else { 1 << 20 });
    }

    #[test]
    fn any_steps_on_threads(steps in proptest::collection::vec(step(), 1..80), small in any::<bool>()) {
        run(&steps, 2, if small { 8_000 } else { 1 << 20 });
    }
}
