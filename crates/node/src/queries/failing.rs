//! Queries that were added to a running job and fail: dropped by themselves, each by a command in the job's order.
//!
//! A task whose stage finds that an expression of such a query fails says so here, and goes on: at the records where it
//! fails its values are null, and named in the answers' `errors`. That hangs on the records alone. The drop is a command
//! like that of a client, so a start that follows the order log drops the query at the same place; where a crash came
//! before the command was written down, the same records fail again, and the drop is asked for again.
//!
//! Dropping waits for every task of the stage, so it has a thread of its own while it lasts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thalweg_flow::Job;

use super::LiveQueries;

/// Reports of failing queries of one job, and the thread that drops them.
#[derive(Clone, Default)]
pub struct FailingQueries(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// By operator and name, the query's text and the error; until it is dropped.
    failing: BTreeMap<(Arc<str>, String), (String, String)>,
    /// There once the job is.
    dropper: Option<Dropper>,
}

#[derive(Clone)]
struct Dropper {
    job: Job,
    queries: Arc<BTreeMap<Arc<str>, LiveQueries>>,
}

impl FailingQueries {
    /// Says that a query fails; the first report of it has it dropped. `text` distinguishes it from a later query of
    /// the same name.
    pub(crate) fn report(&self, operator: &Arc<str>, name: &str, text: &str, said: &str) {
        let mut state = self.state();
        let key = (Arc::clone(operator), name.to_owned());
        if state.failing.contains_key(&key) {
            return;
        }
        tracing::error!(
            operator = &**operator,
            query = name,
            said,
            "a query that was added fails at a record: it is dropped, its job goes on"
        );
        state.failing.insert(key.clone(), (text.to_owned(), said.to_owned()));
        if let Some(dropper) = state.dropper.clone() {
            self.begin(dropper, key);
        }
    }

    /// From now on queries are dropped, those of earlier reports first.
    pub(crate) fn attend(&self, job: Job, queries: Arc<BTreeMap<Arc<str>, LiveQueries>>) {
        let dropper = Dropper { job, queries };
        let mut state = self.state();
        state.dropper = Some(dropper.clone());
        let waiting: Vec<_> = state.failing.keys().cloned().collect();
        drop(state);
        waiting.into_iter().for_each(|key| self.begin(dropper.clone(), key));
    }

    fn begin(&self, dropper: Dropper, key: (Arc<str>, String)) {
        let failing = self.clone();
        let thread = std::thread::Builder::new().name("drop-query".to_owned());
        let begun = thread.spawn(move || failing.drop_now(&dropper, &key));
        if let Err(error) = begun {
            tracing::error!(%error, "no thread to drop a failing query; it stays, and its values are null");
        }
    }

    fn drop_now(&self, dropper: &Dropper, key: &(Arc<str>, String)) {
        let (operator, name) = key;
        let Some((text, said)) = self.state().failing.get(key).cloned() else { return };
        if let Some(queries) = dropper.queries.get(operator) {
            match queries.drop_failed(&dropper.job, name, &text, &said) {
                Ok(()) => tracing::warn!(
                    operator = &**operator,
                    query = name.as_str(),
                    "dropped a query that failed"
                ),
                // The job has ended, or is too slow; the next failing record asks again.
                Err(error) => tracing::warn!(
                    operator = &**operator,
                    query = name.as_str(),
                    %error,
                    "a query that failed is not dropped yet"
                ),
            }
        }
        self.state().failing.remove(key);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
