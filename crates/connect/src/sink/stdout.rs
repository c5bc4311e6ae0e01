//! Records to standard output. A reader that goes away (`| head`) is no failure.

use thalweg_flow::{Operator, TaskFactory};
use thalweg_types::Error;

use super::stream::{Stream, StreamSink};
use super::{encoder_of, only_task};
use crate::{OptionSpec, SinkContext, SinkPlugin};

/// The plug-in.
pub struct StdoutPlugin;

impl SinkPlugin for StdoutPlugin {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn doc(&self) -> &'static str {
        "records to standard output"
    }

    fn page(&self) -> &'static str {
        include_str!("stdout.md")
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
            let stream = Stream {
                what: "standard output".to_owned(),
                open: Box::new(|| Ok(Box::new(std::io::stdout()))),
                may_close: true,
                position: Vec::new(),
            };
            Ok(Box::new(StreamSink::new(&context, encoder_of(&context)?, stream)?))
        }))
    }
}
