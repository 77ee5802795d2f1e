//! Opening tables: all of them are read, and who leads where is counted anew.
//!
//! What a crash leaves is right as it is, but for counts that are too high: blocks that nothing leads to, and
//! that nobody could have freed before. They are found here, at every opening, for the map is read whole anyway;
//! the counts are put right in memory, and written when it costs least.
//!
//! A bad sector costs what it held, and no more: of the map that is the volume, for what links said is nowhere else; of
//! the fingerprints the hints in its block; of the counts nothing, for they are counted anew; of the editions that what was
//! lost of the map before is not noticed.

use super::editions::Editions;
use super::space::Space;
use super::table::Table;
use crate::addr::{BLOCK_BYTES, Generation, Pba};
use crate::format::areas::Layout;
use crate::format::root::{self, LeafSlot};
use crate::format::superblock::Superblock;
use crate::format::table::{
    Edition, Entry, Kind, Link, SectorEditions, Signer, decode_directory, sum_of_sectors,
};
use crate::format::{Crc, FormatError};
use crate::limits;
use crate::recovery::{RecoveryError, Replayed, Source, find_superblock};
use crate::stats::Stats;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

/// Table blocks of one read.
const READ_BLOCKS: u64 = 64;

/// A volume of tables as it was found.
pub struct Recovered {
    /// What it is.
    pub superblock: Superblock,
    pub(super) map: Table<Link>,
    pub(super) counts: Table<u16>,
    pub(super) prints: Table<u32>,
    pub(super) editions: Editions,
    /// Blocks of the table of editions that say less than what was found.
    pub(super) behind: BTreeSet<u32>,
    pub(super) refs: Table<u16>,
    pub(super) space: Space,
    /// Blocks of the table of counts that differ from what is on the medium.
    pub(super) mended: BTreeSet<u32>,
    /// Data blocks that may have had one of the fingerprints that are lost: each is still counted for it.
    pub(super) unprinted: Vec<u32>,
    /// Gauges of what was found.
    pub(super) found: Stats,
    pub(super) generation: Generation,
    pub(super) slots: Vec<LeafSlot>,
    pub(super) directory: Vec<LeafSlot>,
    /// Counts that were lower than what leads to their block, which no crash can bring about; put right.
    pub too_low: Vec<(Pba, u16, u16)>,
    /// Counts that were higher; put right.
    pub leaks: u64,
    /// Blocks of the tables that the map is enough without.
    pub lost: Vec<Lost>,
    /// What was read.
    pub replayed: Replayed,
}

/// A block of fingerprints, counts or editions that is damaged or cannot be read. Fingerprints are hints; counts are what the
/// map and the fingerprints add up to; editions are what the map says.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Of which table.
    pub kind: Kind,
    /// Which of its blocks.
    pub block: u32,
    /// Why.
    pub error: RecoveryError,
}

/// Where the tables' blocks are.
struct Blocks<'a> {
    source: &'a mut dyn Source,
    superblock: &'a Superblock,
    signer: Signer,
    crc: Crc,
    slots: &'a [LeafSlot],
    read: u64,
    lost: Vec<Lost>,
    /// Of the map's blocks.
    editions: Vec<SectorEditions>,
}

impl Blocks<'_> {
    /// Reads a table. What the links say is nowhere else; of the others a block that is damaged is taken for empty.
    fn load<E: Entry>(&mut self, table: &mut Table<E>) -> Result<(), RecoveryError> {
        let blocks = self.superblock.table_blocks()[E::KIND as usize];
        let mut entries = Vec::new();
        let mut bytes = vec![0; READ_BLOCKS as usize * BLOCK_BYTES];
        let mut block = 0;
        while block < blocks {
            let count = match self.superblock.layout() {
                Layout::Shadow => 1,
                _ => READ_BLOCKS.min(blocks - block),
            };
            let number = self.superblock.table_number(E::KIND, block as u32);
            let slot = match self.slots.get(number as usize) {
                Some(LeafSlot::Absent) => {
                    block += 1;
                    continue;
                }
                Some(LeafSlot::Slot1(sum)) => Some((1, *sum)),
                Some(LeafSlot::Slot0(sum)) => Some((0, *sum)),
                None => None,
            };
            let at = self
                .superblock
                .table_at(number, slot.map_or(0, |(slot, _)| slot));
            let bytes = &mut bytes[..count as usize * BLOCK_BYTES];
            let whole = self.source.read(at, bytes).is_ok();
            self.read += count;
            for (index, bytes) in (0..).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                let (at, block) = (at.plus(index), (block + index) as u32);
                let loaded = match whole {
                    true => Ok(()),
                    false => self.source.read(at, bytes).map_err(RecoveryError::from),
                };
                let loaded = loaded.and_then(|()| {
                    if let Some((_, expected)) = slot {
                        self.hold_against(E::KIND, bytes, expected, at)?;
                    }
                    let number = number + index;
                    let loaded = table.load(block, number, bytes, &self.signer, &mut entries);
                    loaded.map_err(|error| RecoveryError::Table { at, error })
                });
                match (loaded, E::KIND) {
                    (Ok(editions), Kind::Map) => self.editions.push(editions),
                    (Ok(_), _) => {}
                    (Err(error), Kind::Map) => return Err(error),
                    (Err(error), kind) => self.lost.push(Lost { kind, block, error }),
                }
            }
            block += count;
        }
        Ok(())
    }

    /// Holds a block against what the directory says of it.
    fn hold_against(
        &self,
        kind: Kind,
        bytes: &[u8],
        expected: u32,
        at: Pba,
    ) -> Result<(), RecoveryError> {
        // What a block of before 2026-11-22 was known by: the checksum of all that are whole.
        if (self.crc)(bytes) == expected {
            return Ok(());
        }
        let found = sum_of_sectors(bytes, self.crc);
        check_sum(kind.name(), found, expected, at)
    }
}

