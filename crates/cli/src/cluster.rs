//! `run --cluster`: a node of a cluster, from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use thalweg_cluster::control::{Name, Text};
use thalweg_node::cluster::{
    CarrierOptions, Cluster, ClusterAddress, ClusterOptions, DoorEvent, DoorOptions, MemberOptions, Reads,
    SnapshotOptions, Snapshots, StageCut, UnitOptions, control_topic, cut_for, reply_topic, stage_topic,
};
use thalweg_node::{CheckedJob, Node};
use thalweg_types::{Class, Error};

use crate::Outcome;
use crate::args::Run;
use crate::listen::Door;
use crate::output::{Failure, talk};
use crate::signals::Signals;

/// How often signals and the state of the node are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a node that leaves waits until others have its units.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long brokers may be silent until that is said.
const SILENCE: Duration = Duration::from_secs(2);

/// The job with as many partitions as it has on a cluster, and how it is cut for that.
///
/// # Errors
/// Of class user where it cannot run there, or the file of options is wrong.
pub(crate) fn describe(job: &CheckedJob, address: &ClusterAddress) -> Result<(CheckedJob, String), Error> {
    let cut = cut_for(job, address.partitions)?;
    address.settings("check")?;
    let mut spread = job.clone();
    let keyed = || cut.stages.iter().filter(|stage| !stage.keys.iter().all(Vec::is_empty));
    for operator in &mut spread.operators {
        if let Some(stage) = keyed().find(|stage| stage.operator == operator.name) {
            operator.partitions = stage.partitions;
        }
    }
    let prefix = &address.prefix;
    let above = match cut.above.as_slice() {
        [] => "nothing but the sources".to_owned(),
        names => names.join(", "),
    };
    let doors = match cut.stages.iter().find(|stage| stage.reads != Reads::Log) {
        Some(StageCut { reads: Reads::Sources, node: Some(node), .. }) => format!("node {node}"),
        Some(_) => "the units of the source".to_owned(),
        None => "any node".to_owned(),
    };
    let mut topics = vec![format!("{} (1 partition)", control_topic(prefix))];
    let mut stages = String::new();
    let mut rights = String::new();
    for stage in &cut.stages {
        if let (Reads::Sources, Some(node)) = (&stage.reads, &stage.node) {
            let name = &stage.name;
            stages += &format!(
                "  stage {name}: the sources of the job, a unit that goes on by its folder on node {node}, and is nowhere else\n"
            );
            continue;
        }
        if let Some(topic) = stage.topic() {
            let name = &stage.name;
            let group = format!("{}.units", stage_topic(prefix, &job.name, name));
            stages += &format!(
                "  stage {name}: the partitions of topic {topic}, a unit for each, which go on by group {group}\n"
            );
            rights += &format!(
                "; at those of source {name} DESCRIBE and READ on topic {topic}, and READ on group {group}"
            );
            continue;
        }
        let (topic, count) = (stage_topic(prefix, &job.name, &stage.name), partitions(stage.partitions));
        let each = if stage.partitions == 1 { "it" } else { "each" };
        stages += &format!(
            "  stage {}{}: {count} of topic {topic}, a unit for {each}\n",
            stage.name,
            keys_of(stage)
        );
        if let Some(node) = &stage.node {
            for sink in stage.written_names() {
                stages += &format!("    sink {sink}: node {node} writes all rows, and nobody else does\n");
            }
        }
        for sink in stage.outside_names() {
            stages += &format!(
                "    sink {sink}: each unit writes, as group and transactional id {topic}.{sink}.PARTITION; with transactions \
                 the last message of topic {topic}.{sink}.written, at the same brokers, says how far\n"
            );
        }
        for table in stage.table_names() {
            stages += &format!(
                "    table {table}: rows are kept with the units, and SQL on any node reads all of them\n"
            );
        }
        topics.push(format!("{topic} ({count})"));
    }
    topics.push(format!("{} (1 partition, for each node)", reply_topic(prefix, "NODE")));
    let text = format!(
        "on a cluster\n  where records enter ({doors}): {above}\n{stages}  topics: {}\n  copies of each partition: {}; \
         {}\n  rights at the brokers: CREATE, DESCRIBE, READ and WRITE on topics {prefix}.*; with --snapshots DELETE, \
         too{rights}\n  records of \
         stages: kept for ever; with --snapshots until the third newest snapshot of their unit needs them no more\n",
        topics.join(", "),
        address.replication,
        address.survives(),
    );
    Ok((spread, text))
}

fn partitions(count: u32) -> String {
    if count == 1 { "1 partition".to_owned() } else { format!("{count} partitions") }
}

