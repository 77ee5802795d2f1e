//! The files that a server may still open, change or remove by name, enforced by the kernel's landlock. What is open stays open.

use anyhow::{Context, Result};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr,
};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The version the rules are written for. An older kernel enforces less.
const KNOWN: ABI = ABI::V6;

/// What may still be done by name.
#[derive(Default)]
pub struct Files {
    /// Files may be removed from the folders of these.
    pub removed: Vec<PathBuf>,
}

impl Files {
    /// The rules; `None` if the kernel has no landlock.
    pub fn rules(&self) -> Result<Option<OwnedFd>> {
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))?
            // Connecting and binding, which the filter of system calls refuses as well.
            .handle_access(AccessNet::from_all(KNOWN))?
            .create()?;
        // Its own threads, which are listed while the rules take effect.
        let mut allowed: Vec<(&Path, BitFlags<AccessFs>)> = vec![(
            Path::new("/proc/self/task"),
            AccessFs::ReadFile | AccessFs::ReadDir,
        )];
        let folders = self.removed.iter().map(|path| folder(path));
        allowed.extend(folders.map(|path| (path, AccessFs::RemoveFile.into())));
        for (path, access) in allowed {
            let opened = PathFd::new(path).with_context(|| path.display().to_string())?;
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
        Ok(rules.into())
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
