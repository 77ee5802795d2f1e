//! The medium that recovery and the checks read, through a few windows that read ahead.
//!
//! Recovery walks two heads of the log and the map's leaves in turn, each forward in steps. So there are a few windows. A read that
//! begins at a window's end, or shortly after it, lengthens that window, unless it was read in vain. Any other read begins a small
//! window in place of the one that has been idle longest.

use crate::limits::{
    READ_AHEAD_BLOCKS_MAX, READ_AHEAD_BLOCKS_MIN, READ_AHEAD_GAP, READ_AHEAD_WINDOWS,
};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::recovery::{Source, Unreadable};
use vellum_medium::{Medium, MediumError};

/// A medium as a [`Source`].
pub struct MediumSource<'a> {
    medium: &'a dyn Medium,
    /// The most recently used is the last.
    windows: Vec<Window>,
    read_blocks: u64,
    /// Whether this opening has dropped the medium's cache; it does so once.
    dropped: bool,
    error: Option<MediumError>,
}

struct Window {
    bytes: Vec<u8>,
    start: u64,
    ahead: usize,
    /// The end of what was asked for, in blocks from the start.
    used: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + (self.bytes.len() / BLOCK_BYTES) as u64
    }

    fn holds(&self, at: u64, blocks: u64) -> bool {
        self.start <= at && at.saturating_add(blocks) <= self.end()
    }

    /// True if a read at `at` looks like the next one in this window's sequence.
    fn leads_to(&self, at: u64) -> bool {
        self.start <= at && at <= self.end() + READ_AHEAD_GAP
    }

    /// The blocks to read at once where this window's sequence goes on. A window that was read in vain, but for its beginning, is no
    /// sequence: the first block of each segment may be read, and the next one begins where this one's window ends.
    fn longer(&self) -> usize {
        let in_vain = self.end() - self.start - self.used;
        match in_vain > READ_AHEAD_GAP {
            true => READ_AHEAD_BLOCKS_MIN,
            false => (self.ahead * 2).min(READ_AHEAD_BLOCKS_MAX),
        }
    }
}

impl std::fmt::Debug for MediumSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediumSource")
            .field("medium", &self.medium.name())
            .finish_non_exhaustive()
    }
}

impl<'a> MediumSource<'a> {
    /// Reads from `medium`.
    #[must_use]
    pub fn new(medium: &'a dyn Medium) -> Self {
        let window = || Window {
            bytes: Vec::new(),
            start: u64::MAX / 2,
            ahead: READ_AHEAD_BLOCKS_MIN,
            used: 0,
        };
        let windows = std::iter::repeat_with(window)
            .take(READ_AHEAD_WINDOWS)
            .collect();
        Self {
            medium,
            windows,
            read_blocks: 0,
            dropped: false,
            error: None,
        }
    }

    /// True if reads come from the medium, not from a cache above it.
    pub fn is_past_cache(&self) -> bool {
        self.dropped
    }

    /// Blocks read from the medium so far.
    #[must_use]
    pub fn read_blocks(&self) -> u64 {
        self.read_blocks
    }

    /// The medium's last error, with details that the core's own error leaves out.
    pub fn take_error(&mut self) -> Option<MediumError> {
        self.error.take()
    }

    fn fill(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        let blocks = bytes.len() / BLOCK_BYTES;
        let size = self.medium.blocks();
        // A read past the end gets its error from the medium.
        let left = usize::try_from(size.saturating_sub(at))
            .unwrap_or(usize::MAX)
            .max(blocks);
        let held = self
            .windows
            .iter()
            .position(|window| window.holds(at, blocks as u64));
        let index = held.or_else(|| self.windows.iter().position(|window| window.leads_to(at)));
        let mut window = self.windows.remove(index.unwrap_or(0));
        let result = if held.is_some() {
            Ok(())
        } else {
            window.ahead = match index {
                Some(_) => window.longer(),
                None => READ_AHEAD_BLOCKS_MIN,
            };
            window.start = at;
            window.used = 0;
            let want = window.ahead.max(blocks).min(left);
            // A bad block ahead must not fail a read that does not need it.
            self.load(&mut window, want).or_else(|error| {
                if want > blocks {
                    self.load(&mut window, blocks)
                } else {
                    Err(error)
                }
            })
        };
        if result.is_ok() {
            window.used = window.used.max(at + blocks as u64 - window.start);
            let from = (at - window.start) as usize * BLOCK_BYTES;
            bytes.copy_from_slice(&window.bytes[from..from + bytes.len()]);
        }
        self.windows.push(window);
        result
    }

