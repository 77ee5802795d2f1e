//! The new size of a volume that grows: what its user requests, in blocks.

use crate::outcome::usage;
use crate::size::Size;
use anyhow::Result;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::entry::MAX_PBA;
use vellum_core::format::grown::grown;
use vellum_core::format::superblock::Superblock;
use vellum_device::NewSize;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The request, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrowRequest {
    /// What clients will see.
    pub size: Option<Size>,
    /// What it will take of its medium.
    pub medium_size: Option<Size>,
}

impl GrowRequest {
    /// Converts the request to blocks. A file is made as long as the size requires; a block device's length is fixed.
    pub fn of(self, volume: &Superblock, is_device: bool) -> Result<NewSize> {
        let blocks = |size: Option<Size>, flag: &str| match size {
            Some(Size(bytes)) if bytes == 0 || bytes % BLOCK != 0 => Err(usage(format!(
                "--{flag} {bytes}: it must be a multiple of {BLOCK} bytes, and not 0"
            ))),
            size => Ok(size.map(|size| size.0 / BLOCK)),
        };
        let logical_blocks = blocks(self.size, "size")?;
        let medium_blocks = blocks(self.medium_size, "medium-size")?;
        let before = volume.logical_blocks();
        let medium_blocks = match (medium_blocks, logical_blocks) {
            (Some(blocks), _) => Some(blocks),
            (None, _) if is_device => None,
            // It has shrunk before: its map has room for that still.
            (None, Some(logical))
                if (before + 1..=volume.addressed_blocks()).contains(&logical) =>
            {
                None
            }
            (None, Some(logical)) => Some(medium_for(volume, logical)?),
            (None, None) => {
                return Err(usage("say how large the volume shall be: --size 20G"));
            }
        };
        Ok(NewSize {
            medium_blocks,
            logical_blocks,
        })
    }
}

/// The length of the medium that lets clients see this much, with the volume's over-provisioning.
fn medium_for(volume: &Superblock, logical: u64) -> Result<u64> {
    let before = volume.logical_blocks();
    if logical <= before {
        let (asked, has) = (Size(logical.saturating_mul(BLOCK)), Size(before * BLOCK));
        let or = match logical < before {
            true => ": `vellum shrink` makes it smaller",
            false => "",
        };
        return Err(usage(format!(
            "--size {}: the volume has {} already{or}",
            asked.beside(has),
            has.beside(asked)
        )));
    }
    let fits = |blocks| grown(volume, blocks, None).is_ok_and(|v| v.logical_blocks() >= logical);
    let (mut low, mut high) = (volume.medium_blocks(), MAX_PBA);
    // Reports what is wrong if no length would do.
    grown(volume, high, None)?;
    if !fits(high) {
        return Err(usage(format!(
            "--size {}: with its spare room (its over-provisioning) it would take more than 8 TiB, \
             the most that a volume can take: give a smaller size",
            Size(logical.saturating_mul(BLOCK))
        )));
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match fits(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Ok(high)
}
