//! Order and duplicates of streams, down the graph, and whether operators can judge their records by them.
//!
//! Merged streams have the largest of their spans. Properties that cannot be merged (one rejects late records and
//! another clamps them, one has ids and another has none) are kept in words, and refused where an operator would judge
//! by them: a sink or a `filter` does not.

use std::sync::Arc;

use thalweg_flow::Partitioning;
use thalweg_types::{LatePolicy, Schema};

use crate::diagnostic::Span;
use crate::job_file::section::Section;
use crate::operator::late::late_place;
use crate::operator::{Apart, Clashes, Dedup, PartInput, Prepared, Stream, Tasks};

use super::input::{CheckedInput, Spread};

/// A stream with these fields, made of records of these streams.
pub(super) fn derive(streams: &[Stream], names: &[String], schema: Schema) -> Stream {
    let all = || names.iter().map(String::as_str).zip(streams);
    let known = |told: fn(&Clashes) -> &Option<Arc<str>>| {
        streams.iter().find_map(|stream| told(&stream.clashes).clone())
    };
    let mut clashes = Clashes { late: known(|clashes| &clashes.late), ids: known(|clashes| &clashes.ids) };

    let late = streams[0].late;
    if let Some((name, other)) = all().find(|(_, stream)| stream.late != late) {
        let does = |policy| match policy {
            LatePolicy::Reject => "rejects late records",
            LatePolicy::Clamp => "clamps them",
        };
        let mut told = [(names[0].as_str(), late), (name, other.late)];
        told.sort_by_key(|(_, policy)| *policy == LatePolicy::Clamp);
        let told = told.map(|(name, policy)| format!("{name:?} {}", does(policy)));
        clashes.late.get_or_insert_with(|| told.join(" and ").into());
    }

    // Whoever drops the field with the id has no ids any more.
    let ids = |stream: &Stream| stream.dedup.clone().filter(|dedup| schema.field(&dedup.id).is_some());
    let mut dedup = ids(&streams[0]);
    for (name, stream) in all().skip(1) {
        match (&mut dedup, ids(stream)) {
            (None, None) => {}
            (Some(dedup), Some(other)) if dedup.id == other.id => dedup.span = dedup.span.max(other.span),
            (first, other) => {
                let does = |name: &str, dedup: Option<&Dedup>| match dedup {
                    Some(dedup) => format!("{name:?} finds duplicates by {:?}", dedup.id),
                    None => format!("{name:?} has no `id` with `dedup`"),
                };
                let told = [does(&names[0], first.as_ref()), does(name, other.as_ref())];
                clashes.ids.get_or_insert_with(|| told.join(" and ").into());
            }
        }
    }
    Stream {
        lateness: streams.iter().map(|stream| stream.lateness).max().unwrap_or(0),
        late,
        dedup,
        clashes,
        apart: streams.iter().find_map(|stream| stream.apart.clone()),
        is_judged: streams.iter().all(|stream| stream.is_judged) && late_place(&schema).is_some(),
        schema,
    }
}

/// The stream of an output of an operator with this name and `partitions` tasks where it is split.
pub(super) fn emitted(
    prepared: &Prepared,
    name: &str,
    partitions: u32,
    streams: &[Stream],
    names: &[String],
    schema: Schema,
) -> Stream {
    let mut stream = derive(streams, names, schema);
    stream.is_judged |= prepared.judges() && late_place(&stream.schema).is_some();
    if prepared.is_of_elements() {
        stream.is_judged = false;
        // Not the records that it reads, but records made of them: of one with an id there may be many.
        stream.clashes.ids = None;
        stream.dedup = None;
    }
    if let Some(later) = &prepared.later {
        stream.lateness = stream.lateness.saturating_add(later.behind);
        let is_split = prepared.parts.last().is_some_and(|part| part.tasks == Tasks::Partitions);
        stream.apart = (is_split && partitions > 1).then(|| Apart {
            operator: name.into(),
            key: later.key.clone(),
            tasks: partitions,
        });
    }
    stream
}

/// Whether an operator can judge its records by the order and ids of their streams. `key_option` is the key of the job
/// file that splits it.
pub(super) fn check(
    section: &Section<'_>,
    prepared: &Prepared,
    streams: &[Stream],
    partitions: u32,
    key_option: &str,
    place: Span,
) -> bool {
    if !prepared.judges() {
        return true;
    }
    let what = &section.what;
    let mut can_judge = true;
    for stream in streams {
        let clashes = [
            (&stream.clashes.late, "judges late records", "late"),
            (&stream.clashes.ids, "looks for duplicates", "id` and `dedup"),
        ];
        for (clash, does, keys) in clashes {
            if let Some(clash) = clash {
                can_judge = false;
                section
                    .report
                    .at(place, format!("{what} {does}, and its streams do not agree about them: {clash}"))
                    .hint(format!("give their sources the same `{keys}`, or read them with an operator each"))
                    .report();
            }
        }
        check_apart(section, prepared, stream, (partitions, key_option), place);
    }
    can_judge
}

/// Warns where a repeated record may reach another task than the first time, because an operator without a key spreads
/// records evenly over several.
pub(super) fn check_ids_together(
    section: &Section<'_>,
    streams: &[Stream],
    inputs: &[CheckedInput],
    partitions: u32,
) {
    for (stream, input) in streams.iter().zip(inputs) {
        let Some(dedup) =
            stream.dedup.as_ref().filter(|_| matches!(input.spread, None | Some(Spread::Shuffle)))
        else {
            continue;
        };
        let message = format!(
            "{} has no key, and each of its {partitions} tasks looks for duplicates among its own records: two with the \
             same {:?} may come to different ones",
            section.what, dedup.id
        );
        let hint = format!("`input: {{ from: …, partition: key({}) }}` brings them to one", dedup.id);
        section.report.at(input.spread_span, message).hint(hint).warning().report();
    }
}

/// Warns where records of tasks with a time of their own meet in one task, which takes those of the slower ones for late.
fn check_apart(
    section: &Section<'_>,
    prepared: &Prepared,
    stream: &Stream,
    (partitions, option): (u32, &str),
    place: Span,
) {
    let Some(Apart { operator, key, tasks }) = &stream.apart else { return };
    let name = |place: &usize| stream.schema.fields()[*place].name.clone();
    let names = |places: &[usize]| places.iter().map(name).collect::<Vec<String>>();
    let of = |input: &PartInput| match input {
        PartInput::Outer { partitioning: Partitioning::Key(places), .. } => names(places),
        _ => Vec::new(),
    };
    let judging = prepared.parts.iter().filter(|part| part.judges);
    let keys: Vec<Vec<String>> = judging.flat_map(|part| part.inputs.first().map(of)).collect();
    // A key's partition is a range of its hash, so those of a multiple lie within one each.
    let is_along = |own: &Vec<String>| !key.is_empty() && own == key && partitions.is_multiple_of(*tasks);
    let Some(own) = keys.iter().find(|own| !is_along(own)) else { return };
    let by = if own.is_empty() { "by no key".to_owned() } else { format!("by {}", own.join(", ")) };
    let message = format!(
        "{} is split {by}, and reads what each of {tasks} tasks of {operator:?} emits when its own time has passed: what \
         the slower ones emit may be late",
        section.what
    );
    let alone = format!("`partitions: 1` of {operator:?} gives it one time");
    let hint = match key.is_empty() {
        true => alone,
        false => format!(
            "`{option}: [{}]` and `partitions: {tasks}` keep the tasks apart, or {alone}",
            key.join(", ")
        ),
    };
    section.report.at(place, message).hint(hint).warning().report();
}
