//! What writes the superblock while the volume runs: marks of map checkpoints, and changes of properties.
//!
//! One mirror is written at a time, so that the other one is whole whatever becomes of that write.

use crate::addr::{Pba, RequestId};
use crate::format::properties::Properties;
use crate::format::superblock::Superblock;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// The first mirror learns of a root.
    Mark,
    /// The last mirror learns of other properties.
    Last,
    /// Then the first one.
    First,
}

/// What has ended with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The mark is durable.
    Mark,
    /// The properties that somebody asked for are durable; whoever has been refused meanwhile is not told.
    Properties(Option<RequestId>),
    /// One mirror has them; the other one is next.
    Half,
}

/// What is to be written, and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    mark: bool,
    /// Which of them is to be written as it is.
    anew: [bool; 2],
    changes: VecDeque<(RequestId, Properties)>,
    /// Who waits for the change under way.
    waits: Option<RequestId>,
    job: Option<Job>,
    /// The job that comes behind it before all others.
    next: Option<Job>,
}

impl Mirrors {
    /// Asks for a mark.
    pub fn mark(&mut self) {
        self.mark = true;
    }

    /// Asks for other properties.
    pub fn change(&mut self, id: RequestId, properties: Properties) {
        self.changes.push_back((id, properties));
    }

    /// Asks for one of them to be written as it is. Never both at once: the other one may be the only one that is whole.
    pub fn write_anew(&mut self, index: usize) {
        self.anew[index] = true;
    }

    /// Whether nothing is to be written, and nothing under way.
    pub fn are_idle(&self) -> bool {
        let is_asked = self.mark || self.anew != [false; 2] || !self.changes.is_empty();
        self.job.is_none() && self.next.is_none() && !is_asked
    }

    /// Begins the next write if none is under way: says where to write the superblock, which is as it is to be written.
    pub fn begin(&mut self, superblock: &mut Superblock) -> Option<Pba> {
        if self.job.is_some() {
            return None;
        }
        let job = if let Some(job) = self.next.take() {
            job
        } else if core::mem::take(&mut self.mark) {
            Job::Mark
        } else if core::mem::take(&mut self.anew[0]) {
            Job::First
        } else if core::mem::take(&mut self.anew[1]) {
            Job::Last
        } else {
            let (id, properties) = self.changes.pop_front()?;
            superblock.set_properties(properties);
            self.waits = Some(id);
            Job::Last
        };
        self.job = Some(job);
        let [first, last] = superblock.mirrors();
        Some(if job == Job::Last { last } else { first })
    }

    /// The write that was begun last is durable.
    pub fn written(&mut self) -> Ended {
        match self.job.take() {
            Some(Job::Last) => {
                self.next = Some(Job::First);
                Ended::Half
            }
            Some(Job::First) => Ended::Properties(self.waits.take()),
            Some(Job::Mark) => Ended::Mark,
            None => unreachable!("no mirror was being written"),
        }
    }

    /// Everyone who waits, to be told that what they asked for is not known to be durable. A change under way goes on.
    pub fn refuse(&mut self) -> Vec<RequestId> {
        let changes = self.changes.drain(..).map(|(id, _)| id);
        self.waits.take().into_iter().chain(changes).collect()
    }
}
