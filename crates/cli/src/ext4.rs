//! An ext4 on a volume: how it is made, and mounted.

use crate::host;
use crate::outcome::usage;
use anyhow::{Context, Result};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use vellum_core::format::areas::Layout;

/// The mount options that a volume makes cheap: every write journaled, one flush a commit.
pub const MOUNT_OPTIONS: &str = "data=journal,journal_async_commit";

/// The same of a volume that does not keep the order of writes: two flushes a commit.
const UNORDERED_MOUNT_OPTIONS: &str = "data=journal";

/// The mount's options: one flush a commit is asked for only of a volume that keeps the order of writes (promise 3).
pub fn mount_options(layout: Layout, asked: Option<&str>) -> Result<&str> {
    let Some(asked) = asked else {
        return Ok(match layout.keeps_order() {
            true => MOUNT_OPTIONS,
            false => UNORDERED_MOUNT_OPTIONS,
        });
    };
    let is_unsafe = asked
        .split(',')
        .any(|option| option.trim() == "journal_async_commit");
    if is_unsafe && !layout.keeps_order() {
        return Err(usage(format!(
            "--options {asked}: journal_async_commit needs a volume that keeps the order of writes, and the layout {} does \
             not: a crash could lose the file system. Leave it out, or use the layout log or shadow",
            layout.name()
        )));
    }
    Ok(asked)
}

/// Makes an ext4 whose journal and tables are complete, so that nothing is written behind one's back later.
pub fn make(device: &Path) -> Result<()> {
    let options = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ];
    host::run(
        "mkfs.ext4",
        &[&options[..], &[&device.to_string_lossy()]].concat(),
    )?;
    Ok(())
}

/// Whether there is a superblock of ext2, 3 or 4.
pub fn is_on(device: &Path) -> Result<bool> {
    let mut magic = [0; 2];
    let mut file =
        std::fs::File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    file.seek(SeekFrom::Start(1024 + 56))?;
    file.read_exact(&mut magic)?;
    Ok(magic == [0x53, 0xEF])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flush_a_commit_needs_a_layout_that_keeps_the_order() {
        for layout in [Layout::Log, Layout::Shadow] {
            assert_eq!(mount_options(layout, None).unwrap(), MOUNT_OPTIONS);
            assert!(mount_options(layout, Some("ro,journal_async_commit")).is_ok());
        }
        assert_eq!(
            mount_options(Layout::Ordered, None).unwrap(),
            "data=journal"
        );
        let asked = "noatime,journal_async_commit";
        let refused = mount_options(Layout::Ordered, Some(asked)).unwrap_err();
        assert!(refused.to_string().contains("layout ordered"), "{refused}");
        assert!(mount_options(Layout::Ordered, Some("data=journal,noatime")).is_ok());
    }
}
