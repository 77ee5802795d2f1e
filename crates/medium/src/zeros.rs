//! Zeros that need not be written, and holes that need not be read.

use crate::error::MediumError;
use crate::io::{Io, Kind};
use crate::medium::zeros_in_pieces;
use crate::target::{HOLE, Target};
use std::os::fd::AsRawFd;
use vellum_core::addr::{BLOCK_BYTES, Pba};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Target {
    /// Zeros blocks: by the zeroing command of a block device, by a hole in a file, or by writing if neither exists. Unlike a
    /// discard, this guarantees what is read afterwards.
    pub(crate) fn write_zeros(&self, at: Pba, blocks: u64) -> Result<(), MediumError> {
        let check = Io::new(0, Kind::Discard { blocks }, at);
        self.check(&check)
            .map_err(|e| self.error("write of zeros", at, e))?;
        let (offset, length) = (at.byte_offset(), blocks * BLOCK);
        // SAFETY: a system call on an open descriptor.
        let result = unsafe {
            libc::fallocate(
                self.file.as_raw_fd(),
                HOLE,
                offset.cast_signed(),
                length.cast_signed(),
            )
        };
        if result == 0 || blocks == 0 {
            return Ok(());
        }
        zeros_in_pieces(at, blocks, |at, zeros| self.write(at, zeros))
    }

    /// The block of the first byte at or after `at` that is in no hole, or the end.
    pub(crate) fn next_data(&self, at: Pba) -> Pba {
        if at.0 >= self.blocks() {
            return at;
        }
        let offset = at.byte_offset().cast_signed();
        // SAFETY: as above. Nothing uses the file position that this moves.
        let found = unsafe { libc::lseek(self.file.as_raw_fd(), offset, libc::SEEK_DATA) };
        match u64::try_from(found) {
            Ok(found) => Pba(found / BLOCK).max(at),
            // Only a hole is left.
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => {
                Pba(self.blocks())
            }
            // The file system does not know.
            Err(_) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{FileMedium, Medium, Prealloc};
    use vellum_core::addr::{BLOCK_BYTES, Pba};

    #[test]
    fn holes_are_passed_over_and_zeros_are_read() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("m");
        let medium = FileMedium::create(&path, 4 << 20, Prealloc::Sparse).unwrap();
        medium.write(Pba(500), &[7; 2 * BLOCK_BYTES]).unwrap();
        // A file system may track larger pieces than a block. The first block was never written.
        assert!(medium.next_data(Pba(0)) > Pba(400) && medium.next_data(Pba(0)) <= Pba(500));
        assert_eq!(medium.next_data(Pba(501)), Pba(501));
        assert!(medium.next_data(Pba(600)) >= Pba(1024), "nothing is left");
        assert_eq!(medium.next_data(Pba(5000)), Pba(5000));
        medium.write_zeros(Pba(501), 300).unwrap();
        let mut bytes = [1; 2 * BLOCK_BYTES];
        medium.read(Pba(500), &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[BLOCK_BYTES]), (7, 0));
        assert!(medium.write_zeros(Pba(1000), 100).is_err(), "past its end");
    }
}
