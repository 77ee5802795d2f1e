//! Tables in place. Each sector of a table is either whole or not there.
//!
//! | table | entry | by | says |
//! | --- | --- | --- | --- |
//! | map | 8 bytes | LBA | data block number plus 1 (0: none), sum of the block |
//! | counts | 2 bytes | data block | number of LBAs that map to it, plus 1 if it has a fingerprint |
//! | fingerprints | 4 bytes | data block | its sum plus 1 (wrapping); 0: none |
//! | editions | 4 bytes | block of the map | an edition of it that was durable (not in volumes from before 2026-11-24, nor of shadowed tables) |
//!
//! A table block is overwritten in place, so a power cut may leave some of its sectors new and some old. Each sector has its own
//! checksum, and the order of writes ensures that any mixture of sectors that can occur is right. The checksum of a block lies in
//! the map beside the link, so that an outdated link does not pass for a good one when its block has been reused.

use super::areas::{DIRECTORY_ENTRIES, Layout};
use super::error::{FormatError, can_be};
use super::field::{Crc, Field, on_disk};
pub use super::kind::{Kind, SECTOR_BYTES};
use super::kind::{ROOM, SECTORS};
use super::root::{self, Cursor, LeafSlot, RootHeader};
use super::superblock::Superblock;
use crate::addr::{BLOCK_BYTES, Generation, Life, Pba, Segment, Seq};
use alloc::{vec, vec::Vec};
use zerocopy::little_endian::U32;

on_disk! {
    /// One sector of a table.
    RawSector {
        /// entries, as many as fit; what is left is zero
        entries: [u8; 504],
        /// how often its block has been written (wrapping), in the map of a volume with editions; without them the checksum of the volume's signature and the sector's place: its number, counted over all tables
        edition: U32,
        /// checksum of the sector before this field; with editions, xor that of signature and place
        crc: U32,
    }
}

/// The fields of a sector.
pub const FIELDS: &[Field] = RawSector::FIELDS;

/// A link of the map table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The data block's number plus 1; 0: none, and the LBA reads as zeros.
    pub unit: u32,
    /// Sum of the block; 0 if there is none.
    pub sum: u32,
}

impl Link {
    /// No data block.
    pub const NONE: Self = Self { unit: 0, sum: 0 };

    /// The link to a data block.
    #[must_use]
    pub fn to(index: u32, sum: u32) -> Self {
        Self {
            unit: index + 1,
            sum,
        }
    }

    /// The index of the data block.
    #[must_use]
    pub fn index(self) -> Option<u32> {
        self.unit.checked_sub(1)
    }
}

/// How often a block of the map has been written, wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edition(pub u32);

impl Edition {
    /// The edition of the next write.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// True if it is older than `other`. Two editions that are compared are never more than half of the range apart.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }
}

/// The edition of each sector of a block: a power cut may leave two. A sector that is not whole has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorEditions([Option<Edition>; SECTORS]);

impl SectorEditions {
    /// The oldest and the newest edition.
    #[must_use]
    pub fn ends(&self) -> (Edition, Edition) {
        let mut whole = self.0.iter().flatten().copied();
        let first = whole.next().unwrap_or_default();
        whole.fold((first, first), |(oldest, newest), edition| {
            match (edition.is_before(oldest), newest.is_before(edition)) {
                (true, _) => (edition, newest),
                (_, true) => (oldest, edition),
                _ => (oldest, newest),
            }
        })
    }

    /// The sectors that are not whole.
    pub fn missing(self) -> impl Iterator<Item = u32> {
        self.sectors(|edition| edition.is_none())
    }

    /// The sectors of which another copy of the block has a newer version, or the only one.
    pub fn better_in(self, other: Self) -> impl Iterator<Item = u32> {
        let is_better = |pair: &(Option<Edition>, Option<Edition>)| match *pair {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(own), Some(other)) => own.is_before(other),
        };
        let pairs = (0..).zip(self.0.into_iter().zip(other.0));
        pairs.filter_map(move |(sector, pair)| is_better(&pair).then_some(sector))
    }

    /// Notes that a sector is taken from another copy.
    pub fn take(&mut self, sector: u32, other: Self) {
        self.0[sector as usize] = other.0[sector as usize];
    }

    /// The sectors that are older than an edition.
    pub fn older(self, known: Edition) -> impl Iterator<Item = u32> {
        self.sectors(move |edition| edition.is_some_and(|edition| edition.is_before(known)))
    }

    fn sectors(self, wanted: impl Fn(Option<Edition>) -> bool) -> impl Iterator<Item = u32> {
        let sectors = (0..).zip(self.0);
        sectors.filter_map(move |(sector, edition)| wanted(edition).then_some(sector))
    }
}

/// An entry of a table.
pub trait Entry: Copy + Default + PartialEq {
    /// The table that it belongs to.
    const KIND: Kind;
    /// Encodes it.
    fn put(self, out: &mut [u8]);
    /// Decodes it.
    fn get(bytes: &[u8]) -> Self;
}

