//! Pages of parts, without their bytes: which contents are in each.
//!
//! To the medium and to the collector a page of parts is one block more, so it has a [`Content`] like any other: one whose
//! checksum is that of the page as the engine encodes it, directory and all.

use crate::content::Content;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use vellum_core::format::pack::PartTag;

struct Page {
    /// Blocks of the medium that hold it.
    copies: u32,
    parts: Box<[Content]>,
    /// What its directory says, where somebody reads it.
    directory: Box<[PartTag]>,
}

/// See the module.
#[derive(Default)]
pub struct Pages {
    /// Looked up only: its order is chance.
    of: HashMap<Content, Page>,
    made: u32,
}

impl Pages {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// A page with this checksum, these parts and this directory, which one block of the medium holds.
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

    /// One block more holds this, if it is a page.
    pub fn copied(&mut self, content: Content) {
        if let Some(page) = self.of.get_mut(&content) {
            page.copies += 1;
        }
    }

    /// One block fewer does.
    pub fn erased(&mut self, content: Content) {
        if let Some(page) = self.of.get_mut(&content) {
            page.copies -= 1;
            if page.copies == 0 {
                self.of.remove(&content);
            }
        }
    }

    /// What its directory says; nothing, if it is no page.
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
