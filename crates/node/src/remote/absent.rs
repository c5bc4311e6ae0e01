//! A build without back ends on other machines: these types have no values.

use thalweg_state::registry::Place;
use thalweg_state::{Backend, Interrupt, StateError, Version};
use thalweg_types::Error;

use crate::job_file::RemoteSettings;

/// A back end on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {}

impl Kind {
    pub fn of_name(_: &str) -> Option<Self> {
        None
    }

    pub fn example(self) -> &'static str {
        match self {}
    }

    pub fn has_table(self) -> bool {
        match self {}
    }
}

/// A connection to a store.
#[derive(Clone, Debug)]
pub(crate) enum Remote {}

impl Remote {
    pub(crate) fn open(
        &self,
        _: &Place,
        _: &str,
        _: Option<&Version>,
    ) -> Result<Box<dyn Backend>, StateError> {
        match *self {}
    }
}

pub(crate) fn connect(settings: &RemoteSettings, _: Interrupt, _: bool) -> Result<Remote, Error> {
    match settings.kind {}
}

pub(crate) fn mistakes(settings: &RemoteSettings) -> Vec<(&'static str, Error)> {
    match settings.kind {}
}

pub(crate) fn describe_in(_: &[u8]) -> Option<String> {
    None
}
