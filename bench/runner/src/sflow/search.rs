//! The highest rate without loss: doubling, then halving the interval between a rate that held and one that did not.

use anyhow::Result;

/// A share of samples above this is a loss.
pub(super) const LOSS: f64 = 0.001;

/// One attempt at a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// What the sender came to.
    pub(super) sent_rate: f64,
    /// Share of the samples that did not come out.
    pub(super) lost: f64,
    /// Processor time of a sample that came out, in microseconds; the start of the collector is in it.
    pub(super) cpu: f64,
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Highest {
    /// Samples per second as sent; 0 where even the first rate lost some.
    pub(super) rate: f64,
    /// Whether the sender could not send more, so that the collector's own limit is above.
    pub(super) is_senders_limit: bool,
    /// At that rate.
    pub(super) cpu: f64,
}

/// Steps of halving: a sixteenth of the interval, some 6 % of the rate.
const STEPS: usize = 4;

/// A sender that comes to less than this part of the requested rate is at its limit.
const KEPT: f64 = 0.95;

pub(super) fn highest(first: f64, mut trial: impl FnMut(f64) -> Result<Trial>) -> Result<Highest> {
    let (mut held, mut is_senders_limit, mut cpu) = (0.0, false, f64::NAN);
    let mut asked = first;
    let lost_at = loop {
        let outcome = trial(asked)?;
        if outcome.lost > LOSS {
            break asked;
        }
        (held, cpu) = (outcome.sent_rate, outcome.cpu);
        if outcome.sent_rate < asked * KEPT {
            is_senders_limit = true;
            return Ok(Highest { rate: held, is_senders_limit, cpu });
        }
        asked *= 2.0;
    };
    if held == 0.0 {
        return Ok(Highest { rate: 0.0, is_senders_limit, cpu });
    }
    let (mut low, mut high) = (lost_at / 2.0, lost_at);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        let outcome = trial(middle)?;
        if outcome.lost > LOSS {
            high = middle;
        } else {
            low = middle;
            (held, cpu) = (outcome.sent_rate, outcome.cpu);
            is_senders_limit = outcome.sent_rate < middle * KEPT;
        }
    }
    Ok(Highest { rate: held, is_senders_limit, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(limit: f64, sender: f64) -> Highest {
        let trial = |asked: f64| {
            let sent_rate = asked.min(sender);
            Ok(Trial { sent_rate, lost: (1.0 - limit / sent_rate).max(0.0), cpu: 2.0 })
        };
        highest(10_000.0, trial).unwrap()
    }

    #[test]
    fn the_rate_is_found_to_a_few_percent() {
        // The rate before a loss is below the limit by a step at most.
        for limit in [10_500.0, 31_000.0, 79_000.0, 1_000_000.0] {
            let found = search(limit, 1e9);
            assert!((limit * 0.90..=limit * 1.01).contains(&found.rate), "{found:?} for {limit}");
            assert!(!found.is_senders_limit);
        }
    }

    #[test]
    fn a_sender_that_cannot_more_is_named() {
        let found = search(1e9, 500_000.0);
        assert_eq!(found, Highest { rate: 500_000.0, is_senders_limit: true, cpu: 2.0 });
    }

    #[test]
    fn a_collector_that_always_loses_has_no_rate() {
        assert_eq!(search(5_000.0, 1e9).rate, 0.0);
    }
}
