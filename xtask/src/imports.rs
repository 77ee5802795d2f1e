//! Checks that imports point one way: core <- medium <- device <- front ends <- the command.
//!
//! It checks both the dependencies that each crate declares to cargo and the paths that its source names, because a crate may be
//! allowed only one module of another.

use crate::text::{sources, without_tests};
use crate::workspace::Workspace;
use std::path::Path;

/// The crates of ours that a crate may import, and which of their modules (none listed: all).
type Allowed = &'static [(&'static str, &'static [&'static str])];

const ALL: &[&str] = &[];

/// The table. A crate missing from it is a complaint: add it here, and say in docs/ARCHITECTURE.md what it does not know.
const TABLE: &[(&str, Allowed)] = &[
    ("vellum-core", &[]),
    // A medium knows addresses, but not what is stored there.
    ("vellum-envelope", &[]),
    (
        "vellum-medium",
        &[("vellum-core", &["addr"]), ("vellum-envelope", ALL)],
    ),
    // The codec knows one block, but not where it is stored.
    ("vellum-codec", &[("vellum-core", &["addr"])]),
    // The reader of the client's file system knows bytes, but nothing of ours.
    ("vellum-ext4", &[]),
    // Activity of the file system is passed on as hints, so the watch sees the core's types for hints. It keeps bases of deltas by the
    // names of parts.
    (
        "vellum-watch",
        &[
            ("vellum-core", &["addr", "entry", "seam"]),
            ("vellum-ext4", ALL),
        ],
    ),
    // What a block means to a client's file system is the watch's to say. The device lets a reader look at the volume, and asks it for
    // the files of lost blocks.
    (
        "vellum-device",
        &[
            ("vellum-codec", ALL),
            ("vellum-core", ALL),
            (
                "vellum-ext4",
                &["files", "scan", "Scan", "Source", "Unreadable"],
            ),
            ("vellum-medium", ALL),
            ("vellum-policies", &["words"]),
            ("vellum-watch", ALL),
        ],
    ),
    // The policies need types for the core's choices, but do not know who stores them.
    (
        "vellum-policies",
        &[(
            "vellum-core",
            &["engine", "format", "seam", "size", "snapshots"],
        )],
    ),
    // A front end knows the block interface, and so a client's addresses, but not a segment.
    (
        "vellum-frontend",
        &[("vellum-core", &["addr"]), ("vellum-device", ALL)],
    ),
    // A recorder stands in front of a volume like a client's device: it cannot name a segment either.
    (
        "vellum-record",
        &[
            ("vellum-codec", ALL),
            ("vellum-core", &["addr"]),
            ("vellum-device", &["block", "frames"]),
            ("vellum-ext4", ALL),
            ("vellum-trace", ALL),
        ],
    ),
    // A trace is a file of its own and knows nothing of ours.
    ("vellum-trace", &[]),
    // The lab has its own medium and clock, so it sees nothing of the device.
    (
        "vellum-lab",
        &[
            ("vellum-core", ALL),
            ("vellum-ext4", ALL),
            ("vellum-policies", ALL),
            ("vellum-trace", ALL),
            ("vellum-watch", ALL),
        ],
    ),
    // The options know what a run consists of, but neither a terminal nor their caller.
    (
        "vellum-options",
        &[("vellum-lab", ALL), ("vellum-policies", &["size"])],
    ),
    // Reports about volumes know the servers' answers, but not the servers.
    ("vellum-ops", &[]),
    (
        "vellum-cli",
        &[
            ("vellum-core", ALL),
            ("vellum-lab", ALL),
            ("vellum-medium", ALL),
            ("vellum-device", ALL),
            ("vellum-frontend", ALL),
            ("vellum-ops", ALL),
            ("vellum-options", ALL),
            ("vellum-policies", ALL),
            ("vellum-record", ALL),
            // An estimate examines disks that are not volumes of ours.
            ("vellum-ext4", ALL),
        ],
    ),
    // Python knows the lab, and no volume.
    ("vellum-py", &[("vellum-lab", ALL), ("vellum-options", ALL)]),
    ("xtask", &[]),
];

/// Complains about imports that the table does not allow.
///
/// # Errors
/// If the source cannot be read.
pub fn check(workspace: &Workspace, root: &Path) -> anyhow::Result<Vec<String>> {
    let mut complaints = Vec::new();
    let is_ours = |name: &str| workspace.packages.iter().any(|p| p.ours && p.name == name);
    for package in workspace.packages.iter().filter(|package| package.ours) {
        let name = package.name.as_str();
        let Some((_, allowed)) = TABLE.iter().find(|(of, _)| *of == name) else {
            complaints.push(format!(
                "{name}: not in the table of imports (xtask/src/imports.rs)"
            ));
            continue;
        };
        for (need, _) in package.needs.iter().filter(|(need, _)| is_ours(need)) {
            if !allowed.iter().any(|(of, _)| of == need) {
                complaints.push(format!("{name} must not depend on {need}"));
            }
        }
    }
    for path in sources(root, "rs")? {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        let folder = match (parts.next(), parts.next(), parts.next()) {
            (Some("crates"), Some(folder), Some("src")) => folder,
            (Some("py"), Some("src"), Some(_)) => "py",
            _ => continue,
        };
        let text = std::fs::read_to_string(root.join(&path))?;
        complaints.extend(check_source(
            &format!("vellum-{folder}"),
            &path.display().to_string(),
            &text,
        ));
    }
    Ok(complaints)
}

/// Complains about one file of a crate.
fn check_source(name: &str, path: &str, text: &str) -> Vec<String> {
    let allowed = TABLE
        .iter()
        .find(|(of, _)| *of == name)
        .map_or(&[][..], |(_, allowed)| allowed);
    let own = name.replace('-', "_");
    let mut complaints = Vec::new();
    for (number, line) in without_tests(text) {
        for (at, _) in line.match_indices("vellum_") {
            let starts = line[..at]
                .chars()
                .next_back()
                .is_none_or(|c| !c.is_alphanumeric() && c != '_');
            let path_of: String = line[at..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
                .collect();
            let mut modules = path_of.split("::");
            let named = modules.next().unwrap_or_default();
            if !starts || named == own || !line[at + named.len()..].starts_with("::") {
                continue;
            }
            let module = modules.next().unwrap_or_default();
            let target = named.replace('_', "-");
            let fine = allowed
                .iter()
                .any(|(of, only)| *of == target && (only.is_empty() || only.contains(&module)));
            if !fine {
                complaints.push(format!(
                    "{path}:{number}: {name} must not import {named}::{module}"
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::check_source;

    #[test]
    fn forbidden_imports_are_found() {
        let check = |name, text| check_source(name, "x.rs", text).len();
        assert_eq!(check("vellum-medium", "use vellum_core::addr::Pba;\n"), 0);
        assert_eq!(check("vellum-medium", "use vellum_core::map::Map;\n"), 1);
        assert_eq!(check("vellum-medium", "use vellum_core::{map::Map};\n"), 1);
        assert_eq!(
            check("vellum-frontend", "let x = vellum_medium::Kind::Sync;\n"),
            1
        );
        assert_eq!(check("vellum-core", "use vellum_device::block::Op;\n"), 1);
        assert_eq!(
            check(
                "vellum-medium",
                "#[cfg(test)]\nmod tests {\n    use vellum_core::map::Map;\n}\n"
            ),
            0
        );
    }
}
