//! The gate before the core: a commit block waits here for the blocks that it commits.
//!
//! [`CommitOrder`] decides which block waits, for what and for how long. This module keeps what waits. Its host takes out what may
//! go on, hands it to the core, and says what the core has answered. What must hold:
//!
//! 1. Only writes wait here, and the flush of (3). Threads and reads never wait: a client cannot rely on a write that is not
//!    answered.
//! 2. A commit block that is answered because nothing more arrives keeps waiting; see below.
//! 3. A flush does not overtake the commit block that it is for: see `flushes.rs`. No other flush waits.
//! 4. The host bounds what waits. Half of that room is divided among all journals that may be followed, so that a hostile client
//!    cannot take the room of another one's commit blocks. A commit block for which there is no room goes on unjudged.
//!
//! # Answered commit blocks
//!
//! Some clients send nothing more before they have an answer: nbdfuse holds its connection while it waits for one. The client
//! would wait for the volume, and the volume for the client. The answer to a write does not say when the write takes effect, as
//! long as no request can observe it. So the answer is given, and the block keeps waiting. jbd2 does not flush before all of a
//! transaction is answered, so it loses nothing. The block goes on, judged or not, when something could observe that it waits:
//!
//! 1. a read, a write or a discard of its blocks;
//! 2. the end of the volume's life.
//!
//! A flush does not make it go on, not even a flush for another file system on the volume: jbd2 flushes for a transaction only after
//! all of it is answered. `flushes.rs` deals with that flush.
//!
//! If a block that it commits is refused, an answered commit block waits on. The client got the error for the other block, and may
//! write that again: a virtual machine that stopped for want of room does. If something could observe the commit block before that,
//! it is given up: it has no effect, and no later commit block of its log has any ([`lose`](CommitOrder::lose)). A commit block that was
//! not answered is refused. If there was no room for what it commits, it gets the same error, so that such a machine writes it again,
//! too. Where there is room by then, it waits.
//!
//! If the core refuses the commit block itself, no flush succeeds from then on either. Lack of room should not cause that: where room
//! may be short, the answer is given only after the block has taken effect.

use crate::change::Change;
use crate::flushes::Flushes;
use crate::limits::COMMIT_JOURNALS;
use crate::order::{CommitOrder, Reason, Stop, Wait};
use std::collections::{BTreeMap, VecDeque};
use vellum_core::addr::Nanos;
use vellum_core::seam::Payload;
use vellum_ext4::journal::{Commits, Refusal};

/// A write that waits.
pub struct Waiting<W> {
    /// What its host knows of it.
    pub write: W,
    /// Its first block, and how many it has.
    pub run: (u64, usize),
    /// What it waits for.
    pub wait: Wait,
}

/// What a write that has waited too long needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing: it has not, or that is settled.
    Nothing,
    /// Its answer. It keeps waiting.
    Answer,
    /// To go on, because no scan came.
    Unscanned,
    /// To be refused: so many of the blocks that it commits are missing.
    Refusal(u32),
}

/// Writes (`W`) and flushes (`F`) that wait; see the module.
pub struct CommitGate<W, F = W> {
    /// Decides what waits. It is told what has taken effect.
    pub order: CommitOrder,
    flushes: Flushes<F>,
    waiting: Vec<Waiting<W>>,
    /// Those that are about to be tried again.
    again: VecDeque<Waiting<W>>,
    waited: u64,
}

impl<W, F> Default for CommitGate<W, F> {
    fn default() -> Self {
        Self {
            order: CommitOrder::default(),
            flushes: Flushes::default(),
            waiting: Vec::new(),
            again: VecDeque::new(),
            waited: 0,
        }
    }
}

impl<W, F> CommitGate<W, F> {
    /// Sets the journals to follow from now on: see [`CommitOrder::follow`].
    pub fn follow(&mut self, found: &[Commits]) -> Vec<u64> {
        let waits = self.waiting.iter_mut().map(|waiting| &mut waiting.wait);
        self.order.follow(found, waits)
    }

    /// Notes that the core is handed a request. `is_answered`: its client has the answer. `is_commit`: it got that while the
    /// request waited here.
    pub fn handed_over(&mut self, is_answered: bool, is_commit: bool) {
        self.flushes.handed_over(is_answered, is_commit);
    }

