//! Runs elements as an operator over batches.

use std::sync::Arc;

use thalweg_state::{Block, Changes, Filling, HandOver, KeyedStats, Slice};
use thalweg_types::{Batch, Error, Micros, Schema, SeqRange};

use super::ahead::Ahead;
use super::entry::{self, Cache, ELEMENT, Entries, Entry, Kept};
use super::judge::{Judge, Nowhere};
use super::lists::{self, List, Lists};
use super::position::{ElementPart, Manifest};
use super::{
    Asked, CheckpointPace, Element, ElementSettings, ElementState, Expiry, InputRules, LateRecords, OnExpiry,
    OutputPolicy, Turn,
};
use crate::record::{Column, Feed, Rows};
use crate::{CacheCounts, Command, Emit, Held, InputId, JudgedCounts, Operator, Output, Packer, Row};

/// What one call saves of a frozen cycle: a tenth of the millisecond for which a marker may stop a task, or two.
const SLICE: Slice = Slice { keys: 1024, bytes: 64 * 1024 };
/// Idle elements that a tick looks at, at least; more where many wait.
const LOOKS: usize = 512;
/// Elements that a tick unloads at most.
const UNLOADS: usize = 4096;
/// Blocks of a scan that are taken over after a batch, when answers wait for it.
const FILL_AFTER_BATCH: usize = 1;
/// Blocks of a scan that are taken over at a tick, when a record may be about to come: some milliseconds at most.
const FILL_AT_TICK: usize = 8;
/// Lists of idle elements within one time to live.
const IDLE_LISTS: Micros = 32;

/// An operator of elements.
pub struct Elements<E: Element> {
    feed: Feed,
    pub(super) core: Core<E>,
    /// The marker whose changes are being saved.
    marked: Option<Arc<[u8]>>,
    ends_with_input: bool,
    /// Bytes that elements may take, where some can leave. A quarter of them changed has the cycle end early.
    memory: usize,
    pace: CheckpointPace,
    /// Records since the last marker.
    records: u64,
    /// The tick before the last marker.
    marked_at: Option<Micros>,
    is_hastened: bool,
    /// A tick has come in this cycle.
    has_ticked: bool,
    /// Brings elements in after a restart.
    pub(super) filling: Option<Filling>,
}

pub(super) struct Core<E: Element> {
    shared: Arc<E::Shared>,
    pub(super) cache: Cache<E>,
    /// By input.
    keys: Vec<Packer>,
    output: OutputPolicy,
    expiry: Option<Expiry>,
    judge: Judge,
    lists: Lists,
    /// Task time.
    time: Option<Micros>,
    /// How far that is for elements: what waits for a time waits for this one ([`thalweg_types::Lateness::reached`]).
    reached: Option<Micros>,
    now: Option<Micros>,
    /// Of the rows ahead: their elements, and what else they need.
    ahead: Ahead,
    more: Ahead,
    /// Of elements that are visited.
    visited: Ahead,
    asked: Asked,
}

/// What is left to do once an element has been let go of.
#[derive(Default)]
struct Todo {
    pend: bool,
    idle: Option<Micros>,
}

