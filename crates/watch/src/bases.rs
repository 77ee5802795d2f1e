//! Bases: blocks that other blocks are stored as deltas against (CSA-FS §3.2). They are kept in a bounded memory.
//!
//! The core reports which block a part holds when it stores the part, and reports when it gives up the part's page. In between,
//! the block is kept here until more recently used bases push it out. So what is here is always what is stored.
//!
//! A block is worth keeping if it replaces another one. A block written for the first time may never be written again, and an
//! installation would push out everything else. A copy in a journal replaces the copy before it, or else the block at its home
//! address, which the journal's preceding descriptor block names.

use crate::limits::{BASES, GROUP_BLOCKS};
use crate::logs::EarlierPlaces;
use lru::LruCache;
use vellum_core::addr::{Buf, Lba, Vba};
use vellum_core::entry::{Earlier, MAX_PARTS, PartId};
use vellum_core::seam::Bucket;

/// A block that may be a base.
#[derive(Clone, Copy, Debug)]
pub struct Base<B> {
    /// What its host keeps of it.
    pub block: B,
    /// The number of bytes it is stored in.
    pub len: u16,
}

impl<B> Base<B> {
    /// The longest delta that is worth the page that is kept for it.
    #[must_use]
    pub fn longest_delta(&self) -> u16 {
        self.len / 2
    }
}

/// The bases of a volume.
pub struct Bases<B> {
    known: LruCache<u32, Base<B>>,
    /// For each buffer: the number of bytes its block is stored in if it is worth keeping as a base, else 0.
    wanted: Vec<u16>,
    is_on: bool,
}

/// What a block replaces.
#[derive(Clone, Copy, Debug)]
pub struct Found<B> {
    /// A base that is kept.
    pub base: Option<(PartId, Base<B>)>,
    /// True if it replaces something; then it may be replaced again.
    pub replaces: bool,
    /// True if it replaces what could be a base.
    pub is_fit: bool,
}

impl<B> Default for Found<B> {
    fn default() -> Self {
        Self {
            base: None,
            replaces: false,
            is_fit: false,
        }
    }
}

impl<B> Default for Bases<B> {
    fn default() -> Self {
        Self {
            known: LruCache::new(BASES),
            wanted: Vec::new(),
            is_on: false,
        }
    }
}

impl<B: Clone> Bases<B> {
    /// Sets whether deltas are made. Returns true if that is a change.
    pub fn set(&mut self, on: bool) -> bool {
        if self.is_on != on {
            // While they are off, the core does not report what it gives up.
            self.known.clear();
            self.wanted.clear();
        }
        std::mem::replace(&mut self.is_on, on) != on
    }

    /// Looks up what a block replaces, in the places of its earlier versions.
    pub fn find(&mut self, places: EarlierPlaces, at: impl Fn(Lba) -> Earlier) -> Found<B> {
        let mut found = Found::default();
        for place in places.all() {
            let earlier = at(place);
            found.replaces |= earlier != Earlier::Nothing;
            if let Earlier::Base(part) = earlier {
                found.is_fit = true;
                found.base = self.get(part).map(|base| (part, base));
                if found.base.is_some() {
                    break;
                }
            }
        }
        found
    }

    /// The base that this part is, if it is kept. That is a use of it.
    pub fn get(&mut self, part: PartId) -> Option<Base<B>> {
        self.known.get(&part.raw()).cloned()
    }

    /// The same, but no use.
    #[must_use]
    pub fn peek(&self, part: PartId) -> Option<&Base<B>> {
        self.known.peek(&part.raw())
    }

    /// Notes in how many bytes a buffer's block is stored if it is worth keeping; 0 if it is not, unlike perhaps the block that the
    /// buffer held before.
    pub fn want(&mut self, buf: Buf, len: u16) {
        let index = buf.0 as usize;
        if index >= self.wanted.len() {
            self.wanted.resize(index + 1, 0);
        }
        self.wanted[index] = len;
    }

    /// Notes that the core has stored a buffer's block as this part.
    pub fn stored(&mut self, part: PartId, buf: Buf, block: impl FnOnce() -> B) {
        let wanted = self.wanted.get_mut(buf.0 as usize);
        match wanted.map_or(0, std::mem::take) {
            0 => self.known.pop(&part.raw()),
            len => self.known.put(
                part.raw(),
                Base {
                    block: block(),
                    len,
                },
            ),
        };
    }

    /// Forgets the parts of a page that the core has given up.
    pub fn given_up(&mut self, page: Vba) {
        if !self.known.is_empty() {
            for slot in 0..MAX_PARTS as u8 {
                self.known.pop(&PartId { page, slot }.raw());
            }
        }
    }
}

/// The bucket for deltas of blocks with this home, in a log of deltas (CSA-FS §3.3).
#[must_use]
pub fn bucket(home: Lba) -> Bucket {
    Bucket((home.0 / GROUP_BLOCKS) as u32)
}
