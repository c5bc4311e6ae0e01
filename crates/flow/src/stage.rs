//! One operator or decoder inside a task: calls it, checks and sorts what it emits, hands it on.
//!
//! A task is a *chain* of stages: the first takes what the rings bring, each other one takes one output of a
//! stage before it, called directly. Emitted rows go port by port to the links, and to the next stage.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use thalweg_types::{Batch, Error, Seq, SeqRange};

use crate::clock::processor_time;
use crate::job::{Cause, JobCore};
use crate::link::{Link, Moment};
use crate::merge::{ascend, ascends, bounds, merge, renumber, stand_apart};
use crate::operator::At;
use crate::ring::{Control, Sequenced};
use crate::stats::{Counter, TaskCounters};
use crate::{Decoder, InputId, Operator, Output, Waker};

pub(crate) enum Body {
    Decoder(Box<dyn Decoder>),
    Operator(Box<dyn Operator>),
    /// It can publish nothing any more, in a job that stays to be read.
    Gone,
}

/// What an output leads to.
#[derive(Default)]
pub(crate) struct Port {
    pub links: Vec<Link>,
    /// A later stage of the same task, and the bytes that went there.
    pub chained: Option<(usize, Arc<Counter>)>,
}

pub(crate) struct Stage {
    core: Arc<JobCore>,
    pub name: Arc<str>,
    pub index: u32,
    pub body: Body,
    pub ports: Vec<Port>,
    pub counters: Arc<TaskCounters>,
    /// What a stage before this one emitted in the present range.
    pub inbox: Vec<Batch>,
    pub emitted: Vec<(usize, Batch)>,
    /// What the operator says it works on.
    pub at: At,
    /// The first record of the batch that it was given.
    pub first: Option<Seq>,
    /// Of a job that stays to be read: it has failed, or later records will never be durable. Records, ticks and
    /// markers are dropped, commands are not.
    only_answers: bool,
}

fn output<'a>(
    who: (&'a Arc<str>, u32),
    emitted: &'a mut Vec<(usize, Batch)>,
    at: &'a mut At,
    range: SeqRange,
    core: &'a Arc<JobCore>,
) -> Output<'a> {
    Output { who: Some(who), emitted, at, range, core: Some(core), parts: None }
}

fn note_waiting(counters: &TaskCounters, operator: &dyn Operator) {
    counters.waits_for_tick.store(operator.waits_for_tick(), Ordering::Relaxed);
}

impl Stage {
    pub(crate) fn new(
        core: Arc<JobCore>,
        name: Arc<str>,
        index: u32,
        body: Body,
        ports: Vec<Port>,
        counters: Arc<TaskCounters>,
    ) -> Self {
        if let Body::Operator(operator) = &body {
            note_waiting(&counters, &**operator);
        }
        Self {
            core,
            name,
            index,
            body,
            ports,
            counters,
            inbox: Vec::new(),
            emitted: Vec::new(),
            at: At::Unsaid,
            first: None,
            only_answers: false,
        }
    }

    /// The record to name if the stage fails now.
    pub(crate) fn record(&self) -> Option<Seq> {
        match (&self.body, self.at) {
            (Body::Decoder(decoder), _) if self.first.is_some() => decoder.working_on().or(self.first),
            (_, At::Record(seq)) => Some(seq),
            (_, At::NoRecord) => None,
            (_, At::Unsaid) => self.first,
        }
    }

    pub(crate) fn is_ready(&mut self, waker: &Waker) -> bool {
        match &mut self.body {
            Body::Operator(operator) if !self.only_answers => operator.is_ready(waker),
            _ => true,
        }
    }

    /// How many records of a batch the operator takes at once.
    pub(crate) fn rows_at_once(&mut self, batch: &Batch) -> usize {
        match &mut self.body {
            Body::Operator(operator) if !self.only_answers => operator.rows_at_once(batch).max(1),
            _ => batch.len(),
        }
    }

    pub(crate) fn is_drained(&mut self, waker: &Waker) -> Result<bool, Error> {
        match &mut self.body {
            Body::Operator(operator) if !self.only_answers => operator.is_drained(waker),
            _ => Ok(true),
        }
    }

