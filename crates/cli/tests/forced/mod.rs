//! Makes a running server do a system call that it would not do, as an attacker who has taken it over would.

use std::io::Error;
use std::os::unix::fs::FileExt;

/// The description, the call, its path if it takes one, and its arguments, in which [`PATH`] marks the place of the path.
pub type WayOut = (&'static str, i64, &'static str, [u64; 6]);

/// The place of the path in arguments.
const PATH: u64 = u64::MAX - 1;

const NO_FILE: u64 = u64::MAX;
/// Of the numbers of programs with short pointers.
const SHORT: i64 = 0x4000_0000;
const HERE: u64 = libc::AT_FDCWD as u64;

/// Creates a directory that all may use.
pub const MKDIR: [u64; 6] = [HERE, PATH, 0o777, 0, 0, 0];
/// Opens a file for reading.
pub const OPEN: [u64; 6] = [HERE, PATH, 0, 0, 0, 0];
/// Deletes a file.
pub const UNLINK: [u64; 6] = [HERE, PATH, 0, 0, 0, 0];
/// A socket to programs on the same machine.
pub const SOCKET: [u64; 6] = [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];

/// Returns the sleeping threads of a process that run its own code; the kernel's workers run none.
pub fn threads(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let numbers = threads.flatten().filter_map(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let number = thread.file_name().to_str()?.parse().ok()?;
        (!name.starts_with("iou-")).then_some(number)
    });
    numbers.collect()
}

/// The arguments of a call; those that are not given are zeros.
fn with(given: &[u64]) -> [u64; 6] {
    let mut all = [0; 6];
    all[..given.len()].copy_from_slice(given);
    all
}

/// Returns calls that would reach other files, programs and machines.
pub fn ways_out() -> Vec<WayOut> {
    use libc::{AF_INET, AF_NETLINK, AF_PACKET, O_CREAT, O_WRONLY, PTRACE_ATTACH, SIGCHLD};
    use libc::{SOCK_RAW, SOCK_STREAM, SYS_clone, SYS_clone3, SYS_execve, SYS_io_uring_setup};
    use libc::{SYS_fanotify_init, SYS_fchmodat2, SYS_mkdirat, SYS_prlimit64, SYS_sendto};
    use libc::{SYS_mount, SYS_openat, SYS_ptrace, SYS_rename, SYS_renameat, SYS_renameat2};
    use libc::{SYS_socket, SYS_tgkill, SYS_truncate, SYS_unlinkat};
    let write = with(&[HERE, PATH, (O_WRONLY | O_CREAT) as u64, 0o600]);
    let socket = |family, kind| with(&[family as u64, kind as u64]);
    let (inet, packet) = (socket(AF_INET, SOCK_STREAM), socket(AF_PACKET, SOCK_RAW));
    let netlink = socket(AF_NETLINK, SOCK_RAW);
    let (child, look) = (SIGCHLD as u64, PTRACE_ATTACH as u64);
    let (passwd, none) = ("/etc/passwd", "/etc/vellum-is-not-here");
    let rename = with(&[HERE, PATH, HERE, PATH]);
    let rmdir = with(&[HERE, PATH, libc::AT_REMOVEDIR as u64]);
    let connect = with(&[NO_FILE, 0, 0, libc::MSG_FASTOPEN as u64]);
    let mut ways = vec![
        ("read the passwords", SYS_openat, "/etc/shadow", OPEN),
        ("list root's home", SYS_openat, "/root", OPEN),
        ("make a file", SYS_openat, "/etc/vellum-was-here", write),
        ("run a shell", SYS_execve, "/bin/sh", with(&[PATH])),
        ("make a process", SYS_clone, "", with(&[child])),
        ("make a process", SYS_clone3, "", with(&[])),
        ("call the network", SYS_socket, "", inet),
        ("ask the kernel", SYS_socket, "", netlink),
        ("read packets", SYS_socket, "", packet),
        ("mount", SYS_mount, "/mnt", with(&[0, PATH])),
        ("look into a process", SYS_ptrace, "", with(&[look, 1])),
        ("rename a file", SYS_rename, passwd, with(&[PATH, PATH])),
        ("rename a file", SYS_renameat, passwd, rename),
        ("rename a file", SYS_renameat2, passwd, rename),
        ("cut a file short", SYS_truncate, none, with(&[PATH])),
        // Signal 0 only looks whether it could be sent.
        ("send init a signal", SYS_tgkill, "", with(&[1, 1])),
        ("make a ring", SYS_io_uring_setup, "", with(&[1])),
        ("watch all files", SYS_fanotify_init, "", with(&[0])),
        ("make a folder", SYS_mkdirat, none, MKDIR),
        ("remove a folder", SYS_unlinkat, none, rmdir),
        ("open a file to all", SYS_fchmodat2, none, MKDIR),
        ("limit init", SYS_prlimit64, "", with(&[1])),
        (
            "run a shell by its short number",
            SHORT | 520,
            "/bin/sh",
            with(&[PATH]),
        ),
        ("connect by a message", SYS_sendto, "", connect),
    ];
    ways.extend(by_descriptor());
    ways
}

