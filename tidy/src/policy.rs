//! Licences, registries and second versions of dependencies, held to `deny.toml`.
//!
//! cargo-deny reads the same file and checks more, known vulnerabilities among it; it has to be installed, and this has
//! not.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use crate::Problem;
use crate::crates::Package;

/// The choices of `deny.toml`, which cargo-deny reads as well.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub licenses: Vec<String>,
    /// Crates of which several versions may be in the graph.
    pub several: BTreeSet<String>,
    pub registries: Vec<String>,
}

impl Policy {
    pub fn parse(text: &str) -> Result<Self> {
        let file: toml::Table = text.parse().context("read deny.toml")?;
        let texts = |table: &str, key: &str, field: Option<&str>| -> Vec<String> {
            let list = file.get(table).and_then(|table| table.get(key)).and_then(toml::Value::as_array);
            let text = |value: &toml::Value| match field {
                Some(field) => value.get(field)?.as_str().map(str::to_owned),
                None => value.as_str().map(str::to_owned),
            };
            list.into_iter().flatten().filter_map(text).collect()
        };
        let policy = Self {
            licenses: texts("licenses", "allow", None),
            several: texts("bans", "skip-tree", Some("crate"))
                .into_iter()
                .chain(texts("bans", "skip", Some("crate")))
                .map(|name| name.split(['@', ':']).next().unwrap_or_default().to_owned())
                .collect(),
            registries: texts("sources", "allow-registry", None),
        };
        ensure!(!policy.licenses.is_empty(), "deny.toml allows no licence");
        ensure!(!policy.registries.is_empty(), "deny.toml allows no registry");
        Ok(policy)
    }
}

/// Licences, sources and second versions that `deny.toml` does not allow, and exceptions that nothing needs.
pub fn refused(packages: &[Package], policy: &Policy) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().insert(&package.version);
        let name = format!("{} {}", package.name, package.version);
        let license = package.license.as_deref().unwrap_or_default();
        if !is_allowed(license, &policy.licenses) {
            problems.push(Problem::new(&name, format!("deny.toml does not allow the licence {license:?}")));
        }
        if let Some(source) = &package.source
            && !policy.registries.iter().any(|allowed| source.strip_prefix("registry+") == Some(allowed))
        {
            problems.push(Problem::new(&name, format!("deny.toml does not allow the source {source:?}")));
        }
    }
    for (name, versions) in &versions {
        if versions.len() > 1 && !policy.several.contains(*name) {
            let list: Vec<_> = versions.iter().copied().collect();
            let text = format!("versions {}: deny.toml allows one", list.join(" and "));
            problems.push(Problem::new(*name, text));
        }
    }
    for name in &policy.several {
        if versions.get(&**name).is_none_or(|versions| versions.len() < 2) {
            let text = format!("{name:?} may have several versions and has not");
            problems.push(Problem::new("deny.toml", text));
        }
    }
    problems
}

fn is_allowed(license: &str, allowed: &[String]) -> bool {
    let expression = spdx::Expression::parse_mode(license, spdx::ParseMode::LAX);
    expression
        .is_ok_and(|expression| expression.evaluate(|requirement| allowed.contains(&requirement.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_sources_and_second_versions_are_held_to_the_policy() {
        let policy = Policy::parse(
            "[licenses]\nallow = ['MIT', 'Apache-2.0']\n[bans]\nskip = [{ crate = 'twice', reason = 'r' }]\n\
             [sources]\nallow-registry = ['https://registry.example']\n",
        )
        .unwrap();
        let package = |name: &str, version: &str, license: &str, source: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some(license.to_owned()),
            source: Some(source.to_owned()),
            ..Package::default()
        };
        let registry = "registry+https://registry.example";
        let twice = [package("twice", "1.0.0", "MIT", registry), package("twice", "2.0.0", "MIT", registry)];
        let found = |packages: &[Package]| -> Vec<String> {
            let all = [&twice[..], packages].concat();
            refused(&all, &policy).iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(&[package("a", "1.0.0", "Zlib OR MIT", registry)]), Vec::<String>::new());
        assert_eq!(found(&[package("a", "1.0.0", "GPL-3.0/MIT", registry)]), Vec::<String>::new());
        assert_eq!(found(&[package("a", "1.0.0", "MIT AND GPL-3.0-only", registry)]).len(), 1);
        assert_eq!(found(&[package("a", "1.0.0", "", registry)]).len(), 1);
        assert_eq!(found(&[package("a", "1.0.0", "MIT", "git+https://elsewhere.example")]).len(), 1);
        let two = [package("a", "1.0.0", "MIT", registry), package("a", "2.0.0", "MIT", registry)];
        assert_eq!(found(&two), ["a: versions 1.0.0 and 2.0.0: deny.toml allows one"]);
        let needless = refused(&twice[..1], &policy);
        assert_eq!(needless.len(), 1, "{needless:?}");
    }
}
