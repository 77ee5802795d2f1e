//! A mounted ext4 with blocks of 4096 bytes, as far as a scan reads it.
//!
//! Its superblock has no backups (`sparse_super2`), and only the journal has checksums. All groups share one block of inodes,
//! because the file system has one file besides its journal. The inode bitmaps are said to be in that block, too.

use crate::inode::JOURNAL_INODE;
use std::collections::BTreeMap;

const BLOCK: usize = 4096;
const INODE_BYTES: usize = 256;
const DESCRIPTOR_BYTES: usize = 64;
const BLOCKS_PER_GROUP: u64 = 32_768;
const INODES_PER_GROUP: u32 = (BLOCK / INODE_BYTES) as u32;
/// The most blocks in an extent.
const EXTENT: u64 = 32_768;
/// The extents in an inode.
const ROOT: u64 = 4;

/// The places of its parts. The superblock is in its first block, and the group descriptors follow.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// All of its blocks.
    pub blocks: u64,
    /// The journal: its first block and its length.
    pub journal: (u64, u64),
    /// The bitmap of the first group's blocks; those of the other groups follow.
    pub bitmaps: u64,
    /// The block of inodes.
    pub inodes: u64,
    /// A block for the journal's extents, if its inode has [no room](Self::has_leaf) for them.
    pub leaf: u64,
}

fn groups(blocks: u64) -> u64 {
    blocks.div_ceil(BLOCKS_PER_GROUP)
}

/// Blocks of group descriptors in a file system with this many blocks.
#[must_use]
pub fn descriptor_blocks(blocks: u64) -> u64 {
    groups(blocks).div_ceil((BLOCK / DESCRIPTOR_BYTES) as u64)
}

fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

impl FileSystem {
    /// True if a journal with this many blocks has more extents than fit in its inode.
    #[must_use]
    pub fn has_leaf(journal_blocks: u64) -> bool {
        journal_blocks > ROOT * EXTENT
    }

    /// What a scan reads, except for the journal's own superblock: blocks by place.
    #[must_use]
    pub fn made(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut made = BTreeMap::from([(0, self.superblock())]);
        made.extend((1..).zip(self.descriptors()));
        let mut inodes = vec![0; BLOCK];
        let at = (JOURNAL_INODE as usize - 1) * INODE_BYTES;
        let (inode, leaf) = self.journal_inode();
        inodes[at..at + inode.len()].copy_from_slice(&inode);
        made.insert(self.inodes, inodes);
        made.extend(leaf.map(|leaf| (self.leaf, leaf)));
        made
    }

    fn superblock(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let superblock = &mut block[1024..2048];
        for (at, word) in [
            (0x00, INODES_PER_GROUP * groups(self.blocks) as u32),
            (0x04, self.blocks as u32),
            (0x18, 2),
            (0x1C, 2),
            (0x20, BLOCKS_PER_GROUP as u32),
            (0x24, BLOCKS_PER_GROUP as u32),
            (0x28, INODES_PER_GROUP),
            (0x38, 0xEF53),
            (0x4C, 1),
            (0x58, INODE_BYTES as u32),
            // has_journal, sparse_super2
            (0x5C, 0x204),
            // filetype, needs_recovery, extent, 64bit, flex_bg
            (0x60, 0x2C6),
            (0xE0, JOURNAL_INODE),
            (0x150, (self.blocks >> 32) as u32),
        ] {
            put(superblock, at, word);
        }
        superblock[0x68..0x78].fill(0x4C);
        superblock[0xFE] = DESCRIPTOR_BYTES as u8;
        block
    }

    fn descriptors(&self) -> Vec<Vec<u8>> {
        let count = descriptor_blocks(self.blocks) as usize;
        let mut bytes = vec![0; count * BLOCK];
        let each = bytes.chunks_exact_mut(DESCRIPTOR_BYTES);
        for (group, descriptor) in (0..groups(self.blocks)).zip(each) {
            let places = [self.bitmaps + group, self.inodes, self.inodes];
            for (at, place) in (0..).step_by(4).zip(places) {
                put(descriptor, at, place as u32);
                put(descriptor, at + 0x20, (place >> 32) as u32);
            }
        }
        bytes.chunks_exact(BLOCK).map(<[u8]>::to_vec).collect()
    }

