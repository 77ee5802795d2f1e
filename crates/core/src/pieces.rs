//! A [`Flat`] table in pieces, so that a request waits for at most [`MOST`] entries to be reinserted, however many there are.
//!
//! A piece holds the entries whose hashes begin with the same bits. A full piece is divided by the next bit (Fagin et al., Extendible
//! Hashing, TODS 1979). Before that it grows by a quarter at a time, and its halves begin at the size they need. So pieces take no more
//! memory than one table would, and only the growing piece exists twice for a while.

use crate::flat::{Flat, Slot};
use alloc::vec::Vec;

/// A full piece with this many entries is divided: that takes well below a millisecond, even if each entry is a cache miss.
const MOST: usize = 2048;

/// More than the slots of any piece. A client may choose addresses whose hashes have many bits in common. Then a piece is larger than
/// others, by a quarter for each division that leaves all of its entries on one side.
const SPAN: usize = 1 << 20;

struct Piece<T> {
    entries: Flat<T>,
    /// How many leading bits all hashes in it have in common.
    depth: u32,
}

/// A [`Flat`] table in pieces.
pub(crate) struct Pieces<T> {
    pieces: Vec<Piece<T>>,
    /// The piece for each value of the first bits of a hash: as many bits as the deepest piece has in common. Entries have different
    /// addresses, and the hash is one to one, so the deepest piece is hardly deeper than the others.
    directory: Vec<u32>,
    depth: u32,
    used: usize,
}

/// The place of an entry, until the next change.
#[derive(Clone, Copy)]
pub(crate) struct At {
    piece: usize,
    slot: usize,
}

impl<T: Slot> Default for Pieces<T> {
    fn default() -> Self {
        Self::with_room(0)
    }
}

/// The first bits of a hash.
fn first(bits: u32, hash: u64) -> usize {
    (hash >> 1 >> (63 - bits)) as usize
}

impl<T: Slot> Pieces<T> {
    /// Creates a table with room for `entries` with evenly spread hashes, in pieces that are like new.
    pub fn with_room(entries: usize) -> Self {
        let depth = entries.div_ceil(MOST * 3 / 4).next_power_of_two().ilog2();
        let piece = |_| Piece {
            entries: Flat::with_room(entries >> depth),
            depth,
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

    /// Finds an entry by its hash; returns it and its place.
    pub fn find(&self, hash: u64, is_it: impl Fn(T) -> bool) -> Option<(At, T)> {
        let piece = self.piece(hash);
        let Piece { entries, depth, .. } = &self.pieces[piece];
        let (slot, entry) = entries.find(hash << depth, is_it)?;
        Some((At { piece, slot }, entry))
    }

    /// Replaces an entry by one with the same hash.
    pub fn replace(&mut self, at: At, by: T) {
        self.pieces[at.piece].entries.replace(at.slot, by);
    }

    /// True if there is room for one more entry with such a hash.
    pub fn has_room(&self, hash: u64) -> bool {
        self.pieces[self.piece(hash)].entries.has_room()
    }

    /// Makes room for one more entry with such a hash, if there is none. The entries of its piece are reinserted.
    pub fn make_room(&mut self, hash: u64, hash_of: impl Fn(T) -> u64) {
        let at = self.piece(hash);
        let old = &self.pieces[at].entries;
        let entries: Vec<(T, u64)> = old
            .iter_from(0)
            .map(|(_, entry)| (entry, hash_of(entry)))
            .collect();
        if old.len() >= MOST {
            return self.divide(at, &entries);
        }
        let mut table = old.grown();
        let depth = self.pieces[at].depth;
        for (entry, hash) in entries {
            table.insert(entry, hash << depth);
        }
        self.pieces[at] = Piece {
            entries: table,
            depth,
        };
    }

    fn divide(&mut self, at: usize, entries: &[(T, u64)]) {
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
        // The hashes that begin as this piece's do, and continue with a 1.
        let width = 1 << (self.depth - depth);
        let ones = (2 * begins + 1) * width;
        self.directory[ones..ones + width].fill(other as u32);
        let is_one = |hash: u64| first(depth, hash) & 1 == 1;
        let count = entries.iter().filter(|(_, hash)| is_one(*hash)).count();
        let [mut zeros, mut ones] = [entries.len() - count, count].map(|count| Piece {
            entries: Flat::with_room(count),
            depth,
        });
        for &(entry, hash) in entries {
            let piece = if is_one(hash) { &mut ones } else { &mut zeros };
            piece.entries.insert(entry, hash << depth);
        }
        self.pieces[at] = zeros;
        self.pieces.push(ones);
    }

    /// Adds an entry that is not in the table.
    pub fn insert(&mut self, entry: T, hash: u64) {
        let piece = self.piece(hash);
        let Piece { entries, depth, .. } = &mut self.pieces[piece];
        entries.insert(entry, hash << *depth);
        self.used += 1;
    }

    /// Removes an entry.
    pub fn remove(&mut self, at: At, hash_of: impl Fn(T) -> u64) {
        let Piece { entries, depth, .. } = &mut self.pieces[at.piece];
        entries.remove(at.slot, |entry| hash_of(entry) << *depth);
        self.used -= 1;
    }

    /// Iterates over all entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        let pieces = self.pieces.iter();
        pieces.flat_map(|piece| piece.entries.iter_from(0).map(|(_, entry)| entry))
    }

    /// Returns the next entry at or after a number, in the order of hashes, and the number after it.
    pub fn next_from(&self, from: usize) -> Option<(usize, T)> {
        let mut slot = from % SPAN;
        for (index, &piece) in self.directory.iter().enumerate().skip(from / SPAN) {
            // A less deep piece is in the directory several times.
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
        pieces: Pieces<u32>,
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

        /// Returns how many entries were reinserted.
        fn insert(&mut self, address: u32) -> usize {
            let moved = Cell::new(0);
            if self.find(address).is_some() {
                return 0;
            }
            if !self.pieces.has_room(hash(address)) {
                self.pieces.make_room(hash(address), |entry| {
                    moved.set(moved.get() + 1);
                    hash(entry)
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

    fn run() -> impl Strategy<Value = (u32, u32, bool)> {
        (1..ADDRESSES, 1u32..20_000, any::<bool>())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// In runs, so that pieces are divided and emptied.
        #[test]
        fn behaves_like_a_set(runs in prop::collection::vec(run(), 1..12)) {
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
                pieces: Pieces::with_room(entries),
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
