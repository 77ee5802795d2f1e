//! Decides when a commit block may take effect: after all blocks that it commits, and not before.
//!
//! With `journal_async_commit` jbd2 sends a transaction's blocks and its commit block at once, without waiting in between, and they
//! arrive in any order. If a crash came after the commit block took effect, but before some of the others did, a transaction would count
//! although it is incomplete. So the commit block waits here, and no other block does. This module says for how long.
//!
//! It relies on three things that jbd2 does in every kernel:
//!
//! 1. The blocks of transaction `n` are contiguous in the log, from the place after the commit block of `n - 1` to its own commit
//!    block. The log is a circle.
//! 2. Nothing of `n + 1` is sent before the commit block of `n` was answered. That block may be answered while it waits; then
//!    blocks of `n + 1` take effect in the turn of `n`. They are placed after that commit block, and count once it has continued.
//! 3. The superblock that says where a log begins is answered before anything of that log is sent: at a mount, and with the first
//!    transaction after the log was emptied.
//!
//! The third rule holds only when a log begins. When jbd2 moves the tail of its log, and everything older is at home, the superblock
//! names the transaction that is being committed. Blocks of that transaction may have been written before. While a turn is known, such a
//! superblock changes nothing. But a server that was restarted under a mounted file system has not seen those blocks. For it, the turn
//! that the superblock names is a guess, unless the log was known to be empty: blocks that seem to be missing may never come again. The
//! caller waits for them only shortly, then gives up the guess.
//!
//! So no descriptor needs to be read. It is enough to know which transaction's turn it is, where it begins, and which blocks have been
//! written since:
//!
//! ```text
//! lost        superblock with a log (n, at)            -> turn n, begins at `at`, nothing written; if not known empty, a guess
//! lost        commit m at c                            -> let through, unjudged; turn m+1, begins after c
//! turn n      a block of the log took effect           -> it is written
//! turn n      commit n at c, begin..c is written       -> let through; turn n+1, begins after c, keeps what is written ahead
//! turn n      commit n at c, begin..c is not           -> it waits, and is judged again later
//! turn n      a block of begin..c was refused, and     -> a commit n at c that is not complete never will be
//!             was not written since
//! turn n      commit n-1 again                         -> let through, unjudged; unchanged: it is of a log that is over
//! turn n      commit m at c, another one               -> let through, unjudged; turn m+1, begins after c, nothing written
//! turn n      superblock with a log that can be this   -> unchanged: its tail has moved
//! turn n      superblock with another log (m, at)      -> turn m, begins at `at`, nothing written; after a guess, a guess
//! any         superblock with an empty log             -> lost, known empty until something is written
//! any         superblock that is damaged               -> lost
//! any         given up, or more than RUNS runs         -> lost
//! ```
//!
//! A superblock and a commit block count when they are handed on. Any other block counts when it has taken effect, because it may
//! be refused. So a commit block, and what came in one request with it, takes effect in a later turn than its own. A later lap of
//! the log writes in the same places, and must not be taken to have done so already. So it is remembered what was handed on with
//! a commit block, until that takes effect or is refused. What an unjudged commit block has overtaken is not known: when the next
//! turn ends, as much of the log is forgotten behind it as a transaction can have ([`SHARE`]).
//!
//! Writes that are not jbd2's (a tool that writes an image over the journal) may be judged wrongly. That costs a
//! wait, which the caller bounds.

use super::block::Block;
use super::block::MAGIC;
use super::format::{Journal, JournalBlock, JournalFormat, Sequence};
use super::layout::Layout;
use super::runs::Runs;
use super::superblock;
use super::superblock::Log;
use super::turn::Turn;
use crate::limits::RUNS;
use crate::span::Span;
use core::ops::Range;

/// jbd2 makes no transaction larger than one part in so many of its log (a quarter before Linux 6.11).
const SHARE: u32 = 3;

/// A journal block that needs special handling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The superblock; `None` if it is damaged.
    Superblock(Option<Log>),
    /// The end of a transaction.
    Commit(Sequence),
}

/// What to do with a commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything it commits has taken effect.
    Complete,
    /// What it commits is not known.
    Unjudged,
    /// This many of the blocks it commits have not taken effect.
    Waits(u32),
    /// One of them was refused, or an earlier commit block is lost, so it must not be written.
    Never(Refusal),
}

/// Why a block of a journal was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There was no room. Some clients write it again when there is.
    NoRoom,
    /// It failed.
    Failed,
}

/// The state of one journal. See the module.
#[derive(Clone, Debug)]
pub struct Commits {
    format: JournalFormat,
    layout: Layout,
    superblock: JournalBlock,
    /// The next transaction to be committed.
    turn: Option<Turn>,
    /// The log is known to be empty, so the next superblock with a log is its beginning.
    is_empty: bool,
    /// The turn was named by a superblock that may only have moved the tail, to a transaction that is half written.
    is_guess: bool,
    /// Blocks written since the turn began, or so shortly before it that they took effect since.
    written: Runs,
    /// Where the blocks begin that are forgotten when the turn ends: its own, and those of an unjudged commit block before it.
    since: JournalBlock,
    /// Handed on with a commit block, and not in effect yet.
    late: Vec<Range<u32>>,
    /// Blocks of the log whose write was refused, and which have not been written since. Those of turns that ended are forgotten.
    refused: Runs,
    /// Why: not only for want of room.
    has_failed: bool,
    /// A commit block of this log was answered, but is not there.
    lost: bool,
}