    /// Notes that the core has answered it.
    pub fn ended(&mut self, is_answered: bool, is_commit: bool) {
        self.flushes.ended(is_answered, is_commit);
        if !self.flushes.is_empty() {
            self.order.wake();
        }
    }

    /// True if a flush that arrives now has to wait.
    #[must_use]
    pub fn holds_flush(&self) -> bool {
        self.flushes.must_wait(self.has_answered())
    }

    /// Keeps a flush.
    pub fn keep_flush(&mut self, flush: F) {
        self.flushes.hold(flush);
    }

    /// Takes out the first flush, if it may go on.
    pub fn take_flush(&mut self) -> Option<F> {
        self.flushes.pop()
    }

    /// Finds the first block of a write that must not go on, if `room` blocks may wait in all. `waited`: its wait so far. `may_come`:
    /// whether what it may wait for can come at all: a scan, what was refused for want of room.
    pub fn stop(
        &mut self,
        change: &Change<'_>,
        blocks: &[Payload],
        room: usize,
        waited: Option<&Wait>,
        may_come: impl Fn(&Reason) -> bool,
    ) -> Option<(usize, Stop)> {
        let used = self.used();
        let may_wait = |index, reason: &Reason| {
            let asked = blocks.len() - index + used.values().sum::<usize>();
            // What waited before has had its share.
            let kept = waited.map_or_else(|| kept(&used, room, reason), |_| 0);
            asked + kept <= room && may_come(reason)
        };
        let waits = self.waiting.iter().map(|waiting| &waiting.wait);
        let (at, stop) = self.order.stop(change, blocks, may_wait, waits)?;
        let stop = match (waited, stop) {
            (Some(wait), Stop::Refuse(_)) if wait.is_answered => {
                Stop::Wait(wait.reason.without_guess())
            }
            _ => stop,
        };
        Some((at, stop))
    }

    /// How many blocks wait of each journal, and (`None`) for a scan.
    fn used(&self) -> BTreeMap<Option<usize>, usize> {
        let mut used = BTreeMap::new();
        for waiting in self.waiting.iter().chain(&self.again) {
            *used.entry(waiting.wait.reason.journal()).or_default() += waiting.run.1;
        }
        used
    }

    /// Keeps a write, which has not waited before if it `is_new`.
    pub fn keep(&mut self, waiting: Waiting<W>, is_new: bool) {
        self.waited += u64::from(is_new);
        self.waiting.push(waiting);
    }

