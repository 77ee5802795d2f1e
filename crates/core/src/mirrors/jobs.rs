//! Writes the superblock while the volume runs: marks of map checkpoints, and changes of properties.
//!
//! One mirror is written at a time, so that the other one is whole whatever happens to that write.

use crate::addr::{Pba, RequestId};
use crate::format::properties::Properties;
use crate::format::superblock::Superblock;
use crate::seam::PropertiesChange;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// The first mirror gets a new root.
    Mark,
    /// The last mirror gets other properties.
    Last,
    /// Then the first mirror gets them.
    First,
}

/// What a completed write has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The mark is durable.
    Mark,
    /// Requested properties are durable; `None` if the request was refused meanwhile.
    Properties(Option<RequestId>),
    /// One mirror has them; the other one is next.
    Half,
}

/// A requested change of the properties.
#[derive(Debug)]
enum Change {
    /// To these.
    To(Properties),
    /// To those of that moment, and there are clones.
    HasClones,
}

/// Jobs for the mirrors: waiting and in flight.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    mark: bool,
    /// Which mirrors have to be rewritten without a change.
    anew: [bool; 2],
    changes: VecDeque<(RequestId, Change)>,
    /// The request that waits for the current change.
    waits: Option<RequestId>,
    job: Option<Job>,
    /// The job that follows the current one, before all others.
    next: Option<Job>,
}

impl Mirrors {
    /// Requests a mark.
    pub fn mark(&mut self) {
        self.mark = true;
    }

    /// Requests a change of the properties.
    pub fn change(&mut self, id: RequestId, change: PropertiesChange<'_>) {
        let change = match change {
            PropertiesChange::All(properties) => Change::To(properties.clone()),
            PropertiesChange::HasClones => Change::HasClones,
        };
        self.changes.push_back((id, change));
    }

    /// Requests that one mirror is written as it is. Never both at once: the other one may be the only whole one.
    pub fn write_anew(&mut self, index: usize) {
        self.anew[index] = true;
    }

    /// True if nothing is to be written, and nothing is in flight.
    pub fn are_idle(&self) -> bool {
        let is_asked = self.mark || self.anew != [false; 2] || !self.changes.is_empty();
        self.job.is_none() && self.next.is_none() && !is_asked
    }

    /// Begins the next write if none is in flight. Changes the superblock as the write needs it, and returns where to write it.
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
            let (id, change) = self.changes.pop_front()?;
            superblock.set_properties(match change {
                Change::To(properties) => properties,
                Change::HasClones => superblock.properties().clone().with_clones(true),
            });
            self.waits = Some(id);
            Job::Last
        };
        self.job = Some(job);
        let [first, last] = superblock.mirrors();
        Some(if job == Job::Last { last } else { first })
    }

    /// Notes that the write begun last is durable.
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

    /// Returns all waiting requests, to be refused: their change is not known to be durable. A change in flight goes on.
    pub fn refuse(&mut self) -> Vec<RequestId> {
        let changes = self.changes.drain(..).map(|(id, _)| id);
        self.waits.take().into_iter().chain(changes).collect()
    }
}
