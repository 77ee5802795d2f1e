//! Replaces the server of an attached volume by another one. What is mounted waits meanwhile, and loses nothing.
//!
//! The new server is running, and willing, before the old one is asked to hand over. So is another process of the old program: if
//! the new one fails after all, that one takes over. What is attached, and its record, stay.

use crate::attachment;
use crate::boot::systemd;
use crate::control;
use crate::handover;
use crate::keys::Key;
use crate::outcome::tell;
use crate::peek;
use crate::server_log::{self, ServerLog};
use crate::state::{self, Process, State, StateFile};
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use vellum_device::info::hex_uuid;
use zeroize::Zeroizing;

/// How long a server may take to find out whether it can take over.
const WILLING_PATIENCE: Duration = Duration::from_secs(30);
/// How long one server may take to stop, and the other to be ready.
const SERVER_PATIENCE: Duration = Duration::from_secs(300);
/// How often to check: clients are waiting.
const LOOK: Duration = Duration::from_millis(1);

/// The result of a restart.
pub struct Restarted {
    /// The process that has stopped.
    pub old: i32,
    /// The process that continues.
    pub new: i32,
    /// How long nothing was served.
    pub pause: Duration,
}

/// Restarts the server of the volume attached as `id`, from this program.
pub fn restart(id: &str, program: &Path, key: &Key) -> Result<Restarted> {
    let file = StateFile::lock(id)?;
    let mut state = file.load()?.context("nothing is attached")?;
    let shown = state.volume.display().to_string();
    let old = state.server.filter(|server| server.alive());
    let old = old.with_context(|| {
        format!("the server of {shown} is dead: `vellum detach`, and attach it again")
    })?;
    if state.via != "fuse" {
        bail!(
            "{shown} is attached by {}, whose device ends with its server: detach it, and attach it again",
            state.via
        );
    }
    if let (Some(name), true) = (&state.boot, systemd::runs()) {
        bail!(
            "{shown} is attached by the service vellum@{name}, in whose confines its server has to be: \
             `systemctl restart vellum@{name}` when nobody uses it"
        );
    }
    let control = state.control.clone().context("its server has no socket")?;
    let offer = Offer::of(&control)?;
    offer.is_for(&state)?;
    let medium = served_by(old, id, &state.volume)?;
    let secret = secret_of(id, &state.volume, key)?;
    // What a killed restart left.
    ServerLog::found(id, old)?;
    let _ = server_log::clear_up(id, &state.volume);
    let log = ServerLog::beside(id, "next")?;
    let mut new = Successor::start(program, &offer, secret.clone(), log)?;
    let mut before = of_the_old_program(old, &offer, secret, id)?;
    let mut last = ServerLog::of(id)?;
    // Later it must not fail for want of room: nobody would serve what is mounted.
    file.save(&state)?;
    let teller = Teller::start()?;
    handover::is_all_here();
    let began = Instant::now();
    let (_, connection) = order(&control, "now")?;
    let connection = connection.context("the server gave no connection to the kernel")?;
    let handed = Handed { connection, medium };
    ended(old, &mut last, SERVER_PATIENCE, |line| teller.say(line));
    let aside = last.put_aside();
    aside.unwrap_or_else(|error| teller.say(&format!("{error:#}")));
    let taken = new.takes(&handed, &file, &mut state, &teller);
    let (successor, failed) = match (taken, &mut before) {
        (Ok(()), _) => (&mut new, None),
        (Err(why), Some(before)) => {
            new.ends();
            before
                .takes(&handed, &file, &mut state, &teller)
                .with_context(|| format!("{why:#}; and the old program failed as well"))?;
            (before, Some(why))
        }
        (Err(why), None) => return Err(why.context("the attached volume has no server any more")),
    };
    let pause = began.elapsed();
    teller.ends();
    successor.stays(id, &state, &mut last)?;
    // Once more: a detach looks for the new server there.
    let saved = file.save(&state);
    if let Some(why) = failed {
        bail!("{shown}: the new program failed, and the old one serves it again: {why:#}");
    }
    saved?;
    Ok(Restarted {
        old: old.pid,
        new: successor.pid(),
        pause,
    })
}

