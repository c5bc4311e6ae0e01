//! How the service and the container start the program: their command lines, without the program.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// The service and the file of its environment.
pub(super) const SERVICE: &str = "packaging/debian/thalweg.service";
pub(super) const ENVIRONMENT: &str = "packaging/debian/thalweg.env";

/// The command line of a systemd service: `$NAME` as a word of its own is split at blanks, as systemd does.
///
/// # Errors
/// If a variable is not in the file of the environment.
pub(super) fn of_service(unit: &str, environment: &str) -> Result<Vec<String>> {
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("find ExecStart")?;
    let variables: BTreeMap<&str, &str> = environment
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .collect();
    let mut words = Vec::new();
    for word in command.split_whitespace().skip(1) {
        match word.strip_prefix('$') {
            Some(name) => {
                let value = variables.get(name).with_context(|| format!("find {name} in {ENVIRONMENT}"))?;
                words.extend(value.split_whitespace().map(str::to_owned));
            }
            None => words.push(word.to_owned()),
        }
    }
    Ok(words)
}

/// The command line of a container: the list after `CMD`.
pub(super) fn of_container(text: &str) -> Result<Vec<String>> {
    let list = text.lines().find_map(|line| line.strip_prefix("CMD ")).context("find CMD")?;
    let words: Vec<String> = serde_json::from_str(list).with_context(|| format!("read {list}"))?;
    ensure!(!words.is_empty(), "expected a verb in CMD");
    Ok(words)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::dist::{Release, container};

    #[test]
    fn a_variable_is_split_at_blanks() {
        let unit = "[Service]\nExecStart=/usr/bin/x run --a b $OPTIONS $JOBS\n";
        let words = of_service(unit, "# OPTIONS=no\nOPTIONS=--listen 1\nJOBS=\n").unwrap();
        assert_eq!(words, ["run", "--a", "b", "--listen", "1"]);
        assert!(of_service(unit, "JOBS=\n").unwrap_err().to_string().contains("OPTIONS"));
    }

    /// The options that `thalweg run` has, from the text of its arguments.
    fn options_of_run(text: &str) -> BTreeSet<String> {
        let (_, run) = text.split_once("pub(crate) struct Run {").unwrap();
        let (run, _) = run.split_once("\n}").unwrap();
        let mut options = BTreeSet::new();
        let mut named = false;
        for line in run.lines().map(str::trim) {
            if line.starts_with("#[arg(") {
                let name = line.split_once("long = \"").and_then(|(_, rest)| rest.split_once('"'));
                options.extend(name.map(|(name, _)| format!("--{name}")));
                named = name.is_none() && line.contains("long");
            }
            if let Some(field) = line.strip_prefix("pub(crate) ")
                && named
            {
                let (name, _) = field.split_once(':').unwrap();
                options.insert(format!("--{}", name.replace('_', "-")));
                named = false;
            }
        }
        options
    }

    #[test]
    fn the_service_and_the_container_use_options_that_exist() {
        let release = Release::of_this_commit().unwrap();
        let text = |path: &str| release.read_text(path).unwrap();
        let options = options_of_run(&text("crates/cli/src/args.rs"));
        assert!(options.contains("--data-dir") && options.contains("--allow-path"), "{options:?}");
        for words in [
            of_service(&text(SERVICE), &text(ENVIRONMENT)).unwrap(),
            of_container(&text(container::FILE)).unwrap(),
        ] {
            assert_eq!(words[0], "run");
            for word in words.iter().filter(|word| word.starts_with('-')) {
                assert!(options.contains(word), "{word} is not in {options:?}");
            }
        }
    }

    #[test]
    fn the_service_writes_to_its_state_folder_alone() {
        let unit = Release::of_this_commit().unwrap().read_text(SERVICE).unwrap();
        let value = |name: &str| unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        assert_eq!(value("ProtectSystem"), Some("strict"));
        assert_eq!(value("NoNewPrivileges"), Some("yes"));
        let state = format!("--data-dir /var/lib/{}", value("StateDirectory").unwrap());
        assert!(value("ExecStart").unwrap().contains(&state));
        // Processes that answer SQL are the node's to end, and the first to be killed when memory is short.
        assert_eq!(value("KillMode"), Some("mixed"));
        assert_eq!(value("OOMPolicy"), Some("continue"));
    }

    /// What systemd itself says of the unit, where it is there.
    #[test]
    fn systemd_takes_the_service() {
        if !thalweg_harness::project::has("systemd-analyze") {
            return;
        }
        let release = Release::of_this_commit().unwrap();
        let folder = tempfile::tempdir().unwrap();
        // The program of the unit has to exist.
        let unit = release.read_text(SERVICE).unwrap().replace("/usr/bin/thalweg", "/bin/true");
        let path = folder.path().join("thalweg.service");
        std::fs::write(&path, unit).unwrap();
        let mut verify = std::process::Command::new("systemd-analyze");
        let output = verify.args(["verify", "--man=no"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let about_it: Vec<&str> = said.lines().filter(|line| line.contains("thalweg")).collect();
        assert!(about_it.is_empty(), "{about_it:#?}");
    }
}
