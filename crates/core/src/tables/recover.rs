//! Opens tables: reads all of them, and counts anew which LBAs lead where.
//!
//! After a crash everything is right, except for counts that are too high: blocks that nothing leads to, and that were not freed before
//! the crash. Each opening finds them, because it reads the whole map anyway. The counts are corrected in memory, and written when it
//! costs least.
//!
//! A bad sector costs only its own contents. A sector of the map costs its links, because they are stored nowhere else; then the volume
//! opens only for reading (`rest`). A sector of fingerprints costs the hints in its block. A sector of counts costs nothing, because the
//! counts are counted anew. If a sector of editions is bad, earlier losses in the map go unnoticed.

use super::directory::{Directory, check_sum};
use super::editions::Editions;
use super::space::Space;
use super::table::Table;
use super::twins::{Seen, Twins};
use crate::addr::{BLOCK_BYTES, Generation, Lba, Pba};
use crate::format::Crc;
use crate::format::areas::{DIRECTORY_ENTRIES, Layout};
use crate::format::root::LeafSlot;
use crate::format::superblock::Superblock;
use crate::format::table::{Edition, Entry, Kind, Link, SectorEditions, Signer, sum_of_sectors};
use crate::limits;
use crate::recovery::rescue::{Loss, Trust};
use crate::recovery::{RecoveryError, Replayed, Source, find_superblock};
use crate::stats::Stats;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

/// Table blocks of one read.
const READ_BLOCKS: u64 = 64;

/// A volume of tables as recovery found it.
pub struct Recovered {
    /// Its superblock.
    pub superblock: Superblock,
    pub(super) map: Table<Link>,
    pub(super) counts: Table<u16>,
    pub(super) prints: Table<u32>,
    pub(super) editions: Editions,
    pub(super) anew: Anew,
    pub(super) refs: Table<u16>,
    pub(super) space: Space,
    /// Blocks of the table of counts that differ from the medium.
    pub(super) mended: BTreeSet<u32>,
    /// Data blocks that may have had one of the lost fingerprints; each is still counted for it.
    pub(super) unprinted: Vec<u32>,
    /// Gauges of what was found.
    pub(super) found: Stats,
    /// The newest whole root, where there are roots.
    pub generation: Generation,
    pub(super) slots: Vec<LeafSlot>,
    pub(super) directory: Vec<LeafSlot>,
    /// Counts that were lower than the number of links to their block, which no crash can cause; corrected.
    pub too_low: Vec<(Pba, u16, u16)>,
    /// How many counts were higher; corrected.
    pub leaks: u64,
    /// Damaged table blocks that are not needed, because the map is there.
    pub lost: Vec<Lost>,
    /// Links that are not known, and why.
    pub(super) loss: Loss,
    /// True if this is the rest of a damaged volume, which can be read but not written.
    pub is_rest: bool,
    /// What was read.
    pub replayed: Replayed,
}

/// The blocks that have to be written anew, besides counts.
#[derive(Default)]
pub(super) struct Anew {
    /// Table blocks with a bad or outdated copy.
    pub tables: BTreeSet<(Kind, u32)>,
    /// Blocks of the map with a damaged copy.
    pub damaged: BTreeSet<u32>,
    /// Blocks of the table of editions that lag behind what was found.
    pub editions: BTreeSet<u32>,
    /// The missing second copy of a root.
    pub root: Option<Pba>,
    /// Copies in the place of the next root that do not count.
    pub void_roots: Vec<Pba>,
}

/// A block of fingerprints, counts or editions that is damaged or cannot be read. Fingerprints are hints; counts follow from the
/// map and the fingerprints; editions follow from the map.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Its table.
    pub kind: Kind,
    /// Its number in the table.
    pub block: u32,
    /// Why.
    pub error: RecoveryError,
}

/// Reads the tables' blocks.
struct Blocks<'a> {
    source: &'a mut dyn Source,
    superblock: &'a Superblock,
    signer: Signer,
    crc: Crc,
    directory: &'a Directory,
    read: u64,
    lost: Vec<Lost>,
    twins: Twins,
    loss: &'a mut Loss,
    /// The editions of the map's blocks.
    editions: Vec<SectorEditions>,
}

