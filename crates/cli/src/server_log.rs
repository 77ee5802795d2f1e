//! The output of an attached volume's server. It goes to a file in the run-time directory, from which `attach` and `detach` read
//! it, to the system's log, and, when the server has ended, to a log that is kept.
//!
//! While the server runs, none of its lines may wait for a disk: `/var/log` may be on the very volume that it serves. The
//! run-time directory is in memory, and sending to the system's log does not wait.

use crate::handover::WILLING;
use crate::state::{Process, run_dir};
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The folder of kept logs.
const KEPT: &str = "/var/log/vellum";
/// Where the system's log listens; the second path is relative to the run-time directory, for a server from an initramfs,
/// which lacks the system's `/dev`.
const SYSLOG: [&str; 2] = ["/dev/log", "../systemd/journal/dev-log"];
/// Facility "daemon", severity "warning".
const PRIORITY: u8 = 3 << 3 | 4;
/// How much of a log is read, or kept for one server.
const BYTES_MAX: u64 = 256 << 10;
/// A longer kept log is put aside, and replaces the previous one there.
const KEPT_BYTES_MAX: u64 = 1 << 20;

/// What is added to the names of logs while a server takes over: of its log and of the old program's, and of the log before.
const BESIDE: [&str; 3] = ["next", "before", "last"];

/// The log of one volume's server.
pub struct ServerLog {
    path: PathBuf,
    /// The position of the next line.
    at: u64,
}

impl ServerLog {
    /// The log of the volume with this UUID, starting at its end.
    pub fn of(id: &str) -> Result<Self> {
        let path = run_dir()?.join(format!("{id}.log"));
        let at = path.metadata().map_or(0, |meta| meta.len());
        Ok(Self { path, at })
    }

    /// The log of a successor, which may take over from the server.
    pub fn beside(id: &str, name: &str) -> Result<Self> {
        let path = run_dir()?.join(format!("{id}.log.{name}"));
        Ok(Self { path, at: 0 })
    }

    /// Gives the log of this server its name, if a `restart` was killed before it did so.
    pub fn found(id: &str, server: Process) -> Result<()> {
        for name in BESIDE {
            let mut log = Self::beside(id, name)?;
            if let Ok(file) = log.path.metadata()
                && server.has_open(&file)?
            {
                log.is_of(id)?;
            }
        }
        Ok(())
    }

    /// Renames the log of a server that has ended, so that its last lines are not taken for its successor's. It stays in memory:
    /// kept logs may be on the very volume.
    pub fn put_aside(&mut self) -> Result<()> {
        let aside = self.path.with_extension("log.last");
        std::fs::rename(&self.path, &aside)
            .with_context(|| format!("cannot rename the server's log {}", self.path.display()))?;
        self.path = aside;
        Ok(())
    }

    /// Makes a successor's log the current one.
    pub fn is_of(&mut self, id: &str) -> Result<()> {
        let path = Self::of(id)?.path;
        std::fs::rename(&self.path, &path)
            .with_context(|| format!("cannot rename the server's log {}", self.path.display()))?;
        self.path = path;
        Ok(())
    }

    /// Removes the log of a successor that did not take over.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a new log, for a server's standard output or error.
    pub fn begin(&mut self) -> Result<File> {
        let _ = std::fs::remove_file(&self.path);
        self.at = 0;
        let mut options = OpenOptions::new();
        options.create_new(true).append(true).mode(0o600);
        let opened = options.open(&self.path);
        opened.with_context(|| format!("cannot write the server's log {}", self.path.display()))
    }

    /// Everything that was printed.
    pub fn said(&self) -> String {
        self.from(0)
    }

