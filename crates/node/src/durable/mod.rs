//! A job that outlives its process: its logs, its commits, and where it goes on.
//!
//! ```text
//! jobs/NAME/commit.log     commit records; the last one counts
//!           order/         the order log
//!           journal/SOURCE/  blocks of sources that cannot give them again
//! ```
//!
//! A start goes through states: [`Opened`] has read the last commit record, [`Adopted`] knows which job goes on, and its
//! graph is built with the parts that the record names; [`Restored`] has its sources in place and its logs open. Once the
//! job is wired, [`Restored::run`] writes what has to be there first, and has its cycles committed. Whatever fails before
//! that leaves the folder as it was.
//!
//! A job that is told its order ([`thalweg_flow::JobOptions::is_told`]) has commits alone: no order log, no journal, no
//! thread for them.
//!
//! Not here: the parts that operators and sinks hand over, how logs are kept on disk (`storage`).

mod committer;
mod identity;
pub(crate) mod journal;
pub(crate) mod order;
pub(crate) mod record;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thalweg_connect::SinkResume;
use thalweg_connect::source::BlockCodec;
use thalweg_flow::{
    CommandMaker, CommitView, Durability, DurableOrder, Followed, Job, LastCommit, NoOrderLog, OrderEvent,
    PatientClock, Source, SourceNode, SourcePosition, WiredJob,
};
use thalweg_state::Interrupt;
use thalweg_storage::log::{
    self, Durability as LogDurability, GroupCommit, Log, LogClock, LogError, LogHandle, LogOptions,
    LogPosition, LogSummary, Opened as OpenedLog, Registration, RetentionPolicy,
};
use thalweg_storage::{CommitLog, Fs, OpenMode, OpenedCommits, read_commits};
use thalweg_types::{Error, Micros, Offset, Seq};

use crate::data_dir::{JobDir, JobLock};
use crate::drop_query::DropQuery;
use crate::job_file::{Ack, CheckedJob};
use crate::operator::TaskResume;
use crate::queries::QueryChange;
use committer::CommitWork;

use journal::Journalled;
use order::{Block, Entries, JobOrderLog, OrderPlace};
use record::{CommitRecord, CommittedSource, Position};

pub use committer::CycleFigures;
#[cfg(feature = "cluster")]
pub(crate) use committer::Doings;
pub(crate) use committer::{Busy, CommitThread, Committer};

/// How long the order log of a job without a journal gathers before it is synced, where records are not read as they
/// are made: sinks wait for it, and no client that would notice waits for them.
const UNHURRIED: Duration = Duration::from_millis(50);

const DAY: Micros = 86_400_000_000;

/// What a source was given that it cannot give again.
#[derive(Clone)]
pub(crate) struct Journal {
    pub(crate) log: LogHandle,
    /// How long it keeps committed records.
    pub(crate) retention: RetentionPolicy,
    /// Says how old that is.
    pub(crate) clock: PatientClock,
}

/// A job's folder whose last commit was read: what is there, before it is known which job goes on.
pub(crate) struct Opened {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    job: Arc<str>,
    commits: CommitLog,
    last: CommitRecord,
    /// Held while the job runs.
    lock: Option<Arc<JobLock>>,
}

/// The job that goes on in a folder, while its graph is built: sources get their journals, sinks their places.
pub(crate) struct Adopted {
    opened: Opened,
    /// What the next commit record says; shared with the tasks.
    last: Arc<CommitRecord>,
    /// There once a log is.
    group: Option<Arc<GroupCommit>>,
    /// By place of the source in the job.
    journals: Vec<Option<Journal>>,
    /// What is asked of the order log and of every journal.
    durability: LogDurability,
    identity: serde_json::Value,
    /// Whether `last` names what no record on the disk does yet.
    is_new: bool,
    /// Records of a source are read as they are made.
    is_live: bool,
    /// The job has never run here.
    is_first: bool,
    /// The order comes from its source, and is kept there.
    is_told: bool,
    /// Queries that this start leaves out.
    dropped: Vec<DropQuery>,
}

/// A job whose sources are where its last commit left them, and whose logs are open. Nothing has been written for it that a
/// start which fails would have to take back.
pub(crate) struct Restored {
    adopted: Adopted,
    numbers: SourceNumbers,
    /// `None` where the order is told.
    order: Option<RestoredOrder>,
    committer: Arc<Committer>,
    listeners: Vec<Option<CommitView>>,
    first: Option<CommitRecord>,
}

