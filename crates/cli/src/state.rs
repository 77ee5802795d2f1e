//! Records of what is attached: a file for each volume in an owner-only directory, so that `detach` can undo an attachment even
//! after the process that made it has died.

use crate::host;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use vellum_frontend::owned_socket;

/// A larger file is not a state file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The most servers that can have one volume at a time.
pub const SERVERS_MAX: usize = 16;
/// Stands in the name of a control socket between the UUID and the number of a further server.
const ANOTHER: char = '+';
/// How long another process may take to make or remove its control socket.
const ALONE: Duration = Duration::from_secs(5);

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// The directory of run-time files: `/run/vellum` for root, otherwise the user's own run-time directory.
pub fn run_dir() -> Result<PathBuf> {
    let uid = user();
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

/// Where the servers of a volume have their control sockets, the first one first. All but one of them only read it.
pub fn control_places(uuid: &str) -> Result<Vec<PathBuf>> {
    let dir = run_dir()?;
    let place = |number: usize| match number {
        1 => dir.join(format!("{uuid}.control")),
        _ => dir.join(format!("{uuid}{ANOTHER}{number}.control")),
    };
    Ok((1..=SERVERS_MAX).map(place).collect())
}

/// The control socket of a volume: that of the first server that answers, or where the first one would have it.
pub fn control_socket(uuid: &str) -> Result<PathBuf> {
    let mut places = control_places(uuid)?;
    // If there is only one, nobody asks whether it answers: a server without descriptors has one left, for one client.
    let is_only = places.iter().filter(|path| path.exists()).count() == 1;
    let answers = |path: &PathBuf| {
        path.exists() && (is_only || owned_socket::is_answered(path).unwrap_or(false))
    };
    let found = places.iter().position(answers).unwrap_or(0);
    Ok(places.swap_remove(found))
}

/// Held while control sockets are made and removed, so that two processes do not both consider a socket abandoned and replace it.
pub fn alone() -> Result<File> {
    alone_by("control.lock")
}

/// The same for what else two processes must not do at a time. The file with this name is in a directory that only its user can
/// open, so no other user keeps it locked.
pub fn alone_by(name: &str) -> Result<File> {
    let path = run_dir()?.join(name);
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

/// A process, identified so that a later process with the same number is not mistaken for it.
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
        Some(Self::with_state(pid)?.0)
    }

    /// The same, with its state: a letter, as the kernel gives it.
    fn with_state(pid: i32) -> Option<(Self, String)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The fields after the name, which is in parentheses and may contain anything.
        let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ');
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        (state != "Z").then(|| (Self { pid, started }, state.to_owned()))
    }

    /// True if somebody has stopped it (`kill -STOP`, a debugger): it answers nothing until it is continued.
    pub fn is_stopped(self) -> bool {
        let is_stopped = |(it, state): (Self, String)| it == self && matches!(&*state, "T" | "t");
        Self::with_state(self.pid).is_some_and(is_stopped)
    }

    /// True if it still runs.
    pub fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// True if it has this file or block device open.
    pub fn has_open(self, file: &Metadata) -> Result<bool> {
        let folder = PathBuf::from(format!("/proc/{}/fd", self.pid));
        let failed = || format!("cannot see what process {} has open", self.pid);
        let all = std::fs::read_dir(&folder).with_context(failed)?;
        let mut opened = all.flatten().filter_map(|one| one.path().metadata().ok());
        Ok(opened.any(|one| is_same(&one, file)) && self.alive())
    }

    /// Sends it a signal, if it is still the same process.
    pub fn signal(self, signal: i32) {
        if self.alive() {
            // SAFETY: the number was just verified to belong to the process to be signalled.
            unsafe { libc::kill(self.pid, signal) };
        }
    }
}

/// True if both are one file, or one block device, by whatever name.
pub fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let node = |it: &Metadata| match it.file_type().is_block_device() {
        true => (true, it.rdev(), 0),
        false => (false, it.dev(), it.ino()),
    };
    node(one) == node(other)
}

/// What `attach` has done so far.
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
    /// The kernel's number for that binding (see [`bound::number`](crate::bound::number)).
    pub binding: Option<u64>,
    /// Where it is mounted.
    pub mount: Option<PathBuf>,
    /// The boot entry that it is for.
    #[serde(default)]
    pub boot: Option<String>,
}