impl Commits {
    /// Follows a journal on a volume of `volume_bytes`. `None` if not all of the journal is there, or if its blocks do not match
    /// 4096-byte blocks of the volume: then writes to it cannot be observed.
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
            is_empty: journal.is_empty,
            is_guess: false,
            written: Runs::default(),
            since: journal.format.first,
            late: Vec::new(),
            refused: Runs::default(),
            has_failed: false,
            lost: false,
        })
    }

    /// Sets whether its log is known to be empty, for a caller that knows better than the scan that found the journal.
    pub fn set_empty(&mut self, is_empty: bool) {
        self.is_empty = is_empty;
    }

    /// True if blocks of the present turn may have been written before it was known. See the module.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        self.is_guess
    }

    /// True if commit blocks of its log wait, and one may come.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.is_asynchronous() && self.turn.is_some()
    }

    /// True if it covers the same blocks as another.
    #[must_use]
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        (&self.layout, self.superblock) == (&other.layout, other.superblock)
    }

    /// Where its blocks are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// True if its superblock says that commit blocks are sent before the blocks they commit.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        self.format.features.async_commit()
    }

    /// Examines a block written at a byte of the volume. `None` if it needs no special handling, or is not in the journal.
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

    /// Records that a superblock is handed on.
    pub fn superblock(&mut self, log: Option<Log>) {
        let is_empty = log.is_some_and(|log| log.begin.is_none());
        let was_empty = core::mem::replace(&mut self.is_empty, is_empty);
        let Some(Log { format, begin }) = log else {
            self.lost = false;
            return self.give_up();
        };
        self.format = format;
        let Some((sequence, begin)) = begin else {
            self.lost = false;
            return self.give_up();
        };
        let first = Turn { sequence, begin };
        let is_this_log = self
            .turn
            .is_some_and(|turn| self.is_in_log(turn.begin) && turn.is_of_log(first));
        if !is_this_log {
            let is_guess = (self.turn.is_none() || self.is_guess) && !was_empty;
            self.lost = false;
            self.begin(first);
            self.is_guess = is_guess;
        }
    }

    /// Judges a commit block that is to be handed on directly after what is written at `before`. Unless it must
    /// wait, it counts as handed on.
    pub fn commit(&mut self, at: JournalBlock, sequence: Sequence, before: Span) -> Verdict {
        if self.lost {
            return Verdict::Never(Refusal::Failed);
        }
        let next = Turn::after(sequence, at, &self.format);
        let Some(turn) = self.turn.filter(|turn| turn.sequence == sequence) else {
            // If the commit block of the previous transaction arrives again, this turn stays: its beginning is known already, in the same
            // log or in another one since.
            if self.turn.is_none_or(|turn| turn.sequence != next.sequence) {
                self.begin(next);
                let most = (self.format.end.0 - self.format.first.0) / SHARE + 2;
                self.since = self.back_from(next.begin, most);
            }
            self.hand_on(at, before);
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
                self.hand_on(at, before);
                Verdict::Complete
            }
            _ if self.has_refused(turn, at) => Verdict::Never(self.why_refused()),
            missing => Verdict::Waits(missing),
        }
    }

    /// Notes that a commit block is handed on before an earlier one, whose turn it still is.
    pub fn overtake(&mut self, at: JournalBlock, before: Span) {
        self.hand_on(at, before);
    }

    /// Notes what is handed on with a commit block.
    fn hand_on(&mut self, at: JournalBlock, before: Span) {
        self.late.push(at.0..at.0 + 1);
        self.late.extend(self.layout.runs(before));
    }

    /// Records that a write to `span` has taken effect; once for each write. Returns true if that is new.
    pub fn took_effect(&mut self, span: Span) -> bool {
        let over = self.settle(span);
        if self.turn.is_none() {
            self.is_empty &= !self.is_in_its_log(span);
            return false;
        }
        let mut is_news = false;
        for run in self.layout.runs(span) {
            is_news |= self.refused.within(&run) > 0;
            self.refused.remove(run.clone());
            is_news |= self.written.add(run);
        }
        for blocks in over {
            self.written.remove(blocks);
        }
        if self.written.len() > RUNS {
            self.give_up();
        }
        is_news
    }

    /// Records that a write to `span` was refused. Returns true if a commit block may be waiting for it.
    pub fn refused(&mut self, span: Span, why: Refusal) -> bool {
        self.settle(span);
        let is_hit = self.is_in_its_log(span);
        // What was refused before may have been written since.
        self.has_failed &= self.refused.len() > 0;
        self.has_failed |= is_hit && why == Refusal::Failed;
        let log = self.format.first.0..self.format.end.0;
        for run in self.layout.runs(span) {
            let (start, end) = (run.start.max(log.start), run.end.min(log.end));
            self.refused.add(start..end.max(start));
        }
        if self.refused.len() > RUNS {
            self.refused.add(log);
        }
        is_hit
    }

    /// Records that a commit block at `span` was answered and then refused. No replay of this log continues past its place, so
    /// nothing after it is committed until another log begins. The client learns that from the next commit block.
    pub fn lost(&mut self, span: Span) {
        self.lost |= self.refused(span, Refusal::Failed);
    }

    /// Why a commit block at `commit` must not be written as things are, if so: see [`Verdict::Never`].
    #[must_use]
    pub fn refusal(&self, commit: Span) -> Option<Refusal> {
        if self.lost {
            return Some(Refusal::Failed);
        }
        let at = JournalBlock(self.layout.runs(commit).next()?.start);
        self.has_refused(self.turn?, at).then(|| self.why_refused())
    }

    fn why_refused(&self) -> Refusal {
        match self.has_failed {
            true => Refusal::Failed,
            false => Refusal::NoRoom,
        }
    }

    /// True if a block from the turn's first up to this one was refused.
    fn has_refused(&self, turn: Turn, at: JournalBlock) -> bool {
        let mut blocks = self.blocks(turn.begin, at).into_iter();
        blocks.any(|run| self.refused.within(&run) > 0)
    }

    /// Forgets everything until the journal says where its log begins, or a commit block arrives.
    pub fn give_up(&mut self) {
        self.turn = None;
        self.is_guess = false;
        self.written.clear();
        self.refused.clear();
    }

    fn begin(&mut self, turn: Turn) {
        (self.turn, self.since) = (Some(turn), turn.begin);
        (self.is_empty, self.is_guess) = (false, false);
        self.written.clear();
        self.refused.clear();
    }

    /// Ends a completed turn.
    fn go_on(&mut self, turn: Turn, next: Turn) {
        if turn.begin == next.begin {
            // The transaction filled the whole log.
            return self.begin(next);
        }
        for blocks in self.blocks(self.since, next.begin) {
            self.refused.remove(blocks.clone());
            self.written.remove(blocks);
        }
        self.since = next.begin;
        (self.turn, self.is_guess) = (Some(next), false);
    }

    /// The block so many before `end` in the log.
    fn back_from(&self, end: JournalBlock, back: u32) -> JournalBlock {
        let (first, log) = (self.format.first.0, self.format.end.0 - self.format.first.0);
        JournalBlock(first + (end.0.saturating_sub(first) + log - back % log) % log)
    }

    /// Removes and returns what a request has brought to an end that was handed on with a commit block.
    fn settle(&mut self, span: Span) -> Vec<Range<u32>> {
        let runs: Vec<Range<u32>> = self.layout.runs(span).collect();
        let is_in = |late: &Range<u32>| {
            let mut runs = runs.iter();
            runs.any(|run| run.start <= late.start && late.end <= run.end)
        };
        self.late.extract_if(.., |late| is_in(late)).collect()
    }

    /// True if a block of the log is in `span`.
    fn is_in_its_log(&self, span: Span) -> bool {
        let log = self.format.first.0..self.format.end.0;
        let is_hit = |run: Range<u32>| run.start < log.end && log.start < run.end;
        self.layout.runs(span).any(is_hit)
    }

    fn is_in_log(&self, at: JournalBlock) -> bool {
        (self.format.first..self.format.end).contains(&at)
    }

    /// The blocks of the log from `begin` up to, but not including, `end`.
    fn blocks(&self, begin: JournalBlock, end: JournalBlock) -> [Range<u32>; 2] {
        match begin <= end {
            true => [begin.0..end.0, 0..0],
            false => [begin.0..self.format.end.0, self.format.first.0..end.0],
        }
    }

    /// How many blocks are neither written nor in `own`.
    fn missing(&self, blocks: Range<u32>, own: &Runs) -> u32 {
        let mut at = blocks.start;
        while at < blocks.end {
            let reaches = self.written.reaches(at).max(own.reaches(at));
            if reaches == at {
                let rest = at..blocks.end;
                let there = self.written.within(&rest).max(own.within(&rest));
                // At least one is missing. Blocks that are in both sets may be counted twice.
                return (rest.end - rest.start).saturating_sub(there).max(1);
            }
            at = reaches;
        }
        0
    }
}

/// True if a block looks like a journal's superblock that says where its log begins. It is written, and answered, before anything
/// of that log, so a caller that does not know the journal yet can find it in time.
#[must_use]
pub fn begins_a_log(bytes: &[u8]) -> bool {
    let word = |at: usize| {
        let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        four.map_or(0, |four| u32::from_be_bytes(*four))
    };
    word(0) == MAGIC && superblock::is_kind(word(4)) && word(superblock::LOG_START) != 0
}
