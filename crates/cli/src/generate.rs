//! `gen`: made-up records to stdout, or the tables that fit them into a folder.

use std::io::{Write, stdout};

use thalweg_connect::Options;
use thalweg_connect::generate::GeneratorSpec;
use thalweg_node::NodeOptions;
use thalweg_types::{Batch, Error, SeqRange, Seqs};

use crate::Outcome;
use crate::args::Gen;
use crate::output::Failure;

/// Records made at a time.
const BATCH: u64 = 8192;

pub(crate) fn generate(args: &Gen, options: &NodeOptions) -> Outcome {
    let at_start = |error: Error| Failure::at_start(&error);
    let mut spec = GeneratorSpec::new(&args.name);
    spec.seed = args.seed;
    spec.fields = args.fields;
    spec.cards = args.cards.unwrap_or(spec.cards);
    spec.merchants = args.merchants.unwrap_or(spec.merchants);
    spec.zipf = args.zipf.unwrap_or(spec.zipf);
    spec.hot = args.hot.unwrap_or(spec.hot);
    spec.gap = args.gap.unwrap_or(spec.gap);
    spec.start = args.start;
    spec.agents = args.agents.unwrap_or(spec.agents);
    spec.members = args.members.unwrap_or(spec.members);
    spec.pairs = args.pairs.unwrap_or(spec.pairs);
    spec.hosts = args.hosts.unwrap_or(spec.hosts);
    let generator = spec.build().map_err(at_start)?;
    if let Some(folder) = &args.tables {
        return generator.write_tables(folder).map_err(at_start);
    }
    let registry = &options.registry;
    let Some(format) = registry.format(&args.format) else {
        let names: Vec<&str> = registry.formats().iter().map(|format| format.name()).collect();
        let message = format!("expected a format ({}), got {:?}", names.join(", "), args.format);
        return Err(at_start(Error::user(message)));
    };
    let mut encoder = format.encoder(generator.schema(), &Options::default()).map_err(at_start)?;

    let mut out = stdout().lock();
    let mut bytes = Vec::new();
    encoder.start(&mut bytes);
    let mut first = 0;
    while first < args.count {
        let count = BATCH.min(args.count - first);
        let records = generator.batch(first, count as usize);
        let times = vec![0; count as usize];
        let batch =
            Batch::new(SeqRange::new(first, first + count), records, times.into(), Seqs::Dense(first));
        encoder.encode(&batch, &mut bytes);
        out.write_all(&bytes)?;
        bytes.clear();
        first += count;
    }
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}
