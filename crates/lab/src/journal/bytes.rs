//! The bytes of the blocks that a simulated file system writes for itself, as jbd2 and ext4 write them. For all other
//! blocks a number stands for the bytes: see [`Content::bytes`].
//!
//! The metadata that a scan reads is real: where bitmaps, inodes and the journal are. Block bitmaps are real too,
//! where blocks are taken and given back. The rest is a number in a field that changes with every file.

use super::bitmaps::Bitmaps;
use super::places::Places;
use crate::content::{BYTES, Content};
use crate::workload::Block;
use std::collections::BTreeMap;
use vellum_ext4::made::{Named, Writer, features, flags};
use vellum_ext4::{Source, Unreadable};

const UUID: [u8; 16] = [0x4A; 16];
/// The time of the second inode after the journal's.
const TIME: usize = 9 * 256 + 8;
/// The counts of free blocks and inodes in the first descriptor.
const COUNTS: usize = 0x0C;

/// The blocks of a file system that has just been mounted.
#[derive(Clone)]
pub struct Disk {
    pub(crate) blocks: u64,
    made: BTreeMap<u64, Block>,
    /// Where its journal's superblock is.
    pub(crate) journal: u64,
}

impl Disk {
    pub(super) fn new(at: &Places, asynchronous: bool) -> Self {
        let made = at.file_system().made();
        let made = made.into_iter().map(|(at, bytes)| (at, bytes.into()));
        let mut made: BTreeMap<u64, Block> = made.collect();
        let superblock = Maker::writer(asynchronous);
        let superblock = superblock.superblock(at.journal_blocks as u32, UUID, (1, 1));
        made.insert(at.journal, superblock.into());
        Self {
            blocks: at.logical,
            made,
            journal: at.journal,
        }
    }

    /// A block, if it is not empty.
    pub(crate) fn block(&self, at: u64) -> Option<&Block> {
        self.made.get(&at)
    }
}

impl Source for &Disk {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        for (at, page) in (offset / BYTES as u64..).zip(out.chunks_mut(BYTES)) {
            match self.block(at) {
                Some(bytes) => page.copy_from_slice(bytes),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

/// Makes the bytes of the file system's own blocks.
pub(super) struct Maker {
    at: Places,
    writer: Writer,
    disk: Disk,
    /// The bitmaps of transactions that are not home yet, by the numbers that stand for them.
    bitmaps: BTreeMap<Content, Block>,
}

impl Maker {
    pub fn new(at: Places, asynchronous: bool) -> Self {
        Self {
            at,
            writer: Self::writer(asynchronous),
            disk: Disk::new(&at, asynchronous),
            bitmaps: BTreeMap::new(),
        }
    }

    fn writer(asynchronous: bool) -> Writer {
        let all = features::REVOKE | features::WIDE | features::CHECKSUM_V3;
        let asynchronous = if asynchronous {
            features::ASYNC_COMMIT
        } else {
            0
        };
        Writer::new(all | asynchronous, UUID)
    }

    pub fn is_bitmap(&self, home: u64) -> bool {
        (self.at.bitmaps..self.at.indirect).contains(&home)
    }

    /// Keeps the current bitmap if a committed transaction will write one there.
    pub fn note_bitmap(&mut self, home: u64, content: Content, bitmaps: &Bitmaps) {
        if self.is_bitmap(home) {
            let now = bitmaps.of_group(home - self.at.bitmaps);
            self.bitmaps.insert(content, now);
        }
    }

    /// Forgets the bitmap of a transaction that has left the journal.
    pub fn forget_bitmap(&mut self, content: Content) {
        self.bitmaps.remove(&content);
    }

    /// The bytes of metadata to be written there; none for anything else.
    pub fn metadata(&self, home: u64, content: Content) -> Option<Block> {
        if !self.at.is_metadata(home) {
            return None;
        }
        if let Some(bitmap) = self.bitmaps.get(&content) {
            return Some(Block::clone(bitmap));
        }
        let number = content.0.to_le_bytes();
        // Inodes and descriptors exist from the beginning.
        let Some(block) = self.disk.block(home) else {
            let mut bytes = [0; BYTES];
            content.bytes(&mut bytes);
            return Some(bytes[..].into());
        };
        let mut bytes = block.to_vec();
        if home == self.at.inode {
            bytes[TIME..TIME + 8].copy_from_slice(&number);
        } else {
            bytes[COUNTS..COUNTS + 6].copy_from_slice(&number[..6]);
            bytes[COUNTS + 0x20..COUNTS + 0x22].copy_from_slice(&number[6..]);
        }
        Some(bytes.into())
    }

    /// The descriptor block for copies of these blocks, in a transaction of that number.
    pub fn descriptor(&self, sequence: u64, copies: &[(u64, Content)]) -> Block {
        let mut bytes = [0; BYTES];
        let named = copies.iter().enumerate().map(|(index, &(home, content))| {
            let first = if index > 0 { flags::SAME_UUID } else { 0 };
            let last = if index + 1 == copies.len() {
                flags::LAST
            } else {
                0
            };
            let sum = match self.metadata(home, content) {
                Some(own) => self.writer.sum(sequence as u32, &own),
                None => {
                    content.bytes(&mut bytes);
                    self.writer.sum(sequence as u32, &bytes)
                }
            };
            let flags = first | last;
            Named { home, flags, sum }
        });
        let named: Vec<Named> = named.collect();
        self.writer.descriptor(sequence as u32, &named).into()
    }

    pub fn revoke(&self, sequence: u64, homes: &[u64]) -> Block {
        self.writer.revoke(sequence as u32, homes).into()
    }

    pub fn commit(&self, sequence: u64) -> Block {
        self.writer.commit(sequence as u32).into()
    }

    /// The journal's superblock when its log begins with this transaction, at this block.
    pub fn superblock(&self, sequence: u64, begin: u64) -> Block {
        let begin = (sequence as u32, begin as u32);
        let blocks = self.at.journal_blocks as u32;
        self.writer.superblock(blocks, UUID, begin).into()
    }
}