/// The order log of a job that is not run yet.
struct RestoredOrder {
    log: Log,
    place: Arc<OrderPlace>,
    durable: Arc<DurableOrder>,
}

/// Refuses the folder of a job whose commit log is lost: it is made before the first entry of the order log.
///
/// # Errors
/// Of class corrupt then; the disk's errors.
pub(crate) fn refuse_without_commits(fs: &dyn Fs, folder: &JobDir) -> Result<(), Error> {
    // In this order, as a job may be making both.
    let order = folder.order();
    match fs.list(&order) {
        Ok(names) if !names.is_empty() => {}
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(LogError::io("list", &order)(error).into());
        }
        _ => return Ok(()),
    }
    let path = folder.commit_log();
    match fs.open(&path, OpenMode::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::corrupt(format!(
            "there is an order log in {order:?}, and no {path:?}"
        ))
        .with_hint("bring commit.log back from a copy; to begin anew, move or remove the job's folder")),
        Err(error) => Err(LogError::io("open", &path)(error).into()),
        Ok(_) => Ok(()),
    }
}

/// Refuses the folder of a job whose commit log holds no record, and that has run: its first record is durable before its
/// order log has a first entry, and without one everything would begin anew.
///
/// # Errors
/// Of class corrupt then; the disk's errors.
pub(crate) fn refuse_without_records(fs: &dyn Fs, folder: &JobDir) -> Result<(), Error> {
    let entries = match log::inspect(fs, &folder.order()) {
        Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => return Ok(()),
        order => order?.next(),
    };
    if entries == LogPosition(0) {
        return Ok(());
    }
    let path = folder.commit_log();
    Err(Error::corrupt(format!(
        "{path:?} holds no record, and the order log of the job has {} entries: the commit log has lost its records",
        entries.0
    ))
    .with_hint("bring commit.log back from a copy; to begin anew, move or remove the job's folder"))
}

/// The last commit of a job that may be running; `None` where it has had none.
///
/// # Errors
/// Damage, and the disk's errors.
pub(crate) fn look(fs: &dyn Fs, job: &str, folder: &JobDir) -> Result<Option<CommitRecord>, Error> {
    let path = folder.commit_log();
    let found = match read_commits(fs, &path, record::identity(job)) {
        Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let last = found.records.last().map(|record| CommitRecord::decode(record));
    last.transpose().map_err(|error| error.context(format!("{path:?}")))
}

/// Whether a job may go on from a commit.
///
/// # Errors
/// Of class user where it has been changed in a way that its state does not survive.
pub(crate) fn check(record: &CommitRecord, job: &CheckedJob) -> Result<(), Error> {
    identity::check(&record.job, &identity::of(job), &job.name)
}

/// Whether a job may go on with the state that another text of it has kept.
///
/// # Errors
/// Of class user where it has been changed in a way that its state does not survive.
#[cfg(feature = "cluster")]
pub(crate) fn check_change(before: &CheckedJob, now: &CheckedJob) -> Result<(), Error> {
    identity::check(&identity::of(before), &identity::of(now), &now.name)
}

/// Names and types of the operators that kept state when a commit was made.
pub(crate) fn operators_of(record: &CommitRecord) -> impl Iterator<Item = (&str, &str)> {
    identity::operators(&record.job)
}

/// What a file of a job is identified by: its kind and name, and the run of its job's commit log. So a file of another
/// life of the job, or of the same job in another data directory, is not taken for its own. Jobs of older builds have run 0,
/// and files that bear none.
pub(crate) fn of_run(identity: u64, run: u64) -> u64 {
    match run {
        0 => identity,
        _ => thalweg_types::hash_bytes(&[identity.to_le_bytes(), run.to_le_bytes()].concat()),
    }
}

/// A number for a job, a door or a process that begins.
pub(crate) fn new_run() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id()).max(1)
}

/// Where the tasks of a job go on.
#[derive(Clone)]
pub(crate) struct Resumes(Arc<CommitRecord>);

impl Resumes {
    pub(crate) fn task(&self, operator: &str, task: u32) -> TaskResume {
        // A sink may have had the operator's name in the graph.
        let position =
            (!identity::is_sink(&self.0.job, operator)).then(|| self.0.part(operator, task)).flatten();
        TaskResume { cycle: self.0.cycle, position }
    }
}

