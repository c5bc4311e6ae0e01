//! One job on many nodes: what runs where records enter, and what runs per partition of a log.
//!
//! A job is *cut* before its keyed operator (`cut`). What is above runs where records enter and sends its rows, by key, to the
//! partitions of a topic; the rest is a *stage*, which runs once per partition. A *unit* is a stage's work on one
//! partition: a small job that is told its order by the log (`inbox`), with a folder, a position and commits of its
//! own, on the threads of its node (`units`).
//!
//! Invariants
//! * What a unit holds and emits is a function of its partition's log: of no clock, no cut of batches, no place of commits.
//! * A row counts once, whoever sends it and however often: positions decide it ([`thalweg_cluster::positions`]).
//! * A unit goes on only in the log that it came from: [`inbox`] compares topic, bounds and the last frame.
//!
//! Records enter at a `door`, which any node has; `answering` brings answers back to it. Rows that never came are in
//! `gaps`, and what their sender does about them in `mend`. An operator of several keys is a
//! chain of stages: units of each send their rows to the next (`outlet`). A source that reads a topic of others is a stage before
//! all of them (`topic`); partitions that it gets later are met by `growing`. Both send by `lanes`. `member` reads the control
//! log, and `host` runs what it says. All four go on in steps that are given the time (`actor`). `view` shows both, and `asked` is what is asked of any
//! node. `snapshot` keeps copies of units' folders where all nodes reach them.
//!
//! Not here yet: state that comes from another node directly.

mod actor;
mod address;
mod answering;
mod arrived;
mod asked;
mod cut;
mod door;
mod failures;
mod gaps;
mod growing;
mod host;
mod inbox;
mod lanes;
mod load;
mod member;
mod mend;
mod outlet;
mod outside;
mod overdue;
mod place;
mod placed;
mod scatter;
mod snapshot;
#[cfg(feature = "tables")]
mod tables;
mod texts;
mod told;
mod topic;
mod units;
mod view;
mod wire;

pub use actor::{Actor, Actors, Bell, ByHand, Ids, Next, Outside, drive, random_ids};
pub use address::ClusterAddress;
pub use answering::{Post, PostCounts, reply_topic};
pub use cut::{Cut, Reads, Refusal, StageCut, cut};
pub use door::{Door, DoorCounts, DoorOptions, DoorPlace, Sender};
pub use gaps::{OpenGap, OpenGaps};
pub use host::{Cluster, ClusterOptions, DoorEvent, OnDoor, cut_for, stage_topic};
pub use inbox::{InboxCounts, Reader};
pub use member::{Life, Member, MemberOptions, Work, control_topic, make_topic};
pub use mend::NamedGap;
pub use outlet::{Carrier, CarrierCounts, CarrierOptions, Carrying};
pub use scatter::{Origin, Scatter};
pub use snapshot::{FolderStore, Kept, SnapshotCounts, SnapshotOptions, Snapshots, Store, StoreAddress};
pub use texts::Texts;
pub use units::{Unit, UnitOptions, Units, UnitsFolder};
pub use wire::wire_schema;
