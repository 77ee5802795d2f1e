//! The page cache between a file and its medium: whether reads bypass it, and how to empty it.
//!
//! After a failed sync, Linux considers the pages clean: reads return what was written, the next sync succeeds, and none of it is on the
//! medium. So code that relies on its reads when it opens a volume either bypasses the cache or drops it first.

use crate::status::status;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread::sleep;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;

/// File systems that have nothing below their page cache.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// File systems with an additional cache of their own: ZFS and ecryptfs.
const ZFS_MAGIC: u64 = 0x2fc1_2fc1;
const ECRYPTFS_MAGIC: u64 = 0xf15f;

/// Overlayfs, whose files have their pages in another file.
const OVERLAY_MAGIC: u64 = 0x794c_7630;

/// From asm-generic/unistd.h; the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// How often to retry dropping pages that are briefly in use, and the pause between tries.
const DROPS: u32 = 20;
const DROP_PAUSE: Duration = Duration::from_millis(25);

/// Bytes of a file that are examined in one step.
const MINCORE_BYTES: u64 = 1 << 30;

/// The kernel's number for a file's file system; 0 if unknown.
fn kind_of_file_system(file: &File) -> u64 {
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a system call on an open descriptor; the structure is plain numbers and outlives the call.
    unsafe {
        libc::fstatfs(file.as_raw_fd(), stat.as_mut_ptr());
        #[allow(
            clippy::cast_sign_loss,
            clippy::unnecessary_cast,
            reason = "its type differs by system"
        )]
        let magic = stat.assume_init().f_type as u64;
        magic & 0xffff_ffff
    }
}

/// True if a file opened with `O_DIRECT` *certainly* bypasses the page cache. A file system may accept the flag and still use the
/// cache (ext4 under `data=journal`, encrypted files). If the kernel does not report it, reading block `probe` decides.
pub(crate) fn is_direct(file: &File, probe: impl FnOnce() -> io::Result<()>) -> bool {
    if file
        .metadata()
        .is_ok_and(|meta| meta.file_type().is_block_device())
    {
        return true;
    }
    match tells_direct(file) {
        Some(direct) => direct,
        None if [TMPFS_MAGIC, RAMFS_MAGIC, ZFS_MAGIC, ECRYPTFS_MAGIC]
            .contains(&kind_of_file_system(file)) =>
        {
            false
        }
        // A read through the cache leaves its page there.
        None => {
            let _ = sync(file);
            drop_pages(file).is_ok() && probe().is_ok() && is_cached(file) == Some(false)
        }
    }
}

/// What the kernel reports about direct I/O to a file (6.1 and newer, most file systems).
pub(crate) fn tells_direct(file: &File) -> Option<bool> {
    let stat = status(file.as_raw_fd(), 0, libc::STATX_DIOALIGN)?;
    let told = stat.stx_mask & libc::STATX_DIOALIGN != 0;
    told.then_some(stat.stx_dio_mem_align != 0 && stat.stx_dio_offset_align as usize <= BLOCK_BYTES)
}

/// Makes reads of a file through the page cache return what its medium has: syncs it, drops its pages, and checks that they are gone.
///
/// # Errors
/// If it cannot be synced, or if pages stay. Data that an earlier sync could not write is lost, but that is not an
/// error here: reads will show it.
pub(crate) fn drop_cache(file: &File) -> io::Result<()> {
    sync_now(file)?;
    // The node of a device is in a file system of that kind, too. Its pages are not.
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    if is_file && matches!(kind_of_file_system(file), TMPFS_MAGIC | RAMFS_MAGIC) {
        return Ok(());
    }
    for attempt in 0..DROPS {
        drop_pages(file)?;
        match is_cached(file) {
            Some(true) => {}
            Some(false) => return Ok(()),
            // Without permission to write the file this is unknown, but such a user relies on nothing that must last.
            None => return Ok(()),
        }
        if attempt + 1 < DROPS {
            sleep(DROP_PAUSE);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "pages of it stay in the page cache, and may hold what a failed sync has lost; another program has \
         it mapped or is reading it (`fuser -v` names it): end that and try again",
    ))
}

/// Syncs a file, whatever an earlier sync could not write.
///
/// # Errors
/// If it cannot be synced now.
pub(crate) fn sync_now(file: &File) -> io::Result<()> {
    // The kernel reports an earlier error once, to the next caller of sync. It reports a persistent error again.
    sync(file).or_else(|_| sync(file))
}

