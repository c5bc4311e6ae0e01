//! Counts of what a run could not use of its captures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::capture;
use super::fragments::FragmentCounts;

/// Counts of one run, over all its captures.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftOut {
    /// Packets that are no datagrams to the port: they are not missing.
    pub(super) passed_over: u64,
    /// Datagrams to the port of which the capture kept the beginning only.
    pub(super) cut: u64,
    pub(super) fragments: FragmentCounts,
    foreign: u64,
    pub(super) link_types: BTreeSet<i32>,
    no_interface: u64,
    /// Malformed blocks of pcapng.
    malformed: u64,
    /// Captures that end within a packet, or from some place on are damaged.
    damaged: u64,
}

impl LeftOut {
    /// A packet of a link type that is not known.
    pub(super) fn foreign(&mut self, link: i32) {
        self.foreign += 1;
        self.link_types.insert(link);
    }

    /// Adds the counts of a capture.
    pub(super) fn add(&mut self, capture: &capture::LeftOut) {
        self.no_interface += capture.no_interface;
        self.malformed += capture.malformed;
        self.damaged += u64::from(capture.end.is_some());
    }

    /// Those that are above zero, by the names that a run's summary has for them.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        let FragmentCounts { incomplete, headless, contradictory, crowded, passed_over: _ } = self.fragments;
        let counts = [
            ("cut", self.cut),
            ("incomplete", incomplete),
            ("headless", headless),
            ("contradictory", contradictory),
            ("crowded", crowded),
            ("foreign", self.foreign),
            ("no_interface", self.no_interface),
            ("malformed_blocks", self.malformed),
            ("damaged", self.damaged),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Warns of packets that are missing from the rows, but not of damage, of which each capture has warned.
    pub(super) fn warn(&self, path: &str, captures: usize) {
        if self.counts().keys().all(|name| *name == "damaged") {
            return;
        }
        let Self { cut, fragments, foreign, link_types, no_interface, malformed, .. } = self;
        let FragmentCounts { incomplete, headless, contradictory, crowded, .. } = fragments;
        tracing::warn!(
            path,
            captures,
            cut,
            incomplete,
            headless,
            contradictory,
            crowded,
            foreign,
            ?link_types,
            no_interface,
            malformed,
            "not all of the capture was used: datagrams that it holds the beginning of (cut by its snaplen, or IP fragments \
             are missing), fragments that do not fit, packets of link types or interfaces that are not known, and malformed \
             blocks"
        );
    }
}

/// Counts of what was left out so far, for metrics and reports.
#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Shared {
    pub(super) fn set(&self, left_out: &LeftOut) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left_out.counts();
    }

    pub(super) fn get(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
