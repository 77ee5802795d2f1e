//! The mapped parts of a range, requested piece by piece: a device examines only so much at a time, so that others are not held up.

use vellum_core::addr::Lba;
use vellum_device::block::Extent;

/// Extents per request.
const PIECE: usize = 64;

/// The extents from block `from` to `end`. `told` returns them for a piece. Neighbours may be alike.
pub fn extents(
    from: Lba,
    end: Lba,
    told: impl Fn(Lba, u64, usize) -> Vec<Extent>,
) -> impl Iterator<Item = Extent> {
    let mut at = from.0;
    let mut piece = Vec::new().into_iter();
    std::iter::from_fn(move || {
        if let Some(extent) = piece.next() {
            return Some(extent);
        }
        let left = end.0.checked_sub(at).filter(|&left| left > 0)?;
        let found = told(Lba(at), left, PIECE);
        let covered: u64 = found.iter().map(|extent| extent.blocks).sum();
        if covered == 0 {
            // A device must return at least one extent. If it returns none, data is the safe answer.
            at = end.0;
            return Some(Extent {
                blocks: left,
                mapped: true,
            });
        }
        at = at.saturating_add(covered);
        piece = found.into_iter();
        piece.next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RamDisk;
    use vellum_device::block::BlockDevice;

    #[test]
    fn goes_on_to_the_end_and_takes_unreported_blocks_for_data() {
        let disk = RamDisk::new(12, 1, 1);
        let told = |lba, blocks, max| disk.extents(lba, blocks, max);
        let seen: Vec<_> = extents(Lba(1), Lba(20), told)
            .map(|extent| (extent.blocks, extent.mapped))
            .collect();
        assert_eq!(seen, [(5, false), (5, false), (1, false), (8, true)]);
        assert_eq!(extents(Lba(3), Lba(3), told).count(), 0);
    }
}
