//! Components that are a folder of jars. Maven copies the jars; they are kept next to its own repository, so that they
//! are gathered once per machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Found;
use crate::project;

/// An artifact, copied together with everything that it needs.
pub(super) struct Artifact<'a> {
    pub(super) group: &'a str,
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    /// Groups of which nothing is copied for its sake.
    pub(super) without: &'a [&'a str],
}

/// The folder with the jars of `artifacts`. It is called `name`, which contains the version: a folder that is there is
/// not looked into.
pub(super) fn jars(name: &str, artifacts: &[Artifact<'_>]) -> Result<Found> {
    if !project::has("java") {
        return Ok(Found::Missing("no java on the path".to_owned()));
    }
    let Some(home) = std::env::var_os("HOME") else {
        return Ok(Found::Missing("no home folder for Maven".to_owned()));
    };
    let folder = PathBuf::from(home).join(".m2/thalweg").join(name);
    if folder.is_dir() {
        return Ok(Found::At(folder));
    }
    if !project::has("mvn") {
        return Ok(Found::Missing("no mvn on the path to get it with".to_owned()));
    }
    gather(&folder, artifacts)
}

/// The folder has its name once all jars are there.
fn gather(folder: &Path, artifacts: &[Artifact<'_>]) -> Result<Found> {
    let parent = folder.parent().context("a folder has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("make {parent:?}"))?;
    let work = tempfile::Builder::new().prefix("jars-").tempdir_in(parent).context("make a folder")?;
    let project = work.path().join("pom.xml");
    fs::write(&project, pom(artifacts)).context("write a project for Maven")?;
    let jars = work.path().join("jars");
    let mut get = Command::new("mvn");
    get.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "--file"]).arg(&project);
    get.arg(format!("-DoutputDirectory={}", jars.display()));
    let got = get.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !got {
        return Ok(Found::Missing("Maven cannot get it".to_owned()));
    }
    // Somebody else may have been quicker.
    if fs::rename(&jars, folder).is_err() && !folder.is_dir() {
        anyhow::bail!("move {jars:?} to {folder:?}");
    }
    Ok(Found::At(folder.to_owned()))
}

fn pom(artifacts: &[Artifact<'_>]) -> String {
    let dependency = |artifact: &Artifact<'_>| {
        let Artifact { group, name, version, without } = artifact;
        let excluded = without.iter().map(|group| {
            format!("<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>")
        });
        let exclusions = match without.is_empty() {
            true => String::new(),
            false => format!("<exclusions>{}</exclusions>", excluded.collect::<String>()),
        };
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>\
             <version>{version}</version>{exclusions}</dependency>"
        )
    };
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>org.thalweg</groupId><artifactId>service-for-tests</artifactId><version>1</version>\
         <packaging>pom</packaging><dependencies>{}</dependencies></project>",
        artifacts.iter().map(dependency).collect::<String>()
    )
}

/// Makes a program of a command, for tests that start one of their own; its path.
pub(super) fn script(command: &Command, path: &Path) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted: Vec<String> = words.map(|word| format!("'{}'", word.to_string_lossy())).collect();
    fs::write(path, format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" "))).context("write a script")?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).context("make a script a program")?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_artifact_that_leaves_something_out_has_exclusions() {
        let artifact = |name, without| Artifact { group: "g", name, version: "1", without };
        let pom = pom(&[artifact("plain", &[]), artifact("lean", &["x", "y"])]);
        let (plain, lean) = pom.split_once("</dependency>").unwrap();
        assert!(plain.contains("<artifactId>plain</artifactId>") && !plain.contains("exclusion"), "{plain}");
        assert_eq!(lean.matches("<exclusion>").count(), 2, "{lean}");
    }
}
