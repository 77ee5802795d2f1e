//! When a commit block may take effect: when all that it commits has, and not before.
//!
//! With `journal_async_commit` jbd2 sends a transaction's blocks and its commit block at once, and waits for none of them.
//! They come in any order. A crash between a commit block and what came behind it would leave a transaction that counts and is not
//! there. So a commit block waits here, it alone, and this says for how long.
//!
//! It goes by three things that jbd2 does in every kernel:
//!
//! 1. The blocks of transaction `n` lie in the log without a gap, from the place behind the commit block of `n - 1` to its own
//!    commit block. The log is a circle.
//! 2. Nothing of `n + 1` is sent before the commit block of `n` was answered. It may be answered while it waits: then blocks of
//!    `n + 1` take effect in the turn of `n`. They lie behind that commit block, and count when it has gone on.
//! 3. The superblock that says where a log begins is answered before anything of that log is sent: at a mount, and with the
//!    first transaction after the log was emptied.
//!
//! So no descriptor has to be read. It is enough to know whose turn it is and where it begins, and what was written since then:
//!
//! ```text
//! lost        superblock with a log (n, at)            -> turn n, begins at `at`, nothing written
//! lost        commit m at c                            -> it is let through, unjudged; turn m+1, begins behind c
//! turn n      a block of the log took effect           -> it is written
//! turn n      commit n at c, begin..c is written       -> it is let through; turn n+1, begins behind c, what is written there is
//! turn n      commit n at c, begin..c is not           -> it waits, and is asked about again
//! turn n      a block of the log was refused           -> a commit n that is not complete never will be
//! turn n      commit m at c, another one               -> it is let through, unjudged; turn m+1, begins behind c, nothing written
//! turn n      superblock with a log that can be this   -> as it was: its tail has moved
//! turn n      superblock with another log (m, at)      -> turn m, begins at `at`, nothing written
//! any         superblock with an empty log, or damaged -> lost
//! any         given up, or more than RUNS runs         -> lost
//! ```
//!
//! A superblock and a commit block count when they are handed on; any other block when it has taken effect, for it may be
//! refused. What is not of jbd2 (a tool that writes an image over the journal) may be judged wrongly. Its cost is a
//! wait, and whoever waits sets a bound to that.

use super::block::MAGIC;
use super::runs::Runs;
use super::{Block, Journal, JournalBlock, JournalFormat, Layout, Log, Sequence, superblock};
use crate::limits::RUNS;
use crate::span::Span;
use core::ops::Range;

/// A block of a journal that is not written like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The superblock; none if it is damaged.
    Superblock(Option<Log>),
    /// The end of a transaction.
    Commit(Sequence),
}

/// What is to be done with a commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that it commits has taken effect.
    Complete,
    /// It is not known what it commits.
    Unjudged,
    /// So many blocks that it commits have not taken effect.
    Waits(u32),
    /// One of them was refused, or a commit block before it is lost: it must not be written.
    Never,
}

/// One journal. See the module.
#[derive(Clone, Debug)]
pub struct Commits {
    format: JournalFormat,
    layout: Layout,
    superblock: JournalBlock,
    turn: Option<Turn>,
    /// Since the turn began.
    written: Runs,
    refused: bool,
    /// A commit block of this log was answered, and is not there.
    lost: bool,
}

/// The transaction that is to be committed next, and its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    sequence: Sequence,
    begin: JournalBlock,
}

impl Commits {
    /// Of a journal on a volume of `volume_bytes`; none if not all of it is there, or its blocks are no blocks of 4096 bytes of
    /// the volume: then it cannot be seen what is written to it.
    #[must_use]
    pub fn new(journal: &Journal, volume_bytes: u64) -> Option<Self> {
        let unit = u64::from(journal.format.block_bytes);
        let layout = Layout::new(&journal.extents, journal.format.block_bytes);
        let extents = &journal.extents;
        let is_seen = unit == crate::limits::PAGE_BYTES as u64
            && extents
                .iter()
                .all(|span| span.is_aligned_to(unit) && span.end() <= volume_bytes)
            && layout.blocks() >= u64::from(journal.blocks);
        is_seen.then(|| Self {
            format: journal.format,
            layout,
            superblock: journal.superblock,
            turn: None,
            written: Runs::default(),
            refused: false,
            lost: false,
        })
    }

