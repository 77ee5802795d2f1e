//! Learns from writes to the journal which of its blocks are copies of which home blocks.
//!
//! Nothing here is trusted: a pair is a proposal, and the bytes are compared before a remap. So a lie in the journal costs a
//! comparison and nothing else. What is kept is bounded: the revoked blocks of the running transaction ([`REVOKED`]).
//!
//! A journal gets its features when its file system is mounted. The superblock records them before the first block that uses them
//! is written, and the next scan happens only after that. So every superblock that is written is taken into account.

use super::block::Block;
use super::format::{Journal, JournalBlock, Sequence};
use super::layout::Layout;
use super::superblock;
use super::transactions::Reader;
use crate::limits::REVOKED;
use crate::span::Span;
use std::collections::HashSet;

/// The meaning of a write to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The block at byte `place` of the volume is, or is about to be, a copy of the one at byte `home`. Both are as long
    /// as a block of the file system.
    Copy {
        /// The byte of the volume where the home block is.
        home: u64,
        /// The byte of the volume where its copy is.
        place: u64,
    },
    /// The block at byte `home` will not be written home as any copy reported earlier: it was freed, or its newest copy cannot be
    /// reported because the journal changed it.
    Revoked {
        /// The byte of the volume where the home block is.
        home: u64,
    },
}

/// Follows a journal as it is written.
#[derive(Clone, Debug)]
pub struct Follower {
    reader: Reader,
    running: Option<Sequence>,
    revoked: HashSet<u64>,
    /// More was revoked than can be remembered, so the rest of the running transaction is not reported.
    is_over: bool,
}

impl Follower {
    /// Follows `journal`, which belongs to the file system at `home`.
    #[must_use]
    pub fn new(journal: &Journal, home: Span) -> Self {
        Self {
            reader: Reader::new(journal, home),
            running: None,
            revoked: HashSet::new(),
            is_over: false,
        }
    }

    /// Where the journal's blocks are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.reader.layout
    }

    /// Handles the whole journal blocks in a write of `bytes` at byte `offset` of the volume. A block that arrives in parts is skipped.
    pub fn written(&mut self, offset: u64, bytes: &[u8], out: &mut impl FnMut(Followed)) {
        let size = u64::from(self.reader.format.block_bytes);
        let end = offset.saturating_add(bytes.len() as u64);
        let mut next = Some(offset);
        while let Some(here) = next.filter(|here| *here < end) {
            let from = (here - offset) as usize;
            let whole = bytes.get(from..from + size as usize);
            if let (Some(block), Some(bytes)) = (self.reader.layout.block_at(here), whole) {
                self.block(block, bytes, out);
            }
            next = self.reader.layout.next_after(here);
        }
    }

    /// Handles a journal block that is written.
    pub fn block(&mut self, at: JournalBlock, bytes: &[u8], out: &mut impl FnMut(Followed)) {
        if at == self.reader.superblock {
            return self.superblock(bytes);
        }
        if !(self.reader.format.first..self.reader.format.end).contains(&at) {
            return;
        }
        match Block::parse(bytes, &self.reader.format) {
            Block::Descriptor(descriptor) => {
                self.enter(descriptor.sequence);
                let mut place = at;
                for tag in descriptor.tags() {
                    place = self.reader.format.after(place);
                    let Some(home) = self.reader.home_of(tag.home) else {
                        continue;
                    };
                    if tag.is_escaped {
                        // Its first four bytes are zero in the journal, but the magic number at home.
                        out(Followed::Revoked { home });
                    } else if let Some(place) = self.reader.layout.place_of(place)
                        && !(tag.is_deleted || self.is_over || self.revoked.contains(&home))
                    {
                        out(Followed::Copy { home, place });
                    }
                }
            }
            // jbd2 writes a transaction's revoke blocks before its descriptors. In recovery they also apply to
            // the transaction's own copies.
            Block::Revoke(revoke) => {
                self.enter(revoke.sequence);
                for block in revoke.blocks() {
                    let Some(home) = self.reader.home_of(block) else {
                        continue;
                    };
                    if self.revoked.len() < REVOKED {
                        self.revoked.insert(home);
                    } else {
                        self.is_over |= !self.revoked.contains(&home);
                    }
                    out(Followed::Revoked { home });
                }
            }
            Block::Commit { .. } => self.leave(),
            Block::Superblock | Block::Other => {}
        }
    }

    /// Learns how to read the blocks after a superblock. A damaged one is ignored.
    fn superblock(&mut self, bytes: &[u8]) {
        let (size, room) = (self.reader.format.block_bytes, self.reader.layout.blocks());
        if let Some(log) = superblock::log(bytes, size, room, self.reader.superblock) {
            self.reader.format = log.format;
        }
    }

    fn enter(&mut self, sequence: Sequence) {
        if self.running != Some(sequence) {
            self.leave();
            self.running = Some(sequence);
        }
    }

    fn leave(&mut self) {
        self.running = None;
        self.revoked.clear();
        self.is_over = false;
    }
}
