//! Snapshots of volumes attached over FUSE: files in the same folder, each under a loop device of its own.

use crate::state::{self, StateFile};
use crate::{bound, host, snapshots, whose};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// `VOLUME@NAME`.
pub fn named(volume: &Path, snapshot: &str) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push("@");
    name.push(snapshot);
    name.into()
}

/// The file that shows a snapshot of the volume with this UUID.
fn file(uuid: &str, snapshot: &str) -> Result<Option<PathBuf>> {
    let records = state::records()?;
    let fuse = records.into_iter().find(|(id, _)| id == uuid);
    let fuse = fuse.and_then(|(_, state)| state.fuse);
    Ok(fuse.map(|dir| named(&dir.join("disk"), snapshot)))
}

/// Held while a snapshot of an attached volume is attached or detached: a detach of the volume waits, and does not leave a loop
/// device on a file that no server shows any more.
pub fn alone(uuid: &str, volume: &Path, snapshot: &str) -> Result<StateFile> {
    let record = StateFile::lock(uuid)?;
    let shown = volume.display();
    if record.load()?.is_some_and(|state| state.fuse.is_some()) {
        return Ok(record);
    }
    if record.load()?.is_none() {
        record.remove();
    }
    match whose::find_server(volume)? {
        None => bail!("{shown} has just been detached: give the same command again"),
        Some(_) => bail!(
            "{shown} is being served, and not attached over FUSE: a snapshot of it is read over NBD as \
             NAME@{snapshot}, or attached when nobody serves the volume"
        ),
    }
}

/// Makes a snapshot a block device.
pub fn attach(_alone: &StateFile, uuid: &str, volume: &Path, snapshot: &str) -> Result<PathBuf> {
    let shown = volume.display();
    let file = file(uuid, snapshot)?.context("its server shows no files")?;
    if !file.exists() {
        bail!("{shown}: there is no snapshot {snapshot}: `vellum snapshots {shown}` lists them");
    }
    // Two loop devices of one clone would be two file systems on the same blocks.
    let _alone = state::alone()?;
    is_free(uuid, volume, snapshot)?;
    host::loop_attach(&file)
}

/// Refuses if the snapshot is attached.
pub fn is_free(uuid: &str, volume: &Path, snapshot: &str) -> Result<()> {
    let file = file(uuid, snapshot)?;
    let device = file.and_then(|file| bound::to_file(&file).next());
    if device.is_none() && !has_own_server(uuid, snapshot)? {
        return Ok(());
    }
    let shown = volume.display();
    let place = device.map_or(String::new(), |device| format!(" ({})", device.display()));
    bail!("{shown}@{snapshot} is attached{place}: `vellum detach {shown}@{snapshot}` first")
}

/// True if this snapshot has a separate server. That shows it as `disk`, so no loop device is on a file with the snapshot's name.
fn has_own_server(uuid: &str, snapshot: &str) -> Result<bool> {
    let is_it = |(id, state): &(String, state::State)| {
        let (_, own) = snapshots::split(&state.volume);
        // A server that is not recorded yet is about to start.
        let lives = state.server.is_none_or(state::Process::alive);
        id == uuid && own.as_deref() == Some(snapshot) && lives
    };
    Ok(state::records()?.iter().any(is_it))
}

/// The volume's UUID, and the name of a snapshot of it, if this path is that snapshot's device, or where it is mounted.
pub fn at(path: &Path) -> Result<Option<(String, String)>> {
    // An unmount takes what was mounted there last.
    let is_there = |mounted: &host::Mounted| mounted.target == path;
    let top = host::mounts().into_iter().rev().find(is_there);
    for (uuid, state) in state::records()? {
        for device in bound::devices(&uuid, &state) {
            let is_it = device == path || top.as_ref().is_some_and(|top| top.is_of(&device));
            if let Some(name) = bound::view(&device).filter(|_| is_it) {
                return Ok(Some((uuid, name)));
            }
        }
    }
    Ok(None)
}

/// Unmounts a snapshot and releases its block device. Returns true if there was one.
pub fn detach(uuid: &str, snapshot: &str) -> Result<bool> {
    let record = StateFile::lock(uuid)?;
    match record.load()? {
        Some(_) => undo(&record, uuid, snapshot),
        None => {
            record.remove();
            Ok(false)
        }
    }
}

/// The same, for who holds the record already.
pub fn undo(_alone: &StateFile, uuid: &str, snapshot: &str) -> Result<bool> {
    let Some(file) = file(uuid, snapshot)? else {
        return Ok(false);
    };
    let devices: Vec<PathBuf> = bound::to_file(&file).collect();
    for device in &devices {
        for target in bound::mounts_of(device).into_iter().rev() {
            host::unmount(&target, false).with_context(|| {
                let target = target.display();
                format!("cannot unmount {target}: end what uses it (`fuser -vm {target}`) and detach again")
            })?;
        }
        bound::clear_loop(device, || {
            bound::to_file(&file).any(|other| other == *device)
        })?;
        bound::is_left(device, || {
            !bound::to_file(&file).any(|other| other == *device)
        })?;
    }
    Ok(!devices.is_empty())
}
