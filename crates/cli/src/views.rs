//! Snapshots of volumes that are attached over FUSE: files in the same folder, each under a loop device of its own.

use crate::{bound, host, state};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// `VOLUME@NAME`.
pub fn named(volume: &Path, snapshot: &str) -> PathBuf {
    let mut name = volume.as_os_str().to_owned();
    name.push("@");
    name.push(snapshot);
    name.into()
}

/// The file that shows it, of the volume with this UUID.
fn file(uuid: &str, snapshot: &str) -> Result<Option<PathBuf>> {
    let records = state::records()?;
    let fuse = records.into_iter().find(|(id, _)| id == uuid);
    let fuse = fuse.and_then(|(_, state)| state.fuse);
    Ok(fuse.map(|dir| named(&dir.join("disk"), snapshot)))
}

/// Makes it a block device.
pub fn attach(uuid: &str, volume: &Path, snapshot: &str) -> Result<PathBuf> {
    let shown = volume.display();
    let Some(file) = file(uuid, snapshot)? else {
        bail!(
            "{shown} is being served, and not attached over FUSE: a snapshot of it is read over NBD as \
             NAME@{snapshot}, or attached when nobody serves the volume"
        );
    };
    if !file.exists() {
        bail!("{shown}: there is no snapshot {snapshot}: `vellum snapshots {shown}` lists them");
    }
    is_free(uuid, volume, snapshot)?;
    host::loop_attach(&file)
}

/// Refuses when it is attached.
pub fn is_free(uuid: &str, volume: &Path, snapshot: &str) -> Result<()> {
    let file = file(uuid, snapshot)?;
    let device = file.and_then(|file| bound::to_file(&file).next());
    device.map_or(Ok(()), |device| {
        let (shown, device) = (volume.display(), device.display());
        bail!("{shown}@{snapshot} is attached ({device}): `vellum detach {shown}@{snapshot}` first")
    })
}

/// Unmounts it, and gives its block device back; whether there was one.
pub fn detach(uuid: &str, snapshot: &str) -> Result<bool> {
    let Some(file) = file(uuid, snapshot)? else {
        return Ok(false);
    };
    let devices: Vec<PathBuf> = bound::to_file(&file).collect();
    for device in &devices {
        let mounts = host::mounts().into_iter().rev();
        for mounted in mounts.filter(|mounted| mounted.source == *device) {
            let target = mounted.target.display();
            host::unmount(&mounted.target, false).with_context(|| {
                format!("cannot unmount {target}: end what uses it (`fuser -vm {target}`) and detach again")
            })?;
        }
        host::run("losetup", &["--detach", &device.to_string_lossy()])?;
    }
    Ok(!devices.is_empty())
}
