//! Strays: pages whose segment's summary does not name their owner.

use crate::addr::{Lba, Pba};
use crate::by_pba::ByPba;
use core::ops::Range;

/// The strays and their owners.
#[derive(Default)]
pub struct Strays {
    owners: ByPba,
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
        self.owners.get(pba).map(|lba| Lba(lba.into()))
    }

    pub(super) fn insert(&mut self, pba: Pba, owner: Lba) {
        self.owners.insert(pba, owner.0 as u32);
    }

    pub(super) fn remove(&mut self, pba: Pba) {
        self.owners.remove(pba, None);
    }

    /// Iterates over the strays among some pages, by address, with their owners.
    pub fn of(&self, pages: Range<Pba>) -> impl Iterator<Item = (Pba, Lba)> + use<> {
        let found = self.owners.of(pages).into_iter();
        found.map(|(pba, lba)| (pba, Lba(lba.into())))
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
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(
            steps in prop::collection::vec((1u64..400, 0u64..1000, any::<bool>()), 1..2000),
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
            let all: Vec<_> = strays.of(Pba(0)..Pba(400)).collect();
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