/// ` by card`, or nothing where a stage has no key.
fn keys_of(stage: &StageCut) -> String {
    let (Some(key), Some(schema)) = (stage.keys.first(), stage.streams.first()) else { return String::new() };
    let names: Vec<&str> = key.iter().map(|place| &*schema.fields()[*place].name).collect();
    if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) }
}

/// Runs a node of a cluster until a signal: at the first it hands over and leaves, at the second it ends at once.
pub(crate) fn run(
    node: &Arc<Node>,
    address: &ClusterAddress,
    args: &Run,
    jobs: &[CheckedJob],
    door: &Door,
    signals: &Signals,
) -> Outcome {
    let failed = |error: Error| Failure::at_start(&error);
    let options = options(address, args, door.address()).map_err(failed)?;
    let name = options.member.name.clone();
    let bus = address.bus(name.as_str()).map_err(failed)?;
    talk(&format!("warning: {}", address.survives()));
    let control = door.control();
    let on_door = Box::new(move |job: &Arc<thalweg_node::RunningJob>, event| match event {
        DoorEvent::Opened => control.add(Arc::clone(job)),
        DoorEvent::Closed => control.remove(job),
    });
    let brokers = address.brokers.join(", ");
    let on_thread = Arc::clone(node);
    let Some(cluster) = join(move || Cluster::join(on_thread, bus, options, on_door), &brokers, signals)?
    else {
        return Ok(());
    };
    door.control().show_cluster(cluster.view(), jobs.iter().map(|job| &*job.name));
    for job in jobs {
        cluster.submit(job).map_err(failed)?;
    }
    door.ready();
    talk(&format!("node {:?} of the cluster {}", name.as_str(), address.prefix));
    let mut leaving: Option<Instant> = None;
    loop {
        std::thread::sleep(LOOK);
        if let Some(error) = cluster.failure() {
            return Err(failed(error));
        }
        if cluster.has_left() {
            talk(&format!("node {:?} has left the cluster", name.as_str()));
            return Ok(());
        }
        if let Some(said) = failure_of_disk() {
            return Err(Failure::Run(format!(
                "error: {said}: the process ends, as the state of the disk is unknown"
            )));
        }
        match signals.count() {
            0 => {}
            1 if leaving.is_none() => {
                leaving = Some(Instant::now());
                talk("handing over to other nodes; a second signal ends at once");
                door.drain();
                cluster.leave();
            }
            1 if leaving.is_some_and(|since| since.elapsed() < PATIENCE) => {}
            _ => {
                talk("ending without having handed over: other nodes go on from what is in the log");
                return Ok(());
            }
        }
    }
}

/// Joins the cluster, on a thread that is left behind where a signal comes first, which is `None`: a client asks brokers
/// that do not answer for half a minute.
fn join<T: Send + 'static>(
    asked: impl FnOnce() -> Result<T, Error> + Send + 'static,
    brokers: &str,
    signals: &Signals,
) -> Result<Option<T>, Failure> {
    tracing::info!(brokers, "asking the brokers of the cluster");
    let (tell, told) = std::sync::mpsc::channel();
    let spawned = std::thread::Builder::new().name("join".to_owned()).spawn(move || {
        // Nobody waits for it where a signal came.
        let _ = tell.send(asked());
    });
    spawned
        .map_err(|error| Failure::Run(format!("error: start a thread that joins the cluster: {error}")))?;
    let (since, mut is_said) = (Instant::now(), false);
    loop {
        match told.recv_timeout(LOOK) {
            Ok(joined) => {
                return joined.map(Some).map_err(|error| Failure::at_start(&not_joined(error, brokers)));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let error = Error::internal("joining it panicked");
                return Err(Failure::at_start(&not_joined(error, brokers)));
            }
        }
        if signals.count() > 0 {
            talk(&format!("ending before the node is in the cluster at {brokers}"));
            return Ok(None);
        }
        if !is_said && since.elapsed() > SILENCE {
            is_said = true;
            talk(&format!(
                "warning: the brokers of the cluster, {brokers}, have not answered for {SILENCE:?}; a signal ends the wait"
            ));
        }
    }
}

fn not_joined(error: Error, brokers: &str) -> Error {
    let error = error.context(format!("join the cluster at {brokers}"));
    match (error.class(), error.hint()) {
        (Class::External, None) => error.with_hint(
            "see that the brokers run, and that --cluster names the addresses at which they listen",
        ),
        _ => error,
    }
}

fn failure_of_disk() -> Option<String> {
    thalweg_storage::failed_sync().map(|said| said.to_string())
}

