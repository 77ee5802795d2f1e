//! Makes a volume a block device and undoes it, step by step. Each step is recorded before the next one begins.
//!
//! server -> ublk device -> mount, if the kernel has ublk; server -> NBD socket -> nbd device -> mount, if it has
//! nbd.ko; server -> FUSE file -> loop device -> mount otherwise. If a step fails, or the process is interrupted,
//! everything done so far is undone. What a killed process leaves behind is found through its state file, and by
//! checking what the kernel has bound to our directory.

use crate::outcome::{tell, usage};
use crate::server_log::{self, ServerLog};
use crate::signals::{Stop, unblocked};
use crate::state::{self, Process, State, StateFile, run_dir};
use crate::{bound, control, host};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vellum_frontend::held::HeldFolder;
use vellum_frontend::ublk;
use zeroize::Zeroizing;

/// How long a server may take to recover and become ready, and to stop.
const SERVER_PATIENCE: Duration = Duration::from_secs(300);
/// How long a stopping server may wait for room below its volume before the waiting user is told to come back later.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);
/// How long an unmount keeps trying while a process is about to leave the directory.
const BUSY_PATIENCE: Duration = Duration::from_secs(3);

/// A process name that systemd and similar spare at shutdown, because of the '@' that the daemons of a root file system have there.
const SPARED: &str = "@vellum";

/// A way to make a volume a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// The kernel's driver for block devices in user space (ublk_drv, Linux 6.5).
    Ublk,
    /// The kernel's NBD client (nbd.ko and nbd-client).
    Nbd,
    /// A file in a FUSE directory under a loop device.
    Fuse,
}

impl Via {
    /// The best way on this machine.
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

    /// What this machine lacks for this way, after trying to load its kernel module.
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

/// The full path of a directory to mount on.
pub fn mount_point(dir: &Path) -> Result<PathBuf> {
    Ok(opened(dir)?.path().to_owned())
}

fn opened(dir: &Path) -> Result<HeldFolder> {
    HeldFolder::open(dir).map_err(|error| match error.kind() {
        ErrorKind::NotADirectory if dir.exists() => {
            usage(format!("--mount {}: not a directory", dir.display()))
        }
        _ => {
            anyhow::Error::new(error).context(format!("cannot find mount point {}", dir.display()))
        }
    })
}

/// Holds a mount point open until it is mounted on: another directory at its path is not meant. Refuses one on which a device is
/// mounted: that would be hidden.
pub fn held(dir: &Path) -> Result<HeldFolder> {
    is_free(dir)?;
    let held = opened(dir)?;
    match held.path() == dir {
        true => Ok(held),
        false => bail!("--mount {} was replaced meanwhile", dir.display()),
    }
}

fn is_free(dir: &Path) -> Result<()> {
    let mut mounts = host::mounts().into_iter().rev();
    let there = mounts.find(|m| m.target == dir && m.source.starts_with("/dev"));
    let Some(host::Mounted { source, .. }) = there else {
        return Ok(());
    };
    let (source, shown) = (source.display(), dir.display());
    let mut records = state::records()?.into_iter();
    match records.find(|(id, state)| bound::mounts(id, state).iter().any(|m| m == dir)) {
        Some((_, state)) => bail!(
            "--mount {shown}: {} ({source}) is mounted there: `vellum detach {shown}` first",
            state.volume.display()
        ),
        None => bail!("--mount {shown}: {source} is mounted there: `umount {shown}` first"),
    }
}

/// An attachment in progress. Undone when dropped, unless kept.
pub struct Attachment {
    file: StateFile,
    id: String,
    state: State,
    server: Option<Child>,
    stop: Stop,
    survives: bool,
    kept: bool,
}

impl Attachment {
    /// Begins with nothing done. `id` identifies the volume.
    pub fn begin(id: &str, volume: &Path, via: Via, stop: &Stop) -> Result<Self> {
        let file = StateFile::lock(id)?;
        if let Some(old) = file.load()? {
            if let Some(server) = old.server.filter(|server| control::lives(*server)) {
                if ServerLog::of(id)?.is_stopping() && bound::devices(id, &old).is_empty() {
                    bail!(
                        "server {} of {} was told to stop, and still waits for room or for what it writes: \
                         `vellum detach` waits for its end, and says what it lacks",
                        server.pid,
                        old.volume.display()
                    );
                }
                let (shown, is_same) = (volume.display(), old.is_of(volume));
                let other = old.volume.display().to_string();
                let place = old.mount.or(old.device).unwrap_or(old.volume);
                let place = place.display();
                if is_same {
                    bail!("{shown} is attached already ({place}): detach it first");
                }
                bail!(
                    "{shown} has the UUID of {other}, which is attached ({place}): one of them is a copy, \
                     and only one can be attached at a time. Detach that one first"
                );
            }
            tell(format_args!("cleaning up what a crashed server left"));
            undo(&file, id, &old, Some(stop))?;
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
            survives: false,
            kept: false,
        })
    }

