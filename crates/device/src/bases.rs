//! Bases: blocks that other blocks are stored as deltas against (CSA-FS §3.2). Their bytes are kept in a bounded memory.
//!
//! The core reports which block a part holds when it stores the part, and reports when it gives up the part's page. In between,
//! the block's bytes are kept here until more recently used bases push them out. So, under the volume's lock, the bytes here are
//! always those that are stored. A delta is made without the lock; before it is handed to the core, its base is checked again.
//!
//! A block is worth keeping if it replaces another one. A block written for the first time may never be written again, and an
//! installation would push out everything else. A copy in a journal replaces the copy before it, or else the block at its home
//! address, which the journal's preceding descriptor block names.

use crate::limits::BASES;
use lru::LruCache;
use std::sync::Arc;
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, Lba, Vba};
use vellum_core::entry::{MAX_PARTS, PartId};

/// A block that may be a base.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub bytes: Arc<Bytes>,
    /// The number of bytes it is stored in.
    pub len: u16,
}

/// The bases of a volume.
pub(crate) struct Bases {
    pub blocks: LruCache<u32, Base>,
    /// For each write frame: the number of bytes its block is stored in if it is worth keeping as a base, else 0.
    pub wanted: Vec<u16>,
    makes_deltas: bool,
}

/// What was found for a block that is about to be encoded.
#[derive(Clone, Debug)]
pub(crate) struct BaseLookup {
    pub base: Option<(PartId, Base)>,
    /// Where it belongs: its own address or, for a journal's copy, the address of the block it is a copy of.
    pub home: Lba,
    /// True if it replaces something; then it may be replaced again.
    pub replaces: bool,
    /// True if a journal presumably holds it already. It will not be stored, so encoding it would be wasted work.
    pub is_journaled: bool,
}

impl Bases {
    pub fn new() -> Self {
        Self {
            blocks: LruCache::new(BASES),
            wanted: Vec::new(),
            makes_deltas: false,
        }
    }

    /// Sets whether deltas are made. Returns true if that is a change.
    pub fn set_deltas(&mut self, on: bool) -> bool {
        if self.makes_deltas != on {
            // While they are off, the core does not report what it gives up.
            self.blocks.clear();
            self.wanted.clear();
        }
        std::mem::replace(&mut self.makes_deltas, on) != on
    }

    /// Notes that the core has stored a frame's block as this part.
    pub fn stored(&mut self, part: PartId, buf: Buf, block: &[u8]) {
        let len = self
            .wanted
            .get_mut(buf.0 as usize)
            .map_or(0, std::mem::take);
        match <&Bytes>::try_from(block) {
            // One copy and one allocation for a block that others will be small deltas of.
            Ok(bytes) if len > 0 => {
                let bytes = Arc::new(*bytes);
                self.blocks.put(part.raw(), Base { bytes, len });
            }
            _ => {
                self.blocks.pop(&part.raw());
            }
        }
    }

    /// Notes that the frame's block need not be kept once it is stored, unlike perhaps the block that the frame held before.
    pub fn unwanted(&mut self, buf: Buf) {
        if let Some(len) = self.wanted.get_mut(buf.0 as usize) {
            *len = 0;
        }
    }

    /// Forgets the parts of a page that the core has given up.
    pub fn given_up(&mut self, page: Vba) {
        if !self.blocks.is_empty() {
            for slot in 0..MAX_PARTS as u8 {
                self.blocks.pop(&PartId { page, slot }.raw());
            }
        }
    }

    /// True if a part is still the base that was found.
    pub fn is_as_found(&self, part: PartId, found: &Base) -> bool {
        let known = self.blocks.peek(&part.raw());
        known.is_some_and(|known| Arc::ptr_eq(&known.bytes, &found.bytes))
    }
}

const _: () = assert!(BASES.get() * BLOCK_BYTES <= 64 << 20);
