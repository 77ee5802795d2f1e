//! Pages by their numbers, in pieces: a table that grows is not copied, and keeps no room for later.
//!
//! A number that rests keeps the address of its page, and nothing else. So what owners take is apart, and is given back
//! when a piece has none left: numbers come and go in runs, as a journal does.

use crate::entry::LEAF_ENTRIES;
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

struct Piece {
    places: Box<[u32; PIECE]>,
    owned: Option<Box<Owned>>,
    /// How many of its pages have something there.
    in_use: u16,
}

/// See the module.
#[derive(Default)]
pub(super) struct Pages {
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
        self.pieces.resize_with(self.len.div_ceil(PIECE), || Piece {
            places: Box::new([0; PIECE]),
            owned: None,
            in_use: 0,
        });
    }

    /// What is at a number, if that was ever given out.
    pub fn get(&self, number: u32) -> Option<Page> {
        ((number as usize) < self.len).then(|| self.page(number))
    }

    /// What is at a number that was given out.
    pub fn page(&self, number: u32) -> Page {
        let (piece, index) = split(number);
        let piece = &self.pieces[piece];
        let place = piece.places[index];
        let Some(owned) = &piece.owned else {
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
        let (piece, index) = split(number);
        self.pieces[piece].places[index] & !PARTS
    }

    pub fn set_place(&mut self, number: u32, place: u32) {
        let (piece, index) = split(number);
        self.pieces[piece].places[index] = place;
    }

    pub fn set(&mut self, number: u32, page: Page) {
        let (piece, index) = split(number);
        let piece = &mut self.pieces[piece];
        piece.places[index] = page.place;
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

    /// The addresses of a piece.
    pub fn places(&self, piece: usize) -> Option<&[u32; PIECE]> {
        self.pieces.get(piece).map(|piece| &*piece.places)
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
