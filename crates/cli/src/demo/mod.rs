//! The demonstration: real applications on ext4 on a volume, compared with a plain file over the same chain.

mod content;
mod measure;
mod on_ext4;
mod progress;
mod table;
mod user_space;

use crate::host;
use crate::room::free_bytes;
use crate::signals::Stop;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// The least free space that the demonstration's directory must have.
const FREE_BYTES: u64 = 4 << 30;

/// What to do.
pub struct Plan {
    /// Where the volume and the plain file are made; they are removed afterwards.
    pub parent: PathBuf,
    /// Thousandths of the usual amount of work.
    pub scale: u64,
    /// Uses no root privileges, even as root.
    pub user_space: bool,
}

/// Runs the demonstration.
pub fn run(plan: &Plan) -> Result<()> {
    let stop = Stop::with_terminal()?;
    let dir = tempfile::Builder::new()
        .prefix("vellum-demo-")
        .tempdir_in(&plan.parent)
        .with_context(|| format!("cannot make a directory in {}", plan.parent.display()))?;
    if let Some(free) = free_bytes(dir.path())
        && free < FREE_BYTES
    {
        anyhow::bail!(
            "{} has {} free, the demonstration wants {}: choose another place with --dir",
            plan.parent.display(),
            crate::size::Size(free),
            crate::size::Size(FREE_BYTES)
        );
    }
    let missing = [
        "mkfs.ext4",
        "e2fsck",
        "losetup",
        "mount",
        "sqlite3",
        "git",
        "tar",
    ]
    .into_iter()
    .find(|p| !host::has(p));
    let why = match missing {
        _ if plan.user_space => Some("asked to use none of root's means".to_owned()),
        _ if !host::is_root() => Some("not root".to_owned()),
        Some(program) => Some(format!("{program} is not installed")),
        None => crate::attachment::Via::Fuse.missing(),
    };
    let ran = match why {
        None => on_ext4::run(dir.path(), plan.scale, &stop),
        Some(why) => user_space::run(dir.path(), plan.scale, &why, &stop),
    };
    let path = dir.path().to_owned();
    ran.and(
        dir.close()
            .with_context(|| format!("cannot remove {}", path.display())),
    )
}
