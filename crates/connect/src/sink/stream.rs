//! Records into a stream that another program reads at its own pace: standard output, a pipe.
//!
//! A write waits for the reader, so it is done on a thread for that, with an outbox before it: a reader that stops
//! holds back the job, and neither its worker nor its end.
//! In a durable job a cycle waits until everything before its marker has been written; at-least-once, as bytes that the
//! reader has got cannot be taken back.
//!
//! A reader that goes away (`| head`) is not a failure where the job file says so: the report shows it. Later records
//! are counted and not written, and in a durable job no cycle with any of them is ever committed: the job is to be
//! ended.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use thalweg_flow::Output;
use thalweg_types::{Batch, Error};

use super::delivery::Item;
use super::file::BUFFER;
use super::outbox::Outbox;
use super::outbox_sink::{Dialect, Leaves, OutboxSink, Settlement};
use super::unwritable::Refusals;
use crate::format::Encoder;
use crate::{SinkContext, SinkReport};

/// Bytes that may wait to be written.
const QUEUE: usize = 4 * BUFFER;

/// Opens the stream. Called at the first write, as opening a pipe blocks until it has a reader.
pub(super) type Open = Box<dyn FnOnce() -> std::io::Result<Box<dyn Write + Send>> + Send>;

pub(super) struct Stream {
    /// For errors: `standard output`.
    pub(super) what: String,
    pub(super) open: Open,
    /// A reader that goes away has had enough.
    pub(super) may_close: bool,
    /// Its position in a commit record.
    pub(super) position: Vec<u8>,
}

/// The operator that writes to a stream.
pub(super) type StreamSink = OutboxSink<Pieces>;

pub(super) struct Pieces {
    encoder: Box<dyn Encoder>,
    refusals: Refusals,
    report: SinkReport,
    is_durable: bool,
    position: Vec<u8>,
}

impl StreamSink {
    /// # Errors
    /// Where the I/O runtime cannot be started.
    pub(super) fn new(
        context: &SinkContext,
        mut encoder: Box<dyn Encoder>,
        stream: Stream,
    ) -> Result<Self, Error> {
        let Stream { what, open, may_close, position } = stream;
        let is_durable = context.durable.is_some();
        let outbox = Arc::new(Outbox::new(QUEUE));
        let report = context.report.clone();
        let writer = Writer { outbox: Arc::clone(&outbox), what, may_close, is_durable, report };
        let mut begin = Vec::new();
        encoder.start(&mut begin);
        let refusals = Refusals::new(&context.schema);
        let pieces = Pieces { encoder, refusals, report: context.report.clone(), is_durable, position };
        OutboxSink::start(context, pieces, begin, outbox, writer.write(open))
    }
}

impl Dialect for Pieces {
    const GATHER: usize = BUFFER;
    const LEAVES: Leaves = Leaves::AtTicks;

    fn encode(&mut self, batch: &Batch, text: &mut Vec<u8>, out: &mut Output<'_>) -> Result<u64, Error> {
        if self.report.is_output_closed() && !self.is_durable {
            return Ok(batch.len() as u64);
        }
        Ok(self.refusals.encode(batch, &mut *self.encoder, text, out))
    }

    fn end_cycle(&mut self, _: u64) -> Box<dyn Settlement> {
        Box::new(self.position.clone())
    }
}

/// Takes pieces out of the outbox and writes them.
struct Writer {
    outbox: Arc<Outbox<Item>>,
    what: String,
    may_close: bool,
    is_durable: bool,
    report: SinkReport,
}

/// The open stream, from the first write on.
enum Target {
    Closed(Open),
    Open(Box<dyn Write + Send>),
}

fn write_to(target: Target, text: &[u8]) -> std::io::Result<Target> {
    let mut stream = match target {
        Target::Closed(open) => open()?,
        Target::Open(stream) => stream,
    };
    stream.write_all(text).and_then(|()| stream.flush())?;
    Ok(Target::Open(stream))
}

