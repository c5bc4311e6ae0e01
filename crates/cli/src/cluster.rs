//! `run --cluster`: a node of a cluster, from its start to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_cluster::control::{Name, Text};
use thalweg_node::cluster::{
    CarrierOptions, Cluster, ClusterAddress, ClusterOptions, DoorEvent, DoorOptions, MemberOptions,
    SnapshotOptions, Snapshots, UnitOptions, control_topic, cut_for, reply_topic, stage_topic,
};
use thalweg_node::{CheckedJob, Node};
use thalweg_types::Error;

use crate::Outcome;
use crate::args::Run;
use crate::listen::Door;
use crate::output::{Failure, talk};
use crate::signals::Signals;

/// How often signals and the state of the node are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// How long a node that leaves waits until others have its units.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a job is cut for a cluster.
///
/// # Errors
/// Of class user where it cannot run there, or the file of options is wrong.
pub(crate) fn describe(job: &CheckedJob, address: &ClusterAddress) -> Result<String, Error> {
    let cut = cut_for(job, address.partitions)?;
    address.settings("check")?;
    let prefix = &address.prefix;
    let above = match cut.above.as_slice() {
        [] => "nothing but the sources".to_owned(),
        names => names.join(", "),
    };
    let mut topics = vec![format!("{} (1 partition)", control_topic(prefix))];
    let mut stages = String::new();
    for stage in &cut.stages {
        let (topic, count) = (stage_topic(prefix, &job.name, &stage.name), stage.partitions);
        let units = if count == 1 { "1 unit, which reads" } else { &format!("{count} units, which read") };
        stages += &format!("  stage {}: {units} topic {topic}\n", stage.name);
        for sink in stage.outside_names() {
            stages += &format!(
                "    sink {sink}: each unit writes, as group and transactional id {topic}.{sink}.PARTITION\n"
            );
        }
        for table in stage.table_names() {
            stages += &format!(
                "    table {table}: rows are kept with the units, and SQL on any node reads all of them\n"
            );
        }
        topics.push(format!("{topic} ({count} partitions)"));
    }
    topics.push(format!("{} (1 partition, for each node)", reply_topic(prefix, "NODE")));
    Ok(format!(
        "on a cluster\n  where records enter (any node): {above}\n{stages}  topics: {}\n  copies of each partition: {}; \
         {}\n  rights at the brokers: CREATE, DESCRIBE, READ and WRITE on topics {prefix}.*; with --snapshots DELETE, too\n  records of \
         stages: kept for ever; with --snapshots until the third newest snapshot of their unit needs them no more\n",
        topics.join(", "),
        address.replication,
        address.survives(),
    ))
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
    let options = options(address, args).map_err(failed)?;
    let name = options.member.name.clone();
    let bus = address.bus(name.as_str()).map_err(failed)?;
    talk(&format!("warning: {}", address.survives()));
    let control = door.control();
    let on_door = Box::new(move |job: &Arc<thalweg_node::RunningJob>, event| match event {
        DoorEvent::Opened => control.add(Arc::clone(job)),
        DoorEvent::Closed => control.remove(job),
    });
    let cluster = Cluster::join(Arc::clone(node), bus, options, on_door).map_err(failed)?;
    for job in jobs {
        cluster.submit(job).map_err(failed)?;
    }
    door.control().show_cluster(cluster.view());
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

fn failure_of_disk() -> Option<String> {
    thalweg_storage::failed_sync().map(|said| said.to_string())
}

fn options(address: &ClusterAddress, args: &Run) -> Result<ClusterOptions, Error> {
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
    let listen = args.listen.map(|address| address.to_string()).unwrap_or_default();
    Ok(ClusterOptions {
        member: MemberOptions {
            prefix: address.prefix.clone(),
            name,
            host: text("--host-id", &host)?,
            capacity: args.capacity,
            address: text("--listen", &listen)?,
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
