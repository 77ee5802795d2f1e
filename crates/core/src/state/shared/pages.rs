//! Pages by their numbers, in pieces: a growing table is not copied, and reserves no room.
//!
//! A freed number that still rests keeps only the address of its page. So the owners' counts are stored separately, and are freed when a
//! piece has no owners left. That happens often, because numbers are used and freed in runs, for example by a journal. The addresses of a
//! piece are a leaf of the table, and need not stay in memory. A leaf that is neither in memory nor on the medium is all zeros.

use crate::addr::{BLOCK_BYTES, Leaf};
use crate::entry::LEAF_ENTRIES;
use crate::state::dirty::Dirty;
use crate::state::resident::{Look, Resident};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::Range;

/// A flag in a page's address: the page holds parts, so its last owner's entry does not become plain.
pub(super) const PARTS: u32 = 1 << 31;

/// The pages of a piece: as many as a leaf of the table has entries.
const PIECE: usize = LEAF_ENTRIES;

/// From this count of owners on, the count is kept in `many`.
const MANY: u8 = u8::MAX;

/// The uses of a page: how many LBAs and deltas lead into it. This is in memory even if the page's address is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    pub owners: u32,
    /// For a shared page, the XOR of its owners. For a page of parts, how many deltas need one of its parts.
    pub xor: u64,
    /// True if the owners own parts. Not known for a page without uses.
    pub of_parts: bool,
}

impl Uses {
    /// True if anything leads into the page.
    pub fn is_any(self) -> bool {
        self.owners > 0 || self.xor > 0
    }
}

struct Owned {
    counts: [u8; PIECE],
    /// A bit for each page whose owners own parts.
    of_parts: [u64; PIECE / 64],
    /// Absent while all are zero: no delta needs most pages of parts.
    xors: Option<Box<[u32; PIECE]>>,
    /// The bits above those 32. Absent while all are zero: only a volume of more than 16 TiB has LBAs so large.
    high_xors: Option<Box<[u8; PIECE]>>,
}

impl Owned {
    fn xor(&self, index: usize) -> u64 {
        let low = self.xors.as_ref().map_or(0, |xors| xors[index]);
        let high = self.high_xors.as_ref().map_or(0, |xors| xors[index]);
        u64::from(high) << 32 | u64::from(low)
    }

    fn set_xor(&mut self, index: usize, xor: u64) {
        debug_assert!(xor < 1 << 40);
        set(&mut self.xors, index, xor as u32);
        set(&mut self.high_xors, index, (xor >> 32) as u8);
    }
}

/// Sets a number of an array that is absent while all its numbers are zero.
fn set<N: Copy + Default + PartialEq>(numbers: &mut Option<Box<[N; PIECE]>>, index: usize, to: N) {
    match numbers {
        Some(numbers) => numbers[index] = to,
        None if to == N::default() => {}
        none => none.insert(Box::new([N::default(); PIECE]))[index] = to,
    }
}

impl Default for Owned {
    fn default() -> Self {
        Self {
            counts: [0; PIECE],
            of_parts: [0; PIECE / 64],
            xors: None,
            high_xors: None,
        }
    }
}

#[derive(Default)]
struct Piece {
    owned: Option<Box<Owned>>,
    /// How many pages of the piece have uses.
    in_use: u16,
}

/// The address and the uses of each page, by its number.
#[derive(Default)]
pub(super) struct Pages {
    places: Resident,
    pieces: Vec<Piece>,
    len: usize,
    /// Counts of owners from [`MANY`] on.
    many: BTreeMap<u32, u32>,
    /// Memory for the next piece that needs it, so that use and release allocate nothing.
    spare: Option<Box<Owned>>,
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / PIECE, number as usize % PIECE)
}

impl Pages {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes room for `pages` pages.
    pub fn lengthen(&mut self, pages: usize) {
        self.len = self.len.max(pages);
        // Leaves of the table stay once they exist, also if no number in them has a page any more.
        let pieces = self.len.div_ceil(PIECE).max(self.pieces.len());
        self.pieces.resize_with(pieces, Piece::default);
        self.places.lengthen(pieces);
    }