    /// When to look at the clock, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|waiting| self.order.deadline(&waiting.wait))
            .min()
    }

    /// Begins another try of everything that waits, if one is due: something may go on now that could not before, or it has waited long
    /// enough. Returns true if a try began. Then the caller takes the writes by [`take_next`](Self::take_next), and after them the flushes
    /// by [`take_flush`](Self::take_flush).
    pub fn begins(&mut self, now: Nanos) -> bool {
        let is_due = self.order.take_due();
        let begins = self.holds_any() && (is_due || self.deadline().is_some_and(|at| at <= now));
        if begins {
            self.again.extend(self.waiting.drain(..));
        }
        begins
    }

    /// Takes out the next write to try again.
    pub fn take_next(&mut self) -> Option<Waiting<W>> {
        self.again.pop_front()
    }

    /// What a write needs by now, before it is tried again. `has_room`: whether the core would surely accept it.
    pub fn due(&mut self, now: Nanos, wait: &mut Wait, has_room: bool) -> Due {
        let deadline = self.order.deadline(wait);
        match wait.reason {
            _ if deadline.is_none_or(|at| at > now) => {}
            Reason::Scan => return Due::Unscanned,
            Reason::Blocks {
                journal,
                is_guess: true,
                ..
            } => self.order.give_up(journal),
            Reason::Blocks { missing, .. } if !wait.may_be_answered() => {
                return Due::Refusal(missing);
            }
            Reason::Blocks { .. } if has_room => {
                wait.is_answered = true;
                return Due::Answer;
            }
            Reason::Blocks { .. } => wait.is_withheld = true,
        }
        Due::Nothing
    }

    /// Takes out the answered writes that a request could observe. `run`: its first block, and how many it has; `None`: takes out all
    /// answered writes. They have to go on, whatever they wait for
    /// ([`let_through`](Self::let_through)), or to be refused ([`refusal`](Self::refusal)).
    pub fn take_observed(&mut self, run: Option<(u64, u64)>) -> Vec<Waiting<W>> {
        let is_observed = |waiting: &mut Waiting<W>| {
            let (first, blocks) = waiting.run;
            waiting.wait.is_answered && run.is_none_or(|run| is_near((first, blocks as u64), run))
        };
        self.waiting.extract_if(.., is_observed).collect()
    }

    /// Why this commit block must not be written, if so: a block that it commits was refused, and was not written since, or an earlier
    /// commit block is lost.
    pub fn refusal(&self, waiting: &Waiting<W>) -> Option<Refusal> {
        let (first, blocks) = waiting.run;
        self.order.refusal(&waiting.wait, first, blocks as u64)
    }

    /// Tells the journals that such a write goes on. A write that has waited longer keeps its turn.
    pub fn let_through(&mut self, change: &Change<'_>, blocks: &[Payload], wait: &Wait) {
        let waits = self.waiting.iter().map(|waiting| &waiting.wait);
        let earlier = waits.filter(|earlier| earlier.since < wait.since);
        self.order.let_through(change, blocks, earlier);
    }

    /// Takes out all writes and all flushes.
    pub fn drain(&mut self) -> (impl Iterator<Item = W>, impl Iterator<Item = F>) {
        let waiting = self.again.drain(..).chain(self.waiting.drain(..));
        (waiting.map(|waiting| waiting.write), self.flushes.drain())
    }

    /// Blocks of the writes that wait.
    #[must_use]
    pub fn blocks(&self) -> usize {
        let waiting = self.waiting.iter().chain(&self.again);
        waiting.map(|waiting| waiting.run.1).sum()
    }

    /// Blocks of the answered writes that wait. They may take effect at any time, although no request for them comes any more.
    pub fn answered(&self) -> impl Iterator<Item = u64> {
        let waiting = self.waiting.iter().chain(&self.again);
        let answered = waiting.filter(|waiting| waiting.wait.is_answered);
        answered.flat_map(|waiting| (waiting.run.0..).take(waiting.run.1))
    }

    /// True if anything waits.
    #[must_use]
    pub fn holds_any(&self) -> bool {
        !(self.waiting.is_empty() && self.flushes.is_empty())
    }

    /// The first write that waits, if one does.
    #[must_use]
    pub fn first_waiting(&self) -> Option<&Waiting<W>> {
        self.waiting.first()
    }

    /// True if a write that waits is answered.
    fn has_answered(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.wait.is_answered)
    }

    /// True if a commit block is answered and has not taken effect, here or in the core.
    #[must_use]
    pub fn holds_answered(&self) -> bool {
        self.flushes.awaits_commit() || self.has_answered()
    }

    /// Writes that wait now, and how often one had to wait.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.waiting.len(), self.waited)
    }
}

/// How much of the room is kept for what other journals and a scan may need. Half of the room is divided among them.
fn kept(used: &BTreeMap<Option<usize>, usize>, room: usize, reason: &Reason) -> usize {
    let share = room / 2 / (COMMIT_JOURNALS + 1);
    let others = used.iter().filter(|(of, _)| **of != reason.journal());
    share * COMMIT_JOURNALS - others.map(|(_, used)| share.min(*used)).sum::<usize>()
}

