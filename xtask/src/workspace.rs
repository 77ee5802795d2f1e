//! What `cargo metadata` reports: our crates, including the Python package's, and all their dependencies on Linux.

use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// One crate in the build.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as SPDX.
    pub license: String,
    /// Its source; empty for our own crates.
    pub source: String,
    /// True if it is a member of this workspace.
    pub ours: bool,
    /// The dependencies it declares: name and version requirement, without those of its tests.
    pub needs: Vec<(String, String)>,
}

/// Every crate in the build.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Sorted by name, then version.
    pub packages: Vec<Package>,
}

impl Workspace {
    /// Runs `cargo metadata` for the workspace and for the Python package, which is a workspace of its own.
    ///
    /// # Errors
    /// If cargo cannot be run, or its answer is not as documented.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut all = Self::of(root)?.packages;
        // Our crates are members of one workspace and mere dependencies in the other.
        for package in Self::of(&root.join("py"))?.packages {
            let is_it = |other: &Package| {
                (&other.name, &other.version) == (&package.name, &package.version)
            };
            if !all.iter().any(is_it) {
                all.push(package);
            }
        }
        all.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(Self { packages: all })
    }

    fn of(root: &Path) -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root)
            .output()
            .context("cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Self::parse(&serde_json::from_slice(&output.stdout)?)
    }

    fn parse(metadata: &Value) -> anyhow::Result<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let nodes = list(&metadata["resolve"]["nodes"]);
        let built: BTreeSet<_> = nodes.iter().map(|node| text(&node["id"])).collect();
        let members: BTreeSet<_> = list(&metadata["workspace_members"])
            .iter()
            .map(text)
            .collect();
        let mut packages: Vec<_> = list(&metadata["packages"])
            .iter()
            .filter(|package| built.contains(&text(&package["id"])))
            .map(|package| Package {
                name: text(&package["name"]),
                version: text(&package["version"]),
                license: text(&package["license"]),
                source: text(&package["source"]),
                ours: members.contains(&text(&package["id"])),
                needs: list(&package["dependencies"])
                    .iter()
                    .filter(|need| text(&need["kind"]) != "dev")
                    .map(|need| (text(&need["name"]), text(&need["req"])))
                    .collect(),
            })
            .collect();
        if !packages.iter().any(|package| package.ours) {
            bail!("cargo metadata names no member of the workspace");
        }
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(Self { packages })
    }
}
