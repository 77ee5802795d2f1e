//! Requests that wait for leaves, and leaves being read.

use crate::addr::{Generation, Lba, Leaf, Nanos, RequestId};
use crate::limits::CENSUS_REST_NANOS;
use crate::state::Unsound;
use alloc::{collections::VecDeque, vec::Vec};

/// The most leaves read at once.
pub(super) const AT_ONCE: usize = 64;

/// The most leaves that a census reads at once while clients ask for something.
const BESIDE: usize = 4;

/// Clients that have asked for nothing for so long leave the medium to a census. A read may wait longer than a second on a slow drive.
const QUIET: Nanos = Nanos(2_000_000_000);

/// The most times a request waits. It may need two places, and three leaves for each (of the map, of the pages, of a delta's base); two
/// tries are spare.
pub(super) const TRIES: u8 = 8;

/// Leaves read ahead for a sequential reader: 16 MiB of blocks.
pub(super) const AHEAD: u32 = 4;

/// The most sequential readers recognised at once.
const READERS: usize = 8;

/// The last leaves that reads requested: a reader that requests the next one is likely to continue.
#[derive(Default)]
pub(super) struct SequentialReads {
    /// The last leaf each reader requested, the newest last.
    ends: VecDeque<Leaf>,
}

impl SequentialReads {
    /// Notes that a leaf is read, and returns how many leaves after it to read as well.
    pub fn ask(&mut self, leaf: Leaf) -> u32 {
        let reader = self.ends.iter().position(|end| end.0 + 1 == leaf.0);
        let ahead = match reader {
            Some(reader) => {
                self.ends.remove(reader);
                AHEAD
            }
            None => 0,
        };
        if self.ends.len() == READERS {
            self.ends.pop_front();
        }
        self.ends.push_back(Leaf(leaf.0 + ahead));
        ahead
    }
}

/// What a request needs before it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing: all leaves are in memory.
    Nothing,
    /// One of the leaves being read.
    Coming(Leaf),
    /// Leaves that are not in memory and cannot be requested: the core reads them itself, at once.
    Pull,
}

/// A read that waits for a leaf.
pub(super) struct WaitingRead {
    pub leaf: Leaf,
    pub id: RequestId,
    pub lba: Lba,
    pub blocks: u32,
    pub tries: u8,
}

/// Who waits for leaves beside reads.
#[derive(Clone, Copy)]
pub(super) enum Who {
    /// The first request of the queue.
    First,
    /// The collector's victim.
    Victim,
}

/// The leaf that one of these waits for, and how often it has waited. That is bounded.
#[derive(Clone, Copy, Default)]
struct Patience {
    leaf: Option<Leaf>,
    tries: u8,
}

/// The leaves that a census reads.
#[derive(Default)]
pub(super) struct CensusReads {
    /// When a client last asked to read or write.
    asked: Option<Nanos>,
    in_flight: usize,
    next: Leaf,
    /// Until when it rests.
    due: Option<Nanos>,
    /// True if only the end is left.
    is_at_end: bool,
    unsound: Option<Unsound>,
}

impl CensusReads {
    /// Notes that a client asks to read or write.
    pub fn on_asked(&mut self, now: Nanos) {
        self.asked = Some(now);
    }

    /// All leaves before this one were counted, or are being read.
    pub fn next(&self) -> Leaf {
        self.next
    }

    /// Notes that a leaf was counted, or is being read.
    pub fn on_begun(&mut self, leaf: Leaf) {
        self.next = Leaf(leaf.0 + 1);
    }

    /// Begins with the first leaf again.
    pub fn start_again(&mut self) {
        self.next = Leaf(0);
    }

    /// Rests after a step, so that requests have their turn.
    pub fn rest(&mut self, now: Nanos) {
        self.due = Some(Nanos(now.0 + CENSUS_REST_NANOS));
    }

    /// True if it rests still.
    pub fn rests(&mut self, now: Nanos) -> bool {
        self.due = self.due.filter(|due| *due > now);
        self.due.is_some()
    }

    /// Until when it rests.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Notes that all leaves are counted.
    pub fn on_all_counted(&mut self) {
        self.is_at_end = true;
    }

    /// True if all leaves were counted in the last step.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Notes that a leaf is requested.
    pub fn on_requested(&mut self) {
        self.in_flight += 1;
    }

    /// Notes that a leaf has arrived, or cannot be read.
    pub fn on_read(&mut self) {
        self.in_flight -= 1;
    }

    /// True if no leaf is being read.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// True if one more leaf may be read.
    pub fn has_room(&self, now: Nanos) -> bool {
        self.in_flight < self.most(now)
    }