    /// Returns the uses of a number's page: none, if the number was never used.
    pub fn uses(&self, number: u32) -> Uses {
        let (piece, index) = split(number);
        let piece = self.pieces.get(piece);
        let Some(owned) = piece.and_then(|piece| piece.owned.as_ref()) else {
            return Uses::default();
        };
        let owners = match owned.counts[index] {
            MANY => self.many[&number],
            few => few.into(),
        };
        Uses {
            owners,
            xor: owned.xor(index),
            of_parts: owned.of_parts[index / 64] >> (index % 64) & 1 != 0,
        }
    }

    /// Returns where the page of a number is, and [`PARTS`]; 0: nowhere, as for a number never used.
    pub fn place(&self, number: u32) -> u32 {
        let (piece, index) = split(number);
        if number as usize >= self.len {
            return 0;
        }
        let places = self.places.get(piece, || self.is_kept(piece));
        places.map_or(0, |places| places[index])
    }

    /// Ends the table after the last number that has a page.
    pub fn end_at_last_page(&mut self) {
        let last_of = |piece: &usize| {
            let places = self.places(*piece)?;
            let last = places.entries().iter().rposition(|&place| place != 0)?;
            Some(piece * PIECE + last + 1)
        };
        let pieces = (0..self.pieces()).rev();
        self.len = pieces
            .filter_map(|piece| last_of(&piece))
            .next()
            .unwrap_or(0);
    }

    /// Notes that something leads to a number that has no page.
    #[cold]
    pub fn leads_nowhere(&self, number: u32) {
        if let Some(shelf) = self.places.shelf() {
            shelf.leads_nowhere(split(number).0);
        }
    }

    /// True if the addresses of a piece that is not in memory were evicted.
    fn is_kept(&self, piece: usize) -> bool {
        self.places
            .shelf()
            .is_some_and(|shelf| shelf.is_kept(piece))
    }

    /// True if the addresses of a piece have to be read first.
    pub fn is_piece_away(&self, piece: usize) -> bool {
        self.places.is_away(piece)
    }

    /// Sets the address of a number's page, and notes in `dirty` that its leaf has changed.
    pub fn set_place(&mut self, number: u32, place: u32, dirty: &mut Dirty) {
        let (piece, index) = split(number);
        let is_kept = self.is_kept(piece);
        let places = match self.places.here(piece) {
            None if !is_kept => Some(self.places.put_empty(piece)),
            // A leaf on the medium that cannot be read stays as it is there.
            _ => self.places.get_mut(piece, || true),
        };
        let leaf = Leaf(piece as u32);
        match places {
            Some(places) => {
                let was = core::mem::replace(&mut places[index], place);
                self.places.changed(dirty, leaf, index, was, place);
            }
            None => {
                dirty.mark(leaf);
            }
        }
    }

    pub fn set_uses(&mut self, number: u32, uses: Uses) {
        let (piece, index) = split(number);
        let piece = &mut self.pieces[piece];
        let owned = match &mut piece.owned {
            Some(owned) => owned,
            None if !uses.is_any() => return,
            none => none.insert(self.spare.take().unwrap_or_default()),
        };
        let count = owned.counts[index];
        let was_any = count > 0 || owned.xor(index) > 0;
        if count == MANY {
            self.many.remove(&number);
        }
        owned.counts[index] = uses.owners.min(MANY.into()) as u8;
        owned.set_xor(index, uses.xor);
        let bit = 1 << (index % 64);
        match uses.of_parts && uses.is_any() {
            true => owned.of_parts[index / 64] |= bit,
            false => owned.of_parts[index / 64] &= !bit,
        }
        if owned.counts[index] == MANY {
            self.many.insert(number, uses.owners);
        }
        piece.in_use = piece.in_use + u16::from(uses.is_any()) - u16::from(was_any);
        if piece.in_use == 0 {
            // The memory is all zeros again.
            self.spare = piece.owned.take();
        }
    }

    /// The number of pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// True if anything leads into a page of a piece.
    pub fn has_uses(&self, piece: usize) -> bool {
        self.pieces[piece].owned.is_some()
    }

    /// The numbers in a piece that were ever used.
    pub fn numbers_of(&self, piece: usize) -> Range<u32> {
        let end = self.len.min((piece + 1) * PIECE);
        (piece * PIECE) as u32..end as u32
    }

