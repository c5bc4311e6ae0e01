//! Calls of a client that may not return, by a thread that may wait for ever.
//!
//! `rd_kafka_send_offsets_to_transaction` takes a time-out and does not keep to it: where the coordinator of the group goes
//! away at the wrong moment, it waits for ever (librdkafka's issues 5456 and 5511, both open). Whoever asks hears in time that
//! the outcome is not known, and goes on with another client; the thread ends with the call, if it ever does, and the old
//! client with it.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Duration;

use crate::{BusError, Problem};

/// How much longer than its own time-out a call may take.
const GRACE: Duration = Duration::from_secs(1);

type Step = Box<dyn FnOnce() + Send>;

/// A thread for calls, one after the other.
pub(super) struct Steps {
    to: Sender<Step>,
    patience: Duration,
}

impl Steps {
    /// For calls that should not take longer than `timeout`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(timeout: Duration) -> Result<Self, BusError> {
        let (to, steps): (_, Receiver<Step>) = channel();
        std::thread::Builder::new()
            .name("kafka:transact".to_owned())
            .spawn(move || steps.into_iter().for_each(|step| step()))
            .map_err(|error| BusError::new(Problem::Other, "make a producer", error.to_string()))?;
        Ok(Self { to, patience: timeout.saturating_add(GRACE) })
    }

    /// What a call gives. After one that did not return in time no other one does.
    ///
    /// # Errors
    /// Where it does not return in time: its outcome is not known.
    pub(super) fn call<T: Send + 'static>(
        &self,
        action: &str,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BusError> {
        let (sender, done) = sync_channel(1);
        let step = Box::new(move || {
            let _ = sender.send(step());
        });
        let taken = self.to.send(step).map(|()| done.recv_timeout(self.patience));
        taken.ok().and_then(Result::ok).ok_or_else(|| {
            let said = format!("the client has not returned within {:?}, and is given up", self.patience);
            BusError::new(Problem::OutcomeUnknown, action, said)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_hears_in_time_of_a_call_that_does_not_return() {
        let steps = Steps { patience: Duration::from_millis(50), ..Steps::start(Duration::ZERO).unwrap() };
        assert_eq!(steps.call("add", || 1 + 1).unwrap(), 2);
        let (never, waits) = channel::<()>();
        let error = steps.call("commit", move || waits.recv().is_ok()).unwrap_err();
        assert_eq!(error.problem, Problem::OutcomeUnknown);
        assert!(error.to_string().contains("commit") && error.to_string().contains("given up"), "{error}");
        // Nothing passes it.
        assert!(steps.call("add", || 1 + 1).is_err());
        drop(never);
    }
}