    /// Notes the boot entry that this attachment is for, and whether its server must survive the kill of all processes at shutdown.
    pub fn at_boot(&mut self, entry: Option<String>, survives: bool) {
        self.state.boot = entry;
        self.survives = survives;
    }

    /// What has been done so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Starts a server in the background and waits until it is ready.
    pub fn serve(
        &mut self,
        options: &[OsString],
        secret: Option<Zeroizing<Vec<u8>>>,
    ) -> Result<()> {
        let dir = run_dir()?;
        let control = dir.join(format!("{}.server", self.id));
        let mut command =
            Command::new(std::env::current_exe().context("cannot find the vellum program itself")?);
        if self.survives {
            command.arg0(SPARED);
            // The system keeps only this folder of an initramfs. The server finds the system's log there.
            command.current_dir(&dir);
        }
        command
            .args(["serve", "--syslog"])
            .args(options)
            .arg("--control")
            .arg(&control);
        if self.state.via == "fuse" {
            let fuse = dir.join(format!("{}.fuse", self.id));
            make_folder(&fuse)?;
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
        if secret.is_some() {
            command.arg("--key-on-stdin");
        }
        let _ = server_log::clear_up(&self.id, &self.state.volume);
        let mut log = ServerLog::of(&self.id)?;
        let child = started(&mut command, &mut log, secret)?;
        self.state.server = Process::of(child.id() as i32);
        self.server = Some(child);
        // Recorded before it is waited for: if this command is killed meanwhile, `detach` still finds the server.
        self.save()?;
        let stop = self.stop.clone();
        let mut exited = false;
        let ready = || log.said().lines().any(|line| line.starts_with("ready: "));
        let ended = host::eventually(SERVER_PATIENCE, || {
            let waited = self.server.as_mut().map(Child::try_wait);
            exited = !matches!(waited, Some(Ok(None)));
            exited || ready() || stop.asked()
        });
        self.save()?;
        if stop.asked() {
            bail!("interrupted");
        }
        if exited {
            bail!("the server failed: {}", log.last_words());
        }
        if !ended {
            bail!(
                "the server is not ready after {} s: see {}",
                SERVER_PATIENCE.as_secs(),
                log.path().display()
            );
        }
        Ok(())
    }

    /// Makes the served volume a block device.
    pub fn bind(&mut self) -> Result<PathBuf> {
        let device = match (&self.state.fuse, &self.state.socket) {
            (Some(fuse), _) => host::loop_attach(&fuse.join("disk"))?,
            (None, Some(socket)) => {
                // At boot volumes are attached in parallel, and two must not pick the same free device.
                let _alone = state::alone()?;
                let (device, socket) = (free_nbd()?, socket.clone());
                // Recorded before it is bound, so that whoever cleans up after us finds it.
                self.state.device = Some(device.clone());
                self.save()?;
                if let Err(error) = nbd_attach(&socket, &device) {
                    self.state.device = None;
                    return Err(error);
                }
                device
            }
            // The server made it.
            (None, None) => ublk::find(bound::mark(&self.id))
                .pop()
                .context("the server has no block device: is /dev complete?")?,
        };
        self.state.binding = bound::number(&device);
        self.state.device = Some(device.clone());
        self.save()?;
        Ok(device)
    }

    /// Mounts the block device.
    pub fn mount(&mut self, dir: &HeldFolder, options: &str) -> Result<()> {
        let Some(device) = self.state.device.clone() else {
            bail!("no block device to mount")
        };
        self.state.mount = Some(dir.path().to_owned());
        self.save()?;
        host::mount(&device, dir, options)
    }

    /// Leaves everything in place.
    pub fn keep(mut self) -> State {
        self.kept = true;
        self.state.clone()
    }

    /// Undoes everything.
    pub fn end(mut self) -> Result<()> {
        self.kept = true;
        let result = undo(&self.file, &self.id, &self.state, None);
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
        let mut undone = undo(&self.file, &self.id, &self.state, None);
        if undone.is_err() {
            // Its users lose access to it, but nothing of ours may stay mounted.
            for mounted in bound::mounts(&self.id, &self.state) {
                let _ = host::unmount(&mounted, true);
            }
            undone = undo(&self.file, &self.id, &self.state, None);
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

/// An unused NBD device.
fn free_nbd() -> Result<PathBuf> {
    let free = (0..256).map(|n| format!("nbd{n}")).find(|name| {
        let block = Path::new("/sys/block").join(name);
        block.exists() && !block.join("pid").exists()
    });
    let free = free.context("every /dev/nbd* is in use: disconnect one, or --via fuse")?;
    Ok(Path::new("/dev").join(free))
}

fn nbd_attach(socket: &Path, device: &Path) -> Result<()> {
    // Sectors of 512 bytes, as on a loop device: a partition table counts in sectors, and must be found again
    // however the volume is attached.
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

/// Starts a server, and passes it the secret of its volume, which no other process sees.
pub fn started(
    command: &mut Command,
    log: &mut ServerLog,
    secret: Option<Zeroizing<Vec<u8>>>,
) -> Result<Child> {
    let said = log.begin()?;
    let again = said.try_clone().context("cannot write the server's log")?;
    let from = match secret {
        Some(_) => Stdio::piped(),
        None => Stdio::null(),
    };
    command.stdin(from).stdout(said).stderr(again);
    alone(command);
    let mut child = command.spawn().context("cannot start the server")?;
    if let (Some(secret), Some(mut pipe)) = (secret, child.stdin.take()) {
        // A server that has already ended reports why.
        let _ = pipe.write_all(&secret);
    }
    Ok(child)
}

/// Detaches a server from its caller, because it lives long: it gets its own session (a ^C at our terminal is not for it), keeps
/// no folder in use, and knows no secret from the environment.
fn alone(command: &mut Command) {
    unblocked(command);
    host::bare_environment(command);
    if command.get_current_dir().is_none() {
        command.current_dir("/");
    }
    // SAFETY: setsid is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    };
}

/// Undoes what a state file records. Steps that were already undone are no error. `stop`: can end the wait for a server.
/// Without it, the attach has failed, and nothing waits for data that the server could not write yet: if there is no room for
/// it, the server ends as in a crash.
pub fn undo(file: &StateFile, id: &str, state: &State, stop: Option<&Stop>) -> Result<()> {
    let alive = state.server.is_some_and(Process::alive);
    // The kernel treats an unmount of the root as an order to make it read-only, which may succeed.
    if bound::has_root(id, state) {
        let volume = state.volume.display();
        bail!("the root file system is on {volume}: it stays attached until the machine is off");
    }
    if !alive && state.via == "nbd" {
        // The kernel keeps the requests of a dead connection, and an unmount would wait for them.
        let devices = bound::devices(id, state);
        devices.iter().try_for_each(|d| bound::disconnect(d))?;
    }
    for dir in bound::mounts(id, state).into_iter().rev() {
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
            // Its users cannot do anything with it any more.
            result = host::unmount(&dir, true);
        }
        result.with_context(|| {
            format!(
                "cannot unmount {0}: end what uses it (`fuser -vm {0}`) and detach again",
                dir.display()
            )
        })?;
    }
    bound::unbind(id, state)?;
    let mut log = log_of(id, state.server.filter(|_| alive))?;
    if let Some(server) = state.server {
        // A second signal would end it at once, without its last writes.
        if !log.is_stopping() {
            server.signal(libc::SIGTERM);
        }
        wait_for_end(server, &mut log, stop)?;
    }
    if state.via == "ublk" {
        ublk::clear_up(bound::mark(id)).context("cannot remove what a dead server left")?;
    }
    if let Some(fuse) = &state.fuse {
        remove_folder(fuse)?;
    }
    for path in [&state.control, &state.socket].into_iter().flatten() {
        let _ = std::fs::remove_file(path);
    }
    match log.keep(id, &state.volume) {
        Ok(Some(kept)) => tell(format_args!(
            "what the server said is in {}",
            kept.display()
        )),
        Ok(None) => {}
        Err(error) => tell(format_args!(
            "what the server said stays in {}: {error}",
            log.path().display()
        )),
    }
    let _ = server_log::clear_up(id, &state.volume);
    control::clear_up(id);
    file.remove();
    Ok(())
}

fn log_of(id: &str, server: Option<Process>) -> Result<ServerLog> {
    // It may be missing; that is no reason to stop here.
    let _ = server.map(|server| ServerLog::found(id, server));
    ServerLog::of(id)
}

/// Makes the folder in which a server shows its volume as a file.
fn make_folder(fuse: &Path) -> Result<()> {
    match std::fs::create_dir(fuse) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => {
            Err(e).with_context(|| format!("cannot make directory {}", fuse.display()))
        }
        _ => Ok(()),
    }
}

fn remove_folder(fuse: &Path) -> Result<()> {
    let is_it = |m: &host::Mounted| m.target == *fuse && m.kind.starts_with("fuse");
    while host::mounts().iter().any(is_it) {
        host::unmount(fuse, true).with_context(|| format!("cannot unmount {}", fuse.display()))?;
    }
    let _ = std::fs::remove_dir(fuse);
    Ok(())
}

/// Waits for a server that was told to stop. Its messages, such as that the file system below is full, are shown at once.
fn wait_for_end(server: Process, log: &mut ServerLog, stop: Option<&Stop>) -> Result<()> {
    let interrupted = || stop.is_some_and(Stop::asked);
    let mut full_since = None::<Instant>;
    let waits_for_room =
        |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() >= ROOM_PATIENCE);
    let ended = host::eventually(SERVER_PATIENCE, || {
        let is_over = !server.alive() || interrupted() || waits_for_room(&full_since);
        let news = log.news();
        // Who has ended has found room, or waits no more.
        let is_past = |line: &str| line.contains(server_log::NO_ROOM) && !server.alive();
        let told = |line: &&str| !server_log::is_routine(line) && !is_past(line);
        for line in news.lines().filter(told) {
            tell(format_args!("{}", server_log::without_time(line)));
            if line.contains(server_log::NO_ROOM) && full_since.is_none() {
                full_since = Some(Instant::now());
                if stop.is_none() {
                    server.signal(libc::SIGKILL);
                }
            }
        }
        is_over
    });
    if !server.alive() {
        return Ok(());
    }
    let (pid, log) = (server.pid, log.path().display());
    if interrupted() {
        bail!(
            "interrupted: server {pid} is still stopping (its log: {log}); detach again to wait for it"
        );
    }
    match ended {
        true => bail!(
            "nothing is mounted any more, and server {pid} still waits for room (its log: {log}). \
             Free some, and it ends by itself; or `kill {pid}`: what was synced is there at the \
             next attach. Then detach again"
        ),
        false => bail!(
            "server {pid} does not stop (its log: {log}): detach again to wait on; `kill -9 {pid}` ends it \
             as a crash would"
        ),
    }
}