/// Those of them that need an open file. There is none, but a call that is let through says so.
fn by_descriptor() -> impl Iterator<Item = WayOut> {
    use libc::{SYS_fchmod, SYS_fchown, SYS_fcntl, SYS_fsetxattr, SYS_ioctl};
    let controls = [
        ("type on a terminal", libc::TIOCSTI),
        ("command a SCSI drive", 0x2285),
        ("command an NVMe drive", 0xc048_4e41),
        ("stop a SCSI drive", 0x0006),
        ("resize an ext4", 0x4008_6610),
        ("open a file of XFS", 0x4038_586b),
    ];
    let control = |(what, request)| (what, SYS_ioctl, "", with(&[NO_FILE, request]));
    let others = [
        (
            "make it a program of root's",
            SYS_fchmod,
            "",
            with(&[NO_FILE, 0o4755]),
        ),
        ("give a file away", SYS_fchown, "", with(&[NO_FILE])),
        ("mark a file", SYS_fsetxattr, "", with(&[NO_FILE])),
        (
            "name who gets signals",
            SYS_fcntl,
            "",
            with(&[NO_FILE, 8, 1]),
        ),
    ];
    controls.map(control).into_iter().chain(others)
}

/// True if this machine lets a test do that; prints a message otherwise.
pub fn can(test: &str) -> bool {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let can = cfg!(target_arch = "x86_64") && is_root;
    if !can {
        crate::common::skipped(format_args!("{test}: needs root and an x86-64"));
    }
    can
}

fn done(result: i64, what: &str) {
    assert!(result >= 0, "{what}: {}", Error::last_os_error());
}

/// Waits until the thread stops. Returns false if it has ended.
fn stops(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: the status lives during the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    done(waited.into(), "wait");
    let has_ended = libc::WIFEXITED(status);
    assert!(
        has_ended || libc::WIFSTOPPED(status),
        "it was killed: {status:#x}"
    );
    !has_ended
}

/// Makes the main thread, which waits in a system call, do this one instead, and then wait again. Returns the kernel's result.
pub fn system_call(pid: i32, call: i64, path: &str, arguments: [u64; 6]) -> i64 {
    let answer = by_thread(pid, call, path, arguments);
    answer.unwrap_or_else(|| panic!("the main thread is not in a system call"))
}

/// Does the same with any thread. Returns `None` if it has ended, or is never found waiting.
pub fn by_thread(tid: i32, call: i64, path: &str, arguments: [u64; 6]) -> Option<i64> {
    const LOOKS: u32 = 30;
    (0..LOOKS).find_map(|look| {
        std::thread::sleep(std::time::Duration::from_millis(look.into()));
        by_waiting(tid, call, path, arguments)
    })
}

#[cfg(target_arch = "x86_64")]
fn by_waiting(pid: i32, call: i64, path: &str, arguments: [u64; 6]) -> Option<i64> {
    const BYTES_OF_CALL: u64 = 2;
    // Below what the thread may use under the top of its stack.
    const BELOW: u64 = 1024;
    let mut how = std::fs::OpenOptions::new();
    let memory = how.read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = memory.ok()?;
    // SAFETY: registers are plain numbers; ptrace receives places that live during the call, and changes a process that the
    // test started.
    unsafe {
        let mut before: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) != 0 {
            return None;
        }
        if !stops(pid) {
            return None;
        }
        done(
            libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut before),
            "registers",
        );
        let mut code = [0; BYTES_OF_CALL as usize];
        memory
            .read_exact_at(&mut code, before.rip - BYTES_OF_CALL)
            .unwrap();
        if code != [0x0f, 0x05] {
            done(libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0), "detach");
            return None;
        }
        let at = before.rsp - BELOW;
        memory
            .write_all_at(&[path.as_bytes(), &[0]].concat(), at)
            .unwrap();
        let arguments = arguments.map(|argument| if argument == PATH { at } else { argument });
        let mut now = before;
        now.rip -= BYTES_OF_CALL;
        now.orig_rax = u64::MAX;
        now.rax = call.unsigned_abs();
        [now.rdi, now.rsi, now.rdx, now.r10, now.r8, now.r9] = arguments;
        done(
            libc::ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const now),
            "set registers",
        );
        done(libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0), "step");
        assert!(stops(pid), "it has ended");
        done(
            libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut now),
            "registers",
        );
        done(
            libc::ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const before),
            "set registers",
        );
        done(libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0), "detach");
        Some(now.rax.cast_signed())
    }
}

/// On other processors [`can`] returns false.
#[cfg(not(target_arch = "x86_64"))]
fn by_waiting(_pid: i32, _call: i64, _path: &str, _arguments: [u64; 6]) -> Option<i64> {
    Some(0)
}
