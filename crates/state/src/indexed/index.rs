//! Key to the place of its newest entry: numbered keys by number, all others by fingerprint.
//!
//! Fingerprints are hashes under a key that is drawn for each index and stored in its index file. An index that comes from
//! the segments alone has a new one, as they hold the keys themselves: nothing is lost with it.

use thalweg_types::HashKey;

use super::location::Location;
use super::numbers::{Number, Numbers};
use super::table::{Fingerprint, Table};

/// Keys whose places in memory are waited for together: some more than a core has loads under way.
const AT_ONCE: usize = 32;

/// What the index knows a key by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Number(Number),
    Fingerprint(Fingerprint),
}

impl Address {
    /// That of a key in an index whose fingerprints are hashed with `hash_key`.
    #[inline]
    pub(super) fn of(hash_key: &HashKey, key: &[u8]) -> Self {
        match Number::of(key) {
            Some(number) => Self::Number(number),
            None => Self::Fingerprint(Fingerprint::of(hash_key, key)),
        }
    }
}

/// The place of every key's newest entry.
#[derive(Debug)]
pub(super) struct Index {
    hash_key: HashKey,
    table: Table,
    numbers: Numbers,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { hash_key: HashKey::draw(), table: Table::new(), numbers: Numbers::default() }
    }

    /// What its fingerprints are hashed with; addresses of another index mean nothing here.
    #[inline]
    pub(super) fn hash_key(&self) -> HashKey {
        self.hash_key
    }

    /// Makes room in an empty index for about as many keys that are not numbered.
    pub(super) fn reserve(&mut self, fingerprints: usize) {
        self.table.reserve(fingerprints);
    }

    /// Gives back room that was made for more.
    pub(super) fn fit(&mut self) {
        self.table.fit();
    }

    #[inline]
    pub(super) fn get(&self, address: Address) -> Option<Location> {
        match address {
            Address::Number(number) => self.numbers.get(number),
            Address::Fingerprint(fingerprint) => self.table.get(fingerprint),
        }
    }

    /// Sets the place of a key's newest entry; the place before.
    #[inline]
    pub(super) fn put(&mut self, address: Address, location: Location) -> Option<Location> {
        match address {
            Address::Number(number) => self.numbers.put(number, location),
            Address::Fingerprint(fingerprint) => self.table.put(fingerprint, location),
        }
    }

    /// Sets the places of the newest entries of keys, the last of a key last; `was` is called with the new place and
    /// the one before.
    pub(super) fn put_all(
        &mut self,
        placed: &[(Address, Location)],
        mut was: impl FnMut(Location, Option<Location>),
    ) {
        for together in placed.chunks(AT_ONCE) {
            // Loads that do not depend on each other are under way together.
            let touched = together.iter().fold(0, |sum, (address, _)| sum ^ self.touch(*address));
            std::hint::black_box(touched);
            for (address, location) in together {
                let before = self.put(*address, *location);
                was(*location, before);
            }
        }
    }

    #[inline]
    fn touch(&self, address: Address) -> u64 {
        match address {
            // Neighbours in an array already.
            Address::Number(_) => 0,
            Address::Fingerprint(fingerprint) => self.table.touch(fingerprint),
        }
    }

    pub(super) fn remove(&mut self, address: Address) {
        match address {
            Address::Number(number) => self.numbers.remove(number),
            Address::Fingerprint(fingerprint) => self.table.remove(fingerprint),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len() + self.numbers.len()
    }

    pub(super) fn locations(&self) -> impl Iterator<Item = Location> {
        self.table.locations().chain(self.numbers.locations())
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.table.bytes() + self.numbers.bytes()
    }

    /// Appends both parts, the table first.
    pub(super) fn dump(&self, out: &mut Vec<u8>) {
        self.table.dump(out);
        self.numbers.dump(out);
    }

    /// Reads what [`dump`](Self::dump) of an index with this `hash_key` wrote. `place` says where a location is now; one that is gone is left out.
    /// `None` where the bytes are no dump.
    pub(super) fn load(
        hash_key: HashKey,
        bytes: &[u8],
        place: impl Fn(Location) -> Option<Location>,
    ) -> Option<Self> {
        let (table, rest) = Table::load(bytes, &place)?;
        Some(Self { hash_key, table, numbers: Numbers::load(rest, place)? })
    }
}
