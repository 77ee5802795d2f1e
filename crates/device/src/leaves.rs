//! Reads leaves that are not in memory, for the core.

use parking_lot::Mutex;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::state::Nodes;
use vellum_medium::Medium;

/// Blocks that are read at once while a volume is opened: leaves are adjacent, and are requested in order.
const AHEAD: u64 = 64;

/// A medium's leaves.
pub(crate) struct Leaves {
    medium: Arc<dyn Medium>,
    /// What was read ahead; `None` once the volume is open, because it may be overwritten then.
    ahead: Mutex<Option<Ahead>>,
}

#[derive(Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
}

impl Leaves {
    /// The leaves of a volume that is about to be opened.
    pub fn of(medium: &Arc<dyn Medium>) -> Arc<Self> {
        Arc::new(Self {
            medium: Arc::clone(medium),
            ahead: Mutex::new(Some(Ahead::default())),
        })
    }

    /// From now on each leaf is read when it is requested.
    pub fn opened(&self) {
        *self.ahead.lock() = None;
    }
}

impl Ahead {
    /// Returns the block at `at`; reads it and the blocks after it if it is not there yet.
    fn block(&mut self, medium: &dyn Medium, at: u64) -> Option<&[u8]> {
        let holds = |ahead: &Self| {
            let blocks = (ahead.bytes.len() / BLOCK_BYTES) as u64;
            (ahead.start..ahead.start + blocks).contains(&at)
        };
        if !holds(self) {
            let blocks = AHEAD.min(medium.blocks().saturating_sub(at));
            self.bytes.resize(blocks as usize * BLOCK_BYTES, 0);
            self.start = at;
            if medium.read(Pba(at), &mut self.bytes).is_err() {
                self.bytes.clear();
            }
        }
        let from = (at - self.start) as usize * BLOCK_BYTES;
        self.bytes.get(from..from + BLOCK_BYTES)
    }
}

impl Nodes for Leaves {
    fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool {
        if let Some(ahead) = self.ahead.lock().as_mut()
            && let Some(bytes) = ahead.block(&*self.medium, at.0)
        {
            block.copy_from_slice(bytes);
            return true;
        }
        // A bad block among those read ahead does no harm.
        self.medium.read(at, block).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_medium::MemoryMedium;

    #[test]
    fn overwritten_blocks_are_read_anew_once_the_volume_is_open() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(100));
        let write = |at, byte| medium.write(Pba(at), &[byte; BLOCK_BYTES]).unwrap();
        (0..100).for_each(|at| write(at, at as u8));
        let leaves = Leaves::of(&medium);
        let read = |at| {
            let mut block = [0; BLOCK_BYTES];
            leaves.read(Pba(at), &mut block).then_some(block[7])
        };
        for at in [0, 1, 99, 3, 64, 98] {
            assert_eq!(read(at), Some(at as u8));
        }
        assert_eq!(read(100), None);
        write(98, 200);
        leaves.opened();
        assert_eq!((read(98), read(99), read(100)), (Some(200), Some(99), None));
    }
}
