//! `member_join`: the values of the row with the same keys, such as the member of an exchange that uses a MAC address
//! on a VLAN.

use std::sync::Arc;

use thalweg_connect::OptionKind;
use thalweg_enrich::join::{JoinShape, JoinTable, Key};
use thalweg_enrich::member::MemberJoin;
use thalweg_flow::SystemClock;
use thalweg_types::DataType;

use super::{
    BAD_LINES, ON, OpenTable, Plan, SCHEMA, TAKE, bad_lines, path_of, prepare, read_only, split_columns,
};
use crate::job_file::keys::{KeySpec, Shape};
use crate::operator::{OperatorCheck, OperatorPlugin, Prepared, TEXTS};

pub(in crate::operator) struct MemberJoinPlugin;

const OPTIONS: &[KeySpec] = &[
    KeySpec::new("table", Shape::Option(OptionKind::Path), "table: a CSV file with a header").required(),
    SCHEMA,
    KeySpec::new("keys", TEXTS, "columns of the table to look up by").default("[mac, vlan]"),
    ON,
    TAKE,
    BAD_LINES,
];

impl OperatorPlugin for MemberJoinPlugin {
    fn name(&self) -> &'static str {
        "member_join"
    }

    fn doc(&self) -> &'static str {
        "adds fields from a small table in memory, by equal keys"
    }

    fn page(&self) -> &'static str {
        include_str!("member.md")
    }

    fn options(&self) -> &'static [KeySpec] {
        OPTIONS
    }

    fn check(&self, check: &OperatorCheck<'_>) -> Option<Prepared> {
        let columns = check.fields("schema")?;
        let keys = check
            .options()
            .list("keys")
            .map_or_else(|| vec!["mac", "vlan"], |keys| keys.iter().map(String::as_str).collect());
        let (keys, values) = split_columns(check, &columns, &keys)?;
        for field in &keys {
            use DataType::{Int64, Ip, String, UInt64};

            if !matches!(field.data_type, String | UInt64 | Int64 | Ip) {
                let message = format!("key {:?} is of type {}", field.name, field.data_type);
                check.error("schema", message, Some("keys are string, uint64, int64 or ip".to_owned()));
                return None;
            }
        }
        let keys = keys.into_iter().map(|field| Key { name: field.name, data_type: field.data_type });
        let shape = JoinShape { keys: keys.collect(), values };
        let path = path_of(check, "table");
        let (name, opened) = (check.name().to_string(), shape.clone());
        let bad_lines = bad_lines(check);
        let files = vec![path.to_path_buf()];
        let open: OpenTable = Arc::new(move || {
            path.recheck()?;
            let (path, now) = (path.to_path_buf(), SystemClock::now());
            let table = MemberJoin::open(&name, path, opened.clone(), bad_lines, now)?;
            Ok(Arc::new(table) as Arc<dyn JoinTable>)
        });
        let loads = read_only(files, &open);
        prepare(check, Plan { shape, open, loads })
    }
}
