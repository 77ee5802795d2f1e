//! Protects a server that a block device of this machine depends on: when memory is short, the kernel must
//! neither wait for it nor kill it.

use crate::outcome::tell;
use crate::server_log::NOTE;

/// From linux/prctl.h.
const PR_SET_IO_FLUSHER: i32 = 57;
/// From linux/capability.h: with it the limit on locked memory does not apply.
const CAP_IPC_LOCK: u32 = 14;
/// Makes the kernel kill almost all other processes before this one when memory runs out.
const OOM_SCORE: &str = "-900";
/// Locked memory may be at most this fraction of the machine's when the server starts.
const LOCKED_PART: u64 = 4;

/// Tells the kernel that it may need us to free memory, so that our allocations do not wait for ourselves. This needs
/// CAP_SYS_RESOURCE; without it we serve all the same, with a warning for an attached volume.
pub fn flushes_for_others(is_attached: bool) {
    // SAFETY: no pointers.
    let done = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
    if done != 0 && is_attached {
        tell(format_args!(
            "{NOTE}the kernel does not take this server for one that frees memory (PR_SET_IO_FLUSHER: {}): \
             when memory is short, both may wait for each other. Give it CAP_SYS_RESOURCE",
            std::io::Error::last_os_error()
        ));
    }
}

/// For the server of an attached volume: keeps its present and future memory resident once used, and the process alive. If that
/// is not allowed, as in a container, it says so and serves all the same. `loses_rights`: it will not be root.
pub fn stays(is_attached: bool, loses_rights: bool) {
    let (true, Some(ours), Some(all)) = (is_attached, resident_bytes(), machine_bytes()) else {
        return;
    };
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    if ours > all / LOCKED_PART {
        tell(format_args!(
            "this server has {} MiB of memory, over a quarter of the machine's: it is not locked, and may \
             be slow when memory is short",
            ours >> 20
        ));
        return;
    }
    if let Err(why) = locks_all(loses_rights) {
        tell(format_args!(
            "{NOTE}this server's memory is not locked ({why}), and it may be slow when memory is short: \
             give it CAP_IPC_LOCK, or lift its limit on locked memory"
        ));
    }
}

/// Keeps the mounts of this process until its files are closed. Otherwise, when the last process of a mount namespace ends, the
/// kernel unmounts first. That unmount writes to one of our files, and would wait for an answer that never arrives.
pub fn keeps_its_mounts() {
    if let Ok(mounts) = std::fs::File::open("/proc/self/ns/mnt") {
        std::mem::forget(mounts);
    }
}

fn locks_all(loses_rights: bool) -> Result<(), String> {
    if !may_lock_all(loses_rights) {
        return Err("its limit on locked memory is in the way".to_owned());
    }
    // Pages are locked when first used: otherwise the stack of each thread would lock hundreds of MiB. SAFETY: no pointers.
    match unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// True if no limit applies to what we lock. With one, allocations would fail once it is reached, and the server would end.
fn may_lock_all(loses_rights: bool) -> bool {
    let no_limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit lives during the call.
    let is_lifted = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const no_limit) } == 0;
    is_lifted || (!loses_rights && has_capability(CAP_IPC_LOCK))
}

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask >> number & 1 == 1)
}

fn page_bytes() -> u64 {
    // SAFETY: no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_bytes())
}

fn machine_bytes() -> Option<u64> {
    // SAFETY: no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    Some(u64::try_from(pages).ok()? * page_bytes())
}