    /// Notes the table in which the census has found what cannot be.
    pub fn on_unsound(&mut self, unsound: Unsound) {
        self.unsound = Some(unsound);
    }

    /// The table in which the census has found what cannot be.
    pub fn unsound(&self) -> Option<&Unsound> {
        self.unsound.as_ref()
    }

    /// How many leaves may be read at once. Beside clients few: each of their reads waits for those that are ahead of it.
    fn most(&self, now: Nanos) -> usize {
        let is_busy = |asked: Nanos| now.0.saturating_sub(asked.0) < QUIET.0;
        match self.asked.is_some_and(is_busy) {
            true => BESIDE,
            false => AT_ONCE,
        }
    }
}

/// The leaves being read, and who waits for them.
#[derive(Default)]
pub(super) struct Residency {
    /// Reads.
    waiting: Vec<WaitingRead>,
    /// How long each of [`Who`] has waited.
    patience: [Patience; 2],
    /// Leaves being read, each with the generation of the root that leads to it.
    under_way: Vec<(Leaf, Generation)>,
    /// Reused memory for the list of missing leaves.
    missing: Vec<Leaf>,
    /// Detects reads of one leaf after another.
    sequential: SequentialReads,
    /// What a census reads.
    pub census: CensusReads,
    /// Damaged leaves that were restored, and of which the host has not been told.
    rebuilt: u64,
}

impl Residency {
    /// An empty list, for the leaves that a request needs and that are not in memory.
    pub fn list(&mut self) -> Vec<Leaf> {
        let mut missing = core::mem::take(&mut self.missing);
        missing.clear();
        missing
    }

    /// What a request needs before it can run, if these leaves are missing. Takes the list back.
    pub fn needs(&mut self, missing: Vec<Leaf>) -> Needs {
        let mut leaves = missing.iter().copied();
        let own = leaves.find(|leaf| self.is_under_way(*leaf));
        let needs = match own.or_else(|| self.first_of_too_many()) {
            _ if missing.is_empty() => Needs::Nothing,
            Some(leaf) => Needs::Coming(leaf),
            None => Needs::Pull,
        };
        self.missing = missing;
        needs
    }

    /// True if a leaf is being read.
    pub fn is_under_way(&self, leaf: Leaf) -> bool {
        self.under_way.iter().any(|(of, _)| *of == leaf)
    }

    /// Returns one of the leaves being read if no more may be requested: when it arrives there is room for another.
    fn first_of_too_many(&self) -> Option<Leaf> {
        let first = self.under_way.first();
        first
            .filter(|_| self.under_way.len() >= AT_ONCE)
            .map(|(leaf, _)| *leaf)
    }

    /// True if a leaf may be requested, and is not being read.
    pub fn may_fetch(&self, leaf: Leaf) -> bool {
        self.under_way.len() < AT_ONCE && !self.is_under_way(leaf)
    }

    /// Notes that a leaf is being read from where the root of this generation has it.
    pub fn begin_fetch(&mut self, leaf: Leaf, of: Generation) {
        self.under_way.push((leaf, of));
    }

    /// Notes that this has ended.
    pub fn end_fetch(&mut self, leaf: Leaf) {
        self.under_way.retain(|(of, _)| *of != leaf);
    }

    /// How many leaves to read after this one, which a read misses.
    pub fn ahead_of(&mut self, missed: Leaf) -> u32 {
        self.sequential.ask(missed)
    }

    /// Has a read wait.
    pub fn wait(&mut self, read: WaitingRead) {
        self.waiting.push(read);
    }

    /// Takes all waiting reads. Those that wait for another leaf wait again, in their order.
    pub fn take_waiting(&mut self) -> Vec<WaitingRead> {
        core::mem::take(&mut self.waiting)
    }

    /// True if no read waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a leaf is being read from a place that only an older root leads to. The next map checkpoint may write there.
    pub fn is_behind(&self, newest: Generation) -> bool {
        self.under_way.iter().any(|(_, of)| *of < newest)
    }

    /// Removes the next waiting read, to be refused.
    pub fn give_up(&mut self) -> Option<RequestId> {
        self.waiting.pop().map(|waits| waits.id)
    }

    /// True if the leaf that it waits for is still being read.
    pub fn is_waiting(&self, who: Who) -> bool {
        let leaf = self.patience[who as usize].leaf;
        leaf.is_some_and(|leaf| self.is_under_way(leaf))
    }

    /// True if it has waited as often as allowed.
    pub fn has_waited(&self, who: Who) -> bool {
        self.patience[who as usize].tries >= TRIES
    }

