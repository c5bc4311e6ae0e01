//! Secrets that a job file refers to and never holds: `env:NAME`, or `file:PATH` for the first line of a file.
//!
//! Neither the secret nor other text in its place is ever part of an error or a log.

use std::fmt;
use std::fs::File;
use std::io::Read as _;

use thalweg_types::Error;

use crate::reach::{Denied, JobPath, Reach};

/// More of a file than this is not read; it has to have its first line's end by then.
const MOST_BYTES: u64 = 64 << 10;

/// Where a secret is: a reference in a job file.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretRef {
    Variable(String),
    File(JobPath),
}

/// A secret that has been looked up.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a reference is refused.
#[derive(Debug)]
pub enum BadReference {
    /// It is not a reference. Its text may be the secret itself.
    Malformed,
    Denied(Denied),
}

impl SecretRef {
    pub const EXPECTED: &'static str = "env:NAME or file:PATH";
    pub const HINT: &'static str =
        "job files are kept and shown: put the secret into the environment or a file and refer to it";

    /// Reads a reference; nothing is looked up.
    ///
    /// # Errors
    /// If it is not a reference, or refers to a variable or file that may not be named.
    pub fn parse(text: &str, reach: &Reach) -> Result<Self, BadReference> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => {
                reach.variable(name).map_err(BadReference::Denied)?;
                Ok(Self::Variable(name.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => {
                reach.path(path).map(Self::File).map_err(BadReference::Denied)
            }
            _ => Err(BadReference::Malformed),
        }
    }
}

impl Secret {
    /// Looks it up; `key` is for messages.
    ///
    /// # Errors
    /// If `reference` refers to a variable or file that does not exist.
    pub fn look_up(key: &str, reference: &SecretRef) -> Result<Self, Error> {
        let (found, place) = match reference {
            SecretRef::Variable(name) => {
                let found = std::env::var(name).map_err(|_| {
                    Error::user(format!(
                        "{key}: expected text in the environment variable {name:?}, got none"
                    ))
                })?;
                (found, format!("env:{name}"))
            }
            SecretRef::File(path) => {
                let shown = path.as_path();
                let read = || {
                    let file = File::open(path)?;
                    let mut text = String::new();
                    (&file).take(MOST_BYTES).read_to_string(&mut text)?;
                    Ok((file, text))
                };
                let (file, text) = read().map_err(|error: std::io::Error| {
                    Error::user(format!("{key}: read {shown:?}")).with_source(error)
                })?;
                path.verify(&file).map_err(|error| error.context(key))?;
                (text, format!("file:{}", shown.display()))
            }
        };
        let secret = found.lines().next().unwrap_or_default();
        if secret.is_empty() {
            return Err(Error::user(format!(
                "{key}: expected a secret where {place:?} refers to, got nothing"
            )));
        }
        Ok(Self(secret.to_owned()))
    }

    /// For the code that sends it, and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(key: &str, reference: &str) -> Result<Secret, Error> {
        let reference = SecretRef::parse(reference, &Reach::anything()).expect("a reference");
        Secret::look_up(key, &reference)
    }

    #[test]
    fn a_reference_leads_to_the_first_line_of_a_file_or_to_a_variable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cr3t\nmore\n").unwrap();
        let secret = look_up("token", &format!("file:{}", path.display())).unwrap();
        assert_eq!((secret.reveal(), format!("{secret:?}").as_str()), ("s3cr3t", "(secret)"));
        let path = std::env::var("PATH").unwrap();
        assert_eq!(look_up("token", "env:PATH").unwrap().reveal(), path.lines().next().unwrap());
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        let reference = format!("file:{}", folder.path().join("empty").display());
        assert!(look_up("token", &reference).unwrap_err().message().ends_with("got nothing"));
        let missing = look_up("password", "env:THALWEG_NO_SUCH_VARIABLE").unwrap_err();
        assert!(missing.message().contains("THALWEG_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn what_is_no_reference_is_refused_and_what_may_not_be_named_too() {
        for text in ["hunter2", "env:", "file:", "hunter2:x", ""] {
            assert!(
                matches!(SecretRef::parse(text, &Reach::anything()), Err(BadReference::Malformed)),
                "{text}"
            );
        }
        for text in ["env:PATH", "file:/etc/passwd"] {
            assert!(
                matches!(SecretRef::parse(text, &Reach::nothing()), Err(BadReference::Denied(_))),
                "{text}"
            );
        }
    }
}