impl Entry for Link {
    const KIND: Kind = Kind::Map;
    fn put(self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.unit.to_le_bytes());
        out[4..].copy_from_slice(&self.sum.to_le_bytes());
    }
    fn get(bytes: &[u8]) -> Self {
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            unit: half(0),
            sum: half(4),
        }
    }
}

impl Entry for u16 {
    const KIND: Kind = Kind::Counts;
    fn put(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn get(bytes: &[u8]) -> Self {
        Self::from_le_bytes([bytes[0], bytes[1]])
    }
}

impl Entry for u32 {
    const KIND: Kind = Kind::Prints;
    fn put(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_le_bytes());
    }
    fn get(bytes: &[u8]) -> Self {
        Self::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Entry for Edition {
    const KIND: Kind = Kind::Editions;
    fn put(self, out: &mut [u8]) {
        out.copy_from_slice(&self.0.to_le_bytes());
    }
    fn get(bytes: &[u8]) -> Self {
        Self(u32::get(bytes))
    }
}

/// Signs and checks the sectors of one volume.
#[derive(Clone, Copy)]
pub struct Signer {
    signature: [u8; 16],
    has_editions: bool,
    crc: Crc,
}

impl Signer {
    /// Makes the signer of this volume.
    #[must_use]
    pub fn new(superblock: &Superblock, crc: Crc) -> Self {
        Self {
            signature: superblock.signature(),
            has_editions: superblock.has_editions(),
            crc,
        }
    }

    fn place(&self, sector: u64) -> u32 {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.signature);
        bytes[16..].copy_from_slice(&sector.to_le_bytes());
        (self.crc)(&bytes)
    }

    /// Returns a sector's last field but one, and the value that its checksum is combined with. One of them holds the sector's
    /// place.
    fn signed(&self, place: u32, edition: Edition) -> (u32, u32) {
        match self.has_editions {
            true => (edition.0, place),
            false => (place, 0),
        }
    }

    /// Writes table block `number` in this edition; empty `entries` make an empty block.
    pub fn encode<E: Entry>(&self, number: u64, edition: Edition, entries: &[E], out: &mut [u8]) {
        debug_assert!(entries.is_empty() || entries.len() == E::KIND.entries());
        let per_sector = E::KIND.entries() / SECTORS;
        for (index, sector) in out.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            sector.fill(0);
            let from = (index * per_sector).min(entries.len());
            let to = (from + per_sector).min(entries.len());
            let places = sector.chunks_exact_mut(E::KIND.entry_bytes());
            for (entry, bytes) in entries[from..to].iter().zip(places) {
                entry.put(bytes);
            }
            let place = self.place(number * SECTORS as u64 + index as u64);
            let (field, change) = self.signed(place, edition);
            sector[ROOM..ROOM + 4].copy_from_slice(&field.to_le_bytes());
            let sum = (self.crc)(&sector[..ROOM + 4]) ^ change;
            sector[ROOM + 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// True if a sector of table block `number` is whole, and in its place.
    #[must_use]
    pub fn is_whole(&self, number: u64, index: u64, sector: &[u8]) -> bool {
        self.edition("table", number, index, sector).is_ok()
    }

    /// The edition of a sector, if the sector is whole and in its place.
    fn edition(
        &self,
        what: &'static str,
        number: u64,
        index: u64,
        sector: &[u8],
    ) -> Result<Edition, FormatError> {
        let place = self.place(number * SECTORS as u64 + index);
        let edition = Edition::get(&sector[ROOM..]);
        let (field, change) = self.signed(place, edition);
        let found = (self.crc)(&sector[..ROOM + 4]) ^ change;
        let expected = u32::get(&sector[ROOM + 4..]);
        match found == expected {
            true if edition.0 == field => Ok(edition),
            true => Err(FormatError::Foreign { what }),
            false => Err(FormatError::Checksum {
                what,
                found,
                expected,
            }),
        }
    }

    /// Reads table block `number` into `out`, which stays empty where a sector is damaged or from elsewhere. Returns the editions
    /// of its sectors, and the error of the first one that is not whole.
    pub fn decode<E: Entry>(
        &self,
        number: u64,
        bytes: &[u8],
        out: &mut Vec<E>,
    ) -> (SectorEditions, Result<(), FormatError>) {
        out.clear();
        out.resize(E::KIND.entries(), E::default());
        let what = E::KIND.name();
        let mut result = Ok(());
        if bytes.len() != BLOCK_BYTES {
            let (have, need) = (bytes.len(), BLOCK_BYTES);
            result = Err(FormatError::Truncated { what, have, need });
        }
        let mut editions = SectorEditions::default();
        let sectors = bytes.chunks_exact(SECTOR_BYTES);
        let entries = out.chunks_exact_mut(E::KIND.sector_entries());
        for (index, ((sector, out), of)) in (0..).zip(sectors.zip(entries).zip(&mut editions.0)) {
            match self.edition(what, number, index, sector) {
                Ok(edition) => {
                    *of = Some(edition);
                    let found = sector[..ROOM].chunks_exact(E::KIND.entry_bytes());
                    out.iter_mut()
                        .zip(found)
                        .for_each(|(out, bytes)| *out = E::get(bytes));
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        (editions, result)
    }
}

/// The sum of a table block in a shadow's directory: the checksum of its sectors' checksums.
///
/// It is not a checksum of the bytes: CRC is linear, and each sector ends with its own, so all whole table blocks have the same
/// CRC32C, which would not distinguish a block from its previous version.
#[must_use]
pub fn sum_of_sectors(block: &[u8], crc: Crc) -> u32 {
    let mut sums = [0; 4 * SECTORS];
    let sectors = block.chunks_exact(SECTOR_BYTES);
    for (sum, sector) in sums.chunks_exact_mut(4).zip(sectors) {
        sum.copy_from_slice(&sector[ROOM + 4..]);
    }
    crc(&sums)
}

/// Writes a directory block of shadowed tables: which slot of each table block counts, and its [sum](sum_of_sectors).
pub fn encode_directory(slots: &[LeafSlot], out: &mut [u8]) {
    out.fill(0);
    for (bytes, slot) in out.chunks_exact_mut(8).zip(slots) {
        let (sum, state) = slot.to_raw();
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes[4..].copy_from_slice(&u32::from(state).to_le_bytes());
    }
}

/// Reads what [`encode_directory`] wrote; the caller has compared its checksum with the root's.
///
/// # Errors
/// When an entry names a slot that does not exist.
pub fn decode_directory(bytes: &[u8], slots: &mut Vec<LeafSlot>) -> Result<(), FormatError> {
    for entry in bytes.chunks_exact(8).take(DIRECTORY_ENTRIES as usize) {
        let (sum, state) = (u32::get(entry), u32::get(&entry[4..]));
        can_be("directory of tables", state <= 2, "slot", state.into())?;
        slots.push(LeafSlot::from_raw(sum, state));
    }
    Ok(())
}

/// The root of a commit of shadowed tables; its table says where the directory's blocks are.
#[must_use]
pub fn shadow_root(superblock: &Superblock, generation: Generation) -> RootHeader {
    RootHeader {
        uuid: superblock.uuid(),
        generation,
        seq: Seq(0),
        life: Life(0),
        durable: Seq(0),
        cursors: [Cursor {
            segment: Segment(0),
            offset: 0,
        }; 2],
        swept: 0,
        scrubbed: 0,
    }
}

/// Writes empty tables, and then both superblocks.
pub(super) fn blank(superblock: &Superblock, crc: Crc, write: &mut dyn FnMut(Pba, &[u8])) {
    match superblock.layout() {
        Layout::Shadow => blank_roots(superblock, crc, write),
        _ => blank_tables(superblock, crc, write),
    }
    let mut block = [0; BLOCK_BYTES];
    superblock.encode(crc, &mut block);
    for mirror in superblock.mirrors().into_iter().rev() {
        write(mirror, &block);
    }
}

/// Writes every sector of a table in place, because a blank sector counts as lost.
fn blank_tables(superblock: &Superblock, crc: Crc, write: &mut dyn FnMut(Pba, &[u8])) {
    const AT_ONCE: u64 = 64;
    let signer = Signer::new(superblock, crc);
    let all: u64 = superblock.table_blocks().iter().sum();
    let mut bytes = vec![0; AT_ONCE as usize * BLOCK_BYTES];
    let mut number = 0;
    while number < all {
        let blocks = AT_ONCE.min(all - number);
        for (block, out) in (number..number + blocks).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            // All kinds look alike without entries.
            signer.encode::<Link>(block, Edition::default(), &[], out);
        }
        write(
            superblock.table_at(number, 0),
            &bytes[..blocks as usize * BLOCK_BYTES],
        );
        for (number, block) in (number..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            if let Some(twin) = superblock.map_twin(number, 0).filter(|_| number < all) {
                write(twin, block);
            }
        }
        number += blocks;
    }
}

/// Writes the roots. Blocks that no directory names are empty, so two roots are enough.
fn blank_roots(superblock: &Superblock, crc: Crc, write: &mut dyn FnMut(Pba, &[u8])) {
    let bytes = superblock.shadow_root_blocks() as usize * BLOCK_BYTES;
    let mut root = vec![0; 2 * bytes];
    // Clears the other place, so that no root of a volume that was here before passes for this volume's.
    write(superblock.shadow_root_at(Generation(0)), &root);
    let slots = vec![LeafSlot::Absent; superblock.directory_blocks() as usize];
    let header = shadow_root(superblock, Generation(1));
    for copy in root.chunks_exact_mut(bytes) {
        root::encode(&header, &slots, crc, copy);
    }
    write(superblock.shadow_root_at(Generation(1)), &root);
}

const _: () = assert!(size_of::<RawSector>() == SECTOR_BYTES);
const _: () = assert!(core::mem::offset_of!(RawSector, edition) == ROOM);
