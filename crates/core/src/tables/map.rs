//! The map as the medium has it, or may have it next: a link for each LBA, and the edition of each of its blocks.

use super::editions::Editions;
use super::table::Table;
use crate::format::table::{Link, Signer};
use alloc::collections::BTreeSet;

/// See the module.
pub(super) struct Map {
    links: Table<Link>,
    editions: Editions,
}

impl Map {
    /// The map that was found.
    pub fn new(links: Table<Link>, editions: Editions) -> Self {
        Self { links, editions }
    }

    /// The block that an LBA's link is in.
    pub fn block_of(key: u32) -> u32 {
        Table::<Link>::block_of(key)
    }

    #[inline]
    pub fn get(&self, key: u32) -> Link {
        self.links.get(key)
    }

    /// Sets a link, and returns the one before.
    #[inline]
    pub fn replace(&mut self, key: u32, link: Link) -> Link {
        let before = self.links.get(key);
        if before != link {
            self.links.set(key, link);
        }
        before
    }

    /// The first LBA from `from` on, and before `end`, that leads somewhere.
    pub fn next(&self, from: u32, end: u32) -> Option<u32> {
        self.links.next(from, end).map(|(key, _)| key)
    }

    /// Notes that a block is about to be written: it gets another edition.
    pub fn begin_block(&mut self, block: u32) {
        self.editions.next(block);
    }

    /// Notes that the blocks written by the commit are durable. Returns the blocks of the table of editions that lag behind.
    pub fn on_durable(&mut self) -> BTreeSet<u32> {
        self.editions.are_durable()
    }

    /// Encodes a block, whose number over all tables is `number`.
    pub fn encode(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        let edition = self.editions.of(block);
        self.links.encode(block, number, edition, signer, out);
    }

    /// Encodes a block of the table of editions.
    pub fn encode_editions(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        self.editions.encode(block, number, signer, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_replaces_another() {
        let mut map = Map::new(Table::new(2), Editions::none());
        assert_eq!(map.replace(9, Link::to(3, 7)), Link::NONE);
        assert_eq!(map.replace(9, Link::to(4, 7)), Link::to(3, 7));
        assert_eq!(map.get(9), Link::to(4, 7));
        assert_eq!((map.next(0, 10), map.next(0, 9)), (Some(9), None));
        map.begin_block(0);
        assert!(map.on_durable().is_empty(), "there are no editions");
    }
}