impl State {
    /// Parses a state file.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// True if this file is the volume: by its path, by another path, or because it was moved there. Another file
    /// with the same UUID is a copy.
    pub fn is_of(&self, file: &Path) -> bool {
        let node = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
        match (node(&self.volume), node(file)) {
            (Ok(recorded), Ok(asked)) => recorded == asked,
            _ => true,
        }
    }
}

/// How long a command waits for another one on the same volume.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// The state file of one volume, locked against another `attach` or `detach`.
pub struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Opens and locks it. `id` identifies the volume. Another command usually finishes soon, so this waits a little for the lock.
    pub fn lock(id: &str) -> Result<Self> {
        Self::lock_within(id, LOCK_PATIENCE)
    }

    fn lock_within(id: &str, patience: Duration) -> Result<Self> {
        let dir = run_dir()?;
        let lock_path = dir.join(format!("{id}.lock"));
        let ends = Instant::now() + patience;
        loop {
            let lock = locked(&lock_path, ends)?;
            // The holder before us may have removed the file: then the next one locks another, and would not wait for us.
            if is_at(&lock, &lock_path) {
                let path = dir.join(format!("{id}.json"));
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    /// The record, if there is one.
    pub fn load(&self) -> Result<Option<State>> {
        read(&self.path)
    }

    /// Writes the record, completely or not at all.
    pub fn save(&self, state: &State) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.display());
        let text = serde_json::to_vec_pretty(state).with_context(|| {
            let name = state.volume.display();
            format!("{name} has a name that is not UTF-8: rename it")
        })?;
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)
            .with_context(failed)?;
        file.write_all(&text).with_context(failed)?;
        std::fs::rename(&new, &self.path).with_context(failed)
    }

    /// Removes the record.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

/// Opens and locks this file. Waits for the lock until this time.
fn locked(path: &Path, ends: Instant) -> Result<File> {
    let shown = path.display();
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open {shown}"))?;
    while let Err(error) = lock.try_lock() {
        if let TryLockError::Error(error) = error {
            return Err(error).with_context(|| format!("cannot lock {shown}"));
        }
        if Instant::now() >= ends {
            bail!("another attach or detach of this volume is running ({shown} is locked)");
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(lock)
}

/// True if the file at this path is the one that is open.
fn is_at(open: &File, path: &Path) -> bool {
    let node = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (open, there) = (open.metadata().map(node), path.metadata().map(node));
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
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

/// All readable records, each with its volume's UUID.
pub fn records() -> Result<Vec<(String, State)>> {
    let found = named("json")?.into_iter().filter_map(|(id, file)| {
        let state = read(&file).ok()??;
        Some((id, state))
    });
    Ok(found.collect())
}

/// The control sockets of volumes, each with the UUID, whether or not its server lives.
pub fn control_sockets() -> Result<Vec<(String, PathBuf)>> {
    let uuid = |name: &str| name.split(ANOTHER).next().unwrap_or(name).to_owned();
    let mut found = named("control")?;
    found.sort();
    let found = found
        .into_iter()
        .map(|(name, socket)| (uuid(&name), socket));
    Ok(found.collect())
}

/// Files of the run-time directory with this extension, and their names without it.
fn named(extension: &str) -> Result<Vec<(String, PathBuf)>> {
    let files = std::fs::read_dir(run_dir()?)?.flatten().map(|e| e.path());
    let ours = files.filter(|file| file.extension().is_some_and(|e| e == extension));
    let with_id = |file: PathBuf| Some((file.file_stem()?.to_string_lossy().into_owned(), file));
    Ok(ours.filter_map(with_id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waited_for_a_removed_lock_takes_the_new_one() {
        let id = format!("lock-test-{}", std::process::id());
        let first = StateFile::lock(&id).unwrap();
        let patience = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| StateFile::lock_within(&id, patience).unwrap());
            // It has opened the file, and waits.
            thread::sleep(Duration::from_millis(200));
            first.remove();
            drop(first);
            let second = second.join().unwrap();
            assert!(
                StateFile::lock_within(&id, Duration::ZERO).is_err(),
                "two hold the lock of one volume"
            );
            second.remove();
        });
    }
}
