//! Which outputs of a job's queries go on with the state that a checkpoint has, and the state that no output takes.
//!
//! State is kept by output: one more in a query, or one less, leaves the others alone. An output goes on with that of a
//! saved one where the aggregate, its argument, the condition, the GROUP BY and the window are the same, with the types of
//! the fields that they read, over the stream of the same name. The name of the query does not matter.
//!
//! A saved query whose outputs are in several leaves, or began at different times, has several entries of its name.
//!
//! Not here: how the state is read (`restore`).

use std::collections::BTreeSet;

use thalweg_expr::Bound;
use thalweg_types::{Error, Micros, Schema};

use super::manifest::{Manifest, SavedQuery};
use super::nodes::name_of_key;
use super::queries::CallState;
use crate::plan::{PlannedCall, PlannedOutput, PlannedQuery};
use crate::query::{Draft, Query};

/// What a restart makes of a stage's checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continued {
    /// By query and output, whether it goes on with state, of all its aggregates.
    pub kept: Vec<Vec<bool>>,
    /// Saved queries with state that goes.
    pub gone: Vec<Gone>,
}

/// A saved query with state that no output takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub query: String,
    /// As a checkpoint has them: `sum of "x":float64`.
    pub aggregates: Vec<String>,
    /// Whether nothing of the query's state is taken.
    pub is_whole: bool,
}

impl Manifest {
    /// What goes on with the state of this checkpoint over records of `schema`, and what of that goes.
    ///
    /// # Errors
    /// Where a query does not fit the schema.
    pub fn continued(&self, schema: &Schema, queries: &[(&str, &Query)]) -> Result<Continued, Error> {
        let field = |column: usize| {
            let field = &schema.fields()[column];
            (field.name.clone(), field.data_type.to_string())
        };
        let mut continued = Continued::default();
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (name, query) in queries {
            let planned = PlannedQuery::bind(name, query, schema)
                .map_err(|error| Error::user(format!("plan query {name:?}: {error}")))?;
            let kept = find_calls(self, &planned, field);
            let is_kept = |output: &PlannedOutput| kept[output.calls.clone()].iter().all(Option::is_some);
            continued.kept.push(planned.outputs.iter().map(is_kept).collect());
            taken.extend(kept.iter().flatten().map(|kept| (kept.leaf, kept.call)));
        }
        for saved in &self.queries {
            let place =
                continued.gone.iter().position(|gone| gone.query == saved.name).unwrap_or_else(|| {
                    let (query, aggregates) = (saved.name.clone(), Vec::new());
                    continued.gone.push(Gone { query, aggregates, is_whole: true });
                    continued.gone.len() - 1
                });
            let gone = &mut continued.gone[place];
            for call in &saved.outputs {
                match taken.contains(&(saved.leaf, *call)) {
                    true => gone.is_whole = false,
                    false => gone.aggregates.push(self.text_of(saved.leaf, *call)),
                }
            }
        }
        continued.gone.retain(|gone| !gone.aggregates.is_empty());
        Ok(continued)
    }

    /// Records that the checkpoint's stage has been given.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Largest event time that its stage has accepted.
    pub fn task_time(&self) -> Option<Micros> {
        self.task_time
    }

    /// The streams that its queries are over.
    pub fn streams(&self) -> BTreeSet<String> {
        self.queries.iter().filter_map(SavedQuery::stream).collect()
    }

    fn arg(&self, leaf: usize, call: usize) -> Option<&str> {
        let leaf = &self.leaves[leaf];
        let (_, arg) = leaf.calls[call];
        arg.map(|arg| self.args[leaf.args[arg]].fingerprint.as_str())
    }

    fn text_of(&self, leaf: usize, call: usize) -> String {
        let (function, _) = self.leaves[leaf].calls[call];
        match self.arg(leaf, call) {
            Some(arg) => format!("{function} of {arg}"),
            None => function.to_string(),
        }
    }
}

impl SavedQuery {
    fn stream(&self) -> Option<String> {
        Draft::read(&self.fingerprint).stream().map(|(stream, _)| stream.to_owned())
    }
}

/// The saved state of each aggregate of a query, where there is some: that of the query's own name if there are several, then
/// that which began first. `field` gives name and type of a field that the query is bound to.
pub(super) fn find_calls(
    manifest: &Manifest,
    query: &PlannedQuery,
    field: impl Fn(usize) -> (String, String),
) -> Vec<Option<CallState>> {
    let saved: Vec<&SavedQuery> =
        manifest.queries.iter().filter(|saved| is_over_the_same(manifest, saved, query, &field)).collect();
    let found = |planned: &PlannedCall| {
        let is_same = |leaf: usize, call: usize| {
            manifest.leaves[leaf].calls[call].0 == planned.function
                && manifest.arg(leaf, call) == planned.arg.as_ref().map(Bound::fingerprint)
        };
        let candidates = saved.iter().filter_map(|saved| {
            let call = saved.outputs.iter().copied().find(|call| is_same(saved.leaf, *call))?;
            Some((saved, CallState { leaf: saved.leaf, call, since: saved.since }))
        });
        let first = candidates.min_by_key(|(saved, call)| (saved.name != query.name, call.since));
        first.map(|(_, call)| call)
    };
    query.calls.iter().map(found).collect()
}

/// Whether a saved query has the window, the records and the groups of another.
fn is_over_the_same(
    manifest: &Manifest,
    saved: &SavedQuery,
    query: &PlannedQuery,
    field: &impl Fn(usize) -> (String, String),
) -> bool {
    let leaf = &manifest.leaves[saved.leaf];
    let filter = leaf.filter.map(|filter| &manifest.filters[filter].condition);
    let condition = filter.and_then(Option::as_deref);
    let keys = leaf.grouping.map_or(&[][..], |place| &manifest.groupings[place].keys);
    (leaf.kind, leaf.delay) == (query.window, query.delay)
        && condition == query.filter.as_ref().map(Bound::fingerprint)
        && keys.len() == query.group_by.len()
        && query.group_by.iter().all(|key| keys.contains(&name_of_key(key, field)))
        && saved.stream().is_some_and(|stream| stream == query.stream)
}
