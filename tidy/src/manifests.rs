//! What each manifest of ours has to say, and dependencies of the workspace that no member asks for.

use crate::Problem;
use crate::repository::File;

/// Keys that each package has.
const ALWAYS: [&str; 5] = ["description", "edition", "license", "repository", "rust-version"];

/// Keys of packages that may be published.
const PUBLISHED: [&str; 3] = ["readme", "keywords", "categories"];

/// Keys that are missing in the manifests of packages.
pub fn missing_keys(manifests: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for manifest in manifests {
        let table: toml::Table = match manifest.text.parse() {
            Ok(table) => table,
            Err(error) => {
                problems.push(Problem::new(&manifest.path, format!("{error}")));
                continue;
            }
        };
        let Some(package) = table.get("package").and_then(toml::Value::as_table) else { continue };
        let is_private = package.get("publish").and_then(toml::Value::as_bool) == Some(false);
        let wanted = ALWAYS.iter().chain(PUBLISHED.iter().filter(|_| !is_private));
        for key in wanted.filter(|key| !package.contains_key(**key)) {
            problems.push(Problem::new(&manifest.path, format!("has no {key:?}")));
        }
    }
    problems
}

/// Lines of `[workspace.dependencies]` that no member inherits.
pub fn unused_lines(workspace: &str, members: &[File]) -> Vec<Problem> {
    let table: toml::Table = workspace.parse().unwrap_or_default();
    let dependencies = table.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let names = dependencies.and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
    let inherits = |manifest: &File, name: &str| {
        let begins = |line: &str| {
            let rest = line.trim().strip_prefix(name).unwrap_or_default();
            rest.starts_with(".workspace") || rest.starts_with(" = {") && rest.contains("workspace = true")
        };
        manifest.text.lines().any(begins)
    };
    names
        .filter(|name| !members.iter().any(|manifest| inherits(manifest, name)))
        .map(|name| Problem::new("Cargo.toml", format!("no member uses the workspace's dependency {name:?}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_asked_for_by_whether_a_package_is_published() {
        let all = "[package]\nname = 'a'\ndescription = 'b'\nedition.workspace = true\nlicense = 'c'\n\
                   repository = 'd'\nrust-version = '1'\n";
        let found = |more: &str| missing_keys(&[File::new("Cargo.toml", format!("{all}{more}"))]).len();
        assert_eq!(found("publish = false\n"), 0);
        assert_eq!(found("readme = 'r'\nkeywords = []\ncategories = []\n"), 0);
        assert_eq!(found(""), 3);
        assert_eq!(missing_keys(&[File::new("Cargo.toml", "[workspace]\n")]).len(), 0);
        assert_eq!(missing_keys(&[File::new("Cargo.toml", "[package]\npublish = false\n")]).len(), 5);
    }

    #[test]
    fn lines_of_the_workspace_that_nobody_inherits_are_found() {
        let workspace = "[workspace.dependencies]\na = '1'\na-b = '1'\nc = '1'\n";
        let member =
            File::new("x", "[dependencies]\na-b.workspace = true\nc = { workspace = true, features = [] }\n");
        let found: Vec<_> = unused_lines(workspace, &[member]).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["Cargo.toml: no member uses the workspace's dependency \"a\""]);
    }
}
