//! Records to standard output. A reader that goes away (`| head`) is no failure: what follows is counted and
//! not written, and the sink's report says so.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error, Micros};

use super::{encoder_of, file::BUFFER, only_task, warn_of_skipped};
use crate::format::Encoder;
use crate::{OptionSpec, SinkContext, SinkPlugin, SinkReport};

/// The plug-in.
pub struct StdoutPlugin;

impl SinkPlugin for StdoutPlugin {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn doc(&self) -> &'static str {
        "records to standard output"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        Ok(Box::new(move |info| {
            only_task(&context, info)?;
            let mut encoder = encoder_of(&context)?;
            let mut buffer = Vec::new();
            encoder.start(&mut buffer);
            Ok(Box::new(StreamSink {
                name: Arc::clone(&context.name),
                stream: Some(std::io::stdout()),
                encoder,
                buffer,
                report: context.report.clone(),
            }))
        }))
    }
}

/// Writes to a stream until its reader goes away.
struct StreamSink<W> {
    name: Arc<str>,
    /// `None` once nobody reads any more.
    stream: Option<W>,
    encoder: Box<dyn Encoder>,
    buffer: Vec<u8>,
    report: SinkReport,
}

impl<W: Write> StreamSink<W> {
    fn flush(&mut self) -> Result<(), Error> {
        if let Some(stream) = &mut self.stream
            && !self.buffer.is_empty()
        {
            match stream.write_all(&self.buffer).and_then(|()| stream.flush()) {
                Ok(()) => self.report.add_bytes(self.buffer.len() as u64),
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    self.stream = None;
                    self.report.set_output_closed();
                }
                Err(error) => return Err(Error::external("write to standard output").with_source(error)),
            }
        }
        self.buffer.clear();
        Ok(())
    }
}

impl<W: Write + Send> Operator for StreamSink<W> {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        self.report.add_records(batch.len() as u64);
        if self.stream.is_none() {
            return Ok(());
        }
        self.encoder.encode(&batch, &mut self.buffer);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn tick(&mut self, _: Micros, _: &mut Output<'_>) -> Result<(), Error> {
        self.flush()
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        warn_of_skipped(&self.name, &*self.encoder);
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch};
    use thalweg_flow::collect;
    use thalweg_types::{DataType, Field, Schema, SeqRange, Seqs};

    use super::*;
    use crate::format::ndjson::NdjsonEncoder;

    /// Takes some bytes, then nobody reads any more.
    struct Head(usize);

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.0);
            self.0 -= count;
            if count > 0 { Ok(count) } else { Err(ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64)]);
        let column = Arc::new(Int64Array::from(vec![1, 2]));
        let records = RecordBatch::try_new(Arc::clone(schema.arrow()), vec![column]).unwrap();
        let batch = Batch::new(SeqRange::new(0, 2), records, vec![0; 2].into(), Seqs::Dense(0));
        let report = SinkReport::default();
        let mut sink = StreamSink {
            name: "answers".into(),
            stream: Some(Head(20)),
            encoder: Box::new(NdjsonEncoder::new(&schema)),
            buffer: Vec::new(),
            report: report.clone(),
        };
        for round in 0..3 {
            assert_eq!(report.is_output_closed(), round > 1);
            let input = InputId { port: 0, task: 0 };
            collect(|out| sink.process(input, batch.clone(), out)).unwrap();
            collect(|out| sink.tick(0, out)).unwrap();
        }
        collect(|out| sink.finish(out)).unwrap();
        assert_eq!((report.records(), report.bytes()), (6, 16));
    }
}
