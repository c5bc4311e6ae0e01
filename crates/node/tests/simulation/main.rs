//! Whole clusters by seed: 3 to 7 nodes with real units over the bus in memory, in a time of their own.
//!
//! One thread owns all nodes of a seed and lets one part of one of them go a step at a time (`world`): members, hosts, doors,
//! carriers, and consumers, which get what the bus is told to give them. What units compute they compute on threads of their
//! own, and nobody else moves before these sleep again, so a run is a function of its seed, but for those that read a file. While faults last (`faults`),
//! clients send records; after that all comes to rest, and what is in the logs and what clients have heard is compared with
//! what the engine makes of the same logs (`checks`).
//!
//! `THALWEG_SEEDS` says how many seeds are run, `THALWEG_SEED` names the first one. With `THALWEG_TRACE` it is said what happened
//! in each, one line for each step with the ends of all logs.
#![cfg(feature = "cluster")]

mod checks;
mod faults;
mod world;

#[expect(dead_code, reason = "texts are read with another sink here")]
#[path = "../support/collect.rs"]
mod collect;
#[path = "../support/waiting.rs"]
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faults::{Counts, Fault};
use world::World;

/// Seeds of a run that does not say how many.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")))
}

/// Runs a seed, with all its checks.
fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    world.run();
    checks::check(&mut world);
    world.counts.clone()
}

#[test]
fn whatever_happens_to_nodes_each_record_counts_once_and_answers_are_those_of_the_logs() {
    let first = number("THALWEG_SEED").unwrap_or(0);
    let seeds = number("THALWEG_SEEDS").unwrap_or(if first == 0 { SEEDS } else { 1 });
    let (next, all, has_failed) =
        (AtomicU64::new(first), Mutex::new(Counts::default()), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        break;
                    }
                    match catch_unwind(AssertUnwindSafe(|| run(seed))) {
                        Ok(counts) => all.lock().unwrap().add(&counts),
                        Err(_) => {
                            has_failed.store(true, Ordering::Relaxed);
                            eprintln!(
                                "seed {seed} failed; repeat it: THALWEG_SEED={seed} cargo test --workspace --test simulation whatever"
                            );
                        }
                    }
                }
            });
        }
    });
    let counts = all.into_inner().unwrap();
    eprintln!("{seeds} seeds from {first}: {counts:?}");
    assert!(!has_failed.load(Ordering::Relaxed), "a seed failed, see above");
    for fault in Fault::ALL {
        let times = counts.faults.get(&fault).copied().unwrap_or(0);
        assert!(seeds < 100 || times > 0, "no seed had a fault of the kind {fault:?}");
    }
    counts.assert_checked();
}

#[test]
fn the_same_seed_gives_the_same_logs() {
    let first = number("THALWEG_SEED").unwrap_or(0);
    for seed in (first..).filter(|seed| World::new(*seed).is_repeatable()).take(10) {
        let mut runs = (0..2).map(|_| {
            let mut world = World::new(seed);
            world.trace = Some(Vec::new());
            world.run();
            (world.trace.take().unwrap(), world.digest())
        });
        let (one, other) = (runs.next().unwrap(), runs.next().unwrap());
        let differs = one.0.iter().zip(&other.0).position(|(one, other)| one != other);
        if let Some(at) = differs {
            let before = at.saturating_sub(5);
            panic!("seed {seed}: {:#?}\nand {:#?}", &one.0[before..=at], &other.0[before..=at]);
        }
        assert_eq!(one, other, "seed {seed}");
    }
}
