//! How a tally runs.
//!
//! A worker for each partition of the input adds rows to the groups that it has met lately ([`super::recent`]). Groups that
//! go from there, and rows where that has shown no use, go to the tables of all, which are divided by hashes
//! ([`super::parts`]). Outputs wait for all workers; each has the groups of some parts ([`super::answer`]).
//!
//! Policy when full: a worker that has its share of the memory, or gets no more of it, brings all that it has and begins
//! anew; the workers' share is a quarter of the query's. A part that gets no memory fails the query.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array as _, RecordBatch};
use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use futures_util::future::{BoxFuture, FutureExt as _, Shared};
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};

use super::Sizes;
use super::answer::{Answer, Part};
use super::groups::{Addend, Groups, Layout};
use super::key::KeyColumn;
use super::parts::{Parts, Scattered};
use super::plan::{Grouping, Sum};
use super::recent::Recent;
use super::spare::Spare;
use super::texts::SharedTexts;

/// Parts that the groups of all workers are divided into, or one for each output if there are more of these.
const PARTS: usize = 64;

/// A part's table begins with room for this number of times the records that it is given first, as others follow:
/// growing step by step took a tenth of a query's time.
const PART_ROOM: usize = 4;

/// Fewer groups and records are not worth to be brought early.
const LEAST_BROUGHT: usize = 1 << 12;

/// A partition of the output, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) partition: usize,
    pub(super) of: usize,
}

type Done = Shared<BoxFuture<'static, Result<Outcome, Arc<DataFusionError>>>>;

/// What has come of a run.
#[derive(Clone)]
enum Outcome {
    Groups(Arc<Answer>),
    /// Sums may have wrapped around: this plan answers, whose sums do not.
    Wide(Arc<dyn ExecutionPlan>),
}

/// Runs with outputs that were not taken, and the memory for them. All outputs that an execution of the plan
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

    /// The batches of an output, of the oldest run with this output not taken, or else of a new one.
    pub(super) fn join(
        &self,
        output: Output,
        (grouping, wide): (&Arc<Grouping>, &Arc<dyn ExecutionPlan>),
        input: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<impl Stream<Item = Result<RecordBatch, DataFusionError>> + use<>, DataFusionError> {
        let mut runs = lock(&self.open);
        let at = match runs.iter().position(|run| !run.taken[output.partition]) {
            Some(at) => at,
            None => {
                let done = begin(output.of, (grouping, wide), input, context, self)?.boxed().shared();
                runs.push(Run { done, taken: vec![false; output.of] });
                runs.len() - 1
            }
        };
        runs[at].taken[output.partition] = true;
        let done = runs[at].done.clone();
        runs.retain(|run| run.taken.contains(&false));
        let (grouping, rows) = (Arc::clone(grouping), context.session_config().batch_size());
        let context = Arc::clone(context);
        let batches = async move {
            Ok::<_, DataFusionError>(match done.await.map_err(DataFusionError::Shared)? {
                Outcome::Groups(answer) => {
                    Part::new(answer, output.partition, grouping, rows)?.batches().left_stream()
                }
                Outcome::Wide(plan) => plan.execute(output.partition, context)?.right_stream(),
            })
        };
        Ok(stream::once(batches).try_flatten())
    }
}

/// All work up to where the outputs can be read.
fn begin(
    outputs: usize,
    (grouping, wide): (&Arc<Grouping>, &Arc<dyn ExecutionPlan>),
    input: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    Runs { sizes, spare, .. }: &Runs,
) -> Result<impl Future<Output = Result<Outcome, Arc<DataFusionError>>> + use<>, DataFusionError> {
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
            recent: Some(Recent::new(sizes, Arc::clone(&layout), Arc::clone(spare))),
            scattered: Scattered::new(parts, Arc::clone(&layout), sizes.brought),
            records: Vec::new(),
            nulls: Vec::new(),
            memory: memory(),
            share,
            most: vec![0; grouping.sums.len()],
            meeting: Arc::clone(&meeting),
        };
        workers.push((worker, input.execute(number, Arc::clone(context))?));
    }
    let (wide, limits) = (Arc::clone(wide), grouping.limits());
    let done = async move {
        // They run from here on, and end with this.
        let workers: Vec<_> =
            workers.into_iter().map(|(worker, input)| SpawnedTask::spawn(worker.run(input))).collect();
        let mut most = vec![0; limits.len()];
        for worker in workers {
            let of_worker =
                worker.join_unwind().await.map_err(|error| DataFusionError::External(Box::new(error)))??;
            most.iter_mut().zip(of_worker).for_each(|(most, of_worker): (&mut u128, _)| *most += of_worker);
        }
        if most.iter().zip(&limits).any(|(most, limit)| *most > u128::from(*limit)) {
            return Ok(Outcome::Wide(reset_plan_states(wide)?));
        }
        let Some(meeting) = Arc::into_inner(meeting) else {
            return internal_err!("a worker of a tally goes on after its end");
        };
        Ok(Outcome::Groups(Arc::new(Answer::new(meeting, outputs))))
    };
    Ok(done.map(|done| done.map_err(Arc::new)))
}