fn check_sum(what: &'static str, found: u32, expected: u32, at: Pba) -> Result<(), RecoveryError> {
    if found == expected {
        return Ok(());
    }
    let error = FormatError::Checksum {
        what,
        found,
        expected,
    };
    Err(RecoveryError::Table { at, error })
}

/// Reads the tables of a volume, and counts.
///
/// # Errors
/// When one of them is damaged, or names what there is not.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    let signer = Signer::new(&superblock, crc);
    let (generation, directory, slots) = match superblock.layout() {
        Layout::Shadow => read_directory(source, &superblock, crc)?,
        _ => (Generation(0), Vec::new(), Vec::new()),
    };
    let [map, counts, prints, editions] = superblock.table_blocks();
    let mut editions = Table::new(editions);
    let data_blocks = superblock.areas().data_blocks() as u32;
    let mut found = Recovered {
        map: Table::new(map),
        counts: Table::new(counts),
        prints: Table::new(prints),
        editions: Editions::none(),
        behind: BTreeSet::new(),
        refs: Table::new(counts),
        space: Space::new(data_blocks),
        mended: BTreeSet::new(),
        unprinted: Vec::new(),
        found: Stats::default(),
        generation,
        slots,
        directory,
        too_low: Vec::new(),
        leaks: 0,
        lost: Vec::new(),
        replayed: Replayed {
            mirror_lost,
            ..Replayed::default()
        },
        superblock,
    };
    let mut blocks = Blocks {
        source,
        superblock: &found.superblock,
        signer,
        crc,
        slots: &found.slots,
        read: 0,
        lost: Vec::new(),
        editions: Vec::new(),
    };
    blocks.load(&mut found.map)?;
    blocks.load(&mut found.counts)?;
    blocks.load(&mut found.prints)?;
    blocks.load(&mut editions)?;
    found.replayed.leaves = blocks.read;
    found.lost = blocks.lost;
    if found.superblock.has_editions() {
        found.hold_editions(&blocks.editions, editions)?;
    }
    found.count_links()?;
    found.settle_counts()?;
    Ok(found)
}

type Directory = (Generation, Vec<LeafSlot>, Vec<LeafSlot>);

/// The newest root that is whole, and the directory that it names.
fn read_directory(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
) -> Result<Directory, RecoveryError> {
    let blocks = superblock.directory_blocks() as u32;
    let bytes = superblock.shadow_root_blocks() as usize * BLOCK_BYTES;
    let mut copies = vec![0; 2 * bytes];
    let mut newest: Option<(Generation, Vec<LeafSlot>)> = None;
    let mut wrong = FormatError::Magic { what: "root" };
    for parity in 0..2 {
        let at = superblock.shadow_root_at(Generation(parity));
        for (copy, out) in (0..).zip(copies.chunks_exact_mut(bytes)) {
            let at = at.plus(copy * superblock.shadow_root_blocks());
            if source.read(at, out).is_err() {
                continue;
            }
            match root::decode(out, &superblock.uuid(), blocks, crc) {
                Ok((header, slots)) if header.generation.0 & 1 == parity => {
                    if newest
                        .as_ref()
                        .is_none_or(|(newest, _)| *newest < header.generation)
                    {
                        newest = Some((header.generation, slots));
                    }
                }
                Ok(_) => {}
                Err(error) => wrong = error,
            }
        }
    }
    let (generation, directory) = newest.ok_or(RecoveryError::NoRoot {
        first: wrong,
        second: wrong,
    })?;
    let lost = superblock.root_generation();
    if generation < lost {
        // The newest was durable, so it has rotted; the one before it is of an older volume.
        return Err(RecoveryError::RootLost { lost });
    }
    let tables: u64 = superblock.table_blocks().iter().sum();
    let mut slots = Vec::with_capacity(tables as usize);
    let mut block = [0; BLOCK_BYTES];
    for (number, entry) in (0..).zip(&directory) {
        let (slot, expected) = match entry {
            LeafSlot::Absent => {
                slots.resize(slots.len() + BLOCK_BYTES / 8, LeafSlot::Absent);
                continue;
            }
            LeafSlot::Slot0(sum) => (0, *sum),
            LeafSlot::Slot1(sum) => (1, *sum),
        };
        let at = superblock.directory_at(number, slot);
        source.read(at, &mut block)?;
        check_sum("directory of tables", crc(&block), expected, at)?;
        decode_directory(&block, &mut slots).map_err(|error| RecoveryError::Table { at, error })?;
    }
    slots.truncate(tables as usize);
    Ok((generation, directory, slots))
}

