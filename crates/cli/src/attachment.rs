//! Making a volume a block device and undoing it, step by step, each recorded before the next.
//!
//! server -> ublk device -> mount, where the kernel has ublk; server -> NBD socket -> nbd device -> mount, where
//! it has nbd.ko; server -> FUSE file -> loop device -> mount elsewhere. A step that fails, and a process that is interrupted, undo
//! what was done; what a killed one leaves behind is found by its state file, and by looking at what the
//! kernel has bound to our directory.

use crate::outcome::tell;
use crate::signals::{Stop, unblocked};
use crate::state::{Process, State, StateFile, run_dir};
use crate::{control, host};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use vellum_frontend::ublk;

/// How long a server may take to recover and be ready, and to stop.
const SERVER_PATIENCE: Duration = Duration::from_secs(300);
/// How long an unmount may find the directory in use by someone who is just leaving.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);
/// How much of a server's log is shown when it fails.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// A way to make a volume a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// The kernel's driver for block devices in user space (ublk_drv, Linux 6.5).
    Ublk,
    /// The kernel's NBD client (nbd.ko and nbd-client).
    Nbd,
    /// A file in a FUSE directory under a loop device.
    Fuse,
}

impl Via {
    /// The best one this machine has.
    pub fn best() -> Result<Self> {
        let mut lacks = Vec::new();
        for via in [Self::Ublk, Self::Nbd, Self::Fuse] {
            match via.missing() {
                None => return Ok(via),
                Some(missing) => lacks.push(missing),
            }
        }
        bail!(
            "this machine can attach nothing: {}. `vellum serve --socket` serves clients in user space",
            lacks.join("; ")
        )
    }

    /// What this machine lacks for it, after its kernel module was loaded where there is one.
    pub fn missing(self) -> Option<String> {
        let there = |path: &str, module: &str| {
            Path::new(path).exists() || (host::load_module(module) && Path::new(path).exists())
        };
        match self {
            Self::Ublk => {
                there("/dev/ublk-control", "ublk_drv");
                ublk::supported().err().map(|e| format!("for ublk, {e}"))
            }
            Self::Nbd if !there("/sys/block/nbd0", "nbd") => {
                Some("for nbd, the kernel has no /dev/nbd0, and no module nbd for it".into())
            }
            Self::Nbd if !host::has("nbd-client") => {
                Some("for nbd, nbd-client is not installed".into())
            }
            Self::Fuse if !there("/dev/fuse", "fuse") => {
                Some("for fuse, there is no /dev/fuse, and no module fuse for it".into())
            }
            Self::Fuse if !there("/dev/loop-control", "loop") => {
                Some("for fuse, there is no /dev/loop-control, and no module loop for it".into())
            }
            Self::Fuse if !host::has("losetup") => {
                Some("for fuse, losetup is not installed (util-linux)".into())
            }
            _ => None,
        }
    }
}

/// An attachment being made; undone when dropped, unless kept.
pub struct Attachment {
    file: StateFile,
    id: String,
    state: State,
    server: Option<Child>,
    stop: Stop,
    kept: bool,
}

impl Attachment {
    /// Starts with nothing done. `id` names the volume among all.
    pub fn begin(id: &str, volume: &Path, via: Via, stop: &Stop) -> Result<Self> {
        let file = StateFile::lock(id)?;
        if let Some(mut old) = file.load()? {
            if old.server.is_some_and(Process::alive) {
                let what = match old.is_of(volume) {
                    true => format!("{} is attached already", volume.display()),
                    false => format!(
                        "{} has the UUID of {}, which is attached: one of them is a copy, and both at once cannot be",
                        volume.display(),
                        old.volume.display()
                    ),
                };
                let place = old.mount.or(old.device).unwrap_or(old.volume);
                bail!("{what} ({}): detach it first", place.display());
            }
            tell(format_args!("cleaning up what a crashed server left"));
            undo(&file, id, &mut old)?;
        }
        let via = match via {
            Via::Ublk => "ublk",
            Via::Nbd => "nbd",
            Via::Fuse => "fuse",
        };
        let state = State {
            volume: volume.to_owned(),
            via: via.into(),
            ..State::default()
        };
        Ok(Self {
            file,
            id: id.to_owned(),
            state,
            server: None,
            stop: stop.clone(),
            kept: false,
        })
    }

