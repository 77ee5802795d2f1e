//! Pages of parts, without their bytes: which contents are in each.
//!
//! To the medium and the collector a page of parts is a block like any other, so it has a [`Content`]: one with the
//! checksum of the page as the engine encodes it, directory included.

use crate::content::Content;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use vellum_core::format::pack::PartTag;

struct Page {
    /// Blocks of the medium that hold it.
    copies: u32,
    parts: Box<[Content]>,
    /// What its directory says, if anything reads it.
    directory: Box<[PartTag]>,
}

/// The pages of parts; see the module.
#[derive(Default)]
pub struct Pages {
    /// Never iterated: the order would be random.
    of: HashMap<Content, Page>,
    made: u32,
}

impl Pages {
    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Adds a page with this checksum, these parts and this directory, held by one block of the medium.
    pub fn make(&mut self, sum: u32, parts: Vec<Content>, directory: &[PartTag]) -> Content {
        loop {
            self.made = self.made.wrapping_add(1);
            let content = Content::with_sum(sum, self.made);
            if let Entry::Vacant(free) = self.of.entry(content) {
                let parts = parts.into();
                let directory = directory.into();
                free.insert(Page {
                    copies: 1,
                    parts,
                    directory,
                });
                return content;
            }
        }
    }

    /// Notes that one more block holds this content, if it is a page.
    pub fn copied(&mut self, content: Content) {
        if let Some(page) = self.of.get_mut(&content) {
            page.copies += 1;
        }
    }

    /// Notes that one block fewer holds it.
    pub fn erased(&mut self, content: Content) {
        if let Some(page) = self.of.get_mut(&content) {
            page.copies -= 1;
            if page.copies == 0 {
                self.of.remove(&content);
            }
        }
    }

    /// What its directory says; empty if it is not a page.
    #[must_use]
    pub fn directory(&self, page: Content) -> &[PartTag] {
        self.of.get(&page).map_or(&[], |page| &page.directory)
    }

    /// One of its parts.
    #[must_use]
    pub fn part(&self, page: Content, slot: u8) -> Option<Content> {
        self.of.get(&page)?.parts.get(usize::from(slot)).copied()
    }
}