/// Where the groups of all workers come together.
pub(super) struct Meeting {
    pub(super) texts: SharedTexts,
    pub(super) texts_memory: Mutex<MemoryReservation>,
    pub(super) parts: Parts,
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
    /// What rows are added to first, if many of them are of groups that it has.
    recent: Option<Recent>,
    scattered: Scattered,
    /// The rows that are being added, and which columns of their keys are null.
    records: Vec<u64>,
    nulls: Vec<u8>,
    memory: MemoryReservation,
    /// Bytes that it may have before it brings what it has.
    share: usize,
    /// What no sum of its rows is beyond.
    most: Vec<u128>,
    meeting: Arc<Meeting>,
}

impl Worker {
    /// Takes all rows, and says what no sum of them is beyond.
    async fn run(mut self, mut input: SendableRecordBatchStream) -> Result<Vec<u128>, DataFusionError> {
        while let Some(batch) = input.next().await {
            let batch = batch?;
            self.take(&batch)?;
            if self.is_full()? {
                self.bring()?;
            }
        }
        self.bring()?;
        Ok(self.most)
    }

    fn take(&mut self, batch: &RecordBatch) -> Result<(), DataFusionError> {
        let (rows, stride) = (batch.num_rows(), self.layout.stride());
        if rows == 0 {
            return Ok(());
        }
        // What is there already is zeros and records of this layout, so the words that fill these up are zeros.
        self.records.resize(rows * stride, 0);
        self.nulls.clear();
        self.nulls.resize(rows, 0);
        let texts = &self.meeting.texts;
        let before = texts.bytes();
        for (column, key) in self.columns.iter_mut().zip(&self.grouping.keys) {
            let values = key.evaluate(batch)?.into_array(rows)?;
            column.write(&values, texts, &mut self.records, stride, &mut self.nulls)?;
        }
        if texts.bytes() > before {
            lock(&self.meeting.texts_memory).try_resize(texts.bytes())?;
        }
        let addends =
            self.grouping.sums.iter().map(|sum| sum.addend(batch)).collect::<Result<Vec<_>, _>>()?;
        self.most.iter_mut().zip(&addends).for_each(|(most, addend)| *most += addend.most());
        self.layout.complete(&mut self.records, &self.nulls, &addends);
        let parts = &self.meeting.parts;
        let Some(recent) = &mut self.recent else {
            return self.scattered.add(&self.records, parts);
        };
        let gone = recent.add(&mut self.records);
        self.scattered.add(&self.records[..gone], parts)?;
        if !recent.judge() {
            self.scattered.add(recent.places(), parts)?;
            self.recent = None;
        }
        Ok(())
    }

    /// Holds the memory that it has come to have. Whether that is its share, or there was none left.
    fn is_full(&mut self) -> Result<bool, DataFusionError> {
        let columns = self.columns.iter().map(KeyColumn::bytes).sum::<usize>();
        let records = self.scattered.bytes() + self.records.capacity() * size_of::<u64>();
        let recent = self.recent.as_ref().map_or(0, Recent::bytes);
        let bytes = columns + records + recent;
        let held = self.memory.try_resize(bytes);
        let groups = self.recent.as_ref().map_or(0, Recent::len);
        if groups + self.scattered.len() >= LEAST_BROUGHT {
            return Ok(held.is_err() || bytes > self.share);
        }
        held.map(|()| false)
    }

    /// Brings all groups to where they meet those of others, and forgets them.
    fn bring(&mut self) -> Result<(), DataFusionError> {
        if let Some(recent) = &mut self.recent {
            self.scattered.add(recent.places(), &self.meeting.parts)?;
            recent.free();
        }
        self.columns.iter_mut().for_each(KeyColumn::clear);
        self.scattered.bring(self.first_part, &self.meeting.parts)?;
        self.memory.free();
        Ok(())
    }
}

impl Grouping {
    /// What the type of each sum holds.
    fn limits(&self) -> Vec<u64> {
        let types = self.schema.fields().iter().skip(self.keys.len()).map(|field| field.data_type());
        types.map(|kind| if *kind == DataType::UInt64 { u64::MAX } else { i64::MAX.unsigned_abs() }).collect()
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