impl Opened {
    /// Opens the folder of an earlier run, or begins; a job that begins puts `run` into all its files.
    ///
    /// # Errors
    /// Damage, and the disk's errors.
    pub(crate) fn open(job: &Arc<str>, folder: &JobDir, fs: Arc<dyn Fs>, run: u64) -> Result<Self, Error> {
        let path = folder.commit_log();
        refuse_without_commits(fs.as_ref(), folder)?;
        // Before a torn end is cut.
        match read_commits(fs.as_ref(), &path, record::identity(job)) {
            Ok(found) if found.records.is_empty() => refuse_without_records(fs.as_ref(), folder)?,
            Ok(_) => {}
            Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let OpenedCommits { log: commits, last, torn } =
            CommitLog::open_or_make(Arc::clone(&fs), path.clone(), record::identity(job), run)?;
        if let Some(bytes) = torn {
            tracing::warn!(path = %path.display(), bytes, "cut what a crash had left of a commit record");
        }
        let last = match last {
            Some(record) => {
                CommitRecord::decode(&record).map_err(|error| error.context(format!("{path:?}")))?
            }
            None => CommitRecord::beginning(),
        };
        Ok(Self { fs, dir: folder.path().to_owned(), job: Arc::clone(job), commits, last, lock: None })
    }

    /// The run that all files of the job carry: [`of_run`].
    pub(crate) fn run(&self) -> u64 {
        self.commits.run()
    }

    /// Holds the lock of the job's folder for as long as the job runs.
    pub(crate) fn locked(self, lock: JobLock) -> Self {
        Self { lock: Some(Arc::new(lock)), ..self }
    }

    /// Queries that were added and dropped while the job ran, up to the last commit.
    pub(crate) fn queries(&self) -> &[QueryChange] {
        &self.last.queries
    }

    /// Takes a job for the one that goes on, with the changes of its queries that its file does not have;
    /// [`Restored::run`] makes it so on the disk.
    ///
    /// # Errors
    /// Of class user where the job has been changed in a way that its state does not survive.
    pub(crate) fn adopt(
        self,
        job: &CheckedJob,
        queries: Vec<QueryChange>,
        dropped: &[DropQuery],
    ) -> Result<Adopted, Error> {
        let identity = identity::of(job);
        let is_first = self.last.job.is_null();
        if !is_first {
            identity::check(&self.last.job, &identity, &job.name)?;
        }
        // Sources keep their number in the order log; new ones get theirs before anything names it.
        let mut record = CommitRecord { queries, ..self.last.clone() };
        for source in &job.sources {
            if !record.sources.iter().any(|other| other.name == *source.name) {
                let name = source.name.to_string();
                record.sources.push(CommittedSource { name, next: 0, place: Position::default() });
            }
        }
        let is_new = is_first || record.sources.len() > self.last.sources.len();
        if is_new {
            record.job = identity::over(&self.last.job, identity.clone());
        }
        Ok(Adopted {
            last: Arc::new(record),
            group: None,
            journals: vec![None; job.sources.len()],
            durability: LogDurability::Synced,
            identity,
            is_new,
            is_live: job.sources.iter().any(|source| source.plugin.is_live(&source.options)),
            is_first,
            is_told: false,
            dropped: dropped.to_vec(),
            opened: self,
        })
    }
}

impl Adopted {
    /// The last commit, with what the job adds to it.
    pub(crate) fn record(&self) -> &CommitRecord {
        &self.last
    }

    /// The run that all files of the job carry.
    pub(crate) fn run(&self) -> u64 {
        self.opened.run()
    }

    /// The source tells the order of the job: there are no logs.
    pub(crate) fn told(&mut self) {
        self.is_told = true;
    }

    /// What tasks are given.
    pub(crate) fn resumes(&self) -> Resumes {
        Resumes(Arc::clone(&self.last))
    }

    /// Where a sink goes on that is called `node` in the graph now; that may hang on what other names the job has.
    pub(crate) fn sink(&mut self, name: &str, node: &str) -> SinkResume {
        let is_added = !self.is_first && !identity::knows_sink(&self.last.job, name);
        if is_added {
            // Named on the disk before it writes, so that the next start recognizes its files.
            let record = Arc::make_mut(&mut self.last);
            record.job = identity::over(&record.job, self.identity.clone());
            identity::add_sink(&mut record.job, name);
            self.is_new = true;
        }
        self.identity["sinks"][name] = node.into();
        let node = identity::node_of_sink(&self.last.job, name, node);
        let position = node.and_then(|node| self.last.part(node, 0));
        SinkResume { cycle: self.last.cycle, position, is_new: self.is_first, is_added }
    }

