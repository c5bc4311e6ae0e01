//! Secrets that a job file refers to and never holds: `env:NAME`, or `file:PATH` for the first line of a file.
//!
//! Neither the secret nor what stands in its place by mistake is ever part of an error or a log.

use std::fmt;

use thalweg_types::Error;

/// A secret that has been looked up.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Looks it up; `key` is for messages.
    ///
    /// # Errors
    /// Where `reference` is none, or what it refers to is not there.
    pub fn look_up(key: &str, reference: &str) -> Result<Self, Error> {
        let found = match parse(key, reference)? {
            Reference::Variable(name) => std::env::var(name).map_err(|_| {
                Error::user(format!("{key}: expected text in the environment variable {name:?}, got none"))
            })?,
            Reference::File(path) => std::fs::read_to_string(path)
                .map_err(|error| Error::user(format!("{key}: read {path:?}")).with_source(error))?,
        };
        let secret = found.lines().next().unwrap_or_default();
        if secret.is_empty() {
            return Err(Error::user(format!(
                "{key}: expected a secret where {reference:?} refers to, got nothing"
            )));
        }
        Ok(Self(secret.to_owned()))
    }

    /// For what sends it, and nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

enum Reference<'a> {
    Variable(&'a str),
    File(&'a str),
}

fn parse<'a>(key: &str, reference: &'a str) -> Result<Reference<'a>, Error> {
    match reference.split_once(':') {
        Some(("env", name)) if !name.is_empty() => Ok(Reference::Variable(name)),
        Some(("file", path)) if !path.is_empty() => Ok(Reference::File(path)),
        // What stands there may be the secret itself.
        _ => Err(Error::user(format!("{key}: expected env:NAME or file:PATH, got something else"))
            .with_hint(
                "job files are kept and shown: put the secret into the environment or a file and refer to it",
            )),
    }
}

/// Whether a text refers to a secret; nothing is looked up.
///
/// # Errors
/// What is expected.
pub fn check(key: &str, reference: &str) -> Result<(), Error> {
    parse(key, reference).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_leads_to_the_first_line_of_a_file_or_to_a_variable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "s3cr3t\nmore\n").unwrap();
        let secret = Secret::look_up("token", &format!("file:{}", path.display())).unwrap();
        assert_eq!((secret.reveal(), format!("{secret:?}").as_str()), ("s3cr3t", "(secret)"));
        let path = std::env::var("PATH").unwrap();
        assert_eq!(Secret::look_up("token", "env:PATH").unwrap().reveal(), path.lines().next().unwrap());
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        let reference = format!("file:{}", folder.path().join("empty").display());
        assert!(Secret::look_up("token", &reference).unwrap_err().message().ends_with("got nothing"));
    }

    #[test]
    fn what_stands_in_place_of_a_reference_is_not_repeated() {
        for text in ["hunter2", "env:", "file:", "hunter2:x", ""] {
            let error = Secret::look_up("password", text).unwrap_err();
            assert_eq!(error.chain(), "password: expected env:NAME or file:PATH, got something else");
            assert!(check("password", text).is_err());
        }
        let missing = Secret::look_up("password", "env:THALWEG_NO_SUCH_VARIABLE").unwrap_err();
        assert!(missing.message().contains("THALWEG_NO_SUCH_VARIABLE"));
    }
}
