//! Clients that send each payment again until it is answered, and check what answers say.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use thalweg_harness::random::Random;

use super::super::post;
use super::payments::{Answer, CARDS, PROBES, Payment, Recount, SHOPS, Total};

/// A client leaves a node out for as long after it did not answer.
const SHUNNED: Duration = Duration::from_millis(500);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// How long clients wait for a reply: some for longer than a node needs to say that it does not know, others not.
const PATIENCE: [Duration; 3] = [Duration::from_secs(12), Duration::from_secs(12), Duration::from_secs(2)];

/// What asks whether a key answers waits for less.
const PROBE: Duration = Duration::from_millis(1_500);

/// No payment may have to be repeated for longer.
const LIMIT: Duration = Duration::from_secs(180);

/// What is known of the payments of a key while they come.
#[derive(Default)]
struct Known {
    /// Sent at least once.
    begun: AtomicU64,
    answered: AtomicU64,
}

/// What came of all requests.
#[derive(Default)]
struct Tally {
    requests: AtomicU64,
    answered: AtomicU64,
    duplicates: AtomicU64,
    /// Answers whose counts were within their bounds.
    checked: AtomicU64,
    repeats: AtomicU64,
    unknown_504: AtomicU64,
    unavailable_503: AtomicU64,
    full_429: AtomicU64,
    missing_404: AtomicU64,
    /// No connection, or one that ended before its reply.
    broken: AtomicU64,
    /// No reply in the client's patience.
    silent: AtomicU64,
}

/// Counts of a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) answered: u64,
    pub(super) checked: u64,
    requests: u64,
    duplicates: u64,
    repeats: u64,
    unknown_504: u64,
    unavailable_503: u64,
    full_429: u64,
    missing_404: u64,
    broken: u64,
    silent: u64,
}

impl Counts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            answered: self.answered - before.answered,
            checked: self.checked - before.checked,
            requests: self.requests - before.requests,
            duplicates: self.duplicates - before.duplicates,
            repeats: self.repeats - before.repeats,
            unknown_504: self.unknown_504 - before.unknown_504,
            unavailable_503: self.unavailable_503 - before.unavailable_503,
            full_429: self.full_429 - before.full_429,
            missing_404: self.missing_404 - before.missing_404,
            broken: self.broken - before.broken,
            silent: self.silent - before.silent,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "requests={} answered={} duplicates={} repeats={} 504={} 503={} 429={} 404={} broken={} silent={}",
            self.requests,
            self.answered,
            self.duplicates,
            self.repeats,
            self.unknown_504,
            self.unavailable_503,
            self.full_429,
            self.missing_404,
            self.broken,
            self.silent
        )
    }
}

pub(super) struct Clients {
    job: String,
    seed: u64,
    ports: Vec<u16>,
    begun: Instant,
    /// For each port, milliseconds after `begun` until which it is left out.
    shunned: Vec<AtomicU64>,
    /// The next payment of the load, and the next one that asks whether a key answers.
    next: AtomicU64,
    next_probe: AtomicU64,
    cards: Vec<Known>,
    shops: Vec<Known>,
    tally: Tally,
    /// Milliseconds from the first attempt to the answer, the most since it was asked for.
    longest: AtomicU64,
    wrong: Mutex<Vec<String>>,
    has_ended: AtomicBool,
}

/// Ends the load when it is dropped: a check that fails while clients send does not wait for them for ever.
pub(super) struct End<'a>(&'a Clients);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        if thread::panicking() {
            self.0.fail("the run has failed".to_owned());
        }
    }
}

impl Clients {
    pub(super) fn new(job: &str, seed: u64, ports: Vec<u16>) -> Self {
        let known = |count: usize| (0..count).map(|_| Known::default()).collect();
        Self {
            job: job.to_owned(),
            seed,
            shunned: ports.iter().map(|_| AtomicU64::new(0)).collect(),
            ports,
            begun: Instant::now(),
            next: AtomicU64::new(0),
            next_probe: AtomicU64::new(PROBES),
            cards: known(CARDS),
            shops: known(SHOPS),
            tally: Tally::default(),
            longest: AtomicU64::new(0),
            wrong: Mutex::new(Vec::new()),
            has_ended: AtomicBool::new(false),
        }
    }

