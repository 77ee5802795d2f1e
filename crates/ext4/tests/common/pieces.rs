//! A volume in memory with partitions, in which file systems have journals of many pieces.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::BTreeMap;
use vellum_ext4::made::{FileSystem, Writer, features};
use vellum_ext4::{Scan, Source, Unreadable, scan};

const PAGE: u64 = 4096;
/// Entries in a block of an extent tree.
const ENTRIES: u64 = 340;
/// The inode of the journal, in the block of inodes, and its block list.
const INODE: usize = 7 * 256;
const ROOT: usize = INODE + 0x28;

/// A journal of so many blocks. Extents lead to one block each.
#[derive(Clone, Copy)]
pub struct Pieces {
    /// Its length in blocks.
    pub blocks: u64,
    /// How far each block is from the one before: 1 if they are one piece in fact.
    pub stride: u64,
    /// How many extents a leaf of the tree has.
    pub in_leaf: u64,
}

/// A journal in one piece.
pub const ONE: Pieces = Pieces {
    blocks: 1024,
    stride: 1,
    in_leaf: ENTRIES,
};

/// The volume: the beginnings of blocks, whose rest is zero.
#[derive(Default)]
pub struct Disk {
    pages: BTreeMap<u64, Vec<u8>>,
    pub blocks: u64,
    pub read_bytes: u64,
}

impl Source for Disk {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        self.read_bytes += out.len() as u64;
        for (at, page) in (offset / PAGE..).zip(out.chunks_mut(PAGE as usize)) {
            page.fill(0);
            if let Some(bytes) = self.pages.get(&at) {
                page[..bytes.len()].copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// A node of an extent tree.
fn node(depth: u16, entries: &[[u32; 3]], room: u64) -> Vec<u8> {
    let header = [0xF30A, entries.len() as u16, room as u16, depth, 0, 0];
    let header = header.iter().flat_map(|half| half.to_le_bytes());
    let entries = entries.iter().flatten().flat_map(|word| word.to_le_bytes());
    header.chain(entries).collect()
}

impl Disk {
    /// A volume that begins with this table, and has these file systems in partitions of so many blocks each.
    pub fn of(table: &[u8], partition: u64, journals: &[Pieces]) -> Self {
        let mut disk = Self {
            blocks: 256 + partition * journals.len() as u64 + 256,
            ..Self::default()
        };
        for (at, page) in (0..).zip(table.chunks(PAGE as usize)) {
            disk.pages.insert(at, page.to_vec());
        }
        for (start, journal) in (256..).step_by(partition as usize).zip(journals) {
            disk.put(start, partition, *journal);
        }
        disk
    }

    /// The partitions that [`of`](Self::of) fills, in sectors: the first and the last.
    pub fn partitions(partition: u64, count: u64) -> Vec<(u64, u64)> {
        let sector = |block: u64| block * 8;
        let starts = (0..count).map(|number| 256 + number * partition);
        starts
            .map(|start| (sector(start), sector(start + partition) - 1))
            .collect()
    }

    fn put(&mut self, start: u64, blocks: u64, journal: Pieces) {
        let made = FileSystem {
            blocks,
            journal: (1000, journal.blocks),
            bitmaps: 900,
            inodes: 950,
            leaf: 951,
        };
        for (at, bytes) in made.made() {
            self.pages.insert(start + at, bytes);
        }
        let uuid = [start as u8; 16];
        let superblock = Writer::new(features::CHECKSUM_V3, uuid).superblock(
            journal.blocks as u32,
            uuid,
            (0, 0),
        );
        self.pages.insert(start + 1000, superblock);
        if journal.stride == 1 && journal.in_leaf == ENTRIES {
            return;
        }
        // Behind the journal.
        let mut next = 1000 + journal.blocks * journal.stride + 1;
        let leaves = (0..journal.blocks).step_by(journal.in_leaf as usize);
        let mut level: Vec<[u32; 3]> = Vec::new();
        for first in leaves {
            let those = first..(first + journal.in_leaf).min(journal.blocks);
            let extent = |at: u64| [at as u32, 1, (1000 + at * journal.stride) as u32];
            let extents: Vec<_> = those.map(extent).collect();
            self.pages.insert(start + next, node(0, &extents, ENTRIES));
            level.push([first as u32, next as u32, 0]);
            next += 1;
        }
        let mut depth = 1;
        while level.len() > 4 {
            let mut above = Vec::new();
            for entries in level.chunks(ENTRIES as usize) {
                self.pages
                    .insert(start + next, node(depth, entries, ENTRIES));
                above.push([entries[0][0], next as u32, 0]);
                next += 1;
            }
            level = above;
            depth += 1;
        }
        assert!(next < blocks, "{next} blocks are needed");
        let inodes = self.pages.get_mut(&(start + 950)).unwrap();
        let root = node(depth, &level, 4);
        inodes[ROOT..ROOT + root.len()].copy_from_slice(&root);
    }

    pub fn scan(&mut self) -> Scan {
        self.read_bytes = 0;
        let blocks = self.blocks;
        scan(self, blocks)
    }
}
