//! A device of which only the speed is known. Above it, writes can be removed by their content as in the write-once
//! paper's measurement (WOJ §3.1): all tables in RAM, none of them written, no collector.
//!
//! The model covers which blocks are written, and the time that hashing takes: one unit hashes one block after the
//! other, and a block is written once it is hashed. The variants with a hash trust it; the engine does not
//! (`Against`), so these exist only in the lab. The mistakes of the write-once paper's 64 bytes are counted.

use crate::blockdev::BlockDevice;
use crate::content::Content;
use crate::journal::Disk;
use crate::timeline::{Tag, Timeline};
use crate::watching::{Watching, Written};
use crate::workload::Bytes;
use std::collections::HashMap;
use vellum_core::addr::Lba;
use vellum_core::seam::WriteOnce;
use vellum_watch::Wants;

/// How a fingerprint is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// xxh64 of the first 64 bytes.
    Xxh64,
    /// MD5 of the block.
    Md5,
    /// SHA-1 of the block.
    Sha1,
}

impl Hash {
    /// Nanoseconds per block, from the throughputs in the paper's table 1 (3.0 GHz).
    fn nanos(self) -> u64 {
        match self {
            // 64 bytes at 5715.4 MiB/s.
            Self::Xxh64 => 11,
            // 4096 bytes at 526.1 and at 470.1 MiB/s.
            Self::Md5 => 7425,
            Self::Sha1 => 8309,
        }
    }

    /// The content that stands for the hash of a block.
    fn of(self, content: Content) -> Content {
        match self {
            Self::Xxh64 => content.beginning(),
            Self::Md5 | Self::Sha1 => content,
        }
    }
}

/// Which writes are removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Saving {
    /// None.
    #[default]
    Nothing,
    /// A block written home that the journal holds (WOJ, trusting its hash).
    WriteOnce(Hash),
    /// The same by the journal's descriptors, which say where each block belongs: no hash (JFTL).
    Descriptors,
    /// Any block that is stored (Dmdedup, its tables in RAM).
    Dedup(Hash),
}

/// The journal block of a fingerprint.
#[derive(Clone, Copy)]
enum Entry {
    At(u64),
    Collided,
}

/// The device; see the module.
pub struct Raw {
    device: BlockDevice,
    saving: Saving,
    /// The journal: its first block and its length.
    journal: (u64, u64),
    /// Reads the journal's descriptors.
    watching: Option<Box<Watching>>,
    in_journal: HashMap<u64, Content>,
    pool: HashMap<Content, Entry>,
    /// For a home block: where its last copy in the journal is.
    copies: HashMap<u64, u64>,
    at: HashMap<u64, Content>,
    /// How many blocks hold a content.
    owners: HashMap<Content, u32>,
    hashed: u64,
    /// Nanoseconds spent hashing.
    hash_ns: u64,
    written: u64,
    mistaken: u64,
}

impl Raw {
    /// An empty device.
    #[must_use]
    pub fn new(device: BlockDevice, saving: Saving) -> Self {
        Self {
            device,
            saving,
            journal: (0, 0),
            watching: None,
            in_journal: HashMap::new(),
            pool: HashMap::new(),
            copies: HashMap::new(),
            at: HashMap::new(),
            owners: HashMap::new(),
            hashed: 0,
            hash_ns: 0,
            written: 0,
            mistaken: 0,
        }
    }

    /// Sets where the journal is.
    pub fn watch(&mut self, start: u64, blocks: u64) {
        self.journal = (start, blocks);
    }

    /// Blocks that were written to the device.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Home blocks that read as something else than was last written there, because a hash was trusted.
    #[must_use]
    pub fn mistaken(&self) -> u64 {
        self.mistaken
    }

    /// Nanoseconds spent hashing, if anything is hashed.
    #[must_use]
    pub fn hash_ns(&self) -> Option<u64> {
        match self.saving {
            Saving::Nothing | Saving::Descriptors => None,
            Saving::WriteOnce(_) | Saving::Dedup(_) => Some(self.hash_ns),
        }
    }

    /// The device.
    pub fn device(&mut self) -> &mut BlockDevice {
        &mut self.device
    }

