//! Lengthens or shortens a medium while it is open.

use crate::error::MediumError;
use crate::target::{DiscardBy, Target};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::Ordering;
use vellum_core::addr::{BLOCK_BYTES, Pba};

impl Target {
    /// See [`Medium::lengthen`](crate::Medium::lengthen).
    pub(crate) fn lengthen(&self, blocks: u64) -> Result<(), MediumError> {
        let longer = self.longer(blocks);
        let longer = longer.map_err(|e| self.error("lengthening", Pba(self.blocks()), e))?;
        self.blocks.fetch_max(longer, Ordering::AcqRel);
        Ok(())
    }

    /// See [`Medium::shorten`](crate::Medium::shorten).
    pub(crate) fn shorten(&self, blocks: u64) -> Result<bool, MediumError> {
        let before = self.blocks();
        let shorter = self.shorter(blocks).inspect_err(|_| {
            self.blocks.store(before, Ordering::Release);
        });
        shorter.map_err(|e| self.error("shortening", Pba(blocks), e))
    }

    fn shorter(&self, blocks: u64) -> io::Result<bool> {
        if !self.file.metadata()?.is_file() {
            return Ok(false);
        }
        if blocks < self.blocks() {
            // If something else has cut the file off, that is not hidden.
            self.still_whole()?;
            // What is cut off is not missing.
            self.blocks.store(blocks, Ordering::Release);
            self.file.set_len(blocks * BLOCK_BYTES as u64)?;
        }
        self.file.sync_all()?;
        Ok(true)
    }

    /// Lengthens it if necessary, and returns its length in blocks.
    fn longer(&self, blocks: u64) -> io::Result<u64> {
        let meta = self.file.metadata()?;
        if meta.file_type().is_block_device() {
            // Nothing uses the file position that this moves.
            let bytes = (&self.file).seek(SeekFrom::End(0))?;
            return at_least(blocks, bytes);
        }
        if blocks <= self.blocks() {
            return Ok(self.blocks());
        }
        let bytes = blocks
            .checked_mul(BLOCK_BYTES as u64)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        // If the file was cut short, its missing bytes would read as zeros from then on.
        self.still_whole()?;
        if meta.len() < bytes {
            self.give_length(meta.len(), bytes)?;
        }
        self.file.sync_all()?;
        Ok(blocks)
    }

    fn give_length(&self, before: u64, bytes: u64) -> io::Result<()> {
        if self.discard != DiscardBy::Nothing {
            return self.file.set_len(bytes);
        }
        // The file has all its space allocated, so the new part is allocated now as well.
        let (from, length) = (before.cast_signed(), (bytes - before).cast_signed());
        // SAFETY: a system call on a descriptor that is open.
        let result = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, from, length) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // Give back what was allocated of it.
        self.file.set_len(before)?;
        Err(error)
    }
}

fn at_least(blocks: u64, bytes: u64) -> io::Result<u64> {
    let found = bytes / BLOCK_BYTES as u64;
    match found >= blocks {
        true => Ok(found),
        false => Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!(
                "the device has {bytes} bytes, and the volume would need {}: enlarge the device first, \
                 or give a smaller size",
                blocks.saturating_mul(BLOCK_BYTES as u64)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::{FileMedium, Medium, MemoryMedium, OpenOptions, Prealloc};
    use vellum_core::addr::{BLOCK_BYTES, Pba};

    #[test]
    fn a_file_becomes_longer_and_not_shorter() {
        for prealloc in [Prealloc::Sparse, Prealloc::Full] {
            let name = format!("vellum-lengthen-{}-{prealloc:?}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_file(&path);
            let medium = FileMedium::create(&path, 64 * BLOCK_BYTES as u64, prealloc).unwrap();
            let block = [7; BLOCK_BYTES];
            assert!(medium.write(Pba(64), &block).is_err());
            medium.lengthen(100).unwrap();
            medium.lengthen(80).unwrap();
            assert_eq!(medium.blocks(), 100);
            medium.write(Pba(99), &block).unwrap();
            assert!(medium.lengthen(u64::MAX).is_err());
            assert_eq!(medium.blocks(), 100);
            drop(medium);
            let medium = FileMedium::open(&path, OpenOptions::default()).unwrap();
            assert_eq!(medium.blocks(), 100);
            let mut read = [0; BLOCK_BYTES];
            medium.read(Pba(99), &mut read).unwrap();
            assert_eq!(read, block);
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_file_is_cut_off_and_nothing_calls_that_damage() {
        for prealloc in [Prealloc::Sparse, Prealloc::Full] {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = folder.path().join("medium");
            let medium = FileMedium::create(&path, 64 * BLOCK_BYTES as u64, prealloc).unwrap();
            let block = [7; BLOCK_BYTES];
            medium.write(Pba(9), &block).unwrap();
            assert!(medium.shorten(10).unwrap());
            assert!(medium.shorten(20).unwrap(), "it is shorter already");
            assert_eq!(medium.blocks(), 10);
            assert_eq!(
                std::fs::metadata(&path).unwrap().len(),
                10 * BLOCK_BYTES as u64
            );
            assert!(medium.write(Pba(10), &block).is_err());
            medium.write(Pba(9), &block).unwrap();
            medium.sync().unwrap();
            assert_eq!(medium.lost().missing_bytes, 0);
            // Cut off by somebody else.
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(4 * BLOCK_BYTES as u64).unwrap();
            assert!(medium.shorten(6).is_err());
            assert_eq!(medium.blocks(), 10);
        }
        assert!(!MemoryMedium::new(8).shorten(4).unwrap());
    }

    #[test]
    fn a_medium_that_cannot_be_lengthened_is_an_error() {
        let medium = MemoryMedium::new(8);
        medium.lengthen(8).unwrap();
        assert!(medium.lengthen(9).is_err());
    }
}
