//! Virtual time: events in order, and jobs that are done when all their parts are.
//!
//! Most events belong to dies, and a die has one at a time: each die has a slot, and the first event is searched for
//! among the slots. There are few other events: the soonest are kept sorted in a ring, and the rest goes to a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What an event notifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// A host's request reaches the drive.
    Arrival(u32),
    /// A host's request is answered, at the host.
    Answer(u32),
    /// The hash unit has hashed the next request.
    Hashed,
    /// An effect of the engine has completed.
    Effect(u32),
    /// A service of the engine has read from the medium.
    Service,
    /// A request of the drive's own flash translation layer.
    Client(u32),
    /// A program unit of that layer is on flash.
    Unit(u64),
    /// Flash: a die has read a unit into its register.
    Sensed(u32),
    /// Flash: a die has finished its operation.
    Idle(u32),
    /// Flash: the operation of a die's cells has ended, unless it was stopped since.
    Array {
        /// The die.
        die: u32,
        /// The number of the event for that die.
        turn: u32,
    },
    /// Flash: what a die read with a cache command has crossed its channel.
    Crossed(u32),
    /// What a drive folded while idle is on flash.
    Folded,
    /// The entries of a drive's map that a request needs have been read.
    Looked(u32),
    /// What a die of a drive has refreshed is on flash.
    Refreshed(u32),
}

/// The most events kept sorted.
const NEAR: usize = 64;

/// Dies that have a slot; events of other dies are treated like those of requests.
const PLACES: u32 = 32;

/// A time, and a number that orders events of the same time; one comparison orders both.
type Key = u128;
const NEVER: Key = Key::MAX;
/// The time of a die without an event.
const IDLE: u64 = u64::MAX;

/// A job, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job(u32);

struct Parts {
    left: u32,
    tag: Tag,
}

/// The event queue. Events at the same time fire in the order in which they were set.
pub struct Timeline {
    now: u64,
    set: u64,
    /// For each die: when its operation ends. `dies_set` has what orders those of the same time, and whether the die
    /// is sensing.
    dies: Vec<u64>,
    dies_set: Vec<(u64, bool)>,
    /// The die that is first.
    die: usize,
    /// The soonest events, sorted.
    near: VecDeque<(Key, Tag)>,
    /// All others, each later than all in `near`; empty if `near` is empty.
    far: BinaryHeap<Reverse<(Key, Tag)>>,
    jobs: Vec<Parts>,
    free: Vec<u32>,
    done: VecDeque<Tag>,
    /// Nothing takes time: for preconditioning, and for runs that only count.
    instant: bool,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            now: 0,
            set: 0,
            dies: vec![IDLE],
            dies_set: vec![(u64::MAX, false)],
            die: 0,
            near: VecDeque::new(),
            far: BinaryHeap::new(),
            jobs: Vec::new(),
            free: Vec::new(),
            done: VecDeque::new(),
            instant: false,
        }
    }
}

impl Timeline {
    /// Nanoseconds since the run began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// True if nothing takes time.
    pub fn is_instant(&self) -> bool {
        self.instant
    }

    /// Sets whether things take time from now on.
    pub fn set_instant(&mut self, instant: bool) {
        self.instant = instant;
    }

    /// Sets an event for `tag` at a time, or now if that is past.
    pub fn at(&mut self, time: u64, tag: Tag) {
        self.set += 1;
        let time = time.max(self.now);
        match tag {
            Tag::Sensed(die) if die < PLACES => return self.at_die(die, time, true),
            Tag::Idle(die) if die < PLACES => return self.at_die(die, time, false),
            _ => {}
        }
        let key = Key::from(time) << 64 | Key::from(self.set);
        match self.near.back() {
            Some(&(last, _)) if key < last => {
                let place = self.near.partition_point(|&(other, _)| other < key);
                self.near.insert(place, (key, tag));
            }
            _ if self.far.is_empty() => self.near.push_back((key, tag)),
            _ => return self.far.push(Reverse((key, tag))),
        }
        if self.near.len() > NEAR
            && let Some(last) = self.near.pop_back()
        {
            self.far.push(Reverse(last));
        }
    }

    fn at_die(&mut self, die: u32, time: u64, senses: bool) {
        let die = die as usize;
        if die >= self.dies.len() {
            self.dies.resize(die + 1, IDLE);
            self.dies_set.resize(die + 1, (u64::MAX, false));
        }
        debug_assert_eq!(self.dies[die], IDLE, "a die does one thing at a time");
        self.dies[die] = time;
        self.dies_set[die] = (self.set, senses);
        // Among events of the same time it is the last.
        if time < self.dies[self.die] {
            self.die = die;
        }
    }

    /// The key of the first event of a die.
    fn die_key(&self) -> Key {
        match self.dies[self.die] {
            IDLE => NEVER,
            time => Key::from(time) << 64 | Key::from(self.dies_set[self.die].0),
        }
    }

