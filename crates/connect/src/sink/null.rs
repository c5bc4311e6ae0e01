//! Records into nothing: counted and digested, so that runs can be compared without writing their answers.

use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_types::{Batch, Error};

use super::digest;
use crate::{OptionKind, OptionSpec, Options, SinkContext, SinkPlugin, SinkReport};

/// The plug-in.
pub struct NullPlugin;

impl SinkPlugin for NullPlugin {
    fn name(&self) -> &'static str {
        "null"
    }

    fn doc(&self) -> &'static str {
        "counts records and discards them"
    }

    fn page(&self) -> &'static str {
        include_str!("null.md")
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[OptionSpec {
            key: "digest",
            kind: OptionKind::Bool,
            required: false,
            default: Some("true"),
            doc: "whether to compute a digest of all records, which does not depend on their order",
        }]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn publishes(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn writes_for_units(&self, _: &Options) -> Result<bool, Error> {
        Ok(false)
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let with_digest = context.options.flag("digest").unwrap_or(true);
        if with_digest {
            context.report.add_digest(0);
        }
        Ok(Box::new(move |_| {
            Ok(Box::new(NullSink {
                name: context.name.to_string(),
                report: context.report.clone(),
                with_digest,
            }))
        }))
    }
}

struct NullSink {
    name: String,
    report: SinkReport,
    with_digest: bool,
}

impl Operator for NullSink {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        self.report.add_records(batch.len() as u64);
        if self.with_digest {
            self.report.add_digest(digest(&batch));
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Output<'_>) -> Result<(), Error> {
        if let Some(digest) = self.report.digest() {
            tracing::info!(
                sink = self.name,
                records = self.report.records(),
                digest = format_args!("{digest:016x}"),
                "null sink ended"
            );
        }
        Ok(())
    }
}
