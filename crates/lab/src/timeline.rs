//! Virtual time: events in order, and jobs that are done when all their parts are.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is told when something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// A host's request reaches the drive.
    Arrival(u32),
    /// A host's request is answered, at the host.
    Answer(u32),
    /// An effect of the engine was carried out.
    Effect(u32),
    /// A request of the drive's own flash translation layer.
    Client(u32),
    /// A program unit of that layer is on flash.
    Unit(u64),
    /// Flash: a die has read a unit into its register.
    Sensed(u32),
    /// Flash: a die has finished what it did.
    Idle(u32),
}

/// A job, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job(u32);

struct Parts {
    left: u32,
    tag: Tag,
}

/// The event queue. Events of one moment come in the order in which they were set.
#[derive(Default)]
pub struct Timeline {
    now: u64,
    set: u64,
    events: BinaryHeap<Reverse<(u64, u64, Tag)>>,
    jobs: Vec<Parts>,
    free: Vec<u32>,
    done: VecDeque<Tag>,
    /// Nothing takes time: for preconditioning, and for runs that only count.
    instant: bool,
}

impl Timeline {
    /// Nanoseconds since the run began.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether nothing takes time.
    pub fn is_instant(&self) -> bool {
        self.instant
    }

    /// From now on things take time, or do not.
    pub fn set_instant(&mut self, instant: bool) {
        self.instant = instant;
    }

    /// Lets `tag` be told at a time, not before now.
    pub fn at(&mut self, time: u64, tag: Tag) {
        self.set += 1;
        self.events
            .push(Reverse((time.max(self.now), self.set, tag)));
    }

    /// Lets `tag` be told next.
    pub fn done(&mut self, tag: Tag) {
        self.done.push_back(tag);
    }

    /// A job whose end is told as `tag`. It has one part, which [`end`](Self::end) ends when all others
    /// have been added.
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

    /// One more part.
    pub fn add(&mut self, job: Job) {
        self.jobs[job.0 as usize].left += 1;
    }

    /// One part has ended.
    pub fn end(&mut self, job: Job) {
        let parts = &mut self.jobs[job.0 as usize];
        parts.left -= 1;
        if parts.left == 0 {
            self.done.push_back(parts.tag);
            self.free.push(job.0);
        }
    }

    /// When the next thing happens, if anything does.
    pub fn next(&self) -> Option<u64> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        self.events.peek().map(|Reverse((time, ..))| *time)
    }

    /// What happens next.
    pub fn pop(&mut self) -> Option<Tag> {
        if let Some(tag) = self.done.pop_front() {
            return Some(tag);
        }
        let Reverse((time, _, tag)) = self.events.pop()?;
        self.now = time;
        Some(tag)
    }

    /// Lets time pass up to a moment before which nothing happens.
    pub fn pass(&mut self, to: u64) {
        debug_assert!(self.next().is_none_or(|next| next >= to));
        self.now = self.now.max(to);
    }
}