impl<E: Element> Elements<E> {
    /// `keys` are the places of the key fields, one list per input, of the same types in the same order; empty lists
    /// make it keyless. `inputs` and `outputs` are the schemas by port.
    ///
    /// # Errors
    /// If keys do not fit each other, a key field is a list or a struct, the state is damaged, or there is no thread for
    /// a scan of it.
    pub fn new(
        shared: Arc<E::Shared>,
        inputs: &[Schema],
        outputs: &[Schema],
        keys: &[Vec<usize>],
        settings: ElementSettings,
        state: ElementState,
    ) -> Result<Self, Error> {
        let keys: Vec<Packer> = inputs
            .iter()
            .zip(keys)
            .map(|(schema, places)| Packer::new(schema, places))
            .collect::<Result<_, _>>()?;
        check_keys(inputs, &keys)?;
        let ElementState { backend, cycle, manifest, memory, is_eager, ends_with_input } = state;
        let entries = Entries { shared: Arc::clone(&shared) };
        let mut cache = match &backend {
            Some(backend) => Cache::over(Arc::clone(backend), cycle, memory, entries),
            None => Cache::in_memory(entries),
        };
        let Manifest { time, now, bounds, newest, lists } = manifest;
        let rules = vec![InputRules::ALL; inputs.len()];
        let judge = Judge::new(inputs, &rules, (&bounds, newest), Box::new(Nowhere))?;
        if let Some(time) = time {
            cache.set_stamp(time);
        }
        let mut filling = None;
        if let Some(backend) = backend.filter(|_| is_eager && !cache.is_whole()) {
            cache.begin_fill();
            filling = Some(Filling::begin(backend, |key| key.first() == Some(&ELEMENT))?);
        }
        Ok(Self {
            feed: Feed::new(inputs, outputs),
            core: Core {
                shared,
                cache,
                keys,
                output: settings.output,
                expiry: settings.expiry,
                judge,
                lists,
                time,
                reached: time,
                now,
                ahead: Ahead::default(),
                more: Ahead::default(),
                visited: Ahead::default(),
                asked: Asked::default(),
            },
            marked: None,
            ends_with_input,
            memory,
            pace: settings.checkpoint,
            records: 0,
            marked_at: now,
            is_hastened: false,
            has_ticked: false,
            filling,
        })
    }

    /// Has records judged by `rules`, one for each input; otherwise all are taken as they come.
    /// Late ones that are not taken go to `refused`.
    ///
    /// # Errors
    /// If an id is a list or a struct.
    pub fn judged(
        mut self,
        inputs: &[Schema],
        rules: &[InputRules],
        refused: Box<dyn LateRecords>,
    ) -> Result<Self, Error> {
        let (bounds, newest) = self.core.judge.committed();
        self.core.judge = Judge::new(inputs, rules, (&bounds, newest), refused)?;
        Ok(self)
    }

    /// Has records judged by a time that others hold ([`Held`]): until they have said it, also after a restart, nothing more is
    /// late.
    #[must_use]
    pub fn held(mut self) -> Self {
        let core = &mut self.core;
        core.judge.hold(Micros::MIN);
        core.reached = core.time.map(|time| core.judge.reached(time));
        self
    }

    /// Takes over the finds of a scan of the back end: this number of blocks, if there are as many by now.
    pub(super) fn fill(&mut self, blocks: usize) -> Result<(), Error> {
        for _ in 0..blocks {
            let Some(filling) = &mut self.filling else { break };
            let wants_more = match filling.poll() {
                Block::Entries(entries) => self.core.fill(&entries)?,
                Block::NotYet => break,
                Block::Failed(error) => return Err(error),
                Block::End => false,
            };
            if !wants_more {
                self.filling = None;
                self.core.cache.end_fill();
            }
        }
        Ok(())
    }

    /// Saves a slice of the frozen cycle, and asks for the end of the one at hand if it is time.
    fn keep_pace(&mut self, out: &mut Output<'_>) {
        if let Some(done) = self.core.cache.save_some(SLICE) {
            self.hand_over(done, out);
        }
        if !self.core.cache.is_durable() {
            return;
        }
        let is_much = self.core.cache.dirty_bytes() > self.memory / 4;
        if is_much && self.core.cache.bytes() > self.memory.saturating_add(self.memory / 2) {
            out.hold_sources();
        }
        if self.is_hastened {
            return;
        }
        let is_due = match self.pace {
            CheckpointPace::Cycle => false,
            CheckpointPace::Records(count) => self.records >= count,
            CheckpointPace::Every(every) => self
                .core
                .now
                .zip(self.marked_at)
                .is_some_and(|(now, at)| self.records > 0 && now.saturating_sub(at) >= every),
        };
        if is_due || is_much {
            self.is_hastened = true;
            out.hasten_cycle();
        }
    }