    /// The journal's inode, and the block with its extents if there is one.
    fn journal_inode(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let (first, length) = self.journal;
        let mut inode = vec![0; INODE_BYTES];
        let bytes = length * BLOCK as u64;
        for (at, word) in [
            (0x00, 0x8180),
            (0x04, bytes as u32),
            (0x20, 0x8_0000),
            (0x6C, (bytes >> 32) as u32),
        ] {
            put(&mut inode, at, word);
        }
        inode[0x1A] = 1;
        let all = (0..length).step_by(EXTENT as usize);
        let extents: Vec<[u8; 12]> = all
            .map(|at| extent(at, (length - at).min(EXTENT), first + at))
            .collect();
        if !Self::has_leaf(length) {
            node(&mut inode[0x28..0x64], 0, &extents);
            return (inode, None);
        }
        let mut leaf = vec![0; BLOCK];
        node(&mut leaf, 0, &extents);
        let mut index = [0; 12];
        put(&mut index, 4, self.leaf as u32);
        put(&mut index, 8, (self.leaf >> 32) as u32);
        node(&mut inode[0x28..0x64], 1, &[index]);
        (inode, Some(leaf))
    }
}

fn extent(at: u64, length: u64, first: u64) -> [u8; 12] {
    let mut extent = [0; 12];
    put(&mut extent, 0, at as u32);
    put(&mut extent, 4, length as u32 | ((first >> 32) as u32) << 16);
    put(&mut extent, 8, first as u32);
    extent
}

/// Writes a node of an extent tree. If there are more entries than fit, writes the first ones.
fn node(out: &mut [u8], depth: u16, entries: &[[u8; 12]]) {
    let room = (out.len() - 12) / 12;
    let entries = &entries[..entries.len().min(room)];
    let header = [0xF30A, entries.len() as u16, room as u16, depth];
    for (to, word) in out.chunks_exact_mut(2).zip(header) {
        to.copy_from_slice(&u16::to_le_bytes(word));
    }
    for (to, entry) in out[12..].chunks_exact_mut(12).zip(entries) {
        to.copy_from_slice(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalBlock;
    use crate::made::{Writer, features};
    use crate::{Source, Span, Unreadable, scan};

    struct Disk(BTreeMap<u64, Vec<u8>>);

    impl Source for Disk {
        fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
            for (at, page) in (offset / BLOCK as u64..).zip(out.chunks_mut(BLOCK)) {
                match self.0.get(&at) {
                    Some(bytes) => page.copy_from_slice(bytes),
                    None => page.fill(0),
                }
            }
            Ok(())
        }
    }

    #[test]
    fn a_scan_finds_its_journal_whatever_its_size() {
        for (blocks, journal) in [
            (20_000, 1024),
            (300_000, ROOT * EXTENT),
            (1 << 33, ROOT * EXTENT + 1),
            (1 << 24, 10_000_000),
        ] {
            let descriptors = descriptor_blocks(blocks);
            let first = 2 + descriptors;
            let own = FileSystem {
                blocks,
                journal: (first, journal),
                bitmaps: first + journal + 1,
                inodes: first + journal,
                leaf: 1 + descriptors,
            };
            let uuid = [5; 16];
            let features = features::CHECKSUM_V3 | features::WIDE | features::REVOKE;
            let writer = Writer::new(features, uuid);
            let mut disk = Disk(own.made());
            let superblock = writer.superblock(journal as u32, uuid, (1, 1));
            disk.0.insert(first, superblock);
            let found = scan(&mut disk, blocks);
            assert_eq!(found.file_systems.len(), 1);
            let found = &found.file_systems[0];
            assert_eq!(found.home, Span::new(0, blocks * BLOCK as u64));
            let journal_found = found.journal.as_ref().expect("it is sound");
            let all = Span::new(first * BLOCK as u64, journal * BLOCK as u64);
            assert_eq!(journal_found.extents, [all]);
            assert_eq!(journal_found.format.seed, writer.seed);
            assert_eq!(journal_found.format.first, JournalBlock(1));
            assert!(journal_found.format.features.checksum_v3());
        }
    }
}
