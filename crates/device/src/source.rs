//! What recovery and the checks read: a medium behind a window that reads ahead.

use crate::limits::{READ_AHEAD_BLOCKS_MAX, READ_AHEAD_BLOCKS_MIN};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::recovery::{Source, Unreadable};
use vellum_medium::{Medium, MediumError};

/// A medium as a [`Source`]. Reads that follow one another double the window; a jump makes it small again.
pub struct MediumSource<'a> {
    medium: &'a dyn Medium,
    window: Vec<u8>,
    start: u64,
    ahead: usize,
    read_blocks: u64,
    error: Option<MediumError>,
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
        let ahead = READ_AHEAD_BLOCKS_MIN;
        Self {
            medium,
            window: Vec::new(),
            start: 0,
            ahead,
            read_blocks: 0,
            error: None,
        }
    }

    /// Blocks read from the medium so far.
    #[must_use]
    pub fn read_blocks(&self) -> u64 {
        self.read_blocks
    }

    /// The last error of the medium, with what the core's own error leaves out.
    pub fn take_error(&mut self) -> Option<MediumError> {
        self.error.take()
    }

    fn window_end(&self) -> u64 {
        self.start + (self.window.len() / BLOCK_BYTES) as u64
    }

    fn load(&mut self, at: u64, blocks: usize) -> Result<(), MediumError> {
        self.window.resize(blocks * BLOCK_BYTES, 0);
        self.start = at;
        let result = self.medium.read(Pba(at), &mut self.window);
        if result.is_err() {
            self.window.clear();
        } else {
            self.read_blocks += blocks as u64;
        }
        result
    }

    fn fill(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), MediumError> {
        let blocks = bytes.len() / BLOCK_BYTES;
        if at < self.start || at + blocks as u64 > self.window_end() {
            let follows = at >= self.start && at <= self.window_end();
            self.ahead = if follows {
                (self.ahead * 2).min(READ_AHEAD_BLOCKS_MAX)
            } else {
                READ_AHEAD_BLOCKS_MIN
            };
            let left =
                usize::try_from(self.medium.blocks().saturating_sub(at)).unwrap_or(usize::MAX);
            let want = self.ahead.min(left);
            if blocks >= want {
                // No window for what is longer than one.
                self.window.clear();
                self.start = at + blocks as u64;
                self.read_blocks += blocks as u64;
                return self.medium.read(Pba(at), bytes);
            }
            // A bad block ahead must not fail a read that does not want it.
            if self.load(at, want).is_err() {
                self.load(at, blocks)?;
            }
        }
        let from = (at - self.start) as usize * BLOCK_BYTES;
        bytes.copy_from_slice(&self.window[from..from + bytes.len()]);
        Ok(())
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
}