    /// Whether it is of the same blocks as another.
    #[must_use]
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        (&self.layout, self.superblock) == (&other.layout, other.superblock)
    }

    /// Where its blocks are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether its superblock says that commit blocks are sent before what they commit.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        self.format.features.async_commit()
    }

    /// Reads a block that is written to the journal at a byte of the volume. None: like any other, or none of the journal.
    #[must_use]
    pub fn read(&self, offset: u64, bytes: &[u8]) -> Option<(JournalBlock, Mark)> {
        let at = self.layout.block_at(offset)?;
        let mark = match Block::parse(bytes, &self.format) {
            Block::Superblock if at == self.superblock => {
                let (size, room) = (self.format.block_bytes, self.layout.blocks());
                Mark::Superblock(superblock::log(bytes, size, room, at))
            }
            Block::Commit { sequence } if self.is_in_log(at) => Mark::Commit(sequence),
            _ => return None,
        };
        Some((at, mark))
    }

    /// The superblock is handed on.
    pub fn superblock(&mut self, log: Option<Log>) {
        let Some(Log { format, begin }) = log else {
            self.lost = false;
            return self.give_up();
        };
        self.format = format;
        let Some((sequence, begin)) = begin else {
            self.lost = false;
            return self.give_up();
        };
        let is_this_log = self.turn.is_some_and(|turn| {
            let ahead = sequence.0.wrapping_sub(turn.sequence.0);
            let is_older = ahead > u32::MAX / 2;
            self.is_in_log(turn.begin) && (is_older || turn == Turn { sequence, begin })
        });
        if !is_this_log {
            self.lost = false;
            self.begin(Turn { sequence, begin });
        }
    }

    /// A commit block is to be handed on, directly behind what is written at `before`. If it is not to wait, it is.
    pub fn commit(&mut self, at: JournalBlock, sequence: Sequence, before: Span) -> Verdict {
        if self.lost {
            return Verdict::Never;
        }
        let next = Turn {
            sequence: Sequence(sequence.0.wrapping_add(1)),
            begin: self.format.after(at),
        };
        let Some(turn) = self.turn.filter(|turn| turn.sequence == sequence) else {
            if self.turn != Some(next) {
                self.begin(next);
            }
            return Verdict::Unjudged;
        };
        let mut own = Runs::default();
        for run in self.layout.runs(before) {
            own.add(run);
        }
        let missing = self
            .blocks(turn.begin, at)
            .map(|blocks| self.missing(blocks, &own))
            .iter()
            .sum();
        match missing {
            0 => {
                self.go_on(turn, next);
                Verdict::Complete
            }
            _ if self.refused => Verdict::Never,
            missing => Verdict::Waits(missing),
        }
    }

    /// What was written at `span` has taken effect; whether that is news.
    pub fn took_effect(&mut self, span: Span) -> bool {
        if self.turn.is_none() {
            return false;
        }
        let mut is_news = false;
        for run in self.layout.runs(span) {
            is_news |= self.written.add(run);
        }
        if self.written.len() > RUNS {
            self.give_up();
        }
        is_news
    }

    /// What was to be written at `span` was refused; whether a commit block may be waiting for it.
    pub fn refused(&mut self, span: Span) -> bool {
        let log = self.format.first.0..self.format.end.0;
        let hits = |run: Range<u32>| run.start < log.end && log.start < run.end;
        let is_hit = self.layout.runs(span).any(hits);
        self.refused |= is_hit;
        is_hit
    }

    /// A commit block at `span` was answered, and then refused. No replay of this log goes past its place, so nothing that comes
    /// behind it is committed, until another log begins. Its client hears of that with the next commit block.
    pub fn lost(&mut self, span: Span) {
        self.lost |= self.refused(span);
    }

    /// Knows nothing any more, until the journal says where its log begins, or goes on.
    pub fn give_up(&mut self) {
        self.turn = None;
        self.written.clear();
        self.refused = false;
    }

    fn begin(&mut self, turn: Turn) {
        self.turn = Some(turn);
        self.written.clear();
        self.refused = false;
    }

    /// A turn that was completed is over.
    fn go_on(&mut self, turn: Turn, next: Turn) {
        if turn.begin == next.begin {
            // It was as long as the log.
            return self.begin(next);
        }
        for blocks in self.blocks(turn.begin, next.begin) {
            self.written.remove(blocks);
        }
        (self.turn, self.refused) = (Some(next), false);
    }

    fn is_in_log(&self, at: JournalBlock) -> bool {
        (self.format.first..self.format.end).contains(&at)
    }

    /// The blocks of the log from `begin` to the one before `end`.
    fn blocks(&self, begin: JournalBlock, end: JournalBlock) -> [Range<u32>; 2] {
        match begin <= end {
            true => [begin.0..end.0, 0..0],
            false => [begin.0..self.format.end.0, self.format.first.0..end.0],
        }
    }

    /// How many of them are neither written nor in `own`.
    fn missing(&self, blocks: Range<u32>, own: &Runs) -> u32 {
        let mut at = blocks.start;
        while at < blocks.end {
            let reaches = self.written.reaches(at).max(own.reaches(at));
            if reaches == at {
                let rest = at..blocks.end;
                let there = self.written.within(&rest).max(own.within(&rest));
                // One at least is missing; of those that are in both sets some may be counted twice.
                return (rest.end - rest.start).saturating_sub(there).max(1);
            }
            at = reaches;
        }
        0
    }
}

/// Whether a block looks as a journal's superblock does that says where its log begins. It is written, and answered, before
/// anything of that log: whoever does not know the journal yet can find it in time.
#[must_use]
pub fn begins_a_log(bytes: &[u8]) -> bool {
    let word = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        four.map_or(0, |four| u32::from_be_bytes(*four))
    };
    word(0) == MAGIC && superblock::is_kind(word(4)) && word(superblock::LOG_START) != 0
}
