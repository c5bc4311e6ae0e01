//! `check`, `explain`, `schema`.

use thalweg_node::{CheckedJob, JobFile, NodeOptions, continuing, describe, json_schema, overlaps, probe};

use crate::Outcome;
use crate::args::{Check, Explain, JobArgs};
use crate::output::{Failure, talk, write};

pub(crate) fn check(args: &Check, options: &NodeOptions) -> Outcome {
    let job = read(&args.job, options)?;
    let mut found = probe(&job).into_iter().map(|error| Failure::at_start(&error));
    // A start ends with the first.
    if let Some(first) = found.next() {
        return Err(found.fold(first, Failure::and));
    }
    for overlap in overlaps(&job) {
        talk(&format!("warning: {}\n = hint: {}", overlap.message, overlap.hint));
    }
    #[cfg(not(feature = "cluster"))]
    let mut text = describe::describe(&job);
    #[cfg(feature = "cluster")]
    let mut text = match &args.cluster {
        None => describe::describe(&job),
        Some(address) => {
            let cut = crate::cluster::describe(&job, address).map_err(|error| Failure::at_start(&error));
            let (spread, text) = cut?;
            describe::describe(&spread) + &text
        }
    };
    if let Some(folder) = &args.data_dir {
        text.push_str(&format!("state in {}\n", folder.display()));
        let news = continuing::foretell(job, folder).map_err(|error| Failure::at_start(&error))?;
        match news {
            None => text.push_str("  none: the job begins anew\n"),
            Some(news) if news.is_empty() => text.push_str("  all queries go on with theirs\n"),
            Some(news) => news.iter().for_each(|news| text.push_str(&format!("  {news}\n"))),
        }
    }
    write(&text)
}

pub(crate) fn explain(args: &Explain, options: &NodeOptions) -> Outcome {
    let job = read(&args.job, options)?;
    let text = describe::explain(&job, args.query.as_deref()).map_err(|error| Failure::at_start(&error))?;
    write(&text)
}

pub(crate) fn schema(options: &NodeOptions) -> Outcome {
    let text = serde_json::to_string_pretty(&json_schema(&options.registry, &options.operators))
        .map_err(|error| Failure::Run(format!("error: {error}")))?;
    write(&format!("{text}\n"))
}

fn read(args: &JobArgs, options: &NodeOptions) -> Result<CheckedJob, Failure> {
    let file = JobFile::read(&args.job, &args.overrides)?;
    let job = file.check(&options.check_options())?;
    for warning in &job.warnings {
        talk(warning.to_string().trim_end());
    }
    Ok(job)
}