    /// Has it wait if `needs` names a leaf that is coming. Returns true if it waits.
    pub fn begin_to_wait(&mut self, who: Who, needs: Needs) -> bool {
        let patience = &mut self.patience[who as usize];
        patience.leaf = match needs {
            Needs::Coming(leaf) => Some(leaf),
            Needs::Nothing | Needs::Pull => None,
        };
        patience.tries += u8::from(patience.leaf.is_some());
        patience.leaf.is_some()
    }

    /// Lets it wait as long again.
    pub fn start_again(&mut self, who: Who) {
        self.patience[who as usize] = Patience::default();
    }

    /// Notes that damaged leaves were restored.
    pub fn on_rebuilt(&mut self, leaves: u64) {
        self.rebuilt += leaves;
    }

    /// How many were restored since the last call.
    pub fn take_rebuilt(&mut self) -> u64 {
        core::mem::take(&mut self.rebuilt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_reads_few_leaves_at_once_while_clients_ask() {
        let mut census = CensusReads::default();
        assert_eq!(census.most(Nanos(6)), AT_ONCE);
        census.on_asked(Nanos(7));
        assert_eq!(census.most(Nanos(7)), BESIDE);
        assert_eq!(census.most(Nanos(6 + QUIET.0)), BESIDE);
        assert_eq!(census.most(Nanos(7 + QUIET.0)), AT_ONCE);
    }

    #[test]
    fn a_census_rests_after_a_step() {
        let mut census = CensusReads::default();
        assert!(!census.rests(Nanos(5)) && census.due().is_none());
        census.rest(Nanos(5));
        let due = Nanos(5 + CENSUS_REST_NANOS);
        assert!(census.rests(Nanos(due.0 - 1)) && census.due() == Some(due));
        assert!(!census.rests(due) && census.due().is_none());
    }

    #[test]
    fn a_sequential_reader_has_its_next_leaves_read_ahead() {
        let mut sequential = SequentialReads::default();
        assert_eq!((sequential.ask(Leaf(7)), sequential.ask(Leaf(90))), (0, 0));
        assert_eq!(sequential.ask(Leaf(8)), AHEAD);
        // Leaves that were read ahead are not requested again.
        assert_eq!(sequential.ask(Leaf(8 + AHEAD)), 0);
        assert_eq!(sequential.ask(Leaf(8 + AHEAD + 1)), AHEAD);
        // Random reads cause no read-ahead, and are forgotten.
        for random in 0..READERS as u32 {
            assert_eq!(sequential.ask(Leaf(1000 + 10 * random)), 0);
        }
        assert_eq!(sequential.ask(Leaf(91)), 0);
        assert_eq!(sequential.ends.len(), READERS);
    }

    #[test]
    fn patience_lasts_while_its_leaf_is_being_read_and_then_ends() {
        let mut residency = Residency::default();
        let (first, leaf) = (Who::First, Leaf(3));
        assert!(!residency.is_waiting(first) && !residency.has_waited(first));
        for _ in 0..TRIES {
            assert!(!residency.has_waited(first) && residency.may_fetch(leaf));
            residency.begin_fetch(leaf, Generation(1));
            assert!(residency.begin_to_wait(first, Needs::Coming(leaf)));
            assert!(residency.is_waiting(first) && !residency.is_waiting(Who::Victim));
            residency.end_fetch(leaf);
            assert!(!residency.is_waiting(first));
        }
        assert!(residency.has_waited(first) && !residency.has_waited(Who::Victim));
        assert!(!residency.begin_to_wait(first, Needs::Pull) && !residency.is_waiting(first));
        residency.start_again(first);
        assert!(!residency.has_waited(first));
    }

    #[test]
    fn who_finds_no_room_for_its_leaves_waits_for_those_being_read() {
        let mut residency = Residency::default();
        assert_eq!(residency.needs(Vec::new()), Needs::Nothing);
        assert_eq!(residency.needs([Leaf(9)].to_vec()), Needs::Pull);
        for leaf in 0..AT_ONCE as u32 {
            assert!(residency.may_fetch(Leaf(leaf)));
            residency.begin_fetch(Leaf(leaf), Generation(2));
        }
        assert!(!residency.may_fetch(Leaf(900)));
        assert_eq!(residency.needs([Leaf(9)].to_vec()), Needs::Coming(Leaf(9)));
        assert_eq!(
            residency.needs([Leaf(900)].to_vec()),
            Needs::Coming(Leaf(0))
        );
        assert!(residency.list().is_empty());
        assert!(residency.is_behind(Generation(3)) && !residency.is_behind(Generation(2)));
    }
}
