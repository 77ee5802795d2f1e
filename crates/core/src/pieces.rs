//! A [`Flat`] table in pieces, so that a request waits for no more than [`MOST`] entries to be put in anew, however many there are.
//!
//! A piece has what begins with the same bits of its hash, as many bits as it takes: one that is full is divided by the next bit
//! (Fagin et al., Extendible Hashing, TODS 1979). Until then it grows by a quarter, and its halves begin at the size they need, so
//! that pieces take no more memory than one table would; and while one of them grows, it alone is there twice.

use crate::flat::{Flat, Slot};
use alloc::vec::Vec;

/// A piece that has so many is divided when it is full: well below a millisecond, each entry a miss of the cache.
const MOST: usize = 2048;

/// More than a piece has slots. A piece whose addresses were chosen to have many bits of their hash in common is larger than
/// others, by a quarter for each division that leaves all of them on one side.
const SPAN: usize = 1 << 20;

struct Piece<T, P> {
    entries: Flat<T>,
    /// How many bits the hashes in it begin with in common.
    depth: u32,
    packing: P,
}

/// Of entries `T`, packed as each piece's `P` says.
pub(crate) struct Pieces<T, P> {
    pieces: Vec<Piece<T, P>>,
    /// By the first bits of a hash, as many as the deepest piece has in common. Entries are of different addresses, and the
    /// hash is one to one: so the deepest are hardly deeper than the others.
    directory: Vec<u32>,
    depth: u32,
    used: usize,
}

/// Where an entry is, until the next change.
#[derive(Clone, Copy)]
pub(crate) struct At {
    piece: usize,
    slot: usize,
}

impl<T: Slot, P: Copy + Default> Default for Pieces<T, P> {
    fn default() -> Self {
        Self::with_room(0, P::default())
    }
}

/// The first bits of a hash.
fn first(bits: u32, hash: u64) -> usize {
    (hash >> 1 >> (63 - bits)) as usize
}

