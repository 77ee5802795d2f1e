//! Blocks as differences from what they replace (CSA-FS §3.2): which bases are known, and how large a trace or a model
//! says the difference is.
//!
//! As in the device: a block is worth keeping as a base when it replaces something; bases are kept by use; a delta is
//! at most half the size of its base; a copy in a journal replaces the copy before it, or else the block at home.
//! There are no bytes here, so a base is the number of its content.
//!
//! A trace has the size of a block's difference from the version before it, which may be a delta itself. The distance
//! to that delta's base is taken to be the sum of all differences since. What changed twice is counted twice, so the
//! distance is never underestimated.

use crate::content::Content;
use crate::sizes::{Sizes, told};
use lru::LruCache;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use vellum_core::addr::{BLOCK_BYTES, Buf};
use vellum_core::entry::PartId;
use vellum_core::seam::{Bucket, Packed};

/// Whether and where blocks are stored as differences from what they replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deltas {
    /// Not at all.
    #[default]
    Off,
    /// In pages with other small parts.
    Packed,
    /// In separate pages for each block group (CSA-FS §3.3).
    Log,
}

/// The size of a block that equals its base: a run of one zero.
const SAME: u16 = 2;
/// Blocks of a group in ext4 with blocks of 4 KiB.
const GROUP_BLOCKS: u64 = 32 << 10;
/// The bases that the device keeps: 16 MiB of them.
const BASES: NonZeroUsize = NonZeroUsize::MIN.saturating_add((16 << 20) / BLOCK_BYTES - 1);

/// A block that may be a base: its content, and the bytes it is stored in.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub content: Content,
    pub bytes: u16,
}

/// What was last written to a block, where a trace has differences.
pub(super) struct Version {
    pub content: Content,
    /// The part that it was stored as a difference from, and the size of that difference.
    pub since: Option<(u32, u16)>,
}

/// The bases of a volume.
pub(super) struct Bases {
    pub known: LruCache<u32, Known>,
    /// Never iterated: the order would be random.
    pub versions: HashMap<u64, Version>,
    /// For each buffer: the bytes its block is stored in, if the block is worth keeping as a base.
    pub wanted: Vec<u16>,
    /// Where deltas go.
    pub deltas: Deltas,
}

impl Bases {
    pub fn new(deltas: Deltas) -> Self {
        Self {
            deltas,
            known: LruCache::new(BASES),
            versions: HashMap::new(),
            wanted: Vec::new(),
        }
    }

    pub fn want(&mut self, buf: Buf, bytes: u16) {
        let index = buf.0 as usize;
        if index >= self.wanted.len() {
            self.wanted.resize(index + 1, 0);
        }
        self.wanted[index] = bytes;
    }

    /// The pages for the delta of a block with this home.
    fn bucket(&self, home: u64) -> Option<Bucket> {
        let group = (home / GROUP_BLOCKS) as u32;
        (self.deltas == Deltas::Log).then_some(Bucket(group))
    }

    /// A block as its difference from this base, if that is worth it. `changed`: the size of the difference from the
    /// version before, if the trace has it.
    pub fn delta(
        &self,
        (part, base): (PartId, Known),
        (lba, home): (u64, u64),
        content: Content,
        changed: Option<u16>,
        model: Option<Sizes>,
    ) -> Option<(PartId, Packed)> {
        let measured = changed.and_then(|changed| {
            let before = self.versions.get(&lba)?;
            match before.since {
                _ if before.content == base.content => Some(changed),
                Some((since, bytes)) if since == part.raw() => Some(bytes.saturating_add(changed)),
                _ => None,
            }
        });
        let bytes = measured.or_else(|| Some(model?.changed_bytes(base.content, content)))?;
        let packed = told(bytes.max(SAME))?;
        let packed = Packed {
            bucket: self.bucket(home),
            ..packed
        };
        (packed.len.get() <= base.bytes / 2).then_some((part, packed))
    }
}
