//! Plug-ins with keys like those of the real ones, for checks alone: they cannot be built.

use std::sync::Arc;

use thalweg_connect::format::{Encoder, RecordFormat};
use thalweg_connect::{
    BuiltSource, FormatPlugin, Mistake, OptionKind, OptionSpec, Options, Registry, SinkContext, SinkPlugin,
    SourceContext, SourcePlugin,
};
use thalweg_flow::{Operator, TaskFactory};
use thalweg_types::{Batch, DataType, Error, Field, Schema, TimeUnit};

const fn option(key: &'static str, kind: OptionKind, required: bool) -> OptionSpec {
    OptionSpec { key, kind, required, default: None, doc: "a key" }
}

const PATH: &[OptionSpec] =
    &[option("path", OptionKind::Path, true), option("follow", OptionKind::Bool, false)];
const GENERATOR: &[OptionSpec] = &[
    option("count", OptionKind::Integer { min: 0, max: i64::MAX }, false),
    option("rate", OptionKind::Number, false),
];
const CSV: &[OptionSpec] =
    &[option("header", OptionKind::Bool, false), option("delimiter", OptionKind::Text, false)];

pub(super) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.add_source(TestSource { name: "file", options: PATH, own: false });
    registry.add_source(TestSource { name: "http", options: &[], own: false });
    registry.add_source(TestSource { name: "generator", options: GENERATOR, own: true });
    registry.add_sink(TestSink { name: "file", options: PATH });
    registry.add_sink(TestSink { name: "null", options: &[] });
    registry.add_format(TestFormat { name: "csv", options: CSV });
    registry.add_format(TestFormat { name: "ndjson", options: &[] });
    registry
}

struct TestSource {
    name: &'static str,
    options: &'static [OptionSpec],
    own: bool,
}

impl SourcePlugin for TestSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "a source"
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn takes_format(&self) -> bool {
        !self.own
    }

    fn default_format(&self) -> Option<&'static str> {
        (self.name == "http").then_some("ndjson")
    }

    fn is_live(&self, _: &Options) -> bool {
        self.name == "http"
    }

    fn own_schema(&self, _: &Options) -> Result<Option<Schema>, Error> {
        Ok(self.own.then(|| {
            Schema::new(vec![
                Field::new("ts", DataType::Timestamp(TimeUnit::Milli)),
                Field::new("card", DataType::String),
                Field::new("amount", DataType::Float64),
            ])
        }))
    }

    fn build(&self, _: SourceContext) -> Result<BuiltSource, Error> {
        Err(Error::internal("for checks alone"))
    }
}

struct TestSink {
    name: &'static str,
    options: &'static [OptionSpec],
}

impl SinkPlugin for TestSink {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "a sink"
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn takes_format(&self) -> bool {
        self.name == "file"
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn check(&self, schema: &Schema, options: &Options) -> Vec<Mistake> {
        let path = options.path("path").and_then(|path| path.to_str()).unwrap_or_default();
        let unknown = |name: &&str| schema.field(name.trim_matches(&['{', '}'][..])).is_none();
        let mistake = |name: &str| {
            let error = Error::user(format!("there is no field to fill in for {name:?}"));
            Mistake::new("path", error.with_hint(schema.names().collect::<Vec<_>>().join(", ")))
        };
        path.split('/').filter(|part| part.starts_with('{')).filter(unknown).map(mistake).collect()
    }

    fn build(&self, _: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        Err(Error::internal("for checks alone"))
    }
}

struct TestFormat {
    name: &'static str,
    options: &'static [OptionSpec],
}

impl FormatPlugin for TestFormat {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "a format"
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn reader(&self, _: &Schema, options: &Options) -> Result<Arc<dyn RecordFormat>, Error> {
        match options.text("delimiter") {
            Some(text) if text.chars().count() != 1 => {
                Err(Error::user(format!("the delimiter {text:?} is not one character")))
            }
            _ => Ok(Arc::new(NoFormat)),
        }
    }

    fn encoder(&self, _: &Schema, _: &Options) -> Result<Box<dyn Encoder>, Error> {
        Ok(Box::new(NoFormat))
    }
}

struct NoFormat;

impl RecordFormat for NoFormat {
    fn splitter(&self) -> Box<dyn thalweg_connect::format::Splitter> {
        unreachable!("for checks alone")
    }

    fn decoder(&self) -> Box<dyn thalweg_connect::format::RecordDecoder> {
        unreachable!("for checks alone")
    }
}

impl Encoder for NoFormat {
    fn encode(&mut self, _: &Batch, _: &mut Vec<u8>) {}

    fn encode_row(&mut self, _: &Batch, _: u32, _: &mut Vec<u8>) {}
}
