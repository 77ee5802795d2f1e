//! Pages of parts: which page takes a block that can be stored in fewer bytes, and which part may be replaced (CSA-FS §4.2).
//!
//! The first page of a chunk is its header. The room that its records leave is filled first, so the few small blocks of a small fsync
//! often cost no further block. Parts of a bucket share pages only with each other; while too many buckets have a page in the chunk,
//! parts of the others go to pages of no bucket.
//!
//! This knows the pages of the host's open chunk, and forgets them when that chunk is sealed.

use crate::addr::Vba;
use crate::entry::MAX_PARTS;
use crate::format::pack::{OVERHEAD, ROOM};
use crate::limits;
use crate::seam::Bucket;
use alloc::vec::Vec;

/// The block of a chunk that is its header.
const HEADER: u16 = 0;

/// A page of parts in the host's open chunk.
#[derive(Clone, Copy, Debug)]
struct Page {
    vba: Vba,
    /// Its block in the chunk.
    block: u16,
    /// The bucket whose parts it takes.
    bucket: Option<Bucket>,
    /// The number of its parts, and their bytes.
    count: u8,
    bytes: u16,
    /// True if the page takes no more parts: it has no owner any longer, so its number may be reused.
    shut: bool,
    /// True if some of its parts have a second owner: then no part of it is replaced any more.
    linked: bool,
}

impl Page {
    /// True if a part of so many bytes fits beside the others.
    fn has_room(&self, len: usize) -> bool {
        let used = usize::from(self.count) * OVERHEAD + usize::from(self.bytes);
        ROOM - used >= OVERHEAD + len
    }
}

/// A block to be stored as a part.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its bytes, and those of its record.
    pub len: u16,
    pub record: usize,
    /// The bucket that it should go into.
    pub bucket: Option<Bucket>,
}

/// The open chunk.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// The bytes of its header that records will probably not need.
    pub spare: usize,
    /// The bytes of the record of a page in the header.
    pub record: usize,
    /// The next data block.
    pub next: u16,
}

/// Where a part goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Into this page.
    Page(usize),
    /// Into a new page.
    New(NewPage),
    /// Nowhere: the block is stored whole.
    Whole,
}

/// A page to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPage {
    /// Its block in the chunk; 0: the header.
    pub block: u16,
    /// The bucket whose parts it takes.
    pub bucket: Option<Bucket>,
}

/// The place of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub vba: Vba,
    pub block: u16,
    pub slot: u8,
}

/// The pages of the host's open chunk.
#[derive(Default)]
pub struct Pack {
    pages: Vec<Page>,
}

impl Pack {
    /// Chooses the first page that takes the part, or a new one. A page with one part costs no more than a whole block.
    pub fn choose(&self, part: Part, chunk: Chunk) -> Choice {
        let len = usize::from(part.len);
        let bucket = self.bucket_of(part.bucket);
        let fits_header = |page: usize| chunk.spare >= page + part.record + len;
        let takes = |page: &Page| {
            let has_room = match page.block {
                HEADER => fits_header(0),
                _ => page.has_room(len),
            };
            page.bucket == bucket && !page.shut && usize::from(page.count) < MAX_PARTS && has_room
        };
        if let Some(page) = self.pages.iter().position(takes) {
            return Choice::Page(page);
        }
        let has_header = self.pages.iter().any(|page| page.block == HEADER);
        let block = match !has_header && bucket.is_none() && fits_header(chunk.record) {
            true => HEADER,
            false if OVERHEAD + len > ROOM => return Choice::Whole,
            false => chunk.next,
        };
        Choice::New(NewPage { block, bucket })
    }

    /// The bucket that a part goes into: the requested one, unless too many other buckets have a page in the chunk.
    fn bucket_of(&self, asked: Option<Bucket>) -> Option<Bucket> {
        let has_page = || self.pages.iter().any(|page| page.bucket == asked);
        let others = || self.pages.iter().filter(|page| page.bucket.is_some());
        asked.filter(|_| has_page() || others().count() < limits::PAGES_OF_BUCKETS)
    }

    /// Begins a page, and returns which it is.
    pub fn begin(&mut self, vba: Vba, new: NewPage) -> usize {
        self.pages.push(Page {
            vba,
            block: new.block,
            bucket: new.bucket,
            count: 0,
            bytes: 0,
            shut: false,
            linked: false,
        });
        self.pages.len() - 1
    }

    /// Puts a part into a page.
    pub fn put(&mut self, page: usize, len: u16) -> Place {
        let page = &mut self.pages[page];
        let place = Place {
            vba: page.vba,
            block: page.block,
            slot: page.count,
        };
        page.count += 1;
        page.bytes += len;
        place
    }

    /// True if the page is in the open chunk.
    pub fn is_open(&self, vba: Vba) -> bool {
        self.pages.iter().any(|page| page.vba == vba)
    }

