//! What the node asks of the queries of a `metrics`: where each runs, and the operator with others.

use std::fmt::Write as _;
use std::sync::Arc;

use thalweg_expr::Expr;
use thalweg_types::{Error, Field, format_duration};
use thalweg_window::plan::PlannedQuery;
use thalweg_window::query::Query;

use crate::continuing::{QueryNews, Saved};
use crate::queries::{Queries, QueryError, QueryPlan, QueryText, Requeried};

use super::spec::{self, MetricsSpec, StageChoice, StageQuery, choose_stage};
use super::{saved, stage_query};

impl MetricsSpec {
    /// The stage that runs a query.
    ///
    /// # Errors
    /// Where none can.
    fn stage_for(&self, query: &PlannedQuery) -> Result<usize, QueryError> {
        let keys: Vec<Vec<usize>> = self.stages.iter().map(|stage| stage.keys.clone()).collect();
        let found = match choose_stage(&keys, &query.group_by) {
            StageChoice::Keyed(stage) => Some(stage),
            StageChoice::Global => keys.iter().position(Vec::is_empty),
            StageChoice::Nowhere => None,
        };
        found.ok_or_else(|| {
            let labels: Vec<&str> = self.stages.iter().map(|stage| &*stage.label).collect();
            let message = format!(
                "expected a query that groups by a key of a running stage ({}), got one that does not",
                labels.join(", ")
            );
            QueryError::Failed(Error::user(message).with_hint(
                "add the key to partition_by, or [] for queries without GROUP BY, and replace the job by the changed \
                 one: PUT /v1/jobs/{job}, or start it again",
            ))
        })
    }

    /// The part that runs a stage: in a link of a chain, that of its own stage alone.
    fn part_of(&self, stage: usize) -> Option<usize> {
        let here = self.form.stages(self.stages.len());
        here.contains(&stage).then(|| stage - here.start)
    }

    /// Checks a query, which may be one of its own.
    fn bind(&self, name: &str, text: &str) -> Result<(StageQuery, PlannedQuery, usize), QueryError> {
        if self.input.field(name).is_some() {
            return Err(QueryError::Exists { name: name.to_owned() });
        }
        // What a job file would not take the job could not go on with.
        if let Some((what, hint)) = spec::refuse_name(name, &self.input) {
            return Err(QueryError::Failed(Error::user(what).with_hint(hint)));
        }
        let operator = format!("operator {:?}", self.name);
        let (query, bound, planned) =
            spec::bind_query(&operator, name, text, &self.input, &self.above).map_err(QueryError::Sql)?;
        let stage = self.stage_for(&planned)?;
        Ok((stage_query(name, text, query, bound, true), planned, stage))
    }

    /// The same operator with other stages.
    pub(super) fn requeried(self) -> Requeried {
        let spec = Arc::new(self);
        Requeried { parts: super::parts(&spec), queries: spec }
    }
}

impl Queries for MetricsSpec {
    fn list(&self) -> Vec<QueryText> {
        let here = self.form.stages(self.stages.len());
        let queries = self.stages[here].iter().flat_map(|stage| &stage.queries);
        let text = |query: &StageQuery| QueryText {
            name: query.name.clone(),
            text: query.text.clone(),
            is_added: query.is_added,
        };
        queries.map(text).collect()
    }

    fn plan(&self, name: &str, text: &str) -> Result<QueryPlan, QueryError> {
        let (query, planned, stage) = self.bind(name, text)?;
        let key = spec::fields_of(&planned.group_by);
        let place = |field: &usize| key.iter().position(|other| other == field);
        let part = self.part_of(stage).ok_or_else(|| {
            QueryError::Failed(Error::internal(format!("query {name:?} runs in another link of the chain")))
        })?;
        let split_by = self.stages[stage].keys.iter().map(place);
        Ok(QueryPlan {
            part,
            split_by: split_by.collect::<Option<_>>().expect("a query groups by the key of its stage"),
            key: key.iter().map(|field| self.input.fields()[*field].clone()).collect::<Vec<Field>>(),
            words: words(&query.query),
        })
    }

    fn with(&self, name: &str, text: &str) -> Result<Requeried, QueryError> {
        let (query, _, stage) = self.bind(name, text)?;
        let mut spec = self.clone();
        spec.stages[stage].queries.push(query);
        Ok(spec.requeried())
    }

    fn without(&self, name: &str) -> Requeried {
        let mut spec = self.clone();
        for stage in &mut spec.stages {
            stage.queries.retain(|query| query.name != name);
        }
        spec.requeried()
    }

    fn is_same(&self, one: &str, other: &str) -> bool {
        let fingerprint = |text: &str| Query::parse(text).map(|query| query.fingerprint()).ok();
        one == other || fingerprint(one) == fingerprint(other)
    }

    fn explain(&self, part: usize, names: &[&str]) -> Result<Vec<String>, Error> {
        let queries = self.stages[part].queries.iter();
        let queries: Vec<&StageQuery> =
            queries.filter(|query| names.contains(&query.name.as_str())).collect();
        spec::explain(self, &queries)
    }

    fn news(&self, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
        saved::news(self, saved)
    }

    fn going_on(&self, saved: &Saved<'_>) -> Option<Requeried> {
        saved::told_missed(self, saved).map(MetricsSpec::requeried)
    }
}

/// `window -> filter -> group by -> aggregates` of one query.
fn words(parsed: &Query) -> String {
    const NEVER_FAILS: &str = "writing to a string cannot fail";
    let mut plan = format!("window {}", parsed.window);
    if parsed.delay != 0 {
        write!(plan, " DELAYED BY {}", format_duration(parsed.delay)).expect(NEVER_FAILS);
    }
    if let Some(filter) = &parsed.filter {
        write!(plan, " -> filter {filter}").expect(NEVER_FAILS);
    }
    let name = |key: &Expr| match key.as_field() {
        Some(path) => path.join("."),
        None => parsed.text[key.span()].to_owned(),
    };
    let names: Vec<String> = parsed.group_by.iter().map(name).collect();
    if !names.is_empty() {
        write!(plan, " -> group by {}", names.join(", ")).expect(NEVER_FAILS);
    }
    let outputs: Vec<String> = parsed
        .outputs
        .iter()
        .map(|output| format!("{} AS {}", parsed.text[output.span.clone()].trim(), output.alias))
        .collect();
    let outputs: Vec<&str> = parsed
        .outputs
        .iter()
        .zip(&outputs)
        .map(|(output, aliased)| {
            let written = parsed.text[output.span.clone()].trim();
            // The span holds the alias where one is written.
            if written.ends_with(&output.alias) && written != output.alias {
                written
            } else {
                aliased.as_str()
            }
        })
        .collect();
    write!(plan, " -> {}", outputs.join(", ")).expect(NEVER_FAILS);
    plan
}
