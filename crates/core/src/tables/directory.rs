//! Finds the slot of each shadowed table block that counts. The newest whole root names the directory, and the directory names the slots.

use crate::addr::{BLOCK_BYTES, Generation, Lba, Pba};
use crate::format::root::{self, LeafSlot};
use crate::format::superblock::Superblock;
use crate::format::table::decode_directory;
use crate::format::{Crc, FormatError};
use crate::recovery::rescue::Loss;
use crate::recovery::{RecoveryError, Source, Unreadable};
use alloc::collections::BTreeMap;
use alloc::{vec, vec::Vec};

/// How many table blocks a directory block names.
const ENTRIES: usize = crate::format::areas::DIRECTORY_ENTRIES as usize;

/// See the module. Empty for tables that are not shadowed.
#[derive(Default)]
pub(super) struct Directory {
    pub generation: Generation,
    /// The slot of each directory block, as the root has it.
    pub blocks: Vec<LeafSlot>,
    /// The slot of each table block.
    pub slots: Vec<LeafSlot>,
    /// Damaged directory blocks: what they named is taken for absent.
    damaged: BTreeMap<u64, RecoveryError>,
    /// Why there may be a newer root. It may have changed anything.
    pub doubt: Option<RecoveryError>,
    /// Damaged directory blocks that were restored from their twins.
    pub from_twins: Vec<u64>,
    /// Where the second copy of its root should be, if only one was found.
    pub lone: Option<Pba>,
    /// Copies of a root that do not count, in the place of the next root.
    pub void: Vec<Pba>,
}

impl Directory {
    /// Reads the directory, and notes what is damaged. Without a root that is certainly the newest, nothing is known.
    pub fn read(
        source: &mut dyn Source,
        superblock: &Superblock,
        crc: Crc,
        loss: &mut Loss,
    ) -> Self {
        let mut directory = Self::default();
        let tables: u64 = superblock.table_blocks().iter().sum();
        match newest_root(source, superblock, crc) {
            Ok(root) => {
                directory.lone = root.missing(superblock);
                if let Some(error) = root.doubt() {
                    loss.note(error);
                    directory.doubt = Some(error);
                }
                directory.void = root.next.torn;
                (directory.generation, directory.blocks) = (root.generation, root.slots);
            }
            Err(error) => {
                loss.note(error);
                directory.generation = superblock.root_generation();
                let blocks = superblock.directory_blocks();
                directory.blocks = vec![LeafSlot::Absent; blocks as usize];
                directory.damaged = (0..blocks).map(|block| (block, error)).collect();
                loss.lost.insert(Lba(0), superblock.logical_blocks());
            }
        }
        let mut block = [0; BLOCK_BYTES];
        for (number, entry) in (0..).zip(&directory.blocks) {
            let end = directory.slots.len() + ENTRIES;
            let Some((slot, expected)) = entry.found() else {
                directory.slots.resize(end, LeafSlot::Absent);
                continue;
            };
            let slot = slot.into();
            let mut read = |at: Pba| read_block(source, crc, at, expected, &mut block);
            let first = read(superblock.directory_at(number, slot));
            let twin = superblock.directory_twin(number, slot);
            let first_failed = first.is_err();
            match first.or_else(|error| twin.and_then(|at| read(at).ok()).ok_or(error)) {
                Ok(slots) => directory.slots.extend(slots),
                Err(error) => {
                    loss.note(error);
                    directory.damaged.insert(number, error);
                    directory.slots.resize(end, LeafSlot::Absent);
                }
            }
            if first_failed && !directory.damaged.contains_key(&number) {
                directory.from_twins.push(number);
            }
        }
        directory.slots.truncate(tables as usize);
        directory
    }

    /// Takes nothing for known if there may be a newer root.
    pub fn be_certain(&mut self) {
        if let Some(error) = self.doubt {
            let blocks = 0..self.blocks.len() as u64;
            self.damaged = blocks.map(|block| (block, error)).collect();
        }
    }

    /// The slot of a table block that counts, if that is known.
    pub fn slot(&self, number: u64) -> Result<LeafSlot, RecoveryError> {
        match self.damaged.get(&(number / ENTRIES as u64)) {
            Some(error) => Err(*error),
            None => Ok(self.slots[number as usize]),
        }
    }
}

/// Reads what one directory block names.
fn read_block(
    source: &mut dyn Source,
    crc: Crc,
    at: Pba,
    expected: u32,
    block: &mut [u8],
) -> Result<Vec<LeafSlot>, RecoveryError> {
    source.read(at, block)?;
    check_sum("directory of tables", crc(block), expected, at)?;
    let mut slots = Vec::with_capacity(ENTRIES);
    let decoded = decode_directory(block, &mut slots);
    decoded.map_err(|error| RecoveryError::Table { at, error })?;
    Ok(slots)
}