/// Another process of the program that a server runs, if that can be run again.
fn of_the_old_program(
    old: Process,
    offer: &Offer,
    secret: Option<Zeroizing<Vec<u8>>>,
    id: &str,
) -> Result<Option<Successor>> {
    let Some(program) = program_of(old) else {
        return Ok(None);
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", program.as_raw_fd()));
    match Successor::start(&path, offer, secret, ServerLog::beside(id, "before")?) {
        Ok(before) => Ok(Some(before)),
        Err(error) => {
            tell(format_args!(
                "the old program could not be run again: {error:#}"
            ));
            Ok(None)
        }
    }
}

/// The program that a server runs, according to the kernel: an attacker who controls the server must not choose a program for root to run.
fn program_of(server: Process) -> Option<File> {
    let program = File::open(format!("/proc/{}/exe", server.pid)).ok();
    program.filter(|_| server.alive())
}

/// The volume's file or device, if its path still leads to the one that its server has open. Another one would be served under what is
/// mounted, and both would be lost.
fn served_by(server: Process, id: &str, volume: &Path) -> Result<File> {
    let medium = peek::opened(volume)?;
    match server.has_open(&medium.metadata()?)? {
        true => Ok(medium),
        false => Err(replaced(id, volume)),
    }
}

fn replaced(id: &str, volume: &Path) -> anyhow::Error {
    anyhow!(
        "{} is no longer what its server serves (UUID {id}): move that back there, or detach it by its \
         device or folder (`vellum list`)",
        volume.display()
    )
}

/// The secret of an encrypted volume, for its new server.
fn secret_of(id: &str, volume: &Path, key: &Key) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let (superblock, _) = peek::superblock_of(volume, key)?;
    match hex_uuid(&superblock.uuid()) == id {
        true => Ok(key.handed()),
        false => Err(replaced(id, volume)),
    }
}

/// What a server needs to go on where another one stopped.
struct Handed {
    connection: OwnedFd,
    medium: File,
}

/// What a server reports about itself to its possible successors.
struct Offer {
    words: Vec<String>,
}

impl Offer {
    fn of(control: &Path) -> Result<Self> {
        let (told, _) = order(control, "ask")?;
        let version = told["version"].as_u64();
        if version != Some(handover::VERSION) {
            bail!(
                "this program does not support its server's handover protocol: detach the volume, \
                 and attach it again"
            );
        }
        let words = serde_json::from_value(told["words"].clone());
        let words = words.context("its server does not tell how it was started")?;
        Ok(Self { words })
    }

    /// Fails unless `attach` would start the server of this record like that. Otherwise an attacker who controls the server could make root
    /// serve something else, or to others.
    fn is_for(&self, state: &State) -> Result<()> {
        let path = |path: &Path| path.display().to_string();
        let known = |known: &Option<PathBuf>| known.as_deref().map_or(String::new(), path);
        let head = ["serve", "--syslog"].map(str::to_owned);
        let tail = [
            "--control".to_owned(),
            known(&state.control),
            "--fuse".to_owned(),
            known(&state.fuse),
            format!("disk={}", path(&state.volume)),
        ];
        let mut words = self.words.get(1..).unwrap_or_default();
        if let Some((last, others)) = words.split_last()
            && last == "--key-on-stdin"
        {
            words = others;
        }
        let flags = words.strip_prefix(&head[..]);
        let flags = flags.and_then(|words| words.strip_suffix(&tail[..]));
        // They concern this volume alone.
        let is_harmless = |flag: &String| {
            flag == "--mounted" || flag.starts_with("--with=") || flag.starts_with("--research=")
        };
        match flags.is_some_and(|flags| flags.iter().all(is_harmless)) {
            true => Ok(()),
            false => bail!(
                "its server was not started as `vellum attach` does it: detach it, and attach it again"
            ),
        }
    }
}

/// Asks a server to hand over, or whether it would.
fn order(control: &Path, order: &str) -> Result<(serde_json::Value, Option<OwnedFd>)> {
    let request = serde_json::json!({"command": "hand-over", "order": order});
    let answer = control::request_with_file(control, &request, SERVER_PATIENCE);
    let (answer, file) = answer.map_err(|error| {
        let is_older = error.to_string().contains("unknown command");
        match is_older {
            true => error.context(
                "its server is of a version that cannot hand over: detach it, and attach it again",
            ),
            false => error,
        }
    })?;
    Ok((answer["handed_over"].clone(), file))
}

