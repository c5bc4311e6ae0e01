//! What the last commit says of the stages of a `metrics`: which queries go on with it, and what new stages have missed.

use std::collections::BTreeSet;

use thalweg_types::{Error, Micros, Schema};
use thalweg_window::query::Query;
use thalweg_window::stage::{Manifest, Missed};

use crate::continuing::{QueryNews, Saved, SavedPart, What};

use super::durable::manifest_in;
use super::spec::{MetricsSpec, StageSpec};

/// The operator with the history that its new stages have missed; `None` if there are none.
pub(super) fn told_missed(spec: &MetricsSpec, saved: &Saved<'_>) -> Option<MetricsSpec> {
    let missed = missed(spec, saved);
    let is_new = |stage: &StageSpec| manifests(saved, &spec.name, &stage.label).is_empty();
    if missed == Missed::Nothing || !spec.stages.iter().any(is_new) {
        return None;
    }
    let mut spec = spec.clone();
    for place in 0..spec.stages.len() {
        if manifests(saved, &spec.name, &spec.stages[place].label).is_empty() {
            spec.stages[place].missed = missed;
        }
    }
    Some(spec)
}

/// What a stage of an operator has missed that has no part in the last commit.
fn missed(spec: &MetricsSpec, saved: &Saved<'_>) -> Missed {
    let is_above = |name: &str| spec.above.iter().any(|above| above == name);
    if !spec.above.iter().any(|name| saved.has_read(name)) {
        return Missed::Nothing;
    }
    // Stages of the operator have seen the same records, those of others the same where they read the same stream.
    let times = |is_it: &dyn Fn(&str, &Manifest) -> bool| -> Option<Micros> {
        let stages = saved.parts().filter(|part| part.name.label.is_some());
        let stages = stages.filter_map(|part| Some((part.name.operator, manifest_in(part.position)?)));
        let times = stages.filter(|(operator, manifest)| is_it(operator, manifest));
        times.filter_map(|(_, manifest)| manifest.task_time()).max()
    };
    let own = times(&|operator, _| *operator == *spec.name);
    let time = own.or_else(|| times(&|_, manifest| manifest.streams().iter().any(|stream| is_above(stream))));
    time.map_or(Missed::Some, Missed::UpTo)
}

/// The queries that begin empty, and those whose state goes.
pub(super) fn news(spec: &MetricsSpec, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
    let mut news = Vec::new();
    for stage in &spec.stages {
        news_of_stage(spec, stage, saved, &mut news)?;
    }
    gone_but(&spec.name, &spec.stages, saved, &mut news)?;
    Ok(news)
}

/// The queries of an operator that is gone.
pub(super) fn gone(operator: &str, saved: &Saved<'_>) -> Result<Vec<QueryNews>, Error> {
    let mut news = Vec::new();
    gone_but(operator, &[], saved, &mut news)?;
    Ok(news)
}

/// The queries of the operator's stages but these.
fn gone_but(
    operator: &str,
    stages: &[StageSpec],
    saved: &Saved<'_>,
    news: &mut Vec<QueryNews>,
) -> Result<(), Error> {
    let labels: BTreeSet<_> = saved.parts_of(operator).filter_map(|part| part.name.label).collect();
    for label in labels.iter().filter(|label| !stages.iter().any(|stage| stage.label == **label)) {
        let Some(manifest) = manifests(saved, operator, label).into_iter().next() else { continue };
        for gone in manifest.continued(&Schema::empty(), &[])?.gone {
            news.push(QueryNews { operator: operator.to_owned(), query: gone.query, what: What::Goes });
        }
    }
    Ok(())
}

fn news_of_stage(
    spec: &MetricsSpec,
    stage: &StageSpec,
    saved: &Saved<'_>,
    news: &mut Vec<QueryNews>,
) -> Result<(), Error> {
    let mut tell = |query: &str, what| {
        news.push(QueryNews { operator: spec.name.to_string(), query: query.to_owned(), what });
    };
    let manifests = manifests(saved, &spec.name, &stage.label);
    let Some(first) = manifests.first() else {
        if missed(spec, saved) != Missed::Nothing {
            stage.queries.iter().for_each(|query| tell(&query.name, What::Begins));
        }
        return Ok(());
    };
    // What has had no record lacks nothing, and leaves nothing.
    if manifests.iter().all(|manifest| manifest.records() == 0) {
        return Ok(());
    }
    let queries: Vec<(&str, &Query)> =
        stage.queries.iter().map(|query| (query.name.as_str(), &query.query)).collect();
    // All tasks have the same queries: they take commands at one place of the order.
    let continued = first.continued(&spec.input, &queries)?;
    for ((name, query), kept) in queries.iter().zip(&continued.kept) {
        let begin = query.outputs.iter().zip(kept).filter(|(_, is_kept)| !**is_kept);
        let outputs: Vec<String> = begin.map(|(output, _)| output.alias.clone()).collect();
        match outputs.len() {
            0 => {}
            all if all == query.outputs.len() => tell(name, What::Begins),
            _ => tell(name, What::BeginsWith { outputs }),
        }
    }
    for gone in continued.gone {
        let what = match gone.is_whole {
            true => What::Goes,
            false => What::GoesOf { aggregates: gone.aggregates },
        };
        tell(&gone.query, what);
    }
    Ok(())
}

/// What the last commit says of the tasks of a stage.
fn manifests(saved: &Saved<'_>, operator: &str, label: &str) -> Vec<Manifest> {
    let is_it = |part: &SavedPart<'_>| part.name.label.as_deref() == Some(label);
    saved.parts_of(operator).filter(is_it).filter_map(|part| manifest_in(part.position)).collect()
}
