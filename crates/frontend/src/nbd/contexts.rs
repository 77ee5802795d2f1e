//! The state of blocks that a client can query: whether they are allocated (`base:allocation`), and whether they have changed
//! since a snapshot (`qemu:dirty-bitmap:NAME`, as QEMU and backup programs define it).

use super::export::Export;
use super::wire::{DIRTY, STATE_HOLE_ZERO};
use crate::changes::Since;
use crate::extents::extents;
use vellum_core::addr::Lba;
use vellum_device::block::Extent;

/// The most contexts chosen at once.
pub const CONTEXTS_MAX: usize = 4;

/// The prefix of contexts named after what they compare with.
pub const SINCE: &str = "qemu:dirty-bitmap:";

/// A chosen context. Its number on the wire is its index among the chosen ones, plus one.
#[derive(Clone)]
pub enum Context {
    /// `base:allocation`.
    Allocation,
    /// `qemu:dirty-bitmap:` of a point.
    Changed(Since),
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Allocation => "Allocation",
            Self::Changed(_) => "Changed",
        })
    }
}

impl Context {
    /// Runs of an export's blocks from `from` to `end`, each with its state. Neighbours may be alike.
    pub fn runs<'a>(
        &'a self,
        export: &'a Export,
        from: Lba,
        end: Lba,
    ) -> Box<dyn Iterator<Item = (u64, u32)> + 'a> {
        let state = move |extent: Extent| match (self, extent.mapped) {
            (Self::Allocation, true) | (Self::Changed(_), false) => 0,
            (Self::Allocation, false) => STATE_HOLE_ZERO,
            (Self::Changed(_), true) => DIRTY,
        };
        match self {
            Self::Allocation => {
                let device = export.device();
                let extents = extents(from, end, |lba, blocks, max| {
                    device.extents(lba, blocks, max)
                });
                Box::new(extents.map(move |extent| (extent.blocks, state(extent))))
            }
            Self::Changed(since) => {
                // Blocks with unknown state may have changed.
                let extents = extents(from, end, |lba, blocks, max| {
                    since(lba, blocks, max).unwrap_or_default()
                });
                Box::new(extents.map(move |extent| (extent.blocks, state(extent))))
            }
        }
    }
}