/// A whole root.
struct Root {
    generation: Generation,
    /// The slots of the directory's blocks.
    slots: Vec<LeafSlot>,
    /// Which of its copies exist.
    copies: [bool; 2],
    /// What the next root's place has besides whole roots.
    next: Place,
}

/// One of the two places of roots.
struct Place {
    has_one: bool,
    /// Whether a copy is blank. A client is told of a root when both copies are written, so of this one nobody was told.
    has_blank: bool,
    /// Copies that are not whole, but not blank either.
    torn: Vec<Pba>,
    /// The first copy that could not be read.
    unread: Option<Unreadable>,
}

impl Place {
    const fn new() -> Self {
        Self {
            has_one: false,
            has_blank: false,
            torn: Vec::new(),
            unread: None,
        }
    }
}

impl Root {
    fn of(generation: Generation, slots: Vec<LeafSlot>, copy: u64) -> Self {
        Self {
            generation,
            slots,
            copies: [copy == 0, copy == 1],
            next: Place::new(),
        }
    }

    /// The root, with what is in the place of the next one.
    fn beside(self, places: [Place; 2]) -> Self {
        let [even, odd] = places;
        let next = if self.generation.0 & 1 == 0 {
            odd
        } else {
            even
        };
        Self { next, ..self }
    }

    /// Why it may not be the newest: no copy in the next root's place is whole or blank, and one could not be read.
    fn doubt(&self) -> Option<RecoveryError> {
        let is_told = self.next.has_one || self.next.has_blank;
        let unread = self.next.unread.filter(|_| !is_told);
        unread.map(RecoveryError::from)
    }

    /// Where its missing copy should be.
    fn missing(&self, superblock: &Superblock) -> Option<Pba> {
        let copy = self.copies.iter().position(|is_there| !is_there)? as u64;
        let first = superblock.shadow_root_at(self.generation);
        Some(first.plus(copy * superblock.shadow_root_blocks()))
    }
}

/// Finds the newest root.
fn newest_root(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
) -> Result<Root, RecoveryError> {
    let blocks = superblock.directory_blocks() as u32;
    let mut bytes = vec![0; superblock.shadow_root_blocks() as usize * BLOCK_BYTES];
    let mut newest: Option<Root> = None;
    let mut places = [const { Place::new() }; 2];
    let mut wrong = FormatError::Magic { what: "root" };
    for (parity, place) in (0..).zip(&mut places) {
        for copy in 0..2 {
            let first = superblock.shadow_root_at(Generation(parity));
            let at = first.plus(copy * superblock.shadow_root_blocks());
            let read = source.read(at, &mut bytes);
            let root = read.map(|()| root::decode(&bytes, &superblock.uuid(), blocks, crc));
            let (generation, slots) = match root {
                Ok(Ok((header, slots))) if header.generation.0 & 1 == parity => {
                    (header.generation, slots)
                }
                Ok(Err(_)) if bytes[..BLOCK_BYTES].iter().all(|&byte| byte == 0) => {
                    place.has_blank = true;
                    continue;
                }
                other => {
                    place.torn.push(at);
                    place.unread = place.unread.or(other.as_ref().err().copied());
                    wrong = other.ok().and_then(Result::err).unwrap_or(wrong);
                    continue;
                }
            };
            place.has_one = true;
            match &mut newest {
                Some(root) if root.generation > generation => {}
                Some(root) if root.generation == generation => {
                    root.copies[copy as usize] = root.slots == slots;
                }
                _ => newest = Some(Root::of(generation, slots, copy)),
            }
        }
    }
    let (first, second) = (wrong, wrong);
    let unread = places.iter().find_map(|place| place.unread);
    let none = unread.map_or(RecoveryError::NoRoot { first, second }, Into::into);
    let newest = newest.ok_or(none)?;
    let lost = superblock.root_generation();
    match newest.generation < lost {
        // The newest root was durable once, so it has decayed, or cannot be read. The previous root describes an older state of the volume.
        true => Err(unread.map_or(RecoveryError::RootLost { lost }, Into::into)),
        false => Ok(newest.beside(places)),
    }
}

/// Compares the sum of a block with the one stored where it is named.
pub(super) fn check_sum(
    what: &'static str,
    found: u32,
    expected: u32,
    at: Pba,
) -> Result<(), RecoveryError> {
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
