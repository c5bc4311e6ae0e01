//! How a tally runs.
//!
//! A worker for each partition of the input counts into a small table of its own. When that is full its groups go to the
//! tables of all, which are divided by hashes ([`super::parts`]). Where a worker sees that few of its rows were of groups that
//! it had already, its rows go there at once. Outputs wait for all workers; each has the groups of some parts.
//!
//! Policy when full: a worker that has its share of the memory, or gets no more of it, brings all that it has and begins
//! anew; the workers' share is a quarter of the query's. A part that gets no memory fails the query.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};

use super::groups::{Addend, Group, Groups, Layout};
use super::key::KeyColumn;
use super::parts::{Parts, Scattered};
use super::plan::{Best, Grouping, MOST_BEST, Sum};
use super::spare::Spare;
use super::texts::{NumberedTexts, SharedTexts};

/// Parts that the groups of all workers are divided into, or one for each output if there are more of these.
const PARTS: usize = 64;

/// A part's table begins with room for so many times the records that it is given first, as others follow: growing step by
/// step took a tenth of a query's time.
const PART_ROOM: usize = 4;

/// A worker whose groups have no more rows than this, on average, has no table of its own any more.
const FEW_ROWS: usize = 3;

/// Fewer groups and records are not worth to be brought early.
const LEAST_BROUGHT: usize = 1 << 12;

/// How much is taken together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Groups of a worker's own table, which stays in the processor's caches.
    pub(super) own_groups: usize,
    /// Words of the records of a part that a worker brings at once.
    pub(super) brought: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { own_groups: 1 << 13, brought: 1 << 12 }
    }
}

/// A partition of the output, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) partition: usize,
    pub(super) of: usize,
}

type Done = Shared<BoxFuture<'static, Result<Arc<Answer>, Arc<DataFusionError>>>>;

/// Runs that somebody has not taken all outputs of, beside the memory for them. All outputs that an execution of the plan
/// takes have to be of one run: another may divide the groups otherwise.
pub(super) struct Runs {
    open: Mutex<Vec<Run>>,
    sizes: Sizes,
    spare: Arc<Spare>,
}

struct Run {
    /// With the last one that has it, its workers end.
    done: Done,
    taken: Vec<bool>,
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runs")
    }
}

impl Runs {
    pub(super) fn new(sizes: Sizes, spare: Arc<Spare>) -> Self {
        Self { open: Mutex::default(), sizes, spare }
    }

    /// None yet, with the same memory.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.sizes, Arc::clone(&self.spare))
    }

    /// The batches of an output, of the oldest run whose output that nobody has taken, or else of a new one.
    pub(super) fn join(
        &self,
        output: Output,
        grouping: &Arc<Grouping>,
        input: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<impl Stream<Item = Result<RecordBatch, DataFusionError>> + use<>, DataFusionError> {
        let mut runs = lock(&self.open);
        let at = match runs.iter().position(|run| !run.taken[output.partition]) {
            Some(at) => at,
            None => {
                let done = begin(output.of, grouping, input, context, self)?.boxed().shared();
                runs.push(Run { done, taken: vec![false; output.of] });
                runs.len() - 1
            }
        };
        runs[at].taken[output.partition] = true;
        let done = runs[at].done.clone();
        runs.retain(|run| run.taken.contains(&false));
        let (grouping, rows) = (Arc::clone(grouping), context.session_config().batch_size());
        let batches = async move {
            let answer = done.await.map_err(DataFusionError::Shared)?;
            Part::new(answer, output.partition, grouping, rows).map(Part::batches)
        };
        Ok(stream::once(batches).try_flatten())
    }
}

