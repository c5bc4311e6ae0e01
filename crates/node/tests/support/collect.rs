//! A sink that keeps what units say, and how their jobs are read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use thalweg_connect::format::Encoder;
use thalweg_connect::format::ndjson::Ndjson;
use thalweg_connect::{FormatPlugin as _, OptionSpec, Options, SinkContext, SinkPlugin};
use thalweg_flow::{InputId, Operator, Output, TaskFactory};
use thalweg_node::cluster::{Texts, cut};
use thalweg_node::{JobFile, Node};
use thalweg_types::{Batch, Error};

/// The texts of a job whose sources and sinks may be of any kind.
pub(crate) fn texts(node: &Node) -> Arc<Texts> {
    let options = node.check_options().clone();
    Texts::new(move |text| {
        let job = JobFile::parse("j.yaml", text, &[]).and_then(|file| file.check(&options));
        let job = job.map_err(|mistakes| Error::user(mistakes.to_string()))?;
        cut(&job).map_err(|refusals| Error::user(format!("{refusals:?}")))
    })
}

/// Lines by the number of their record. A unit that goes on after a kill writes some again: they have to be the same.
#[derive(Clone, Default)]
pub(crate) struct Collected(pub(crate) Arc<Mutex<BTreeMap<i64, String>>>);

impl SinkPlugin for Collected {
    fn name(&self) -> &'static str {
        "collect"
    }

    fn doc(&self) -> &'static str {
        "keeps lines for a test"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn takes_format(&self) -> bool {
        false
    }

    fn guarantee(&self) -> &'static str {
        "at-least-once"
    }

    fn build(&self, context: SinkContext) -> Result<TaskFactory<dyn Operator>, Error> {
        let kept = self.clone();
        Ok(Box::new(move |_| {
            let encoder = Ndjson.encoder(&context.schema, &Options::default())?;
            Ok(Box::new(CollectSink { kept: kept.clone(), encoder }))
        }))
    }
}

struct CollectSink {
    kept: Collected,
    encoder: Box<dyn Encoder>,
}

impl Operator for CollectSink {
    fn process(&mut self, _: InputId, batch: Batch, _: &mut Output<'_>) -> Result<(), Error> {
        let mut kept = self.kept.0.lock().unwrap();
        for row in batch.row_numbers() {
            let n = batch.column(0).as_primitive::<Int64Type>().value(row as usize);
            let mut line = Vec::new();
            self.encoder.encode_row(&batch, row, &mut line);
            let line = String::from_utf8(line).unwrap();
            let first = kept.entry(n).or_insert_with(|| line.clone());
            assert_eq!(*first, line, "record {n} has one answer");
        }
        Ok(())
    }
}