    /// Copies the addresses of a piece, for callers that visit all. `block` is its leaf as it was read, if it was. A leaf that is not in
    /// memory does not stay there.
    pub fn read_places(
        &self,
        piece: usize,
        block: Option<&[u8; BLOCK_BYTES]>,
        out: &mut [u32; PIECE],
    ) {
        let look = match block {
            Some(block) => self.places.look_through(piece, block),
            None => self.places(piece),
        };
        match look {
            Some(places) => out.copy_from_slice(places.entries()),
            None => out.fill(0),
        }
    }

    /// Clears the address of a number's page, if it is in memory and set.
    pub fn clear_place_here(&mut self, number: u32, dirty: &mut Dirty) {
        let is_away = self.is_piece_away(split(number).0);
        if !is_away && self.place(number) != 0 {
            self.set_place(number, 0, dirty);
        }
    }

    /// Returns the addresses of a piece, for callers that visit all; `None`: all zeros.
    pub fn places(&self, piece: usize) -> Option<Look<'_>> {
        let is_one = piece < self.pieces.len();
        is_one.then(|| self.places.look_at(piece, || self.is_kept(piece)))?
    }

    /// Takes the addresses of a piece from its leaf.
    pub fn load(&mut self, piece: usize, places: Box<[u32; PIECE]>) {
        let last = places.iter().rposition(|&place| place != 0);
        let Some(last) = last else {
            return self.places.leave_out(places);
        };
        self.lengthen(piece * PIECE + last + 1);
        self.places.put(piece, places);
    }

    /// The leaves of addresses.
    pub fn leaves(&self) -> &Resident {
        &self.places
    }

    /// The same, mutable.
    pub fn leaves_mut(&mut self) -> &mut Resident {
        &mut self.places
    }

    /// Evicts some leaves, if there are more in memory than allowed.
    pub fn trim(&mut self, dirty: &Dirty, long: bool) {
        self.places.trim(dirty, long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn uses() -> impl Strategy<Value = Uses> {
        let owners = prop_oneof![Just(0u32), 1..4u32, 250..260u32, Just(u32::MAX)];
        let xor = prop_oneof![0..2u64, Just(5 << 32), Just(7 << 32 | 3)];
        (owners, xor, any::<bool>()).prop_map(|(owners, xor, of_parts)| {
            let of_parts = of_parts && (owners > 0 || xor > 0);
            Uses {
                owners,
                xor,
                of_parts,
            }
        })
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(steps in prop::collection::vec((0..3000u32, 0..5u32, uses()), 1..300)) {
            const NUMBERS: usize = 3000;
            let zeros = |owned: &Owned| {
                let is_one = |at| owned.xor(at) != 0 || owned.of_parts[at / 64] != 0;
                owned.counts == [0; PIECE] && !(0..PIECE).any(is_one)
            };
            let mut pages = Pages::default();
            let mut dirty = Dirty::new(NUMBERS.div_ceil(PIECE));
            pages.lengthen(NUMBERS);
            let mut model = vec![(0, Uses::default()); NUMBERS];
            let mut numbers = Vec::new();
            for (number, place, uses) in steps {
                // A few numbers again and again, so that pieces are freed and reused.
                let number = number / 500 * 500;
                pages.set_place(number, place, &mut dirty);
                pages.set_uses(number, uses);
                model[number as usize] = (place, uses);
                prop_assert!(pages.spare.as_deref().is_none_or(zeros));
                numbers.push(number);
            }
            for number in numbers {
                let page = (pages.place(number), pages.uses(number));
                prop_assert_eq!(page, model[number as usize]);
            }
            for (number, piece) in pages.pieces.iter().enumerate() {
                let of_piece = model.chunks(PIECE).nth(number).unwrap_or_default();
                let in_use = of_piece.iter().filter(|(_, uses)| uses.is_any()).count();
                prop_assert_eq!((usize::from(piece.in_use), piece.owned.is_some()), (in_use, in_use > 0));
            }
            let many = model.iter().filter(|(_, uses)| uses.owners >= MANY.into()).count();
            prop_assert_eq!(pages.many.len(), many);
        }
    }
}