    /// A file system has been made and mounted: finds its journal.
    pub fn follow(&mut self, disk: &Disk) {
        let wants = Wants {
            write_once: match self.saving {
                Saving::Descriptors => WriteOnce::Descriptor,
                _ => WriteOnce::Off,
            },
            ..Wants::default()
        };
        let watching = Watching::new(disk, wants);
        for (start, blocks) in watching.journals() {
            self.watch(start, blocks);
        }
        let reads = self.saving == Saving::Descriptors;
        self.watching = reads.then(|| Box::new(watching));
    }

    /// Reads what is about to be written.
    pub fn read_along(&mut self, lba: u64, contents: &[Content], bytes: &Bytes) {
        if let Some(mut watching) = self.watching.take() {
            let pairs = watching.read(&Written {
                first: lba,
                contents,
                bytes,
            });
            self.journaled(pairs, lba, contents);
            self.watching = Some(watching);
        }
    }

    /// Notes where copies of these home blocks are, or are about to be. A block overwritten in the journal is no
    /// longer a copy of anything.
    fn journaled(&mut self, pairs: &[(Lba, Lba)], lba: u64, contents: &[Content]) {
        let copies = pairs.iter().map(|(home, at)| (home.0, at.0));
        self.copies.extend(copies);
        let (start, blocks) = self.journal;
        if (start..start + blocks).contains(&lba) {
            let written = (lba..).zip(contents.iter().copied());
            self.in_journal.extend(written);
        }
    }

    /// Writes contents from `lba` on.
    pub fn write(
        &mut self,
        time: &mut Timeline,
        tag: Tag,
        lba: u64,
        contents: &[Content],
        durable: bool,
    ) {
        let hash = match self.saving {
            Saving::Nothing | Saving::Descriptors => 0,
            Saving::WriteOnce(hash) | Saving::Dedup(hash) => hash.nanos(),
        };
        let takes = hash * contents.len() as u64;
        self.hashed = self.hashed.max(time.now()) + takes;
        self.hash_ns += takes;
        let mut left = 0;
        for (lba, &content) in (lba..).zip(contents) {
            let stored = match self.saving {
                Saving::Nothing => false,
                Saving::WriteOnce(hash) => self.once(hash, lba, content),
                Saving::Descriptors => self.copied(lba, content),
                Saving::Dedup(_) => self.shared(lba, content),
            };
            left += u32::from(!stored);
        }
        self.written += u64::from(left);
        let from = match self.saving {
            Saving::Nothing | Saving::Descriptors => time.now(),
            _ => self.hashed,
        };
        match left {
            // Only a map entry, in RAM that survives a power cut.
            0 if time.is_instant() => time.done(tag),
            0 => time.at(from, tag),
            blocks => self.device.write_from(time, from, tag, blocks, durable),
        }
    }

    /// True if a block is already in the journal, according to its hash.
    fn once(&mut self, hash: Hash, lba: u64, content: Content) -> bool {
        let (start, blocks) = self.journal;
        let print = hash.of(content);
        if !(start..start + blocks).contains(&lba) {
            if let Some(Entry::At(copy)) = self.pool.get(&print).copied() {
                self.pool.remove(&print);
                self.mistaken += u64::from(self.in_journal.remove(&copy) != Some(content));
                return true;
            }
            return false;
        }
        // The previous content is overwritten. If it was the last with its fingerprint, the entry is removed.
        if let Some(old) = self.in_journal.insert(lba, content).map(|old| hash.of(old))
            && matches!(self.pool.get(&old), Some(&Entry::At(at)) if at == lba)
        {
            self.pool.remove(&old);
        }
        let entry = match self.pool.contains_key(&print) {
            true => Entry::Collided,
            false => Entry::At(lba),
        };
        self.pool.insert(print, entry);
        false
    }

    /// True if a block's last copy in the journal has this content and is still there. A journal block itself is in no
    /// pair.
    fn copied(&mut self, lba: u64, content: Content) -> bool {
        let copy = self.copies.remove(&lba);
        copy.is_some_and(|at| self.in_journal.get(&at) == Some(&content))
    }

