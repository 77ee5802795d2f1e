//! The layout of a volume after its medium has become shorter.
//!
//! Segments end earlier, and the last mirror moves to the new end. If roots and leaves lie behind the segments, because the volume has
//! grown, they move to the new end as well. Leaves keep their numbers, and tables keep their lengths, so nothing else changes.

use super::areas::Layout;
use super::geometry::{GeometryError, THIN_LIMIT, leaf_counts};
use super::superblock::{Superblock, segment_area};
use crate::limits::COLLECTOR_SEGMENTS;

/// A volume has at least so many segments.
const LEAST_SEGMENTS: usize = COLLECTOR_SEGMENTS + 7;

/// Lays out the volume on the first `medium_blocks` of its medium. What its segments hold is not looked at.
///
/// Roots and leaves of the result overlap nothing that the volume has on the medium now, except segments that it gives up.
///
/// # Errors
/// If the medium would not be shorter, if it would be too short, or if the volume cannot move its roots and leaves.
pub fn shortened(volume: &Superblock, medium_blocks: u64) -> Result<Superblock, GeometryError> {
    if volume.layout != Layout::Log {
        return Err(GeometryError::Fixed(volume.layout.name()));
    }
    // Its only root would have no second copy.
    if volume.leaves.parities == 0 {
        return Err(GeometryError::WithoutCopies);
    }
    let before = volume.medium_blocks;
    if medium_blocks >= before {
        return Err(GeometryError::Lengthens {
            blocks: medium_blocks,
            before,
        });
    }
    let behind = behind(volume);
    // New roots and leaves are written while the old ones are still needed.
    if behind > 0 && medium_blocks > volume.roots {
        return Err(GeometryError::InTheWay {
            blocks: medium_blocks,
            most: volume.roots,
        });
    }
    let segments = volume.segments;
    let end = medium_blocks.saturating_sub(1 + behind);
    let room = end.saturating_sub(segments.first().0) / u64::from(segments.blocks());
    if room < LEAST_SEGMENTS as u64 {
        return Err(GeometryError::TooSmall {
            blocks: medium_blocks,
            least: LEAST_SEGMENTS,
            segment_blocks: segments.blocks(),
        });
    }
    let limit = medium_blocks.saturating_mul(THIN_LIMIT);
    if volume.logical_blocks() > limit {
        return Err(GeometryError::TooThin {
            logical: volume.logical_blocks(),
            limit,
        });
    }
    let count = room.min(segments.count().into()) as u32;
    let mut next = volume.clone();
    next.medium_blocks = medium_blocks;
    next.segments = segment_area(segments.first().0, segments.blocks(), count);
    if behind > 0 {
        next.roots = end;
        next.map_area = end + (volume.map_area - volume.roots);
    }
    let needed = leaf_counts(medium_blocks, volume.mapped_blocks(), true);
    next.features.long_tables = needed.with_tables_of(&volume.leaves) != needed;
    debug_assert!(next.validate().is_ok());
    Ok(next)
}

/// The blocks of roots, leaves and copies that lie behind the segments.
fn behind(volume: &Superblock) -> u64 {
    match volume.features.moved {
        true => volume.medium_blocks - 1 - volume.roots,
        false => 0,
    }
}

