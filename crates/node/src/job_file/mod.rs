//! Job files: text to tree, `--set`, the key tables, the checks and the JSON Schema.
//!
//! The one place that knows what may be written is [`keys`]; checks and schema are made from it and from the
//! plug-ins' own tables.

pub(crate) mod check;
#[cfg(feature = "cluster")]
pub(crate) mod connection;
pub mod keys;
mod overrides;
mod schema;
pub(crate) mod section;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::path::Path;

use thalweg_connect::{Reach, Registry};

use crate::diagnostic::{Diagnostic, Diagnostics, SourceText, Texts};
use crate::operator::Operators;

pub use check::{
    Ack, CheckedInput, CheckedJob, CheckedOperator, CheckedSink, CheckedSource, Endpoint, NodeRef, Recovery,
    RemoteSettings, Spread, StateSettings,
};
pub(crate) use check::{NO_RETENTION, below};
pub use schema::json_schema;

/// Longer files are refused; ten thousand queries take about 2 MiB.
const MAX_BYTES: u64 = 16 << 20;

/// A job file that has been read and laid out as a tree, with the overrides of this run.
pub struct JobFile {
    texts: Texts,
    root: tree::Node,
}

/// What a job file is checked against.
#[derive(Clone)]
pub struct CheckOptions {
    pub registry: Registry,
    pub operators: Operators,
    /// As many tasks decode a source that does not say.
    pub workers: u32,
    /// What the job file may name outside of the job.
    pub reach: Reach,
}

impl JobFile {
    /// Reads a file; `overrides` are `PATH=VALUE`.
    ///
    /// # Errors
    /// If it cannot be read, is not YAML (or JSON), or gives a key twice; or if an override is wrong.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self, Diagnostics> {
        let name = path.display().to_string();
        let fail = |message: String| Diagnostics::one(Diagnostic::of_file(&name, message));
        let size =
            std::fs::metadata(path).map_err(|error| fail(format!("read the job file: {error}")))?.len();
        if size > MAX_BYTES {
            return Err(fail(format!("the job file has {size} bytes, more than {MAX_BYTES}")));
        }
        let bytes = std::fs::read(path).map_err(|error| fail(format!("read the job file: {error}")))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            fail(format!("the job file is not UTF-8: byte {at} begins no character"))
        })?;
        Self::parse(&name, &text, overrides)
    }

    /// Reads a text; `name` is how mistakes call it.
    ///
    /// # Errors
    /// As [`JobFile::read`].
    pub fn parse(name: &str, text: &str, overrides: &[String]) -> Result<Self, Diagnostics> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut texts = vec![SourceText { name: name.to_owned(), text: text.to_owned() }];
        let mut paths = Vec::new();
        for argument in overrides {
            let Some((path, value)) = overrides::split(argument) else {
                let mut diagnostic =
                    Diagnostic::of_file(format!("--set {argument}"), format!("{argument:?} is no override"));
                diagnostic = diagnostic.expected("PATH=VALUE, such as sources.payments.path=x.csv");
                return Err(Diagnostics::one(diagnostic));
            };
            texts.push(SourceText { name: format!("--set {path}"), text: value.to_owned() });
            paths.push(path);
        }
        let texts = Texts::new(texts);
        let mut root = tree::parse(&texts, 0)?;
        for (number, path) in paths.into_iter().enumerate() {
            overrides::apply(&mut root, &texts, number + 1, path)?;
        }
        Ok(Self { texts, root })
    }

    /// Checks everything that can be checked without opening anything.
    ///
    /// # Errors
    /// All mistakes, in the order of the file.
    pub fn check(&self, options: &CheckOptions) -> Result<CheckedJob, Diagnostics> {
        check::check(self.texts.clone(), &self.root, options)
    }

    /// The file with its overrides, as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        check::to_json(&self.root)
    }
}
