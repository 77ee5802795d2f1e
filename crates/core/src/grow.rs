//! Growth of a log: everything besides its segments is rewritten at the new end of its medium.
//!
//! The new structures are written next to the existing ones, and the superblock after them. So a crash leaves the volume either as it was
//! or grown. The mirror at the new end decides: once it is durable, it is of a newer life than the first mirror. Until then the volume is
//! the old one, and blocks past its end mean nothing.
//!
//! The blocks of snapshots lie after the blocks that clients see, so they get other LBAs. Only the map shows that: rows name clients'
//! blocks, and name kept blocks by their places. Everything else on the medium still names the old LBAs, which may now be clients'
//! blocks: see [`Resettled`](crate::format::superblock::Resettled).

use crate::addr::{BLOCK_BYTES, Generation, Leaf, Pba};
use crate::format::geometry::GeometryError;
use crate::format::grown::grown;
use crate::format::root::{self, LeafSlot};
use crate::format::superblock::Superblock;
use crate::format::{Crc, leaf};
use crate::recovery::{Recovered, Source, Unreadable};
use crate::size::Size;
use alloc::{vec, vec::Vec};

/// Why a volume did not grow. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// Its geometry does not allow it.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The log has entries after the map checkpoint.
    #[error("the volume was not stopped in order: attach and detach it once, and try again")]
    NotStopped,
    /// The larger the volume, the fewer blocks its snapshots can keep, if it is so large that LBAs run short.
    #[error(
        "snapshots of a volume of that size can keep {}, and these keep more: \
         delete some first (`vellum snapshots VOLUME` lists them), or choose a smaller size",
        Size::of_blocks(*.0)
    )]
    SnapshotsKeepMore(u64),
}

/// A volume that is about to grow.
pub struct Growth {
    recovered: Recovered,
    grown: Superblock,
}

impl Growth {
    /// Plans the growth of a recovered volume onto a medium of `medium_blocks`. Clients will see `logical_blocks` of it, or what
    /// over-provisioning leaves.
    ///
    /// # Errors
    /// When it does not become larger, the medium cannot hold it, or it was not stopped cleanly.
    pub fn new(
        mut recovered: Recovered,
        medium_blocks: u64,
        logical_blocks: Option<u64>,
    ) -> Result<Self, GrowError> {
        let grown = grown(&recovered.superblock, medium_blocks, logical_blocks)?;
        if !recovered.was_stopped() {
            return Err(GrowError::NotStopped);
        }
        let (before, after) = (recovered.superblock.history(), grown.history());
        if !recovered.state.fits(&before, &after) {
            return Err(GrowError::SnapshotsKeepMore(after.kept()));
        }
        recovered.state.grow(&recovered.superblock, &grown);
        Ok(Self { recovered, grown })
    }

    /// Writes everything but the superblock, and overwrites nothing that the old volume needs. The caller syncs, and then writes the
    /// superblock.
    ///
    /// # Errors
    /// When something of the volume cannot be read.
    pub fn write(
        &self,
        source: &mut dyn Source,
        crc: Crc,
        write: &mut dyn FnMut(Pba, &[u8]),
    ) -> Result<(), Unreadable> {
        let (recovered, next) = (&self.recovered, &self.grown);
        Lead { recovered, next }.write(source, crc, write)
    }

    /// Returns the superblock of the grown volume, in a new life. The caller writes the last mirror, syncs, and then writes the
    /// first.
    #[must_use]
    pub fn finish(mut self) -> Superblock {
        self.grown.begin_life(self.recovered.log_end());
        self.grown.mark_root(self.recovered.root.generation);
        self.grown
    }
}

/// What leads to the data of a volume, to be written at its next place: roots, leaves, and their copies.
pub(crate) struct Lead<'a> {
    /// The volume as it is.
    pub recovered: &'a Recovered,
    /// Its next layout.
    pub next: &'a Superblock,
}

impl Lead<'_> {
    /// Writes all of it.
    ///
    /// # Errors
    /// When something of the volume cannot be read.
    pub fn write(
        &self,
        source: &mut dyn Source,
        crc: Crc,
        write: &mut dyn FnMut(Pba, &[u8]),
    ) -> Result<(), Unreadable> {
        let mut slots = vec![LeafSlot::Absent; self.next.leaves() as usize];
        for stripe in 0..self.next.stripes() {
            self.write_stripe(stripe, crc, &mut slots, write);
        }
        let mut root = vec![0; self.next.root_blocks() as usize * BLOCK_BYTES];
        let generation = self.recovered.root.generation;
        // Old contents here belong to no volume, or to another one.
        for at in self.next.root_copies(Generation(generation.0 ^ 1)) {
            write(at, &root);
        }
        let free = self.recovered.free_at_rest(self.next);
        let slots = slots.into_iter();
        root::encode_with(&self.recovered.root, slots, &free, crc, &mut root);
        write(self.next.root_place(generation), &root);
        if let Some(at) = self.next.root_twin(generation) {
            root.extend(self.open_summaries(source)?);
            write(at, &root);
        }
        Ok(())
    }

    fn write_stripe(
        &self,
        stripe: u32,
        crc: Crc,
        slots: &mut [LeafSlot],
        write: &mut dyn FnMut(Pba, &[u8]),
    ) {
        let mut block = [0; BLOCK_BYTES];
        let mut parity = [0; BLOCK_BYTES];
        let mut holds_any = false;
        let mut put = |leaf: Leaf, block: &[u8]| {
            slots[leaf.0 as usize] = LeafSlot::Slot0(leaf::checksum(leaf, block, crc));
            write(self.next.leaf_slot(leaf, 0), block);
        };
        for leaf in self.next.stripe(stripe) {
            let holds = self.recovered.state.encode_leaf(leaf, &mut block);
            if holds && (block != [0; BLOCK_BYTES] || self.tells_of_sharing(leaf)) {
                holds_any = true;
                leaf::add(&mut parity, &block);
                put(leaf, &block);
            }
        }
        if let Some(leaf) = self.next.parity(stripe)
            && holds_any
        {
            put(leaf, &parity);
        }
    }

    /// True if an empty leaf is kept because it shows that pages were shared once.
    fn tells_of_sharing(&self, leaf: Leaf) -> bool {
        leaf.0 == self.next.map_leaves() && self.recovered.has_shared()
    }

    /// Returns the open summaries, which follow the second copy of the root. Segments do not move, so these are unchanged.
    fn open_summaries(&self, source: &mut dyn Source) -> Result<Vec<u8>, Unreadable> {
        let volume = &self.recovered.superblock;
        let mut bytes = vec![0; 2 * volume.open_summary_blocks() as usize * BLOCK_BYTES];
        if let Some(at) = volume.open_summary(self.recovered.root.generation, 0) {
            source.read(at, &mut bytes)?;
        }
        Ok(bytes)
    }
}
