//! `server.properties` of a broker for tests: everything on the loopback, small and quick where that changes no answer.

use std::path::Path;

use anyhow::Result;

use super::certificates::{CA, SERVER};
use crate::port::free_port;

/// May do everything.
pub(super) const USER: &str = "thalweg";

/// May do what no access rule forbids.
pub(super) const GUEST: &str = "guest";

const WAY: &str = "WAY";

/// Where it listens, as long as it exists.
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) sasl: u16,
    pub(super) ssl: u16,
    pub(super) sasl_ssl: u16,
    /// As `plain`, for clients that come by a way: where that ends, and where it begins.
    pub(super) way: [u16; 2],
    pub(super) controller: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self> {
        Ok(Self {
            plain: free_port()?,
            sasl: free_port()?,
            ssl: free_port()?,
            sasl_ssl: free_port()?,
            way: [free_port()?, free_port()?],
            controller: free_port()?,
        })
    }

    pub(super) fn address(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    /// Each listener is called as its protocol, but for two.
    fn listeners(&self) -> [(&'static str, u16); 6] {
        [
            ("PLAINTEXT", self.plain),
            (WAY, self.way[0]),
            ("SASL_PLAINTEXT", self.sasl),
            ("SSL", self.ssl),
            ("SASL_SSL", self.sasl_ssl),
            ("CONTROLLER", self.controller),
        ]
    }
}

pub(super) struct Settings<'a> {
    pub(super) folder: &'a Path,
    /// Which of the brokers it is, from 0.
    pub(super) place: usize,
    /// The controllers of all brokers, each of which has one, in their order.
    pub(super) controllers: &'a [String],
    pub(super) ports: &'a Ports,
    pub(super) password: &'a str,
}

impl Settings<'_> {
    pub(super) fn text(&self) -> String {
        let lines =
            self.identity().into_iter().chain(self.access()).chain(self.copies()).chain(small_and_quick());
        lines.map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn identity(&self) -> Vec<(String, String)> {
        let of_all = |each: fn(&Self, &str, u16) -> String| {
            self.ports.listeners().map(|(name, port)| each(self, name, port)).join(",")
        };
        let place = |name: &str| self.folder.join(name).display().to_string();
        named([
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", (self.place + 1).to_string()),
            ("controller.quorum.voters", self.voters()),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
            ("listeners", of_all(|of, name, port| format!("{name}://{}", of.ports.address(port)))),
            ("advertised.listeners", self.advertised()),
            (
                "listener.security.protocol.map",
                of_all(|_, name, _| match name {
                    "CONTROLLER" | WAY => format!("{name}:PLAINTEXT"),
                    _ => format!("{name}:{name}"),
                }),
            ),
            ("log.dirs", place("data")),
            ("ssl.keystore.type", "PEM".to_owned()),
            ("ssl.keystore.location", place(SERVER)),
            ("ssl.truststore.type", "PEM".to_owned()),
            ("ssl.truststore.location", place(CA)),
            ("ssl.client.auth", "requested".to_owned()),
        ])
    }

    /// Where clients go that have come to one of its listeners: those that came by the way go on by it.
    fn advertised(&self) -> String {
        let listeners = self.ports.listeners().into_iter().filter(|(name, _)| *name != "CONTROLLER");
        let addresses = listeners.map(|(name, port)| {
            let port = if name == WAY { self.ports.way[1] } else { port };
            format!("{name}://{}", self.ports.address(port))
        });
        addresses.collect::<Vec<_>>().join(",")
    }

    fn voters(&self) -> String {
        let voters = self.controllers.iter().zip(1..).map(|(address, id)| format!("{id}@{address}"));
        voters.collect::<Vec<_>>().join(",")
    }

    /// Each broker has a copy of everything, and one of them may be away.
    fn copies(&self) -> Vec<(String, String)> {
        let count = self.controllers.len();
        let copies = [
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
            "share.coordinator.state.topic.replication.factor",
        ];
        let present =
            ["min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"];
        let named = |name: &str, count: usize| (name.to_owned(), count.to_string());
        let copies = copies.into_iter().map(|name| named(name, count));
        copies.chain(present.into_iter().map(|name| named(name, count.div_ceil(2)))).collect()
    }

    /// Who is let in, and what they may do.
    fn access(&self) -> Vec<(String, String)> {
        let password = self.password;
        let plain = format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required \
             user_{USER}=\"{password}\" user_{GUEST}=\"{password}\";"
        );
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;".to_owned();
        // It takes tokens that nobody has signed, and has one itself.
        let bearer = format!(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             unsecuredLoginStringClaim_sub=\"{USER}\";"
        );
        let mechanisms = [
            ("plain", plain),
            ("scram-sha-256", scram.clone()),
            ("scram-sha-512", scram),
            ("oauthbearer", bearer),
        ];
        let mut lines = named([
            ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER".to_owned()),
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned()),
            // Without a user, by name, and by the client certificate.
            ("super.users", format!("User:ANONYMOUS;User:{USER};User:CN={USER}")),
            ("allow.everyone.if.no.acl.found", "true".to_owned()),
        ]);
        for listener in ["sasl_plaintext", "sasl_ssl"] {
            lines.extend(mechanisms.iter().map(|(mechanism, module)| {
                (format!("listener.name.{listener}.{mechanism}.sasl.jaas.config"), module.clone())
            }));
        }
        lines
    }
}

