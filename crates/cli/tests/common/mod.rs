//! Code shared by the command's tests.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

pub mod chain;
pub mod exporter;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs the command.
pub fn vellum(args: &[&str]) -> Output {
    // The test would wait for ever for a server that should have been refused.
    Command::new("timeout")
        .args(["--signal=KILL", "300", env!("CARGO_BIN_EXE_vellum")])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs the command, which must succeed.
pub fn ok(args: &[&str]) -> String {
    let out = vellum(args);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "vellum {args:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// Runs the command, which must fail with this code and print all of these texts.
pub fn fails(code: i32, args: &[&str], says: &[&str]) {
    let out = vellum(args);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "vellum {args:?}: {stderr}");
    for word in says {
        assert!(
            stderr.contains(word),
            "vellum {args:?} does not say {word:?}: {stderr}"
        );
    }
}

/// Another program, with these arguments.
pub fn program(name: &str, args: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs another program, which must succeed.
pub fn run(program: &str, args: &[&str]) -> String {
    let out = self::program(program, args).output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{program} {args:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// A directory on a disk, removed afterwards.
pub fn dir() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("vellum-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Polls until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program in the background; killed when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server in the background; killed when dropped.
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        let mut server = Self::spawn(dir, args);
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&mut self) {
        eventually("ready", || {
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "the server ended: {}",
                self.said()
            );
            self.said().contains("ready: ")
        });
    }

    /// Starts a server limited to `bytes` of address space, and waits until it is ready.
    pub fn start_limited(dir: &Path, bytes: u64, args: &[&str]) -> Self {
        let mut command = Command::new("prlimit");
        command
            .arg(format!("--as={bytes}"))
            .arg(env!("CARGO_BIN_EXE_vellum"));
        let mut server = Self::spawn_by(command, dir, args);
        server.wait_until_ready();
        server
    }

    /// Starts a server with an environment variable, and waits until it is ready.
    pub fn start_with(dir: &Path, variable: (&str, &str), args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command.env(variable.0, variable.1);
        let mut server = Self::spawn_by(command, dir, args);
        server.wait_until_ready();
        server
    }

    /// Starts a server as another user, with an environment variable, and waits until it is ready.
    pub fn start_as(dir: &Path, user: u32, variable: (&str, &str), args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        std::os::unix::process::CommandExt::uid(&mut command, user);
        command
            .env(variable.0, variable.1)
            .env("XDG_RUNTIME_DIR", dir);
        let mut server = Self::spawn_by(command, dir, args);
        server.wait_until_ready();
        server
    }

    /// Starts a server.
    pub fn spawn(dir: &Path, args: &[&str]) -> Self {
        Self::spawn_by(Command::new(env!("CARGO_BIN_EXE_vellum")), dir, args)
    }

    fn spawn_by(mut command: Command, dir: &Path, args: &[&str]) -> Self {
        let log = dir.join("server.log");
        let file = File::create(&log).unwrap();
        let child = command
            .arg("serve")
            .args(args)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Returns what it printed.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns its process number.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Kills it, as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it in an orderly way. Returns the exit code.
    pub fn term(mut self) -> Option<i32> {
        self.signal(libc::SIGTERM);
        self.child.wait().unwrap().code()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says what was left out. Not with a macro: the test harness shows its output only if a test fails.
pub fn skipped(what: impl std::fmt::Display) {
    let mut stderr = std::io::stderr();
    writeln!(stderr, "SKIP: {what}").unwrap();
}

/// True if this machine can attach; prints a message otherwise.
pub fn can_attach(test: &str) -> bool {
    // SAFETY: no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let devices = ["/dev/fuse", "/dev/loop-control"]
        .iter()
        .all(|d| Path::new(d).exists());
    if !(root && devices) {
        skipped(format_args!(
            "{test}: needs root, /dev/fuse and /dev/loop-control"
        ));
    }
    root && devices
}

/// Checks an ext4 after a crash. The kernel replays its journal and deletes its orphans, as on a user's machine; then e2fsck
/// finds nothing. It may not replay the journal itself: it would mend a wrong bitmap or count without a word.
pub fn replayed_and_faultless(device: &str, mount: &Path, options: &str) {
    run("mount", &["-o", options, device, text(mount)]);
    run("umount", &[text(mount)]);
    run("e2fsck", &["-fn", device]);
}

/// Returns the process that serves a volume, from its state file.
pub fn server_pid(path: &Path) -> i32 {
    let info: serde_json::Value =
        serde_json::from_str(&ok(&["info", text(path), "--json"])).unwrap();
    let uuid = info["uuid"].as_str().unwrap().to_owned();
    let state = std::fs::read(format!("/run/vellum/{uuid}.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    state
        .pointer("/server/pid")
        .and_then(serde_json::Value::as_i64)
        .unwrap() as i32
}

/// True if the process has ended, with all its threads: until then, its sockets answer.
pub fn has_ended(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |told| {
        told.contains("State:\tZ") && told.contains("Threads:\t1\n")
    })
}

/// Kills the server of a volume, and waits for its end.
pub fn kill_server(path: &Path) {
    let pid = server_pid(path);
    // SAFETY: a process started by this test, by its recorded number.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    eventually("the killed server has ended", || has_ended(pid));
}

/// Returns bytes that neither compress nor repeat.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut word = seed * 2 + 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        bytes.extend(((word >> 29) ^ word).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