    fn hand_over(&mut self, changes: HandOver, out: &mut Output<'_>) {
        if let Some(manifest) = self.marked.take() {
            out.hand_over(changes.cycle(), Box::new(ElementPart { changes, manifest }));
        }
    }
}

fn check_keys(inputs: &[Schema], keys: &[Packer]) -> Result<(), Error> {
    if keys.len() != inputs.len() {
        return Err(Error::internal(format!("{} inputs have {} keys", inputs.len(), keys.len())));
    }
    let types = |key: &Packer| key.fields().iter().map(|field| field.data_type.clone()).collect::<Vec<_>>();
    match keys.iter().position(|key| types(key) != types(&keys[0])) {
        Some(input) => {
            Err(Error::user(format!("the key of input {input} has other types than that of input 0"))
                .with_hint("bring the fields to the same types with a `map` before"))
        }
        None => Ok(()),
    }
}

impl<E: Element> Operator for Elements<E> {
    fn process(&mut self, input: InputId, batch: Batch, out: &mut Output<'_>) -> Result<(), Error> {
        self.records += batch.len() as u64;
        self.feed.process(&mut self.core, input.port, batch, out)
    }

    fn complete(&mut self, _: SeqRange, out: &mut Output<'_>) -> Result<(), Error> {
        self.feed.complete(&mut self.core, out)?;
        self.core.cache.settle();
        self.core.judge.find_newest(|seq| out.place_of(seq));
        self.keep_pace(out);
        self.fill(FILL_AFTER_BATCH)
    }

    fn tick(&mut self, now: Micros, out: &mut Output<'_>) -> Result<(), Error> {
        self.feed.set_now(now);
        self.marked_at.get_or_insert(now);
        let core = &mut self.core;
        self.feed.between(out, |emit| core.tick(now, emit))?;
        core.let_go()?;
        self.has_ticked = true;
        self.keep_pace(out);
        self.fill(FILL_AT_TICK)
    }

    fn cycle(&mut self, cycle: u64, out: &mut Output<'_>) -> Result<(), Error> {
        // A job that is told its order may have no ticks.
        if !std::mem::take(&mut self.has_ticked) {
            self.core.let_go()?;
        }
        let earlier = self.core.cache.begin_cycle(cycle);
        if let Some(earlier) = earlier {
            self.hand_over(earlier, out);
        }
        let Core { time, now, lists, judge, .. } = &self.core;
        let (bounds, newest) = (judge.bounds(*time), judge.newest());
        let manifest = Manifest { time: *time, now: *now, bounds, newest, lists: lists.clone() };
        self.marked = Some(manifest.encode().into());
        (self.records, self.marked_at, self.is_hastened) = (0, self.core.now, false);
        self.keep_pace(out);
        Ok(())
    }

    fn command(&mut self, command: &Command, _: &mut Output<'_>) -> Result<(), Error> {
        if let Some(Held(time)) = command.body.downcast_ref() {
            self.core.judge.hold(*time);
        }
        Ok(())
    }

    /// Where the job does not go on from here, elements that wait for time emit.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        if self.ends_with_input {
            let core = &mut self.core;
            return self.feed.between(out, |emit| {
                core.wake_all(emit)?;
                core.output_pending(emit)
            });
        }
        if let Some(done) = self.core.cache.save_some(Slice { keys: usize::MAX, bytes: usize::MAX }) {
            self.hand_over(done, out);
        }
        Ok(())
    }

    fn takes_part(&self) -> bool {
        self.core.cache.is_durable()
    }

    fn waits_for_tick(&self) -> bool {
        self.core.lists.pending.is_some()
    }

    fn task_time(&self) -> Option<Micros> {
        self.core.time
    }

    fn state_bytes(&self) -> usize {
        self.core.cache.bytes()
    }

    fn judged_counts(&self) -> Option<JudgedCounts> {
        Some(self.core.judge.counts())
    }

    fn cache_counts(&self) -> Option<CacheCounts> {
        let stored = self.core.cache.backend_stats()?;
        let KeyedStats { keys, hits, misses, filled, evictions, unloaded, .. } = self.core.cache.stats();
        Some(CacheCounts {
            keys,
            stored: stored.keys,
            key_bytes: stored.index_bytes,
            hits,
            misses,
            filled,
            evictions: evictions + unloaded,
        })
    }
}

