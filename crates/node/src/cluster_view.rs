//! A cluster as one of its nodes sees it, as plain values for whoever shows it: names, numbers and texts.
//!
//! It is in every build, so that a server need not know whether this one can take part in a cluster.
//!
//! Not here: how the values come about (`cluster::view`), how they leave the node (`thalweg-server`).

use std::time::Duration;

use thalweg_flow::figures;
use thalweg_types::{Error, Offset};

use crate::job_file::CheckedJob;
use crate::queries::{PresentValue, QueryError};

/// Units in one answer at most.
pub const MOST_UNITS: usize = 4_096;

/// A node's view of its cluster.
///
/// What changes something waits for the control log, and [`ClusterView::present`] for a unit; nothing else here waits.
pub trait ClusterView: Send + Sync {
    /// Whether the node has read the log up to a beat of its own: before that it may not have heard of jobs that run.
    fn has_read(&self) -> bool;

    /// The jobs of the log, as far as this node has read it, and whether records enter here.
    fn doors(&self) -> Vec<(String, bool)>;

    /// All that the log says, as far as this node has read it; of units, those of `job` if one is named.
    ///
    /// # Errors
    /// [`NotDone::NoJob`].
    fn snapshot(&self, job: Option<&str>) -> Result<ClusterSnapshot, NotDone>;

    /// Figures of all that runs on this node.
    fn figures(&self) -> NodeFigures;

    /// Has a node have no units, or have some again if not `on`. Returns once the log says so.
    ///
    /// # Errors
    /// [`NotDone::NoNode`]; an outcome that is not known where the log does not say so in time.
    fn drain(&self, node: &str, on: bool) -> Result<MemberSnapshot, NotDone>;

    /// Has all nodes run a job by this text; whether one of its name ran before. Returns once this node works by it.
    ///
    /// # Errors
    /// [`NotDone::Exists`] where one runs and `change` does not replace it, [`NotDone::Conflict`]; a text that cannot run
    /// on several nodes, or by which units could not go on.
    fn run(&self, job: &CheckedJob, change: Change) -> Result<bool, NotDone>;

    /// Has all nodes end a job. Returns once it has ended here.
    ///
    /// # Errors
    /// [`NotDone::NoJob`], [`NotDone::Conflict`].
    fn stop(&self, job: &str) -> Result<(), NotDone>;

    /// Has all nodes add a query to an operator of a job, or drop it where there is no `sql`. Returns once records that enter here
    /// are answered so.
    ///
    /// # Errors
    /// [`NotDone::NoJob`], [`NotDone::NoOperator`], [`NotDone::Query`], [`NotDone::Conflict`].
    fn change_query(&self, job: &str, operator: &str, query: &str, sql: Option<&str>) -> Result<(), NotDone>;

    /// The present values of a query for one group, or the node that has them. `plan` is the one by which another node has sent
    /// the question here: it is not sent on.
    ///
    /// # Errors
    /// [`NotDone::NoJob`], [`NotDone::NoOperator`], [`NotDone::Query`]; [`NotDone::NotNow`].
    fn present(
        &self,
        job: &str,
        operator: &str,
        query: &str,
        key: &[KeyOf],
        plan: Option<Offset>,
    ) -> Result<Present, NotDone>;

    /// The rows of tables that this node has by a plan, for another node that has fixed it. `partitions` is
    /// `STAGE:PARTITION,PARTITION,…`; a table's snapshot fails where this node does not have exactly these.
    ///
    /// # Errors
    /// Of class user: the text is none.
    #[cfg(feature = "tables")]
    fn tables_of(
        &self,
        plan: Offset,
        partitions: &str,
    ) -> Result<std::sync::Arc<dyn thalweg_table::Catalog>, Error>;
}

/// A field of a group's key and its value as text; `None` is null.
pub type KeyOf = (String, Option<String>);

/// What a text of a job may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Start one that does not run.
    Start,
    /// That, or change one that runs.
    Replace,
}

/// Where present values are.
#[derive(Clone, Debug)]
pub enum Present {
    Here(PresentValue),
    /// At another node, by this plan.
    Elsewhere {
        node: String,
        /// Where it serves HTTP.
        address: String,
        plan: Offset,
    },
}

/// Why the cluster has no answer.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    #[error("no job {name:?} in the cluster")]
    NoJob { name: String, known: Vec<String> },
    #[error("no node {name:?} in the cluster")]
    NoNode { name: String, known: Vec<String> },
    #[error("no operator {name:?} with queries in the job")]
    NoOperator { name: String, known: Vec<String> },
    #[error("job {name:?} exists already")]
    Exists { name: String },
    /// Somebody else was faster.
    #[error("{what}")]
    Conflict { what: String, hint: String },
    /// Units are on their way.
    #[error("{what}")]
    NotNow { what: String },
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Failed(#[from] Error),
}