impl<T: Slot, P: Copy + Default> Pieces<T, P> {
    /// Has room for so many of all kinds of hashes, in pieces that are as good as new.
    pub fn with_room(entries: usize, packing: P) -> Self {
        let depth = entries.div_ceil(MOST * 3 / 4).next_power_of_two().ilog2();
        let piece = |_| Piece {
            entries: Flat::with_room(entries >> depth),
            depth,
            packing,
        };
        Self {
            pieces: (0..1 << depth).map(piece).collect(),
            directory: (0..1 << depth).collect(),
            depth,
            used: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    fn piece(&self, hash: u64) -> usize {
        self.directory[first(self.depth, hash)] as usize
    }

    /// How entries of such a hash are packed.
    pub fn packing(&self, hash: u64) -> P {
        self.pieces[self.piece(hash)].packing
    }

    /// What is found by a hash, and its place.
    pub fn find(&self, hash: u64, is_it: impl Fn(T) -> bool) -> Option<(At, T)> {
        let piece = self.piece(hash);
        let Piece { entries, depth, .. } = &self.pieces[piece];
        let (slot, entry) = entries.find(hash << depth, is_it)?;
        Some((At { piece, slot }, entry))
    }

    /// Puts another in its place, with the same hash and packing.
    pub fn replace(&mut self, at: At, by: T) {
        self.pieces[at.piece].entries.replace(at.slot, by);
    }

    /// Whether there is room for one more of such a hash.
    pub fn has_room(&self, hash: u64) -> bool {
        self.pieces[self.piece(hash)].entries.has_room()
    }

    /// Makes room for one more of such a hash, packed in such a way. Those of its piece are put in anew: as what, and by which hash.
    pub fn make_room(&mut self, hash: u64, packing: P, anew: impl Fn(T) -> (T, u64)) {
        let at = self.piece(hash);
        let old = &self.pieces[at].entries;
        let entries: Vec<(T, u64)> = old.iter_from(0).map(|(_, entry)| anew(entry)).collect();
        if !old.has_room() && old.len() >= MOST {
            return self.divide(at, packing, &entries);
        }
        let mut table = match old.has_room() {
            true => old.emptied(),
            false => old.grown(),
        };
        let depth = self.pieces[at].depth;
        for (entry, hash) in entries {
            table.insert(entry, hash << depth);
        }
        self.pieces[at] = Piece {
            entries: table,
            depth,
            packing,
        };
    }

    fn divide(&mut self, at: usize, packing: P, entries: &[(T, u64)]) {
        let depth = self.pieces[at].depth + 1;
        if depth > self.depth {
            let twice = self.directory.iter().flat_map(|&piece| [piece, piece]);
            self.directory = twice.collect();
            self.depth = depth;
        }
        let other = self.pieces.len();
        let begins = entries
            .first()
            .map_or(0, |&(_, hash)| first(depth - 1, hash));
        // All that begins as this piece does, and goes on with a 1.
        let width = 1 << (self.depth - depth);
        let ones = (2 * begins + 1) * width;
        self.directory[ones..ones + width].fill(other as u32);
        let is_one = |hash: u64| first(depth, hash) & 1 == 1;
        let count = entries.iter().filter(|(_, hash)| is_one(*hash)).count();
        let [mut zeros, mut ones] = [entries.len() - count, count].map(|count| Piece {
            entries: Flat::with_room(count),
            depth,
            packing,
        });
        for &(entry, hash) in entries {
            let piece = if is_one(hash) { &mut ones } else { &mut zeros };
            piece.entries.insert(entry, hash << depth);
        }
        self.pieces[at] = zeros;
        self.pieces.push(ones);
    }

    /// Adds one that is not there.
    pub fn insert(&mut self, entry: T, hash: u64) {
        let piece = self.piece(hash);
        let Piece { entries, depth, .. } = &mut self.pieces[piece];
        entries.insert(entry, hash << *depth);
        self.used += 1;
    }

    /// Takes one out.
    pub fn remove(&mut self, at: At, hash_of: impl Fn(T) -> u64) {
        let Piece { entries, depth, .. } = &mut self.pieces[at.piece];
        entries.remove(at.slot, |entry| hash_of(entry) << *depth);
        self.used -= 1;
    }

    /// The next at or after a number, in the order of hashes, and the number behind it.
    pub fn next_from(&self, from: usize) -> Option<(usize, T)> {
        let mut slot = from % SPAN;
        for (index, &piece) in self.directory.iter().enumerate().skip(from / SPAN) {
            // One that is less deep than others is in the directory several times.
            if slot == 0 && index > 0 && self.directory[index - 1] == piece {
                continue;
            }
            let mut entries = self.pieces[piece as usize].entries.iter_from(slot);
            if let Some((at, entry)) = entries.next() {
                return Some((index * SPAN + at + 1, entry));
            }
            slot = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flat::hash;
    use alloc::collections::BTreeSet;
    use core::cell::Cell;
    use core::ops::Range;
    use proptest::prelude::*;

    /// Entries are addresses.
    #[derive(Default)]
    struct Tried {
        pieces: Pieces<u32, ()>,
        model: BTreeSet<u32>,
    }

    impl Tried {
        fn slots(&self) -> usize {
            let slots = self.pieces.pieces.iter().map(|piece| piece.entries.slots());
            slots.sum()
        }

        fn find(&self, address: u32) -> Option<At> {
            let found = self.pieces.find(hash(address), |entry| entry == address);
            assert_eq!(found.is_some(), self.model.contains(&address));
            found.map(|(at, _)| at)
        }

        /// How many were put in anew.
        fn insert(&mut self, address: u32) -> usize {
            let moved = Cell::new(0);
            if self.find(address).is_some() {
                return 0;
            }
            if !self.pieces.has_room(hash(address)) {
                self.pieces.make_room(hash(address), (), |entry| {
                    moved.set(moved.get() + 1);
                    (entry, hash(entry))
                });
            }
            self.pieces.insert(address, hash(address));
            self.model.insert(address);
            moved.get()
        }

        fn remove(&mut self, address: u32) {
            if let Some(at) = self.find(address) {
                self.pieces.remove(at, hash);
                self.model.remove(&address);
            }
        }

        fn check(&self, addresses: Range<u32>) {
            assert_eq!(self.pieces.len(), self.model.len());
            addresses.for_each(|address| {
                self.find(address);
            });
            let mut from = 0;
            let mut all = BTreeSet::new();
            while let Some((next, entry)) = self.pieces.next_from(from) {
                assert!(next > from && all.insert(entry));
                from = next;
            }
            assert_eq!(all, self.model);
        }
    }

    const ADDRESSES: u32 = 40_000;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// In runs, so that pieces are divided and become empty.
        #[test]
        fn behaves_like_a_set(runs in prop::collection::vec((1..ADDRESSES, 1u32..20_000, any::<bool>()), 1..12)) {
            let mut tried = Tried::default();
            for (start, length, comes) in runs {
                for address in start..(start + length).min(ADDRESSES) {
                    match comes {
                        true => { tried.insert(address); }
                        false => tried.remove(address),
                    }
                }
            }
            tried.check(1..ADDRESSES);
        }
    }

    #[test]
    fn no_operation_moves_more_than_a_piece() {
        let mut tried = Tried::default();
        for address in 1..300_000 {
            let moved = tried.insert(address);
            assert!(moved <= MOST * 5 / 4, "{moved} at {address}");
            assert!(address < 100 || tried.slots() * 3 / 5 <= tried.pieces.len());
        }
        assert!(tried.pieces.pieces.len() > 64);
        tried.check(1..300_000);
    }

    #[test]
    fn room_from_the_start_is_not_made_later() {
        for entries in [1, 50, MOST, 100_000, 300_000] {
            let mut tried = Tried {
                pieces: Pieces::with_room(entries, ()),
                ..Tried::default()
            };
            let slots = tried.slots();
            for address in 1..=entries as u32 {
                assert_eq!(tried.insert(address), 0);
            }
            assert_eq!(tried.slots(), slots);
            tried.check(1..entries as u32);
        }
    }
}