    /// How safe the order log and all journals are before anything that depends on them leaves the job: by the strongest
    /// `ack` of its sources, as an answer hangs on the records of all of them. Without this by [`Ack::Synced`]. Comes before
    /// [`Adopted::journalled`].
    pub(crate) fn log_durability(&mut self, strongest: Ack) {
        self.durability = match strongest {
            Ack::Synced => LogDurability::Synced,
            Ack::Written => LogDurability::Written,
            Ack::None => LogDurability::None,
        };
    }

    /// Puts a journal before a source that cannot give its records again. Journals come before [`Adopted::restore`].
    ///
    /// # Errors
    /// Of class user where the source lets records through that no journal takes; damage, and the disk's errors.
    pub(crate) fn journalled(
        &mut self,
        place: usize,
        name: &str,
        retention: RetentionPolicy,
        source: Box<dyn Source>,
        codec: BlockCodec,
    ) -> Result<Box<dyn Source>, Error> {
        let committed = self.last.sources.iter().find(|source| source.name == name);
        let (next, at) = match committed {
            Some(committed) => (committed.next, place_in_journal(&committed.place)?),
            None => (0, LogPosition(0)),
        };
        codec.check()?;
        let stamps = PatientClock::default();
        // What is deleted was received so long ago by a clock that doubts the wall for as long, or for a day.
        let age = retention.max_age.map_or(0, |age| Micros::try_from(age.as_micros()).unwrap_or(Micros::MAX));
        let before = (self.last.cycle > 0).then_some(self.last.now);
        let clock = PatientClock::going_on_at(before, age.min(DAY));
        let options = LogOptions {
            clock: LogClock(Arc::new(move || stamps.now())),
            ..LogOptions::new("journal", of_run(journal::identity(&self.opened.job, name), self.opened.run()))
                .going_on_at(at)
        };
        let dir = self.opened.dir.join("journal").join(crate::data_dir::folder_name(name));
        let surveyed = Log::survey(Arc::clone(&self.opened.fs), dir, options)?;
        if surveyed.summary().torn.is_some() {
            self.refuse_to_cut(name, surveyed.summary(), next, at)?;
        }
        let log = opened(surveyed.open()?);
        let group = match &self.group {
            Some(group) => Arc::clone(group),
            None => Arc::clone(self.group.insert(log_thread(Duration::ZERO)?)),
        };
        let handle = group.register(log, Registration::new(self.durability))?;
        self.journals[place] = Some(Journal { log: handle.clone(), retention, clock });
        let mut source = Journalled::new(source, codec, handle, self.is_order_in_journal());
        source.resume(next, at)?;
        Ok(Box::new(source))
    }

    /// The job's only source has a journal, if it has one at all, that is synced before anything is answered: it holds
    /// the order of the job as well as the order log.
    fn is_order_in_journal(&self) -> bool {
        self.journals.len() == 1 && self.durability == LogDurability::Synced
    }

    /// Refuses a journal whose end would be cut although the order log names it, so that it is left as it is.
    /// Unlike [`survey`], which finds every loss, it costs nothing if there is nothing to cut.
    fn refuse_to_cut(
        &self,
        source: &str,
        journal: &LogSummary,
        next: Offset,
        at: LogPosition,
    ) -> Result<(), Error> {
        let number = self.last.sources.iter().position(|committed| committed.name == source);
        let fs = &self.opened.fs;
        let dir = self.opened.dir.join("order");
        let order = match log::inspect(fs.as_ref(), &dir) {
            Err(LogError::Io(disk)) if disk.kind() == ErrorKind::NotFound => return Ok(()),
            order => order?,
        };
        let goes_on = LogPosition(self.last.order);
        if goes_on < order.first() || goes_on > order.next() {
            // Opening it says so.
            return Ok(());
        }
        let mut named = None;
        let mut reader = order.read(Arc::clone(fs), &dir, goes_on..order.next())?;
        while let Some((position, record)) = reader.next_record()? {
            let entry = order::decode(record)?;
            if let OrderEvent::Run { source, offset, .. } = entry.event
                && Some(source) == number
                && order::block_of(record) == Block::Synced
            {
                named = Some((position, offset.saturating_add(entry.range.len())));
            }
        }
        let Some((torn, (run, named))) = journal.torn.as_ref().zip(named) else { return Ok(()) };
        let folder = torn.path.parent().unwrap_or(&torn.path);
        let end = journal::end_of(journal.read(Arc::clone(fs), folder, at..journal.next())?, next)?;
        if named > end {
            return Err(lost_block((&torn.path, torn.pos), run, named, end));
        }
        Ok(())
    }

