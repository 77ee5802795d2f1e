//! What the kernel says of a file by `statx`, which tells more than the standard library's metadata.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;

/// The fields that are `wanted`; `how`: flags. None: the kernel does not say.
pub(crate) fn status(fd: RawFd, how: i32, wanted: u32) -> Option<libc::statx> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a system call on a descriptor that is open, the path is a string that ends; the structure is plain numbers,
    // and outlives the call.
    unsafe {
        let how = how | libc::AT_EMPTY_PATH;
        let done = libc::statx(fd, c"".as_ptr(), how, wanted, told.as_mut_ptr());
        (done == 0).then(|| told.assume_init())
    }
}
