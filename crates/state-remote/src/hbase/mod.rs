//! HBase, through its REST gateway: all tasks of all jobs in one table, with one family `s` and one version per cell.
//!
//! Row keys are text, as the gateway takes them in paths: 22 characters for the space (identity and number, so that tasks
//! are spread over regions), a letter, and the rest in base64 as URLs have it.
//! * `h`: the head, column `s:h`.
//! * `l` CYCLE OWNER NUMBER, in hexadecimal: a part of the log, column `s:p`.
//! * `r` KEY: a row, column `s:v`.
//!
//! A row's time stamp is its cycle plus one. So a request that comes late, after one of a newer cycle, changes nothing.
//! The gateway takes many rows in one request to read and to write, but deletes one by one: that is done over several
//! connections.

pub(crate) mod client;
pub(crate) mod table;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thalweg_state::StateError;

use self::client::{Cell, Client, Fetched};
use crate::settings::Settings;
use crate::store::{Limits, Pair, PartName, Read, RowChange, Rows, Server, Space, Store};
use crate::wait::{Outcome, Patience, Work};

const HEAD: &str = "s:h";
const PART: &str = "s:p";
const VALUE: &str = "s:v";

const LIMITS: Limits = Limits {
    keys: 1_000,
    bytes: 1 << 20,
    // They are in a URL, which stays below the 8 KiB that any proxy takes.
    read_keys: 64,
    read_bytes: 3 << 10,
    // A row key has at most 32 KiB, and this is larger in text.
    max_key: 20_000,
    // A cell has at most 10 MiB unless the cluster is set otherwise.
    max_pair: 8 << 20,
};

/// A gateway, and a table that it serves.
#[derive(Debug)]
pub(crate) struct Hbase {
    client: Arc<Client>,
}

impl Hbase {
    /// Connects, makes the table if it is not there, and looks whether it is fit for state.
    pub(crate) fn connect(settings: &Settings, patience: &Patience) -> Result<Self, StateError> {
        let client = Client::new(settings)?;
        patience.impatient().until_done(Work::Read, "look at the table", || table::ensure(&client))?;
        Ok(Self { client: Arc::new(client) })
    }
}

impl Server for Hbase {
    fn space(&self, space: Space) -> Arc<dyn Store> {
        let mut bytes = space.identity.to_be_bytes().to_vec();
        bytes.extend_from_slice(&space.number.to_be_bytes());
        Arc::new(HbaseSpace { client: Arc::clone(&self.client), prefix: URL_SAFE_NO_PAD.encode(bytes) })
    }
}

/// The row key of a part, after the space.
pub(crate) fn part_text(name: PartName) -> String {
    format!("l{:016x}{:016x}{:08x}", name.cycle, name.owner, name.number)
}

/// The part of this row key, after the space.
pub(crate) fn part_name(text: &str) -> Option<PartName> {
    let hex = text.strip_prefix('l').filter(|hex| hex.len() == 40)?;
    Some(PartName {
        cycle: u64::from_str_radix(hex.get(..16)?, 16).ok()?,
        owner: u64::from_str_radix(hex.get(16..32)?, 16).ok()?,
        number: u32::from_str_radix(hex.get(32..)?, 16).ok()?,
    })
}

/// The state key of this row key, after the space.
pub(crate) fn key_of(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.strip_prefix('r')?).ok()
}

#[derive(Debug)]
struct HbaseSpace {
    client: Arc<Client>,
    prefix: String,
}

impl HbaseSpace {
    fn head_key(&self) -> String {
        format!("{}h", self.prefix)
    }

    fn row_key(&self, key: &[u8]) -> String {
        let mut text = format!("{}r", self.prefix);
        URL_SAFE_NO_PAD.encode_string(key, &mut text);
        text
    }

    fn part_key(&self, name: PartName) -> String {
        format!("{}{}", self.prefix, part_text(name))
    }

    /// All rows whose keys go on with a letter, some at a time.
    fn walk(&self, letter: char) -> Walk<'_> {
        let start = format!("{}{letter}", self.prefix);
        // The letter after this one: no key of the space goes on with it.
        let end = format!("{}{}", self.prefix, char::from(letter as u8 + 1));
        Walk { client: &self.client, start, end, scanner: None, is_over: false }
    }
}

impl Store for HbaseSpace {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn head(&self) -> Outcome<Option<Vec<u8>>> {
        Ok(self.client.get(&[self.head_key()])?.pop().map(|fetched| fetched.value))
    }

    fn set_head(&self, before: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
        let key = self.head_key();
        let cell =
            |value: &[u8]| Cell { key: key.clone(), column: HEAD, timestamp: None, value: value.to_vec() };
        match before {
            // No other process draws the same number, so none comes between.
            None if self.head()?.is_none() => self.client.put(&[cell(new)]).map(|()| true),
            Some(before) if self.client.check_and_put(&cell(new), before)? => Ok(true),
            // An earlier try may have done it.
            _ => Ok(self.head()?.as_deref() == Some(new)),
        }
    }

