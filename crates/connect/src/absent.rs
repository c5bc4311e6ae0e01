//! Parts of the engine that a build leaves out: a cargo feature brings each.

/// A plug-in that this build does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its `type` in a job file.
    pub name: &'static str,
    /// The cargo feature of `thalweg-cli` that brings it.
    pub feature: &'static str,
}

impl Absent {
    /// How to get a build that has it.
    pub fn hint(&self) -> String {
        hint(self.feature)
    }
}

/// How to get a build that has a feature.
pub fn hint(feature: &str) -> String {
    format!(
        "this program was built without the feature `{feature}`; the whole program has it \
         (cargo install --path crates/cli), or add `--features {feature}` to this build"
    )
}
