//! Signals as messages: SIGTERM and SIGINT request an orderly end, and a second one forces it.

use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Signals so close to each other are one request: `timeout` signals its child, and then the whole group.
const TOGETHER: Duration = Duration::from_millis(500);

/// Exit code after a second signal, or after one that a command cannot finish with.
pub const INSISTED: i32 = 130;

/// Whether an end was requested.
#[derive(Clone)]
pub struct Stop(Arc<Inner>);

struct Inner {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
    patient: bool,
    /// A signal that requests nothing.
    ignored: i32,
}

/// The signals that a server and most commands handle.
const USUAL: &[i32] = &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
/// With those that a user may send from a terminal.
const ALL: &[i32] = &[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

fn set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a zeroed set is then initialised by sigemptyset.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

impl Stop {
    /// Stops signals from killing the process. Must be called before any thread is made, so that all threads inherit
    /// it. SIGHUP is ignored. Unless `patient`, a second signal, half a second after the first or later, ends the process
    /// at once: for a server that is a crash, from which a volume recovers.
    pub fn on_signals(patient: bool) -> std::io::Result<Self> {
        Self::on(USUAL, patient, libc::SIGHUP)
    }

    /// Like [`on_signals`](Self::on_signals), patiently, for a command that is useless without its terminal: SIGHUP and
    /// SIGQUIT also request the end.
    pub fn with_terminal() -> std::io::Result<Self> {
        Self::on(ALL, true, 0)
    }

    fn on(signals: &[i32], patient: bool, ignored: i32) -> std::io::Result<Self> {
        let stop = Self(Arc::new(Inner {
            asked: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            patient,
            ignored,
        }));
        let set = set(signals);
        // SAFETY: a valid set; the old mask is not needed.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        let heard = stop.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut first: Option<Instant> = None;
                loop {
                    let mut signal = 0;
                    // SAFETY: a valid set and a place for the number.
                    if unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0
                        || signal == heard.0.ignored
                    {
                        continue;
                    }
                    let is_same = first.is_some_and(|first| first.elapsed() < TOGETHER);
                    if heard.asked() && !is_same && !heard.0.patient {
                        std::process::exit(INSISTED);
                    }
                    first.get_or_insert_with(Instant::now);
                    heard.ask();
                }
            })?;
        Ok(stop)
    }

    /// Requests an end.
    pub fn ask(&self) {
        let _held = self.0.lock.lock();
        self.0.asked.store(true, Ordering::SeqCst);
        self.0.changed.notify_all();
    }

    /// True if an end was requested.
    pub fn asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Waits until an end is requested, but no longer than `most`.
    pub fn wait(&self, most: Option<Duration>) -> bool {
        let mut held = self.0.lock.lock();
        while !self.asked() {
            match most {
                None => self.0.changed.wait(&mut held),
                Some(most) => {
                    self.0.changed.wait_for(&mut held, most);
                    break;
                }
            }
        }
        self.asked()
    }
}

/// The terminal that a question has changed, for a handler, which may take no lock.
static ASKING: AtomicPtr<Terminal> = AtomicPtr::new(std::ptr::null_mut());

/// A terminal, and how it was.
struct Terminal {
    file: File,
    before: libc::termios,
}

impl Terminal {
    /// The one of this process, if it has one.
    fn ours() -> Option<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        // SAFETY: room for the settings, which are used only if the call succeeded.
        unsafe {
            let mut before = std::mem::zeroed();
            let is_told = libc::tcgetattr(file.as_raw_fd(), &raw mut before) == 0;
            is_told.then_some(Self { file, before })
        }
    }
}

/// Puts the terminal back. The signal then ends the process, because it has its default effect again.
extern "C" fn put_back(signal: libc::c_int) {
    let asking = ASKING.load(Ordering::SeqCst);
    // SAFETY: only async-signal-safe calls; what is asking stays until no signal comes here any more.
    unsafe {
        if let Some(asking) = asking.as_ref() {
            let terminal = asking.file.as_raw_fd();
            // In the background, the terminal is the shell's.
            if libc::tcgetpgrp(terminal) == libc::getpgrp() {
                libc::tcsetattr(terminal, libc::TCSANOW, &raw const asking.before);
                // The shell would run the rest of what was typed.
                libc::tcflush(terminal, libc::TCIFLUSH);
            }
        }
        libc::raise(signal);
    }
}

/// Asks something on the terminal, which does not show what is typed. A signal ends the process at once, even one that is otherwise
/// only a request, and leaves the terminal as it was.
pub fn asking<T>(ask: impl FnOnce() -> T) -> T {
    let Some(terminal) = Terminal::ours() else {
        return ask();
    };
    let signals = set(ALL);
    ASKING.store((&raw const terminal).cast_mut(), Ordering::SeqCst);
    // SAFETY: valid sets and actions. The calls fill what is zeroed.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = put_back as extern "C" fn(libc::c_int) as usize;
        act.sa_flags = libc::SA_RESETHAND;
        // A terminal that is not ours any more would stop the handler.
        act.sa_mask = set(&[&[libc::SIGTTOU], ALL].concat());
        let acts = ALL.iter().map(|&signal| {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            // As `nohup` sets it.
            if before.sa_sigaction != libc::SIG_IGN {
                libc::sigaction(signal, &raw const act, std::ptr::null_mut());
            }
            (signal, before)
        });
        let acts: Vec<_> = acts.collect();
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, &raw mut mask);
        let done = ask();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        for (signal, before) in acts {
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
        }
        ASKING.store(std::ptr::null_mut(), Ordering::SeqCst);
        done
    }
}

/// Makes a write past the limit on a file's size (`ulimit -f`) an error of that write, as on a full disk. It would kill the process.
pub fn outlive_file_limit() {
    // SAFETY: nothing handles this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Unblocks in a child the signals that we block, and makes it end by the one that we ignore; otherwise it would inherit both.
pub fn unblocked(command: &mut Command) -> &mut Command {
    let set = set(ALL);
    // SAFETY: only async-signal-safe calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            Ok(())
        })
    }
}

/// Makes a command that prints end quietly when its reader goes away. Not for servers.
pub fn die_on_closed_pipe() {
    // SAFETY: the default disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
