//! One linear table in memory. An empty block takes no memory.

use crate::addr::BLOCK_BYTES;
use crate::format::table::{Edition, Entry, Signer};
use alloc::{boxed::Box, vec, vec::Vec};

/// See the module.
pub struct Table<E> {
    blocks: Vec<Option<Box<[E]>>>,
}

impl<E: Entry> Table<E> {
    /// An empty table of so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks: (0..blocks).map(|_| None).collect(),
        }
    }

    /// The block that an entry is in.
    pub fn block_of(index: u32) -> u32 {
        index / E::KIND.entries() as u32
    }

    pub fn get(&self, index: u32) -> E {
        let (block, at) = split::<E>(index);
        match &self.blocks[block] {
            Some(entries) => entries[at],
            None => E::default(),
        }
    }

    pub fn set(&mut self, index: u32, entry: E) {
        let (block, at) = split::<E>(index);
        match &mut self.blocks[block] {
            Some(entries) => entries[at] = entry,
            None if entry == E::default() => {}
            none => {
                let mut entries = vec![E::default(); E::KIND.entries()];
                entries[at] = entry;
                *none = Some(entries.into_boxed_slice());
            }
        }
    }

    /// The first entry that is not empty, from `from` on and before `end`.
    pub fn next(&self, from: u32, end: u32) -> Option<(u32, E)> {
        let mut index = from;
        while index < end {
            let (block, at) = split::<E>(index);
            let first = (block * E::KIND.entries()) as u32;
            if let Some(entries) = &self.blocks[block] {
                let found = entries[at..].iter().position(|e| *e != E::default());
                if let Some(found) = found {
                    let index = index + found as u32;
                    return (index < end).then(|| (index, entries[at + found]));
                }
            }
            index = first.saturating_add(E::KIND.entries() as u32);
        }
        None
    }

    /// Encodes a block, whose number over all tables is `number`.
    pub fn encode(
        &self,
        block: u32,
        number: u64,
        edition: Edition,
        signer: &Signer,
        out: &mut [u8],
    ) {
        debug_assert_eq!(out.len(), BLOCK_BYTES);
        let entries = self.blocks[block as usize].as_deref().unwrap_or_default();
        signer.encode(number, edition, entries, out);
    }

    /// Sets a block's entries to those that were found.
    pub fn load(&mut self, block: u32, entries: &[E]) {
        if entries.iter().any(|entry| *entry != E::default()) {
            self.blocks[block as usize] = Some(entries.into());
        }
    }
}

fn split<E: Entry>(index: u32) -> (usize, usize) {
    let entries = E::KIND.entries();
    (index as usize / entries, index as usize % entries)
}
