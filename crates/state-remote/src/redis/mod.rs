//! Redis: three keys per task, named `thalweg:{JOB/OPERATOR/TASK:SPACE}:head`, `…:log` and `…:rows`.
//!
//! The head is a string, log and rows are hashes, so that all data of a task is together and is removed by three names.
//! What depends on the head is done by a script, as one step. All requests go over a few connections that are kept.

mod client;
mod fitness;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use redis::{Cmd, Connection, Script, ToRedisArgs};
use thalweg_state::StateError;
use thalweg_types::HashKey;

use self::client::Pool;
use crate::settings::Settings;
use crate::store::{Limits, Pair, PartName, Read, RowChange, Rows, Server, Space, Store};
use crate::wait::{Outcome, Patience, Work};

/// A script of a thousand changes holds the server up for some milliseconds.
const LIMITS: Limits = Limits {
    keys: 1_000,
    bytes: 1 << 20,
    read_keys: 1_000,
    read_bytes: 1 << 20,
    max_key: 1 << 20,
    // A bulk string has at most 512 MiB.
    max_pair: 256 << 20,
};

/// How many fields one step of a scan is to bring.
const PAGE: usize = 1_000;

/// Keys: head. Arguments: the head of before, empty for none; the new one.
const SET_HEAD: &str = "
local now = redis.call('GET', KEYS[1])
if now == ARGV[2] then return 1 end
if ARGV[1] == '' and now or ARGV[1] ~= '' and now ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1";

/// Keys: head, rows. Arguments: the head, then keys and values; an empty value takes the row away.
const APPLY: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
for at = 2, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('HDEL', KEYS[2], ARGV[at])
  else
    redis.call('HSET', KEYS[2], ARGV[at], ARGV[at + 1])
  end
end
return 1";

/// A server, with the connections to it.
#[derive(Debug)]
pub(crate) struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool,
    set_head: Script,
    apply: Script,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects, and looks whether the server is fit for state.
    pub(crate) fn connect(settings: &Settings, patience: &Patience) -> Result<Self, StateError> {
        let pool = Pool::new(settings);
        let found = patience.impatient().until_done(Work::Read, "connect", || pool.with(fitness::look))?;
        fitness::judge(&found, patience.store())?;
        let shared = Shared { pool, set_head: Script::new(SET_HEAD), apply: Script::new(APPLY) };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Server for Redis {
    fn space(&self, space: Space) -> Arc<dyn Store> {
        let name = |what: &str| format!("thalweg:{{{}:{:016x}}}:{what}", space.task, space.number);
        let (head, log, rows) = (name("head"), name("log"), name("rows"));
        Arc::new(RedisSpace { shared: Arc::clone(&self.shared), head, log, rows })
    }
}

#[derive(Debug)]
struct RedisSpace {
    shared: Arc<Shared>,
    head: String,
    log: String,
    rows: String,
}

/// The field of a part: cycle 8, owner 8, number 4, big-endian.
pub(crate) fn field(name: PartName) -> Vec<u8> {
    let mut bytes = name.cycle.to_be_bytes().to_vec();
    bytes.extend_from_slice(&name.owner.to_be_bytes());
    bytes.extend_from_slice(&name.number.to_be_bytes());
    bytes
}

pub(crate) fn name_of(field: &[u8]) -> Option<PartName> {
    let (cycle, rest) = field.split_first_chunk()?;
    let (owner, rest) = rest.split_first_chunk()?;
    let number = rest.try_into().ok()?;
    Some(PartName {
        cycle: u64::from_be_bytes(*cycle),
        owner: u64::from_be_bytes(*owner),
        number: u32::from_be_bytes(number),
    })
}

fn command(name: &str, key: &str, arguments: impl ToRedisArgs) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(key).arg(arguments);
    command
}

impl RedisSpace {
    fn with<T>(&self, request: impl FnMut(&mut Connection) -> redis::RedisResult<T>) -> Outcome<T> {
        self.shared.pool.with(request)
    }
}

