//! Strays: pages whose segment's summary does not name their owner.

use crate::addr::{Lba, Pba};
use crate::by_pba::ByPba;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// The strays and their owners.
#[derive(Default)]
pub struct Strays {
    /// The lower 32 bits of the owners.
    owners: ByPba,
    /// The bits above those, where they are not zero: only a volume of more than 16 TiB has LBAs so large.
    high: BTreeMap<Pba, u8>,
    /// Where to look for the next stray.
    hand: usize,
}

impl Strays {
    /// The number of strays.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the owner of a page, if the page is a stray.
    #[must_use]
    pub fn owner(&self, pba: Pba) -> Option<Lba> {
        self.owners.get(pba).map(|low| self.whole(pba, low))
    }

    fn whole(&self, pba: Pba, low: u32) -> Lba {
        let high = self.high.get(&pba).copied().unwrap_or_default();
        Lba(u64::from(high) << 32 | u64::from(low))
    }

    pub(super) fn insert(&mut self, pba: Pba, owner: Lba) {
        debug_assert!(owner.0 < 1 << 40);
        self.owners.insert(pba, owner.0 as u32);
        match (owner.0 >> 32) as u8 {
            0 => self.high.remove(&pba),
            high => self.high.insert(pba, high),
        };
    }

    pub(super) fn remove(&mut self, pba: Pba) {
        self.owners.remove(pba, None);
        self.high.remove(&pba);
    }

    /// Returns the strays among some pages, by address, with their owners.
    #[must_use]
    pub fn of(&self, pages: Range<Pba>) -> Vec<(Pba, Lba)> {
        let found = self.owners.of(pages).into_iter();
        found
            .map(|(pba, low)| (pba, self.whole(pba, low)))
            .collect()
    }

    /// Returns a stray, another one each time; `None` once all have had their turn. The more strays a segment has, the sooner one of them
    /// is returned.
    pub(super) fn next(&mut self) -> Option<Pba> {
        let next = self.owners.next_from(self.hand);
        self.hand = next.map_or(0, |(hand, _)| hand);
        next.map(|(_, pba)| pba)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(
            steps in prop::collection::vec((1u64..400, 0u64..1 << 35, any::<bool>()), 1..2000),
        ) {
            let mut strays = Strays::default();
            let mut model = BTreeMap::new();
            for (pba, lba, comes) in steps {
                if comes {
                    strays.insert(Pba(pba), Lba(lba));
                    model.insert(Pba(pba), Lba(lba));
                } else {
                    strays.remove(Pba(pba));
                    model.remove(&Pba(pba));
                }
                prop_assert_eq!(strays.len(), model.len());
                prop_assert_eq!(strays.owner(Pba(pba)), model.get(&Pba(pba)).copied());
            }
            let all = strays.of(Pba(0)..Pba(400));
            prop_assert_eq!(all, model.iter().map(|(pba, lba)| (*pba, *lba)).collect::<Vec<_>>());
            for _ in 0..2 {
                let mut model = model.clone();
                while let Some(pba) = strays.next() {
                    prop_assert!(model.remove(&pba).is_some());
                }
                prop_assert!(model.is_empty());
            }
        }
    }
}
