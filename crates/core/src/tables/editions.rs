//! Detects writes of the map that the medium confirmed and lost.
//!
//! A table block is overwritten in place, and its old version is as whole as the new one: no checksum distinguishes them. So each sector
//! of the map records which *edition* of its block it belongs to, and a table beside the map records for each block an edition that was
//! durable. If a block of the map is older than that edition, a write of it was lost. The table follows the map: it is written when
//! nothing waits for it, at the latest 30 s after the map and at a clean stop. So no answer waits for it, and it needs no sync. After a
//! crash it may name too old an edition, never too new a one.

use crate::format::FormatError;
use crate::format::table::{Edition, Kind, SectorEditions, Signer};
use crate::tables::table::Table;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// See the module. Empty for volumes that are older than editions, and for shadowed tables.
pub(super) struct Editions {
    /// The current edition of each block of the map.
    newest: Vec<Edition>,
    /// The edition of each that is known to be durable.
    durable: Table<Edition>,
    /// Blocks of the map that the current commit writes.
    written: BTreeSet<u32>,
}

/// The editions that recovery found.
pub(super) struct FoundEditions {
    pub editions: Editions,
    /// Blocks of the table that have to be written for them.
    pub behind: BTreeSet<u32>,
    /// Blocks of the map that are older than one that was durable.
    pub stale: Vec<Stale>,
}

/// A block of the map that is older than one that was durable.
pub(super) struct Stale {
    pub block: u32,
    /// Its sectors that are older.
    pub sectors: Vec<u32>,
    pub error: FormatError,
}

impl Editions {
    /// No editions.
    pub fn none() -> Self {
        Self {
            newest: Vec::new(),
            durable: Table::new(0),
            written: BTreeSet::new(),
        }
    }

    /// Compares the editions found in the map's blocks with those in the table. The sync with which a life begins makes the editions
    /// found durable, so the table records them from then on. If a block has only one good copy, its edition is recorded after both
    /// copies have been written again.
    pub fn found(
        found: &[SectorEditions],
        table: Table<Edition>,
        is_lost: impl Fn(u32) -> bool,
        is_alone: impl Fn(u32) -> bool,
    ) -> FoundEditions {
        let mut held = FoundEditions {
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

    /// Notes that a block of the map is about to be written.
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

    /// Notes that what the commit has written is durable. Returns the blocks of the table that lag behind.
    pub fn are_durable(&mut self) -> BTreeSet<u32> {
        let mut behind = BTreeSet::new();
        for block in core::mem::take(&mut self.written) {
            self.durable.set(block, self.newest[block as usize]);
            behind.insert(Table::<Edition>::block_of(block));
        }
        behind
    }

    /// Encodes a block of the table.
    pub fn encode(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        self.durable
            .encode(block, number, Edition::default(), signer, out);
    }
}