/// Where a table block and its twin are; for shadowed tables, with its sum.
struct Place {
    at: Pba,
    twin: Option<Pba>,
    sum: Option<u32>,
}

impl Place {
    /// The place of a block that is so many blocks further on.
    fn plus(&self, blocks: u64) -> Self {
        Self {
            at: self.at.plus(blocks),
            twin: self.twin.map(|twin| twin.plus(blocks)),
            sum: self.sum,
        }
    }
}

impl Blocks<'_> {
    /// Reads a table. Each sector of the map stands for itself; in the other tables a damaged block is taken for empty.
    fn load<E: Entry>(&mut self, table: &mut Table<E>) {
        let blocks = self.superblock.table_blocks()[E::KIND as usize];
        let mut bytes = vec![0; READ_BLOCKS as usize * BLOCK_BYTES];
        let mut twins = bytes.clone();
        let mut block = 0;
        while block < blocks {
            let count = match self.superblock.layout() {
                Layout::Shadow => 1,
                _ => READ_BLOCKS.min(blocks - block),
            };
            let first = block as u32;
            block += count;
            let place = match self.place(self.superblock.table_number(E::KIND, first)) {
                Ok(Some(place)) => place,
                Ok(None) => continue,
                Err(error) => {
                    self.miss(E::KIND, first, SectorEditions::default(), error);
                    continue;
                }
            };
            let bytes = &mut bytes[..count as usize * BLOCK_BYTES];
            let is_whole = self.read_all(place.at, bytes);
            let is_read = place.sum.is_none()
                && place
                    .twin
                    .is_some_and(|twin| self.read_all(twin, &mut twins[..bytes.len()]));
            let copies = bytes
                .chunks_exact_mut(BLOCK_BYTES)
                .zip(twins.chunks_exact_mut(BLOCK_BYTES));
            for (index, (bytes, twin_bytes)) in (0..).zip(copies) {
                let block = first + index as u32;
                let place = place.plus(index);
                let mut seen = self.look(block, place.at, place.sum, bytes, is_whole);
                if let Some(twin) = place
                    .twin
                    .filter(|_| place.sum.is_none() || seen.result.is_err())
                {
                    let second = self.look(block, twin, place.sum, twin_bytes, is_read);
                    self.twins.take(self.superblock, block, &mut seen, second);
                }
                self.keep(table, block, seen);
            }
        }
    }

    fn read_all(&mut self, at: Pba, bytes: &mut [u8]) -> bool {
        self.read += (bytes.len() / BLOCK_BYTES) as u64;
        self.source.read(at, bytes).is_ok()
    }

    /// Decodes one copy of a block, if it could be read.
    fn look<E: Entry>(
        &mut self,
        block: u32,
        at: Pba,
        sum: Option<u32>,
        bytes: &mut [u8],
        is_read: bool,
    ) -> Seen<E> {
        let read = match is_read {
            true => Ok(()),
            false => self.source.read(at, bytes).map_err(RecoveryError::from),
        };
        let is_told = read.and_then(|()| match sum {
            Some(expected) => self.hold_against(E::KIND, bytes, expected, at),
            None => Ok(()),
        });
        let mut seen = Seen::nothing();
        match is_told {
            Ok(()) => {
                let number = self.superblock.table_number(E::KIND, block);
                let (sectors, result) = self.signer.decode(number, bytes, &mut seen.entries);
                seen.sectors = sectors;
                seen.result = result.map_err(|error| RecoveryError::Table { at, error });
            }
            Err(error) => seen.result = Err(error),
        }
        seen
    }

    fn keep<E: Entry>(&mut self, table: &mut Table<E>, block: u32, seen: Seen<E>) {
        if seen.result.is_ok() || E::KIND == Kind::Map {
            table.load(block, &seen.entries);
        }
        if let Err(error) = seen.result {
            self.miss(E::KIND, block, seen.sectors, error);
        }
        if E::KIND == Kind::Map {
            let error = seen.result.err().into_iter();
            error.for_each(|error| self.loss.note(error));
            self.editions.push(seen.sectors);
        }
    }

    /// Where a block is, if it exists; an error if that is not known.
    fn place(&self, number: u64) -> Result<Option<Place>, RecoveryError> {
        let (slot, sum) = match self.superblock.layout() {
            Layout::Shadow => match self.directory.slot(number)?.found() {
                None => return Ok(None),
                Some((slot, sum)) => (slot.into(), Some(sum)),
            },
            _ => (0, None),
        };
        Ok(Some(Place {
            at: self.superblock.table_at(number, slot),
            twin: self.superblock.map_twin(number, slot),
            sum,
        }))
    }

    /// Notes a damaged block, of which only these sectors are whole.
    fn miss(&mut self, kind: Kind, block: u32, sectors: SectorEditions, error: RecoveryError) {
        if kind != Kind::Map {
            return self.lost.push(Lost { kind, block, error });
        }
        for sector in sectors.missing() {
            let (lba, blocks) = lbas_of(block, sector);
            self.loss.lost.insert(lba, blocks);
        }
    }

    /// Compares a block with what the directory says about it.
    fn hold_against(
        &self,
        kind: Kind,
        bytes: &[u8],
        expected: u32,
        at: Pba,
    ) -> Result<(), RecoveryError> {
        // Before 2026-11-22 the directory had another checksum: the same one for all whole blocks.
        if (self.crc)(bytes) == expected {
            return Ok(());
        }
        let found = sum_of_sectors(bytes, self.crc);
        check_sum(kind.name(), found, expected, at)
    }
}

