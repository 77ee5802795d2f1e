//! Whether something uses what is to be detached. It is looked at before the first step, so that a detach is not left halfway.

use crate::state::{Process, State};
use crate::{bound, host, snapshots, views};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a process that is about to end may still use a file system.
const MOUNT_PATIENCE: Duration = Duration::from_secs(3);
/// How long a program that looks at each new device may keep it open.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// The snapshots and clones of a volume that its server shows too, and that are attached: `VOLUME@NAME`.
pub fn views(id: &str, state: &State) -> Vec<PathBuf> {
    let (volume, _) = snapshots::split(&state.volume);
    let devices = bound::devices(id, state);
    let names = devices.iter().filter_map(|device| bound::view(device));
    names.map(|name| views::named(&volume, &name)).collect()
}

/// Refuses while anything of an attached volume is in use, and says what. Nothing is undone by then.
pub fn refuse(id: &str, state: &State) -> Result<()> {
    // With a dead server nothing can be done with it any more. And the root stays attached.
    if !state.server.is_some_and(Process::alive) || bound::has_root(id, state) {
        return Ok(());
    }
    let mounts = bound::mounts(id, state);
    let busy = last_of(MOUNT_PATIENCE, || busy_mount(&mounts));
    if let Some(dir) = busy {
        let source = host::mounts().into_iter().rev().find(|m| m.target == *dir);
        let goes_along = source.map_or(String::new(), |m| along(state, &m.source));
        bail!(
            "{goes_along}cannot unmount {0}: end what uses it (`fuser -vm {0}`) and detach again",
            dir.display()
        );
    }
    // An `nbd-client` keeps its device open.
    if state.via == "nbd" {
        return Ok(());
    }
    let devices = bound::devices(id, state);
    match last_of(DEVICE_PATIENCE, || devices.iter().find(|d| is_open(d))) {
        None => Ok(()),
        Some(device) => bail!(
            "{}{1} is in use: end what uses it (`fuser -v {1}`) and detach again",
            along(state, device),
            device.display()
        ),
    }
}

/// What is there in the end, if it does not go away before.
fn last_of<T>(patience: Duration, look: impl Fn() -> Option<T>) -> Option<T> {
    let mut seen = None;
    host::eventually(patience, || {
        seen = look();
        seen.is_none()
    });
    seen
}

/// Words for a device that is a snapshot or a clone of the volume.
fn along(state: &State, device: &Path) -> String {
    let (volume, own) = snapshots::split(&state.volume);
    let Some(name) = bound::view(device) else {
        return String::new();
    };
    let view = views::named(&volume, &name);
    let main = match own {
        Some(own) => views::named(&volume, &own),
        None => volume,
    };
    format!(
        "nothing is detached: {} would go with {}, and is in use: ",
        view.display(),
        main.display()
    )
}

/// The first of these mounts that is in use. One that another of them is mounted in cannot be asked before that is gone.
fn busy_mount(mounts: &[PathBuf]) -> Option<&PathBuf> {
    let holds_another = |dir: &Path| {
        mounts
            .iter()
            .any(|other| other != dir && other.starts_with(dir))
    };
    mounts
        .iter()
        .filter(|dir| !holds_another(dir))
        .find(|dir| host::is_mount_busy(dir))
}

/// True if a process has this device open, or a file system, a swap area or the like of another namespace is on it.
fn is_open(device: &Path) -> bool {
    let is_mounted = !bound::mounts_of(device).is_empty();
    (!is_mounted && bound::is_claimed(device)) || host::is_open(device)
}