    pub(crate) fn decode(&mut self, sequenced: &Sequenced) -> Result<(), Error> {
        let decoder = match &mut self.body {
            Body::Decoder(decoder) => decoder,
            Body::Gone => return Ok(()),
            Body::Operator(_) => {
                return Err(Error::internal(format!("a source's block reached operator {:?}", self.name)));
            }
        };
        let range = sequenced.range;
        self.first = Some(range.start);
        self.counters.records_in.add(range.len());
        self.counters.batches_in.add(1);
        let decoded = decoder.decode(&sequenced.block, range, sequenced.arrival)?;
        self.counters.note_newest(&decoded.records);
        self.emitted.push((0, decoded.records));
        if let Some(rejects) = decoded.rejects {
            self.counters.rejects.add(rejects.len() as u64);
            self.emitted.push((1, rejects));
        }
        for (place, records) in decoded.others.into_iter().enumerate() {
            self.counters.note_newest(&records);
            self.emitted.push((2 + place, records));
        }
        self.first = None;
        Ok(())
    }

    /// Gives the operator batches of one range.
    pub(crate) fn process(
        &mut self,
        pieces: impl Iterator<Item = (InputId, Batch)>,
        range: SeqRange,
    ) -> Result<(), Error> {
        let Body::Operator(operator) = &mut self.body else { return Ok(()) };
        if self.only_answers {
            return Ok(());
        }
        let counters = &self.counters;
        let mut had_records = false;
        for (input, batch) in pieces {
            had_records = true;
            counters.records_in.add(batch.len() as u64);
            counters.batches_in.add(1);
            counters.note_newest(&batch);
            self.first = bounds(&batch).map(|(first, _)| first);
            self.at = At::Unsaid;
            operator.process(
                input,
                batch,
                &mut output((&self.name, self.index), &mut self.emitted, &mut self.at, range, &self.core),
            )?;
        }
        self.first = None;
        self.at = At::Unsaid;
        operator.complete(
            range,
            &mut output((&self.name, self.index), &mut self.emitted, &mut self.at, range, &self.core),
        )?;
        if had_records {
            if let Some(time) = operator.task_time() {
                self.counters.task_time.raise(time);
            }
            note_waiting(&self.counters, &**operator);
        }
        Ok(())
    }

    /// Gives the operator what the stage before it emitted in `range`: batch by batch where their numbers allow
    /// it, else as one.
    pub(crate) fn process_inbox(
        &mut self,
        range: SeqRange,
        at: Moment,
        handed: &mut Vec<(usize, Batch)>,
    ) -> Result<(), Error> {
        let only = InputId { port: 0, task: 0 };
        let mut inbox = std::mem::take(&mut self.inbox);
        if !stand_apart(&inbox) {
            let all = merge(&inbox, range)?;
            inbox.clear();
            inbox.push(all);
        }
        let mut start = range.start;
        let mut batches = inbox.drain(..).peekable();
        loop {
            let batch = batches.next();
            let end = batches.peek().and_then(bounds).map_or(range.end, |(first, _)| first);
            let part = SeqRange::new(start, end);
            self.process(batch.map(|batch| (only, batch.with_range(part))).into_iter(), part)?;
            self.hand_on(part, at, handed)?;
            start = end;
            if end == range.end {
                break;
            }
        }
        drop(batches);
        self.inbox = inbox;
        Ok(())
    }

    /// From number `from` on the operator is given questions, and nothing that would change it. Tasks further
    /// down learn that it has no answers.
    pub(crate) fn only_answer(&mut self, from: Seq) {
        self.only_answers = true;
        self.emitted.clear();
        self.inbox.clear();
        (self.first, self.at) = (None, At::Unsaid);
        self.leave_out(from);
    }

    /// Tells tasks further down that records may be missing from number `from` on.
    pub(crate) fn leave_out(&self, from: Seq) {
        self.ports.iter().flat_map(|port| &port.links).for_each(|link| link.leave_out(from));
    }

    /// Drops operator or decoder with all that it holds: a reader that waits for its output learns that it will not
    /// come.
    pub(crate) fn leave(&mut self, from: Seq) {
        self.only_answer(from);
        self.body = Body::Gone;
    }

    /// Fails the job for the error of one of its calls about number `from` and later ones. Where the job stays to be
    /// read, the task goes on.
    ///
    /// # Errors
    /// `error`, where the job has to end.
    pub(crate) fn fail(&mut self, error: Error, from: Seq) -> Result<(), Error> {
        if !self.core.survives(&error) {
            return Err(error);
        }
        self.core.fail(&self.name, self.index, self.record(), Cause::Error(error));
        self.only_answer(from);
        Ok(())
    }