    /// Brings the sources to where the last commit left them, and opens the order log. `interrupt` is raised when the job
    /// ends without waiting for its last cycle.
    ///
    /// # Errors
    /// Damage, the disk's errors, and the error of a source that cannot go back.
    pub(crate) fn restore(self, sources: &mut [SourceNode], interrupt: Interrupt) -> Result<Restored, Error> {
        let last = &self.last;
        for (place, source) in sources.iter_mut().enumerate() {
            let committed = last.sources.iter().find(|committed| committed.name == *source.name);
            // A journal has been given its position; a source that has given nothing and says nothing is at its
            // beginning.
            if let Some(committed) = committed
                && self.journals[place].is_none()
                && (committed.next > 0 || !committed.place.0.is_empty())
            {
                let position = SourcePosition { next: committed.next, place: committed.place.0.clone() };
                source
                    .source
                    .restore(&position)
                    .map_err(|error| error.context(format!("source {:?}", source.name)))?;
            }
        }
        let names: Vec<String> = sources.iter().map(|source| source.name.to_string()).collect();
        let numbers = SourceNumbers::new(&last.sources, &names)?;
        let order = if self.is_told { None } else { Some(self.open_order(&numbers)?) };
        let place = order.as_ref().map(|order| Arc::clone(&order.place));
        Ok(Restored {
            committer: Arc::new(Committer::new(place, last.queries.clone(), interrupt)),
            listeners: sources.iter().map(|source| source.source.on_commit()).collect(),
            first: self.is_new.then(|| first_record(last, sources, &self.journals)),
            order,
            numbers,
            adopted: self,
        })
    }

    fn open_order(&self, numbers: &SourceNumbers) -> Result<RestoredOrder, Error> {
        let (opened, last) = (&self.opened, &self.last);
        let options = LogOptions::new("order", of_run(order::identity(), self.run()))
            .going_on_at(LogPosition(last.order));
        let mut log = open_log(&opened.fs, opened.dir.join("order"), options)?;
        let end = survey(&mut log, last, numbers, &self.journals)?;
        let durable = Arc::new(DurableOrder::default());
        durable.advance(end);
        let place = OrderPlace::new(LogPosition(last.order), last.queries.clone(), self.dropped.clone());
        Ok(RestoredOrder { log, place: Arc::new(place), durable })
    }
}

impl Restored {
    /// What the job is wired with.
    pub(crate) fn durability(&self) -> Durability {
        let last = &self.adopted.last;
        let waits = self.adopted.durability != LogDurability::None;
        let order = self.order.as_ref().filter(|_| waits);
        Durability {
            order: order.map(|order| Arc::clone(&order.durable)),
            cycles: Some(Arc::clone(&self.committer) as _),
            last: Some(LastCommit { next: last.next, cycle: last.cycle, now: last.now }),
            keep: self.adopted.opened.lock.clone().map(|lock| lock as _),
        }
    }

    pub(crate) fn committer(&self) -> Arc<Committer> {
        Arc::clone(&self.committer)
    }

    /// Makes the job's folder count on the disk, has `thread` commit its cycles, and lets it run.
    ///
    /// # Errors
    /// The disk's errors, and a lack of threads; nothing of the job has been computed then.
    pub(crate) fn run(
        mut self,
        wired: WiredJob,
        commands: CommandMaker,
        thread: &CommitThread,
    ) -> Result<Job, Error> {
        let job = wired.job();
        let failed = job.clone();
        let log = self.order_log(move |error| failed.fail("order log", error))?;
        let followed = log.as_ref().map(|log| self.follow(log, commands)).transpose()?;
        let Self { adopted, numbers, committer, listeners, first, .. } = self;
        let mut work = CommitWork {
            committer,
            log: adopted.opened.commits,
            order: log.as_ref().map(JobOrderLog::committed),
            journals: adopted.journals,
            listeners,
            numbers,
            identity: adopted.identity,
            lock: adopted.opened.lock,
        };
        work.begin(first)?;
        thread.take(work, job.hold())?;
        match log {
            Some(log) => wired.run(log, followed),
            None => wired.run(NoOrderLog, None),
        }
    }