impl Writer {
    /// # Errors
    /// Why something could not be written.
    async fn write(self, open: Open) -> Result<(), Error> {
        let mut target = Some(Target::Closed(open));
        while let Some((item, bytes)) = self.outbox.next().await {
            if let Item::Text { text, .. } = item
                && let Some(open) = target.take()
            {
                // A thread that stays in a write keeps nobody: neither this task nor the end of the process waits for
                // it.
                let written = tokio::task::spawn_blocking(move || write_to(open, &text)).await;
                match written {
                    Ok(Ok(open)) => {
                        target = Some(open);
                        self.report.add_bytes(bytes as u64);
                    }
                    Ok(Err(error)) if self.may_close && error.kind() == ErrorKind::BrokenPipe => {
                        self.report.set_output_closed();
                    }
                    Ok(Err(error)) => {
                        return Err(Error::external(format!("write to {}", self.what)).with_source(error));
                    }
                    Err(_) => return Err(Error::internal("the thread that writes panicked")),
                }
            }
            if target.is_none() && self.is_durable {
                // The rest counts as not delivered, and no cycle with it is committed.
                return Ok(());
            }
            self.outbox.release(1, bytes);
            self.outbox.deliver(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use arrow_array::{Int64Array, RecordBatch};
    use thalweg_flow::{CyclePart, InputId, Operator, Waker, collect, collect_with_parts};
    use thalweg_types::{DataType, Field, Schema, SeqRange, Seqs};

    use super::*;
    use crate::format::ndjson::NdjsonEncoder;
    use crate::{Options, SinkResume};

    const LIMIT: Duration = Duration::from_secs(60);

    fn schema() -> Schema {
        Schema::new(vec![Field::new("n", DataType::Int64)])
    }

    /// Takes some bytes, then nobody reads any more.
    struct Head {
        left: usize,
        seen: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.left);
            self.left -= count;
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..count]);
            if count > 0 { Ok(count) } else { Err(ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn head(left: usize) -> (Box<dyn Write + Send>, Arc<Mutex<Vec<u8>>>) {
        let seen = Arc::default();
        (Box::new(Head { left, seen: Arc::clone(&seen) }), seen)
    }

    /// Waits with every write until the test lets it go on.
    struct Stopped(Receiver<()>);

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn stopped_reader() -> (Sender<()>, Box<dyn Write + Send>) {
        let (read, reader) = channel();
        (read, Box::new(Stopped(reader)))
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("no space"))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn sink(stream: Box<dyn Write + Send>, durable: Option<SinkResume>) -> (StreamSink, SinkReport) {
        let context = SinkContext {
            job: "test".into(),
            name: "answers".into(),
            schema: schema(),
            format: None,
            follows: false,
            options: Options::default(),
            report: SinkReport::default(),
            data_dir: std::path::PathBuf::new(),
            durable,
            unit: None,
        };
        let stream = Stream {
            what: "standard output".to_owned(),
            open: Box::new(move || Ok(stream)),
            may_close: true,
            position: b"here".to_vec(),
        };
        let encoder = Box::new(NdjsonEncoder::new(&schema()));
        (StreamSink::new(&context, encoder, stream).unwrap(), context.report)
    }

    fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < LIMIT, "{what} did not come true");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn give(sink: &mut StreamSink, numbers: Vec<i64>) {
        let count = numbers.len();
        let column = Arc::new(Int64Array::from(numbers));
        let records = RecordBatch::try_new(Arc::clone(schema().arrow()), vec![column]).unwrap();
        let range = SeqRange::new(0, count as u64);
        let batch = Batch::new(range, records, vec![0; count].into(), Seqs::Dense(0));
        collect(|out| sink.process(InputId { port: 0, task: 0 }, batch, out)).unwrap();
    }

    fn mark(sink: &mut StreamSink, cycle: u64) -> Box<dyn CyclePart> {
        let (_, mut parts) = collect_with_parts(|out| sink.cycle(cycle, out)).unwrap();
        parts.pop().expect("each cycle has a part").1
    }

    /// Prepares a part on a thread of its own, and returns its result.
    fn prepared(mut part: Box<dyn CyclePart>) -> Receiver<Result<Vec<u8>, String>> {
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(part.prepare().map_err(|error| error.message().to_owned())));
        told
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        let (stream, seen) = head(20);
        let (mut sink, report) = sink(stream, None);
        for round in 0..3 {
            give(&mut sink, vec![1, 2]);
            collect(|out| sink.tick(0, out)).unwrap();
            eventually("the writer", || sink.is_idle());
            assert_eq!(report.is_output_closed(), round > 0);
        }
        collect(|out| sink.finish(out)).unwrap();
        assert!(sink.is_drained(&Waker::new(|| {})).unwrap());
        assert_eq!((report.records(), report.bytes()), (6, 16));
        assert_eq!(seen.lock().unwrap().len(), 20);
    }

    #[test]
    fn a_cycle_is_committed_when_all_of_it_has_been_written() {
        let (stream, seen) = head(usize::MAX);
        let (mut sink, _) = sink(stream, Some(SinkResume::default()));
        give(&mut sink, vec![1, 2]);
        let told = prepared(mark(&mut sink, 1)).recv_timeout(LIMIT).unwrap();
        assert_eq!(told, Ok(b"here".to_vec()));
        assert_eq!(
            *seen.lock().unwrap(),
            b"{\"n\":1}\n{\"n\":2}\n",
            "no tick came, and no more than these records"
        );
    }

    #[test]
    fn what_nobody_has_read_is_in_no_commit() {
        let (stream, _) = head(20);
        let (mut sink, report) = sink(stream, Some(SinkResume::default()));
        give(&mut sink, vec![1, 2]);
        let first = prepared(mark(&mut sink, 1));
        assert_eq!(first.recv_timeout(LIMIT).unwrap(), Ok(b"here".to_vec()));
        give(&mut sink, vec![3, 4]);
        let second = prepared(mark(&mut sink, 2));
        eventually("the reader is gone", || report.is_output_closed());
        let third = prepared(mark(&mut sink, 3));
        collect(|out| sink.finish(out)).unwrap();
        assert!(!sink.is_drained(&Waker::new(|| {})).unwrap(), "its task stays until the job is ended");
        drop(sink);
        for told in [second, third] {
            let told = told.recv_timeout(LIMIT).expect("nothing to wait for");
            assert_eq!(told, Err("the job was stopped before everything was delivered".to_owned()));
        }
    }

    #[test]
    fn a_reader_that_does_not_read_holds_the_job_back_and_not_its_worker() {
        let (read, stream) = stopped_reader();
        let (mut sink, _) = sink(stream, None);
        let (wake, woken) = channel();
        let wake = Mutex::new(wake);
        let waker = Waker::new(move || {
            let _ = wake.lock().unwrap_or_else(PoisonError::into_inner).send(());
        });
        let mut given = 0;
        while sink.is_ready(&waker) {
            give(&mut sink, vec![i64::MIN; 20_000]);
            given += 1;
            assert!(given < 100, "nothing holds the sink back");
        }
        assert!(sink.state_bytes() < 2 * QUEUE, "{} bytes", sink.state_bytes());
        read.send(()).unwrap();
        woken.recv_timeout(LIMIT).expect("there is room again");
        assert!(sink.is_ready(&waker));
        // A writer that is in the middle of a write is not waited for.
        drop(sink);
        drop(read);
    }

    #[test]
    fn an_error_of_the_stream_says_where() {
        let (mut sink, _) = sink(Box::new(Full), None);
        give(&mut sink, vec![1]);
        collect(|out| sink.tick(0, out)).unwrap();
        let start = Instant::now();
        let error = loop {
            if let Err(error) = collect(|out| sink.tick(0, out)) {
                break error;
            }
            assert!(start.elapsed() < LIMIT, "it does not fail");
            std::thread::yield_now();
        };
        assert_eq!(error.chain(), "write to standard output: no space");
    }
}