/// True if two runs, a first block and how many each, have a block in common.
#[must_use]
pub fn is_near(one: (u64, u64), other: (u64, u64)) -> bool {
    let end = |run: (u64, u64)| run.0.saturating_add(run.1);
    one.0 < end(other) && other.0 < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::tests::{One, journal};

    const ROOM: usize = 4 * (COMMIT_JOURNALS + 1);

    /// Sends a commit block to a place, with the number of its transaction. If it waits, it is answered and kept.
    fn send(gate: &mut CommitGate<()>, (first, sequence): (u64, u8), since: u64) -> bool {
        let (block, payload) = One::commit(sequence);
        let change = Change {
            first,
            blocks: 1,
            written: Some(&block),
        };
        let stop = gate.stop(&change, &[payload], ROOM, None, |_| true);
        let Some((_, Stop::Wait(reason))) = stop else {
            return false;
        };
        let wait = Wait {
            since: Nanos(since),
            reason,
            is_answered: true,
            is_withheld: false,
        };
        let (write, run) = ((), (first, 1));
        gate.keep(Waiting { write, run, wait }, true);
        true
    }

    /// A client may send commit blocks of transactions that never come, as many as it likes, to as many journals as it likes.
    #[test]
    fn one_client_does_not_take_the_room_of_another() {
        let mut gate = CommitGate::<()>::default();
        let journals: Vec<_> = (1..=COMMIT_JOURNALS as u64)
            .map(|n| journal(100 * n))
            .collect();
        gate.follow(&journals);
        // A commit block without the block before it.
        let mut send = |journal: u64, n: u64| send(&mut gate, (100 * journal + 2 + n % 10, 7), 0);
        let mut count = |journal| (0..1000).take_while(|n| send(journal, *n)).count();
        assert_eq!(count(1), ROOM / 2 + 2, "half of the room, and its share");
        for journal in 2..=COMMIT_JOURNALS as u64 {
            assert_eq!(count(journal), 2, "the share of journal {journal}");
        }
    }

    /// A virtual machine that was stopped when a write was refused writes it again when it goes on.
    #[test]
    fn an_answered_commit_block_waits_for_what_was_refused() {
        let mut gate = CommitGate::<()>::default();
        gate.follow(&[journal(100)]);
        assert!(send(&mut gate, (102, 7), 1));
        let before = Change {
            first: 101,
            blocks: 1,
            written: None,
        };
        gate.order.ended(Nanos(2), &before, Err(Refusal::Failed));
        let (block, payload) = One::commit(7);
        let commit = Change {
            first: 102,
            blocks: 1,
            written: Some(&block),
        };
        let waiting = gate.waiting.pop().unwrap();
        let wait = waiting.wait;
        let stop = |gate: &mut CommitGate<()>, waited| {
            let stop = gate.stop(&commit, &[payload], ROOM, waited, |_| true);
            stop.map(|(_, stop)| stop)
        };
        assert_eq!(gate.refusal(&waiting), Some(Refusal::Failed));
        let refused = Some(Stop::Refuse(Refusal::Failed));
        assert_eq!(stop(&mut gate, None), refused);
        assert_eq!(stop(&mut gate, Some(&wait)), Some(Stop::Wait(wait.reason)));
        // A guess has a deadline, and would be tried again at once, for ever.
        let guess = Wait {
            reason: Reason::Blocks {
                journal: Some(0),
                missing: 1,
                is_guess: true,
                was_refused: false,
            },
            ..wait
        };
        assert_eq!(stop(&mut gate, Some(&guess)), Some(Stop::Wait(wait.reason)));
        gate.order.ended(Nanos(3), &before, Ok(()));
        assert_eq!(gate.refusal(&waiting), None);
        assert_eq!(stop(&mut gate, Some(&wait)), None);
        assert_eq!(gate.order.counts(), (1, 0));
    }

    /// Two commit blocks wait. A read of the later one says nothing about the blocks that the earlier one waits for.
    #[test]
    fn a_commit_block_that_is_observed_leaves_an_earlier_one_its_turn() {
        let mut gate = CommitGate::<()>::default();
        gate.follow(&[journal(100)]);
        assert!(send(&mut gate, (102, 7), 1) && send(&mut gate, (104, 8), 2));
        for waiting in gate.take_observed(Some((104, 1))) {
            let (block, payload) = One::commit(8);
            let change = Change {
                first: 104,
                blocks: 1,
                written: Some(&block),
            };
            gate.let_through(&change, &[payload], &waiting.wait);
        }
        assert_eq!(gate.order.counts(), (0, 1));
        // The earlier one still waits for the block before it.
        let first = gate.waiting.pop().unwrap();
        assert!(first.run == (102, 1) && send(&mut gate, (102, 7), 1));
        let change = Change {
            first: 101,
            blocks: 1,
            written: None,
        };
        gate.waiting.clear();
        gate.order.ended(Nanos(3), &change, Ok(()));
        assert!(!send(&mut gate, (102, 7), 1));
        assert_eq!(gate.order.counts(), (1, 1));
    }
}
