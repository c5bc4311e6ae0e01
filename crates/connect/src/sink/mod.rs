//! Sinks: where records leave.

#[cfg_attr(
    not(all(feature = "influxdb", feature = "kafka", feature = "postgres")),
    allow(dead_code, reason = "part of it serves sinks that this build leaves out")
)]
mod delivery;
mod digest;
pub mod file;
#[cfg(feature = "influxdb")]
pub mod influx;
#[cfg(feature = "kafka")]
pub mod kafka;
mod lineage;
pub mod null;
#[cfg_attr(
    not(all(feature = "influxdb", feature = "kafka", feature = "postgres")),
    allow(dead_code, reason = "part of it serves sinks that this build leaves out")
)]
mod outbox;
mod outbox_sink;
mod parts;
pub mod position;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod rejects;
#[cfg_attr(
    not(all(feature = "influxdb", feature = "kafka", feature = "postgres")),
    allow(dead_code, reason = "part of it serves sinks that this build leaves out")
)]
mod retry;
pub mod running;
pub mod stdout;
mod stream;
mod tail;
mod unwritable;

pub use digest::digest;
pub(crate) use tail::may_create;

use thalweg_flow::TaskInfo;
use thalweg_types::Error;

use crate::SinkContext;
use crate::format::Encoder;

/// The format that the sink was given, bound to its schema.
fn encoder_of(context: &SinkContext) -> Result<Box<dyn Encoder>, Error> {
    let format = context
        .format
        .as_ref()
        .ok_or_else(|| Error::internal(format!("sink {:?} was built without a format", context.name)))?;
    if context.follows
        && let Some(encoder) = format.plugin.following(&format.options)
    {
        return Ok(encoder);
    }
    format.encoder(&context.schema).map_err(|error| error.context(format!("sink {:?}", context.name)))
}

/// Refuses a second task of a sink whose output cannot be shared.
///
/// # Errors
/// Of class user, where the job file asks for several.
pub fn only_task(context: &SinkContext, info: &TaskInfo) -> Result<(), Error> {
    if info.tasks > 1 {
        return Err(Error::user(format!(
            "sink {:?} writes one output and takes one task, got parallelism {}",
            context.name, info.tasks
        )));
    }
    Ok(())
}
