//! What is typed to ask a node of a cluster.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Subcommand, ValueEnum};

/// `HOST:PORT` at which other nodes reach one; the host is a name, an address of IPv4, or one of IPv6 in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    text: String,
    /// How much of it is the host.
    host: usize,
}

impl Advertised {
    pub(crate) fn host(&self) -> &str {
        &self.text[..self.host]
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Advertised {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |expected: &str| format!("expected {expected}, got {text:?}");
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| wrong("HOST:PORT, such as node-a.example:8080"))?;
        let digits = port.chars().all(|letter| letter.is_ascii_digit());
        if !digits || !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(wrong("a port from 1 to 65535 after the last colon"));
        }
        let address = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => {
                let address =
                    inner.parse::<Ipv6Addr>().map_err(|_| wrong("an address of IPv6 in the brackets"))?;
                Some(address.is_unspecified())
            }
            None => host.parse::<Ipv4Addr>().ok().map(|address| address.is_unspecified()),
        };
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        match address {
            Some(true) => Err(wrong("an address that others can connect to")),
            None if host.is_empty() || host.len() > 240 || !host.chars().all(is_name) => {
                Err(wrong("HOST:PORT with a name, an address of IPv4, or one of IPv6 in brackets"))
            }
            _ => Ok(Self { text: text.to_owned(), host: host.len() }),
        }
    }
}

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
    fn what_a_node_advertises_is_a_host_and_a_port() {
        for (text, host) in [
            ("node-a.example:8080", "node-a.example"),
            ("10.0.0.7:1", "10.0.0.7"),
            ("127.0.0.1:65535", "127.0.0.1"),
            ("[fd00::7]:8080", "[fd00::7]"),
        ] {
            let parsed: Advertised = text.parse().unwrap();
            assert_eq!((parsed.to_string().as_str(), parsed.host()), (text, host));
        }
        for (text, said) in [
            ("", "expected HOST:PORT"),
            ("8080", "expected HOST:PORT"),
            ("node-a", "expected HOST:PORT"),
            ("node-a:", "expected a port from 1 to 65535"),
            ("node-a:0", "expected a port from 1 to 65535"),
            ("node-a:65536", "expected a port from 1 to 65535"),
            ("node-a:+80", "expected a port from 1 to 65535"),
            ("http://node-a:8080", "expected HOST:PORT with a name"),
            ("node-a:8080/", "expected a port from 1 to 65535"),
            (":8080", "expected HOST:PORT with a name"),
            ("a b:8080", "expected HOST:PORT with a name"),
            ("fd00::7:8080", "expected HOST:PORT with a name"),
            ("[node-a]:8080", "expected an address of IPv6"),
            ("0.0.0.0:8080", "that others can connect to"),
            ("[::]:8080", "that others can connect to"),
        ] {
            let error = text.parse::<Advertised>().unwrap_err();
            assert!(error.contains(said) && error.ends_with(&format!("got {text:?}")), "{text}: {error}");
        }
    }

    #[test]
    fn a_node_alone_advertises_nothing() {
        let parse = |arguments: &[&str]| Args::try_parse_from([&["thalweg", "run", "j"], arguments].concat());
        let alone = parse(&["--listen", "1", "--advertise", "h:1"]).err().unwrap().to_string();
        assert!(alone.contains("--cluster <URL>"), "{alone}");
        let cluster = ["--cluster", "kafka://h:1", "--node", "a", "--listen", "1", "--data-dir", "d"];
        let Ok(Args { verb: Verb::Run(run) }) = parse(&[&cluster[..], &["--advertise", "h:1"]].concat())
        else {
            panic!("run")
        };
        assert_eq!(run.advertise.unwrap().to_string(), "h:1");
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
