//! Writes of the map that the medium confirmed and lost.
//!
//! A table block is written over in place, and its old version is as whole as the new one: no checksum tells them apart. So
//! each sector of the map says which *edition* of its block it is of, and a table beside the map says of each block an edition
//! that was durable. A block that is older than that was lost. The table follows: it is written when nothing waits for it,
//! 30 s after the map at the latest and at a clean stop, so no answer waits for it and no sync is for it. It may say too
//! little, after a crash, and never too much.

use crate::format::FormatError;
use crate::format::table::{Edition, Kind, Link, SectorEditions, Signer};
use crate::tables::table::Table;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// See the module. Of volumes from before it, and of shadowed tables, there is nothing.
pub(super) struct Editions {
    /// Which edition each block of the map is in.
    newest: Vec<Edition>,
    /// What is known to be durable of each.
    durable: Table<Edition>,
    /// Blocks of the map that the commit under way writes.
    written: BTreeSet<u32>,
}

/// The editions that were found.
pub(super) struct Held {
    pub editions: Editions,
    /// Which blocks of the table are to be written for them.
    pub behind: BTreeSet<u32>,
    /// Blocks of the map that are older than one that was durable.
    pub stale: Vec<Stale>,
}

/// A block of the map that is older than one that was durable.
pub(super) struct Stale {
    pub block: u32,
    /// Its sectors that are.
    pub sectors: Vec<u32>,
    pub error: FormatError,
}

impl Editions {
    /// Where there are none.
    pub fn none() -> Self {
        Self {
            newest: Vec::new(),
            durable: Table::new(0),
            written: BTreeSet::new(),
        }
    }

    /// What the map's blocks were found to be, and what the table says of them. The sync with which a life begins
    /// makes durable what was found, so the table says that from now on; but not of a block that is so in one copy alone, until
    /// both have been written anew.
    pub fn found(
        found: &[SectorEditions],
        table: Table<Edition>,
        is_lost: impl Fn(u32) -> bool,
        is_alone: impl Fn(u32) -> bool,
    ) -> Held {
        let mut held = Held {
            editions: Self {
                newest: Vec::with_capacity(found.len()),
                durable: table,
                written: BTreeSet::new(),
            },
            behind: BTreeSet::new(),
            stale: Vec::new(),
        };
        for (block, sectors) in (0..).zip(found) {
            let (oldest, newest) = sectors.ends();
            let known = held.editions.durable.get(block);
            let of_table = Table::<Edition>::block_of(block);
            let older: Vec<u32> = sectors.older(known).collect();
            if !older.is_empty() && !is_lost(of_table) {
                held.stale.push(Stale {
                    block,
                    sectors: older,
                    error: FormatError::Stale {
                        what: Kind::Map.name(),
                        edition: oldest.0,
                        known: known.0,
                    },
                });
            }
            if oldest != known && !is_alone(block) {
                held.editions.durable.set(block, oldest);
                held.behind.insert(of_table);
            }
            held.editions.newest.push(newest);
        }
        held
    }

    /// A block of the map is about to be written.
    pub fn next(&mut self, block: u32) {
        if let Some(edition) = self.newest.get_mut(block as usize) {
            *edition = edition.next();
            self.written.insert(block);
        }
    }

    /// The edition of a block of the map.
    pub fn of(&self, block: u32) -> Edition {
        let edition = self.newest.get(block as usize);
        edition.copied().unwrap_or_default()
    }

    /// What the commit has written is durable. The blocks of the table that say less.
    pub fn are_durable(&mut self) -> BTreeSet<u32> {
        let mut behind = BTreeSet::new();
        for block in core::mem::take(&mut self.written) {
            self.durable.set(block, self.newest[block as usize]);
            behind.insert(Table::<Edition>::block_of(block));
        }
        behind
    }

    /// The bytes of a block of the map.
    pub fn encode_map(
        &self,
        map: &Table<Link>,
        block: u32,
        number: u64,
        signer: &Signer,
        out: &mut [u8],
    ) {
        map.encode(block, number, self.of(block), signer, out);
    }

    /// The bytes of a block of the table.
    pub fn encode(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        self.durable
            .encode(block, number, Edition::default(), signer, out);
    }
}
