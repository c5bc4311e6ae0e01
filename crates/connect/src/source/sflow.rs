//! Packet samples over UDP, as switches and routers send them.
//!
//! Datagrams are handed over as they are ([`super::datagrams`]); nothing but the number of samples is looked at.
//! Datagrams that never came show as gaps in the agents' sequence numbers.

use std::net::IpAddr;

use thalweg_types::{Error, Micros};
use tracing::info;

use super::cut::Cut;
use super::datagrams::{ALLOW, DatagramSource, Listening, Packing, RECEIVE_BUFFER, SOCKETS, check_datagrams};
use super::handover::{Handover, Joint};
use super::{BlockCodec, LISTEN, QUEUE};
use crate::sflow::agents::Agents;
use crate::sflow::datagram::Outline;
use crate::sflow::decode::{outputs, sflow_decoders};
use crate::sflow::frame::push;
use crate::sflow::options::{BYTES, SAMPLING_RATES, TUNNELS, check_samples, settings};
use crate::{BuiltSource, Mistake, OptionSpec, Options, Replay, SourceContext, SourceOutput, SourcePlugin};

/// The plug-in.
pub struct SflowPlugin;

impl SourcePlugin for SflowPlugin {
    fn name(&self) -> &'static str {
        "sflow"
    }

    fn doc(&self) -> &'static str {
        "packet samples and counters from switches and routers: sFlow version 5 over UDP"
    }

    fn page(&self) -> &'static str {
        include_str!("sflow.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[LISTEN, QUEUE, ALLOW, SOCKETS, RECEIVE_BUFFER, SAMPLING_RATES, TUNNELS, BYTES]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn is_pushed(&self) -> bool {
        true
    }

    fn is_live(&self, _: &Options) -> bool {
        true
    }

    fn own_time(&self, _: &Options) -> Option<&'static str> {
        Some("time")
    }

    fn outputs(&self, _: &Options) -> Vec<SourceOutput> {
        outputs()
    }

    fn check(&self, options: &Options) -> Vec<Mistake> {
        check_datagrams(options).chain(check_samples(options)).collect()
    }

    fn probe(&self, context: &SourceContext) -> Result<(), Error> {
        bound(context, &Agents::default()).map(drop)
    }

    fn build(&self, context: SourceContext) -> Result<BuiltSource, Error> {
        let settings = settings(&context)?;
        let source = bound(&context, &settings.agents)?;
        let address = source.address();
        info!(source = %context.name, %address, "listening on udp for sFlow");
        let replay = Replay::Journal(BlockCodec::new(None));
        let built = BuiltSource::new(Box::new(source), sflow_decoders(settings), context.schema, replay);
        Ok(built.listening(address))
    }
}

/// The source of a job file, with its sockets.
fn bound(context: &SourceContext, agents: &Agents) -> Result<DatagramSource, Error> {
    let listening = Listening::of("sflow", &context.options)?;
    let handover = Handover::new(listening.queue).joined_by(Joint::Nothing);
    DatagramSource::bind(listening, handover, Some(agents.clone()), || {
        Box::new(Framed { agents: agents.clone(), block: Vec::new(), records: 0 })
    })
}

/// Datagrams one after the other, each with its time of arrival and its sender.
struct Framed {
    agents: Agents,
    block: Vec<u8>,
    records: u32,
}

impl Packing for Framed {
    fn add(&mut self, datagram: &[u8], sender: IpAddr, now: Micros) -> u64 {
        let outline = Outline::of(datagram);
        push(&mut self.block, now, sender, outline.records(), datagram);
        // Also of a datagram that finds the queue full: gaps count only those that never came.
        self.agents.note(&outline, sender, now);
        self.records += outline.records();
        u64::from(outline.records())
    }

    fn pieces(&mut self) -> Vec<Cut> {
        let (data, count) = (std::mem::take(&mut self.block), std::mem::take(&mut self.records));
        vec![Cut { data: data.into(), count, context: None }]
    }
}
