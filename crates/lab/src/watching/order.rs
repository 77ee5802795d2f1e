//! Which commit blocks wait for the blocks they commit: the gate is the device's ([`CommitGate`]).

use super::{Watching, Written, last_of_mount};
use crate::journal::Disk;
use vellum_ext4::journal::Commits;
use vellum_watch::{CommitGate, Reason, Stop, Wait};

impl Watching {
    /// True if there is a journal whose commit blocks wait.
    #[must_use]
    pub fn orders_commits(&self) -> bool {
        let mut found = self.findings.commits().iter();
        found.any(Commits::is_asynchronous)
    }

    /// Has a gate follow a file system that has just been mounted.
    pub fn guard<W>(&self, gate: &mut CommitGate<W>, disk: &Disk) {
        let mut found = self.findings.commits().to_vec();
        // Before this mount the logs were empty.
        found.iter_mut().for_each(|commits| commits.set_empty(true));
        gate.follow(&found);
        last_of_mount(disk, |written| {
            written.stop(gate, 0, None);
        });
    }
}

impl Written<'_> {
    /// Why it must not go on. `None`: it may, and is noted for the journals. `room`: how many blocks may wait; `waited`: its
    /// wait so far.
    pub fn stop<W>(
        &self,
        gate: &mut CommitGate<W>,
        room: usize,
        waited: Option<&Wait>,
    ) -> Option<Stop> {
        if !(0..self.contents.len()).any(|index| self.is_journals(index)) {
            return None;
        }
        // Nothing is scanned again: no other journal is made. Nor does a client write again what was refused.
        let may_come = |reason: &Reason| *reason != Reason::Scan && !reason.was_refused();
        let stop =
            self.read(|_, change| gate.stop(change, &self.payloads(), room, waited, may_come));
        stop.map(|(_, stop)| stop)
    }
}

#[cfg(test)]
mod tests;
