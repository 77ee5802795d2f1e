//! Pages by their numbers, in pieces: a table that grows is not copied, and keeps no room for later.
//!
//! A number that rests keeps the address of its page, and nothing else. So what owners take is apart, and is given back
//! when a piece has none left: numbers come and go in runs, as a journal does. The addresses of a piece are a leaf of the table, and need
//! not stay in memory: what is not there, and not on the medium, is all zeros.

use crate::entry::LEAF_ENTRIES;
use crate::state::dirty::Dirty;
use crate::state::resident::{Look, Resident};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};

/// In a page's address: it holds parts, so what is left of it stays as it is.
pub(super) const PARTS: u32 = 1 << 31;

/// As many as a leaf of the table has.
const PIECE: usize = LEAF_ENTRIES;

/// A count of owners that does not fit, or just does.
const MANY: u8 = u8::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Where it is, and [`PARTS`]; 0: nowhere.
    pub place: u32,
    pub owners: u32,
    /// Of a shared page, the XOR of its owners. Of a page of parts, how many deltas need one of them.
    pub xor: u32,
}

impl Page {
    pub fn pba(self) -> u32 {
        self.place & !PARTS
    }

    pub fn has_parts(self) -> bool {
        self.place & PARTS != 0
    }

    /// Of a page of parts: whether anything leads into it.
    pub fn is_needed(self) -> bool {
        self.owners > 0 || self.xor > 0
    }
}

struct Owned {
    counts: [u8; PIECE],
    xors: [u32; PIECE],
}

#[derive(Default)]
struct Piece {
    owned: Option<Box<Owned>>,
    /// How many of its pages have something there.
    in_use: u16,
}

/// See the module.
#[derive(Default)]
pub(super) struct Pages {
    places: Resident,
    pieces: Vec<Piece>,
    len: usize,
    /// Counts from [`MANY`] on.
    many: BTreeMap<u32, u32>,
    /// For the next piece that needs one, so that coming and going allocates nothing.
    spare: Option<Box<Owned>>,
}

fn split(number: u32) -> (usize, usize) {
    (number as usize / PIECE, number as usize % PIECE)
}

impl Pages {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Room for so many.
    pub fn lengthen(&mut self, pages: usize) {
        self.len = self.len.max(pages);
        let pieces = self.len.div_ceil(PIECE);
        self.pieces.resize_with(pieces, Piece::default);
        self.places.lengthen(pieces);
    }

    /// What is at a number, if that was ever given out.
    pub fn get(&self, number: u32) -> Option<Page> {
        ((number as usize) < self.len).then(|| self.page(number))
    }

    /// What is at a number that was given out.
    pub fn page(&self, number: u32) -> Page {
        let place = self.place(number);
        let (piece, index) = split(number);
        let Some(owned) = &self.pieces[piece].owned else {
            return Page {
                place,
                ..Page::default()
            };
        };
        let owners = match owned.counts[index] {
            MANY => self.many[&number],
            few => few.into(),
        };
        let xor = owned.xors[index];
        Page { place, owners, xor }
    }

    /// Where such a page is.
    pub fn pba(&self, number: u32) -> u32 {
        self.place(number) & !PARTS
    }

    fn place(&self, number: u32) -> u32 {
        let (piece, index) = split(number);
        let places = self.places.get(piece, || self.is_kept(piece));
        places.map_or(0, |places| places[index])
    }

    /// Whether the addresses of a piece are on the medium.
    fn is_kept(&self, piece: usize) -> bool {
        self.places
            .shelf()
            .is_some_and(|shelf| shelf.is_kept(piece))
    }

    /// Whether the addresses of a piece have to be read first.
    pub fn is_piece_away(&self, piece: usize) -> bool {
        piece < self.pieces.len() && self.places.here(piece).is_none() && self.is_kept(piece)
    }

