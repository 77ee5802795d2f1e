//! Which LBA owns a page, where that is not the one that its segment's summary names.

use crate::addr::{Lba, Pba};
use crate::flat::{Slot, hash};
use crate::pieces::{At, Pieces};
use core::ops::Range;

#[derive(Clone, Copy, PartialEq)]
struct Stray {
    pba: u32,
    lba: u32,
}

impl Slot for Stray {
    /// The superblock is there, and no page.
    const VACANT: Self = Self { pba: 0, lba: 0 };
}

impl Stray {
    fn owner(self) -> Lba {
        Lba(self.lba.into())
    }
}

/// See the module.
#[derive(Default)]
pub struct Strays {
    owners: Pieces<Stray, ()>,
    /// From where to look for the next.
    hand: usize,
}

impl Strays {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, pba: Pba) -> Option<(At, Stray)> {
        let pba = pba.0 as u32;
        self.owners.find(hash(pba), |stray| stray.pba == pba)
    }

    /// Who owns the page, if it is one of them.
    #[must_use]
    pub fn owner(&self, pba: Pba) -> Option<Lba> {
        self.slot(pba).map(|(_, stray)| stray.owner())
    }

    pub(super) fn insert(&mut self, pba: Pba, owner: Lba) {
        let stray = Stray {
            pba: pba.0 as u32,
            lba: owner.0 as u32,
        };
        if let Some((at, _)) = self.slot(pba) {
            return self.owners.replace(at, stray);
        }
        let hash_of = |stray: Stray| hash(stray.pba);
        if !self.owners.has_room(hash_of(stray)) {
            let anew = |stray| (stray, hash_of(stray));
            self.owners.make_room(hash_of(stray), (), anew);
        }
        self.owners.insert(stray, hash_of(stray));
    }

    pub(super) fn remove(&mut self, pba: Pba) {
        if let Some((at, _)) = self.slot(pba) {
            self.owners.remove(at, |stray| hash(stray.pba));
        }
    }

    /// Those among some pages, and their owners.
    pub fn of(&self, pages: Range<Pba>) -> impl Iterator<Item = (Pba, Lba)> + '_ {
        let pages = (pages.start.0..pages.end.0).map(Pba);
        pages.filter_map(|pba| Some((pba, self.owner(pba)?)))
    }

    /// Any of them, another each time; `None` once they have all had their turn. The more of them a segment has, the sooner is it
    /// one of it.
    pub(super) fn next(&mut self) -> Option<Pba> {
        let next = self.owners.next_from(self.hand);
        self.hand = next.map_or(0, |(hand, _)| hand);
        next.map(|(_, stray)| Pba(stray.pba.into()))
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
