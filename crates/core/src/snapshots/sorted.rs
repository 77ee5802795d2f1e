//! Slot numbers, in the order of keys that are stored elsewhere.
//!
//! A row takes 8 bytes in its block of rows. Finding it by its contents takes these 4 bytes more, and some for parts that are not
//! full. The caller supplies the key of a slot: it must stay the same while the slot is here, and no two slots may have the same
//! key.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

/// The most slots of a part.
const PART: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Each part is stored under a key that is not above any of its own, and above those of all earlier parts. No part is empty.
    parts: BTreeMap<u64, Vec<u32>>,
    len: u64,
}

impl Sorted {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The slots from a key on, in order.
    pub fn from(&self, key: u64, key_of: impl Fn(u32) -> u64) -> impl Iterator<Item = u32> {
        let first = self.parts.range(..=key).next_back();
        let first = first.map_or(&[][..], |(_, part)| {
            &part[part.partition_point(|&slot| key_of(slot) < key)..]
        });
        // Looked up only when the first part is used up: mostly that part is enough.
        let rest = core::iter::once_with(move || self.parts.range((Excluded(key), Unbounded)));
        let rest = rest.flatten().flat_map(|(_, part)| part);
        first.iter().chain(rest).copied()
    }

    /// The slot with this key.
    pub fn get(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let (_, part) = self.parts.range(..=key).next_back()?;
        let place = part.binary_search_by_key(&key, |&slot| key_of(slot));
        place.ok().map(|place| part[place])
    }

    /// Inserts a slot. Returns true if its key is new.
    #[must_use]
    pub fn insert(&mut self, slot: u32, key_of: impl Fn(u32) -> u64) -> bool {
        let key = key_of(slot);
        let Some((_, part)) = self.parts.range_mut(..=key).next_back() else {
            self.insert_first(key, slot);
            return true;
        };
        let Err(place) = part.binary_search_by_key(&key, |&slot| key_of(slot)) else {
            return false;
        };
        self.len += 1;
        if part.len() < PART {
            part.insert(place, slot);
        } else if place == PART {
            // Keys that arrive in order leave full parts.
            self.parts.insert(key, alloc::vec![slot]);
        } else {
            let upper = part.split_off(PART / 2);
            part.shrink_to_fit();
            let from = key_of(upper[0]);
            self.parts.insert(from, upper);
            let part = self.parts.range_mut(..=key).next_back();
            let Some((_, part)) = part else {
                unreachable!("a part of keys from {from} on was split")
            };
            let place = part.partition_point(|&slot| key_of(slot) < key);
            part.insert(place, slot);
        }
        true
    }

    /// Inserts a slot whose key is less than all others.
    fn insert_first(&mut self, key: u64, slot: u32) {
        self.len += 1;
        let part = match self.parts.first_entry() {
            Some(first) if first.get().len() < PART => {
                let mut part = first.remove();
                part.insert(0, slot);
                part
            }
            _ => alloc::vec![slot],
        };
        self.parts.insert(key, part);
    }

    /// Removes the slot with this key, if it is here.
    pub fn remove(&mut self, key: u64, key_of: impl Fn(u32) -> u64) {
        let Some((&from, part)) = self.parts.range_mut(..=key).next_back() else {
            return;
        };
        let Ok(place) = part.binary_search_by_key(&key, |&slot| key_of(slot)) else {
            return;
        };
        part.remove(place);
        self.len -= 1;
        match part.len() {
            0 => drop(self.parts.remove(&from)),
            left if left <= PART / 4 => self.join_next(from),
            _ => {}
        }
    }

    /// When few slots are left in a part, joins it with the next one, if that has few as well.
    fn join_next(&mut self, from: u64) {
        let next = self.parts.range((Excluded(from), Unbounded)).next();
        let Some((&next, _)) = next.filter(|(_, next)| next.len() <= PART / 4) else {
            return;
        };
        let next = self.parts.remove(&next).unwrap_or_default();
        if let Some(part) = self.parts.get_mut(&from) {
            part.extend(next);
            part.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64),
        /// Adjacent keys.
        InsertRun(u64, u64),
        Remove(u64),
        RemoveRun(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..3000u64;
        prop_oneof![
            4 => key.clone().prop_map(Step::Insert),
            2 => (key.clone(), 1..700u64).prop_map(|(key, count)| Step::InsertRun(key, count)),
            4 => key.clone().prop_map(Step::Remove),
            1 => (key, 1..700u64).prop_map(|(key, count)| Step::RemoveRun(key, count)),
        ]
    }

    fn are_sound(sorted: &Sorted, key_of: impl Fn(u32) -> u64 + Copy) {
        let mut before = None;
        for (&from, part) in &sorted.parts {
            assert!(!part.is_empty() && part.len() <= PART);
            for key in part.iter().map(|&slot| key_of(slot)) {
                assert!(
                    from <= key && before < Some(key),
                    "{key} in the part from {from} on"
                );
                before = Some(key);
            }
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_by_key(steps in prop::collection::vec(step(), 1..60)) {
            // The key of a slot has nothing to do with its number.
            let slot_of = |key: u64| (key * 7919 % 10_007) as u32;
            let mut keys = alloc::vec![0; 10_007];
            (0..10_007).for_each(|key| keys[slot_of(key) as usize] = key);
            let key_of = |slot: u32| keys[slot as usize];
            let (mut sorted, mut model) = (Sorted::default(), BTreeMap::new());
            for step in steps {
                let (range, inserts) = match step {
                    Step::Insert(key) => (key..key + 1, true),
                    Step::InsertRun(key, count) => (key..key + count, true),
                    Step::Remove(key) => (key..key + 1, false),
                    Step::RemoveRun(key, count) => (key..key + count, false),
                };
                for key in range.clone() {
                    let slot = slot_of(key);
                    if inserts {
                        prop_assert_eq!(sorted.insert(slot, key_of), model.insert(key, slot).is_none());
                    } else {
                        sorted.remove(key, key_of);
                        model.remove(&key);
                    }
                }
                are_sound(&sorted, key_of);
                prop_assert_eq!(sorted.len(), model.len() as u64);
                for key in [0, range.start, range.end, 1500, 4000] {
                    prop_assert_eq!(sorted.get(key, key_of), model.get(&key).copied());
                    let rest = sorted.from(key, key_of);
                    prop_assert!(rest.eq(model.range(key..).map(|(_, slot)| *slot)));
                }
            }
        }
    }

    /// What the guide says about memory: some 6 bytes a slot where keys arrive in any order, and 5 where they are adjacent.
    #[test]
    fn a_slot_takes_few_bytes_of_memory() {
        let bytes = |keys: &[u64]| {
            let mut sorted = Sorted::default();
            for slot in 0..keys.len() as u32 {
                assert!(sorted.insert(slot, |slot| keys[slot as usize]));
            }
            let of_part = |part: &alloc::vec::Vec<u32>| part.capacity() * 4 + 40;
            sorted.parts.values().map(of_part).sum::<usize>() as f64 / keys.len() as f64
        };
        let in_order: alloc::vec::Vec<u64> = (0..100_000).collect();
        let in_any = in_order
            .iter()
            .map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let in_any: alloc::vec::Vec<u64> = in_any.collect();
        assert!(bytes(&in_order) < 4.8, "{}", bytes(&in_order));
        assert!(bytes(&in_any) < 7.0, "{}", bytes(&in_any));
    }
}