    fn load(&mut self, window: &mut Window, blocks: usize) -> Result<(), MediumError> {
        window.bytes.resize(blocks * BLOCK_BYTES, 0);
        let result = self.medium.read(Pba(window.start), &mut window.bytes);
        match result {
            Ok(()) => self.read_blocks += blocks as u64,
            Err(_) => window.bytes.clear(),
        }
        result
    }
}

impl Source for MediumSource<'_> {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        self.fill(at.0, bytes).map_err(|error| {
            self.error = Some(error);
            Unreadable { at, blocks }
        })
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        if !self.dropped {
            self.medium.drop_cache().map_err(|error| {
                self.error = Some(error);
                let blocks = self.medium.blocks();
                Unreadable { at: Pba(0), blocks }
            })?;
            self.dropped = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_medium::{Fault, FaultMedium, MemoryMedium, Plan};

    fn medium(blocks: u64) -> MemoryMedium {
        let medium = MemoryMedium::new(blocks);
        for block in 0..blocks {
            medium
                .write(Pba(block), &[block as u8 ^ (block >> 8) as u8; BLOCK_BYTES])
                .unwrap();
        }
        medium
    }

    fn expect(source: &mut MediumSource<'_>, at: u64, blocks: usize) {
        let mut bytes = vec![0; blocks * BLOCK_BYTES];
        source.read(Pba(at), &mut bytes).unwrap();
        for (block, bytes) in (at..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            assert!(
                bytes
                    .iter()
                    .all(|&byte| byte == block as u8 ^ (block >> 8) as u8),
                "block {block}"
            );
        }
    }

    #[test]
    fn any_order_reads_what_is_there() {
        let medium = medium(2000);
        let mut source = MediumSource::new(&medium);
        let mut random = 1u64;
        for step in 0..4000u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let blocks = 1 + (random >> 60) as usize * ((random >> 50) as usize & 31);
            // Two that go forward in steps, and one that jumps.
            let at = match step % 3 {
                0 => step % 1500,
                1 => step * 7 % 1500,
                _ => (random >> 33) % 1500,
            };
            expect(&mut source, at, blocks.min(500));
        }
        expect(&mut source, 1999, 1);
        assert!(source.read(Pba(1999), &mut [0; 2 * BLOCK_BYTES]).is_err());
        assert!(source.take_error().is_some());
        assert!(
            source
                .read(Pba(u64::MAX - 5), &mut [0; BLOCK_BYTES])
                .is_err()
        );
    }

    #[test]
    fn steps_forward_take_few_reads() {
        let fault = FaultMedium::new(Box::new(medium(2000)), Plan::default());
        let mut source = MediumSource::new(&fault);
        for step in 0..100 {
            expect(&mut source, step * 3, 1);
            expect(&mut source, 1000 + step * 5, 1);
        }
        let reads = fault.stats().ios;
        assert!(reads < 30, "{reads}");
        assert!(source.read_blocks() < 1500, "{}", source.read_blocks());
    }

    #[test]
    fn places_at_equal_distances_are_not_read_through() {
        let medium = medium(20_000);
        let mut source = MediumSource::new(&medium);
        // First in sequence, so that a window is at its longest.
        for at in 0..1024 {
            expect(&mut source, at, 1);
        }
        let before = source.read_blocks();
        let apart = READ_AHEAD_BLOCKS_MAX as u64;
        for segment in 4..70 {
            expect(&mut source, segment * apart, 1);
        }
        let read = source.read_blocks() - before;
        assert!(read < 3 * apart, "{read}");
    }

    #[test]
    fn a_bad_block_ahead_is_not_in_the_way() {
        let plan = Plan::default().with_every(Fault::ReadError, 3..4);
        let fault = FaultMedium::new(Box::new(medium(100)), plan);
        let mut source = MediumSource::new(&fault);
        expect(&mut source, 1, 2);
        assert!(source.read(Pba(3), &mut [0; BLOCK_BYTES]).is_err());
        expect(&mut source, 4, 10);
    }
}