    pub fn set_place(&mut self, number: u32, place: u32) {
        let (piece, index) = split(number);
        let is_kept = self.is_kept(piece);
        let places = match self.places.here(piece) {
            None if !is_kept => Some(self.places.put_empty(piece)),
            // What is on the medium and cannot be fetched stays as it is there.
            _ => self.places.get_mut(piece, || true),
        };
        if let Some(places) = places {
            places[index] = place;
        }
    }

    pub fn set(&mut self, number: u32, page: Page) {
        if self.place(number) != page.place {
            self.set_place(number, page.place);
        }
        let (piece, index) = split(number);
        let piece = &mut self.pieces[piece];
        let owned = match &mut piece.owned {
            Some(owned) => owned,
            None if !page.is_needed() => return,
            none => none.insert(self.spare.take().unwrap_or_else(|| {
                Box::new(Owned {
                    counts: [0; PIECE],
                    xors: [0; PIECE],
                })
            })),
        };
        let (count, xor) = (&mut owned.counts[index], &mut owned.xors[index]);
        let was_needed = *count > 0 || *xor > 0;
        if *count == MANY {
            self.many.remove(&number);
        }
        *count = page.owners.min(MANY.into()) as u8;
        *xor = page.xor;
        if *count == MANY {
            self.many.insert(number, page.owners);
        }
        piece.in_use = piece.in_use + u16::from(page.is_needed()) - u16::from(was_needed);
        if piece.in_use == 0 {
            // All zeros again.
            self.spare = piece.owned.take();
        }
    }

    /// The addresses of a piece, for whoever looks at all; `None`: all zeros.
    pub fn places(&self, piece: usize) -> Option<Look<'_>> {
        let is_one = piece < self.pieces.len();
        is_one.then(|| self.places.look_at(piece, || self.is_kept(piece)))?
    }

    /// Takes the addresses of a piece from its leaf.
    pub fn load(&mut self, piece: usize, places: Box<[u32; PIECE]>) {
        let last = places.iter().rposition(|&place| place != 0);
        let Some(last) = last else { return };
        self.lengthen(piece * PIECE + last + 1);
        self.places.put(piece, places);
    }

    /// The leaves of addresses.
    pub fn leaves(&self) -> &Resident {
        &self.places
    }

    /// The same, to be fetched from somewhere, or to be told where they are.
    pub fn leaves_mut(&mut self) -> &mut Resident {
        &mut self.places
    }

    /// Lets some go, if there are more in memory than there may be.
    pub fn trim(&mut self, dirty: &Dirty, all: bool) {
        self.places.trim(dirty, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn page() -> impl Strategy<Value = Page> {
        let owners = prop_oneof![Just(0u32), 1..4u32, 250..260u32, Just(u32::MAX)];
        (0..5u32, owners, 0..2u32).prop_map(|(place, owners, xor)| Page { place, owners, xor })
    }

    proptest! {
        #[test]
        fn behaves_like_a_vector(steps in prop::collection::vec((0..3000u32, page()), 1..300)) {
            const NUMBERS: usize = 3000;
            let mut pages = Pages::default();
            pages.lengthen(NUMBERS);
            let mut model = vec![Page::default(); NUMBERS];
            let mut numbers = Vec::new();
            for (number, page) in steps {
                // A few numbers again and again, so that pieces are given back and taken anew.
                let number = number / 500 * 500;
                pages.set(number, page);
                model[number as usize] = page;
                numbers.push(number);
            }
            for number in numbers {
                prop_assert_eq!(pages.page(number), model[number as usize]);
            }
            for (number, piece) in pages.pieces.iter().enumerate() {
                let of_piece = model.chunks(PIECE).nth(number).unwrap_or_default();
                let in_use = of_piece.iter().filter(|page| page.is_needed()).count();
                prop_assert_eq!((usize::from(piece.in_use), piece.owned.is_some()), (in_use, in_use > 0));
            }
            let many = model.iter().filter(|page| page.owners >= MANY.into()).count();
            prop_assert_eq!(pages.many.len(), many);
        }
    }
}