    /// What was done so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Starts a server of our own in the background and waits until it is ready.
    pub fn serve(&mut self, options: &[OsString]) -> Result<()> {
        let dir = run_dir()?;
        let control = dir.join(format!("{}.server", self.id));
        let mut command =
            Command::new(std::env::current_exe().context("cannot find the vellum program itself")?);
        command
            .arg("serve")
            .args(options)
            .arg("--control")
            .arg(&control);
        if self.state.via == "fuse" {
            let fuse = dir.join(format!("{}.fuse", self.id));
            match std::fs::create_dir(&fuse) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(e)
                        .with_context(|| format!("cannot make directory {}", fuse.display()));
                }
                _ => {}
            }
            command.arg("--fuse").arg(&fuse);
            self.state.fuse = Some(fuse);
        } else if self.state.via == "ublk" {
            command.arg("--ublk");
        } else {
            let socket = dir.join(format!("{}.nbd", self.id));
            command.arg("--socket").arg(&socket);
            self.state.socket = Some(socket);
        }
        self.state.control = Some(control);
        self.save()?;
        let mut name = OsString::from("disk=");
        name.push(&self.state.volume);
        command.arg(name);
        let log = dir.join(format!("{}.log", self.id));
        let to_log = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&log)
                .with_context(|| format!("cannot write the server's log {}", log.display()))
        };
        let _ = std::fs::remove_file(&log);
        command
            .stdin(Stdio::null())
            .stdout(to_log()?)
            .stderr(to_log()?);
        // Of a session of its own: a ^C at our terminal is not meant for it.
        unblocked(&mut command);
        // SAFETY: setsid is async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            })
        };
        let child = command.spawn().context("cannot start the server")?;
        self.state.server = Process::of(child.id() as i32);
        let server = self.server.insert(child);
        let stop = self.stop.clone();
        let mut exited = false;
        let ready = || said(&log).lines().any(|line| line.starts_with("ready: "));
        let ended = host::eventually(SERVER_PATIENCE, || {
            exited = !matches!(server.try_wait(), Ok(None));
            exited || ready() || stop.asked()
        });
        self.save()?;
        if stop.asked() {
            bail!("interrupted");
        }
        if exited {
            bail!(
                "the server failed: {}",
                said(&log).trim().trim_start_matches("vellum: ")
            );
        }
        if !ended {
            bail!(
                "the server is not ready after {} s: see {}",
                SERVER_PATIENCE.as_secs(),
                log.display()
            );
        }
        Ok(())
    }

    /// Makes the served volume a block device.
    pub fn bind(&mut self) -> Result<PathBuf> {
        let device = match (&self.state.fuse, &self.state.socket) {
            (Some(fuse), _) => host::loop_attach(&fuse.join("disk"))?,
            (None, Some(socket)) => {
                let (device, socket) = (free_nbd()?, socket.clone());
                // Before it is bound: whoever clears up after us must find it.
                self.state.device = Some(device.clone());
                self.save()?;
                if let Err(error) = nbd_attach(&socket, &device) {
                    self.state.device = None;
                    return Err(error);
                }
                device
            }
            // The server made it.
            (None, None) => ublk::find(mark(&self.id))
                .pop()
                .context("the server has no block device: is /dev complete?")?,
        };
        self.state.device = Some(device.clone());
        self.save()?;
        Ok(device)
    }

    /// Mounts the block device.
    pub fn mount(&mut self, dir: &Path, options: &str) -> Result<()> {
        let Some(device) = self.state.device.clone() else {
            bail!("no block device to mount")
        };
        self.state.mount = Some(dir.to_owned());
        self.save()?;
        host::run(
            "mount",
            &[
                "-o",
                options,
                &device.to_string_lossy(),
                &dir.to_string_lossy(),
            ],
        )?;
        Ok(())
    }

    /// Leaves everything in place.
    pub fn keep(mut self) -> State {
        self.kept = true;
        self.state.clone()
    }

    /// Undoes everything.
    pub fn end(mut self) -> Result<()> {
        self.kept = true;
        let result = undo(&self.file, &self.id, &mut self.state);
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
        result
    }

    fn save(&self) -> Result<()> {
        if self.stop.asked() {
            bail!("interrupted");
        }
        self.file.save(&self.state)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut undone = undo(&self.file, &self.id, &mut self.state);
        if undone.is_err() {
            // Whoever keeps it in use loses sight of it: nothing of ours may stay.
            for mounted in ours(&self.state) {
                let _ = host::unmount(&mounted, true);
            }
            undone = undo(&self.file, &self.id, &mut self.state);
        }
        if let Err(error) = undone {
            tell(format_args!("vellum: could not undo everything: {error:#}"));
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// What a server has said.
fn said(log: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(file) = std::fs::File::open(log) {
        let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// What a volume's ublk device bears: the beginning of the volume's UUID.
pub fn mark(uuid: &str) -> ublk::Mark {
    let digits = uuid.chars().filter_map(|c| c.to_digit(16)).take(16);
    ublk::Mark(digits.fold(0, |mark, digit| mark << 4 | u64::from(digit)))
}

/// An NBD device that nobody uses.
fn free_nbd() -> Result<PathBuf> {
    let free = (0..256).map(|n| format!("nbd{n}")).find(|name| {
        let block = Path::new("/sys/block").join(name);
        block.exists() && !block.join("pid").exists()
    });
    let free = free.context("every /dev/nbd* is in use: disconnect one, or --via fuse")?;
    Ok(Path::new("/dev").join(free))
}

fn nbd_attach(socket: &Path, device: &Path) -> Result<()> {
    // Sectors of 512 bytes as on a loop device: a partition table counts in sectors, and must be found again
    // whatever way the volume is attached.
    let (path, socket) = (device.to_string_lossy(), socket.to_string_lossy());
    let args = [
        "-unix",
        &socket,
        &path,
        "-name",
        "disk",
        "-block-size",
        "512",
    ];
    host::run("nbd-client", &args).map(drop)
}

fn nbd_bound(device: &Path) -> bool {
    device
        .file_name()
        .is_some_and(|name| Path::new("/sys/block").join(name).join("pid").exists())
}

/// Ends the connection; the device is free when its last user has left.
fn nbd_disconnect(device: &Path) -> Result<()> {
    if nbd_bound(device) {
        host::run("nbd-client", &["-d", &device.to_string_lossy()])?;
    }
    Ok(())
}

/// Ends the connection and waits until the device is free.
fn nbd_detach(device: &Path) -> Result<()> {
    nbd_disconnect(device)?;
    if !host::eventually(Duration::from_secs(10), || !nbd_bound(device)) {
        bail!(
            "{} is still in use: see `fuser -vm {0}`, end what uses it, and detach again",
            device.display()
        );
    }
    Ok(())
}

/// The block devices that are ours: recorded, or found bound to our directory.
fn devices(state: &State) -> Vec<PathBuf> {
    // Those of ublk are the server's to make and to remove; only the recorded one can be mounted.
    let mut devices = state
        .fuse
        .as_deref()
        .map(host::loops_in)
        .unwrap_or_default();
    if let Some(device) = &state.device
        && state.via != "fuse"
    {
        devices.push(device.clone());
    }
    devices
}

/// Where our block devices are mounted, innermost last.
fn ours(state: &State) -> Vec<PathBuf> {
    let devices = devices(state);
    host::mounts()
        .into_iter()
        .filter(|m| devices.contains(&m.source))
        .map(|m| m.target)
        .collect()
}

/// Undoes what a state says was done. Every step is fine with having been done already.
pub fn undo(file: &StateFile, id: &str, state: &mut State) -> Result<()> {
    let alive = state.server.is_some_and(Process::alive);
    if !alive && state.via == "nbd" {
        // The kernel keeps a dead connection's requests, and an unmount would wait for them.
        devices(state).iter().try_for_each(|d| nbd_disconnect(d))?;
    }
    for dir in ours(state).into_iter().rev() {
        let mut result = host::unmount(&dir, false);
        if alive {
            host::eventually(BUSY_PATIENCE, || {
                if result
                    .as_ref()
                    .is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
                {
                    result = host::unmount(&dir, false);
                }
                result.is_ok()
            });
        } else if result.is_err() {
            // Nothing that its users still do can succeed.
            result = host::unmount(&dir, true);
        }
        result.with_context(|| {
            format!(
                "cannot unmount {0}: end what uses it (`fuser -vm {0}`) and detach again",
                dir.display()
            )
        })?;
    }
    for device in devices(state) {
        match state.via.as_str() {
            "nbd" => nbd_detach(&device)?,
            "ublk" => {} // It goes with its server.
            _ => host::loop_detach(&device)?,
        }
    }
    if let Some(server) = state.server {
        server.signal(libc::SIGTERM);
        if !host::eventually(SERVER_PATIENCE, || !server.alive()) {
            bail!(
                "server {} does not stop: see {}.log in the run-time directory",
                server.pid,
                id
            );
        }
    }
    if state.via == "ublk" {
        ublk::clear_up(mark(id)).context("cannot remove what a dead server left")?;
    }
    if let Some(fuse) = &state.fuse {
        while host::mounts()
            .iter()
            .any(|m| m.target == *fuse && m.kind.starts_with("fuse"))
        {
            host::unmount(fuse, true)
                .with_context(|| format!("cannot unmount {}", fuse.display()))?;
        }
        let _ = std::fs::remove_dir(fuse);
    }
    for path in [&state.control, &state.socket].into_iter().flatten() {
        let _ = std::fs::remove_file(path);
    }
    if let Ok(dir) = run_dir() {
        let _ = std::fs::remove_file(dir.join(format!("{id}.log")));
        control::clear_up(id);
    }
    file.remove();
    Ok(())
}