    fn pop_die(&mut self) -> Tag {
        let die = self.die as u32;
        let (_, senses) = self.dies_set[self.die];
        self.dies[self.die] = IDLE;
        // Branchless, except for equal times: which die is next cannot be predicted.
        let (mut first, mut at, mut alike) = (IDLE, 0, false);
        for (index, &time) in self.dies.iter().enumerate() {
            let sooner = time < first;
            alike = !sooner & (alike | (time == first));
            first = if sooner { time } else { first };
            at = if sooner { index } else { at };
        }
        self.die = at;
        if alike && first < IDLE {
            self.die = self.first_set(first);
        }
        match senses {
            true => Tag::Sensed(die),
            false => Tag::Idle(die),
        }
    }

    /// Of the dies whose events are at this time, the one set first.
    #[cold]
    fn first_set(&self, moment: u64) -> usize {
        let dies = self.dies.iter().zip(&self.dies_set).enumerate();
        let alike = dies.filter(|(_, (time, _))| **time == moment);
        let first = alike.min_by_key(|(_, (_, (set, _)))| *set);
        first.map_or(0, |(die, _)| die)
    }

    /// Takes the program unit that has just ended, if it is the next event.
    pub fn pop_unit(&mut self) -> Option<u64> {
        match self.done.front() {
            Some(&Tag::Unit(unit)) => {
                self.done.pop_front();
                Some(unit)
            }
            _ => None,
        }
    }

    /// Makes `tag` the next event after those already done.
    pub fn done(&mut self, tag: Tag) {
        self.done.push_back(tag);
    }

    /// A job of one part, which the callee adds; its end is an event for `tag`.
    pub fn begin_single(&mut self, tag: Tag) -> Job {
        let job = self.begin(tag);
        self.jobs[job.0 as usize].left = 0;
        job
    }

    /// A job whose end is an event for `tag`. It has one part, which [`end`](Self::end) ends when all others have been
    /// added.
    pub fn begin(&mut self, tag: Tag) -> Job {
        let parts = Parts { left: 1, tag };
        match self.free.pop() {
            Some(index) => {
                self.jobs[index as usize] = parts;
                Job(index)
            }
            None => {
                self.jobs.push(parts);
                Job(self.jobs.len() as u32 - 1)
            }
        }
    }

    /// Adds a part.
    pub fn add(&mut self, job: Job) {
        self.jobs[job.0 as usize].left += 1;
    }

    /// Ends a part.
    pub fn end(&mut self, job: Job) {
        let parts = &mut self.jobs[job.0 as usize];
        parts.left -= 1;
        if parts.left == 0 {
            self.done.push_back(parts.tag);
            self.free.push(job.0);
        }
    }

    /// True if an event is due now.
    pub fn is_due(&self) -> bool {
        !self.done.is_empty()
    }

    /// When the next event is, if there is one.
    pub fn next(&self) -> Option<u64> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        let other = self.near.front().map_or(NEVER, |&(key, _)| key);
        let first = other.min(self.die_key());
        (first < NEVER).then_some((first >> 64) as u64)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Tag> {
        if let Some(tag) = self.done.pop_front() {
            return Some(tag);
        }
        let first = self.die_key();
        if first < self.near.front().map_or(NEVER, |&(key, _)| key) {
            self.now = (first >> 64) as u64;
            return Some(self.pop_die());
        }
        let (key, tag) = self.near.pop_front()?;
        self.now = (key >> 64) as u64;
        if self.near.is_empty() && !self.far.is_empty() {
            let more = std::iter::from_fn(|| self.far.pop()).take(NEAR / 2);
            self.near.extend(more.map(|Reverse(event)| event));
        }
        Some(tag)
    }

    /// Advances to a time before which there is no event.
    pub fn pass(&mut self, to: u64) {
        debug_assert!(self.next().is_none_or(|next| next >= to));
        self.now = self.now.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn events_fire_by_time_and_then_in_the_order_they_were_set() {
        let mut rng = Rng::new(7);
        let mut time = Timeline::default();
        let mut wanted: Vec<(u64, u32, Tag)> = Vec::new();
        for step in 0..20_000u32 {
            // Now few, now many more than are kept sorted.
            let many = step / 2000 % 2 == 1;
            if rng.below(10) < if many { 7 } else { 5 } {
                let at = time.now() + rng.below(50);
                let die = rng.below(u64::from(PLACES) * 2) as u32;
                let of_die =
                    |(.., tag): &(u64, u32, Tag)| [Tag::Sensed(die), Tag::Idle(die)].contains(tag);
                let tag = match rng.below(3) {
                    0 if !wanted.iter().any(of_die) => Tag::Sensed(die),
                    1 if !wanted.iter().any(of_die) => Tag::Idle(die),
                    _ => Tag::Client(step),
                };
                time.at(at, tag);
                wanted.push((at, step, tag));
            } else if let Some(next) = time.next() {
                let first = wanted.iter().min().copied();
                wanted.retain(|event| Some(*event) != first);
                assert_eq!(time.pop(), first.map(|(.., tag)| tag));
                assert_eq!(Some(next), first.map(|(at, ..)| at));
            }
        }
        assert!(wanted.len() > 2 * NEAR);
    }
}
