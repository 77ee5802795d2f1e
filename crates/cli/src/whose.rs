//! Finds the server of a volume.

use crate::state::{self, Process, State};
use crate::{control, observed, peek};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Like [`server_of`], but `None` if no server has the volume.
pub fn find_server(path: &Path) -> Result<Option<(PathBuf, PathBuf)>> {
    let socket = socket_of(path)?;
    match socket.exists() && control::is_answered(&socket) {
        true => server_of(path).map(Some),
        false => Ok(None),
    }
}

/// The control socket of a volume's server, and the path by which the server knows the volume.
pub fn server_of(path: &Path) -> Result<(PathBuf, PathBuf)> {
    let socket = socket_of(path)?;
    if !socket.exists() {
        if let Some((pid, user)) = of_another_user(path) {
            let how = match user {
                0 => "with sudo".to_owned(),
                user => format!("as that user (`sudo -u '#{user}'`)"),
            };
            bail!(
                "{} is served by process {pid} of another user: give the command {how}",
                path.display()
            );
        }
        bail!(
            "{} is not being served (there is no {}): start `vellum serve` or `vellum attach`",
            path.display(),
            socket.display()
        );
    }
    let volume = resolved(path).with_context(|| format!("cannot find {}", path.display()))?;
    Ok((socket, volume))
}

/// The process of another user that holds a volume, and that user's number.
fn of_another_user(path: &Path) -> Option<(u32, u32)> {
    let holder = vellum_medium::lock::holder(path)?;
    let user = Path::new("/proc").join(holder.pid.to_string());
    let user = user.metadata().ok()?.uid();
    (user != state::user()).then_some((holder.pid, user))
}

/// The control socket for a volume. Of several servers of its UUID, some may serve a copy of it: then that of one with this path.
fn socket_of(path: &Path) -> Result<PathBuf> {
    let uuid = uuid_of(path)?;
    let mut answering = state::control_places(&uuid)?;
    answering.retain(|socket| socket.exists());
    if answering.len() > 1 {
        answering.retain(|socket| control::is_answered(socket));
    }
    let Some(volume) = resolved(path).filter(|_| answering.len() > 1) else {
        return state::control_socket(&uuid);
    };
    let volume = volume.to_string_lossy();
    let serves_it = |socket: &PathBuf| {
        let told = control::ask(socket, "stats").unwrap_or_default();
        let mut all = told["volumes"].as_array().into_iter().flatten();
        all.any(|one| one["path"] == *volume)
    };
    let at = answering.iter().position(serves_it).unwrap_or(0);
    Ok(answering.swap_remove(at))
}

/// A volume's UUID: from the volume, or from its server if the volume is gone or cannot be read.
fn uuid_of(path: &Path) -> Result<String> {
    peek::uuid_of(path).or_else(|error| match resolved(path).map(|path| uuid_by(&path)) {
        Some(Ok(Some(uuid))) => Ok(uuid),
        _ => Err(error),
    })
}

/// The UUID of the volume that is attached or served by this path, or was until its server died.
fn uuid_by(path: &Path) -> Result<Option<String>> {
    let mut records = state::records()?;
    records.retain(|(id, record)| {
        record.volume == path && state::control_socket(id).is_ok_and(|socket| socket.exists())
    });
    // A record also covers a volume whose server does not answer.
    let alive = |record: &State| record.server.is_some_and(Process::alive);
    if let Some((id, _)) = records.iter().find(|(_, record)| alive(record)) {
        return Ok(Some(id.clone()));
    }
    let served = observed::all()?;
    let told = served.iter().find(|one| Path::new(one.name()) == path);
    let dead = records.pop().map(|(id, _)| id);
    Ok(told.map(|one| one.uuid().to_owned()).or(dead))
}

/// The path as servers know it, even if the file is gone: resolved through its folder.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return Some(found);
    }
    let absolute = std::path::absolute(path).ok()?;
    // A link whose target is gone, as in `/dev/disk/by-id` for an instant.
    let led = absolute.read_link().ok();
    let led = led.and_then(|to| Some(absolute.parent()?.join(to)));
    let last = led.unwrap_or(absolute);
    let folder = last.parent()?.canonicalize().ok()?;
    Some(folder.join(last.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_known_by_its_folder_and_by_links_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (folder, gone) = (real.join("folder"), real.join("folder/gone"));
        std::fs::create_dir(&folder).unwrap();
        for (name, leads_to) in [("other", "folder"), ("link", "folder/gone")] {
            std::os::unix::fs::symlink(leads_to, real.join(name)).unwrap();
        }
        for path in ["folder/gone", "other/gone", "folder/../folder/gone", "link"] {
            assert_eq!(resolved(&real.join(path)), Some(gone.clone()), "{path}");
        }
        assert_eq!(resolved(&real.join("none/gone")), None);
    }
}
