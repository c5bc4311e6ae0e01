//! How a tally runs.
//!
//! A worker for each partition of the input counts into a table of its own, with numbers of its own for texts. In the end
//! it gives its texts the numbers that all share, and brings its groups to the tables that they come together in, one for
//! each partition of the output and each behind a lock; workers begin with different ones. Outputs wait for all workers.
//!
//! Policy when full: a worker that has [`MOST_GROUPS`], its share of the memory, or gets no more of it, brings what it has
//! and begins anew; the workers' share is a quarter of the query's. A table of an output that gets no memory fails the query.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, ArrayRef, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use foldhash::quality::RandomState;
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};

use super::groups::{Addend, Groups};
use super::key::KeyColumn;
use super::plan::{Grouping, Sum};
use super::spare::Spare;
use super::texts::Texts;

/// Groups of a worker.
const MOST_GROUPS: usize = 1 << 20;

/// Fewer are not worth to be brought early.
const LEAST_GROUPS: usize = 1 << 12;

/// Groups that come together before others may run.
const SLICE: usize = 1 << 12;

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
    pub(super) fn new(spare: Arc<Spare>) -> Self {
        Self { open: Mutex::default(), spare }
    }

    /// None yet, with the same memory.
    pub(super) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.spare))
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
                let done = begin(output.of, grouping, input, context, &self.spare)?.boxed().shared();
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
    spare: &Arc<Spare>,
) -> Result<impl Future<Output = Result<Arc<Answer>, Arc<DataFusionError>>> + use<>, DataFusionError> {
    let inputs = input.output_partitioning().partition_count();
    let pool = context.memory_pool();
    let memory = || MemoryConsumer::new("groups").register(pool);
    let (hashes, (_, words)) = (RandomState::default(), grouping.columns()?);
    let table = || Groups::new(words, grouping.sums.len(), hashes.clone(), Arc::clone(spare));
    let meeting = Arc::new(Meeting {
        texts: Mutex::new((Texts::default(), memory())),
        tables: (0..outputs).map(|_| Mutex::new((table(), memory()))).collect(),
    });
    let share = match pool.memory_limit() {
        MemoryLimit::Finite(bytes) => bytes / 4 / inputs.max(1),
        _ => usize::MAX,
    };
    let mut workers = Vec::with_capacity(inputs);
    for number in 0..inputs {
        let worker = Worker {
            number,
            columns: grouping.columns()?.0,
            grouping: Arc::clone(grouping),
            texts: Texts::default(),
            groups: table(),
            words,
            keys: Vec::new(),
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
        Ok(Arc::new(Answer::new(meeting)))
    };
    Ok(done.map(|done| done.map_err(Arc::new)))
}

/// Where the groups of all workers come together.
struct Meeting {
    texts: Mutex<(Texts, MemoryReservation)>,
    /// One for each output.
    tables: Vec<Mutex<(Groups, MemoryReservation)>>,
}

/// A panic in a worker ends the query before anybody reads what it has left.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the rows of one partition of the input.
struct Worker {
    number: usize,
    grouping: Arc<Grouping>,
    columns: Vec<KeyColumn>,
    texts: Texts,
    groups: Groups,
    /// Words of a key.
    words: usize,
    /// Keys of the rows that are being added, and which of their columns are null.
    keys: Vec<u64>,
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
                self.bring().await?;
            }
        }
        self.bring().await
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let rows = batch.num_rows();
        self.keys.clear();
        self.keys.resize(rows * self.words, 0);
        self.nulls.clear();
        self.nulls.resize(rows, 0);
        for (column, key) in self.columns.iter_mut().zip(&self.grouping.keys) {
            let values = key.evaluate(batch)?.into_array(rows)?;
            column.write(&values, &mut self.texts, &mut self.keys, self.words, &mut self.nulls)?;
        }
        let addends =
            self.grouping.sums.iter().map(|sum| sum.addend(batch)).collect::<Result<Vec<_>, _>>()?;
        self.groups.add(&self.keys, &self.nulls, &addends);
        Ok(())
    }

    /// Takes the memory that the next rows may need, if they are as many as these. Whether there is none.
    fn is_full(&mut self, rows: usize) -> Result<bool, DataFusionError> {
        let texts = self.texts.bytes() + self.columns.iter().map(KeyColumn::bytes).sum::<usize>();
        let bytes = self.groups.bytes_with(rows) + texts;
        let held = self.memory.try_resize(bytes);
        if self.groups.len() >= LEAST_GROUPS {
            return Ok(held.is_err() || bytes > self.share || self.groups.len() >= MOST_GROUPS);
        }
        held.map(|()| false)
    }

    /// Brings all groups to where they meet those of others, and forgets them.
    async fn bring(&mut self) -> Result<(), DataFusionError> {
        let texts: Vec<(usize, usize)> = self.columns.iter().filter_map(KeyColumn::text).collect();
        if !texts.is_empty() {
            let (all, memory) = &mut *lock(&self.meeting.texts);
            if let Some(numbers) = all.adopt(std::mem::take(&mut self.texts)) {
                self.groups.rename(&texts, &numbers);
            }
            memory.try_resize(all.bytes())?;
        }
        let outputs = self.meeting.tables.len();
        let parts = self.groups.parts(outputs);
        for output in (0..outputs).map(|output| (output + self.number) % outputs) {
            let mut rest = parts[output].as_slice();
            while !rest.is_empty() {
                {
                    let (table, memory) = &mut *lock(&self.meeting.tables[output]);
                    memory.try_resize(table.bytes_with(rest.len()))?;
                    table.reserve(rest.len());
                    let (some, others) = rest.split_at(rest.len().min(SLICE));
                    table.merge(&self.groups, some);
                    rest = others;
                }
                tokio::task::yield_now().await;
            }
        }
        self.groups.clear();
        self.columns.iter_mut().for_each(KeyColumn::clear);
        self.memory.free();
        Ok(())
    }
}

/// What has come together.
struct Answer {
    texts: StringViewArray,
    /// One for each output, until that is read.
    tables: Vec<Mutex<Option<(Groups, MemoryReservation)>>>,
    _texts_memory: MemoryReservation,
}

impl Answer {
    fn new(meeting: Meeting) -> Self {
        let (mut texts, memory) = meeting.texts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let tables = meeting
            .tables
            .into_iter()
            .map(|table| Mutex::new(Some(table.into_inner().unwrap_or_else(PoisonError::into_inner))));
        Self { texts: texts.finish(), tables: tables.collect(), _texts_memory: memory }
    }
}

/// One output while it is read.
struct Part {
    answer: Arc<Answer>,
    groups: Groups,
    _memory: MemoryReservation,
    grouping: Arc<Grouping>,
    columns: Vec<KeyColumn>,
    /// Up to where groups were given out.
    place: usize,
    batch_rows: usize,
}

impl Part {
    fn new(
        answer: Arc<Answer>,
        output: usize,
        grouping: Arc<Grouping>,
        batch_rows: usize,
    ) -> Result<Self, DataFusionError> {
        let Some((groups, memory)) = lock(&answer.tables[output]).take() else {
            return internal_err!("output {output} of a tally is read twice");
        };
        let columns = grouping.columns()?.0;
        Ok(Self { answer, groups, _memory: memory, grouping, columns, place: 0, batch_rows })
    }

    fn batches(self) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
        stream::try_unfold(self, |mut part| async move {
            let batch = part.next()?;
            Ok(batch.map(|batch| (batch, part)))
        })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let (groups, next) = self.groups.from(self.place, self.batch_rows);
        if groups.is_empty() {
            return Ok(None);
        }
        self.place = next;
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

impl Grouping {
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
