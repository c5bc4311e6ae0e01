//! Faults of nodes and of the broker while many clients send payments: each payment that is repeated until it is answered
//! counts once.
//!
//! Clients send a payment again, with the same id and to any node, until somebody answers it. Every answer on the way is
//! held against what was known before its request left and what had been sent when it came ([`clients`]). When the last
//! fault is over and all payments are answered, one more payment of each card and shop is compared with a recount
//! ([`payments`]), and so are the rows that the job wrote to two topics, by transactions and with positions, and those of
//! a table, as each node answers SQL. A run in which a fault did not happen, or no answer was checked, fails.
//!
//! `THALWEG_SECONDS` is how long faults go on: each comes once at least, and all of them in another order in the next lap.
//! `THALWEG_SEED` decides payments, their clients, the order of faults, the nodes that they hit and their moments. A seed
//! repeats the attempts, and not the outcomes, which depend on the machine. `THALWEG_OTHER` is a program of another version: every
//! other process that is started is of that, so nodes of both work together, and go on with what the other has left.

mod clients;
mod faults;
mod payments;

use std::fmt::Display;
use std::io::Write as _;
use std::time::{Duration, Instant};

use thalweg_harness::random::Random;

use self::clients::Clients;
use self::faults::{Episode, FAULTS, Scene};
use super::by_position;

/// Payments a second that clients try to send, each of them one after the other.
const RATE: u32 = 200;

const CLIENTS: u32 = 64;

fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Past libtest, which keeps what a test prints that does not fail.
fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
#[ignore = "needs Kafka"]
fn every_payment_that_is_answered_counts_once_whatever_happens_to_nodes_and_broker() {
    let seed = wanted("THALWEG_SEED", 1);
    let time = Duration::from_secs(wanted("THALWEG_SECONDS", 120));
    say(format_args!("disturbed: seed={seed} seconds={}", time.as_secs()));
    let mut scene = Scene::start();
    let clients = Clients::new(scene.job(), seed, scene.ports());
    scene.settle(&clients);
    let mut episodes = Vec::new();
    std::thread::scope(|scope| {
        let _end = clients.end_with_this();
        for client in 0..CLIENTS {
            let clients = &clients;
            scope.spawn(move || clients.send_all(client, f64::from(CLIENTS) / f64::from(RATE)));
        }
        let begun = Instant::now();
        let mut lap = 0;
        while lap == 0 || begun.elapsed() < time {
            let mut random = Random::new(seed).of("faults", lap);
            let mut order = FAULTS;
            for place in (1..order.len()).rev() {
                order.swap(place, random.between(0, place as u64) as usize);
            }
            for fault in order {
                if lap > 0 && begun.elapsed() >= time {
                    break;
                }
                let episode = scene.play(fault, &mut random, &clients);
                say(&episode);
                episodes.push(episode);
            }
            lap += 1;
        }
    });
    for fault in FAULTS {
        assert!(episodes.iter().any(|episode: &Episode| episode.fault == fault), "{fault:?} did not come");
    }
    clients.recount();
    let sink = format!("{}/marked", scene.job());
    clients.recount_table(|sql| scene.ask_all(sql));
    clients.recount_rows("transactions", || scene.rows("once").into_iter().map(|(_, row)| row).collect());
    clients.recount_rows("positions", || by_position(scene.rows("marked"), &sink));
    say(clients.summary());
    scene.end();
}
