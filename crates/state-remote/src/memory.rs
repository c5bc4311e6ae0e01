//! A server in memory for tests, stricter than a real one: any request may fail before its effect or after it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claim::CLAIM;
use crate::store::{Limits, Pair, PartName, Read, RowChange, Rows, Server, Space, Store};
use crate::wait::{Outcome, Trouble};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) head: Option<Vec<u8>>,
    pub(crate) parts: BTreeMap<PartName, Vec<u8>>,
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Default)]
pub(crate) struct MemoryServer(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    spaces: BTreeMap<u64, Image>,
    /// By the task's identity.
    claims: BTreeMap<u64, Image>,
    /// State of the generator that decides which requests fail; 0: none does.
    faults: u64,
    requests: u64,
    /// Requests that still arrive; `None`: all.
    left: Option<u64>,
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryServer")
    }
}

impl MemoryServer {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on one request of four fails, chosen by `seed`; 0 ends that.
    pub(crate) fn fail(&self, seed: u64) {
        self.lock().faults = seed;
    }

    /// Only so many more requests arrive.
    pub(crate) fn stop_after(&self, requests: Option<u64>) {
        self.lock().left = requests;
    }

    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// All but the claims.
    pub(crate) fn spaces(&self) -> BTreeMap<u64, Image> {
        self.lock().spaces.clone()
    }

    /// A store of a program that made no claims.
    pub(crate) fn forget_claims(&self) {
        self.lock().claims.clear();
    }

    /// Changes stored bytes behind the client's back.
    pub(crate) fn meddle(&self, change: impl FnOnce(&mut BTreeMap<u64, Image>)) {
        change(&mut self.lock().spaces);
    }
}

impl Server for MemoryServer {
    fn space(&self, space: Space) -> Arc<dyn Store> {
        Arc::new(MemorySpace { server: self.clone(), identity: space.identity, number: space.number })
    }
}

#[derive(Debug)]
struct MemorySpace {
    server: MemoryServer,
    identity: u64,
    number: u64,
}

impl MemorySpace {
    fn request<T>(&self, effect: impl FnOnce(&mut Image) -> T) -> Outcome<T> {
        let mut inner = self.server.lock();
        inner.requests += 1;
        if let Some(left) = &mut inner.left {
            match left.checked_sub(1) {
                Some(fewer) => *left = fewer,
                None => return Err(Trouble::Passing("the server is gone".to_owned())),
            }
        }
        let mut draw = 0;
        if inner.faults != 0 {
            inner.faults ^= inner.faults << 13;
            inner.faults ^= inner.faults >> 7;
            inner.faults ^= inner.faults << 17;
            draw = inner.faults % 8;
        }
        if draw == 6 {
            return Err(Trouble::Passing("it never arrived".to_owned()));
        }
        let image = match self.number {
            CLAIM => inner.claims.entry(self.identity),
            number => inner.spaces.entry(number),
        };
        let done = effect(image.or_default());
        if draw == 7 { Err(Trouble::Passing("the answer was lost".to_owned())) } else { Ok(done) }
    }
}

impl Store for MemorySpace {
    fn limits(&self) -> Limits {
        Limits { keys: 5, bytes: 1_000, read_keys: 4, read_bytes: 300, max_key: 2_000, max_pair: 100_000 }
    }

    fn head(&self) -> Outcome<Option<Vec<u8>>> {
        self.request(|image| image.head.clone())
    }

    fn set_head(&self, before: Option<&[u8]>, new: &[u8]) -> Outcome<bool> {
        self.request(|image| {
            if image.head.as_deref() == before {
                image.head = Some(new.to_vec());
            }
            image.head.as_deref() == Some(new)
        })
    }

    fn put_part(&self, name: PartName, bytes: &[u8]) -> Outcome<()> {
        self.request(|image| drop(image.parts.insert(name, bytes.to_vec())))
    }

    fn parts(&self) -> Outcome<Vec<PartName>> {
        self.request(|image| image.parts.keys().copied().collect())
    }

    fn part(&self, name: PartName) -> Outcome<Option<Vec<u8>>> {
        self.request(|image| image.parts.get(&name).cloned())
    }

    fn drop_parts(&self, names: &[PartName]) -> Outcome<()> {
        self.request(|image| names.iter().for_each(|name| drop(image.parts.remove(name))))
    }

    fn apply(&self, head: &[u8], _: u64, changes: &[RowChange<'_>]) -> Outcome<bool> {
        assert!(changes.len() <= self.limits().keys);
        self.request(|image| {
            if image.head.as_deref() != Some(head) {
                return false;
            }
            for (key, value) in changes {
                match value {
                    Some(value) => drop(image.rows.insert(key.to_vec(), value.clone())),
                    None => drop(image.rows.remove(*key)),
                }
            }
            true
        })
    }

    fn get_many(&self, keys: &[&[u8]]) -> Outcome<Read> {
        assert!(keys.len() <= self.limits().read_keys);
        self.request(|image| {
            let values = keys.iter().map(|key| image.rows.get(*key).cloned()).collect();
            (image.head.clone(), values)
        })
    }

    fn count(&self) -> Outcome<Option<u64>> {
        self.request(|image| Some(image.rows.len() as u64))
    }

    fn rows(&self) -> Box<dyn Rows + '_> {
        Box::new(MemoryRows { space: self, last: None })
    }

    fn remove(&self) -> Outcome<()> {
        self.request(|image| *image = Image::default())?;
        self.server.lock().spaces.remove(&self.number);
        Ok(())
    }
}

struct MemoryRows<'a> {
    space: &'a MemorySpace,
    last: Option<Vec<u8>>,
}

impl Rows for MemoryRows<'_> {
    fn next(&mut self) -> Outcome<Option<Vec<Pair>>> {
        let last = self.last.clone();
        let some: Vec<Pair> = self.space.request(|image| {
            let behind = |(key, _): &(&Vec<u8>, &Vec<u8>)| last.as_ref().is_none_or(|last| *key > last);
            let rows = image.rows.iter().filter(behind).take(3);
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        })?;
        self.last = some.last().map(|(key, _)| key.clone()).or(last);
        Ok((!some.is_empty()).then_some(some))
    }
}
