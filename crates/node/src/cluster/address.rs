//! The address of a cluster: `kafka://HOST:PORT,HOST:PORT?replication=3&partitions=64&prefix=thalweg&options=kafka.yaml`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use thalweg_connect::Options;
use thalweg_kafka::{Bus, KafkaBus, Settings};
use thalweg_types::Error;

use crate::job_file::connection;

/// Names of a cluster's topics begin with this where its address does not say.
const PREFIX: &str = "thalweg";

/// How long a client waits at most before it connects again, in milliseconds: half a second, where the file of options does
/// not say.
const BACKOFF: &str = "reconnect.backoff.max.ms";

/// Where the brokers of a cluster are, and what its topics are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterAddress {
    /// `host:port` of some brokers; they name the others.
    pub brokers: Vec<String>,
    /// Copies that the brokers keep of each partition; 3 where the address does not say.
    pub replication: i32,
    /// Partitions of stages whose job files do not say.
    pub partitions: Option<u32>,
    pub prefix: String,
    /// A file that says how the brokers are reached: TLS, users, settings of the client.
    pub options: Option<PathBuf>,
}

impl FromStr for ClusterAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "kafka://HOST:PORT,HOST:PORT?replication=3";
        let rest = text
            .strip_prefix("kafka://")
            .ok_or_else(|| format!("expected an address such as {example}, got {text:?}"))?;
        let (brokers, options) = rest.split_once('?').unwrap_or((rest, ""));
        let brokers: Vec<String> = brokers.trim_end_matches('/').split(',').map(str::to_owned).collect();
        for broker in &brokers {
            let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(format!("expected HOST:PORT of a broker, got {broker:?}"));
            }
        }
        let prefix = PREFIX.to_owned();
        let mut address = Self { brokers, replication: 3, partitions: None, prefix, options: None };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "replication" => {
                    let replication = value.parse().ok().filter(|copies| (1..=32).contains(copies));
                    address.replication =
                        replication.ok_or_else(|| format!("replication: expected 1 to 32, got {value:?}"))?;
                }
                "partitions" => {
                    let most = thalweg_cluster::control::MAX_PARTITIONS;
                    let partitions: Option<u32> = value.parse().ok();
                    let fits = |count: &u32| count.is_power_of_two() && *count <= most;
                    address.partitions = Some(partitions.filter(fits).ok_or_else(|| {
                        format!("partitions: expected a power of two up to {most}, got {value:?}")
                    })?);
                }
                "prefix" => {
                    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
                    if value.is_empty() || value.len() > 64 || !value.chars().all(is_letter) {
                        return Err(format!(
                            "prefix: expected up to 64 letters, digits, _, - and dots, got {value:?}"
                        ));
                    }
                    value.clone_into(&mut address.prefix);
                }
                "options" if value.is_empty() => {
                    return Err("options: expected the path of a file, got \"\"".to_owned());
                }
                "options" => address.options = Some(value.into()),
                other => {
                    return Err(format!(
                        "expected replication, partitions, prefix or options, got {other:?}"
                    ));
                }
            }
        }
        Ok(address)
    }
}

impl ClusterAddress {
    /// Which failures of brokers a record survives that was acknowledged.
    pub fn survives(&self) -> &'static str {
        match self.replication {
            1 => {
                "an acknowledged record is on one broker, which does not sync it: it survives the end of that process, and not \
                 of its machine"
            }
            2 => {
                "an acknowledged record is on two brokers, which do not sync it: while one of them is away, nothing is \
                 acknowledged"
            }
            _ => {
                "an acknowledged record is on at least two brokers, which do not sync it: it survives the loss of one machine, \
                 and not a power cut of two at once"
            }
        }
    }

    /// How a client of this name reaches its brokers.
    ///
    /// # Errors
    /// If the file of options cannot be read, or is wrong: all mistakes in it.
    pub fn settings(&self, client: &str) -> Result<Settings, Error> {
        let options = match &self.options {
            Some(path) => read_options(path)?,
            None => Options::default(),
        };
        let mut settings = thalweg_connect::kafka::settings(&options, format_args!("{client}"))?;
        settings.brokers.clone_from(&self.brokers);
        if !settings.properties.iter().any(|(name, _)| name == BACKOFF) {
            settings.properties.push((BACKOFF.to_owned(), "500".to_owned()));
        }
        Ok(settings)
    }

    /// A client of its brokers. Nothing is connected to yet.
    ///
    /// # Errors
    /// As [`ClusterAddress::settings`], and if the client refuses one of them.
    pub fn bus(&self, node: &str) -> Result<Arc<dyn Bus>, Error> {
        Ok(Arc::new(KafkaBus::new(self.settings(&format!("thalweg-{node}"))?)?))
    }
}

fn read_options(path: &Path) -> Result<Options, Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::user(format!("read the options of the cluster's address in {name}")).with_source(error)
    })?;
    connection::read(&name, &text).map_err(|mistakes| {
        let said = mistakes.to_string();
        // Whoever shows an error says first that it is one.
        Error::user(said.strip_prefix("error: ").unwrap_or(&said).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_brokers_and_says_what_topics_are_like() {
        let address: ClusterAddress = "kafka://a:9092,b:9093".parse().unwrap();
        assert_eq!(address.brokers, ["a:9092", "b:9093"]);
        assert_eq!((address.replication, address.partitions, &*address.prefix), (3, None, "thalweg"));
        let address: ClusterAddress =
            "kafka://a:9092/?replication=1&partitions=16&prefix=test.x".parse().unwrap();
        assert_eq!((address.replication, address.partitions, &*address.prefix), (1, Some(16), "test.x"));
        for (text, said) in [
            ("a:9092", "expected an address such as"),
            ("kafka://", "expected HOST:PORT"),
            ("kafka://a", "expected HOST:PORT of a broker, got \"a\""),
            ("kafka://a:9092,", "expected HOST:PORT"),
            ("kafka://a:9092?replication=0", "replication: expected 1 to 32"),
            ("kafka://a:9092?partitions=12", "partitions: expected a power of two"),
            ("kafka://a:9092?prefix=a/b", "prefix: expected"),
            ("kafka://a:9092?options=", "options: expected the path of a file"),
            ("kafka://a:9092?color=red", "got \"color\""),
        ] {
            let error = text.parse::<ClusterAddress>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_says_how_brokers_are_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kafka.yaml");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let address = format!("kafka://a:9092?options={}", path.display());
            address.parse::<ClusterAddress>().unwrap().settings("thalweg-x")
        };
        let settings = with("tls: true\nproperties: { reconnect.backoff.max.ms: \"900\" }\n").unwrap();
        assert_eq!((settings.brokers, &*settings.client_id), (vec!["a:9092".to_owned()], "thalweg-x"));
        assert!(settings.tls.is_some() && settings.sasl.is_none());
        assert_eq!(settings.properties, [(BACKOFF.to_owned(), "900".to_owned())]);
        let error = with("tls: maybe\n").unwrap_err();
        assert!(error.message().contains("kafka.yaml:1:6"), "{error}");
        assert!(!error.message().starts_with("error"), "{error}");
        std::fs::remove_file(&path).unwrap();
        let address = format!("kafka://a:9092?options={}", path.display());
        let error = address.parse::<ClusterAddress>().unwrap().settings("x").unwrap_err();
        assert!(error.chain().to_string().contains("kafka.yaml"), "{error}");
    }
}
