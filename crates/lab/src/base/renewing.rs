//! When a drive refreshes its blocks: at once, one at a time on each die, alongside its requests.

use super::drive::{Drive, Io};
use super::refresh::{Refreshed, Refreshing};
use crate::flash::{Die, Flash, PastDue, Refresh};
use crate::timeline::Tag;

impl Drive {
    /// Enables refreshing, before anything is written.
    #[must_use]
    pub fn refreshing(mut self, how: Refresh) -> Self {
        if how.is_on() {
            self.refreshing = Some(Box::new(Refreshing::new(self.map.dies())));
        }
        if how.age_ns.is_some() {
            self.map = self.map.telling_filled();
        }
        self
    }

    /// True if it refreshes blocks.
    #[must_use]
    pub fn is_refreshing(&self) -> bool {
        self.refreshing.is_some()
    }

    /// Returns the counts of refreshes, if blocks are ever due.
    #[must_use]
    pub fn refreshed(&self) -> Option<Refreshed> {
        let refreshing = self.refreshing.as_ref()?;
        Some(Refreshed {
            for_reads: refreshing.for_reads,
            for_age: refreshing.for_age,
            moved: self.map.counts().refreshed,
            past_due: PastDue::default(),
        })
    }

    /// Refreshes blocks that are due, on dies that are not refreshing.
    pub fn renew(&mut self, io: &mut Io<'_>) {
        let Some(mut refreshing) = self.refreshing.take() else {
            return;
        };
        let now = io.time.now();
        loop {
            while let Some(due) = io.flash.take_due(now) {
                refreshing.put(due);
            }
            let why = |die, block| io.flash.why_due(now, die, block);
            let Some((die, block, due)) = refreshing.next(why) else {
                break;
            };
            if !self.map.refresh(die, block) {
                continue;
            }
            refreshing.count(due);
            if io.time.is_instant() {
                self.carry_out(io, None, None);
                continue;
            }
            refreshing.set_busy(die, true);
            let job = io.time.begin(Tag::Refreshed(die.0));
            self.carry_out(io, None, Some(job));
            io.time.end(job);
        }
        self.refreshing = Some(refreshing);
    }

    /// Records that a die's moves are on flash. The next refresh begins at its own time, and so not after the load has ended.
    pub fn renewed(&mut self, die: u32) {
        if let Some(refreshing) = &mut self.refreshing {
            refreshing.set_busy(Die(die), false);
        }
    }

    /// Returns when it begins the next refresh, unless a request arrives before.
    #[must_use]
    pub fn renews_at(&self, now: u64, flash: &Flash) -> Option<u64> {
        match self.refreshing.as_ref()?.may_go_on() {
            true => Some(now),
            false => flash.next_due(),
        }
    }

    /// Refreshes all blocks that are due, however busy the dies are.
    pub fn renew_all(&mut self, io: &mut Io<'_>) {
        loop {
            let before = self.map.counts().erases;
            if let Some(refreshing) = &mut self.refreshing {
                refreshing.hurry();
            }
            self.renew(io);
            if self.map.counts().erases == before {
                return;
            }
        }
    }
}
