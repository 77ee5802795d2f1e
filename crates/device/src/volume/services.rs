//! What a volume does beside its clients, as its user asks for it.

use super::Volume;
use crate::block::BlockDevice;
use crate::scrub::{ScrubReport, report};
use crate::sweep::{Haste, Sought, SweepError, SweepProgress};

impl Volume {
    /// Looks through all that is stored; for duplicates where a sweep that did not end has left.
    ///
    /// # Errors
    /// When this volume never does.
    pub fn sweep(&self, sought: Sought, haste: Haste) -> Result<(), SweepError> {
        let packs = self.policy().packs();
        SweepError::check(sought, self.read_only(), self.superblock.layout(), packs)?;
        self.shared.sweeper.ask(sought, haste);
        Ok(())
    }

    /// Ends a sweep under way where it is.
    ///
    /// # Errors
    /// When this volume never has one.
    pub fn halt_sweep(&self, sought: Sought) -> Result<(), SweepError> {
        SweepError::check(sought, self.read_only(), self.superblock.layout(), true)?;
        self.shared.sweeper.halt(sought);
        Ok(())
    }

    /// How far that is.
    #[must_use]
    pub fn sweep_progress(&self, sought: Sought) -> SweepProgress {
        let swept = self.shared.inner.lock().engine.swept();
        self.shared.sweeper.progress(sought, swept)
    }

    /// Reads and checks all that is stored, at most so many blocks a second (0: as many as it can), from where one that was stopped
    /// has left off; one that is under way goes on so.
    pub fn scrub(&self, rate: u32) {
        self.shared.scrubber.ask(rate);
    }

    /// Ends a scrub under way where it is.
    pub fn halt_scrub(&self) {
        self.shared.scrubber.halt();
    }

    /// How far a scrub is, and what it, or the last one, has found.
    #[must_use]
    pub fn scrub_report(&self) -> ScrubReport {
        report(&self.shared, &self.superblock)
    }
}
