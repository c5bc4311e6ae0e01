//! Digests of what this semantic version of the engine computes ([`thalweg_types::SEMANTICS`]).
//!
//! `fixtures/semantics/VERSION/AREA.txt` has a line for each case: 16 digits of a digest, a space, the case. Inputs come from
//! [`Random`], and depend on no library. A file of a version only ever gets longer: cases may be added to it, with
//! `UPDATE_EXPECT=1`, and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use thalweg_types::{SEMANTICS, Value, hash_bytes};

/// Bytes of all that a case computes, from which its digest is made.
#[derive(Clone, Debug, Default)]
pub struct Digest(Vec<u8>);

impl Digest {
    pub fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// All bits of a value, those of NaN and the sign of zero included.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.push(0),
            Value::Bool(value) => self.0.extend_from_slice(&[1, u8::from(*value)]),
            Value::Int64(value) => self.tagged(2, &value.to_le_bytes()),
            Value::UInt64(value) => self.tagged(3, &value.to_le_bytes()),
            Value::Float64(value) => self.tagged(4, &value.to_bits().to_le_bytes()),
            Value::Decimal(digits, scale) => {
                self.tagged(5, &digits.to_le_bytes());
                self.0.extend_from_slice(&scale.to_le_bytes());
            }
            Value::String(text) => {
                self.0.push(6);
                self.text(text);
            }
            Value::Bytes(bytes) => {
                self.0.push(7);
                self.bytes(bytes);
            }
            Value::Timestamp(count, unit) => {
                self.tagged(8, &count.to_le_bytes());
                self.text(unit.name());
            }
            Value::Ip(octets) => self.tagged(9, octets),
            Value::List(values) => {
                self.0.push(10);
                self.number(values.len() as u64);
                values.iter().for_each(|value| self.value(value));
            }
            Value::Struct(fields) => {
                self.0.push(11);
                self.number(fields.len() as u64);
                for (name, value) in fields {
                    self.text(name);
                    self.value(value);
                }
            }
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(bytes);
    }

    pub fn finish(&self) -> u64 {
        hash_bytes(&self.0)
    }
}

/// The cases of an area.
#[derive(Debug)]
pub struct Corpus {
    area: &'static str,
    cases: Vec<(String, u64)>,
}

impl Corpus {
    pub fn new(area: &'static str) -> Self {
        Self { area, cases: Vec::new() }
    }

    /// # Panics
    /// If there is a case of this name.
    #[track_caller]
    pub fn add(&mut self, case: impl Into<String>, digest: &Digest) {
        let case = case.into();
        assert!(!case.contains('\n') && self.cases.iter().all(|(other, _)| *other != case), "case {case:?}");
        self.cases.push((case, digest.finish()));
    }

    /// # Panics
    /// Where a case has another digest than the file of this semantic version says, or is not in it.
    #[track_caller]
    pub fn check(self) {
        let version = SEMANTICS.to_string();
        let folder = [env!("CARGO_MANIFEST_DIR"), "..", "..", "fixtures", "semantics", &version];
        let path = folder.iter().collect::<PathBuf>().join(format!("{}.txt", self.area));
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        let mut expected: BTreeMap<&str, &str> = known
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(digest, case)| (case, digest))
            .collect();
        let (mut other, mut new) = (Vec::new(), String::new());
        for (case, digest) in &self.cases {
            let digest = format!("{digest:016x}");
            match expected.remove(case.as_str()) {
                Some(known) if known == digest => {}
                Some(known) => other.push(format!("  {case}: {digest}, was {known}\n")),
                None => new.push_str(&format!("{digest} {case}\n")),
            }
        }
        other.extend(expected.keys().map(|case| format!("  {case}: is not computed any more\n")));
        assert!(
            other.is_empty(),
            "{} of {} cases of {:?} are not what semantic version {version} computes:\n{}\
             Mend the change. If it is meant, raise `thalweg_types::SEMANTICS`, and make the files of the new version with \
             UPDATE_EXPECT=1; those of {version} stay as they are.",
            other.len(),
            self.cases.len(),
            self.area,
            other.concat(),
        );
        if new.is_empty() {
            return;
        }
        assert!(
            std::env::var_os("UPDATE_EXPECT").is_some(),
            "cases of {:?} that semantic version {version} has no digest of; add them with UPDATE_EXPECT=1:\n{new}",
            self.area
        );
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder in the repository");
        std::fs::write(path, known + &new).expect("a file in the repository");
    }
}

/// The same numbers of a seed for ever (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// # Panics
    /// If there is none.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Mostly of ordinary size, now and then of any.
    pub fn float(&mut self) -> f64 {
        match self.below(16) {
            0 => f64::from_bits(self.word()),
            1..=7 => (self.below(2_000_001) as f64 - 1e6) / 100.0,
            8..=11 => (self.word() >> 11) as f64 / 9_007_199_254_740_992.0,
            _ => self.below(41) as f64 - 20.0,
        }
    }
}
