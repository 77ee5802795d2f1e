//! The layout of a volume after it has shrunk, or has grown again up to where it ended before.
//!
//! Nothing moves. Clients see fewer blocks, and the rest of the map stays, with nothing in it. So shrinking needs no room, and
//! snapshots keep their LBAs.

use super::areas::Layout;
use super::geometry::GeometryError;
use super::superblock::Superblock;

/// The volume with another end: clients see `blocks` of the blocks that they have ever seen.
///
/// # Errors
/// When it is a volume of tables, when clients would see nothing, or more than there is.
pub fn ended_at(volume: &Superblock, blocks: u64) -> Result<Superblock, GeometryError> {
    if volume.layout != Layout::Log {
        return Err(GeometryError::Fixed(volume.layout.name()));
    }
    if blocks == 0 {
        return Err(GeometryError::Nothing);
    }
    if blocks > volume.addressed_blocks() {
        return Err(GeometryError::Grows {
            logical: blocks,
            before: volume.logical_blocks(),
        });
    }
    let mut next = volume.clone();
    next.end_at(blocks);
    debug_assert!(next.validate().is_ok());
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use crate::format::geometry::{Params, SMALL, plan_tables, plan_with_history};
    use crate::format::grown::grown;
    use crc32c::crc32c as crc;

    const PARAMS: Params = Params {
        medium_blocks: 20_000,
        logical_blocks: Some(10_000),
        segment_blocks: None,
        ..SMALL
    };

    #[test]
    fn only_the_end_that_clients_see_changes() {
        let volume = plan_with_history(&PARAMS, 100).unwrap();
        let mut block = [0; BLOCK_BYTES];
        for blocks in [1, 1023, 1024, 9_999] {
            let next = ended_at(&volume, blocks).unwrap();
            assert_eq!(next.logical_blocks(), blocks);
            assert_eq!(next.addressed_blocks(), 10_000);
            assert_eq!(next.history(), volume.history());
            assert_eq!(next.leaves(), volume.leaves());
            next.encode(crc, &mut block);
            assert_eq!(Superblock::decode(&block, 20_000, crc).as_ref(), Ok(&next));
            // Back at its old size, an older program may open it again.
            assert_eq!(ended_at(&next, 10_000).unwrap(), volume);
        }
    }

    #[test]
    fn an_end_that_cannot_be_is_refused() {
        let volume = plan_with_history(&PARAMS, 0).unwrap();
        assert_eq!(ended_at(&volume, 0), Err(GeometryError::Nothing));
        let grows = GeometryError::Grows {
            logical: 10_001,
            before: 10_000,
        };
        assert_eq!(ended_at(&volume, 10_001), Err(grows));
        for layout in [Layout::Ordered, Layout::Shadow] {
            let tables = plan_tables(&PARAMS, layout).unwrap();
            let error = ended_at(&tables, 1).unwrap_err();
            assert_eq!(error, GeometryError::Fixed(layout.name()));
        }
        // What a superblock says may be anything.
        let mut bad = volume;
        for blocks in [0, 10_000, u64::MAX] {
            bad.features.shrunk = Some(blocks);
            assert!(bad.validate().is_err(), "{blocks}");
        }
    }

    #[test]
    fn a_shrunk_volume_grows_to_more_than_it_ever_had_or_to_less() {
        let volume = plan_with_history(&PARAMS, 100).unwrap();
        let small = ended_at(&volume, 4_000).unwrap();
        // More room for what it has: clients see as much as before.
        for (asked, addressed) in [(4_000, 10_000), (6_000, 10_000), (12_000, 12_000)] {
            let next = grown(&small, 30_000, Some(asked)).unwrap();
            assert_eq!(next.logical_blocks(), asked);
            assert_eq!(next.addressed_blocks(), addressed);
            assert_eq!(next.validate(), Ok(()));
            let is_moved = next.history() != volume.history();
            assert_eq!(is_moved, asked == 12_000);
        }
        assert!(matches!(
            grown(&small, 30_000, Some(3_999)),
            Err(GeometryError::Shrinks { .. })
        ));
        // It was made smaller on purpose.
        let next = grown(&small, 30_000, None).unwrap();
        assert_eq!(next.logical_blocks(), 4_000);
    }
}
