//! Signals as messages: SIGTERM and SIGINT request an orderly end, and a second one forces it.

use parking_lot::{Condvar, Mutex};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Runs `what` with SIGINT held back, as for a prompt that must leave the terminal as it was. It counts afterwards.
pub fn without_interrupt<T>(what: impl FnOnce() -> T) -> T {
    let set = set(&[libc::SIGINT]);
    // SAFETY: valid sets; the call fills the one that is zeroed.
    let before = unsafe {
        let mut before = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        before
    };
    let done = what();
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    done
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
