//! A replay of the journal, and the superblock that says where it begins.

use super::{BLOCK, Bytes, END, FILES, FIRST, MAGIC, after, header, word};
use std::collections::BTreeMap;
use std::rc::Rc;
use vellum_ext4::journal::{JournalBlock, Layout};

/// The volume after a replay of the journal.
pub struct Recovered {
    pub log: Vec<(u64, Bytes)>,
    pub last: BTreeMap<u64, Bytes>,
    list: Bytes,
    /// The number and the place of the transaction after the last.
    pub next: u32,
    pub end: u32,
}

impl Recovered {
    pub fn of(volume: &BTreeMap<u64, Bytes>, layout: &Layout) -> Self {
        let place = |block| layout.place_of(JournalBlock(block)).unwrap() / BLOCK;
        let superblock = &volume[&place(0)];
        let (mut next, mut at) = (word(superblock, 0x18), word(superblock, 0x1C));
        let (mut log, mut end) = (Vec::new(), at);
        'log: loop {
            let begins = |at: u32, kind: u32| {
                volume
                    .get(&place(at))
                    .is_some_and(|b| (word(b, 0), word(b, 4), word(b, 8)) == (MAGIC, kind, next))
            };
            if !begins(at, 1) {
                break;
            }
            let descriptor = &volume[&place(at)];
            let mut copies = Vec::new();
            for tag in descriptor[12..].chunks_exact(8) {
                at = after(at);
                let Some(copy) = volume.get(&place(at)) else {
                    break 'log;
                };
                copies.push((u64::from(word(tag, 0)), Rc::clone(copy)));
                if word(tag, 4) & 8 != 0 {
                    break;
                }
            }
            at = after(at);
            if !begins(at, 2) {
                break;
            }
            at = after(at);
            (next, end) = (next + 1, at);
            log.extend(copies);
        }
        let last: BTreeMap<u64, Bytes> = log.iter().cloned().collect();
        let list = Rc::clone(last.get(&FILES).unwrap_or_else(|| &volume[&FILES]));
        Self {
            log,
            last,
            list,
            next,
            end,
        }
    }

    pub fn get<'a>(&'a self, volume: &'a BTreeMap<u64, Bytes>, block: u64) -> Option<&'a Bytes> {
        self.last.get(&block).or_else(|| volume.get(&block))
    }

    pub fn files(&self) -> BTreeMap<u32, Vec<u64>> {
        let mut files = BTreeMap::new();
        let mut at = 0;
        while word(&self.list, at) != 0 {
            let (file, count) = (word(&self.list, at), word(&self.list, at + 4) as usize);
            let blocks = (0..count).map(|i| word(&self.list, at + 8 + 4 * i).into());
            files.insert(file, blocks.collect());
            at += 8 + 4 * count;
        }
        files
    }
}

/// The journal's superblock: its log begins with this transaction at this block.
pub fn superblock(sequence: u32, start: u32) -> Vec<u8> {
    let mut bytes = header(4, 0);
    for (at, word) in [
        (0x0C, BLOCK as u32),
        (0x10, END),
        (0x14, FIRST),
        (0x18, sequence),
        (0x1C, start),
        (0x40, 1),
    ] {
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}
