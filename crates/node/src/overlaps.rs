//! Warnings about inputs with an end that are read as they come and overlap in time: the records of one are then late
//! after those of another.
//!
//! Only the times of their first and last records are known ([`thalweg_connect::SourcePlugin::spans`]), so records out
//! of order within a file are not seen, and neither is the end of a packed or long one.

use thalweg_connect::InputSpan;
use thalweg_types::{Micros, format_duration, format_timestamp};

use crate::graph::looking;
use crate::job_file::{CheckedJob, CheckedSource, NodeRef, below};

/// An overlap up to this is disorder that the usual lateness bears.
const USUAL: Micros = 10_000_000;

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub message: String,
    pub hint: &'static str,
}

const BY_TIME: &str = "`order: time`, on the source or at the top level, reads files with an event time side by side by that time";
const CAPTURES: &str = "captures are read one after the other, in the order of their names: merge those of one time, \
     as with `mergecap -w ALL.pcap A.pcap B.pcap`";

/// Warnings of `thalweg check` about a job's inputs. Inputs that cannot be read give none: [`crate::probe`] reports
/// those.
pub fn overlaps(job: &CheckedJob) -> Vec<Overlap> {
    let spans = |source: &CheckedSource| source.plugin.spans(&looking(job, source)).unwrap_or_default();
    // Sources without an event time are as they come.
    let has_time = |source: &CheckedSource| !matches!(source.time, thalweg_connect::SourceTime::Arrival);
    let places: Vec<usize> = (0..job.sources.len()).filter(|place| has_time(&job.sources[*place])).collect();
    if places.iter().all(|place| job.sources[*place].by_time) {
        return Vec::new();
    }
    let spans: Vec<(usize, Vec<InputSpan>)> =
        places.into_iter().map(|place| (place, spans(&job.sources[place]))).collect();
    let mut found: Vec<Overlap> = Vec::new();
    for (place, spans) in &spans {
        let source = &job.sources[*place];
        if !source.by_time {
            found.extend(within(source, spans));
        }
    }
    for (nth, (one, spans_of_one)) in spans.iter().enumerate() {
        for (other, spans_of_other) in &spans[nth + 1..] {
            let [a, b] = [*one, *other].map(|place| &job.sources[place]);
            // Each of them is merged with the other.
            if !(a.by_time && b.by_time) && meet(job, *one, *other) {
                found.extend(between((a, spans_of_one), (b, spans_of_other)));
            }
        }
    }
    found
}

/// Some operator sees the records of both.
fn meet(job: &CheckedJob, one: usize, other: usize) -> bool {
    let reached = below(NodeRef::Source(one), &job.operators);
    below(NodeRef::Source(other), &job.operators).iter().any(|place| reached.contains(place))
}

fn slack(source: &CheckedSource) -> Micros {
    source.lateness.min(USUAL)
}

fn hint(source: &CheckedSource) -> &'static str {
    if source.plugin.has_end(&source.options) { BY_TIME } else { CAPTURES }
}

/// The first input of a source that begins before the end of one that is read before it, and how many do.
fn within(source: &CheckedSource, spans: &[InputSpan]) -> Option<Overlap> {
    let mut newest: Option<(&InputSpan, Micros)> = None;
    let mut first: Option<(&InputSpan, &InputSpan, Micros)> = None;
    let mut count = 0;
    for span in spans {
        if let Some((before, end)) = newest
            && span.first.saturating_add(slack(source)) < end
        {
            count += 1;
            first = first.or(Some((span, before, end)));
        }
        let end = span.last.unwrap_or(span.first);
        if newest.is_none_or(|(_, newest)| newest < end) {
            newest = Some((span, end));
        }
    }
    let (span, before, end) = first?;
    let message = format!(
        "source {:?} reads its inputs one after the other, and they overlap in time ({count} of {}): {:?} begins at \
         {}, and {:?}, which is read before it, goes on to {} at least; records more than {} older than that are late",
        source.name,
        spans.len(),
        span.name,
        format_timestamp(span.first),
        before.name,
        format_timestamp(end),
        format_duration(source.lateness)
    );
    Some(Overlap { message, hint: hint(source) })
}

/// Two sources that are read in turn, block by block.
fn between(one: (&CheckedSource, &[InputSpan]), other: (&CheckedSource, &[InputSpan])) -> Option<Overlap> {
    let whole = |spans: &[InputSpan]| {
        let first = spans.iter().map(|span| span.first).min()?;
        Some((first, spans.iter().map(|span| span.last.unwrap_or(span.first)).max()?))
    };
    let (a, b) = (whole(one.1)?, whole(other.1)?);
    let (begin, end) = (a.0.max(b.0), a.1.min(b.1));
    let slack = slack(one.0).min(slack(other.0));
    (begin.saturating_add(slack) < end).then(|| Overlap {
        message: format!(
            "sources {:?} and {:?} are read as they come, and their records overlap in time from {} to {}: records \
             more than {} older than those before them are late",
            one.0.name,
            other.0.name,
            format_timestamp(begin),
            format_timestamp(end),
            format_duration(one.0.lateness.min(other.0.lateness))
        ),
        hint: if [one.0, other.0].iter().all(|source| source.plugin.has_end(&source.options)) {
            BY_TIME
        } else {
            "merge captures of one time into one; files are read by event time with `order: time`"
        },
    })
}
