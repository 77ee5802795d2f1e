//! Decides which commit blocks of journals wait, what for, and how long.
//!
//! Requests in flight arrive in any order, and the server of the volume chooses the order in which they take effect. With
//! `journal_async_commit` a commit block is in flight together with the blocks it commits, so it must be handed on after all of
//! them. [`Commits`] decides that for one journal. This module handles all journals of a volume, and the time limits. The rules:
//!
//! 1. A block counts as present once it has taken effect. What is handed on later takes effect later.
//! 2. Commit blocks wait only in a journal whose superblock says that commits are asynchronous. In any other, jbd2 sends a commit
//!    block after the answers to everything it commits. If something is missing then, a layer above us (such as a writeback
//!    cache) reorders writes and is responsible for that. There a commit block continues at once, unjudged.
//! 3. A client is not kept waiting for blocks that it cannot send: some clients send nothing more before they have an answer
//!    (nbdfuse). So [`COMMIT_SILENCE`] after the last new block of its journal, the commit block is answered, and keeps waiting.
//!    A commit block that must be durable when it is answered cannot be answered early. After [`COMMIT_PATIENCE`] it fails
//!    instead, and jbd2 aborts its journal: what was lost on the way to us must not be committed.
//! 4. A journal that is not known from its start cannot be followed later. So a superblock that begins a log waits,
//!    while a scan is needed, until the scan is done ([`SCOUT_PATIENCE`] at most). jbd2 sends nothing of the log before
//!    that superblock is answered.
//!    If a superblock tells of a log that was not known to be empty, blocks of its transaction may have been written before. Then
//!    its commit block waits no longer than [`COMMIT_SILENCE`], and continues unjudged.
//! 5. A commit block does not overtake the one before it, whether or not that one was answered.

use crate::change::{Blocks, Change};
use crate::classes::is_own;
use crate::limits::{COMMIT_PATIENCE, COMMIT_SILENCE, SCOUT_PATIENCE};
use crate::ranges::{BLOCK, Range};
use vellum_core::addr::Nanos;
use vellum_core::seam::Payload;
use vellum_ext4::Span;
use vellum_ext4::journal::{Commits, Mark, Refusal, Verdict, begins_a_log};

/// The journals of a volume and their commit blocks; see the module.
#[derive(Default)]
pub struct CommitOrder {
    journals: Vec<Journal>,
    /// The ranges of all journals, in address order.
    places: Vec<Range>,
    /// True if something may continue that could not before.
    is_due: bool,
    /// Commit blocks that continued after everything they commit, and those that continued unjudged.
    complete: u64,
    unjudged: u64,
}

struct Journal {
    commits: Commits,
    /// When the last new block arrived, or was refused.
    news: Nanos,
    /// When the last new block arrived.
    came: Nanos,
}

/// What a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The end of a scan.
    Scan,
    /// The blocks that a commit block commits.
    Blocks {
        /// The journal's index, if it is still known.
        journal: Option<usize>,
        /// How many blocks are missing.
        missing: u32,
        /// Which transaction comes next is a guess, so what is missing may have been written before.
        is_guess: bool,
        /// One of them was refused for want of room, and may come again.
        was_refused: bool,
    },
}

impl Reason {
    /// The journal's index; `None` for a scan, and for a journal that is no longer known.
    #[must_use]
    pub fn journal(&self) -> Option<usize> {
        match self {
            Self::Scan => None,
            Self::Blocks { journal, .. } => *journal,
        }
    }

    /// True if it waits for a block that was refused.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        matches!(
            self,
            Self::Blocks {
                was_refused: true,
                ..
            }
        )
    }

    /// The same, of what is known well enough to wait on.
    pub(crate) fn without_guess(mut self) -> Self {
        if let Self::Blocks { is_guess, .. } = &mut self {
            *is_guess = false;
        }
        self
    }
}

/// What to do with a write from some block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It waits.
    Wait(Reason),
    /// It is refused: what it commits is not there, and nobody can say that it will be.
    Refuse(Refusal),
}

/// The state of a waiting write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Since when it waits.
    pub since: Nanos,
    /// What it waits for.
    pub reason: Reason,
    /// Its client has been answered.
    pub is_answered: bool,
    /// It must not be answered before it takes effect, because it must be durable then, or because there may be no room for it.
    pub is_withheld: bool,
}

impl Wait {
    /// True if an answer now would promise no more than can be kept.
    #[must_use]
    pub fn may_be_answered(&self) -> bool {
        !(self.is_answered || self.is_withheld)
    }

    /// The journal's index, if which of its transactions comes next is a guess.
    #[must_use]
    pub fn guess(&self) -> Option<Option<usize>> {
        match self.reason {
            Reason::Blocks {
                journal,
                is_guess: true,
                ..
            } => Some(journal),
            _ => None,
        }
    }