/// Prints lines without keeping anybody waiting: standard error may be a file on the very volume that is not served meanwhile.
struct Teller {
    lines: Sender<String>,
    thread: JoinHandle<()>,
}

impl Teller {
    fn start() -> Result<Self> {
        let (lines, told) = mpsc::channel::<String>();
        let thread = thread::Builder::new().name("teller".into());
        let thread = thread.spawn(move || {
            for line in told {
                tell(format_args!("{line}"));
            }
        })?;
        Ok(Self { lines, thread })
    }

    fn say(&self, line: &str) {
        let _ = self.lines.send(line.to_owned());
    }

    fn ends(self) {
        drop(self.lines);
        let _ = self.thread.join();
    }
}

/// Waits until the old server has ended and closed everything, however long that takes: to give up would leave what is mounted without a
/// server. Meanwhile passes on what the server prints (for example that there is no room). Says that it still waits after `patience`.
fn ended(server: Process, log: &mut ServerLog, patience: Duration, say: impl Fn(&str)) {
    // SAFETY: no pointers; the number that comes back is ours.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, server.pid, 0) };
    let process = i32::try_from(opened).ok().filter(|number| *number >= 0);
    // SAFETY: as above.
    let process = process.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    let (began, mut is_late) = (Instant::now(), false);
    loop {
        let is_over = !server.alive();
        let news = log.news();
        for line in news.lines().filter(|line| !server_log::is_routine(line)) {
            say(server_log::without_time(line));
        }
        if is_over {
            return;
        }
        if !is_late && began.elapsed() > patience {
            is_late = true;
            say(&format!(
                "server {0} has handed over and does not stop: another one waits for its end. `kill -9 {0}` \
                 ends it as a crash would",
                server.pid
            ));
        }
        match &process {
            Some(process) => {
                let mut ready = libc::pollfd {
                    fd: process.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one element, which lives during the call.
                unsafe { libc::poll(&raw mut ready, 1, 1000) };
            }
            None => thread::sleep(LOOK),
        }
    }
}

/// A server that waits to take over. Killed when dropped, unless it has taken over.
struct Successor {
    child: Child,
    socket: UnixStream,
    log: ServerLog,
    /// It opens what it is handed. One of an older version opens what is at the path then.
    is_sure: bool,
    goes_on: bool,
}

impl Successor {
    /// Starts it, and waits until it is willing.
    fn start(
        program: &Path,
        offer: &Offer,
        secret: Option<Zeroizing<Vec<u8>>>,
        mut log: ServerLog,
    ) -> Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let number = theirs.as_raw_fd();
        let mut words = offer.words.iter().map(OsString::from);
        let mut command = Command::new(program);
        command
            .arg0(words.next().unwrap_or_default())
            .args(words)
            .arg(format!("{}{number}", handover::OPTION));
        // SAFETY: fcntl is async-signal-safe.
        unsafe {
            command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            })
        };
        let child = attachment::started(&mut command, &mut log, secret)?;
        let mut successor = Self {
            child,
            socket,
            log,
            is_sure: false,
            goes_on: false,
        };
        let shown = program.display();
        successor
            .says(handover::WILLING, WILLING_PATIENCE)
            .with_context(|| format!("{shown} cannot take over, and the old server continues"))?;
        let said = successor.log.said();
        let willing = said.lines().find(|l| l.starts_with(handover::WILLING));
        successor.is_sure = willing.is_some_and(|line| line.ends_with(handover::AS_HANDED));
        Ok(successor)
    }

    /// Ends it, and closes everything it had open.
    fn ends(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it prints a line with this beginning.
    fn says(&mut self, beginning: &str, patience: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let exited = !matches!(self.child.try_wait(), Ok(None));
            if self.log.said().lines().any(|l| l.starts_with(beginning)) {
                return Ok(());
            }
            if exited {
                let why = self.log.why();
                let why = why.lines().filter(|line| !server_log::is_routine(line));
                let why = why.collect::<Vec<_>>().join("\n");
                bail!(
                    "it ended: {}",
                    if why.is_empty() {
                        "it said nothing"
                    } else {
                        &why
                    }
                );
            }
            if began.elapsed() > patience {
                bail!("it was not ready within {} s", patience.as_secs());
            }
            thread::sleep(LOOK);
        }
    }

    /// Lets it take over.
    fn takes(
        &mut self,
        handed: &Handed,
        file: &StateFile,
        state: &mut State,
        teller: &Teller,
    ) -> Result<()> {
        let there = state.volume.metadata();
        let is_there = |medium| there.is_ok_and(|there| state::is_same(&there, &medium));
        if !self.is_sure && !handed.medium.metadata().is_ok_and(is_there) {
            bail!("{} was replaced meanwhile", state.volume.display());
        }
        // Recorded before it gets the connection, so that a detach finds it.
        state.server = Process::of(self.pid());
        if let Err(error) = file.save(state) {
            teller.say(&format!(
                "the new server's number, {}, is not recorded: {error:#}",
                self.pid()
            ));
        }
        let files = [handed.connection.as_fd(), handed.medium.as_fd()];
        handover::send(&self.socket, b"!", &files)
            .context("it is gone before anything was handed over")?;
        self.says("ready: ", SERVER_PATIENCE)?;
        self.goes_on = true;
        Ok(())
    }

    /// Makes its log the current one. What the previous server printed is kept.
    fn stays(&mut self, id: &str, state: &State, last: &mut ServerLog) -> Result<()> {
        if let Err(error) = last.keep(id, &state.volume) {
            tell(format_args!("the old server's log is lost: {error}"));
        }
        self.log.is_of(id)
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.goes_on {
            self.ends();
            self.log.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_does_not_choose_what_is_started_in_its_place() {
        let state = State {
            volume: "/disk.vellum".into(),
            control: Some("/run/vellum/1.server".into()),
            fuse: Some("/run/vellum/1.fuse".into()),
            ..State::default()
        };
        let is_for = |flags: &[&str], rest: &[&str]| {
            let head = ["@vellum", "serve", "--syslog"];
            let tail = ["--control", "/run/vellum/1.server"];
            let fuse = ["--fuse", "/run/vellum/1.fuse"];
            let words = [&head[..], flags, &tail, &fuse, rest].concat();
            let words = words.into_iter().map(str::to_owned).collect();
            Offer { words }.is_for(&state).is_ok()
        };
        let disk = "disk=/disk.vellum";
        assert!(is_for(&[], &[disk]));
        let own = ["--with=dedup=on", "--research=hash=md5", "--mounted"];
        assert!(is_for(&own, &[disk, "--key-on-stdin"]));
        for flags in [
            &["--tcp", "0.0.0.0:1"][..],
            &["--tcp=0.0.0.0:1", "--insecure-tcp"],
            &["--raw"],
            &["x=/dev/sda"],
            &["--with", "dedup=on"],
            &["--record=/etc/passwd"],
        ] {
            assert!(!is_for(flags, &[disk]), "{flags:?}");
        }
        for rest in [
            &[][..],
            &["disk=/dev/sda"],
            &[disk, "x=/dev/sda"],
            &[disk, "--"],
            &["--", disk],
            &[disk, "--key-on-stdin", "--"],
            &[disk, "--key-on-stdin", "--key-on-stdin"],
        ] {
            assert!(!is_for(&[], rest), "{rest:?}");
        }
        assert!(Offer { words: Vec::new() }.is_for(&state).is_err());
    }

    #[test]
    fn a_server_that_waits_for_room_is_waited_for_and_heard() {
        let id = format!("ended-test-{}", std::process::id());
        let mut log = ServerLog::beside(&id, "log").unwrap();
        let out = log.begin().unwrap();
        let script = "echo ready: before; sleep 1; echo no room; sleep 2; echo stopped";
        let mut child = Command::new("sh");
        let mut child = child.args(["-c", script]).stdout(out).spawn().unwrap();
        let server = Process::of(child.id() as i32).unwrap();
        let told = std::cell::RefCell::new(Vec::new());
        let began = Instant::now();
        ended(server, &mut log, Duration::ZERO, |line| {
            told.borrow_mut().push(line.to_owned());
        });
        assert!(began.elapsed() > Duration::from_secs(2) && !server.alive());
        child.wait().unwrap();
        log.forget();
        let told = told.into_inner();
        let has = |words| told.iter().filter(|line| line.contains(words)).count();
        assert_eq!(
            (told.len(), has("no room"), has("does not stop")),
            (2, 1, 1),
            "{told:?}"
        );
    }
}
