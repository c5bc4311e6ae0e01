//! The sink that carries answers (input 0) and rejects (input 1) back to the clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_flow::{InputId, Operator, Output};
use thalweg_types::{Batch, Error, Reject, Rejects, Seq, SeqRange};

use super::Shared;
use super::line::Lines;
use super::remote::{Answers, RemoteDesk};
use crate::format::cells::{KeysOfBatch, record_cells, write_record};

pub struct ReplySink {
    shared: Arc<Shared>,
    keys: KeysOfBatch,
    /// Lines of pieces that are not complete, by their first number.
    open: BTreeMap<Seq, Lines>,
    /// Where answers come from elsewhere: then this sink only says which records are rejected.
    remote: Option<Arc<RemoteDesk>>,
}

impl ReplySink {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, keys: KeysOfBatch::default(), open: BTreeMap::new(), remote: None }
    }

    /// The sink of a door whose records are answered elsewhere, and what takes the answers.
    pub(super) fn elsewhere(mut self) -> (Self, Option<Arc<dyn Answers>>) {
        let remote = Arc::new(RemoteDesk::new(Arc::clone(&self.shared)));
        let answers = Arc::clone(&remote) as Arc<dyn Answers>;
        self.remote = Some(remote);
        (self, Some(answers))
    }

    fn answers(&mut self, batch: &Batch, waiting: &[SeqRange]) {
        let fields = record_cells(batch.records(), self.keys.of(batch.records()));
        for_each_waiting(batch, waiting, &mut self.open, |row, lines, record| {
            lines.answer(record, |out| write_record(&fields, row as usize, out));
        });
    }

    fn rejects(&mut self, batch: &Batch, waiting: &[SeqRange]) {
        let rejects = Rejects::of(batch);
        for_each_waiting(batch, waiting, &mut self.open, |row, lines, record| {
            let Reject { code, reason, .. } = rejects.get(row);
            lines.error(record, code, reason);
        });
    }
}

/// Calls `call` for each row that a client waits for, with the lines of its piece and its number within the piece.
fn for_each_waiting(
    batch: &Batch,
    waiting: &[SeqRange],
    open: &mut BTreeMap<Seq, Lines>,
    mut call: impl FnMut(u32, &mut Lines, u64),
) {
    let mut waiting = waiting.iter();
    let mut at: Option<(&SeqRange, &mut Lines)> = None;
    for row in batch.row_numbers() {
        let seq = batch.seq(row);
        while at.as_ref().is_none_or(|(range, _)| range.end <= seq) {
            let Some(range) = waiting.next() else { return };
            if range.end > seq {
                let lines = open.entry(range.start).or_insert_with(|| Lines::new(records_of(*range)));
                at = Some((range, lines));
                break;
            }
        }
        if let Some((range, lines)) = &mut at
            && range.contains(seq)
        {
            call(row, lines, seq - range.start);
        }
    }
}

fn records_of(range: SeqRange) -> u32 {
    u32::try_from(range.len()).unwrap_or(u32::MAX)
}

impl Operator for ReplySink {
    fn process(&mut self, input: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        if let Some(remote) = &self.remote {
            if input.port == 1 {
                let rejects = Rejects::of(&batch);
                for row in batch.row_numbers() {
                    let Reject { code, reason, .. } = rejects.get(row);
                    remote.reject(batch.seq(row), code, reason);
                }
            }
            return Ok(());
        }
        // Encoding happens outside the lock: the sequencer takes it for every block.
        let waiting = self.shared.desk().waiting_in(batch.range());
        if waiting.is_empty() {
            return Ok(());
        }
        match input.port {
            0 => self.answers(&batch, &waiting),
            1 => self.rejects(&batch, &waiting),
            other => return Err(Error::internal(format!("a reply sink has two inputs, got input {other}"))),
        }
        Ok(())
    }

    fn complete(&mut self, range: SeqRange, _: &mut Output<'_>) -> Result<(), Error> {
        if let Some(remote) = &self.remote {
            remote.judged(range.end);
            return Ok(());
        }
        let mut done = Vec::new();
        let mut desk = self.shared.desk();
        while desk.waiting.front().is_some_and(|(waits_for, _)| waits_for.end <= range.end) {
            done.extend(desk.waiting.pop_front());
        }
        drop(desk);
        let is_any = !done.is_empty();
        for (waited_for, ticket) in done {
            let records = records_of(waited_for);
            let lines = self.open.remove(&waited_for.start);
            let (lines, accepted) = match (ticket.request.wants(), lines) {
                (true, lines) => lines.unwrap_or_else(|| Lines::new(records)).finish(),
                (false, _) => (Vec::new(), 0),
            };
            ticket.set_finished();
            ticket.request.finish(records, lines, accepted);
        }
        if is_any {
            self.shared.inbox.on_room();
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        if self.remote.is_some() {
            // Answers may still come.
            return Ok(());
        }
        self.shared.abandon();
        Ok(())
    }
}

impl Drop for ReplySink {
    fn drop(&mut self) {
        if self.remote.is_none() {
            self.shared.abandon();
        }
    }
}
