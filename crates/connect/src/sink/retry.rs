//! Retries of a sink while the system that it writes to cannot be reached: it waits, longer each time, and says so
//! once.

use std::sync::Arc;
use std::time::Duration;

use thalweg_types::{Error, Micros, format_duration};
use tokio::time::{Instant, sleep};

use super::outbox::Outbox;
use crate::{Mistake, OptionKind, OptionSpec, Options, SinkContext, SinkReport};

pub(crate) const RETRY_FOR: OptionSpec = OptionSpec {
    key: "retry_for",
    kind: OptionKind::Duration,
    required: false,
    default: None,
    doc: "how long the server may be unreachable before the job fails; unlimited, if absent",
};
pub(crate) const RETRY_WAIT: OptionSpec = OptionSpec {
    key: "retry_wait",
    kind: OptionKind::Duration,
    required: false,
    default: Some("10s"),
    doc: "longest wait between two attempts while the server is unreachable; waits start short and double",
};

/// Wait after the first failed try, if the longest is not shorter.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

pub(crate) fn duration(micros: Micros) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

/// Options of which a zero leaves no time for anything (a timeout) or no pause between tries.
pub(crate) fn zeros<'a>(
    options: &'a Options,
    specs: &'a [&'a OptionSpec],
) -> impl Iterator<Item = Mistake> + 'a {
    specs.iter().filter(|spec| options.duration(spec.key) == Some(0)).map(|spec| {
        let error = Error::user("expected a duration above zero, got 0s");
        Mistake::new(
            spec.key,
            match spec.default {
                Some(default) => error.with_hint(format!("leave it out to have {default}")),
                None => error,
            },
        )
    })
}

/// Why a try failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may work later. `unknown`: it may have worked all the same.
    Passing { error: Error, unknown: bool, wait: Option<Duration> },
    /// It will never work.
    Lasting(Error),
}

/// Counts tries and outages of one sink.
pub(crate) struct Retry {
    sink: Arc<str>,
    report: SinkReport,
    longest: Duration,
    give_up_after: Option<Duration>,
    outage: Option<Outage>,
    /// State of the generator that spreads waits, so that many sinks do not come back in step.
    random: u64,
}

struct Outage {
    since: Instant,
    tries: u32,
}

impl Retry {
    /// For the sink of a job file that delivers the items of `outbox`.
    pub(crate) fn of<T>(context: &SinkContext, outbox: &Arc<Outbox<T>>) -> Self {
        // The name spreads the waits of the sinks of a job, the address of the outbox those of processes.
        let seed = thalweg_types::hash_bytes(context.name.as_bytes()) ^ Arc::as_ptr(outbox).addr() as u64;
        Self::new(&context.name, &context.options, context.report.clone(), seed)
    }

    /// `seed` spreads the waits.
    fn new(sink: &Arc<str>, options: &Options, report: SinkReport, seed: u64) -> Self {
        Self {
            sink: Arc::clone(sink),
            report,
            longest: options.duration(RETRY_WAIT.key).map_or(LONGEST_WAIT, duration),
            give_up_after: options.duration(RETRY_FOR.key).map(duration),
            outage: None,
            random: seed | 1,
        }
    }

    pub(crate) fn report(&self) -> &SinkReport {
        &self.report
    }

    /// Waits until it makes sense to try again; as many as `records` may be there twice then.
    ///
    /// # Errors
    /// If the trouble will not pass, or has lasted longer than it may.
    pub(crate) async fn wait(&mut self, trouble: Trouble, records: u64) -> Result<(), Error> {
        match trouble {
            Trouble::Lasting(error) => Err(error),
            Trouble::Passing { error, unknown, wait } => {
                let wait = self.failed(Instant::now(), error, wait)?;
                if unknown {
                    self.report.add_repeated(records);
                }
                sleep(wait).await;
                Ok(())
            }
        }
    }

