//! Records, schemas, time, order numbers and errors: the words that every other crate speaks.
//!
//! Nothing here does I/O, reads a clock or starts a thread.
//!
//! * [`DataType`], [`Field`], [`Schema`]: the field types of job files and their Arrow shapes.
//! * [`Batch`]: records that travel over a link, with the range of the order that they cover.
//! * [`Micros`], [`parse_duration`], [`parse_timestamp`]: event time and the units that users write.
//! * [`Error`]: errors that leave the engine, with their [`Class`] and a hint.
//! * [`Reject`]: a record that could not be used, with its place and raw bytes.

mod address;
mod batch;
mod data_type;
mod disk;
mod error;
mod hash;
mod hash_key;
mod late;
mod lengths;
mod nulls;
mod reject;
mod schema;
mod semantics;
mod seq;
mod size;
mod time;
mod value;

pub use address::{IPV4_FROM, IpNetwork, ip_network, ip_octets, ip_prefix, is_ipv4, parse_ip};
pub use batch::{Batch, Rows, Seqs};
pub use data_type::{DataType, ParseTypeError, TimeUnit};
pub use disk::{DiskError, is_disk_full};
pub use error::{Class, Error, Retry};
pub use hash::{hash_bytes, hash_column, hash_columns, partition_of, spread_tag};
pub use hash_key::HashKey;
pub use late::{CATCH_UP, Identity, LatePolicy, Lateness, Origin, TakenIds, Timeliness};
pub use lengths::TextLengths;
pub use nulls::validity;
pub use reject::{Reject, Rejects, RejectsBuilder, reason_in_file, reject_hint, rejects_schema};
pub use schema::{Field, Reading, Schema};
pub use semantics::SEMANTICS;
pub use seq::{Offset, PartitionId, RecordPlace, Seq, SeqRange};
pub use size::{format_size, parse_size};
pub use time::{
    Micros, civil_from_days, days_from_civil, days_in_month, format_duration, format_span, format_timestamp,
    parse_duration, parse_offset, parse_timestamp,
};
pub use value::Value;
