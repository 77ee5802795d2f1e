//! The system calls that a server gives up, enforced by a filter in the kernel (seccomp).
//!
//! The filter names what serving never does, and lets everything else pass. A list of allowed calls would be tighter, but
//! if an updated library made an unexpected call, a disk would be lost. For the same reason a refused call returns an error
//! and does not end the process.

use anyhow::{Context, Result};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;

/// No other program is run, and no process is made, inspected or signalled.
const PROCESSES: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_shmat,
];
/// All sockets exist: clients arrive by `accept`.
const SOCKETS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
];
/// No file is opened, nor is one made. No file gets another owner, mode, name, attribute or, by its name, another length.
const NAMES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mknodat,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_truncate,
    // Those by descriptor too: the medium, made a program that anybody runs as root.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Each opens files that others use.
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
];
/// These are not in the C library's list for each machine. The newer ones have the same number on all.
const SYS_KEXEC_FILE_LOAD: i64 = if cfg!(target_arch = "x86_64") {
    320
} else {
    294
};
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;
/// The machine stays as it is, and the process keeps its place and identity.
const MACHINE: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_personality,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    SYS_KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];
/// The same, by older names.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_mknod,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
];
#[cfg(target_arch = "aarch64")]
const OLDER: &[i64] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[i64] = &[];

/// Controls of devices that reach further than the descriptor: a mask, and what they have under it.
const CONTROLS: &[(u64, u64)] = &[
    // TIOCSTI and TIOCLINUX: they type on the terminal from which the server was started.
    (!0, 0x5412),
    (!0, 0x541c),
    // FIOSETOWN and SIOCSPGRP: the kernel sends the owner of a socket signals.
    (!0, 0x8901),
    (!0, 0x8902),
    // Commands to the whole drive of which the medium is a partition: SCSI, CD, ATA, NVMe.
    (!0xf, 0x0000),
    (0xff00, 0x5300),
    (!0xff, 0x2200),
    (!0xff, 0x0300),
    (0xff00, 0x4e00),
    // The file system that the medium is on: it is frozen, shut down, resized, or (XFS) opens a file by its number. The letters are those of
    // all file systems and XFS, ext4, btrfs and f2fs.
    (0xff00, 0x5800),
    (0xff00, 0x6600),
    (0xff00, 0x9400),
    (0xff00, 0xf500),
];

/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX`: the kernel sends the owner of a descriptor any signal.
const OWNERS: &[u64] = &[8, 10, 15];

/// The calls, unusual for a server, that this one makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// It unmounts what it has mounted.
    pub unmounts: bool,
}

impl Calls {
    /// Gives up the calls in all present and future threads. They get no new privileges either.
    pub fn give_up(self) -> Result<()> {
        // Whether `clone3` makes a thread or a process depends on memory, which a filter cannot see. The error that the kernel
        // does not know the call makes the C library use `clone`, whose flags are visible.
        let newer = filter([(libc::SYS_clone3, Vec::new())], libc::ENOSYS)?;
        let all = filter(self.refused()?, libc::EPERM)?;
        for program in [newer, all] {
            seccompiler::apply_filter_all_threads(&program)?;
        }
        Ok(())
    }

    fn refused(self) -> Result<Vec<(i64, Vec<SeccompRule>)>> {
        let mut numbers = [PROCESSES, SOCKETS, NAMES, MACHINE, OLDER].concat();
        if !self.unmounts {
            numbers.push(libc::SYS_umount2);
        }
        let mut refused: Vec<_> = numbers.into_iter().map(|call| (call, Vec::new())).collect();
        let thread = libc::CLONE_THREAD as u64;
        refused.push((libc::SYS_clone, vec![masked(0, thread, 0)?]));
        // The C library sends signals to threads of its own process by this call: to give up a right in each, and to abort.
        let own = u64::from(std::process::id());
        let others = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?;
        refused.push((libc::SYS_tgkill, vec![SeccompRule::new(vec![others])?]));
        // A socket that was shut down could be connected anew by a message.
        let connects = libc::MSG_FASTOPEN as u64;
        for (call, flags) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            refused.push((call, vec![masked(flags, connects, connects)?]));
        }
        let owners = OWNERS.iter().map(|&command| masked(1, !0, command));
        refused.push((libc::SYS_fcntl, owners.collect::<Result<_>>()?));
        // A limit on the processor's time ends a process.
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
        refused.push((libc::SYS_prlimit64, vec![SeccompRule::new(vec![other])?]));
        let folder = libc::AT_REMOVEDIR as u64;
        refused.push((libc::SYS_unlinkat, vec![masked(2, folder, folder)?]));
        let controls = CONTROLS.iter().map(|&(mask, is)| masked(1, mask, is));
        refused.push((libc::SYS_ioctl, controls.collect::<Result<_>>()?));
        Ok(refused)
    }
}

/// Holds for calls with this value under a mask of an argument of 32 bits.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule> {
    let (word, is) = (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask));
    let condition = SeccompCondition::new(argument, word, is, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// A filter that answers these calls with an error. A call without rules is refused whatever its arguments.
fn filter(
    refused: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
    errno: i32,
) -> Result<BpfProgram> {
    let refused = refused.into_iter().flat_map(by_all_numbers);
    let rules: BTreeMap<_, _> = refused.chain(of_short_programs()).collect();
    let machine = std::env::consts::ARCH;
    let machine = machine.try_into().with_context(|| machine.to_owned())?;
    let error = SeccompAction::Errno(errno.unsigned_abs());
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, error, machine)?.try_into()?)
}

/// Some kernels have a second number for each call, for programs with short pointers.
const SHORT: i64 = 0x4000_0000;

/// And third ones, for calls that such programs make differently: among them `execve`, `ptrace` and `ioctl`. None of ours is one.
fn of_short_programs() -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    let numbers = match cfg!(target_arch = "x86_64") {
        true => 512..548,
        false => 0..0,
    };
    numbers.map(|call| (call | SHORT, Vec::new()))
}

fn by_all_numbers((call, rules): (i64, Vec<SeccompRule>)) -> Vec<(i64, Vec<SeccompRule>)> {
    let mut all = vec![(call, rules.clone())];
    if cfg!(target_arch = "x86_64") {
        all.push((call | SHORT, rules));
    }
    all
}
