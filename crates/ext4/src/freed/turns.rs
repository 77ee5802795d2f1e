//! Follows whose turn it is in a journal, as strictly as replay does: from where a superblock says that the log begins, one
//! transaction after another, each with the expected number, at the expected place, and without a gap between its heads.
//!
//! A restarted device knows no beginning. What it has seen is then a part of the log if a later superblock names a transaction in it.

use crate::allowance::Allowance;
use crate::journal::{
    Block, Journal, JournalBlock, JournalFormat, Layout, Log, Sequence, Turn, log,
};
use crate::limits::{FREED_TURNS, HEADS, PAGE_BYTES};
use crate::source::{Reader, Source};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    turn: Option<Turn>,
    /// The heads of this turn's transaction: how many copies each has.
    heads: BTreeMap<JournalBlock, u32>,
    /// A superblock has named this log.
    is_sure: bool,
    /// If none has: where the transactions began that were seen without a gap. The last one is this turn's.
    begins: VecDeque<JournalBlock>,
    /// How many file systems have an equal part of what may be remembered; 0 if nobody says.
    parts: usize,
}

/// What a commit block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The transaction whose turn it was, of which each head has been seen.
    Complete,
    /// The previous transaction, once more.
    Again,
    /// Another one.
    Unknown,
}

impl Turns {
    /// Reads a journal from where its superblock says that the log begins.
    pub fn read(
        journal: &Journal,
        layout: &Layout,
        source: &mut dyn Source,
        volume_bytes: u64,
        allowance: &mut Allowance,
    ) -> Self {
        let format = &journal.format;
        let mut turns = Self {
            parts: allowance.parts,
            ..Self::default()
        };
        let part = allowance.part_of_logs();
        let mut reader = Reader::with_budget(source, volume_bytes, part);
        let mut read = |at| reader.read(layout.place_of(at)?, PAGE_BYTES).ok();
        let room = layout.blocks();
        let begins = read(journal.superblock)
            .and_then(|bytes| log(&bytes, format.block_bytes, room, journal.superblock))
            .filter(|log| log.format == *format);
        turns.superblock(begins);
        let mut left = format.end.0 - format.first.0;
        let mut at = turns.turn.map(|turn| turn.begin);
        while let (Some(head), Some(turn)) = (at, turns.turn) {
            // If not all of it can be read, it is not known where it ends.
            let bytes = read(head).filter(|_| left > 0);
            let Some(bytes) = bytes else {
                turns.lose();
                break;
            };
            let copies = match Block::parse(&bytes, format) {
                Block::Descriptor(it) if it.sequence == turn.sequence => it.tags().count() as u32,
                Block::Revoke(it) if it.sequence == turn.sequence => 0,
                Block::Commit { sequence } if sequence == turn.sequence => {
                    turns.commit(head, sequence, format);
                    0
                }
                _ => break,
            };
            if turns.turn == Some(turn) {
                turns.head(head, turn.sequence, copies);
            }
            left = left.saturating_sub(1 + copies);
            at = Some(format.after_some(head, 1 + copies));
        }
        allowance.logs += reader.budget();
        turns
    }

    /// True if a superblock has named this log, so that a replay would read it.
    pub fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Notes a superblock; `None` if it is damaged. Returns false if it is not of the log that was followed.
    pub fn superblock(&mut self, log: Option<Log>) -> bool {
        let Some((sequence, begin)) = log.and_then(|log| log.begin) else {
            self.lose();
            return false;
        };
        let first = Turn { sequence, begin };
        let Some(turn) = self.turn.filter(|turn| turn.is_of_log(first)) else {
            self.begin(first);
            return false;
        };
        if !self.is_sure {
            let back = turn.sequence.0.wrapping_sub(sequence.0) as usize;
            let named = self.begins.len().checked_sub(1 + back);
            match named.map(|index| self.begins[index] == begin) {
                Some(true) => self.be_sure(),
                Some(false) => {
                    self.begin(first);
                    return false;
                }
                // It names one from before.
                None => {}
            }
        }
        true
    }

    /// Notes a descriptor or a revoke block. Returns false if it is not of the transaction whose turn it is.
    pub fn head(&mut self, at: JournalBlock, sequence: Sequence, copies: u32) -> bool {
        let Some(turn) = self.turn else {
            return true;
        };
        self.heads.insert(at, copies);
        let is_its = turn.sequence == sequence && self.heads.len() <= self.part_of(HEADS);
        if !is_its {
            self.lose();
        }
        is_its
    }

    /// Notes that a block is not a head, or no longer.
    pub fn not_a_head(&mut self, at: JournalBlock) {
        self.heads.remove(&at);
    }

    /// Notes a commit block.
    pub fn commit(
        &mut self,
        at: JournalBlock,
        sequence: Sequence,
        format: &JournalFormat,
    ) -> Ended {
        let next = Turn::after(sequence, at, format);
        if self.turn == Some(next) {
            return Ended::Again;
        }
        let is_its = |turn: Turn| turn.sequence == sequence && self.reaches(turn.begin, at, format);
        let ended = match self.turn.is_some_and(is_its) {
            true => Ended::Complete,
            false => {
                self.lose();
                Ended::Unknown
            }
        };
        self.heads.clear();
        self.turn = Some(next);
        if !self.is_sure {
            self.begins.push_back(next.begin);
            let log = (format.end.0 - format.first.0) as usize;
            if self.begins.len() > log.min(self.part_of(FREED_TURNS)) {
                self.begins.pop_front();
            }
        }
        ended
    }

