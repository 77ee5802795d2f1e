//! Room in a file system.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Free bytes for anyone in the file system of a file or folder; `None` if the kernel does not say.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a valid C string and a structure that the call fills in.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut stat) == 0).then(|| stat.f_bavail * stat.f_frsize)
    }
}
