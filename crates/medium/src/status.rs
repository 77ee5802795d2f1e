//! File status through `statx`, which reports more than the standard library's metadata.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// Returns the `wanted` fields; `how` are flags. `None` if the call fails.
pub(crate) fn status(fd: RawFd, how: i32, wanted: u32) -> Option<libc::statx> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a system call on an open descriptor; the path is a terminated string; the structure is plain
    // numbers and outlives the call.
    unsafe {
        let how = how | libc::AT_EMPTY_PATH;
        let done = libc::statx(fd, c"".as_ptr(), how, wanted, told.as_mut_ptr());
        (done == 0).then(|| told.assume_init())
    }
}
