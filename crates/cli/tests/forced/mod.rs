//! Makes a running server do a system call that it would not do, as somebody would who has taken it over.

use std::io::Error;
use std::os::unix::fs::FileExt;

/// What it is, the call, what its path is if it takes one, and its arguments; where a path is taken is [`PATH`].
pub type WayOut = (&'static str, i64, &'static str, [u64; 6]);

/// In arguments, the place of the path.
const PATH: u64 = u64::MAX - 1;

const HERE: u64 = libc::AT_FDCWD as u64;

/// A folder that all may use, by its path.
pub const MKDIR: [u64; 6] = [HERE, PATH, 0o777, 0, 0, 0];
/// A file less, by its path.
pub const UNLINK: [u64; 6] = [HERE, PATH, 0, 0, 0, 0];
/// A socket to the local machine's programs.
pub const SOCKET: [u64; 6] = [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0];

/// The threads of a process that run code of its own and sleep; the kernel's workers run none.
pub fn threads(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let numbers = threads.flatten().filter_map(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        let number = thread.file_name().to_str()?.parse().ok()?;
        (!name.starts_with("iou-")).then_some(number)
    });
    numbers.collect()
}

/// Ways to other files, programs and machines.
pub fn ways_out() -> Vec<WayOut> {
    let here = libc::AT_FDCWD as u64;
    let write = (libc::O_WRONLY | libc::O_CREAT) as u64;
    let (open, socket) = (libc::SYS_openat, libc::SYS_socket);
    vec![
        (
            "read the passwords",
            open,
            "/etc/shadow",
            [here, PATH, 0, 0, 0, 0],
        ),
        ("list root's home", open, "/root", [here, PATH, 0, 0, 0, 0]),
        (
            "make a file",
            open,
            "/etc/vellum-was-here",
            [here, PATH, write, 0o600, 0, 0],
        ),
        (
            "run a shell",
            libc::SYS_execve,
            "/bin/sh",
            [PATH, 0, 0, 0, 0, 0],
        ),
        (
            "make a process",
            libc::SYS_clone,
            "",
            [libc::SIGCHLD as u64, 0, 0, 0, 0, 0],
        ),
        ("make a process", libc::SYS_clone3, "", [0, 0, 0, 0, 0, 0]),
        (
            "call the network",
            socket,
            "",
            [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0, 0, 0, 0],
        ),
        (
            "ask the kernel",
            socket,
            "",
            [libc::AF_NETLINK as u64, libc::SOCK_RAW as u64, 0, 0, 0, 0],
        ),
        (
            "read packets",
            socket,
            "",
            [libc::AF_PACKET as u64, libc::SOCK_RAW as u64, 0, 0, 0, 0],
        ),
        ("mount", libc::SYS_mount, "/mnt", [0, PATH, 0, 0, 0, 0]),
        (
            "look into a process",
            libc::SYS_ptrace,
            "",
            [libc::PTRACE_ATTACH as u64, 1, 0, 0, 0, 0],
        ),
        (
            "make a ring",
            libc::SYS_io_uring_setup,
            "",
            [1, 0, 0, 0, 0, 0],
        ),
    ]
}

/// Whether this machine lets a test do that; says so if not.
pub fn can(test: &str) -> bool {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    let can = cfg!(target_arch = "x86_64") && is_root;
    if !can {
        eprintln!("SKIPPED {test}: needs root and an x86-64");
    }
    can
}

fn done(result: i64, what: &str) {
    assert!(result >= 0, "{what}: {}", Error::last_os_error());
}

fn wait(pid: i32) {
    let mut status = 0;
    // SAFETY: the status lives during the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    done(waited.into(), "wait");
    assert!(libc::WIFSTOPPED(status), "it has ended: {status:#x}");
}

/// The main thread waits in a system call; it does this one in its place, and then waits again. Gives what the kernel answers.
pub fn system_call(pid: i32, call: i64, path: &str, arguments: [u64; 6]) -> i64 {
    let answer = by_thread(pid, call, path, arguments);
    answer.unwrap_or_else(|| panic!("the main thread is not in a system call"))
}

/// The same of any thread; nothing of one that has ended, or is never found waiting.
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
    // SAFETY: registers are plain numbers; ptrace is given places that live during the call, and changes a process that the test began.
    unsafe {
        let mut before: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) != 0 {
            return None;
        }
        wait(pid);
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
        wait(pid);
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

/// Elsewhere [`can`] says no.
#[cfg(not(target_arch = "x86_64"))]
fn by_waiting(_pid: i32, _call: i64, _path: &str, _arguments: [u64; 6]) -> Option<i64> {
    Some(0)
}
