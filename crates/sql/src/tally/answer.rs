//! What a tally gives out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use futures_util::stream::{self, Stream};

use super::groups::{Group, Groups, Ranking};
use super::key::KeyColumn;
use super::plan::{Best, Grouping, MOST_BEST};
use super::texts::NumberedTexts;
use super::work::{Meeting, lock};

/// All groups, and the texts that their keys have numbers of.
pub(super) struct Answer {
    texts: NumberedTexts,
    /// Of each output, until it is read.
    tables: Vec<Mutex<Option<Tables>>>,
    _texts_memory: MemoryReservation,
}

type Tables = Vec<(Groups, MemoryReservation)>;

impl Answer {
    pub(super) fn new(Meeting { texts, texts_memory, parts }: Meeting, outputs: usize) -> Self {
        let mut parts: Tables = parts.into_tables().collect();
        let each = parts.len() / outputs;
        Self {
            texts: texts.finish(),
            tables: (0..outputs).map(|_| Mutex::new(Some(parts.drain(..each).collect()))).collect(),
            _texts_memory: texts_memory.into_inner().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// One output while it is read.
pub(super) struct Part {
    answer: Arc<Answer>,
    tables: Tables,
    grouping: Arc<Grouping>,
    columns: Vec<KeyColumn>,
    rest: Rest,
    batch_rows: usize,
}

/// What has not been given out of a part.
enum Rest {
    /// The groups at these places of these tables.
    At(std::vec::IntoIter<Noted>),
    /// All from this place of this table on, but those that have a rank below this one.
    From { table: usize, place: usize, least: Option<(Ranking, u64)> },
}

impl Part {
    pub(super) fn new(
        answer: Arc<Answer>,
        output: usize,
        grouping: Arc<Grouping>,
        batch_rows: usize,
    ) -> Result<Self, DataFusionError> {
        let Some(tables) = lock(&answer.tables[output]).take() else {
            return internal_err!("output {output} of a tally is read twice");
        };
        let columns = grouping.columns()?.0;
        let rest = match &grouping.best {
            Some(best) => first_of(&tables, grouping.ranking(best), best.count),
            None => Rest::From { table: 0, place: 0, least: None },
        };
        Ok(Self { answer, tables, grouping, columns, rest, batch_rows })
    }

    pub(super) fn batches(self) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
        stream::try_unfold(self, |mut part| async move {
            let batch = part.next()?;
            Ok(batch.map(|batch| (batch, part)))
        })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let mut groups = Vec::new();
        match &mut self.rest {
            Rest::At(places) => {
                let places = places.take(self.batch_rows);
                groups
                    .extend(places.map(|(_, table, place)| self.tables[table as usize].0.at(place as usize)));
            }
            Rest::From { table, place, least } => {
                // Nulls are for the reader to put in order.
                let is_wanted = |group: &Group<'_>| {
                    least.is_none_or(|(ranking, least)| ranking.of(group).is_none_or(|rank| rank >= least))
                };
                while groups.len() < self.batch_rows
                    && let Some((next, _)) = self.tables.get(*table)
                {
                    *place = next.read(*place, self.batch_rows, is_wanted, &mut groups);
                    if groups.len() < self.batch_rows {
                        (*table, *place) = (*table + 1, 0);
                    }
                }
            }
        }
        if groups.is_empty() {
            return Ok(None);
        }
        let mut columns = self
            .columns
            .iter()
            .map(|column| column.read(&groups, &self.answer.texts))
            .collect::<Result<Vec<_>, _>>()?;
        let fields = self.grouping.schema.fields().iter().skip(columns.len());
        for (number, field) in fields.enumerate() {
            let sums = groups.iter().map(|group| group.sum(number));
            columns.push(match (field.data_type(), field.is_nullable()) {
                // A count of nothing is 0, a sum of nothing null.
                (DataType::Int64, false) => {
                    Arc::new(Int64Array::from_iter_values(sums.map(|sum| sum.unwrap_or(0).cast_signed())))
                }
                (DataType::Int64, true) => {
                    Arc::new(sums.map(|sum| sum.map(u64::cast_signed)).collect::<Int64Array>()) as ArrayRef
                }
                _ => Arc::new(sums.collect::<UInt64Array>()),
            });
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.grouping.schema), columns)?))
    }
}

/// Places of groups that may be among the first are noted, up to this number: 0.8 MiB for an output. Where more are
/// wanted, as where most have the same sum, they are looked for once more while they are given out.
const MOST_NOTED: usize = 1 << 15;
// What is noted is cut to the first, and those equal to the last of them.
const _: () = assert!(MOST_NOTED > MOST_BEST);

/// A group that may be among the first: its rank, its table, and its place there.
type Noted = (Option<u64>, u32, u32);

/// The groups that are not after `count` others, and all that have no rank.
fn first_of(tables: &Tables, ranking: Ranking, count: usize) -> Rest {
    // The ranks of the first so far, the last of them on top.
    let mut first = BinaryHeap::with_capacity(count);
    let mut noted: Option<Vec<Noted>> = Some(Vec::new());
    let mut room = (4 * count).min(MOST_NOTED);
    for (table, (groups, _)) in tables.iter().enumerate() {
        groups.find(ranking, least_of(&first, count), |place, rank| {
            if let Some(rank) = rank {
                if first.len() == count {
                    first.pop();
                }
                first.push(Reverse(rank));
            }
            let least = least_of(&first, count);
            if let Some(places) = &mut noted {
                places.push((rank, table as u32, place as u32));
                if places.len() == room {
                    places.retain(|(rank, ..)| rank.is_none_or(|rank| rank >= least));
                    room = (places.len() * 2).clamp(room, MOST_NOTED);
                    if places.len() == room {
                        noted = None;
                    }
                }
            }
            least
        });
    }
    let least = least_of(&first, count);
    match noted {
        Some(mut places) => {
            places.retain(|(rank, ..)| rank.is_none_or(|rank| rank >= least));
            Rest::At(places.into_iter())
        }
        None => Rest::From { table: 0, place: 0, least: Some((ranking, least)) },
    }
}

/// The least rank that is needed: that of the last of the first `count`, or 0, the least of all, while there are fewer.
fn least_of(first: &BinaryHeap<Reverse<u64>>, count: usize) -> u64 {
    first.peek().filter(|_| first.len() == count).map_or(0, |last| last.0)
}

impl Grouping {
    fn ranking(&self, best: &Best) -> Ranking {
        let field = self.schema.field(self.keys.len() + best.sum);
        let sign = if *field.data_type() == DataType::Int64 { 1 << 63 } else { 0 };
        Ranking {
            sum: best.sum,
            is_nullable: field.is_nullable(),
            flip: if best.is_descending { sign } else { !sign },
        }
    }
}
