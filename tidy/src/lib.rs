//! Checks of the repository itself, not of the program: dead links, figures that no result file has, words that
//! mislead readers, citations of documents that are not here, crates that depend upwards, unused dependencies.
//!
//! Each check is a function from texts to a list of [`Problem`]s, so that it can be tried on small samples;
//! `tests/repository.rs` runs them over this repository. `cargo test -p thalweg-tidy` builds little and takes seconds.

#![deny(unsafe_code)]

use std::fmt;

pub mod citations;
pub mod crates;
pub mod english;
pub mod figures;
pub mod links;
pub mod manifests;
pub mod markdown;
pub mod policy;
pub mod repository;

/// One thing to mend, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A file, relative to the repository, with the line where there is one, or a crate.
    pub place: String,
    /// The fault and the remedy.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }

    pub(crate) fn at(file: &str, line: usize, text: impl Into<String>) -> Self {
        Self::new(format!("{file}:{line}"), text)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
