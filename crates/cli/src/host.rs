//! Services of the host's kernel and tools: loop devices, mounts, and other programs.

use crate::signals::{Stop, unblocked};
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use vellum_frontend::held::HeldFolder;

/// How long killed processes may take to disappear.
const GROUP_GONE: Duration = Duration::from_secs(2);

/// True if we are root.
pub fn is_root() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The folders where programs are searched. Root runs only what only root can put there; no user runs what is in the current
/// folder, or in one given relative to it.
fn search_path() -> OsString {
    const SYSTEM: [&str; 7] = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
        "/run/current-system/sw/bin",
    ];
    let asked = match is_root() {
        true => OsString::new(),
        false => std::env::var_os("PATH").unwrap_or_default(),
    };
    let asked = std::env::split_paths(&asked).filter(|dir| dir.is_absolute());
    let dirs = asked.chain(SYSTEM.map(PathBuf::from));
    std::env::join_paths(dirs).unwrap_or_else(|_| SYSTEM.join(":").into())
}

/// True if a program can be found.
pub fn has(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|dir| dir.join(program).is_file())
}

/// Leaves a program only the environment that it needs.
pub fn bare_environment(command: &mut Command) {
    const KEPT: [&str; 4] = ["XDG_RUNTIME_DIR", "TMPDIR", "RUST_BACKTRACE", "TERM"];
    let kept = KEPT
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    let ours =
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"VELLUM_"));
    let environment: Vec<_> = kept
        .map(|(name, value)| (OsString::from(name), value))
        .chain(ours)
        .collect();
    command
        .env_clear()
        .envs(environment)
        .env("PATH", search_path())
        .env("LC_ALL", "C");
}

/// Loads a kernel module. Returns false if there is none, or it may not be loaded.
pub fn load_module(module: &str) -> bool {
    is_root() && run("modprobe", &["-q", module]).is_ok()
}

/// A program to run, with the administrator's directories in its path.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    bare_environment(&mut command);
    command.stdin(Stdio::null());
    unblocked(&mut command);
    command
}

/// Runs a program to its end. An error contains its output.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let mut command = command(program);
    command.args(args);
    finished(&mut command, None)
}