impl<E: Element> Rows for Core<E> {
    fn ahead(
        &mut self,
        first: usize,
        port: usize,
        batch: &Batch,
        columns: &[Column<'_>],
    ) -> Result<(), Error> {
        let Self { ahead, more, cache, keys, judge, .. } = self;
        if first == 0 {
            ahead.clear();
        }
        for row in batch.row_numbers() {
            ahead.keys.push(ELEMENT);
            keys[port].pack_key(columns, row, &mut ahead.keys);
            ahead.ends.push(ahead.keys.len());
        }
        more.clear();
        if !cache.is_whole() {
            judge.ahead(port, batch, columns, &mut more.keys, &mut more.ends);
        }
        // As far as the batch may move time: when an element was used, to a batch.
        if let Some(newest) = batch.row_numbers().map(|row| batch.times()[row as usize]).max() {
            cache.set_stamp(newest);
        }
        ahead.find(first, more, cache)
    }

    fn row(&mut self, number: usize, record: Row<'_>, out: &mut Emit<'_>) -> Result<(), Error> {
        let Self { judge, cache, lists, ahead, .. } = self;
        ahead.warm(number, cache);
        let Some(record) = judge.judge(record, self.time, cache, lists, out)? else { return Ok(()) };
        let time = self.time.map_or(record.time(), |time| time.max(record.time()));
        if self.time != Some(time) {
            self.time = Some(time);
            self.judge.moved_by(record);
        }
        // Others may hold it back, or let it go on with a record that moves nothing.
        let reached = self.judge.reached(time);
        if self.reached < Some(reached) {
            self.reached = Some(reached);
            self.wake_until(reached, out)?;
        }
        self.touch(number, reached, record, out)
    }
}

impl<E: Element> Core<E> {
    /// Gives an element its record.
    fn touch(
        &mut self,
        number: usize,
        time: Micros,
        record: Row<'_>,
        out: &mut Emit<'_>,
    ) -> Result<(), Error> {
        let Self { shared, cache, keys, asked, output, expiry, ahead, lists, .. } = self;
        let key = ahead.key(number);
        let packed = keys[record.port()].unpack(&key[1..]);
        let todo = cache.change_at(ahead.places[number], key, |entry| {
            let kept = revived::<E>(entry, *expiry, time, || E::create(shared, packed));
            let mut turn = Turn { emit: out, key: packed, task_time: time, asked };
            kept.element.process(shared, record, &mut turn)?;
            kept.touched = time;
            let mut todo = Todo::default();
            match output {
                OutputPolicy::Never => {}
                OutputPolicy::Records(every) => {
                    kept.count += 1;
                    if kept.count >= *every {
                        kept.count = 0;
                        kept.element.output(shared, &mut turn)?;
                    }
                }
                OutputPolicy::Every(_) => {
                    todo.pend = !kept.is_pending;
                    kept.is_pending = true;
                }
            }
            if let Some(expiry) = expiry.filter(|expiry| expiry.on == OnExpiry::Forget)
                && kept.listed.is_none()
            {
                kept.listed = Some(due(expiry, time));
                todo.idle = kept.listed;
            }
            if std::mem::take(&mut asked.forget) {
                *entry = None;
                todo = Todo::default();
            }
            Ok(todo)
        })?;
        let todo = todo.map_err(|error| of_element(error, packed))?;
        follow_up(key, &todo, cache, lists, asked)
    }

    /// Wakes elements whose time has come.
    fn wake_until(&mut self, time: Micros, out: &mut Emit<'_>) -> Result<(), Error> {
        while let Some(first) = self.lists.wakes.first_entry().filter(|first| *first.key() <= time) {
            let (due, list) = first.remove_entry();
            self.wake_list(due, list, out)?;
        }
        Ok(())
    }

