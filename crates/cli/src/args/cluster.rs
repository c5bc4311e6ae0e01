//! What is typed to ask a node of a cluster.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// The node that is asked; any one of the cluster knows all of it.
#[derive(clap::Args)]
pub(crate) struct Asked {
    /// A node of the cluster.
    #[arg(long = "server", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shown {
    /// For people.
    Table,
    /// As `GET /v1/cluster` has it.
    Json,
}

#[derive(clap::Args)]
pub(crate) struct Nodes {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How they are written.
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true, value_name = "table|json")]
    pub(crate) format: Shown,
}

#[derive(Subcommand)]
pub(crate) enum Cluster {
    /// Print which node has a unit, since which plan, why, and what would move it.
    Explain(ExplainUnit),
}

#[derive(clap::Args)]
pub(crate) struct ExplainUnit {
    /// The name of a job.
    #[arg(value_name = "JOB")]
    pub(crate) job: String,
    /// STAGE/PARTITION, or PARTITION alone for that of each stage; without it, all units of the job.
    #[arg(value_name = "UNIT", value_parser = parse_unit)]
    pub(crate) unit: Option<(Option<String>, u32)>,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How they are written.
    #[arg(long, value_enum, default_value = "table", hide_possible_values = true, value_name = "table|json")]
    pub(crate) format: Shown,
}

#[derive(clap::Args)]
pub(crate) struct Drain {
    /// The name of a node.
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Give it units again.
    #[arg(long)]
    pub(crate) undo: bool,
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// The file with the admin token of the node that is asked: admin.token in its data directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
}

/// `features/3`, or `3`.
fn parse_unit(text: &str) -> Result<(Option<String>, u32), String> {
    let (stage, partition) = match text.rsplit_once('/') {
        Some((stage, partition)) => (Some(stage), partition),
        None => (None, text),
    };
    match (stage, partition.parse()) {
        (stage, Ok(partition)) if stage != Some("") => Ok((stage.map(str::to_owned), partition)),
        _ => Err("expected STAGE/PARTITION such as features/3, or a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, Verb};

    fn explain(arguments: &[&str]) -> Option<ExplainUnit> {
        let typed = [&["thalweg", "cluster", "explain"], arguments].concat();
        match Args::try_parse_from(typed).ok()?.verb {
            Verb::Cluster(Cluster::Explain(explain)) => Some(explain),
            _ => None,
        }
    }

    #[test]
    fn a_unit_is_a_partition_of_one_stage_or_of_each() {
        assert_eq!(explain(&["pay"]).unwrap().unit, None);
        assert_eq!(explain(&["pay", "63"]).unwrap().unit, Some((None, 63)));
        assert_eq!(explain(&["pay", "by/card/3"]).unwrap().unit, Some((Some("by/card".to_owned()), 3)));
        for wrong in ["", "features", "features/", "/3", "-1", "features/4294967296"] {
            assert!(explain(&["pay", wrong]).is_none(), "{wrong:?}");
        }
        assert!(explain(&[]).is_none(), "a job has to be named");
    }

    #[test]
    fn a_node_of_this_machine_is_asked_by_default_and_a_drain_needs_the_token() {
        let parse = |arguments: &[&str]| Args::try_parse_from([&["thalweg"], arguments].concat());
        let Ok(Args { verb: Verb::Nodes(nodes) }) = parse(&["nodes"]) else { panic!("nodes") };
        assert_eq!(nodes.asked.url, "http://127.0.0.1:8080");
        assert!(nodes.format == Shown::Table);
        assert!(parse(&["nodes", "--format", "csv"]).is_err());
        assert!(parse(&["drain", "b"]).is_err());
        assert!(parse(&["drain", "--token-file", "t"]).is_err());
        let typed = ["drain", "b", "--undo", "--token-file", "t", "--server", "h:1"];
        let Ok(Args { verb: Verb::Drain(drain) }) = parse(&typed) else { panic!("drain") };
        assert_eq!((drain.node.as_str(), drain.undo, drain.asked.url.as_str()), ("b", true, "h:1"));
    }
}
