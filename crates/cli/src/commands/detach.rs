//! `vellum detach`: unmounts, unbinds, and stops the server, as far as any of these remain.

use crate::bound;
use crate::host;
use crate::in_use;
use crate::lookup;
use crate::outcome::out;
use crate::peek;
use crate::signals::Stop;
use crate::state::{self, State, StateFile};
use crate::{ago, attachment, control};
use crate::{snapshots, views};
use anyhow::{Result, bail};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The volume, its block device, or where it is mounted; or VOLUME@SNAPSHOT.
    volume: PathBuf,
}

/// Detaches the volume.
pub fn run(args: &Args) -> Result<()> {
    // A partial detach is worse than a complete one, so signals only end the wait for the server. (It can still be repeated.)
    let stop = Stop::on_signals(true)?;
    let (volume, snapshot) = snapshots::split(&args.volume);
    let mut path = whole(&volume);
    let is_view = snapshot.is_some();
    // A repeated `detach` of a place is fine. The name of a snapshot may be mistyped.
    let could_be = !is_view && is_place(&path);
    if !is_view && let Some((uuid, name)) = views::at(&path)? {
        return tell_of(views::detach(&uuid, &name)?, &path);
    }
    if let Some(snapshot) = snapshot {
        if ago::is_age(&snapshot) {
            bail!(
                "@{snapshot} may be another snapshot by now: give the name of the one that is attached, \
                 as `vellum list` has it"
            );
        }
        if views::detach(&peek::uuid_of(&path)?, &snapshot)? {
            writeln!(out(), "detached")?;
            return Ok(());
        }
        // It has a server of its own, or none.
        path = views::named(&path, &snapshot);
    }
    let recorded = lookup::find(&path, peek::uuid_of(&path).ok().as_deref())?;
    let by_uuid = recorded.is_none();
    let id = match recorded {
        Some(id) => id,
        None => match peek::uuid_of(&path) {
            Ok(uuid) => uuid,
            // Nobody else sees what root has attached.
            Err(_) if could_be && host::is_root() => {
                writeln!(out(), "{}", nothing(&path))?;
                return Ok(());
            }
            // Nothing was ever attached as this: a typing error.
            Err(_) => bail!("{}: `vellum list` shows what is", nothing(&path)),
        },
    };
    let file = StateFile::lock(&id)?;
    match file.load()? {
        // Its original may be in use.
        Some(state) if by_uuid && !state.is_of(&path) => {
            let original = state.volume.display();
            writeln!(
                out(),
                "{}; {original} is, which has the same UUID",
                nothing(&path)
            )?;
        }
        Some(state) => {
            if is_view {
                is_alone(&path, &id, &state)?;
            }
            let with_it = undone(&file, &id, &state, &stop)?;
            let own = of_another(&state, is_view);
            writeln!(out(), "{}", told(own, &with_it))?;
        }
        None => {
            file.remove();
            let served = served_by(&id, &path)?.map_or(String::new(), |pid| {
                format!(": process {pid} serves it, until it is told to stop (`kill {pid}`)")
            });
            writeln!(out(), "{}{served}", nothing(&path))?;
        }
    }
    Ok(())
}

/// The path from the root on. Its file may be gone.
fn whole(path: &Path) -> PathBuf {
    let real = path.canonicalize();
    real.or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Undoes all of it. Returns the snapshots and clones that were attached too, and are not any more.
fn undone(file: &StateFile, id: &str, state: &State, stop: &Stop) -> Result<Vec<PathBuf>> {
    // The kernel would wait for it in an unmount that no signal ends, and with it each `sync` of the machine.
    if let Some(server) = state.server.filter(|server| server.is_stopped()) {
        bail!(
            "its server, process {0}, is stopped, and cannot write what is in memory: continue it \
             (`kill -CONT {0}`), and detach again",
            server.pid
        );
    }
    in_use::refuse(id, state)?;
    let before = in_use::views(id, state);
    let done = attachment::undo(file, id, state, Some(stop));
    let left = in_use::views(id, state);
    let gone: Vec<PathBuf> = before
        .into_iter()
        .filter(|one| !left.contains(one))
        .collect();
    match done {
        Err(error) if !gone.is_empty() => {
            Err(error.context(format!("detached {}, and then", listed(&gone))))
        }
        done => done.map(|()| gone),
    }
}

/// The snapshot that was attached alone, if the user has named its volume.
fn of_another(state: &State, is_view: bool) -> Option<&PathBuf> {
    let is_own = |volume: &&PathBuf| snapshots::split(volume).1.is_some();
    Some(&state.volume).filter(is_own).filter(|_| !is_view)
}

/// What was done, in words. `own`: what was attached, if it is not what was named.
fn told(own: Option<&PathBuf>, with_it: &[PathBuf]) -> String {
    let own = own.map_or(String::new(), |own| format!(" {}", own.display()));
    match with_it {
        [] => format!("detached{own}"),
        with_it => format!("detached{own}, and with it {}", listed(with_it)),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}

fn tell_of(detached: bool, path: &Path) -> Result<()> {
    match detached {
        true => writeln!(out(), "detached")?,
        false => writeln!(out(), "{}", nothing(path))?,
    }
    Ok(())
}

/// Detaches what is recorded for a volume, by its UUID.
pub fn detach(id: &str, stop: &Stop) -> Result<()> {
    let file = StateFile::lock(id)?;
    if let Some(state) = file.load()? {
        in_use::refuse(id, &state)?;
        attachment::undo(&file, id, &state, Some(stop))?;
    }
    Ok(())
}

/// Refuses to end the server of a snapshot while it shows another one, which would be gone with it.
fn is_alone(path: &Path, id: &str, state: &State) -> Result<()> {
    let devices = bound::devices(id, state);
    match devices.iter().find_map(|device| bound::view(device)) {
        None => Ok(()),
        Some(other) => bail!(
            "{}: its server shows @{other}, too, which is attached: detach that first",
            path.display()
        ),
    }
}

/// True for what a volume may have been attached as: a folder, or a device.
fn is_place(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_dir() || meta.file_type().is_block_device())
}

/// The process that serves this volume, if one does. It may be another one that has the same UUID.
pub fn served_by(uuid: &str, path: &Path) -> Result<Option<i32>> {
    let socket = state::control_socket(uuid)?;
    if !control::is_answered(&socket) {
        return Ok(None);
    }
    let path = path.to_string_lossy();
    let is_other = control::ask(&socket, "stats").is_ok_and(|told| {
        let mut all = told["volumes"].as_array().into_iter().flatten();
        !all.any(|one| one["path"] == *path)
    });
    Ok(control::server_pid(&socket).filter(|_| !is_other))
}

/// For what may have been attached this is not a failure, because a `detach` can be repeated.
fn nothing(path: &Path) -> String {
    format!("nothing is attached as {}", path.display())
}