    /// True if it is an answered commit block of that journal.
    fn is_answered_of(&self, journal: usize) -> bool {
        self.is_answered && self.reason.journal() == Some(journal)
    }
}

impl CommitOrder {
    /// Sets the journals. A journal that was known keeps its state. A wait stays with its journal even if the journal's index changes.
    /// Returns the first bytes of journals that are no longer followed, although their logs went on.
    pub fn follow<'a>(
        &mut self,
        found: &[Commits],
        waits: impl Iterator<Item = &'a mut Wait>,
    ) -> Vec<u64> {
        let before = std::mem::take(&mut self.journals);
        let place = |known: &Journal| {
            let mut found = found.iter();
            found.position(|new| known.commits.is_of_the_same(new))
        };
        let numbers: Vec<Option<usize>> = before.iter().map(place).collect();
        let new = |commits: &Commits| Journal {
            commits: commits.clone(),
            news: Nanos(0),
            came: Nanos(0),
        };
        self.journals = found.iter().map(new).collect();
        let mut lost = Vec::new();
        for (journal, number) in before.into_iter().zip(&numbers) {
            match *number {
                Some(number) => self.journals[number] = journal,
                None if journal.commits.goes_on() => {
                    let mut extents = journal.commits.layout().extents();
                    lost.extend(extents.next().map(|first| first.start));
                }
                None => {}
            }
        }
        for wait in waits {
            if let Reason::Blocks { journal, .. } = &mut wait.reason {
                *journal = journal.and_then(|number| numbers[number]);
            }
        }
        let spans = found.iter().flat_map(|commits| commits.layout().extents());
        let places = spans.map(|span| (span.start / BLOCK, span.end() / BLOCK));
        self.places = places.collect();
        self.places.sort_unstable();
        self.is_due = true;
        lost
    }

    /// Records that a change has taken effect, or never will.
    pub fn ended(&mut self, now: Nanos, change: &Change<'_>, result: Result<(), Refusal>) {
        if !self.is_in_journal(change.first, change.blocks) {
            return;
        }
        let span = change.span();
        for journal in &mut self.journals {
            let is_news = match result {
                Ok(()) => journal.commits.took_effect(span),
                Err(why) => journal.commits.refused(span, why),
            };
            if is_news {
                journal.news = now;
                if result.is_ok() {
                    journal.came = now;
                }
                self.is_due = true;
            }
        }
    }

    /// Records that an answered commit block was refused. jbd2 does not check the answer to its flush, so from then on no
    /// commit block of that log succeeds.
    pub fn lose(&mut self, change: &Change<'_>) {
        for journal in &mut self.journals {
            journal.commits.lost(change.span());
        }
    }

    /// Why a commit block of so many blocks, one that waits, must not be written: it commits a block that was refused, or an earlier
    /// commit block is lost.
    #[must_use]
    pub(crate) fn refusal(&self, wait: &Wait, first: u64, blocks: u64) -> Option<Refusal> {
        let span = Span::new(first * BLOCK, blocks * BLOCK);
        self.journals[wait.reason.journal()?].commits.refusal(span)
    }

    /// Returns true, once, if something may continue that could not before.
    pub fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    /// Notes that something may continue for another reason.
    pub fn wake(&mut self) {
        self.is_due = true;
    }

    /// When a wait must end or be answered. `None` if it has been answered and only waits for blocks that will come.
    #[must_use]
    pub fn deadline(&self, wait: &Wait) -> Option<Nanos> {
        let news = |journal: Option<usize>| {
            let news = journal.map_or(Nanos(0), |number| self.journals[number].news);
            wait.since.max(news)
        };
        let (from, patience) = match wait.reason {
            Reason::Blocks {
                journal,
                is_guess: true,
                ..
            } => (news(journal), COMMIT_SILENCE),
            _ if wait.is_answered => return None,
            Reason::Scan => (wait.since, SCOUT_PATIENCE),
            // Other blocks that are refused meanwhile are no sign that this one comes.
            Reason::Blocks {
                journal,
                was_refused: true,
                ..
            } => {
                let came = journal.map_or(Nanos(0), |number| self.journals[number].came);
                (wait.since.max(came), COMMIT_PATIENCE)
            }
            Reason::Blocks { journal, .. } => {
                let patience = match wait.may_be_answered() {
                    true => COMMIT_SILENCE,
                    false => COMMIT_PATIENCE,
                };
                (news(journal), patience)
            }
        };
        Some(Nanos(from.0.saturating_add(patience.as_nanos() as u64)))
    }

    /// Commit blocks that continued after everything they commit, and those that continued unjudged.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.complete, self.unjudged)
    }

    /// Gives up a guess about a journal, unless a commit block has confirmed or corrected it. The commit block that waited for the guess
    /// then continues unjudged. Its place tells where the next transaction begins.
    pub fn give_up(&mut self, journal: Option<usize>) {
        if let Some(number) = journal
            && self.journals[number].commits.is_guess()
        {
            self.journals[number].commits.give_up();
        }
    }

    /// Tells the journals that a waiting commit block continues without what it waits for, so that they can judge the next one. `waits`:
    /// what goes on waiting before it.
    pub fn let_through<'a>(
        &mut self,
        change: &Change<'_>,
        payloads: &[Payload],
        waits: impl Iterator<Item = &'a Wait> + Clone,
    ) {
        self.stop(change, payloads, |_, _| false, waits);
    }

    /// Returns the first block of a write that must not continue. The journals are told about all blocks before it. `may_wait`:
    /// whether the write may wait from a block on, for that reason; if not, it continues unjudged, or is refused if what it waits for was.
    /// `waits`: what waits already; for a retry, what waits before it.
    pub fn stop<'a>(
        &mut self,
        change: &Change<'_>,
        payloads: &[Payload],
        may_wait: impl Fn(usize, &Reason) -> bool,
        waits: impl Iterator<Item = &'a Wait> + Clone,
    ) -> Option<(usize, Stop)> {
        let blocks = change.written?;
        let is_mark = |(_, payload): &(usize, &Payload)| is_own(&payload.digest);
        for (index, _) in payloads.iter().enumerate().filter(is_mark) {
            let may_wait = |reason: &Reason| may_wait(index, reason);
            let stop = if self.is_in_journal(change.first + index as u64, 1) {
                self.mark(change.first, blocks, index, may_wait, waits.clone())
            } else {
                let waits = begins_a_log(blocks.block(index)) && may_wait(&Reason::Scan);
                waits.then_some(Stop::Wait(Reason::Scan))
            };
            if let Some(stop) = stop {
                return Some((index, stop));
            }
        }
        None
    }

    /// Handles a block that may be a journal's own. Returns how it must stop, if it must.
    fn mark<'a>(
        &mut self,
        first: u64,
        blocks: &dyn Blocks,
        index: usize,
        may_wait: impl Fn(&Reason) -> bool,
        mut waits: impl Iterator<Item = &'a Wait>,
    ) -> Option<Stop> {
        let offset = (first + index as u64) * BLOCK;
        let bytes = blocks.block(index);
        let read =
            |(number, known): (usize, &Journal)| Some((number, known.commits.read(offset, bytes)?));
        let (number, (at, mark)) = self.journals.iter().enumerate().find_map(read)?;
        let commits = &mut self.journals[number].commits;
        let is_judged = commits.is_asynchronous();
        match mark {
            Mark::Superblock(begins) => commits.superblock(begins),
            Mark::Commit(sequence) => {
                let before = Span::new(first * BLOCK, index as u64 * BLOCK);
                // An earlier commit block was answered and still waits. Whether this one is complete is not known before the earlier one
                // has continued.
                let is_later = waits.any(|wait| wait.is_answered_of(number));
                let verdict = match is_later {
                    true => Verdict::Waits(1),
                    false => commits.commit(at, sequence, before),
                };
                let reason = |missing, was_refused| Reason::Blocks {
                    journal: Some(number),
                    missing,
                    is_guess: commits.is_guess(),
                    was_refused,
                };
                match verdict {
                    Verdict::Complete => self.complete += 1,
                    Verdict::Unjudged => self.unjudged += 1,
                    Verdict::Never(why) if is_judged => {
                        let again = reason(1, true).without_guess();
                        return Some(match why == Refusal::NoRoom && may_wait(&again) {
                            true => Stop::Wait(again),
                            false => Stop::Refuse(why),
                        });
                    }
                    Verdict::Waits(missing) if is_judged && may_wait(&reason(missing, false)) => {
                        return Some(Stop::Wait(reason(missing, false)));
                    }
                    Verdict::Never(_) | Verdict::Waits(_) => {
                        if is_later {
                            commits.overtake(at, before);
                        } else {
                            commits.give_up();
                            commits.commit(at, sequence, before);
                        }
                        self.unjudged += 1;
                    }
                }
            }
        }
        self.is_due = true;
        None
    }

    fn is_in_journal(&self, first: u64, blocks: u64) -> bool {
        let near = self.places.partition_point(|(_, after)| *after <= first);
        let near = self.places.get(near);
        near.is_some_and(|(start, _)| *start < first.saturating_add(blocks))
    }
}

#[cfg(test)]
pub(crate) mod tests;