impl Recovered {
    /// Holds the map's blocks against the editions that were durable.
    fn hold_editions(
        &mut self,
        found: &[SectorEditions],
        table: Table<Edition>,
    ) -> Result<(), RecoveryError> {
        let lost = self.lost_blocks(Kind::Editions);
        self.found.lost_edition_blocks = lost.len() as u64;
        let held = Editions::found(found, table, |block| lost.contains(&block));
        let (editions, behind) = held.map_err(|(block, error)| RecoveryError::Table {
            at: self
                .superblock
                .table_at(self.superblock.table_number(Kind::Map, block), 0),
            error,
        })?;
        (self.editions, self.behind) = (editions, behind);
        self.behind.extend(lost);
        Ok(())
    }

    fn count_links(&mut self) -> Result<(), RecoveryError> {
        let end = self.superblock.logical_blocks() as u32;
        let data_blocks = self.superblock.areas().data_blocks();
        let mut from = 0;
        while let Some((key, link)) = self.map.next(from, end) {
            from = key + 1;
            let outside = || {
                let block = Table::<Link>::block_of(key);
                let number = self.superblock.table_number(Kind::Map, block);
                let slot = self.slots.get(number as usize);
                let slot = u64::from(matches!(slot, Some(LeafSlot::Slot1(_))));
                RecoveryError::Outside {
                    what: Kind::Map.name(),
                    at: self.superblock.table_at(number, slot),
                }
            };
            let index = link.index().ok_or_else(outside)?;
            let refs = match u64::from(index) < data_blocks {
                true => self.refs.get(index),
                false => return Err(outside()),
            };
            if refs == limits::COUNT_MAX {
                return Err(self.too_many(index));
            }
            self.refs.set(index, refs + 1);
            let found = &mut self.found;
            match refs {
                0 => found.live_blocks += 1,
                1 => {
                    found.shared_pages += 1;
                    found.shared_owners += 2;
                }
                _ => found.shared_owners += 1,
            }
        }
        Ok(())
    }

    /// Holds the counts against what leads to their blocks.
    ///
    /// A fingerprint that cannot be read now may be read at the next opening: until its block has been written anew it is
    /// counted, if it may be there. That the count of its block has room for it says so, where that is known.
    fn settle_counts(&mut self) -> Result<(), RecoveryError> {
        let lost_prints = self.lost_blocks(Kind::Prints);
        let lost_counts = self.lost_blocks(Kind::Counts);
        self.found.lost_fingerprint_blocks = lost_prints.len() as u64;
        self.found.rebuilt_count_blocks = lost_counts.len() as u64;
        for index in 0..self.superblock.areas().data_blocks() as u32 {
            let refs = self.refs.get(index);
            let is = match lost_counts.contains(&Table::<u16>::block_of(index)) {
                true => None,
                false => Some(self.counts.get(index)),
            };
            let lost_print = lost_prints.contains(&Table::<u32>::block_of(index))
                && refs < limits::COUNT_MAX
                && is.is_none_or(|is| is > refs);
            if lost_print {
                self.unprinted.push(index);
            }
            let should = refs + u16::from(lost_print || self.prints.get(index) != 0);
            if should > limits::COUNT_MAX {
                return Err(self.too_many(index));
            }
            if is != Some(should) {
                self.settle_count(index, is, should);
            }
            if should == 0 {
                self.space.free(index);
            }
        }
        // Those of them, too, that count nothing.
        self.mended.extend(lost_counts);
        Ok(())
    }

    fn settle_count(&mut self, index: u32, is: Option<u16>, should: u16) {
        match is {
            Some(is) if is < should => {
                let at = self.superblock.areas().data(index);
                self.too_low.push((at, is, should));
            }
            Some(_) => {
                self.leaks += 1;
                self.found.leaked_blocks += u64::from(should == 0);
            }
            None => {}
        }
        self.counts.set(index, should);
        self.mended.insert(Table::<u16>::block_of(index));
    }

    /// The blocks of a table that are lost.
    pub(super) fn lost_blocks(&self, kind: Kind) -> BTreeSet<u32> {
        let of_kind = self.lost.iter().filter(|lost| lost.kind == kind);
        of_kind.map(|lost| lost.block).collect()
    }

    fn too_many(&self, index: u32) -> RecoveryError {
        let at = self.superblock.areas().data(index);
        RecoveryError::TooManyOwners { at }
    }

    /// Every link: the LBA, where its block is, and the block's checksum.
    pub fn links(&self) -> impl Iterator<Item = (u32, Pba, u32)> + '_ {
        let end = self.superblock.logical_blocks() as u32;
        let mut from = 0;
        core::iter::from_fn(move || {
            let (key, link) = self.map.next(from, end)?;
            from = key + 1;
            let at = self.superblock.areas().data(link.index()?);
            Some((key, at, link.sum))
        })
    }
}