/// The shortest medium on which the volume has so many segments, and no fewer than any volume has.
#[must_use]
pub fn medium_with(volume: &Superblock, segments: u32) -> u64 {
    let count = u64::from(segments).max(LEAST_SEGMENTS as u64);
    let blocks = u64::from(volume.segment_blocks());
    let thin = volume.logical_blocks().div_ceil(THIN_LIMIT);
    let end = volume.segments.first().0 + count * blocks;
    (end + behind(volume) + 1).max(thin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{BLOCK_BYTES, Generation, Leaf};
    use crate::format::SumKind;
    use crate::format::geometry::{Params, SMALL, plan, plan_tables};
    use crate::format::grown::grown;
    use crate::format::shrunk::ended_at;
    use crc32c::crc32c as crc;

    const PARAMS: Params = Params {
        medium_blocks: 40_000,
        logical_blocks: Some(10_000),
        segment_blocks: None,
        ..SMALL
    };

    #[test]
    fn segments_end_earlier_and_the_map_stays_where_it_is() {
        let volume = plan(&PARAMS).unwrap();
        for blocks in [39_999, 30_000, 20_000] {
            let next = shortened(&volume, blocks).unwrap();
            assert_eq!(next.validate(), Ok(()));
            assert_eq!(next.segments().first(), volume.segments().first());
            assert!(next.segments().end() < blocks);
            assert_eq!(
                next.leaf_slot(Leaf(0), 0),
                volume.leaf_slot(Leaf(0), 0),
                "nothing moves"
            );
            assert_eq!(next.leaves(), volume.leaves());
            let mut block = [0; BLOCK_BYTES];
            next.encode(crc, &mut block);
            assert_eq!(Superblock::decode(&block, blocks, crc).as_ref(), Ok(&next));
            assert_eq!(
                next.unknown_to_write(),
                None,
                "this program may write what it has shortened"
            );
        }
    }

    #[test]
    fn a_grown_volume_moves_what_leads_to_its_data_and_overwrites_none_of_it() {
        let volume = grown(&plan(&PARAMS).unwrap(), 90_000, Some(10_000)).unwrap();
        let old = volume.root_place(Generation(0)).0..volume.medium_blocks();
        for blocks in [old.start, 60_000, 30_000] {
            let next = shortened(&volume, blocks).unwrap();
            assert_eq!(next.validate(), Ok(()));
            let new = next.root_place(Generation(0)).0..next.medium_blocks();
            assert!(next.segments().end() <= new.start && new.end <= old.start);
            assert_eq!(new.end - new.start, old.end - old.start);
            assert_eq!(
                next.leaf_slot(Leaf(3), 1).0 - new.start,
                volume.leaf_slot(Leaf(3), 1).0 - old.start
            );
        }
        assert_eq!(
            shortened(&volume, old.start + 1),
            Err(GeometryError::InTheWay {
                blocks: old.start + 1,
                most: old.start
            })
        );
    }

    #[test]
    fn a_shortened_volume_grows_and_keeps_the_leaves_of_its_tables() {
        let volume = plan(&PARAMS).unwrap();
        let small = shortened(&volume, 15_000).unwrap();
        let next = grown(&small, 25_000, Some(12_000)).unwrap();
        assert_eq!(next.validate(), Ok(()));
        assert_eq!(next.shared_leaves(), volume.shared_leaves());
        assert!(next.features.long_tables);
        // With as much as it had before, it is an ordinary volume again.
        let next = grown(&small, 60_000, None).unwrap();
        assert!(next.shared_leaves() > volume.shared_leaves());
        assert!(!next.features.long_tables);
    }

    #[test]
    fn the_least_medium_is_enough_and_one_block_less_is_not() {
        for volume in [
            plan(&PARAMS).unwrap(),
            grown(&plan(&PARAMS).unwrap(), 90_000, Some(10_000)).unwrap(),
            ended_at(&plan(&PARAMS).unwrap(), 5000).unwrap(),
        ] {
            for segments in [0, 12, 40] {
                let least = medium_with(&volume, segments);
                let next = shortened(&volume, least).unwrap();
                assert_eq!(next.segment_count(), segments.max(10));
                let less = shortened(&volume, least - 1);
                assert!(less.is_err() || less.unwrap().segment_count() < segments);
            }
        }
    }

    #[test]
    fn what_cannot_be_shorter_is_refused() {
        let volume = plan(&PARAMS).unwrap();
        for blocks in [40_000, u64::MAX] {
            let error = shortened(&volume, blocks).unwrap_err();
            assert!(matches!(error, GeometryError::Lengthens { .. }));
        }
        for blocks in [0, 1, 1000] {
            let error = shortened(&volume, blocks).unwrap_err();
            assert!(matches!(error, GeometryError::TooSmall { .. }), "{error}");
        }
        let thin = plan(&Params {
            logical_blocks: Some(600_000),
            ..PARAMS
        });
        let error = shortened(&thin.unwrap(), 30_000).unwrap_err();
        assert!(matches!(error, GeometryError::TooThin { .. }), "{error}");
        let old = plan(&Params {
            sums: SumKind::Crc32c,
            ..PARAMS
        });
        let error = shortened(&old.unwrap(), 30_000).unwrap_err();
        assert_eq!(error, GeometryError::WithoutCopies);
        let tables = plan_tables(&PARAMS, Layout::Ordered).unwrap();
        let error = shortened(&tables, 30_000).unwrap_err();
        assert_eq!(error, GeometryError::Fixed(Layout::Ordered.name()));
    }
}
