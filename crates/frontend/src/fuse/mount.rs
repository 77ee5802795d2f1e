//! The mount of a session on a folder that is held open, whatever its path leads to by now.

use crate::held::HeldFolder;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the table of mounts shows.
const SOURCE: &std::ffi::CStr = c"vellum";
const KIND: &std::ffi::CStr = c"fuse";

/// Mounts a session that serves `files`. Whoever may not mount does it by the library's helper, which has the rights of a user.
pub fn session<F: fuser::Filesystem>(
    files: F,
    held: &HeldFolder,
    config: fuser::Config,
) -> io::Result<fuser::Session<F>> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = OwnedFd::from(device?);
    match mount(&device, held) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            return fuser::Session::new(files, held.path(), &config);
        }
        mounted => mounted?,
    }
    let session = match held.is_at_its_path() {
        // The first message of the kernel is answered.
        true => fuser::Session::from_fd(files, device, config.acl, config),
        false => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "it was replaced meanwhile",
        )),
    };
    if session.is_err() {
        // By where it is now.
        held.current()
            .and_then(|now| umount(&now, libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW))?;
    }
    session
}

fn mount(device: &OwnedFd, held: &HeldFolder) -> io::Result<()> {
    // SAFETY: no preconditions.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let options = format!(
        "fd={},rootmode={:o},user_id={user},group_id={group}",
        device.as_raw_fd(),
        held.mode()?,
    );
    let (options, target) = (CString::new(options)?, c_path(&held.handle())?);
    let flags = libc::MS_NODEV | libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NOATIME;
    // SAFETY: C strings that outlive the call.
    let mounted = unsafe {
        libc::mount(
            SOURCE.as_ptr(),
            target.as_ptr(),
            KIND.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    match mounted {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Unmounts what is mounted on a folder.
pub fn umount(dir: &Path, flags: i32) -> io::Result<()> {
    let path = c_path(dir)?;
    // SAFETY: a valid C string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