/// All work up to where the outputs can be read.
fn begin(
    outputs: usize,
    grouping: &Arc<Grouping>,
    input: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    Runs { sizes, spare, .. }: &Runs,
) -> Result<impl Future<Output = Result<Arc<Answer>, Arc<DataFusionError>>> + use<>, DataFusionError> {
    let inputs = input.output_partitioning().partition_count();
    let pool = context.memory_pool();
    let memory = || MemoryConsumer::new("groups").register(pool);
    let layout = Arc::new(Layout::new(grouping.columns()?.1, grouping.sums.len()));
    let table = |room| Groups::new(Arc::clone(&layout), Arc::clone(spare), room);
    let parts = (PARTS / outputs).max(1) * outputs;
    let meeting = Arc::new(Meeting {
        texts: SharedTexts::default(),
        texts_memory: Mutex::new(memory()),
        parts: Parts::new((0..parts).map(|_| (table(PART_ROOM), memory()))),
    });
    let share = match pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes / 4 / inputs.max(1),
        _ => usize::MAX,
    };
    let mut workers = Vec::with_capacity(inputs);
    for number in 0..inputs {
        let worker = Worker {
            first_part: parts * number / inputs,
            columns: grouping.columns()?.0,
            grouping: Arc::clone(grouping),
            layout: Arc::clone(&layout),
            groups: table(1),
            rows: 0,
            has_table: true,
            own_groups: sizes.own_groups,
            scattered: Scattered::new(parts, Arc::clone(&layout), sizes.brought),
            records: Vec::new(),
            nulls: Vec::new(),
            memory: memory(),
            share,
            meeting: Arc::clone(&meeting),
        };
        workers.push((worker, input.execute(number, Arc::clone(context))?));
    }
    let done = async move {
        // They run from here on, and end with this.
        let workers: Vec<_> =
            workers.into_iter().map(|(worker, input)| SpawnedTask::spawn(worker.run(input))).collect();
        for worker in workers {
            worker.join_unwind().await.map_err(|error| DataFusionError::External(Box::new(error)))??;
        }
        let Some(meeting) = Arc::into_inner(meeting) else {
            return internal_err!("a worker of a tally goes on after its end");
        };
        Answer::new(meeting, outputs).map(Arc::new)
    };
    Ok(done.map(|done| done.map_err(Arc::new)))
}

/// Where the groups of all workers come together.
struct Meeting {
    texts: SharedTexts,
    texts_memory: Mutex<MemoryReservation>,
    parts: Parts,
}

/// A panic in a worker ends the query before anybody reads what it has left.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the rows of one partition of the input.
struct Worker {
    /// It begins to bring with this part, others with others.
    first_part: usize,
    grouping: Arc<Grouping>,
    layout: Arc<Layout>,
    columns: Vec<KeyColumn>,
    /// Its own table.
    groups: Groups,
    /// Rows that `groups` has been given since it was empty.
    rows: usize,
    /// `groups` is emptied when it has so many.
    own_groups: usize,
    /// Whether rows go to `groups` first.
    has_table: bool,
    scattered: Scattered,
    /// The rows that are being added, and which columns of their keys are null.
    records: Vec<u64>,
    nulls: Vec<u8>,
    memory: MemoryReservation,
    /// Bytes that it may have before it brings what it has.
    share: usize,
    meeting: Arc<Meeting>,
}

impl Worker {
    async fn run(mut self, mut input: SendableRecordBatchStream) -> Result<(), DataFusionError> {
        while let Some(batch) = input.next().await {
            let batch = batch?;
            self.take(&batch)?;
            if self.is_full(batch.num_rows())? {
                self.bring()?;
            }
        }
        self.bring()
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let (rows, stride) = (batch.num_rows(), self.layout.stride());
        if rows == 0 {
            return Ok(());
        }
        self.records.resize(rows * stride, 0);
        self.nulls.clear();
        self.nulls.resize(rows, 0);
        let texts = &self.meeting.texts;
        let before = texts.bytes();
        for (column, key) in self.columns.iter_mut().zip(&self.grouping.keys) {
            let values = key.evaluate(batch)?.into_array(rows)?;
            // Behind the head.
            column.write(&values, texts, &mut self.records[1..], stride, &mut self.nulls)?;
        }
        if texts.bytes() > before {
            lock(&self.meeting.texts_memory).try_resize(texts.bytes())?;
        }
        let addends =
            self.grouping.sums.iter().map(|sum| sum.addend(batch)).collect::<Result<Vec<_>, _>>()?;
        self.layout.complete(&mut self.records, &self.nulls, &addends);
        if !self.has_table {
            return self.scattered.add(&self.records, &self.meeting.parts);
        }
        self.groups.add(&self.records);
        self.rows += rows;
        if self.groups.len() >= self.own_groups {
            self.has_table = self.rows > self.groups.len() * FEW_ROWS;
            self.scatter()?;
            if self.has_table {
                self.groups.clear();
            } else {
                self.groups.free();
            }
        }
        Ok(())
    }

