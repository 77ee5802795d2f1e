//! A tool that restores an image of the device, and writes only what differs.

use super::{BLOCK, Bytes, Device, Host, MAGIC, Rc, Recovered, Twist, follow, superblock, word};
use std::collections::BTreeSet;
use vellum_ext4::journal::JournalBlock;

/// What the device held at some moment.
pub struct Image(Device);

impl Host<'_> {
    /// Reads the device.
    pub fn image(&self) -> Image {
        Image(self.device.clone())
    }

    /// Scans the device again while the host runs.
    pub fn scan(&mut self) {
        self.freed = follow(&self.device, self.flushes).1;
    }

    /// Stops the host, and writes an image back in the order of its blocks, as if the bitmap were before the journal or after it. The
    /// follower drops what it then believes freed.
    pub fn restore(&mut self, image: &Image) {
        if self.rng.one_in(2) {
            self.scan();
        }
        let Device { has, would } = &image.0;
        let blocks = self.device.has.keys().chain(has.keys());
        let blocks: BTreeSet<u64> = blocks.copied().collect();
        let mut blocks: Vec<u64> = blocks.into_iter().collect();
        if self.rng.one_in(2) {
            blocks.sort_by_key(|block| *block < self.place(0));
        }
        let zeros = Bytes::from(vec![0; BLOCK as usize]);
        let mut stale = Recovered::of(would, &self.layout).end..super::END;
        for block in blocks {
            let wanted = has.get(&block);
            if self.device.has.get(&block) == wanted {
                continue;
            }
            let bytes = wanted.unwrap_or(&zeros);
            if self.twist == Twist::Credulous && self.names(block, bytes, &stale) {
                stale = 0..0;
            }
            self.write(block, Rc::clone(bytes));
        }
        self.device.would = would.clone();
        if self.home_in_flight {
            self.answer_home();
        }
        self.flush();
        while let Some(span) = self.freed.take(100) {
            self.late.push_back((0, span));
        }
        self.drop_late();
        self.since_flush = vec![self.device.clone()];
    }

    /// If a block is a descriptor in this part of the journal, shows the follower a superblock with a log that begins there.
    fn names(&mut self, block: u64, bytes: &Bytes, part: &core::ops::Range<u32>) -> bool {
        let is_descriptor = (word(bytes, 0), word(bytes, 4)) == (MAGIC, 1);
        let at = self.layout.block_at(block * BLOCK);
        let at = at.filter(|JournalBlock(at)| is_descriptor && part.contains(at));
        if let Some(JournalBlock(at)) = at {
            let named = superblock(word(bytes, 8), at);
            self.freed.written(self.place(0) * BLOCK, &named);
        }
        at.is_some()
    }
}