/// Runs a command to its end. When a stop is requested, kills it and the processes it has started.
pub fn finished(command: &mut Command, stop: Option<&Stop>) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    let shown = format!("{program} {}", args.join(" "));
    if stop.is_some() {
        // One group with its child processes: `git` runs many, and any that remain would continue to make files.
        command.process_group(0);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}: is it installed?"))?;
    if let Some(stop) = stop {
        // Output is read at the end, because what we run under a stop prints little.
        while child.try_wait()?.is_none() {
            if stop.wait(Some(Duration::from_millis(1))) {
                kill_group(&mut child);
                bail!("interrupted");
            }
        }
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        let said = if said.trim().is_empty() {
            String::from_utf8_lossy(&stdout)
        } else {
            said
        };
        bail!("{shown}: {status}: {}", said.trim());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// Kills a child that leads a process group, and the whole group. Waits until none of it runs.
fn kill_group(leader: &mut Child) {
    let group = -(leader.id() as i32);
    // SAFETY: a group of our own child, which has not been waited for yet, so its number cannot be reused.
    unsafe { libc::kill(group, libc::SIGKILL) };
    let _ = leader.wait();
    // Another process reaps the leader's children, in time or never, so the wait is bounded. SAFETY: signal 0 only
    // checks that the group exists.
    eventually(GROUP_GONE, || unsafe { libc::kill(group, 0) } != 0);
}

/// Polls until something holds. Returns false if it does not in time.
pub fn eventually(most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !holds() {
        if start.elapsed() > most {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    true
}

/// Binds a free loop device to a file.
pub fn loop_attach(file: &Path) -> Result<PathBuf> {
    let file = file.to_string_lossy();
    let device = run("losetup", &["--find", "--show", "--direct-io=on", &file])?;
    Ok(PathBuf::from(device.trim()))
}

/// Mounts a block device. What is on it gets no power over the machine (programs that run as root, devices) unless options allow
/// it (`suid`, `dev`): of two contradictory options the last one counts. On an error it may be mounted somewhere.
pub fn mount(device: &Path, dir: &HeldFolder, options: &str) -> Result<()> {
    let shown = dir.path().display();
    let replaced = || format!("{shown} was replaced meanwhile: nothing stays mounted by this");
    if !dir.is_at_its_path() {
        bail!(replaced());
    }
    let is_given = |option: &&str| options.split(',').any(|given| given.trim() == *option);
    let mut all = vec!["nosuid", "nodev"];
    all.retain(|option| !is_given(option));
    all.push(options);
    let options = all.join(",");
    let (device_text, handle) = (device.to_string_lossy(), dir.handle());
    let handle = handle.to_string_lossy();
    let mut args = vec!["-o", &options, &device_text, &handle];
    // util-linux would look the folder's path up again. busybox does not, and takes each option that it does not know for one of the
    // file system's.
    if run("mount", &["--version"]).is_ok_and(|said| said.contains("from util-linux")) {
        args.insert(0, "--no-canonicalize");
    }
    let mounted = run("mount", &args);
    mounted.map_err(|error| anyhow!(format!("{error:#}").replace(&*handle, &shown.to_string())))?;
    match mounted_at(device, dir.path()) {
        Some(_) => Ok(()),
        None => bail!(replaced()),
    }
}

/// What is mounted at a path, if it is this device.
pub fn mounted_at(device: &Path, dir: &Path) -> Option<Mounted> {
    let top = mounts().into_iter().rev().find(|m| m.target == dir)?;
    Some(top).filter(|top| top.is_of(device))
}

/// All block devices, as `/dev/NAME`.
pub fn block_devices() -> impl Iterator<Item = PathBuf> {
    let found = std::fs::read_dir("/sys/block").into_iter().flatten();
    found
        .flatten()
        .map(|entry| Path::new("/dev").join(entry.file_name()))
}

/// The number of the block device that a path leads to. Never waits: a server of a user's file system may not answer.
fn device_number(path: &Path) -> Option<(u32, u32)> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut told = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a terminated path, and room for the answer.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE,
            told.as_mut_ptr(),
        )
    };
    // SAFETY: zeros are a valid value, and the kernel has filled in what it knows.
    let told = unsafe { told.assume_init() };
    let is_device = u32::from(told.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    (done == 0 && is_device).then_some((told.stx_rdev_major, told.stx_rdev_minor))
}

/// A line of the kernel's table of mounts.
pub struct Mounted {
    /// The number of its device. File systems on several devices or on none have one with major number 0.
    number: (u32, u32),
    /// The source.
    pub source: PathBuf,
    /// The mount point.
    pub target: PathBuf,
    /// Its file system's type.
    pub kind: String,
    /// Its options, as the kernel has them.
    pub options: String,
}

impl Mounted {
    /// True if it is this block device that is mounted. Where the kernel tells no number, only the source says so; over FUSE ordinary
    /// users choose that.
    pub fn is_of(&self, device: &Path) -> bool {
        let number = device_number(device);
        let says_so = || self.source == device && !self.is_fuse();
        number == Some(self.number) || ((number.is_none() || self.number.0 == 0) && says_so())
    }

    /// True if a FUSE server of any user may be behind it. (`fuseblk` is on a block device, and only root mounts it.)
    fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }

    /// True if the kernel has this option for it.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|given| given == option)
    }
}

/// The kernel's table of mounts. A name that is not UTF-8, which any user may give, spoils its own line only.
pub fn mounts() -> Vec<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    mounts_in(&table)
}

/// The mounts in a table that the kernel wrote.
pub fn mounts_in(table: &[u8]) -> Vec<Mounted> {
    let text = String::from_utf8_lossy(table);
    text.lines().filter_map(mounted).collect()
}

/// A line of `mountinfo`: the mount, and after a dash its file system.
fn mounted(line: &str) -> Option<Mounted> {
    let (mount, of) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(2);
    let (major, minor) = mount.next()?.split_once(':')?;
    let number = (major.parse().ok()?, minor.parse().ok()?);
    let target = unescape(mount.nth(1)?).into();
    let mut of = of.split(' ').map(unescape);
    let (kind, source) = (of.next()?, of.next()?.into());
    Some(Mounted {
        number,
        source,
        target,
        kind,
        options: format!("{},{}", mount.next()?, of.next()?),
    })
}