/// The LBAs whose links are in a sector of the map.
pub(super) fn lbas_of(block: u32, sector: u32) -> (Lba, u64) {
    let of_sector = Kind::Map.sector_entries() as u64;
    let first = u64::from(block) * Kind::Map.entries() as u64 + u64::from(sector) * of_sector;
    (Lba(first), of_sector)
}

/// Reads the tables of a volume, and counts.
///
/// # Errors
/// When the map is damaged, or names something that does not exist.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    let found = look(source, medium_blocks, crc, Trust::Certain)?;
    match found.loss.damage.first() {
        Some(error) => Err(*error),
        None => Ok(found),
    }
}

/// Reads what is whole of the tables, and counts.
///
/// # Errors
/// When there is no superblock.
pub(super) fn look(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    trust: Trust,
) -> Result<Recovered, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    let mut found = Recovered::empty(superblock, mirror_lost);
    let signer = Signer::new(&found.superblock, crc);
    let mut directory = match found.superblock.layout() {
        Layout::Shadow => Directory::read(source, &found.superblock, crc, &mut found.loss),
        _ => Directory::default(),
    };
    if trust != Trust::Newest {
        directory.be_certain();
    }
    let mut editions = Table::new(found.superblock.table_blocks()[Kind::Editions as usize]);
    let mut blocks = Blocks {
        source: &mut *source,
        superblock: &found.superblock,
        signer,
        crc,
        directory: &directory,
        read: 0,
        lost: Vec::new(),
        twins: Twins::default(),
        loss: &mut found.loss,
        editions: Vec::new(),
    };
    blocks.load(&mut found.map);
    blocks.load(&mut found.counts);
    blocks.load(&mut found.prints);
    blocks.load(&mut editions);
    (found.replayed.leaves, found.lost) = (blocks.read, blocks.lost);
    let (of_map, twins) = (blocks.editions, blocks.twins);
    found.replayed.from_copies = (twins.damaged.len() + directory.from_twins.len()) as u64;
    found.anew.damaged = twins.damaged;
    found.anew.tables = twins
        .anew
        .into_iter()
        .map(|block| (Kind::Map, block))
        .collect();
    let named = directory
        .from_twins
        .iter()
        .map(|block| block * DIRECTORY_ENTRIES);
    let named = named.filter_map(|number| found.superblock.table_of(number));
    found.anew.tables.extend(named);
    found.anew.root = directory.lone;
    found.anew.void_roots = directory.void;
    (found.generation, found.slots) = (directory.generation, directory.slots);
    found.directory = directory.blocks;
    if found.superblock.has_editions() {
        found.hold_editions(&of_map, editions);
    }
    if trust == Trust::Newest {
        found.guess(source, &signer);
        if directory.doubt.is_some() {
            found.guess_all();
        }
    }
    found.count_links();
    found.settle_counts();
    Ok(found)
}