    /// Returns what was printed, as the reason for a failure: first the error, then the lines before it. Lines that report no trouble are
    /// left out.
    pub fn why(&self) -> String {
        let said = self.said();
        let lines = said.trim().lines().map(without_time);
        let mut lines: Vec<_> = lines.filter(|line| !line.starts_with(NOTE)).collect();
        let error = lines.iter().rposition(|line| line.starts_with(ERROR));
        lines.rotate_left(error.unwrap_or(0));
        let lines = lines.iter().map(|line| line.trim_start_matches(ERROR));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The same, of a server that has ended before it began to serve. It removes the log: the error says all of it.
    pub fn last_words(&self) -> String {
        let why = self.why();
        self.forget();
        why
    }

    /// The complete lines printed since the last call.
    pub fn news(&mut self) -> String {
        let mut text = self.from(self.at);
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        self.at += text.len() as u64;
        text
    }

    /// True if the server has been told to stop. If so, `news` continues with what it has printed since then.
    pub fn is_stopping(&mut self) -> bool {
        let length = self.path.metadata().map_or(0, |meta| meta.len());
        let from = length.saturating_sub(BYTES_MAX);
        let text = self.from(from);
        let told = text.rfind("\nstopping\n");
        if let Some(told) = told {
            self.at = from + (told + "\nstopping\n".len()) as u64;
        }
        told.is_some()
    }

    fn from(&self, at: u64) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.path)
            && file.seek(SeekFrom::Start(at)).is_ok()
        {
            let _ = file.take(BYTES_MAX).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// For a server that has ended: appends its output to the kept log of this volume, and removes the file. Returns the kept
    /// log's path, or `None` if the server printed nothing but its start and its end.
    pub fn keep(&mut self, id: &str, volume: &Path) -> std::io::Result<Option<PathBuf>> {
        let length = self.path.metadata().map_or(0, |meta| meta.len());
        let text = self.from(length.saturating_sub(BYTES_MAX));
        let mut told = text.lines().filter(|line| !is_routine(line)).peekable();
        let mut kept = None;
        if told.peek().is_some() {
            let (path, mut file) = kept_log(Path::new(KEPT), id, volume)?;
            for line in told {
                writeln!(file, "{line}")?;
            }
            kept = Some(path);
        }
        let _ = std::fs::remove_file(&self.path);
        Ok(kept)
    }
}

/// Keeps what is in the logs that a killed `restart` left, and removes them.
pub fn clear_up(id: &str, volume: &Path) -> Result<()> {
    for name in BESIDE {
        ServerLog::beside(id, name)?.keep(id, volume)?;
    }
    Ok(())
}

/// The prefix of lines that are no trouble: things that a server does without.
pub const NOTE: &str = "note: ";

/// The prefix of the error with which a program ends.
const ERROR: &str = "vellum: ";

/// The line of a stopping server that waits for room. `attach` and `detach` react to it.
pub const NO_ROOM: &str =
    "no room on its file system or device for what is to be written last: waiting for it";

/// True if a line only reports the start or the end of the server.
pub fn is_routine(line: &str) -> bool {
    let is_note = without_time(line).starts_with(NOTE);
    is_note
        || line == "stopping"
        || line == "stopped"
        || line.starts_with(WILLING)
        || line.starts_with("ready: ")
}

/// The kept log of a volume, opened for appending.
fn kept_log(folder: &Path, id: &str, volume: &Path) -> std::io::Result<(PathBuf, File)> {
    match std::fs::DirBuilder::new().mode(0o750).create(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let name = volume.file_name().unwrap_or_default().to_string_lossy();
    let path = folder.join(format!("{name}-{}.log", id.get(..8).unwrap_or(id)));
    if path
        .symlink_metadata()
        .is_ok_and(|meta| meta.len() > KEPT_BYTES_MAX)
    {
        std::fs::rename(&path, path.with_extension("log.1"))?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o640);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(&path)?;
    Ok((path, file))
}

/// The system's log, for the server of an attached volume.
static SYSTEM: OnceLock<UnixDatagram> = OnceLock::new();

/// Makes this process print the time before each line, and send each line to the system's log as well.
pub fn to_the_system() {
    let socket = UnixDatagram::unbound();
    if let Ok(socket) = socket.and_then(|s| s.set_nonblocking(true).map(|()| s)) {
        let _ = SYSTEM.set(socket);
    }
}

/// Sends a line to the system's log, if that accepts it at once. Returns the line as it should be printed.
pub fn tell(line: &str) -> String {
    let Some(socket) = SYSTEM.get() else {
        return line.to_owned();
    };
    let message = format!("<{PRIORITY}>vellum[{}]: {line}", std::process::id());
    SYSLOG
        .iter()
        .any(|place| socket.send_to(message.as_bytes(), place).is_ok());
    format!("{} {line}", time())
}

/// Removes the time that [`tell`] added to a line.
pub fn without_time(line: &str) -> &str {
    match line.split_once("Z ") {
        Some((time, rest)) if time.len() == 19 && time.as_bytes()[10] == b'T' => rest,
        _ => line,
    }
}

/// The current time in UTC, as ISO 8601.
fn time() -> String {
    // SAFETY: `now` and `parts` are ours and valid; no other thread sees them.
    let parts = unsafe {
        let mut parts = std::mem::zeroed::<libc::tm>();
        let now = libc::time(std::ptr::null_mut());
        libc::gmtime_r(&raw const now, &raw mut parts);
        parts
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> (tempfile::TempDir, ServerLog) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        (folder, ServerLog { path, at: 0 })
    }

    #[test]
    fn news_are_whole_lines_returned_once() {
        let (_folder, mut log) = empty();
        let mut file = log.begin().unwrap();
        write!(file, "one\ntwo\nthr").unwrap();
        assert_eq!(log.news(), "one\ntwo\n");
        assert_eq!(log.news(), "");
        writeln!(file, "ee").unwrap();
        assert_eq!(log.news(), "three\n");
        assert_eq!(log.said(), "one\ntwo\nthree\n");
    }

    #[test]
    fn the_reason_for_a_failure_begins_with_the_error() {
        let (_folder, mut log) = empty();
        let mut file = log.begin().unwrap();
        for line in ["note: a\nv: b", "vellum: c\nd"] {
            writeln!(file, "{} {line}", time()).unwrap();
        }
        assert_eq!(log.why(), "c\nd\nv: b");
    }

    #[test]
    fn news_of_a_stopping_server_begin_at_its_stop() {
        let (_folder, mut log) = empty();
        let mut file = log.begin().unwrap();
        writeln!(file, "ready: here\nnot yet stopping").unwrap();
        assert!(!log.is_stopping());
        writeln!(file, "stopping\nno room").unwrap();
        assert!(log.is_stopping());
        assert_eq!(log.news(), "no room\n");
    }

    #[test]
    fn the_time_of_a_line_is_removed_again() {
        assert_eq!(
            without_time(&format!("{} two Z words", time())),
            "two Z words"
        );
        assert_eq!(without_time("no time: Z nor this"), "no time: Z nor this");
        assert!(is_routine(&format!("{} note: without a lock", time())));
        assert!(!is_routine(&format!("{} no room: note: this", time())));
    }

    #[test]
    fn a_long_log_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("vellum");
        let add = |bytes: u64| {
            let (path, file) = kept_log(&folder, "0123456789", Path::new("/d/disk.v")).unwrap();
            let length = file.metadata().unwrap().len();
            file.set_len(length + bytes).unwrap();
            (path, length)
        };
        assert_eq!(
            add(KEPT_BYTES_MAX + 1),
            (folder.join("disk.v-01234567.log"), 0)
        );
        assert_eq!(add(10).1, 0);
        assert_eq!(add(10).1, 10);
        let aside = folder.join("disk.v-01234567.log.1").metadata().unwrap();
        assert_eq!(aside.len(), KEPT_BYTES_MAX + 1);
    }

    #[test]
    fn a_kept_log_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, folder.path().join("v-01234567.log")).unwrap();
        assert!(kept_log(folder.path(), "01234567", Path::new("v")).is_err());
        assert!(!elsewhere.exists());
    }
}
