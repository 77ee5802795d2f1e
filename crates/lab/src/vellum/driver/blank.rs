//! The few blocks of a new volume that the engine opens.

use std::collections::BTreeMap;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::recovery::{Source, Unreadable};

/// The blocks by number; see the module.
pub(super) struct Blank(pub BTreeMap<u64, Box<[u8]>>);

impl Source for Blank {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        for (i, out) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            match self.0.get(&(at.0 + i as u64)) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}
