//! Checks the licences, bans and sources of all external dependencies against deny.toml.

use crate::spdx;
use crate::workspace::Workspace;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Value;

/// Complains about dependencies that deny.toml does not allow.
///
/// # Errors
/// If deny.toml cannot be read.
pub fn check(workspace: &Workspace, root: &Path) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let rules: toml::Table = text.parse().context("deny.toml")?;
    Ok(check_rules(workspace, &rules))
}

fn check_rules(workspace: &Workspace, rules: &toml::Table) -> Vec<String> {
    let licences = names(rules, "licenses", "allow");
    let denied = names(rules, "bans", "deny");
    let skipped = names(rules, "bans", "skip");
    let registries = names(rules, "sources", "allow-registry");
    let mut complaints = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &workspace.packages {
        let name = &package.name;
        if !spdx::is_met(&package.license, &|licence| licences.contains(licence)) {
            complaints.push(format!(
                "{name}: licence {:?} is not allowed by deny.toml",
                package.license
            ));
        }
        if denied.contains(name.as_str()) {
            complaints.push(format!("{name}: banned by deny.toml"));
        }
        if package.ours {
            for (need, version) in package.needs.iter().filter(|(_, version)| version == "*") {
                if !need.starts_with("vellum-") {
                    complaints.push(format!("{name} needs {need} of any version ({version})"));
                }
            }
        } else {
            versions.entry(name).or_default().insert(&package.version);
            let from = package
                .source
                .strip_prefix("registry+")
                .unwrap_or(&package.source);
            if !registries.contains(from) {
                complaints.push(format!(
                    "{name}: from {from:?}, which deny.toml does not allow"
                ));
            }
        }
    }
    for (name, versions) in &versions {
        if versions.len() > 1 && !skipped.contains(*name) {
            complaints.push(format!("{name}: several versions: {versions:?}"));
        }
    }
    for name in &skipped {
        if versions
            .get(name.as_str())
            .is_none_or(|versions| versions.len() < 2)
        {
            complaints.push(format!(
                "deny.toml skips {name}, of which there are not two versions"
            ));
        }
    }
    complaints
}

/// The names in a list of strings or of tables with a `crate`.
fn names(rules: &toml::Table, table: &str, key: &str) -> BTreeSet<String> {
    let list = rules
        .get(table)
        .and_then(|table| table.get(key))
        .and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|item| item.as_str().or_else(|| item.get("crate")?.as_str()))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn package(name: &str, version: &str, license: &str) -> Package {
        Package {
            name: name.into(),
            version: version.into(),
            license: license.into(),
            source: "registry+here".into(),
            ours: false,
            needs: Vec::new(),
        }
    }

    #[test]
    fn each_rule_can_fail() {
        let rules = "licenses.allow = ['MIT']\nbans.deny = [{ crate = 'bad' }]\nbans.skip = \
                     ['old']\nsources.allow-registry = ['here']"
            .parse()
            .unwrap();
        let elsewhere = Package {
            source: "git+there".into(),
            ..package("far", "1.0.0", "MIT")
        };
        let packages = vec![
            package("bad", "1.0.0", "MIT"),
            package("closed", "1.0.0", "Proprietary"),
            elsewhere,
            package("twice", "1.0.0", "MIT"),
            package("twice", "2.0.0", "MIT"),
        ];
        let complaints = check_rules(&Workspace { packages }, &rules);
        assert_eq!(complaints.len(), 5, "{complaints:#?}");
        let fine = Workspace {
            packages: vec![
                package("old", "1.0.0", "MIT"),
                package("old", "2.0.0", "MIT"),
            ],
        };
        assert_eq!(check_rules(&fine, &rules), Vec::<String>::new());
    }
}
