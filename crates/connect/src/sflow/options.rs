//! The keys that the sources of samples share in a job file.

use thalweg_types::Error;

use super::agents::Agents;
use super::decode::Settings;
use super::length::Length;
use super::packet::Tunnels;
use super::rates::Rates;
use crate::source::MaxAhead;
use crate::{Mistake, OptionKind, OptionSpec, Options, SourceContext};

pub(crate) const SAMPLING_RATES: OptionSpec = OptionSpec {
    key: "sampling_rates",
    kind: OptionKind::TextList,
    required: false,
    default: None,
    doc: "`AGENT=RATE`, for agents (addresses or networks) that report a wrong sampling rate",
};

pub(crate) const TUNNELS: OptionSpec = OptionSpec {
    key: "tunnels",
    kind: OptionKind::TextList,
    required: false,
    default: None,
    doc: "tunnels to decode: `vxlan`, `geneve`, `gre`, `ipip`, `eompls`; the innermost packet fills the fields `inner_*`",
};

pub(crate) const BYTES: OptionSpec = OptionSpec {
    key: "bytes",
    kind: OptionKind::Choice(Length::NAMES),
    required: false,
    default: Some("max"),
    doc: "the length that `bytes` counts: `frame`, of the frame; `ip`, of the IP packet in it; `max`, the greater of the two, for firmware that reports the sampled length only",
};

fn length(options: &Options) -> Result<Length, Error> {
    options.text("bytes").map_or(Ok(Length::default()), Length::parse)
}

fn tunnels(options: &Options) -> Result<Tunnels, Error> {
    Tunnels::of(options.list("tunnels").into_iter().flatten().map(String::as_str))
}

fn rates(options: &Options) -> Result<Rates, Error> {
    Rates::parse(options.list("sampling_rates").unwrap_or_default())
}

/// Mistakes in these options.
pub(crate) fn check_samples(options: &Options) -> impl Iterator<Item = Mistake> {
    let rates = rates(options).err().map(|error| Mistake::new("sampling_rates", error));
    let tunnels = tunnels(options).err().map(|error| Mistake::new("tunnels", error));
    let length = length(options).err().map(|error| Mistake::new("bytes", error));
    rates.into_iter().chain(tunnels).chain(length)
}

/// # Errors
/// As [`check_samples`] tells them.
pub(crate) fn settings(context: &SourceContext) -> Result<Settings, Error> {
    Ok(Settings {
        source: std::sync::Arc::clone(&context.name),
        tunnels: tunnels(&context.options)?,
        rates: rates(&context.options)?,
        length: length(&context.options)?,
        agents: Agents::default(),
        skip: std::sync::Arc::clone(&context.skip),
        ahead: MaxAhead::of(context),
    })
}
