//! A medium in memory.

use std::collections::HashMap;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_core::recovery::{Source, Unreadable};

/// Blocks that were never written are zeros.
pub struct Disk {
    blocks: u64,
    pub written: HashMap<u64, Vec<u8>>,
}

impl Disk {
    pub fn new(blocks: u64) -> Self {
        let written = HashMap::new();
        Self { blocks, written }
    }

    pub fn put(&mut self, at: Pba, bytes: &[u8]) {
        for (at, block) in (at.0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            self.written.insert(at, block.to_vec());
        }
    }
}

impl Source for Disk {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        assert!(
            at.0 + blocks <= self.blocks,
            "a read of {blocks} blocks at {at}"
        );
        for (at, out) in (at.0..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            match self.written.get(&at) {
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