    /// Gives the order log to the thread of the job's logs; `None` where the order is told. `failed` hears why nothing is
    /// written any more.
    fn order_log(
        &mut self,
        failed: impl Fn(Error) + Send + Sync + 'static,
    ) -> Result<Option<JobOrderLog>, Error> {
        let Some(RestoredOrder { log, place, durable }) = self.order.take() else { return Ok(None) };
        let Adopted { group, journals, durability, is_live, .. } = &self.adopted;
        let group = match group {
            Some(group) => Arc::clone(group),
            // Somebody may wait for a row in a topic, say.
            None if *is_live => log_thread(Duration::ZERO)?,
            // Nobody waits: fewer and larger turns.
            None => log_thread(UNHURRIED)?,
        };
        let mut registration = Registration::new(*durability);
        registration.on_progress = Some(Arc::new({
            let (durable, place) = (Arc::clone(&durable), Arc::clone(&place));
            move |progress| match progress {
                Ok(end) => place.progress(end, &durable),
                Err(error) => failed(error.into()),
            }
        }));
        let handle = group.register(log, registration)?;
        let blocks = journals.iter().map(|journal| match (journal, durability) {
            (Some(_), LogDurability::Synced) => Block::Synced,
            _ => Block::Elsewhere,
        });
        Ok(Some(JobOrderLog {
            log: handle,
            place,
            order: durable,
            record: Vec::new(),
            group,
            numbers: self.numbers.clone(),
            blocks: blocks.collect(),
        }))
    }

    /// What a log has after the last commit.
    fn follow(&self, log: &JobOrderLog, commands: CommandMaker) -> Result<Followed, Error> {
        let reader = log.log.read_from(LogPosition(self.adopted.last.order))?;
        let entries = Entries::new(reader, Arc::clone(&log.place), self.numbers.clone());
        Ok(Followed { entries: Box::new(entries), commands })
    }
}

/// The record from before the first cycle. It says where new sources begin: a file may be another one by the next start.
fn first_record(last: &CommitRecord, sources: &[SourceNode], journals: &[Option<Journal>]) -> CommitRecord {
    let mut record = last.clone();
    for (source, _) in sources.iter().zip(journals).filter(|(_, journal)| journal.is_none()) {
        let committed = record.sources.iter_mut().find(|committed| committed.name == *source.name);
        if let Some(committed) = committed.filter(|committed| committed.next == 0) {
            committed.place = Position(source.source.position().place);
        }
    }
    record
}

/// Sources in the order log and in commit records, where each keeps its number for good.
#[derive(Clone, Debug)]
pub(crate) struct SourceNumbers {
    names: Vec<String>,
    /// By number, the place in the job.
    places: Vec<usize>,
}

impl SourceNumbers {
    fn new(committed: &[CommittedSource], job: &[String]) -> Result<Self, Error> {
        let names: Vec<String> = committed.iter().map(|source| source.name.clone()).collect();
        let place = |name: &String| job.iter().position(|other| other == name);
        let places: Option<Vec<usize>> = names.iter().map(place).collect();
        match places {
            Some(places) if places.len() == job.len() => Ok(Self { names, places }),
            _ => Err(Error::internal("sources of the job and of its last commit record differ")),
        }
    }

    /// The number of the source with this place in the job.
    fn of_place(&self, place: usize) -> usize {
        self.places.iter().position(|other| *other == place).unwrap_or(place)
    }