    /// Wakes all that wait, as if time had passed from one to the next; what they ask for then is not followed.
    fn wake_all(&mut self, out: &mut Emit<'_>) -> Result<(), Error> {
        let reached = self.reached;
        for (due, list) in std::mem::take(&mut self.lists.wakes) {
            self.reached = reached.max(Some(due));
            self.wake_list(due, list, out)?;
        }
        // No record has moved it: an element that waits for a tick has not expired.
        self.reached = reached;
        Ok(())
    }

    fn wake_list(&mut self, due: Micros, mut list: List, out: &mut Emit<'_>) -> Result<(), Error> {
        while let Some(piece) = list.take(&mut self.cache)? {
            self.visit_all(&piece, out, |element, shared, turn| element.wake(shared, due, turn), |_| true)?;
        }
        Ok(())
    }

    fn tick(&mut self, now: Micros, out: &mut Emit<'_>) -> Result<(), Error> {
        let before = self.now.replace(now);
        if let OutputPolicy::Every(every) = self.output
            && before.is_some_and(|before| now.div_euclid(every) > before.div_euclid(every))
        {
            self.output_pending(out)?;
        }
        Ok(())
    }

    fn output_pending(&mut self, out: &mut Emit<'_>) -> Result<(), Error> {
        let Some(mut list) = self.lists.pending.take() else { return Ok(()) };
        while let Some(piece) = list.take(&mut self.cache)? {
            let is_due = |kept: &mut Kept<E>| std::mem::take(&mut kept.is_pending);
            self.visit_all(&piece, out, |element, shared, turn| element.output(shared, turn), is_due)?;
        }
        Ok(())
    }

    /// Calls those elements of a list that are alive and for which `is_meant` is true, for something else than a record.
    fn visit_all(
        &mut self,
        piece: &[u8],
        out: &mut Emit<'_>,
        call: impl Fn(&mut E, &E::Shared, &mut Turn<'_, '_>) -> Result<(), Error>,
        is_meant: impl Fn(&mut Kept<E>) -> bool,
    ) -> Result<(), Error> {
        let Self { shared, cache, keys, asked, expiry, visited, more, lists, .. } = self;
        visited.clear();
        for key in lists::keys(piece) {
            visited.keys.extend_from_slice(key);
            visited.ends.push(visited.keys.len());
        }
        more.clear();
        visited.find(0, more, cache)?;
        // Elements come with records, and records with a time.
        let time = self.reached.unwrap_or(Micros::MIN);
        for number in 0..visited.ends.len() {
            visited.warm(number, cache);
            let key = visited.key(number);
            let packed = keys[0].unpack(&key[1..]);
            let called = cache.change_at(visited.places[number], key, |entry| {
                let Some(Entry::Element(kept)) = entry else { return Ok(()) };
                if !is_meant(kept) || has_expired(*expiry, kept.touched, time) {
                    return Ok(());
                }
                let mut turn = Turn { emit: out, key: packed, task_time: time, asked };
                call(&mut kept.element, shared, &mut turn)?;
                if std::mem::take(&mut asked.forget) {
                    *entry = None;
                }
                Ok(())
            })?;
            called.map_err(|error| of_element(error, packed))?;
            follow_up(key, &Todo::default(), cache, lists, asked)?;
        }
        cache.settle();
        Ok(())
    }

