//! Does in all threads what the kernel does for one thread at a time.
//!
//! In Linux, rights belong to a thread. Each of a server's threads gives up its own, in a signal handler, one after another,
//! until a scan finds no thread that has not. A new thread inherits the rights of its maker, so none is missed.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may stay in the kernel, in a sync of a slow disk for example, before it handles the signal.
const PATIENCE: Duration = Duration::from_secs(20);
/// The value while a thread has not answered.
const PENDING: i32 = -1;

/// The thread that must act.
static WHO: AtomicI32 = AtomicI32::new(0);
/// The rules on files: an open descriptor, or none.
static RULES: AtomicI32 = AtomicI32::new(NO_RULES);
const NO_RULES: i32 = -1;
/// Its answer: 0, or an error number.
static ANSWER: AtomicI32 = AtomicI32::new(PENDING);

fn own_number() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Uses only what is allowed in a handler: system calls and atomics.
extern "C" fn heard(_signal: i32) {
    // SAFETY: system calls without pointers; errno is this thread's, and is restored.
    unsafe {
        let errno = *libc::__errno_location();
        let rules = RULES.load(Ordering::SeqCst);
        let done = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && (rules == NO_RULES
                || libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0);
        let answer = match done {
            true => 0,
            false => *libc::__errno_location(),
        };
        if WHO.load(Ordering::SeqCst) == own_number() {
            ANSWER.store(answer, Ordering::SeqCst);
        }
        *libc::__errno_location() = errno;
    }
}

/// Applies to all present and future threads of this process: programs that they start get no more rights than the threads
/// have, and the rules are enforced.
pub fn give_up(rules: Option<OwnedFd>) -> io::Result<()> {
    RULES.store(
        rules.as_ref().map_or(NO_RULES, AsRawFd::as_raw_fd),
        Ordering::SeqCst,
    );
    let done = give_up_each();
    // For a late signal: by then the descriptor may be something else.
    RULES.store(NO_RULES, Ordering::SeqCst);
    done
}

fn give_up_each() -> io::Result<()> {
    let signal = libc::SIGRTMIN();
    // SAFETY: a zeroed action is then filled; the handler does only what handlers may. It stays installed, for a late signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = heard as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let start = Instant::now();
    let mut done = BTreeSet::new();
    loop {
        let new: Vec<i32> = threads()?
            .into_iter()
            .filter(|number| !done.contains(number))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        for number in new {
            ask(number, signal, start)?;
            done.insert(number);
        }
    }
}

/// The threads that run our code. The kernel's workers for a ring do not, and receive no signals.
fn threads() -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for thread in std::fs::read_dir("/proc/self/task")? {
        let path = thread?.path();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let number = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        numbers.extend(number.filter(|_: &i32| !is_kernels(&stat)));
    }
    Ok(numbers)
}

/// Recognizes them by their flags. A worker has its maker's name at first.
fn is_kernels(stat: &str) -> bool {
    const IO_WORKER: u64 = 0x10;
    let behind_name = stat.rfind(')').and_then(|end| stat.get(end + 2..));
    let flags = behind_name.and_then(|fields| fields.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & IO_WORKER != 0)
}

/// Makes one thread do it. A thread that has ended has no rights left.
fn ask(number: i32, signal: i32, start: Instant) -> io::Result<()> {
    ANSWER.store(PENDING, Ordering::SeqCst);
    WHO.store(number, Ordering::SeqCst);
    // SAFETY: a signal that we handle, to a thread of ours; its number cannot belong to another process.
    if unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, signal) } != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(()),
            _ => Err(error),
        };
    }
    let own = std::path::Path::new("/proc/self/task").join(number.to_string());
    loop {
        match ANSWER.load(Ordering::SeqCst) {
            0 => return Ok(()),
            PENDING if !own.exists() => return Ok(()),
            PENDING if start.elapsed() > PATIENCE => {
                let late = format!("thread {number} does not answer");
                return Err(io::Error::new(io::ErrorKind::TimedOut, late));
            }
            PENDING => std::thread::sleep(Duration::from_micros(100)),
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_known_by_its_flags() {
        let worker = "7 (vell) um) S 1 1 1 0 -1 4210768 0 0 0 0";
        assert!(is_kernels(worker));
        assert!(!is_kernels(&worker.replace("4210768", "4210752")));
        assert!(!is_kernels(""));
    }
}