    /// Brings the groups of its own table on their way. Whoever calls it empties the table.
    fn scatter(&mut self) -> Result<(), DataFusionError> {
        self.rows = 0;
        self.scattered.add(self.groups.places(), &self.meeting.parts)
    }

    /// Takes the memory that the next rows may need, if they are as many as these. Whether there is none.
    fn is_full(&mut self, rows: usize) -> Result<bool, DataFusionError> {
        let columns = self.columns.iter().map(KeyColumn::bytes).sum::<usize>();
        let records = self.scattered.bytes() + self.records.capacity() * size_of::<u64>();
        let groups = if self.has_table { self.groups.bytes_with(rows) } else { 0 };
        let bytes = columns + records + groups;
        let held = self.memory.try_resize(bytes);
        if self.groups.len() + self.scattered.len() >= LEAST_BROUGHT {
            return Ok(held.is_err() || bytes > self.share);
        }
        held.map(|()| false)
    }

    /// Brings all groups to where they meet those of others, and forgets them.
    fn bring(&mut self) -> Result<(), DataFusionError> {
        self.scatter()?;
        self.groups.free();
        self.columns.iter_mut().for_each(KeyColumn::clear);
        self.scattered.bring(self.first_part, &self.meeting.parts)?;
        self.memory.free();
        Ok(())
    }
}

/// What has come together.
struct Answer {
    texts: NumberedTexts,
    /// Of each output, until it is read.
    tables: Vec<Mutex<Option<Tables>>>,
    _texts_memory: MemoryReservation,
}

type Tables = Vec<(Groups, MemoryReservation)>;

impl Answer {
    fn new(meeting: Meeting, outputs: usize) -> Result<Self, DataFusionError> {
        let mut parts: Tables = meeting.parts.into_tables().collect();
        let each = parts.len() / outputs;
        let tables = (0..outputs).map(|_| Mutex::new(Some(parts.drain(..each).collect()))).collect();
        let memory = meeting.texts_memory.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { texts: meeting.texts.finish(), tables, _texts_memory: memory })
    }
}

/// One output while it is read.
struct Part {
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
    At(std::vec::IntoIter<(usize, usize)>),
    /// All from this place of this table on, but those that come behind one of this rank.
    From { table: usize, place: usize, last: Option<(Ranking, u64)> },
}

