//! The interface of every medium.

use crate::error::MediumError;
use crate::io::{Done, Io};
use crate::lost::Lost;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// Blocks of zeros written at once.
const ZERO_BLOCKS: u64 = 256;

/// Stores blocks. Any thread may submit; one thread waits.
pub trait Medium: Send + Sync {
    /// Its name in messages, usually a path.
    fn name(&self) -> &str;
    /// The number of whole blocks it has.
    fn blocks(&self) -> u64;
    /// Makes it at least this many blocks long: lengthens a file, durably, or reads the size of a block
    /// device again. It may end up longer.
    ///
    /// # Errors
    /// If it cannot be that long.
    fn lengthen(&self, blocks: u64) -> Result<(), MediumError> {
        if self.blocks() >= blocks {
            return Ok(());
        }
        let unsupported = std::io::ErrorKind::Unsupported.into();
        let end = Pba(self.blocks());
        Err(MediumError::at(
            "lengthening",
            self.name(),
            end,
            unsupported,
        ))
    }
    /// Cuts a file off after this many blocks, durably. `false`: its length cannot be changed, such as that of a block device, and
    /// stays as it is.
    ///
    /// # Errors
    /// If it cannot be cut off.
    fn shorten(&self, _blocks: u64) -> Result<bool, MediumError> {
        Ok(false)
    }
    /// True if discards are worth sending.
    fn wants_discard(&self) -> bool;
    /// The fewest blocks that are worth a discard of their own.
    fn discard_blocks_min(&self) -> u32 {
        1
    }
    /// Queues operations and empties the vector; never blocks for the I/O itself.
    fn submit(&self, ios: &mut Vec<Box<Io>>);
    /// Does one operation now, on this thread. Gives it back if it can only be submitted.
    fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
        Err(io)
    }
    /// Appends completed operations to `done`. Waits for at least one, for `wake`, or for the time-out (`None`: forever).
    fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>);
    /// Makes a `wait` in progress, or the next one, return at once.
    fn wake(&self);
    /// Reads synchronously, for start-up and tools. `bytes` need not be aligned in memory; its length is whole blocks.
    fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError>;
    /// Writes synchronously, like `read`.
    fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError>;
    /// Zeros synchronously, like `write`, and without writing if the medium can. The old contents are never
    /// read again, whatever happens.
    fn write_zeros(&self, at: Pba, blocks: u64) -> Result<(), MediumError> {
        zeros_in_pieces(at, blocks, |at, zeros| self.write(at, zeros))
    }
    /// The first block at or after `at` that may not be zeros, as far as that is known without reading. It is used to skip
    /// holes, and it may lie past the end.
    fn next_data(&self, at: Pba) -> Pba {
        at
    }
    /// Makes every completed write durable, synchronously.
    fn sync(&self) -> Result<(), MediumError>;
    /// Makes every later read return what the medium has, not what a cache above it has: syncs, and drops the cache. Needed
    /// before opening a volume, because what a sync failed to write reads as written until then, and exists nowhere else.
    ///
    /// # Errors
    /// If it cannot be synced now, or if the cache cannot be dropped.
    fn drop_cache(&self) -> Result<(), MediumError>;
    /// Damage that reads and writes do not report. Never waits.
    fn lost(&self) -> Lost {
        Lost::default()
    }
}

/// Writes zeros piece by piece.
pub(crate) fn zeros_in_pieces(
    at: Pba,
    blocks: u64,
    write: impl Fn(Pba, &[u8]) -> Result<(), MediumError>,
) -> Result<(), MediumError> {
    let zeros = vec![0; blocks.min(ZERO_BLOCKS) as usize * BLOCK_BYTES];
    let mut done = 0;
    while done < blocks {
        let now = (blocks - done).min(ZERO_BLOCKS);
        write(at.plus(done), &zeros[..now as usize * BLOCK_BYTES])?;
        done += now;
    }
    Ok(())
}

macro_rules! forward {
    ($pointer:ident) => {
        impl<M: Medium + ?Sized> Medium for $pointer<M> {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn blocks(&self) -> u64 {
                (**self).blocks()
            }
            fn lengthen(&self, blocks: u64) -> Result<(), MediumError> {
                (**self).lengthen(blocks)
            }
            fn shorten(&self, blocks: u64) -> Result<bool, MediumError> {
                (**self).shorten(blocks)
            }
            fn wants_discard(&self) -> bool {
                (**self).wants_discard()
            }
            fn discard_blocks_min(&self) -> u32 {
                (**self).discard_blocks_min()
            }
            fn submit(&self, ios: &mut Vec<Box<Io>>) {
                (**self).submit(ios);
            }
            fn do_now(&self, io: Box<Io>) -> Result<Done, Box<Io>> {
                (**self).do_now(io)
            }
            fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
                (**self).wait(done, timeout);
            }
            fn wake(&self) {
                (**self).wake();
            }
            fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
                (**self).read(at, bytes)
            }
            fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
                (**self).write(at, bytes)
            }
            fn write_zeros(&self, at: Pba, blocks: u64) -> Result<(), MediumError> {
                (**self).write_zeros(at, blocks)
            }
            fn next_data(&self, at: Pba) -> Pba {
                (**self).next_data(at)
            }
            fn sync(&self) -> Result<(), MediumError> {
                (**self).sync()
            }
            fn drop_cache(&self) -> Result<(), MediumError> {
                (**self).drop_cache()
            }
            fn lost(&self) -> Lost {
                (**self).lost()
            }
        }
    };
}

forward!(Arc);
forward!(Box);
