//! Records from standard input. A thread of its own reads, because reading there cannot be interrupted.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use thalweg_flow::{Poll, Source, Waker};
use thalweg_types::{Error, Micros};

use super::cut::{Cutter, QuoteWatch};
use super::handover::{DEFAULT_QUEUE, Handover, Intake, io_runtime};
use super::{reader_of, received};
use crate::format::RecordFormat;
use crate::{BuiltSource, OptionSpec, Options, SourceContext, SourcePlugin};

/// Bytes read at a time at most.
const READ: usize = 256 << 10;

/// The plug-in.
pub struct StdinPlugin;

impl SourcePlugin for StdinPlugin {
    fn name(&self) -> &'static str {
        "stdin"
    }

    fn doc(&self) -> &'static str {
        "records from standard input"
    }

    fn page(&self) -> &'static str {
        include_str!("stdin.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_live(&self, _: &Options) -> bool {
        false
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let input: Box<dyn Read + Send> = Box::new(std::io::stdin());
        let source = ReaderSource::new(input, Arc::clone(&format), "standard input");
        Ok(received(context, format, source))
    }
}

/// Reads any stream of bytes, on a thread of its own.
pub struct ReaderSource {
    input: Option<Box<dyn Read + Send>>,
    format: Arc<dyn RecordFormat>,
    name: &'static str,
    intake: Intake<()>,
}

impl ReaderSource {
    pub fn new(input: Box<dyn Read + Send>, format: Arc<dyn RecordFormat>, name: &'static str) -> Self {
        let intake = Intake::new(Arc::new(Handover::new(DEFAULT_QUEUE)));
        Self { input: Some(input), format, name, intake }
    }
}

impl Source for ReaderSource {
    fn start(&mut self, waker: Waker) -> Result<(), Error> {
        let handover = Arc::clone(self.intake.handover());
        handover.set_waker(waker);
        let Some(input) = self.input.take() else { return Ok(()) };
        let runtime = io_runtime()?;
        let (format, name) = (Arc::clone(&self.format), self.name);
        let run =
            move || match read_all(input, &*format, name, |cut| runtime.block_on(handover.send(cut, ()))) {
                Ok(()) => handover.close(),
                Err(error) => handover.fail(error.context(format!("read {name}"))),
            };
        std::thread::Builder::new()
            .name("connect:stdin".to_owned())
            .spawn(run)
            .map(drop)
            .map_err(|error| Error::external(format!("start a thread to read {name}")).with_source(error))
    }

    fn poll(&mut self, max_bytes: usize, _: Micros) -> Result<Poll, Error> {
        self.intake.poll_blocks(max_bytes)
    }

    fn drain(&mut self) {
        // The thread may wait in a read for ever; its later bytes are not looked at.
        self.intake.handover().close();
    }
}

fn read_all(
    mut input: Box<dyn Read + Send>,
    format: &dyn RecordFormat,
    name: &str,
    mut send: impl FnMut(super::cut::Cut),
) -> Result<(), Error> {
    let mut cutter = Cutter::new(format);
    let (mut at_end, mut given, mut quotes) = (false, 0, QuoteWatch::default());
    while !at_end {
        let wanted = cutter.wanted(READ);
        let buffer = cutter.buffer();
        let len = buffer.len();
        buffer.resize(len + wanted, 0);
        let result = input.read(&mut buffer[len..]);
        buffer.truncate(len + result.as_ref().map_or(0, |count| *count));
        match result {
            Ok(count) => (at_end, given) = (count == 0, given + count as u64),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::external("read").with_source(error)),
        }
        while let Some(cut) = cutter.next(at_end)? {
            send(cut);
        }
        if quotes.is_due(&cutter, given, Instant::now()) {
            let line = cutter.place(given).lines + 1;
            tracing::warn!(
                input = name,
                line,
                "a quote is open since this line: nothing after it is taken until the quote is closed or its line is rejected"
            );
        }
    }
    Ok(())
}