impl Part {
    fn new(
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
            None => Rest::From { table: 0, place: 0, last: None },
        };
        Ok(Self { answer, tables, grouping, columns, rest, batch_rows })
    }

    fn batches(self) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
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
                groups.extend(places.map(|(table, place)| self.tables[table].0.at(place)));
            }
            Rest::From { table, place, last } => {
                // Nulls are for the reader to put in order.
                let is_wanted = |group: &Group<'_>| {
                    last.is_none_or(|(ranking, last)| ranking.of(group).is_none_or(|rank| rank >= last))
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

/// Places of groups that may be among the first are noted until there are so many; beyond that, as where all have the same
/// sum, those that are wanted are looked for once more while they are given out.
const MOST_NOTED: usize = 1 << 16;
const _: () = assert!(MOST_NOTED > 2 * MOST_BEST);

/// The groups that are not behind `count` others, and all that have no rank.
fn first_of(tables: &Tables, ranking: Ranking, count: usize) -> Rest {
    // The ranks of the first so far, the last of them on top.
    let mut first = BinaryHeap::with_capacity(count);
    let mut noted = Some(Vec::new());
    let mut room = 4 * count;
    for (table, (groups, _)) in tables.iter().enumerate() {
        for (place, group) in groups.iter() {
            let rank = ranking.of(&group);
            if let Some(rank) = rank {
                if first.len() < count {
                    first.push(Reverse(rank));
                } else if let Some(mut last) = first.peek_mut() {
                    match rank.cmp(&last.0) {
                        Ordering::Less => continue,
                        Ordering::Equal => {}
                        Ordering::Greater => *last = Reverse(rank),
                    }
                }
            }
            let Some(places) = &mut noted else { continue };
            places.push((rank, table, place));
            if places.len() > room {
                let last = last_of(&first, count);
                places.retain(|(rank, ..)| rank.is_none_or(|rank| rank >= last));
                room = places.len() * 2;
                if places.len() > MOST_NOTED {
                    noted = None;
                }
            }
        }
    }
    let last = last_of(&first, count);
    match noted {
        Some(places) => {
            let first = places.into_iter().filter(|(rank, ..)| rank.is_none_or(|rank| rank >= last));
            Rest::At(first.map(|(_, table, place)| (table, place)).collect::<Vec<_>>().into_iter())
        }
        None => Rest::From { table: 0, place: 0, last: Some((ranking, last)) },
    }
}

/// The rank that nobody wanted is behind, of the first so far; 0, which all have, as long as these are fewer.
fn last_of(first: &BinaryHeap<Reverse<u64>>, count: usize) -> u64 {
    first.peek().filter(|_| first.len() == count).map_or(0, |last| last.0)
}

/// How groups come one behind the other.
#[derive(Clone, Copy)]
struct Ranking {
    sum: usize,
    /// A sum that has met no value; `None`: it is null.
    empty: Option<u64>,
    flip: u64,
}

impl Ranking {
    /// A number that is the larger the earlier a group comes; `None` where nulls decide.
    fn of(&self, group: &Group<'_>) -> Option<u64> {
        Some(group.sum(self.sum).or(self.empty)? ^ self.flip)
    }
}

impl Grouping {
    fn ranking(&self, best: &Best) -> Ranking {
        let field = self.schema.field(self.keys.len() + best.sum);
        let sign = if *field.data_type() == DataType::Int64 { 1 << 63 } else { 0 };
        Ranking {
            sum: best.sum,
            empty: (!field.is_nullable()).then_some(0),
            flip: if best.is_descending { sign } else { !sign },
        }
    }

    /// The columns of a key, and how many words they have.
    pub(super) fn columns(&self) -> Result<(Vec<KeyColumn>, usize), DataFusionError> {
        let types = self.schema.fields().iter().take(self.keys.len()).map(|field| field.data_type());
        match KeyColumn::all(types) {
            Some(columns) => Ok(columns),
            None => internal_err!("a tally of columns that it does not know"),
        }
    }
}

impl Sum {
    fn addend(&self, batch: &RecordBatch) -> Result<Addend, DataFusionError> {
        let rows = batch.num_rows();
        Ok(match self {
            Sum::Rows => Addend::One,
            Sum::Present(of) => {
                let present = of.evaluate(batch)?.into_array(rows)?.logical_nulls();
                present.map_or(Addend::One, Addend::Present)
            }
            Sum::Of(of) => {
                let numbers = of.evaluate(batch)?.into_array(rows)?;
                match numbers.data_type() {
                    DataType::Int64 => Addend::Signed(numbers.as_primitive::<Int64Type>().clone()),
                    DataType::UInt64 => Addend::Unsigned(numbers.as_primitive::<UInt64Type>().clone()),
                    other => return internal_err!("a sum of {other}"),
                }
            }
        })
    }
}
