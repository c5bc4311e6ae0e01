//! Sources: where records come from.
//!
//! A source cuts the bytes that it receives into blocks of whole records (`cut`); [`SourceDecoder`] makes records and
//! rejects of them in the decode tasks. The two share nothing but the block and its [`BlockContext`].
//! Sources that talk to the network do so on the I/O runtime and hand over through a bounded queue.

mod ahead;
pub mod connections;
pub(crate) mod cut;
pub(crate) mod datagrams;
pub(crate) mod decoder;
pub mod file;
pub mod generator;
pub(crate) mod handover;
pub mod http;
mod journal;
mod json_body;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod pcap;
mod poison;
pub mod sflow;
pub mod stdin;
pub mod tcp;
pub mod udp;

pub use ahead::MaxAhead;
pub use cut::BlockContext;
pub use decoder::SourceDecoder;
#[cfg(test)]
pub(crate) use decoder::record_batch;
pub use journal::{BlockCodec, JournalBlock};

use std::path::Path;
use std::sync::Arc;

use thalweg_flow::{Decoder, Source, TaskFactory};
use thalweg_types::Error;

use crate::format::RecordFormat;
use crate::{BuiltSource, Mistake, OptionKind, OptionSpec, Options, Replay, SourceContext};

/// The hint for a file that is not the one that a job has read before.
const FILE_CHANGED: &str = "put the file back, or begin anew with another job name or --data-dir";

/// A file that has fewer records than a job has read from it: `next` is the first that is missing.
fn ends_early(path: &Path, next: u64, missing: u64) -> Error {
    Error::user(format!("{path:?} ends with record {next}, but {missing} more were read from it before"))
        .with_hint(FILE_CHANGED)
}

const LISTEN: OptionSpec = OptionSpec {
    key: "listen",
    kind: OptionKind::Text,
    required: true,
    default: None,
    doc: "address and port to listen on; port 0 takes any free port",
};

/// A `listen` that is no address, before anything is bound to it. Names of hosts are not resolved here.
fn check_listen(options: &Options) -> Option<Mistake> {
    let text = options.text("listen")?;
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    if matches!(port, Some(Ok(_))) {
        return None;
    }
    let error = Error::user(format!("expected address and port, got {text:?}"));
    Some(Mistake::new("listen", error.with_hint("such as 127.0.0.1:7000 or [::1]:7000; ports end at 65535")))
}

const QUEUE: OptionSpec = OptionSpec {
    key: "queue",
    kind: OptionKind::Size,
    required: false,
    default: Some("16MiB"),
    doc: "size of the queue of received bytes",
};

/// The format that the source was given, bound to its schema.
fn reader_of(context: &SourceContext) -> Result<Arc<dyn RecordFormat>, Error> {
    decoder::EventClock::new(&context.schema, context)?;
    let format =
        context.format.as_ref().ok_or_else(|| Error::internal("the source was built without a format"))?;
    format.reader(&context.schema)
}

/// The bytes that may wait for the job, of a source with [`QUEUE`].
fn queue_bytes(options: &Options) -> usize {
    options.size(QUEUE.key).map_or(handover::DEFAULT_QUEUE, |bytes| bytes as usize)
}

/// Why nothing can listen on an address; `how` is `tcp` or `udp`.
fn cannot_listen(how: &'static str, address: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| {
        Error::external(format!("listen on {how} {address:?}"))
            .with_hint("choose an address of this machine and a port that nobody else listens on")
            .with_source(error)
    }
}

/// A source of records in a format which can be had once: a journal of the job keeps their blocks.
fn received(
    context: SourceContext,
    format: Arc<dyn RecordFormat>,
    source: impl Source + 'static,
) -> BuiltSource {
    let replay = Replay::Journal(BlockCodec::new(Some(Arc::clone(&format))));
    BuiltSource::new(Box::new(source), decoders_of(&context, format), context.schema, replay)
}

/// Decode tasks for a source that reads a format.
fn decoders_of(context: &SourceContext, format: Arc<dyn RecordFormat>) -> TaskFactory<dyn Decoder> {
    let (context, is_told) = (context.clone(), Arc::default());
    Box::new(move |_| {
        let (format, cut) = (Arc::clone(&format), Arc::clone(&format));
        let decoder = SourceDecoder::new(&context, move || format.decoder())?;
        Ok(Box::new(decoder.cut_by(cut).telling_once(Arc::clone(&is_told))))
    })
}
