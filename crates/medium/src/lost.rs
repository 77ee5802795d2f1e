//! Detects damage to an open file that reads and writes do not report: that it was deleted or truncated.
//!
//! A truncated file grows again as it is written, and the gap reads as zeros. A write makes it no longer than the write's own
//! end, so the file stays too short until its last block is written. It is therefore checked before that write, and after each
//! sync, which always detects a truncation.

use crate::error::is_no_room;
use crate::io::{Io, Kind};
use crate::status::status;
use crate::target::Target;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use vellum_core::addr::BLOCK_BYTES;

/// Damage to an open file; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// It has no name any more, and disappears when its server ends.
    pub is_deleted: bool,
    /// The number of bytes missing at its end.
    pub missing_bytes: u64,
}

impl Target {
    /// Returns its present state. `waits`: waits for a file server that does not answer.
    pub(crate) fn lost(&self, waits: bool) -> Option<Lost> {
        let how = match waits {
            true => 0,
            false => libc::AT_STATX_DONT_SYNC,
        };
        let wanted = libc::STATX_TYPE | libc::STATX_NLINK | libc::STATX_SIZE;
        let told = status(self.fd(), how, wanted)?;
        let is_file = u32::from(told.stx_mode) & libc::S_IFMT == libc::S_IFREG;
        let bytes = self.blocks() * BLOCK_BYTES as u64;
        Some(Lost {
            is_deleted: told.stx_nlink == 0,
            missing_bytes: match is_file {
                true => bytes.saturating_sub(told.stx_size),
                false => 0,
            },
        })
    }

    /// Makes "no room" on a block device that is gone, or became smaller, an error that is not worth retrying. The kernel returns
    /// it for everything past the end, and for a device that was pulled everything is past the end.
    pub(crate) fn not_of_the_end(&self, error: io::Error) -> io::Error {
        match is_no_room(&error) && self.is_device_shorter() {
            true => io::Error::new(
                io::ErrorKind::NotConnected,
                "the device is gone, or is smaller than it was: detach it, and attach it when it is back",
            ),
            false => error,
        }
    }

    fn is_device_shorter(&self) -> bool {
        let is_device = self
            .file
            .metadata()
            .map(|meta| meta.file_type().is_block_device());
        // Nothing uses the file position that this moves.
        let bytes = (&self.file).seek(SeekFrom::End(0));
        let is_shorter = |bytes: u64| bytes < self.blocks() * BLOCK_BYTES as u64;
        is_device.unwrap_or(false) && bytes.is_ok_and(is_shorter)
    }

    /// Checks the file before an operation that could hide a truncation.
    pub(crate) fn may_hide(&self, io: &Io) -> io::Result<()> {
        let writes = matches!(io.kind, Kind::Write { .. }) && !io.is_empty();
        match writes && io.at.plus(io.blocks()).0 == self.blocks() {
            true => self.still_whole(),
            false => Ok(()),
        }
    }

    /// Checks the file after an operation whose completion promises durability.
    pub(crate) fn may_promise(&self, kind: Kind) -> io::Result<()> {
        match kind {
            Kind::Sync | Kind::Write { durable: true } => self.still_whole(),
            _ => Ok(()),
        }
    }

    /// Fails if the file is shorter than it was.
    pub(crate) fn still_whole(&self) -> io::Result<()> {
        match self.lost(true).unwrap_or_default().missing_bytes {
            0 => Ok(()),
            missing => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "the file was cut short while it was in use: {missing} bytes at its end are lost. \
                     Do not write it any more: detach it, and take your backup"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileMedium, Medium, OpenOptions, Prealloc, Tuning};
    use std::fs::OpenOptions as File;
    use vellum_core::addr::Pba;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn done(medium: &FileMedium, kind: Kind, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut io = Io::new(0, kind, Pba(at));
        if kind != Kind::Sync {
            // SAFETY: a block of memory that is aligned and outlives the wait.
            unsafe { io.push(bytes.as_mut_ptr(), bytes.len()) };
        }
        let mut done = Vec::new();
        medium.submit(&mut vec![io]);
        while done.is_empty() {
            medium.wait(&mut done, None);
        }
        done.remove(0).result.map_err(|error| error.source)
    }

    #[test]
    fn a_file_that_was_cut_short_is_never_synced_again() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut bounce = crate::bounce::Bounce::new(BLOCK_BYTES);
        let (plain, durable) = (false, true);
        for engine in [Engine::Auto, Engine::Threads] {
            let path = folder.path().join(format!("{engine:?}"));
            FileMedium::create(&path, 64 * BLOCK, Prealloc::Sparse).unwrap();
            let tuning = Tuning {
                engine,
                ..Tuning::default()
            };
            let medium = FileMedium::open_tuned(&path, OpenOptions::default(), &tuning).unwrap();
            let mut go = |kind, at| done(&medium, kind, at, bounce.bytes());
            go(Kind::Write { durable }, 63).unwrap();
            go(Kind::Sync, 0).unwrap();
            assert_eq!(medium.lost(), Lost::default());
            let file = File::new().write(true).open(&path).unwrap();
            file.set_len(8 * BLOCK).unwrap();
            // The file grows again, but not to its old length.
            go(Kind::Write { durable: plain }, 40).unwrap();
            assert_eq!(medium.lost().missing_bytes, 23 * BLOCK);
            for (kind, at) in [
                (Kind::Write { durable: plain }, 63),
                (Kind::Write { durable }, 40),
                (Kind::Sync, 0),
            ] {
                let error = go(kind, at).unwrap_err();
                assert!(error.to_string().contains("cut short"), "{kind:?}: {error}");
            }
            assert!(medium.sync().is_err());
            assert!(medium.write(Pba(63), &[0; BLOCK_BYTES]).is_err());
            assert!(
                medium.write_zeros(Pba(60), 4).is_ok(),
                "zeroing makes no file longer"
            );
            assert!(
                medium.lengthen(80).is_err(),
                "lengthening would hide the truncation"
            );
            assert_eq!(medium.lost().missing_bytes, 23 * BLOCK);
            std::fs::remove_file(&path).unwrap();
            assert!(medium.lost().is_deleted);
        }
    }
}
