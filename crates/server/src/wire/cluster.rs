//! The cluster as JSON.

use schemars::JsonSchema;
use serde::Serialize;
use thalweg_node::cluster_view::{
    ClusterSnapshot, FollowerSnapshot, GapSnapshot, MemberSnapshot, PlacedJobSnapshot, PlanSnapshot,
    ReportSnapshot, StageSnapshot, UnitSnapshot,
};

use crate::figures::rounded;

#[derive(JsonSchema, Serialize)]
pub(crate) struct Cluster {
    /// The node that was asked.
    node: String,
    /// Names of the cluster's topics begin with this.
    prefix: String,
    /// The offset of the control log that the node reads next.
    read: u64,
    /// The plan in force.
    plan: Option<Plan>,
    /// Events that wait for the next plan.
    unplanned: u64,
    members: Vec<Member>,
    jobs: Vec<Job>,
    units: Vec<Unit>,
    /// Units that are not in the list, as it has 4,096 at most.
    units_left_out: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterPlan")]
struct Plan {
    /// In the control log.
    offset: u64,
    /// The node that made it; null where the node that was asked has not read that.
    author: Option<String>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterMember")]
pub(crate) struct Member {
    name: String,
    host: String,
    capacity: u32,
    address: String,
    /// Semantic versions that it computes.
    semantics: Vec<u32>,
    /// It makes the next plan.
    plans: bool,
    /// It is to have no units.
    drains: bool,
    /// Since its last beat; null before the first.
    beat_age_seconds: Option<f64>,
    units_active: u64,
    units_followed: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterJob")]
struct Job {
    name: String,
    /// The number of its spec, which a changed job file raises.
    spec: u64,
    semantics: u32,
    stages: Vec<Stage>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterStage")]
struct Stage {
    name: String,
    partitions: u32,
    replicas: u32,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterUnit")]
struct Unit {
    job: String,
    stage: String,
    partition: u32,
    /// The node that has it; null: nobody until the next plan.
    active: Option<String>,
    /// The plan that gave it to that node.
    since: Option<u64>,
    /// Cause and choice of that plan, as in `drain: caught up`.
    why: Option<String>,
    /// The node that had it before.
    from: Option<String>,
    followers: Vec<Follower>,
    /// What its node said of it last.
    report: Option<Report>,
    /// Nodes that named it as in trouble and may not have it for now.
    trouble: Vec<String>,
    /// Rows that it has not got, while later ones came, as its node said last.
    gaps: Vec<Gap>,
    /// Why it has stopped, where it is on the node that was asked.
    failure: Option<String>,
    /// Where it is, why there, and what would move it, in lines.
    explanation: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterFollower")]
struct Follower {
    node: String,
    /// It takes the unit over once it has caught up; another one stays a copy.
    takes_over: bool,
    /// Offset of the message that it reads next.
    position: Option<u64>,
    /// It has no lag.
    ready: bool,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterGap")]
struct Gap {
    /// Stage and partition of the unit that sent them.
    stage: String,
    partition: u32,
    /// The mark up to which all are there, as in `12.3+1`: after the first row that row 3 of message 12 makes.
    through: String,
    /// Offset up to which it has read its log without finding them.
    read: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ClusterReport")]
struct Report {
    rows_per_second: u64,
    /// Bytes of state.
    bytes: u64,
    /// Offset of the message that it reads next.
    position: u64,
    /// It has no lag.
    ready: bool,
}

impl From<ClusterSnapshot> for Cluster {
    fn from(seen: ClusterSnapshot) -> Self {
        Self {
            node: seen.node,
            prefix: seen.prefix,
            read: seen.read,
            plan: seen.plan.map(|PlanSnapshot { offset, author }| Plan { offset, author }),
            unplanned: seen.unplanned,
            members: seen.members.into_iter().map(Member::from).collect(),
            jobs: seen.jobs.into_iter().map(Job::from).collect(),
            units: seen.units.into_iter().map(Unit::from).collect(),
            units_left_out: seen.units_left_out,
        }
    }
}

impl From<MemberSnapshot> for Member {
    fn from(seen: MemberSnapshot) -> Self {
        Self {
            name: seen.name,
            host: seen.host,
            capacity: seen.capacity,
            address: seen.address,
            semantics: seen.semantics,
            plans: seen.plans,
            drains: seen.drains,
            beat_age_seconds: seen.beat_age.map(|age| rounded(age.as_secs_f64())),
            units_active: seen.units_active,
            units_followed: seen.units_followed,
        }
    }
}

impl From<PlacedJobSnapshot> for Job {
    fn from(seen: PlacedJobSnapshot) -> Self {
        let stage = |StageSnapshot { name, partitions, replicas }| Stage { name, partitions, replicas };
        let stages = seen.stages.into_iter().map(stage).collect();
        Self { name: seen.name, spec: seen.spec, semantics: seen.semantics, stages }
    }
}

impl From<UnitSnapshot> for Unit {
    fn from(seen: UnitSnapshot) -> Self {
        let follower = |FollowerSnapshot { node, takes_over, position, ready }| Follower {
            node,
            takes_over,
            position,
            ready,
        };
        let report = |ReportSnapshot { rows_per_second, bytes, position, ready }| Report {
            rows_per_second,
            bytes,
            position,
            ready,
        };
        let gap = |GapSnapshot { stage, partition, through, read }| Gap { stage, partition, through, read };
        Self {
            job: seen.job,
            stage: seen.stage,
            partition: seen.partition,
            active: seen.active,
            since: seen.since,
            why: seen.why,
            from: seen.from,
            followers: seen.followers.into_iter().map(follower).collect(),
            report: seen.report.map(report),
            trouble: seen.trouble,
            gaps: seen.gaps.into_iter().map(gap).collect(),
            failure: seen.failure,
            explanation: seen.explanation,
        }
    }
}
