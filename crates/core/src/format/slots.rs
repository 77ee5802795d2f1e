//! Where each leaf is, according to the newest root.

use super::root::LeafSlot;
use crate::addr::Leaf;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The slots of all leaves. Clones are the same slots: who reads leaves and who writes them must agree, and a volume of a TiB has
/// hundreds of thousands.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Table>);

// Nobody reads slots while they are set: whoever has the volume has it alone. So no order of accesses has to be kept.
#[derive(Debug)]
struct Table {
    states: Vec<AtomicU8>,
    sums: Vec<AtomicU32>,
}

impl Slots {
    /// The slot of a leaf.
    ///
    /// # Panics
    /// If there is no such leaf.
    #[must_use]
    pub fn get(&self, leaf: Leaf) -> LeafSlot {
        let index = leaf.0 as usize;
        let sum = self.0.sums[index].load(Ordering::Relaxed);
        let state = self.0.states[index].load(Ordering::Relaxed);
        LeafSlot::from_raw(sum, state.into())
    }

    /// Sets the slot of a leaf.
    ///
    /// # Panics
    /// If there is no such leaf.
    pub fn set(&self, leaf: Leaf, slot: LeafSlot) {
        let (sum, state) = slot.to_raw();
        let index = leaf.0 as usize;
        self.0.sums[index].store(sum, Ordering::Relaxed);
        self.0.states[index].store(state, Ordering::Relaxed);
    }

    /// The number of leaves.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.sums.len()
    }

    /// The slots of the leaves from `first` on, in their order.
    pub fn all_from(&self, first: usize) -> impl ExactSizeIterator<Item = LeafSlot> + '_ {
        (first..self.count()).map(|index| self.get(Leaf(index as u32)))
    }
}

impl From<Vec<LeafSlot>> for Slots {
    fn from(slots: Vec<LeafSlot>) -> Self {
        let raw = slots.into_iter().map(LeafSlot::to_raw);
        let atomic = raw.map(|(sum, state)| (AtomicU32::new(sum), AtomicU8::new(state)));
        let (sums, states) = atomic.unzip();
        Self(Arc::new(Table { states, sums }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn clones_are_the_same_slots() {
        let given = vec![LeafSlot::Absent, LeafSlot::Slot0(7), LeafSlot::Slot1(0)];
        let slots = Slots::from(given.clone());
        assert_eq!(slots.all_from(0).collect::<Vec<_>>(), given);
        slots.clone().set(Leaf(1), LeafSlot::Slot1(8));
        assert_eq!(slots.get(Leaf(1)), LeafSlot::Slot1(8));
        slots.set(Leaf(1), LeafSlot::Absent);
        assert_eq!(slots.get(Leaf(1)), LeafSlot::Absent);
    }
}