fn sync(file: &File) -> io::Result<()> {
    loop {
        // SAFETY: a system call on an open descriptor.
        if unsafe { libc::fdatasync(file.as_raw_fd()) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn drop_pages(file: &File) -> io::Result<()> {
    // SAFETY: a system call on an open descriptor.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// True if the page cache has pages of a file; `None` if unknown.
fn is_cached(file: &File) -> Option<bool> {
    match kind_of_file_system(file) {
        OVERLAY_MAGIC => is_mapped_in(file),
        _ => counts_pages(file).or_else(|| is_mapped_in(file)),
    }
}

/// Uses cachestat (Linux 6.5).
fn counts_pages(file: &File) -> Option<bool> {
    let range = [0u64; 2];
    let mut counts = [0u64; 5];
    // SAFETY: a system call on an open descriptor; the arrays are as long as the kernel's structures, and outlive it.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    (result == 0).then_some(counts[0] > 0)
}

/// Uses mincore. It reports every page as present to a user who may not write the file.
fn is_mapped_in(file: &File) -> Option<bool> {
    let meta = file.metadata().ok()?;
    // SAFETY: a system call without arguments.
    let user = unsafe { libc::geteuid() };
    if user != 0 && user != meta.uid() {
        return None;
    }
    let bytes = if meta.is_file() {
        meta.len()
    } else {
        end(file)?
    };
    let mut at = 0;
    while at < bytes {
        let part = MINCORE_BYTES.min(bytes - at);
        if has_pages(file, at, usize::try_from(part).ok()?)? {
            return Some(true);
        }
        at += part;
    }
    Some(false)
}

fn end(mut file: &File) -> Option<u64> {
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::End(0)).ok()
}

fn has_pages(file: &File, at: u64, bytes: usize) -> Option<bool> {
    let mut pages = vec![0u8; bytes.div_ceil(BLOCK_BYTES)];
    // SAFETY: a mapping of our own that is never read through and ends here; `pages` has a byte for each of its
    // pages, or more if pages are larger.
    unsafe {
        let (fd, at) = (file.as_raw_fd(), libc::off_t::try_from(at).ok()?);
        let memory = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED,
            fd,
            at,
        );
        if memory == libc::MAP_FAILED {
            return None;
        }
        let result = libc::mincore(memory, bytes, pages.as_mut_ptr().cast());
        libc::munmap(memory, bytes);
        (result == 0).then(|| pages.iter().any(|page| page & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn filled() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 64 * BLOCK_BYTES]).unwrap();
        file
    }

    #[test]
    fn pages_are_dropped_and_seen_to_be() {
        let file = filled();
        if matches!(kind_of_file_system(&file), TMPFS_MAGIC | RAMFS_MAGIC) {
            return;
        }
        assert_eq!(is_mapped_in(&file), Some(true));
        assert_ne!(counts_pages(&file), Some(false));
        drop_cache(&file).unwrap();
        assert_eq!(is_mapped_in(&file), Some(false));
        assert_ne!(counts_pages(&file), Some(true));
    }

    #[test]
    fn pages_that_another_process_has_mapped_are_an_error() {
        let file = filled();
        if matches!(kind_of_file_system(&file), TMPFS_MAGIC | RAMFS_MAGIC) {
            return;
        }
        // SAFETY: a mapping of our own, read once and unmapped below.
        let (memory, _byte) = unsafe {
            let (bytes, shared) = (BLOCK_BYTES, libc::MAP_SHARED);
            let memory = libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                shared,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            (memory, memory.cast::<u8>().read_volatile())
        };
        let error = drop_cache(&file).unwrap_err();
        assert!(error.to_string().contains("mapped"), "{error}");
        // SAFETY: as above.
        unsafe { libc::munmap(memory, BLOCK_BYTES) };
        drop_cache(&file).unwrap();
    }

    #[test]
    fn a_file_in_memory_has_nothing_below_its_pages() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return;
        };
        if kind_of_file_system(&file) == TMPFS_MAGIC {
            (&file).write_all(&[7; BLOCK_BYTES]).unwrap();
            drop_cache(&file).unwrap();
            assert!(!is_direct(&file, || Ok(())));
        }
    }
}