/// The table encodes spaces and the like as `\040`.
fn unescape(field: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = field.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let octal: Vec<u8> = bytes.by_ref().take(3).collect();
        out.push(octal.iter().fold(0u8, |n, d| {
            n.wrapping_mul(8).wrapping_add(d.wrapping_sub(b'0'))
        }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Unmounts. `lazy`: detaches it at once, even if it is in use.
pub fn unmount(dir: &Path, lazy: bool) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: a valid C string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), if lazy { libc::MNT_DETACH } else { 0 }) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// True if an unmount of this mount point would fail, because something uses it. Unmounts nothing.
pub fn is_mount_busy(dir: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(dir.as_os_str().as_bytes()) else {
        return false;
    };
    // An unmount with this flag only marks what is not in use, and the second one in a row unmounts it. Each look at the folder removes
    // the mark (umount(2)).
    let unmark = || drop(dir.metadata());
    unmark();
    // SAFETY: a valid C string that outlives the call.
    let done = unsafe { libc::umount2(path.as_ptr(), libc::MNT_EXPIRE) };
    let error = std::io::Error::last_os_error();
    unmark();
    done != 0 && error.raw_os_error() == Some(libc::EBUSY)
}

/// True if another process has this block device open.
pub fn is_open(device: &Path) -> bool {
    let Some(number) = device_number(device) else {
        return false;
    };
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_process = |name: &std::ffi::OsStr| name.as_encoded_bytes()[0].is_ascii_digit();
    let of_process = |process: std::fs::DirEntry| {
        let mut open = entries(&process.path().join("fd"));
        open.any(|fd| {
            let names_it = std::fs::read_link(fd.path()).is_ok_and(|target| target == device);
            let about = process.path().join("fdinfo").join(fd.file_name());
            // In another namespace of mounts that may be any file.
            names_it && device_number(&fd.path()) == Some(number) && !only_names(&about)
        })
    };
    entries(Path::new("/proc"))
        .filter(|entry| is_process(&entry.file_name()))
        .any(of_process)
}

/// True if a descriptor only names a file (`O_PATH`), as anybody can do with each. `about`: what the kernel says about it.
fn only_names(about: &Path) -> bool {
    let about = std::fs::read_to_string(about).unwrap_or_default();
    let mut lines = about.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_PATH != 0)
}

/// `FIFREEZE` and `FITHAW` of linux/fs.h.
const FREEZE: libc::Ioctl = 0xc004_5877_u32 as libc::Ioctl;
const THAW: libc::Ioctl = 0xc004_5878_u32 as libc::Ioctl;

/// Makes a file system consistent on its device and blocks its writers. `dir`: a directory on it.
pub fn freeze(dir: &std::fs::File) -> std::io::Result<()> {
    told_to(dir, FREEZE)
}

/// Ends a freeze.
pub fn thaw(dir: &std::fs::File) -> std::io::Result<()> {
    told_to(dir, THAW)
}

fn told_to(dir: &std::fs::File, what: libc::Ioctl) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: an open descriptor; the call ignores its argument.
    match unsafe { libc::ioctl(dir.as_raw_fd(), what, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_named_strangely_hides_no_other() {
        let table = b"24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            25 24 0:9 / /srv/\xff rw - fuse \xfe rw\n\
            26 24 7:0 / /mnt rw,nosuid - ext4 /dev/loop0 rw\n";
        let found = mounts_in(table);
        let target = |mounted: &Mounted| mounted.target.clone();
        assert_eq!(found.iter().map(target).nth(2), Some("/mnt".into()));
    }

    #[test]
    fn the_mount_table_is_unescaped() {
        assert_eq!(unescape("/a\\040b"), "/a b");
        assert_eq!(unescape("/a\\134b\\0"), "/a\\b\0");
        assert!(mounts().iter().any(|m| m.target == Path::new("/proc")));
        let line =
            "36 35 7:3 /sub /a\\040b rw,nosuid shared:1 master:2 - ext4 /dev/root rw,errors=x";
        let it = mounted(line).unwrap();
        assert_eq!(
            (it.number, it.source.as_path()),
            ((7, 3), Path::new("/dev/root"))
        );
        assert_eq!(
            (it.target.as_path(), it.kind.as_str()),
            (Path::new("/a b"), "ext4")
        );
        assert!(it.has("nosuid") && it.has("errors=x"));
    }

    #[test]
    fn a_stopped_program_leaves_no_child_running() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made");
        let stop = Stop::on_signals(true).unwrap();
        let asker = stop.clone();
        let there = made.clone();
        let asking = std::thread::spawn(move || {
            assert!(eventually(Duration::from_secs(60), || there.exists()));
            asker.ask();
        });
        let script = "(while :; do : > \"$1\"; done) & wait";
        let ran = finished(
            command("sh").args(["-c", script, "sh"]).arg(&made),
            Some(&stop),
        );
        asking.join().unwrap();
        assert_eq!(ran.unwrap_err().to_string(), "interrupted");
        // What was killed may still make it once. What runs makes it each time.
        let stays_away = || {
            let _ = std::fs::remove_file(&made);
            std::thread::sleep(Duration::from_millis(200));
            !made.exists()
        };
        let has_ended = eventually(Duration::from_secs(60), stays_away);
        assert!(has_ended, "something still makes the file");
    }
}