    /// True if a block's content is stored anywhere.
    fn shared(&mut self, lba: u64, content: Content) -> bool {
        if let Some(old) = self.at.insert(lba, content) {
            if old == content {
                return true;
            }
            if let Some(owners) = self.owners.get_mut(&old) {
                *owners -= 1;
                if *owners == 0 {
                    self.owners.remove(&old);
                }
            }
        }
        let owners = self.owners.entry(content).or_insert(0);
        *owners += 1;
        *owners > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::{Block, Speed};

    fn raw(saving: Saving) -> (Raw, Timeline) {
        let speed = Speed::Flat {
            latency_ns: 20_000,
            bytes_per_s: 900_000_000,
        };
        let figures = Block {
            read: speed,
            write: speed,
            flush_ns: 0,
        };
        let mut raw = Raw::new(BlockDevice::new(figures), saving);
        raw.watch(0, 100);
        (raw, Timeline::default())
    }

    fn write(raw: &mut Raw, time: &mut Timeline, lba: u64, content: u64) -> u64 {
        let before = raw.written();
        raw.write(time, Tag::Client(0), lba, &[Content(content)], false);
        raw.written() - before
    }

    #[test]
    fn write_once_uses_a_journal_copy_once_and_only_if_its_hash_is_unique() {
        let (mut raw, mut time) = raw(Saving::WriteOnce(Hash::Xxh64));
        let mut at = |lba, content| write(&mut raw, &mut time, lba, content);
        assert_eq!((at(1, 7), at(200, 7), at(201, 7)), (1, 0, 1));
        // Collided; the third one stays so.
        assert_eq!((at(2, 8), at(3, 8), at(202, 8), at(203, 8)), (1, 1, 1, 1));
        // Overwritten in the journal before it was written home.
        assert_eq!((at(4, 9), at(4, 10), at(204, 9), at(205, 10)), (1, 1, 1, 0));
    }

    #[test]
    fn a_block_that_begins_like_a_journal_block_is_mistaken_for_it() {
        let mistaken = |saving| {
            let (mut raw, mut time) = raw(saving);
            for (lba, number) in [(1, 1), (200, 2)] {
                let content = Content::alike(9, number).0;
                write(&mut raw, &mut time, lba, content);
            }
            raw.mistaken()
        };
        assert_eq!(mistaken(Saving::WriteOnce(Hash::Xxh64)), 1);
        assert_eq!(mistaken(Saving::WriteOnce(Hash::Sha1)), 0);
        assert_eq!(mistaken(Saving::Descriptors), 0);
    }

    #[test]
    fn descriptors_give_the_last_copy_while_it_exists() {
        let (mut raw, mut time) = raw(Saving::Descriptors);
        let journal = |raw: &mut Raw, time: &mut Timeline, at, content, home: Option<u64>| {
            let pair = home.map(|home| (Lba(home), Lba(at)));
            raw.journaled(pair.as_slice(), at, &[Content(content)]);
            assert_eq!(write(raw, time, at, content), 1);
        };
        journal(&mut raw, &mut time, 1, 7, Some(200));
        journal(&mut raw, &mut time, 2, 7, Some(201));
        // Equal contents do not matter, and a copy serves once.
        let mut at = |raw: &mut Raw, lba, content| write(raw, &mut time, lba, content);
        assert_eq!((at(&mut raw, 200, 7), at(&mut raw, 201, 7)), (0, 0));
        assert_eq!((at(&mut raw, 200, 7), at(&mut raw, 202, 7)), (1, 1));
        // Journaled with other content, and overwritten in the journal.
        journal(&mut raw, &mut time, 3, 8, Some(203));
        journal(&mut raw, &mut time, 4, 9, Some(204));
        journal(&mut raw, &mut time, 4, 10, None);
        let mut at = |lba, content| write(&mut raw, &mut time, lba, content);
        assert_eq!((at(203, 18), at(204, 9)), (1, 1));
    }

    #[test]
    fn full_deduplication_finds_only_what_is_still_stored() {
        let (mut raw, mut time) = raw(Saving::Dedup(Hash::Sha1));
        let mut at = |lba, content| write(&mut raw, &mut time, lba, content);
        assert_eq!((at(1, 7), at(200, 7), at(1, 8), at(300, 7)), (1, 0, 1, 0));
        assert_eq!((at(200, 9), at(300, 9), at(5, 7)), (1, 0, 1));
    }

    #[test]
    fn a_hash_takes_its_time() {
        let end = |saving| {
            let (mut raw, mut time) = raw(saving);
            write(&mut raw, &mut time, 1, 7);
            time.next().unwrap()
        };
        let nothing = end(Saving::Nothing);
        assert_eq!(end(Saving::Dedup(Hash::Sha1)) - nothing, 8309);
        assert_eq!(end(Saving::WriteOnce(Hash::Xxh64)) - nothing, 11);
    }
}