/// Bytes of a segment of the topic with the offsets of groups, so that a short run has what a long one has: segments that are
/// compacted. No fewer than 1,048,576.
const SEGMENT: &str = "THALWEG_OFFSETS_SEGMENT";

fn small_and_quick() -> Vec<(String, String)> {
    let segment = std::env::var(SEGMENT).ok().map(|bytes| ("offsets.topic.segment.bytes".to_owned(), bytes));
    let settings = named([
        ("auto.create.topics.enable", "false"),
        // Its own topics have one partition, as each costs time at the start.
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
        ("share.coordinator.state.topic.num.partitions", "1"),
        // Groups and transactions whose members are gone are noticed within a second, instead of six and ten.
        ("group.initial.rebalance.delay.ms", "0"),
        ("group.min.session.timeout.ms", "1000"),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "1000"),
        // Nothing goes unless its topic says so: retention is by the time of records, which tests take from the past.
        ("log.retention.ms", "-1"),
        // What retention and compaction remove goes within seconds, instead of minutes.
        ("log.initial.task.delay.ms", "1000"),
        ("log.retention.check.interval.ms", "1000"),
        ("log.segment.delete.delay.ms", "1000"),
        ("log.cleaner.backoff.ms", "1000"),
        // After a kill it may not register before its former session is over: nine seconds, if nothing is set.
        ("broker.session.timeout.ms", "3000"),
        ("broker.heartbeat.interval.ms", "500"),
        // Of 128 MiB, which would be a quarter of all that it has.
        ("log.cleaner.dedupe.buffer.size", "4194304"),
        ("num.network.threads", "2"),
        ("num.io.threads", "4"),
    ]);
    settings.into_iter().chain(segment).collect()
}

fn named<const N: usize, V: Into<String>>(lines: [(&str, V); N]) -> Vec<(String, String)> {
    lines.map(|(name, value)| (name.to_owned(), value.into())).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn properties() -> BTreeMap<String, String> {
        properties_of(0, &["127.0.0.1:6".to_owned()])
    }

    fn properties_of(place: usize, controllers: &[String]) -> BTreeMap<String, String> {
        let ports = Ports { plain: 1, way: [2, 7], sasl: 3, ssl: 4, sasl_ssl: 5, controller: 6 };
        let text =
            Settings { folder: Path::new("/f"), place, controllers, ports: &ports, password: "secret" }
                .text();
        let lines = text.lines().map(|line| line.split_once('=').unwrap());
        let lines: Vec<(String, String)> = lines.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let count = lines.len();
        let properties: BTreeMap<_, _> = lines.into_iter().collect();
        assert_eq!(properties.len(), count, "a property is there twice: {text}");
        properties
    }

    #[test]
    fn every_listener_is_on_the_loopback_and_has_a_protocol() {
        let properties = properties();
        let protocols = &properties["listener.security.protocol.map"];
        let listeners: Vec<&str> = properties["listeners"].split(',').collect();
        assert_eq!(listeners.len(), 6);
        for (listener, port) in listeners.iter().zip(1..) {
            let (name, address) = listener.split_once("://").unwrap();
            assert_eq!(address, format!("127.0.0.1:{port}"));
            assert!(protocols.split(',').any(|each| each.split(':').next() == Some(name)), "{name}");
        }
        assert_eq!(properties["controller.quorum.voters"], "1@127.0.0.1:6");
        let advertised = "PLAINTEXT://127.0.0.1:1,WAY://127.0.0.1:7,SASL_PLAINTEXT://127.0.0.1:3";
        assert!(properties["advertised.listeners"].starts_with(advertised));
    }

    #[test]
    fn of_three_brokers_one_may_be_away() {
        let alone = properties();
        assert_eq!((&*alone["node.id"], &*alone["min.insync.replicas"]), ("1", "1"));
        let controllers = ["h:6", "h:7", "h:8"].map(str::to_owned);
        let of_three = properties_of(1, &controllers);
        assert_eq!(of_three["node.id"], "2");
        assert_eq!(of_three["controller.quorum.voters"], "1@h:6,2@h:7,3@h:8");
        assert_eq!(of_three["offsets.topic.replication.factor"], "3");
        assert_eq!(of_three["min.insync.replicas"], "2");
    }

    #[test]
    fn each_mechanism_has_a_module_on_each_listener_with_users() {
        let properties = properties();
        for mechanism in properties["sasl.enabled.mechanisms"].to_lowercase().split(',') {
            for listener in ["sasl_plaintext", "sasl_ssl"] {
                let module = &properties[&format!("listener.name.{listener}.{mechanism}.sasl.jaas.config")];
                assert!(module.ends_with(';'), "{module}");
                assert_eq!(module.contains("user_guest=\"secret\""), mechanism == "plain");
            }
        }
    }
}