    /// A try failed at `now`, for something that may pass: how long to wait before the next.
    ///
    /// # Errors
    /// `error` itself where the outage has lasted longer than it may.
    fn failed(&mut self, now: Instant, error: Error, at_least: Option<Duration>) -> Result<Duration, Error> {
        let outage = match &mut self.outage {
            Some(outage) => outage,
            none => {
                tracing::warn!(
                    sink = &*self.sink,
                    error = error.chain(),
                    "waiting for the sink's target; nothing is lost meanwhile"
                );
                none.insert(Outage { since: now, tries: 0 })
            }
        };
        let lasted = now.saturating_duration_since(outage.since);
        if let Some(limit) = self.give_up_after.filter(|limit| lasted >= *limit) {
            let limit = format_duration(i64::try_from(limit.as_micros()).unwrap_or(Micros::MAX));
            return Err(error
                .context(format!("sink {:?} has waited for {limit} (retry_for)", self.sink))
                .with_hint("start the job again once the other system is well, or raise retry_for"));
        }
        let wait = FIRST_WAIT.min(self.longest).saturating_mul(1 << outage.tries.min(20)).min(self.longest);
        outage.tries += 1;
        // Between half of it and all of it.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        let spread = wait / 2 + (wait / 2).mul_f64(part);
        Ok(spread.max(at_least.unwrap_or_default().min(self.longest)))
    }

    /// Everything has been sent: says how many records may be there twice, if any.
    pub(crate) fn finished(&self) {
        let repeated = self.report.repeated();
        if repeated > 0 {
            tracing::warn!(
                sink = &*self.sink,
                repeated,
                "records were sent again because nobody knew whether they had arrived"
            );
        }
    }

    /// A try went well at `now`.
    pub(crate) fn succeeded(&mut self, now: Instant) {
        if let Some(Outage { since, tries }) = self.outage.take() {
            let seconds = now.saturating_duration_since(since).as_secs_f64();
            tracing::info!(sink = &*self.sink, seconds, tries, "the sink's target answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptionValue;
    use thalweg_testing::logs::said_here;

    fn retry(entries: &[(&str, OptionValue)], seed: u64) -> Retry {
        let options =
            Options(entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect());
        Retry::new(&"answers".into(), &options, SinkReport::default(), seed)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let now = Instant::now();
        let waits = |seed: u64| {
            let mut retry = retry(&[("retry_wait", OptionValue::Duration(3_000_000))], seed);
            (0..12).map(|_| retry.failed(now, Error::external("down"), None).unwrap()).collect::<Vec<_>>()
        };
        let first = waits(1);
        for (number, wait) in first.iter().enumerate() {
            let full = Duration::from_millis(100 << number).min(Duration::from_secs(3));
            assert!(*wait >= full / 2 && *wait <= full, "try {number} waits {wait:?}");
        }
        assert_ne!(first, waits(7));
        let mut retry = retry(&[], 1);
        let asked = retry.failed(now, Error::external("busy"), Some(Duration::from_secs(4))).unwrap();
        assert_eq!(asked, Duration::from_secs(4), "it waits as long as asked");
        let asked = retry.failed(now, Error::external("busy"), Some(Duration::from_secs(4_000))).unwrap();
        assert_eq!(asked, LONGEST_WAIT);
    }

    #[test]
    fn an_outage_is_told_once_and_its_end_once() {
        let now = Instant::now();
        let said = said_here(|| {
            let mut retry = retry(&[], 1);
            retry.succeeded(now);
            for _ in 0..2 {
                for _ in 0..5 {
                    retry.failed(now, Error::external("connection refused"), None).unwrap();
                }
                retry.succeeded(now);
                retry.succeeded(now);
            }
        });
        let count = |text: &str| said.matches(text).count();
        assert_eq!((count("waiting for the sink's target"), count("answers again")), (2, 2), "{said}");
        assert!(said.contains("connection refused") && said.contains("answers"), "{said}");
    }

    #[test]
    fn an_outage_that_lasts_too_long_fails_the_job() {
        let start = Instant::now();
        let mut retry = retry(&[("retry_for", OptionValue::Duration(60_000_000))], 1);
        let mut fails =
            |seconds| retry.failed(start + Duration::from_secs(seconds), Error::external("down"), None);
        assert!(fails(0).is_ok() && fails(59).is_ok());
        assert_eq!(fails(60).unwrap_err().message(), "sink \"answers\" has waited for 1m (retry_for): down");
        retry.succeeded(start);
        let again = retry.failed(start + Duration::from_secs(100), Error::external("down"), None);
        assert!(again.is_ok(), "another outage has time of its own");
    }
}