impl Recovered {
    fn empty(superblock: Superblock, mirror_lost: bool) -> Self {
        let [map, counts, prints, _] = superblock.table_blocks();
        Self {
            map: Table::new(map),
            counts: Table::new(counts),
            prints: Table::new(prints),
            editions: Editions::none(),
            anew: Anew::default(),
            refs: Table::new(counts),
            space: Space::new(superblock.areas().data_blocks() as u32),
            mended: BTreeSet::new(),
            unprinted: Vec::new(),
            found: Stats::default(),
            generation: Generation(0),
            slots: Vec::new(),
            directory: Vec::new(),
            too_low: Vec::new(),
            leaks: 0,
            lost: Vec::new(),
            loss: Loss::none(superblock.logical_blocks()),
            is_rest: false,
            replayed: Replayed {
                mirror_lost,
                ..Replayed::default()
            },
            superblock,
        }
    }

    /// Compares the map's blocks with the editions that were durable.
    fn hold_editions(&mut self, found: &[SectorEditions], table: Table<Edition>) {
        let lost = self.lost_blocks(Kind::Editions);
        self.found.lost_edition_blocks = lost.len() as u64;
        let is_lost = |block: u32| lost.contains(&block);
        let is_alone = |block: u32| self.anew.tables.contains(&(Kind::Map, block));
        let held = Editions::found(found, table, is_lost, is_alone);
        for stale in held.stale {
            let number = self.superblock.table_number(Kind::Map, stale.block);
            let (at, error) = (self.superblock.table_at(number, 0), stale.error);
            self.loss.note(RecoveryError::Table { at, error });
            for sector in stale.sectors {
                let (lba, blocks) = lbas_of(stale.block, sector);
                self.forget(lba, blocks);
            }
        }
        (self.editions, self.anew.editions) = (held.editions, held.behind);
        self.anew.editions.extend(lost);
    }

    fn count_links(&mut self) {
        let end = self.superblock.logical_blocks() as u32;
        let mut from = 0;
        while let Some((key, link)) = self.map.next(from, end) {
            from = key + 1;
            if let Err(error) = self.count(key, link) {
                self.loss.note(error);
                self.forget(Lba(key.into()), 1);
            }
        }
    }

    fn count(&mut self, key: u32, link: Link) -> Result<(), RecoveryError> {
        let data_blocks = self.superblock.areas().data_blocks();
        let index = link.index().filter(|index| u64::from(*index) < data_blocks);
        let index = index.ok_or_else(|| {
            let block = Table::<Link>::block_of(key);
            let number = self.superblock.table_number(Kind::Map, block);
            let slot = self.slots.get(number as usize);
            let slot = u64::from(matches!(slot, Some(LeafSlot::Slot1(_))));
            RecoveryError::Outside {
                what: Kind::Map.name(),
                at: self.superblock.table_at(number, slot),
            }
        })?;
        let refs = self.refs.get(index);
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
        Ok(())
    }

    /// Compares the counts with the links to their blocks.
    ///
    /// A fingerprint that cannot be read now may be readable at the next opening. So until its table block has been written anew, it is
    /// counted if it may exist. If the data block's count is known, the fingerprint may exist only if the count includes one more owner
    /// than there are links.
    fn settle_counts(&mut self) {
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
                self.loss.note(self.too_many(index));
            }
            if is != Some(should) {
                self.settle_count(index, is, should);
            }
            if should == 0 {
                self.space.free(index);
            }
        }
        // Also table blocks whose counts are all zero.
        self.mended.extend(lost_counts);
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

    /// The lost blocks of a table.
    pub(super) fn lost_blocks(&self, kind: Kind) -> BTreeSet<u32> {
        let of_kind = self.lost.iter().filter(|lost| lost.kind == kind);
        of_kind.map(|lost| lost.block).collect()
    }

    fn too_many(&self, index: u32) -> RecoveryError {
        let at = self.superblock.areas().data(index);
        RecoveryError::TooManyOwners { at }
    }

    /// Every link: the LBA, the place of its block, and the block's checksum.
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

    /// Notes that nothing is known of these LBAs.
    pub(super) fn forget(&mut self, lba: Lba, blocks: u64) {
        self.loss.lost.insert(lba, blocks);
        self.loss.guessed.remove(lba, blocks);
        for key in lba.0..(lba.0 + blocks).min(self.superblock.logical_blocks()) {
            self.map.set(key as u32, Link::NONE);
        }
    }
}