    fn place_of(&self, number: usize) -> Option<usize> {
        self.places.get(number).copied()
    }
}

fn log_thread(gather: Duration) -> Result<Arc<GroupCommit>, Error> {
    GroupCommit::start(gather)
        .map(Arc::new)
        .map_err(|error| Error::external("start a thread for logs").with_source(error))
}

pub(crate) fn place_in_journal(place: &Position) -> Result<LogPosition, Error> {
    if place.0.is_empty() {
        return Ok(LogPosition(0));
    }
    let bytes = place.0.as_slice().try_into();
    bytes
        .map(|bytes| LogPosition(u64::from_le_bytes(bytes)))
        .map_err(|_| Error::corrupt("the last commit record holds no place in the journal"))
}

fn open_log(fs: &Arc<dyn Fs>, dir: PathBuf, options: LogOptions) -> Result<Log, Error> {
    Ok(opened(Log::open(Arc::clone(fs), &dir, options)?))
}

fn opened(opened: OpenedLog) -> Log {
    if let Some(torn) = opened.torn {
        tracing::warn!(?torn, "cut what a crash had left of the last write");
    }
    opened.log
}

/// Reads the order to be followed again; returns the number after it. If a journal lacks blocks that the order log
/// names, a power cut has taken them before they were reported as synced, and the order log is cut there.
///
/// Runs of blocks that were synced are marked. Those are written in the same round as their journal or in a later one,
/// and a round syncs the journals first; a start syncs the blocks that it finds in a journal before anything is
/// numbered. So no crash leaves such a run without its block.
///
/// # Errors
/// Damage: a run whose block was synced, and is not in the journal.
fn survey(
    log: &mut Log,
    last: &CommitRecord,
    numbers: &SourceNumbers,
    journals: &[Option<Journal>],
) -> Result<Seq, Error> {
    let mut ends: Vec<Option<Offset>> = Vec::new();
    for (committed, place) in last.sources.iter().zip(&numbers.places) {
        ends.push(match &journals[*place] {
            Some(journal) => {
                let behind = journal.log.read_from(place_in_journal(&committed.place)?)?;
                Some(journal::end_of(behind, committed.next)?)
            }
            None => None,
        });
    }
    let mut reader = log.read_from(LogPosition(last.order))?;
    let mut end = last.next;
    let mut cut = None;
    while let Some((position, record)) = reader.next_record()? {
        let entry = order::decode(record)?;
        if let OrderEvent::Run { source, offset, .. } = entry.event
            && let Some(Some(journal_end)) = ends.get(source)
            && offset.saturating_add(entry.range.len()) > *journal_end
        {
            if order::block_of(record) == Block::Synced
                && let Some(journal) = &journals[numbers.places[source]]
            {
                let named = offset.saturating_add(entry.range.len());
                let (path, byte) = journal.log.end()?;
                return Err(lost_block((&path, byte), position, named, *journal_end));
            }
            cut = Some(position);
            break;
        }
        end = entry.range.end;
    }
    drop(reader);
    if let Some(cut) = cut {
        tracing::warn!(
            record = cut.0,
            "the order log reaches beyond a journal that was not synced: cut there"
        );
        log.truncate_behind(cut)?;
    }
    Ok(end)
}

/// The error for a journal that ends at `place` with offset `end`, and had synced more.
fn lost_block(place: (&Path, u64), run: LogPosition, named: Offset, end: Offset) -> Error {
    let (path, byte) = place;
    Error::corrupt(format!(
        "damage in {path:?} at byte {byte}: the journal ends with offset {end}, and {run} of the order log names offsets up \
         to {named}, which had been synced"
    ))
    .with_hint(
        "the bytes there have changed or are gone: check the disk and bring the job's folder back from a copy; or \
         begin anew with another job name or without the folder",
    )
}

#[cfg(test)]
mod tests {
    use thalweg_flow::OrderLog as _;
    use thalweg_storage::{ChunkBudget, IoPool, MemFs, make_dir};

    use super::*;
    use crate::NodeOptions;
    use crate::backends::Backends;
    use crate::job_file::JobFile;
    use crate::memory::Shares;
    use crate::operator::{AnswerCounts, Services};

    const JOB: &str = "\
name: j
sources:
  one: { type: http, schema: { n: int64 }, ack: ACK }
  other: { type: http, schema: { n: int64 }, ack: none }
operators:
  both: { type: union, input: [one, other] }
sinks:
  out: { type: 'null', input: both }
";

    /// A job on a disk in memory, as far as its sources have their journals.
    struct Begun {
        disk: MemFs,
        fs: Arc<dyn Fs>,
        store: Adopted,
        built: crate::graph::BuiltJob,
    }