/// What the control log says, as far as a node has read it.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// The node that was asked.
    pub node: String,
    /// Names of the cluster's topics begin with this.
    pub prefix: String,
    /// The offset of the control log that it reads next.
    pub read: Offset,
    /// The plan in force.
    pub plan: Option<PlanSnapshot>,
    /// Events that wait for the next plan.
    pub unplanned: u64,
    pub members: Vec<MemberSnapshot>,
    pub jobs: Vec<PlacedJobSnapshot>,
    pub units: Vec<UnitSnapshot>,
    /// Units that are not in the list, as it has [`MOST_UNITS`].
    pub units_left_out: u64,
}

#[derive(Clone, Debug)]
pub struct PlanSnapshot {
    /// Its offset in the control log, which is its number.
    pub offset: Offset,
    /// The node that made it; `None` where this node has not read who did.
    pub author: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct MemberSnapshot {
    pub name: String,
    /// The machine.
    pub host: String,
    pub capacity: u32,
    /// Where it serves HTTP.
    pub address: String,
    /// Semantic versions that it computes.
    pub semantics: Vec<u32>,
    /// It makes the next plan: the oldest one that has beaten.
    pub plans: bool,
    /// It is to have no units.
    pub drains: bool,
    /// By the brokers' time; `None` before its first beat.
    pub beat_age: Option<Duration>,
    pub units_active: u64,
    pub units_followed: u64,
}

#[derive(Clone, Debug)]
pub struct PlacedJobSnapshot {
    pub name: String,
    /// The number of its spec.
    pub spec: u64,
    pub semantics: u32,
    pub stages: Vec<StageSnapshot>,
}

#[derive(Clone, Debug)]
pub struct StageSnapshot {
    pub name: String,
    pub partitions: u32,
    pub replicas: u32,
}

#[derive(Clone, Debug, Default)]
pub struct UnitSnapshot {
    pub job: String,
    pub stage: String,
    pub partition: u32,
    /// The node that has it and answers; `None`: nobody until the next plan.
    pub active: Option<String>,
    /// The plan that gave it to that node.
    pub since: Option<Offset>,
    /// Why that plan chose the node.
    pub why: Option<String>,
    /// The node that had it before.
    pub from: Option<String>,
    pub followers: Vec<FollowerSnapshot>,
    /// What its node said of it last.
    pub report: Option<ReportSnapshot>,
    /// Nodes that named it as in trouble and may not have it for now.
    pub trouble: Vec<String>,
    /// Rows that it waits for, as its node said last.
    pub gaps: Vec<GapSnapshot>,
    /// Why its job stopped, where it runs on the node that was asked.
    pub failure: Option<String>,
    /// Where it is, why there, and what would move it, in lines.
    pub explanation: String,
}

#[derive(Clone, Debug)]
pub struct FollowerSnapshot {
    pub node: String,
    /// It takes the unit over once it has caught up; another one stays a copy.
    pub takes_over: bool,
    /// The offset up to which it has read; `None` before its first report.
    pub position: Option<Offset>,
    /// It has no lag.
    pub ready: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct ReportSnapshot {
    pub rows_per_second: u64,
    /// Bytes of state.
    pub bytes: u64,
    /// The offset up to which it has read.
    pub position: Offset,
    /// It has no lag.
    pub ready: bool,
}

/// Rows of another unit that a unit has not got, while later ones came.
#[derive(Clone, Debug, Default)]
pub struct GapSnapshot {
    /// The stage and the partition of the unit that sent them.
    pub stage: String,
    pub partition: u32,
    /// The mark up to which all are there, as in `12.3+1`: after the first row that row 3 of message 12 makes.
    pub through: String,
    /// The offset up to which it has read its log without finding them.
    pub read: Offset,
}

/// Figures of what runs on a node of a cluster.
#[derive(Clone, Debug, Default)]
pub struct NodeFigures {
    pub cluster: ClusterFigures,
    /// By job.
    pub doors: Vec<(String, DoorFigures)>,
    pub units: Vec<(UnitLabels, UnitFigures)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitLabels {
    pub job: String,
    pub stage: String,
    pub partition: String,
}

figures! {
    /// The cluster, as a node sees it.
    pub struct ClusterFigures as "ClusterFigures" {
        /// Members of the cluster, as far as this node has read.
        members: u64, most, Gauge, Count, "thalweg_cluster_members",
        "A fall: a node has died or left; `thalweg nodes` says which are there";
        /// The offset of the plan in force.
        plan: Option<u64>, most, Gauge, Count, "thalweg_cluster_plan",
        "Other nodes have another one for more than seconds: this node does not read the control log";
        /// Seconds since the last beat of this node that it has read back, by the brokers' time.
        beat_age as "beat_age_seconds": Option<Duration>, most, Gauge, Seconds, "thalweg_cluster_beat_age_seconds",
        "Above 3: the others see the node as silent. Look at the brokers, and at the node's processor";
        /// Units for which this node answers.
        units_active: u64, sum, Gauge, Count, "thalweg_cluster_active_units", "";
        /// Units that this node follows without answering.
        units_followed: u64, sum, Gauge, Count, "thalweg_cluster_followed_units",
        "For long: a unit does not catch up; see `thalweg_unit_lag`";
        /// Bytes of snapshots that units of this node have still to fetch before they start.
        restore_bytes_left: u64, sum, Gauge, Bytes, "thalweg_restore_left_bytes",
        "It does not fall: look at the store of snapshots";
        /// Units of this node without series, as there are more than 4,096.
        omitted: u64, sum, Gauge, Count, "thalweg_cluster_omitted_units", "Run more nodes";
    }
}

figures! {
    /// A unit: the work of a stage on one partition.
    pub struct UnitFigures as "UnitFigures" {
        /// 1 where this node answers for the unit, 0 where it follows.
        active: bool, most, Gauge, Flag, "thalweg_unit_active_info", "";
        /// 1 once the unit has stopped over an error.
        failed: bool, most, Gauge, Flag, "thalweg_unit_failed_info",
        "`GET /v1/cluster` and the log of the node have the reason";
        /// Offset of the message that it reads next.
        position: u64, most, Gauge, Count, "thalweg_unit_position", "";
        /// Messages between that and the end of the partition, as a broker last said: so many are left while it catches up.
        lag: Option<u64>, sum, Gauge, Count, "thalweg_unit_lag",
        "The unit is too slow, or catches up: look at `thalweg_unit_rows_total`";
        /// Age of the newest message that it has read, while there are newer ones, and else 0.
        lag_seconds: Option<Duration>, most, Gauge, Seconds, "thalweg_unit_lag_seconds",
        "As above; clients wait for as long";
        /// Rows that counted.
        rows: u64, sum, Counter, Count, "thalweg_unit_rows_total", "";
        /// Rows that it had already, which were dropped.
        duplicates: u64, sum, Counter, Count, "thalweg_unit_duplicates_total", "";
        /// Messages that were dropped, as rows before them have not come.
        gaps: u64, sum, Counter, Count, "thalweg_unit_gaps_total",
        "Rows were lost on their way. Those of a door: its clients got 504. Those of a unit are sent again; see `thalweg_unit_open_gaps`";
        /// Units of the stage before of which rows are missing now.
        open_gaps: u64, sum, Gauge, Count, "thalweg_unit_open_gaps",
        "For more than some seconds: `thalweg cluster explain` names the sender; see whether it runs, and how brokers lost rows that they had acknowledged";
        /// Bytes of state in memory.
        state_bytes: u64, sum, Gauge, Bytes, "thalweg_unit_state_bytes", "";
        /// Seconds since its last commit in this process; none before. One that reads nothing commits nothing.
        commit_age as "commit_age_seconds": Option<Duration>, most, Gauge, Seconds, "thalweg_unit_commit_age_seconds",
        "It grows although rows come: look at the disk. A restart reads the log from the last commit on";
        /// Offset of the message from which the newest snapshot goes on that this process took of it; none before.
        snapshot_position: Option<u64>, most, Gauge, Count, "thalweg_unit_snapshot_position", "";
        /// Seconds since then. A unit that reads nothing has no new one.
        snapshot_age as "snapshot_age_seconds": Option<Duration>, most, Gauge, Seconds, "thalweg_unit_snapshot_age_seconds",
        "It grows although rows come: the log of the node says why. Nothing is deleted from the unit's log meanwhile";
    }
}

figures! {
    /// A door of a job, where records enter, and the answers that units of this node send.
    pub struct DoorFigures as "DoorFigures" {
        /// Rows that the door has taken for the units.
        rows: u64, sum, Counter, Count, "thalweg_door_rows_total", "";
        /// Messages in which it sent them.
        frames: u64, sum, Counter, Count, "thalweg_door_frames_total", "";
        /// Answers that came back to it.
        answers: u64, sum, Counter, Count, "thalweg_door_answers_total", "";
        /// Parts of requests that got no answer in time, so that their outcome is unknown.
        unknown: u64, sum, Counter, Count, "thalweg_door_unknown_total",
        "The error of the request names partition and node: look at the lag there";
        /// Times that brokers did not take rows for good.
        failures: u64, sum, Counter, Count, "thalweg_door_failures_total", "Look at the brokers, and at the log of the node";
        /// Times that a unit refused rows of the door, as rows before them had not come: it went on without them.
        refusals: u64, sum, Counter, Count, "thalweg_door_refusals_total",
        "Brokers have lost rows that they had acknowledged: see how many copies they keep";
        /// Answers that units here have sent to doors.
        sent: u64, sum, Counter, Count, "thalweg_post_sent_total", "";
        /// Answers that could not be sent, as there was no room or no broker.
        dropped: u64, sum, Counter, Count, "thalweg_post_dropped_total", "As above; clients of these records got 504";
    }
}
