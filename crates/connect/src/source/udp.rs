//! Records over UDP: a datagram is one or more lines, and no line goes over two.
//!
//! How datagrams are received, and counted where they are lost, is in [`super::datagrams`]. A format whose streams have a
//! header is refused, because a datagram is no stream.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use thalweg_types::{Error, Micros};
use tracing::info;

use super::cut::{Cut, cut_all};
use super::datagrams::{ALLOW, DatagramSource, Listening, Packing, RECEIVE_BUFFER, SOCKETS, check_datagrams};
use super::handover::Handover;
use super::{LISTEN, QUEUE, reader_of, received};
use crate::format::{RecordFormat, Splitter};
use crate::{BuiltSource, Mistake, OptionSpec, Options, SourceContext, SourcePlugin};

/// The plug-in.
pub struct UdpPlugin;

impl SourcePlugin for UdpPlugin {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn doc(&self) -> &'static str {
        "records from UDP datagrams"
    }

    fn page(&self) -> &'static str {
        include_str!("udp.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[LISTEN, QUEUE, ALLOW, SOCKETS, RECEIVE_BUFFER]
    }

    fn default_format(&self) -> Option<&'static str> {
        Some("ndjson")
    }

    fn is_pushed(&self) -> bool {
        true
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_datagrams(options).collect()
    }

    fn check_format(&self, format: &dyn RecordFormat) -> Option<Mistake> {
        check_header(format).err().map(|error| Mistake::new("format", error))
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        bind(Listening::of("udp", &context.options)?, &reader_of(context)?).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let format = reader_of(&context)?;
        let source = bind(Listening::of("udp", &context.options)?, &format)?;
        let address = source.address();
        info!(source = %context.name, %address, "listening on udp");
        Ok(received(context, format, source).listening(address))
    }
}

/// A datagram is no stream, which could begin with a header.
fn check_header(format: &dyn RecordFormat) -> Result<(), Error> {
    match format.has_preamble() {
        true => {
            Err(Error::user("a datagram has no header").with_hint("set header: false, and no skip_lines"))
        }
        false => Ok(()),
    }
}

/// A source that listens.
///
/// # Errors
/// Where the address cannot be bound, or the format needs a header.
pub(crate) fn bind(listening: Listening, format: &Arc<dyn RecordFormat>) -> Result<DatagramSource, Error> {
    check_header(&**format)?;
    let handover = Handover::new(listening.queue).of_records(format.block_records());
    DatagramSource::bind(listening, handover, None, || {
        let (format, splitter) = (Arc::clone(format), format.splitter());
        Box::new(Lines { format, splitter, place: 0, cuts: Vec::new() })
    })
}

/// Datagrams cut into records.
struct Lines {
    format: Arc<dyn RecordFormat>,
    splitter: Box<dyn Splitter>,
    /// Bytes that it has been given.
    place: u64,
    cuts: Vec<Cut>,
}

impl Packing for Lines {
    fn add(&mut self, datagram: &[u8], _: IpAddr, _: Micros) -> u64 {
        let cuts = self.cut(datagram);
        let records = cuts.iter().map(|cut| u64::from(cut.count)).sum();
        self.cuts.extend(cuts);
        records
    }

    fn pieces(&mut self) -> Vec<Cut> {
        std::mem::take(&mut self.cuts)
    }
}

impl Lines {
    fn cut(&mut self, datagram: &[u8]) -> Vec<Cut> {
        // One splitter serves all datagrams that hold whole records, which is nearly all of them.
        let place = self.place;
        self.place += datagram.len() as u64;
        if let Ok(split) = self.splitter.split(place, datagram, true)
            && split.records > 0
            && split.skip + split.bytes == datagram.len()
        {
            let data = Bytes::copy_from_slice(&datagram[split.skip..]);
            return vec![Cut { data, count: split.records, context: None }];
        }
        cut_all(&*self.format, datagram).unwrap_or_default()
    }
}
