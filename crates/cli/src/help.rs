//! `help TOPIC`: the documents that belong to this build, and the parts of the reference by plug-in.

use clap::CommandFactory;
use thalweg_node::diagnostic::nearest;
use thalweg_node::{NodeOptions, reference};

use crate::Outcome;
use crate::args::{Args, Help};
use crate::output::{Failure, with_hint, write};

/// A document by the name that it is asked for.
struct Topic {
    name: &'static str,
    about: &'static str,
    text: Text,
}

enum Text {
    /// The reference of job files, with the plug-ins of this program.
    Jobs,
    Document(&'static str),
}

macro_rules! document {
    ($name:literal) => {
        Text::Document(include_str!(concat!("../../../docs/", $name, ".md")))
    };
}

const TOPICS: &[Topic] = &[
    Topic { name: "tour", about: "twenty minutes from a first job to SQL", text: document!("tour") },
    Topic {
        name: "jobs",
        about: "job files: sources, formats, operators, sinks, every key",
        text: Text::Jobs,
    },
    Topic { name: "windows", about: "window queries: windows, aggregates, keys", text: document!("windows") },
    Topic { name: "expressions", about: "expressions over fields", text: document!("expressions") },
    Topic { name: "sql", about: "SQL over tables", text: document!("sql") },
    Topic {
        name: "samples",
        about: "sFlow, captures, and the tables they are joined with",
        text: document!("samples"),
    },
    Topic { name: "http", about: "the HTTP interface", text: document!("http") },
    Topic { name: "metrics", about: "what /metrics prints, and alerts", text: document!("metrics") },
    Topic {
        name: "operations",
        about: "running a node: data directory, crashes, memory",
        text: document!("operations"),
    },
    Topic { name: "glossary", about: "the words that these documents use", text: document!("glossary") },
    Topic { name: "compatibility", about: "what later versions keep", text: document!("compatibility") },
];

pub(crate) fn help(args: &Help, options: &NodeOptions) -> Outcome {
    let mut command = Args::command();
    command.build();
    let Some(topic) = args.topic.first() else {
        return write(&format!("{}\n{}", command.render_long_help(), topics()));
    };
    // The help of a verb, or of a verb's verb.
    let mut verb = Some(&mut command);
    for name in &args.topic {
        verb = verb.and_then(|verb| verb.find_subcommand_mut(name));
    }
    if let Some(verb) = verb.filter(|verb| !verb.is_hide_set()) {
        let text = verb.render_long_help().to_string();
        // `sql` is a verb and a document.
        return match TOPICS.iter().find(|known| [known.name] == args.topic[..]) {
            Some(Topic { text: Text::Document(document), .. }) => write(&format!("{text}\n{document}")),
            _ => write(&text),
        };
    }
    if topic == "topics" {
        return write(&topics());
    }
    if let Some(topic) = TOPICS.iter().find(|known| known.name == topic) {
        return match topic.text {
            Text::Jobs => write(&reference::reference(&options.registry, &options.operators)),
            Text::Document(text) => write(text),
        };
    }
    if let Some(text) = reference::about(&options.registry, &options.operators, topic) {
        return write(&text);
    }
    let names = TOPICS.iter().map(|topic| topic.name).chain(plug_ins(options));
    let hint = match nearest(topic, names) {
        Some(name) => format!("did you mean {name:?}? `thalweg help topics` lists them all"),
        None => "`thalweg help topics` lists them all".to_owned(),
    };
    Err(Failure::Usage(with_hint(&format!("no help on {topic:?}"), Some(&hint))))
}

fn plug_ins(options: &NodeOptions) -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&str> = options.registry.sources().iter().map(|plugin| plugin.name()).collect();
    names.extend(options.registry.formats().iter().map(|plugin| plugin.name()));
    names.extend(options.registry.sinks().iter().map(|plugin| plugin.name()));
    names.extend(options.operators.all().iter().map(|plugin| plugin.name()));
    names.into_iter()
}

fn topics() -> String {
    let mut out = "Topics (`thalweg help TOPIC`):\n".to_owned();
    for Topic { name, about, .. } in TOPICS {
        out += &format!("  {name:<14} {about}\n");
    }
    out + "  and the name of any source, format, operator or sink, such as `thalweg help postgres`\n"
}
