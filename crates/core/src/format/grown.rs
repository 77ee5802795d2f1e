//! The layout of a volume after it has grown.
//!
//! Segments stay where they are, and continue into the new space. Roots, leaves and their copies need more room than before: they
//! move past the segments, to the new end. Their old place is not reused, so the first growth of a volume costs that space.

use super::areas::Layout;
use super::geometry::{GeometryError, THIN_LIMIT, leaf_counts};
use super::history;
use super::superblock::{Superblock, segment_area};
use crate::entry::MAX_PBA;
use crate::limits::{MAX_LOGICAL_BLOCKS, MAX_NARROW_BLOCKS};

/// Lays out the volume on a medium of `medium_blocks`. Clients see `logical_blocks` of it, or what its over-provisioning leaves,
/// but no less than now.
///
/// The grown volume's roots and leaves overlap nothing that the volume has on the medium now, so writing them does it no harm.
///
/// # Errors
/// When clients would see less, when the medium cannot hold it, or when it is a volume of tables.
pub fn grown(
    volume: &Superblock,
    medium_blocks: u64,
    logical_blocks: Option<u64>,
) -> Result<Superblock, GeometryError> {
    if volume.layout != Layout::Log {
        return Err(GeometryError::Fixed(volume.layout.name()));
    }
    // Its only root would have no second copy until the next map checkpoint.
    if volume.leaves.parities == 0 {
        return Err(GeometryError::WithoutCopies);
    }
    if medium_blocks > MAX_PBA {
        return Err(GeometryError::TooLarge {
            blocks: medium_blocks,
        });
    }
    let before = volume.logical_blocks();
    // Rows of snapshots are encoded in another way if LBAs have more than 32 bits, and growth does not write them anew.
    let has_narrow_rows = volume.kept_blocks > 0 && volume.addressed_blocks() <= MAX_NARROW_BLOCKS;
    let most = match has_narrow_rows {
        true => MAX_NARROW_BLOCKS,
        false => MAX_LOGICAL_BLOCKS,
    };
    let limit = medium_blocks.saturating_mul(THIN_LIMIT).min(most);
    // Without a size it takes all of the medium. One that has shrunk keeps its size: it was made smaller on purpose.
    let takes_all = logical_blocks.is_none() && volume.addressed_blocks() == before;
    let asked = match takes_all {
        true => medium_blocks.max(before),
        false => logical_blocks.unwrap_or(before),
    };
    if asked < before {
        return Err(GeometryError::Shrinks {
            logical: asked,
            before,
        });
    }
    if asked > limit {
        return Err(GeometryError::TooThin {
            logical: asked,
            limit,
        });
    }
    let mut grown = lay_out(volume, medium_blocks, asked)?;
    if takes_all {
        let over_provisioning = u64::from(volume.over_provisioning);
        let room = grown.capacity_blocks() * 1000 / (1000 + over_provisioning);
        grown = lay_out(volume, medium_blocks, room.max(before))?;
    }
    Ok(grown)
}