    /// Where the job has failed and stays to be read, the number from which on nothing is durable yet.
    pub(crate) fn lost_from(&self) -> Option<Seq> {
        let end = || self.core.order.as_ref().map_or(Seq::MAX, |order| order.end());
        self.core.leaves_out().then(end)
    }

    /// Passes a tick or its like to the operator, as number `seq`.
    pub(crate) fn control(&mut self, control: &Control, seq: Seq) -> Result<(), Error> {
        let Body::Operator(operator) = &mut self.body else { return Ok(()) };
        if self.only_answers && !matches!(control, Control::Command(_)) {
            return Ok(());
        }
        self.at = At::Unsaid;
        let range = SeqRange::new(seq, seq + 1);
        let mut out = output((&self.name, self.index), &mut self.emitted, &mut self.at, range, &self.core);
        match control {
            Control::Tick(now) => operator.tick(*now, &mut out)?,
            Control::Cycle { number, is_last } => {
                let (began, worked) = (Instant::now(), processor_time());
                operator.cycle(*number, &mut out)?;
                let worked = processor_time().saturating_sub(worked);
                if !is_last {
                    self.counters.markers.add(began.elapsed(), 1);
                    self.counters.marker_cpu.add(worked, 1);
                }
            }
            Control::Command(command) if command.operator == self.name => {
                operator.command(command, &mut out)?;
            }
            Control::Command(_) => {}
            Control::End => operator.finish(&mut out)?,
        }
        if let Control::Tick(_) = control {
            note_waiting(&self.counters, &**operator);
        }
        // A job that is told its order may have no ticks.
        if let Control::Tick(_) | Control::Cycle { .. } | Control::End = control {
            self.counters.state_bytes.set(operator.state_bytes() as u64);
            if let Some(counts) = operator.cache_counts() {
                *self.counters.cache.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
            }
            if let Some(counts) = operator.judged_counts() {
                *self.counters.judged.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
            }
            if let Some(counts) = operator.table_counts() {
                *self.counters.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(counts);
            }
        }
        for (_, batch) in &mut self.emitted {
            *batch = renumber(batch, seq);
        }
        Ok(())
    }

    /// Hands on the records emitted while `range` was worked on; for a later stage of the chain they go into
    /// `handed`.
    pub(crate) fn hand_on(
        &mut self,
        range: SeqRange,
        at: Moment,
        handed: &mut Vec<(usize, Batch)>,
    ) -> Result<(), Error> {
        if let [(_, _)] = self.emitted.as_slice() {
            // Nearly always: one batch on one port.
            if let Some((port, batch)) = self.emitted.pop() {
                self.hand_on_batch(port, batch, range, at, handed)?;
            }
            return Ok(());
        }
        while !self.emitted.is_empty() {
            let port = self.emitted[0].0;
            let batches: Vec<Batch> =
                self.emitted.extract_if(.., |(other, _)| *other == port).map(|(_, batch)| batch).collect();
            if ascend(&batches) {
                for batch in batches {
                    self.hand_on_batch(port, batch, range, at, handed)?;
                }
            } else {
                // Ports of a union overlap, for one: in order here, so that the operator need not care.
                let merged = merge(&batches, range)?;
                self.hand_on_batch(port, merged, range, at, handed)?;
            }
        }
        Ok(())
    }

    fn hand_on_batch(
        &mut self,
        number: usize,
        batch: Batch,
        range: SeqRange,
        at: Moment,
        handed: &mut Vec<(usize, Batch)>,
    ) -> Result<(), Error> {
        let Some((first, last)) = bounds(&batch) else { return Ok(()) };
        let port_count = self.ports.len();
        let Some(port) = self.ports.get_mut(number) else {
            return Err(Error::internal(format!(
                "{:?} emitted on output {number}; it has {port_count}",
                self.name
            )));
        };
        if first < range.start || last >= range.end || !ascends(&batch) {
            return Err(Error::internal(format!(
                "{:?} emitted order numbers {first} to {last}{} while it worked on {range}",
                self.name,
                if ascends(&batch) { "" } else { ", not ascending," }
            )));
        }
        let count = batch.len() as u64;
        let batch = batch.with_range(range);
        if let Some((stage, bytes)) = &port.chained {
            self.counters.records_out.add(count);
            bytes.add(batch.bytes() as u64);
            handed.push((*stage, batch));
            return Ok(());
        }
        // Output without a reader has not left.
        let Some((last, others)) = port.links.split_last_mut() else { return Ok(()) };
        self.counters.records_out.add(count);
        for link in others {
            link.add(batch.clone(), at)?;
        }
        last.add(batch, at)
    }
}