impl Store for RedisSpace {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn head(&self) -> Outcome<Option<Vec<u8>>> {
        self.with(|to| redis::cmd("GET").arg(&self.head).query(to))
    }

    fn set_head(&self, before: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
        let script = &self.shared.set_head;
        self.with(|to| script.key(&self.head).arg(before.unwrap_or_default()).arg(new).invoke(to))
    }

    fn put_part(&self, name: PartName, bytes: &[u8]) -> Outcome<()> {
        self.with(|to| command("HSET", &self.log, field(name)).arg(bytes).query(to))
    }

    fn parts(&self) -> Outcome<Vec<PartName>> {
        let fields: Vec<Vec<u8>> = self.with(|to| redis::cmd("HKEYS").arg(&self.log).query(to))?;
        Ok(fields.iter().filter_map(|field| name_of(field)).collect())
    }

    fn part(&self, name: PartName) -> Outcome<Option<Vec<u8>>> {
        self.with(|to| command("HGET", &self.log, field(name)).query(to))
    }

    fn drop_parts(&self, names: &[PartName]) -> Outcome<()> {
        if names.is_empty() {
            return Ok(());
        }
        let fields: Vec<Vec<u8>> = names.iter().map(|name| field(*name)).collect();
        self.with(|to| command("HDEL", &self.log, &fields).query(to))
    }

    fn apply(&self, head: &[u8], _: u64, changes: &[RowChange<'_>]) -> Outcome<bool> {
        let mut script = self.shared.apply.key(&self.head);
        script.key(&self.rows).arg(head);
        for (key, value) in changes {
            script.arg(*key).arg(value.as_deref().unwrap_or_default());
        }
        self.with(|to| script.invoke(to))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Outcome<Read> {
        let mut pipe = redis::pipe();
        pipe.cmd("GET").arg(&self.head).cmd("HMGET").arg(&self.rows).arg(keys);
        self.with(|to| pipe.query(to))
    }

    fn count(&self) -> Outcome<Option<u64>> {
        self.with(|to| redis::cmd("HLEN").arg(&self.rows).query(to)).map(Some)
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
        Box::new(RedisRows { space: self, cursor: Some(0), seen: HashSet::new(), hash_key: HashKey::draw() })
    }

    fn remove(&self) -> Outcome<()> {
        self.with(|to| redis::cmd("UNLINK").arg(&[&self.head, &self.log, &self.rows]).query(to))
    }
}

/// A scan may bring a field twice when a hash shrinks meanwhile, so fields that have come are remembered by their
/// hashes.
struct RedisRows<'a> {
    space: &'a RedisSpace,
    /// `None` after the last step.
    cursor: Option<u64>,
    seen: HashSet<u128>,
    /// Of these hashes, so that no client can choose two keys of which a scan brings one.
    hash_key: HashKey,
}

impl Rows for RedisRows<'_> {
    fn next(&mut self) -> Outcome<Option<Vec<Pair>>> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let rows = &self.space.rows;
        let (next, fields): (u64, Vec<Pair>) = self
            .space
            .with(|to| redis::cmd("HSCAN").arg(rows).arg(cursor).arg("COUNT").arg(PAGE).query(to))?;
        self.cursor = (next != 0).then_some(next);
        let Self { seen, hash_key, .. } = self;
        Ok(Some(fields.into_iter().filter(|(key, _)| seen.insert(hash_key.hash128(key))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_come_back_in_order() {
        let names = [(0, u64::MAX, 7), (1, 0, 0), (1, 0, 300), (256, 1, 2)]
            .map(|(cycle, owner, number)| PartName { cycle, owner, number });
        let fields = names.map(field);
        assert!(fields.is_sorted());
        assert_eq!(fields.map(|field| name_of(&field).unwrap()), names);
        assert_eq!(name_of(&[0; 19]), None);
        assert_eq!(name_of(&[0; 21]), None);
    }
}