    pub(super) fn end_with_this(&self) -> End<'_> {
        End(self)
    }

    /// Sends payments until the end, one every `seconds` at most.
    pub(super) fn send_all(&self, client: u32, seconds: f64) {
        let mut random = Random::new(self.seed).of("clients", u64::from(client));
        let mut due = Instant::now() + Duration::from_secs_f64(seconds).mul_f64(f64::from(client) / 64.0);
        while !self.has_ended.load(Ordering::Acquire) && !self.is_wrong() {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let payment = Payment::new(self.seed, self.next.fetch_add(1, Ordering::Relaxed));
            let patience = random.pick(&PATIENCE);
            self.settle_payment(&payment, patience, &mut random);
            due = (due + Duration::from_secs_f64(seconds)).max(Instant::now());
        }
    }

    /// How long it takes from now until a payment of each card and each shop is answered.
    pub(super) fn all_keys_answer(&self) -> Duration {
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..CARDS.max(SHOPS) {
                scope.spawn(|| {
                    let payment = self.probe();
                    let mut random = Random::new(self.seed).of("probes", payment.number);
                    self.settle_payment(&payment, PROBE, &mut random);
                });
            }
        });
        begun.elapsed()
    }

    fn probe(&self) -> Payment {
        Payment::new(self.seed, self.next_probe.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a payment until it is answered.
    fn settle_payment(&self, payment: &Payment, patience: Duration, random: &mut Random) -> Option<Answer> {
        let begun = Instant::now();
        let (card, shop) = (&self.cards[payment.card], &self.shops[payment.shop]);
        card.begun.fetch_add(1, Ordering::SeqCst);
        shop.begun.fetch_add(1, Ordering::SeqCst);
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let mut is_repeat = false;
        while !self.is_wrong() {
            let node = self.choose(random);
            let known = (card.answered.load(Ordering::SeqCst), shop.answered.load(Ordering::SeqCst));
            count(&self.tally.requests);
            if is_repeat {
                count(&self.tally.repeats);
            }
            is_repeat = true;
            match post(self.ports[node], &self.job, &payment.record(), patience) {
                Ok((200, text)) if !text.contains("\"error\":") => {
                    let answer = match Answer::read(payment, &text) {
                        Ok(answer) => answer,
                        Err(error) => {
                            self.fail(error);
                            return None;
                        }
                    };
                    let sent = (card.begun.load(Ordering::SeqCst), shop.begun.load(Ordering::SeqCst));
                    count(&self.tally.answered);
                    if answer.is_duplicate {
                        count(&self.tally.duplicates);
                    }
                    // This one is among those that count, whether it was counted now or before.
                    for (what, known, total, sent) in
                        [("card", known.0, answer.by_card, sent.0), ("shop", known.1, answer.by_shop, sent.1)]
                    {
                        if (known + 1..=sent).contains(&total.count) {
                            count(&self.tally.checked);
                        } else {
                            self.fail(format!(
                                "{}: payments of its {what}: expected {} to {sent}, got {text}",
                                payment.record(),
                                known + 1
                            ));
                        }
                    }
                    card.answered.fetch_add(1, Ordering::SeqCst);
                    shop.answered.fetch_add(1, Ordering::SeqCst);
                    self.longest.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                    return Some(answer);
                }
                Ok((200, text)) if text.contains("\"timeout\"") || text.contains("\"job_stopped\"") => {
                    count(&self.tally.unknown_504);
                }
                Ok((504, _)) => {
                    count(&self.tally.unknown_504);
                }
                Ok((503, _)) => {
                    count(&self.tally.unavailable_503);
                    self.shun(node);
                }
                Ok((429, _)) => {
                    count(&self.tally.full_429);
                }
                Ok((404, _)) => {
                    count(&self.tally.missing_404);
                    self.shun(node);
                }
                Ok((status, text)) => {
                    self.fail(format!("{}: {status} {text}", payment.record()));
                }
                Err(error) => {
                    let is_silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    count(if is_silent { &self.tally.silent } else { &self.tally.broken });
                    self.shun(node);
                }
            }
            if begun.elapsed() > LIMIT {
                self.fail(format!("{} is not answered within {LIMIT:?}", payment.record()));
            }
            thread::sleep(PAUSE);
        }
        None
    }

    /// A node of those that are not left out now; any where all are.
    fn choose(&self, random: &mut Random) -> usize {
        let now = self.begun.elapsed().as_millis() as u64;
        let all: Vec<usize> = (0..self.ports.len()).collect();
        let well: Vec<usize> =
            all.iter().copied().filter(|node| self.shunned[*node].load(Ordering::Relaxed) <= now).collect();
        random.pick(if well.is_empty() { &all } else { &well })
    }

    fn shun(&self, node: usize) {
        let until = (self.begun.elapsed() + SHUNNED).as_millis() as u64;
        self.shunned[node].store(until, Ordering::Relaxed);
    }

    fn fail(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn is_wrong(&self) -> bool {
        !self.wrong.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    #[track_caller]
    pub(super) fn assert_right(&self) {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let few: Vec<&String> = wrong.iter().take(5).collect();
        assert!(wrong.is_empty(), "seed {}: {} answers are wrong: {few:#?}", self.seed, wrong.len());
    }

    pub(super) fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Tally {
            requests,
            answered,
            duplicates,
            checked,
            repeats,
            unknown_504,
            unavailable_503,
            full_429,
            missing_404,
            broken,
            silent,
        } = &self.tally;
        Counts {
            requests: of(requests),
            answered: of(answered),
            duplicates: of(duplicates),
            checked: of(checked),
            repeats: of(repeats),
            unknown_504: of(unknown_504),
            unavailable_503: of(unavailable_503),
            full_429: of(full_429),
            missing_404: of(missing_404),
            broken: of(broken),
            silent: of(silent),
        }
    }

    /// The most that a payment took from its first attempt to its answer since this was called last.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.swap(0, Ordering::Relaxed))
    }

    /// All that were sent.
    fn payments(&self) -> impl Iterator<Item = Payment> {
        let (loads, probes) = (self.next.load(Ordering::Relaxed), self.next_probe.load(Ordering::Relaxed));
        (0..loads).chain(PROBES..probes).map(|number| Payment::new(self.seed, number))
    }

    /// Compares one more payment of each card and shop with all that were sent, once all are answered.
    pub(super) fn recount(&self) {
        self.assert_right();
        let mut recount = Recount::default();
        self.payments().for_each(|payment| recount.add(&payment));
        let counts = self.counts();
        assert_eq!(counts.answered, self.payments().count() as u64, "payments are answered once each");
        // Of a card and of a shop.
        assert_eq!(counts.checked, 2 * counts.answered, "answers are checked");
        let mut random = Random::new(self.seed).of("recount", 0);
        for _ in 0..CARDS.max(SHOPS) {
            let payment = self.probe();
            recount.add(&payment);
            let answer = self.settle_payment(&payment, PATIENCE[0], &mut random);
            self.assert_right();
            let expected: Option<(Total, Total)> = Some(recount.of(&payment));
            let found = answer.map(|answer| (answer.by_card, answer.by_shop));
            assert_eq!(found, expected, "seed {}: {}: card and shop", self.seed, payment.record());
        }
    }

    /// Compares rows that were written with all payments that were sent: each has one that is not of a repeated one, and
    /// those of a card, and of a shop, count from one on. `rows` are asked for until they are all there.
    pub(super) fn recount_rows(&self, what: &str, rows: impl Fn() -> Vec<Value>) {
        let begun = Instant::now();
        let payments: Vec<Payment> = self.payments().collect();
        let found = loop {
            let mut found: BTreeMap<u64, Vec<Answer>> = BTreeMap::new();
            for row in rows() {
                let read = Answer::of_row(self.seed, &row);
                let (number, answer) = read.unwrap_or_else(|error| panic!("{what}: {error}"));
                if !answer.is_duplicate {
                    found.entry(number).or_default().push(answer);
                }
            }
            if payments.iter().all(|payment| found.contains_key(&payment.number)) || begun.elapsed() > LIMIT {
                break found;
            }
        };
        let wrong = payments.iter().filter_map(|payment| {
            let rows = found.get(&payment.number).map_or(0, Vec::len);
            (rows != 1).then(|| format!("{}: {rows} rows", payment.record()))
        });
        let wrong: Vec<String> = wrong.collect();
        let few: Vec<&String> = wrong.iter().take(5).collect();
        assert!(
            wrong.is_empty(),
            "seed {}: {what}: {} of {} payments have not one row after {LIMIT:?}: {few:#?}",
            self.seed,
            wrong.len(),
            payments.len()
        );
        assert_eq!(found.len(), payments.len(), "{what}: payments that nobody sent");
        let of = |key: fn(&Payment) -> usize, total: fn(&Answer) -> Total| {
            let mut counts: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
            for payment in &payments {
                counts.entry(key(payment)).or_default().push(total(&found[&payment.number][0]).count);
            }
            for (key, mut counts) in counts {
                counts.sort_unstable();
                let expected: Vec<u64> = (1..=counts.len() as u64).collect();
                assert_eq!(counts, expected, "seed {}: {what}: counts of key {key}", self.seed);
            }
        };
        of(|payment| payment.card, |answer| answer.by_card);
        of(|payment| payment.shop, |answer| answer.by_shop);
    }

    /// Compares a table with all payments that were sent: `ask` gives what each node says of how many rows there are of
    /// payments that were not repeated, of how many, and their amounts.
    pub(super) fn recount_table(&self, ask: impl Fn(&str) -> Vec<Option<Value>>) {
        let sql = "SELECT count(*) AS rows, count(DISTINCT tx) AS payments, sum(amount) AS amount FROM kept \
            WHERE duplicate IS NULL";
        let (mut count, mut amount) = (0, 0);
        for payment in self.payments() {
            (count, amount) = (count + 1, amount + payment.amount);
        }
        let expected = serde_json::json!({ "rows": count, "payments": count, "amount": amount });
        let begun = Instant::now();
        loop {
            let found = ask(sql);
            if found.iter().all(|found| found.as_ref() == Some(&expected)) {
                return;
            }
            assert!(
                begun.elapsed() < LIMIT,
                "seed {}: a table after {LIMIT:?}: expected {expected} of each node, got {found:?}",
                self.seed
            );
            thread::sleep(Duration::from_secs(1));
        }
    }

    pub(super) fn summary(&self) -> String {
        format!("disturbed: in all {} checked={}", self.counts(), self.counts().checked)
    }
}