/// `listen` is where this node serves HTTP.
fn options(address: &ClusterAddress, args: &Run, listen: SocketAddr) -> Result<ClusterOptions, Error> {
    let node = args.node.as_deref().unwrap_or_default();
    let name = Name::new(node).ok_or_else(|| {
        Error::user(format!("--node: {node:?} is no name of a node"))
            .with_hint("take letters, digits, _ and -, at most 64 of them")
    })?;
    let host = args.host_id.clone().or_else(host_name).unwrap_or_else(|| node.to_owned());
    let text = |what: &str, text: &str| {
        Text::new(text).ok_or_else(|| Error::user(format!("{what}: {text:?} is too long, or empty")))
    };
    let snapshots = args.snapshots.as_ref().map(|address| {
        let store = address.open().map_err(|error| error.context("--snapshots"))?;
        Snapshots::start(Arc::new(store), SnapshotOptions::default())
    });
    let snapshots = snapshots.transpose()?;
    let reached = args.advertise.as_ref().map_or_else(|| listen.to_string(), ToString::to_string);
    Ok(ClusterOptions {
        member: MemberOptions {
            prefix: address.prefix.clone(),
            name,
            host: text("--host-id", &host)?,
            capacity: args.capacity,
            address: text("--advertise", &reached)?,
            replication: address.replication,
        },
        partitions: address.partitions,
        units: UnitOptions { snapshots, ..UnitOptions::default() },
        door: DoorOptions::default(),
        carrier: CarrierOptions::default(),
    })
}

/// What the system calls this machine.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use expect_test::expect;
    use thalweg_node::{JobFile, NodeOptions, describe as graph};

    use super::*;
    use crate::args::{Args, Verb};

    fn run(more: &[&str]) -> Run {
        let typed =
            ["thalweg", "run", "--cluster", "kafka://h:1", "--node", "a", "--listen", "0", "--data-dir", "d"];
        match Args::try_parse_from([&typed[..], more].concat()).map(|args| args.verb) {
            Ok(Verb::Run(run)) => run,
            _ => panic!("run"),
        }
    }

    #[test]
    fn others_reach_a_node_where_it_listens_unless_it_says_where() {
        let listen = "127.0.0.1:8080".parse().unwrap();
        for (more, expected) in
            [(&[][..], "127.0.0.1:8080"), (&["--advertise", "node-a.example:443"], "node-a.example:443")]
        {
            let args = run(more);
            let options = options(args.cluster.as_ref().unwrap(), &args, listen).unwrap();
            assert_eq!(options.member.address.as_str(), expected);
        }
    }

    #[test]
    fn an_error_of_the_brokers_names_them_and_keeps_its_own_hint() {
        let error = not_joined(Error::external("kafka: make topic"), "h:1, i:1");
        assert_eq!(error.chain(), "join the cluster at h:1, i:1: kafka: make topic");
        assert!(error.hint().unwrap().contains("--cluster"), "{error}");
        let error = not_joined(Error::external("kafka: make topic").with_hint("say replication=1"), "h:1");
        assert_eq!(error.hint(), Some("say replication=1"));
        assert_eq!(not_joined(Error::user("other partitions"), "h:1").hint(), None);
    }

    #[test]
    fn a_job_is_told_in_partitions_as_it_has_them_on_the_cluster() {
        let job = "
name: pay
sources: { payments: { type: http, time: ts, schema: { ts: timestamp(ms), card: string } } }
operators:
  features:
    type: metrics
    input: payments
    partition_by: [card]
    queries:
      one: SELECT count(*) AS n FROM payments GROUP BY card OVER SLIDING 1 HOUR
      all: SELECT count(*) AS n FROM payments OVER SLIDING 1 HOUR
sinks: { out: { type: 'null', input: features } }
";
        let checked = JobFile::parse("job.yaml", job, &[])
            .and_then(|file| file.check(&NodeOptions::default().check_options()))
            .unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let (spread, text) = describe(&checked, &"kafka://h:1".parse().unwrap()).unwrap();
        let text = graph::describe(&spread) + &text;
        let is_count = |line: &&str| line.contains("partition") && !line.contains("copies");
        let counted: Vec<&str> = text.lines().filter(is_count).map(str::trim).collect();
        expect![[r#"
            stage card: 64 partitions
            stage features-1 by card: 64 partitions of topic thalweg.pay.features-1, a unit for each
            stage features-2: 1 partition of topic thalweg.pay.features-2, a unit for it
            topics: thalweg.control (1 partition), thalweg.pay.features-1 (64 partitions), thalweg.pay.features-2 (1 partition), thalweg.reply.NODE (1 partition, for each node)"#]]
        .assert_eq(&counted.join("\n"));
    }
}