    /// Forgets the log until a superblock names it.
    pub fn lose(&mut self) {
        *self = Self {
            parts: self.parts,
            ..Self::default()
        };
    }

    fn part_of(&self, limit: usize) -> usize {
        limit / self.parts.max(1)
    }

    fn begin(&mut self, first: Turn) {
        self.lose();
        (self.turn, self.is_sure) = (Some(first), true);
    }

    fn be_sure(&mut self) {
        self.is_sure = true;
        self.begins = VecDeque::new();
    }

    /// True if the heads lead from `begin` to `commit`.
    fn reaches(&self, begin: JournalBlock, commit: JournalBlock, format: &JournalFormat) -> bool {
        let mut at = begin;
        for _ in 0..=self.heads.len() {
            if at == commit {
                return true;
            }
            let Some(copies) = self.heads.get(&at) else {
                return false;
            };
            at = format.after_some(at, 1 + copies);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::JournalFeatures;

    const FORMAT: JournalFormat = JournalFormat {
        block_bytes: 4096,
        first: JournalBlock(1),
        end: JournalBlock(1024),
        features: JournalFeatures {
            compatible: 0,
            incompatible: 0,
        },
        seed: 0,
    };

    fn named(turns: &mut Turns, sequence: u32, at: u32) -> bool {
        turns.superblock(Some(Log {
            format: FORMAT,
            begin: Some((Sequence(sequence), JournalBlock(at))),
        }))
    }

    /// A transaction of four blocks.
    fn transaction(turns: &mut Turns, sequence: u32, at: u32) -> Ended {
        turns.head(JournalBlock(at), Sequence(sequence), 2);
        turns.commit(JournalBlock(at + 3), Sequence(sequence), &FORMAT)
    }

    #[test]
    fn a_log_is_followed_from_where_a_superblock_says() {
        let mut turns = Turns::default();
        assert!(!named(&mut turns, 7, 101));
        assert_eq!(transaction(&mut turns, 7, 101), Ended::Complete);
        assert_eq!(transaction(&mut turns, 8, 105), Ended::Complete);
        assert!(named(&mut turns, 8, 105), "its tail has moved");
        let commit = (JournalBlock(108), Sequence(8));
        assert_eq!(turns.commit(commit.0, commit.1, &FORMAT), Ended::Again);
        assert_eq!(transaction(&mut turns, 9, 109), Ended::Complete);
        assert!(turns.is_sure());
        // Elsewhere, behind, ahead, without a head; and another log.
        for (sequence, at) in [(10, 114), (9, 113), (8, 113), (11, 113)] {
            let mut other = turns.clone();
            assert_eq!(transaction(&mut other, sequence, at), Ended::Unknown);
            assert!(!other.is_sure());
        }
        let mut other = turns.clone();
        assert_eq!(
            other.commit(JournalBlock(116), Sequence(10), &FORMAT),
            Ended::Unknown
        );
        assert!(!turns.clone().head(JournalBlock(113), Sequence(9), 1));
        assert!(!named(&mut turns.clone(), 10, 114) && !named(&mut turns, 11, 117));
    }

    /// A thousand partitions may hold journals: together they take no more memory than one.
    #[test]
    fn file_systems_share_what_is_remembered() {
        let mut turns = Turns {
            parts: HEADS / 2,
            ..Turns::default()
        };
        turns.begin(Turn {
            sequence: Sequence(7),
            begin: JournalBlock(1),
        });
        let mut head = |at| turns.head(JournalBlock(at), Sequence(7), 0);
        assert_eq!([head(1), head(2), head(3)], [true, true, false]);
        assert!(!turns.is_sure());
        turns.parts = FREED_TURNS / 4;
        for sequence in 8..20 {
            transaction(&mut turns, sequence, 4 * sequence);
        }
        assert_eq!(turns.begins.len(), 4);
    }

    #[test]
    fn what_was_followed_without_a_beginning_counts_when_it_is_named() {
        let mut turns = Turns::default();
        assert_eq!(transaction(&mut turns, 7, 101), Ended::Unknown);
        for (sequence, at) in [(8, 105), (9, 109)] {
            assert_eq!(transaction(&mut turns, sequence, at), Ended::Complete);
            assert!(!turns.is_sure());
        }
        assert!(named(&mut turns, 7, 101) && !turns.is_sure(), "from before");
        for (sequence, at) in [(8, 105), (9, 109), (10, 113)] {
            let mut turns = turns.clone();
            assert!(named(&mut turns, sequence, at) && turns.is_sure());
            assert_eq!(transaction(&mut turns, 10, 113), Ended::Complete);
        }
        assert!(!named(&mut turns, 8, 106), "another log");
        assert_eq!(transaction(&mut turns, 10, 113), Ended::Unknown);
    }
}