    /// Takes over elements that a scan found; whether more of them are of use. Elements that would be unloaded again
    /// stay away.
    fn fill(&mut self, found: &Changes) -> Result<bool, Error> {
        let unloads = self.expiry.filter(|expiry| expiry.on == OnExpiry::Unload);
        let until = self.reached.zip(unloads).map(|(time, expiry)| time.saturating_sub(expiry.after));
        for change in found {
            let Some(bytes) = change.value else { continue };
            let is_idle = until.is_some_and(|until| entry::touched(bytes).is_some_and(|at| at <= until));
            if !is_idle && !self.cache.fill(change.key, bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets some of what is needed no more leave memory. It changes nothing that an element sees.
    fn let_go(&mut self) -> Result<(), Error> {
        self.look_at_idle()?;
        self.judge.drop_ids(self.time, &mut self.cache, &mut self.lists)
    }

    /// Forgets elements whose time to live has passed, or lets them leave memory: some of them, at a tick.
    fn look_at_idle(&mut self) -> Result<(), Error> {
        let (Some(time), Some(expiry)) = (self.reached, self.expiry) else { return Ok(()) };
        if expiry.on == OnExpiry::Unload {
            self.cache.unload(time.saturating_sub(expiry.after), UNLOADS);
            return Ok(());
        }
        let mut left = lists::looks(&self.lists.idle, time, LOOKS);
        while left > 0
            && let Some((due, piece)) = lists::take_due(&mut self.lists.idle, time, &mut self.cache)?
        {
            self.cache.prefetch(lists::keys(&piece))?;
            for key in lists::keys(&piece) {
                left = left.saturating_sub(1);
                self.look_at(key, due, time, expiry)?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, key: &[u8], listed: Micros, time: Micros, expiry: Expiry) -> Result<(), Error> {
        let todo = self.cache.change(key, |entry| {
            let mut todo = Todo::default();
            // It may have ended and begun anew since, and is in another list then.
            if let Some(Entry::Element(kept)) = entry
                && kept.listed == Some(listed)
            {
                if has_expired(Some(expiry), kept.touched, time) {
                    *entry = None;
                } else {
                    kept.listed = Some(due(expiry, kept.touched));
                    todo.idle = kept.listed;
                }
            }
            todo
        })?;
        follow_up(key, &todo, &mut self.cache, &mut self.lists, &mut self.asked)
    }
}

/// Puts the element of a key into the lists in which it waits.
#[inline]
fn follow_up<E: Element>(
    key: &[u8],
    todo: &Todo,
    cache: &mut Cache<E>,
    lists: &mut Lists,
    asked: &mut Asked,
) -> Result<(), Error> {
    if todo.pend {
        lists.pend(cache, key)?;
    }
    if let Some(due) = todo.idle {
        lists.idle(cache, due, key)?;
    }
    for due in asked.wakes.drain(..) {
        lists.wake(cache, due, key)?;
    }
    Ok(())
}

/// The element of an entry, made if it is missing or its time to live has passed.
fn revived<E: Element>(
    entry: &mut Option<Entry<E>>,
    expiry: Option<Expiry>,
    time: Micros,
    create: impl FnOnce() -> E,
) -> &mut Kept<E> {
    // In lists it stays where it was.
    let (is_pending, listed) = match entry {
        Some(Entry::Element(kept)) if has_expired(expiry, kept.touched, time) => {
            (kept.is_pending, kept.listed)
        }
        Some(Entry::Element(_)) => return kept_of(entry),
        _ => (false, None),
    };
    let kept = Kept { element: create(), touched: time, count: 0, is_pending, listed };
    *entry = Some(Entry::Element(kept));
    kept_of(entry)
}

fn kept_of<E>(entry: &mut Option<Entry<E>>) -> &mut Kept<E> {
    match entry {
        Some(Entry::Element(kept)) => kept,
        _ => unreachable!("the entry was just seen to be an element"),
    }
}

fn has_expired(expiry: Option<Expiry>, touched: Micros, time: Micros) -> bool {
    expiry.is_some_and(|expiry| expiry.on == OnExpiry::Forget && time.saturating_sub(touched) >= expiry.after)
}

/// The list of idle elements for one that was touched then.
fn due(expiry: Expiry, touched: Micros) -> Micros {
    lists::round_up(touched.saturating_add(expiry.after), (expiry.after / IDLE_LISTS).max(1))
}

fn of_element(error: Error, key: crate::Packed<'_>) -> Error {
    if key.fields().is_empty() { error } else { error.context(format!("element {key:?}")) }
}