/// Lays it out for clients that see `logical` blocks. The map stays as large as it is, at least: a volume that has shrunk keeps its
/// snapshots where they are, if that is enough.
fn lay_out(
    volume: &Superblock,
    medium_blocks: u64,
    logical: u64,
) -> Result<Superblock, GeometryError> {
    let addressed = logical.max(volume.logical_blocks);
    let mut grown = volume.clone();
    grown.medium_blocks = medium_blocks;
    grown.logical_blocks = addressed;
    grown.end_at(logical);
    grown.kept_blocks = history::grown(volume.kept_blocks, volume.logical_blocks, addressed);
    let mapped = grown.mapped_blocks();
    let needed = leaf_counts(medium_blocks, mapped, volume.leaves.parities > 0);
    grown.leaves = needed.with_tables_of(&volume.leaves);
    grown.features.long_tables = grown.leaves != needed;
    let segments = volume.segments;
    // There are no more segments than would fit if nothing came behind them. Roots get room to say of each whether it is free.
    let room = medium_blocks.saturating_sub(segments.first().0);
    let most = (room / u64::from(segments.blocks())) as u32;
    let roots = 2 * u64::from(grown.root_blocks_with(most));
    (grown.roots, grown.map_area) = (0, roots);
    let behind = roots + 2 * u64::from(grown.leaves()) + 2 * grown.twin_blocks();
    // The last block of the old volume holds a superblock.
    let least = volume.medium_blocks + behind + 1;
    if medium_blocks < least {
        return Err(GeometryError::TooLittle {
            blocks: medium_blocks,
            least,
        });
    }
    grown.roots = medium_blocks - 1 - behind;
    grown.map_area = grown.roots + roots;
    let room = grown.roots - segments.first().0;
    let count = (room / u64::from(segments.blocks())) as u32;
    grown.segments = segment_area(segments.first().0, segments.blocks(), count);
    grown.features.moved = true;
    grown.resettle(volume);
    debug_assert!(grown.validate().is_ok());
    debug_assert!(count >= segments.count());
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{BLOCK_BYTES, Generation, Leaf};
    use crate::format::SumKind;
    use crate::format::geometry::{Params, SMALL, plan, plan_tables, plan_with_history};
    use crc32c::crc32c as crc;

    fn volume(medium_blocks: u64, sums: SumKind) -> Superblock {
        plan(&Params {
            medium_blocks,
            segment_blocks: None,
            sums,
            ..SMALL
        })
        .unwrap()
    }

    /// The blocks of the grown volume that are written before its superblocks.
    fn places(volume: &Superblock) -> impl Iterator<Item = u64> {
        let root = volume.root_place(Generation(0)).0;
        root..volume.mirrors()[1].0
    }

    #[test]
    fn room_for_snapshots_grows_as_the_volume_does() {
        for kept in [1, 20, 1000, 10_000] {
            let params = Params {
                medium_blocks: 75_000,
                logical_blocks: Some(65_536),
                over_provisioning: 100,
                segment_blocks: None,
                ..SMALL
            };
            let now = plan_with_history(&params, kept).unwrap();
            let next = grown(&now, 90_000, Some(76_800)).unwrap();
            assert_eq!(next.validate(), Ok(()), "{kept}");
            let before = now.history().kept() as f64 / 65_536.0;
            let share = next.history().kept() as f64 / 76_800.0;
            assert!(
                (share - before).abs() < 0.001,
                "{kept}: {share} after {before}"
            );
            // However large it is, the result is a valid volume, or an error.
            for blocks in [1 << 24, 1 << 28, MAX_PBA] {
                let next = grown(&now, blocks, None);
                assert!(
                    next.is_ok_and(|next| next.validate().is_ok()),
                    "{kept} {blocks}"
                );
            }
        }
    }

    #[test]
    fn grown_structures_overlap_nothing_of_the_old_volume() {
        let mut now = volume(20_000, SumKind::Xxh3);
        for medium_blocks in [20_600, 40_000, 41_000, 1_000_000] {
            let next = grown(&now, medium_blocks, None).unwrap();
            assert!(next.logical_blocks() > now.logical_blocks());
            assert_eq!(next.segments().first(), now.segments().first());
            assert!(next.segments().count() >= now.segments().count());
            assert!(places(&next).all(|at| at >= now.medium_blocks()));
            let last = next.leaf_slot(Leaf(next.leaves() - 1), 1);
            assert!(last < next.mirrors()[1]);
            assert!(next.segments().end() <= next.root_place(Generation(0)).0);
            now = next;
        }
    }

    #[test]
    fn a_grown_superblock_is_decoded_as_it_was_encoded() {
        let next = grown(&volume(20_000, SumKind::Xxh3), 50_000, Some(40_000)).unwrap();
        let mut block = [0; BLOCK_BYTES];
        next.encode(crc, &mut block);
        assert_eq!(Superblock::decode(&block, 50_000, crc), Ok(next));
    }

    #[test]
    fn a_volume_that_would_not_grow_is_refused() {
        let volume = volume(20_000, SumKind::Xxh3);
        let logical = volume.logical_blocks();
        let refused = |blocks, logical| grown(&volume, blocks, logical).unwrap_err();
        let is_little = |error| matches!(error, GeometryError::TooLittle { .. });
        assert!(is_little(refused(20_000, None)));
        assert!(is_little(refused(20_010, None)));
        assert!(is_little(refused(20_010, Some(logical + 1))));
        assert_eq!(
            refused(40_000, Some(logical - 1)),
            GeometryError::Shrinks {
                logical: logical - 1,
                before: logical
            }
        );
        // A thin volume takes more of its medium, and promises no more.
        assert!(grown(&volume, 40_000, Some(logical)).is_ok());
        assert!(matches!(
            refused(40_000, Some(u64::MAX)),
            GeometryError::TooThin { .. }
        ));
        assert!(matches!(
            refused(MAX_PBA + 1, None),
            GeometryError::TooLarge { .. }
        ));
    }

    #[test]
    fn a_volume_with_one_root_does_not_grow() {
        let volume = volume(20_000, SumKind::Crc32c);
        let error = grown(&volume, 40_000, None).unwrap_err();
        assert_eq!(error, GeometryError::WithoutCopies);
    }

    #[test]
    fn tables_stay_as_they_are() {
        let params = Params {
            medium_blocks: 20_000,
            segment_blocks: None,
            ..SMALL
        };
        for layout in [Layout::Ordered, Layout::Shadow] {
            let volume = plan_tables(&params, layout).unwrap();
            let error = grown(&volume, 40_000, None).unwrap_err();
            assert_eq!(error, GeometryError::Fixed(layout.name()));
        }
    }
}