    fn put_part(&self, name: PartName, bytes: &[u8]) -> Outcome<()> {
        let key = self.part_key(name);
        self.client.put(&[Cell { key, column: PART, timestamp: None, value: bytes.to_vec() }])
    }

    fn parts(&self) -> Outcome<Vec<PartName>> {
        let mut names = Vec::new();
        let mut walk = self.walk('l');
        while let Some(some) = walk.next()? {
            names
                .extend(some.iter().filter_map(|fetched| part_name(fetched.key.strip_prefix(&self.prefix)?)));
        }
        Ok(names)
    }

    fn part(&self, name: PartName) -> Outcome<Option<Vec<u8>>> {
        Ok(self.client.get(&[self.part_key(name)])?.pop().map(|fetched| fetched.value))
    }

    fn drop_parts(&self, names: &[PartName]) -> Outcome<()> {
        let keys: Vec<String> = names.iter().map(|name| self.part_key(*name)).collect();
        self.client.delete(&keys, None)
    }

    fn apply(&self, _: &[u8], cycle: u64, changes: &[RowChange<'_>]) -> Outcome<bool> {
        let timestamp = Some(cycle.saturating_add(1));
        let (mut cells, mut gone) = (Vec::new(), Vec::new());
        for (key, value) in changes {
            let key = self.row_key(key);
            match value {
                Some(value) => cells.push(Cell { key, column: VALUE, timestamp, value: value.clone() }),
                None => gone.push(key),
            }
        }
        if !cells.is_empty() {
            self.client.put(&cells)?;
        }
        self.client.delete(&gone, timestamp.map(|timestamp| (VALUE, timestamp)))?;
        // A head is not needed: time stamps show late writes.
        Ok(true)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Outcome<Read> {
        let mut asked = vec![self.head_key()];
        asked.extend(keys.iter().map(|key| self.row_key(key)));
        let mut head = None;
        let mut values = vec![None; keys.len()];
        // Rows come in the order in which they were asked for, those that are not there left out.
        let mut at = 0;
        for fetched in self.client.get(&asked)? {
            while asked.get(at).is_some_and(|key| *key != fetched.key) {
                at += 1;
            }
            match at.checked_sub(1) {
                None => head = Some(fetched.value),
                Some(place) if place < values.len() => values[place] = Some(fetched.value),
                Some(_) => return Err(self.client.surprise("rows that were asked for", &fetched.key)),
            }
            at += 1;
        }
        Ok((head, values))
    }

    fn count(&self) -> Outcome<Option<u64>> {
        Ok(None)
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
        Box::new(HbaseRows { space: self, walk: self.walk('r') })
    }

    fn remove(&self) -> Outcome<()> {
        for letter in ['r', 'l', 'h'] {
            let mut walk = self.walk(letter);
            while let Some(some) = walk.next()? {
                let keys: Vec<String> = some.into_iter().map(|fetched| fetched.key).collect();
                self.client.delete(&keys, None)?;
            }
        }
        Ok(())
    }
}

struct HbaseRows<'a> {
    space: &'a HbaseSpace,
    walk: Walk<'a>,
}

impl Rows for HbaseRows<'_> {
    fn next(&mut self) -> Outcome<Option<Vec<Pair>>> {
        let Some(some) = self.walk.next()? else { return Ok(None) };
        let pair = |fetched: Fetched| match fetched.key.strip_prefix(&self.space.prefix).and_then(key_of) {
            Some(key) => Ok((key, fetched.value)),
            None => Err(self.space.client.surprise("a key in base64", &fetched.key)),
        };
        some.into_iter().map(pair).collect::<Outcome<_>>().map(Some)
    }
}

/// A scanner of the gateway's, begun again after the last row where it is gone.
struct Walk<'a> {
    client: &'a Client,
    start: String,
    end: String,
    scanner: Option<String>,
    is_over: bool,
}

impl Walk<'_> {
    fn next(&mut self) -> Outcome<Option<Vec<Fetched>>> {
        if self.is_over {
            return Ok(None);
        }
        let scanner = match &self.scanner {
            Some(scanner) => scanner.clone(),
            None => self.scanner.insert(self.client.open_scanner(&self.start, &self.end)?).clone(),
        };
        let some = match self.client.scan(&scanner) {
            Ok(some) => some,
            Err(trouble) => {
                self.scanner = None;
                return Err(trouble);
            }
        };
        match some.as_ref().and_then(|some| some.last()) {
            // The next key that there can be.
            Some(last) => self.start = format!("{}\0", last.key),
            None => self.is_over = true,
        }
        Ok(some.filter(|some| !some.is_empty()))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        if let Some(scanner) = &self.scanner {
            self.client.close_scanner(scanner);
        }
    }
}
