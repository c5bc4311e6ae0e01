//! All interleavings of the two atomics that tasks meet at, by loom: the modules themselves, with loom's types
//! in place of the standard library's. Runs like any other test.

#![allow(dead_code, reason = "statistics are not explored")]

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
}

#[path = "../../src/gauge.rs"]
mod gauge;
#[path = "../../src/ready.rs"]
mod ready;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use gauge::Gauge;
use ready::Ready;

/// News is written with no ordering of its own, so only the flag can carry it over.
#[test]
fn no_wake_is_lost_and_no_task_is_queued_twice() {
    // Up to three preemptions: without the bound it is twenty times the work.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        struct Shared {
            ready: Ready,
            queued: AtomicUsize,
            news: [AtomicBool; 2],
        }
        let shared = Arc::new(Shared {
            ready: Ready::new(),
            queued: AtomicUsize::new(0),
            news: [AtomicBool::new(false), AtomicBool::new(false)],
        });
        let wakers: Vec<_> = (0..2)
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.news[number].store(true, Ordering::Relaxed);
                    if shared.ready.wake() {
                        shared.queued.fetch_add(1, Ordering::Release);
                    }
                })
            })
            .collect();
        let mut seen = [false; 2];
        while seen != [true; 2] {
            if shared.queued.load(Ordering::Acquire) == 0 {
                thread::yield_now();
                continue;
            }
            assert_eq!(shared.queued.fetch_sub(1, Ordering::AcqRel), 1, "queued once");
            shared.ready.begin();
            for (seen, news) in seen.iter_mut().zip(&shared.news) {
                *seen |= news.load(Ordering::Relaxed);
            }
            if shared.ready.end(false) {
                shared.queued.fetch_add(1, Ordering::Release);
            }
        }
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

/// A producer that finds its ring shut is woken when it is low again, whatever the consumer does meanwhile.
#[test]
fn a_producer_that_waits_for_room_is_woken() {
    loom::model(|| {
        let gauge = Arc::new(Gauge::new(100, 8));
        let woken = Arc::new(AtomicBool::new(false));
        gauge.add(60);
        gauge.add(60);
        let consumer = {
            let (gauge, woken) = (Arc::clone(&gauge), Arc::clone(&woken));
            thread::spawn(move || {
                for _ in 0..2 {
                    if gauge.remove(60) {
                        woken.store(true, Ordering::Release);
                    }
                }
            })
        };
        let mut shut = false;
        if !gauge.is_open(&mut shut) {
            while !woken.load(Ordering::Acquire) {
                thread::yield_now();
            }
            assert!(gauge.is_open(&mut shut), "woken with room");
        }
        consumer.join().unwrap();
        assert_eq!(gauge.bytes(), 0);
    });
}

#[test]
fn a_ring_is_shut_from_the_high_to_the_low_watermark() {
    loom::model(|| {
        let gauge = Gauge::new(100, 8);
        let mut shut = false;
        gauge.add(99);
        assert!(gauge.is_open(&mut shut), "below the high watermark");
        gauge.add(50);
        assert!(!gauge.is_open(&mut shut), "one oversize item may pass, the next may not");
        assert!(!gauge.remove(99), "50 of 100 are left: not low yet");
        assert!(!gauge.is_open(&mut shut));
        assert!(gauge.remove(50), "low: the producer is to be woken");
        assert!(gauge.is_open(&mut shut));
        assert_eq!(gauge.hits(), 1);

        for _ in 0..8 {
            gauge.add(0);
        }
        assert!(!gauge.is_open(&mut shut), "items are bounded, too");
        for left in (0..8).rev() {
            assert_eq!(gauge.remove(0), left == 2, "woken once, at a quarter");
        }
    });
}