    fn begin(job: &str) -> Begun {
        let options = NodeOptions::default().check_options();
        let job = JobFile::parse("j.yaml", job, &[]).unwrap().check(&options).unwrap();
        let disk = MemFs::new();
        let fs: Arc<dyn Fs> = Arc::new(disk.clone());
        let folder = JobDir::at(Path::new("j"));
        make_dir(fs.as_ref(), folder.path()).unwrap();
        let opened = Opened::open(&job.name, &folder, Arc::clone(&fs), 0).unwrap();
        let mut store = opened.adopt(&job, Vec::new(), &[]).unwrap();
        let services = Services {
            fs: Arc::clone(&fs),
            pool: IoPool::new(1),
            chunks: ChunkBudget::new(1 << 20),
            state: job.state.clone(),
            shares: Shares::of(&job),
            backends: Backends::unused(&job.state),
            answers: AnswerCounts::default(),
            failing: Default::default(),
            is_held: false,
        };
        let built = crate::graph::build(&job, &folder, &services, &[], Some(&mut store)).unwrap();
        Begun { disk, fs, store, built }
    }

    /// Whether a power cut leaves the records of the second source's journal, once that journal reports them as
    /// durable.
    fn is_kept(ack: &str) -> bool {
        let Begun { disk, fs, store, built } = begin(&JOB.replace("ACK", ack));
        let log = store.journals[1].as_ref().unwrap().log.clone();
        let ticket = log.append(&[b"a block"]).unwrap();
        log.wait(ticket).unwrap();
        disk.crash();
        drop((built, store));
        let options = LogOptions::new("journal", journal::identity("j", "other"));
        let left = open_log(&fs, log.dir().to_owned(), options).unwrap();
        left.read_from(LogPosition(0)).unwrap().next_record().unwrap().is_some()
    }

    /// What a power cut leaves of the order log, each entry by its first letter, once all of it counts: a tick, a run, a
    /// command and another run, as the job's sources have runs written down.
    fn left_of_order(job: &str) -> String {
        let Begun { disk, fs, store, mut built } = begin(job);
        let mut restored = store.restore(&mut built.graph.sources, Interrupt::default()).unwrap();
        let order = restored.durability().order.unwrap();
        let mut log = restored.order_log(|error| panic!("{}", error.chain())).unwrap().unwrap();
        let is_told = built.graph.sources.iter().any(|source| source.source.tells_order());
        let run = || OrderEvent::Run { source: 0, partition: 0, offset: 0, arrival: 3 };
        let mut next = 0;
        for event in [OrderEvent::Tick { now: 5 }, run(), OrderEvent::Command { record: None }, run()] {
            let is_run = matches!(event, OrderEvent::Run { .. });
            let range = thalweg_types::SeqRange::new(next, next + 1);
            next += 1;
            let entry = thalweg_flow::OrderEntry { range, event };
            if is_run && is_told {
                log.append_told(entry).unwrap();
            } else {
                log.append(entry).unwrap();
            }
            while order.end() < next {
                std::thread::yield_now();
            }
        }
        disk.crash();
        drop((log, restored, built));
        let options = LogOptions::new("order", order::identity());
        let log = open_log(&fs, Path::new("j/order").to_owned(), options).unwrap();
        let mut reader = log.read_from(LogPosition(0)).unwrap();
        let mut left = String::new();
        while let Some((_, record)) = reader.next_record().unwrap() {
            left.extend(format!("{:?}", order::decode(record).unwrap().event).chars().next());
        }
        left
    }

    #[test]
    fn a_run_that_counts_is_on_the_disk_unless_the_only_journal_tells_the_order() {
        let alone = JOB.replace("ACK", "synced").replace(", other]", "]");
        let alone = alone.replace("  other: { type: http, schema: { n: int64 }, ack: none }\n", "");
        assert_eq!(left_of_order(&alone), "TRC", "the last run is in the journal");
        assert_eq!(left_of_order(&JOB.replace("ACK", "synced")), "TRCR");
        let file =
            alone.replace("type: http, schema: { n: int64 }, ack: synced", "type: generator, kind: payments");
        assert_ne!(file, alone);
        assert_eq!(left_of_order(&file), "TRCR", "its source has no journal");
    }

    #[test]
    fn journals_are_as_safe_as_the_strongest_of_their_job() {
        assert!(is_kept("synced"), "answers to the first source depend on records of the second");
        assert!(!is_kept("written"), "nobody was promised this");
    }
}