    /// Returns the block of a page in the open chunk whose parts may be replaced: none of them has a second owner.
    pub fn replaceable(&self, vba: Vba) -> Option<u16> {
        let page = self.pages.iter().find(|page| page.vba == vba)?;
        (!page.linked).then_some(page.block)
    }

    /// Notes that a part of a page got a second owner.
    pub fn on_linked(&mut self, vba: Vba) {
        if let Some(page) = self.page_mut(vba) {
            page.linked = true;
        }
    }

    /// Notes that nothing owns a page any longer, so its number may be reused.
    pub fn on_given_up(&mut self, vba: Vba) {
        if let Some(page) = self.page_mut(vba) {
            page.shut = true;
        }
    }

    fn page_mut(&mut self, vba: Vba) -> Option<&mut Page> {
        self.pages.iter_mut().find(|page| page.vba == vba)
    }

    /// Notes that the chunk was sealed.
    #[inline]
    pub fn on_sealed(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: Chunk = Chunk {
        spare: 1000,
        record: 8,
        next: 1,
    };

    fn part(len: u16) -> Part {
        Part {
            len,
            record: 20,
            bucket: None,
        }
    }

    fn of_bucket(bucket: u32) -> Part {
        Part {
            bucket: Some(Bucket(bucket)),
            ..part(100)
        }
    }

    /// Stores a part as an engine would; `None`: the block is stored whole.
    fn store(pack: &mut Pack, part: Part, chunk: Chunk) -> Option<Place> {
        let page = match pack.choose(part, chunk) {
            Choice::Page(page) => page,
            Choice::New(new) => pack.begin(Vba(pack.pages.len() as u32 + 10), new),
            Choice::Whole => return None,
        };
        Some(pack.put(page, part.len))
    }

    fn block(place: Option<Place>) -> Option<(u16, u8)> {
        place.map(|place| (place.block, place.slot))
    }

    #[test]
    fn the_room_in_the_header_is_filled_first() {
        let mut pack = Pack::default();
        assert_eq!(block(store(&mut pack, part(972), CHUNK)), Some((0, 0)));
        let full = Chunk { spare: 99, ..CHUNK };
        assert_eq!(block(store(&mut pack, part(80), full)), Some((1, 0)));
        assert_eq!(block(store(&mut pack, part(79), full)), Some((0, 1)));
        // A new page in the header has a record too.
        let mut pack = Pack::default();
        assert_eq!(block(store(&mut pack, part(973), CHUNK)), Some((1, 0)));
    }

    #[test]
    fn a_block_that_fits_no_page_is_stored_whole() {
        let mut pack = Pack::default();
        let most = (ROOM - OVERHEAD) as u16;
        assert_eq!(store(&mut pack, part(most + 1), CHUNK), None);
        assert_eq!(block(store(&mut pack, part(most), CHUNK)), Some((1, 0)));
        let next = Chunk { next: 2, ..CHUNK };
        assert_eq!(block(store(&mut pack, part(1000), next)), Some((2, 0)));
    }

    #[test]
    fn a_page_takes_so_many_parts() {
        let mut pack = Pack::default();
        let none = Chunk { spare: 0, ..CHUNK };
        for slot in 0..MAX_PARTS as u8 {
            assert_eq!(block(store(&mut pack, part(1), none)), Some((1, slot)));
        }
        let next = Chunk { next: 2, ..none };
        assert_eq!(block(store(&mut pack, part(1), next)), Some((2, 0)));
    }

    #[test]
    fn buckets_have_pages_of_their_own_until_there_are_too_many() {
        let mut pack = Pack::default();
        let most = limits::PAGES_OF_BUCKETS as u16;
        for next in 1..=most {
            let chunk = Chunk { next, ..CHUNK };
            let place = store(&mut pack, of_bucket(next.into()), chunk);
            assert_eq!(block(place), Some((next, 0)));
        }
        let chunk = Chunk {
            next: most + 1,
            ..CHUNK
        };
        assert_eq!(block(store(&mut pack, of_bucket(1), chunk)), Some((1, 1)));
        let one_more = of_bucket(u32::from(most) + 1);
        assert_eq!(block(store(&mut pack, one_more, chunk)), Some((0, 0)));
    }

    #[test]
    fn a_page_that_was_given_up_takes_no_part_and_a_linked_one_keeps_its_own() {
        let mut pack = Pack::default();
        let first = store(&mut pack, part(100), CHUNK).map(|place| place.vba);
        let Some(first) = first else {
            unreachable!("the header has room")
        };
        assert_eq!(pack.replaceable(first), Some(0));
        pack.on_linked(first);
        assert_eq!(pack.replaceable(first), None);
        assert_eq!(block(store(&mut pack, part(100), CHUNK)), Some((0, 1)));
        pack.on_given_up(first);
        assert_eq!(block(store(&mut pack, part(100), CHUNK)), Some((1, 0)));
        assert!(pack.is_open(first) && !pack.is_open(Vba(99)));
        pack.on_sealed();
        assert!(!pack.is_open(first));
    }
}
