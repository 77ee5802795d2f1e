//! What is attached: a file a volume in an owner-only directory, so that `detach` can undo it also when
//! whoever did it is dead.

use crate::{bound, host};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A state file larger than this is not one.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// How long another process may take to make or remove its control socket.
const ALONE: Duration = Duration::from_secs(5);

/// Where run-time files live: `/run/vellum` for root, otherwise the user's own run-time directory.
pub fn run_dir() -> Result<PathBuf> {
    // SAFETY: no preconditions.
    let uid = unsafe { libc::geteuid() };
    let dir = match (uid, std::env::var_os("XDG_RUNTIME_DIR")) {
        (0, _) => PathBuf::from("/run/vellum"),
        (_, Some(dir)) if !dir.is_empty() => PathBuf::from(dir).join("vellum"),
        _ => std::env::temp_dir().join(format!("vellum-{uid}")),
    };
    let shown = dir.display();
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(e).with_context(|| format!("cannot make run-time directory {shown}"));
        }
        _ => {}
    }
    let meta = dir
        .symlink_metadata()
        .with_context(|| format!("cannot look at run-time directory {shown}"))?;
    if !meta.is_dir() || meta.uid() != uid || meta.mode() & 0o077 != 0 {
        bail!(
            "run-time directory {shown} must be a directory of yours with mode 0700: remove it, or chmod it"
        );
    }
    Ok(dir)
}

/// Where the server of a volume listens for commands unless told otherwise.
pub fn control_socket(uuid: &str) -> Result<PathBuf> {
    Ok(run_dir()?.join(format!("{uuid}.control")))
}

/// Held while control sockets are made and removed, so that no two processes take one for left behind and both make it.
pub fn alone() -> Result<File> {
    let path = run_dir()?.join("control.lock");
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path);
    let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
    if !host::eventually(ALONE, || file.try_lock().is_ok()) {
        bail!(
            "another vellum process keeps {} locked: see who it is (`fuser {0}`), and end it",
            path.display()
        );
    }
    Ok(file)
}

/// A process, so that another one with its number is not taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in the kernel's ticks since boot.
    pub started: u64,
}

impl Process {
    /// The running process with this number.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields after the name, which is in parentheses and may contain anything.
        let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
        let zombie = fields.next()? == "Z";
        let started = fields.nth(18)?.parse().ok()?;
        (!zombie).then_some(Self { pid, started })
    }

    /// Whether it still runs.
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends it a signal, if it is still the same.
    pub fn signal(self, signal: i32) {
        if self.alive() {
            // SAFETY: a number that was just seen to be ours to signal.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

/// What `attach` did, as far as it got.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The volume's file.
    pub volume: PathBuf,
    /// How it is attached: `ublk`, `nbd` or `fuse`.
    pub via: String,
    /// The server.
    pub server: Option<Process>,
    /// Where the server listens for commands.
    pub control: Option<PathBuf>,
    /// The FUSE directory.
    pub fuse: Option<PathBuf>,
    /// The NBD socket.
    pub socket: Option<PathBuf>,
    /// The block device.
    pub device: Option<PathBuf>,
    /// How the kernel numbers that binding (see [`bound::number`](crate::bound::number)).
    pub binding: Option<u64>,
    /// Where it is mounted.
    pub mount: Option<PathBuf>,
    /// The entry of what is attached at boot that it is for.
    #[serde(default)]
    pub boot: Option<String>,
}

impl State {
    /// What a state file says.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// Whether this file is the volume: by its path, by another one, or where it was moved to. One with the same
    /// UUID that is not is a copy.
    pub fn is_of(&self, file: &Path) -> bool {
        let node = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
        match (node(&self.volume), node(file)) {
            (Ok(recorded), Ok(asked)) => recorded == asked,
            _ => true,
        }
    }
}

/// The state of one volume, locked against another `attach` or `detach`.
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Opens and locks it; `id` names the volume.
    pub fn lock(id: &str) -> Result<Self> {
        let dir = run_dir()?;
        let lock_path = dir.join(format!("{id}.lock"));
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .with_context(|| format!("cannot open {}", lock_path.display()))?;
        // SAFETY: a valid descriptor.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            bail!(
                "another attach or detach of this volume is running ({} is locked)",
                lock_path.display()
            );
        }
        Ok(Self {
            path: dir.join(format!("{id}.json")),
            _lock: lock,
        })
    }

    /// What is recorded, if anything.
    pub fn load(&self) -> Result<Option<State>> {
        read(&self.path)
    }

    /// Records it: whole or not at all.
    pub fn save(&self, state: &State) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.display());
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)
            .with_context(failed)?;
        file.write_all(&serde_json::to_vec_pretty(state)?)
            .with_context(failed)?;
        std::fs::rename(&new, &self.path).with_context(failed)
    }

    /// Forgets it.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

fn read(path: &Path) -> Result<Option<State>> {
    let shown = path.display();
    match path.metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(meta) if meta.len() > FILE_BYTES_MAX => {
            bail!("{shown} is {} bytes: not a state file", meta.len())
        }
        _ => {}
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    State::parse(&bytes)
        .map(Some)
        .with_context(|| format!("{shown} is not a state file: remove it by hand"))
}

/// The record that a path, and the UUID of a volume that is there, are about: a volume's file, its block device, or where that is mounted. Records of the dead name
/// these too, so what the kernel has bound goes first, and who has a server.
pub fn find(path: &Path, uuid: Option<&str>) -> Result<Option<String>> {
    let rank = |id: &str, state: &State| {
        let same = |p: &PathBuf| p == path;
        let holds =
            bound::devices(id, state).iter().any(same) || bound::mounts(id, state).iter().any(same);
        let is_it = holds || uuid == Some(id) && same(&state.volume);
        let named = [
            Some(&state.volume),
            state.device.as_ref(),
            state.mount.as_ref(),
        ];
        let names_it = named.into_iter().flatten().any(same);
        let is_served = state.server.is_some_and(Process::alive);
        (is_it || names_it).then_some((is_it, is_served))
    };
    let ranked = records()?
        .into_iter()
        .filter_map(|(id, state)| Some((rank(&id, &state)?, id)));
    Ok(ranked.max().map(|(_, id)| id))
}

/// All records that can be read, each with the name of its volume.
pub fn records() -> Result<Vec<(String, State)>> {
    let found = named("json")?.into_iter().filter_map(|(id, file)| {
        let state = read(&file).ok()??;
        Some((id, state))
    });
    Ok(found.collect())
}

/// The UUIDs of volumes that have a control socket, of the living or the dead.
pub fn control_sockets() -> Result<Vec<String>> {
    Ok(named("control")?.into_iter().map(|(id, _)| id).collect())
}

/// Files of the run-time directory with this extension, and their names without it.
fn named(extension: &str) -> Result<Vec<(String, PathBuf)>> {
    let files = std::fs::read_dir(run_dir()?)?.flatten().map(|e| e.path());
    let ours = files.filter(|file| file.extension().is_some_and(|e| e == extension));
    let with_id = |file: PathBuf| Some((file.file_stem()?.to_string_lossy().into_owned(), file));
    Ok(ours.filter_map(with_id).collect())
}
