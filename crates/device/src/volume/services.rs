//! A volume's services beside those for its clients, as its user requests them.

use super::Volume;
use crate::options::OpenError;
use crate::scrub::report::ScrubReport;
use crate::scrub::report_of;
use crate::shared::SharedVolume;
use crate::sweep::Haste;
use crate::sweep::sweeper::{Sought, SweepError, SweepProgress};
use std::sync::Arc;

impl Volume {
    /// Looks through everything that is stored; for duplicates, from where an unfinished sweep has stopped.
    ///
    /// # Errors
    /// When this volume never makes such a sweep.
    pub fn sweep(&self, sought: Sought, haste: Haste) -> Result<(), SweepError> {
        let packs = self.policy().packs();
        SweepError::check(sought, self.read_only, self.superblock.layout(), packs)?;
        self.shared.sweeper.ask(sought, haste);
        Ok(())
    }

    /// Ends the current sweep where it is.
    ///
    /// # Errors
    /// When this volume never has one.
    pub fn halt_sweep(&self, sought: Sought) -> Result<(), SweepError> {
        SweepError::check(sought, self.read_only, self.superblock.layout(), true)?;
        self.shared.sweeper.halt(sought);
        Ok(())
    }

    /// The progress of sweeps.
    #[must_use]
    pub fn sweep_progress(&self, sought: Sought) -> SweepProgress {
        let swept = self.shared.inner.lock().core.swept();
        self.shared.sweeper.progress(sought, swept)
    }

    /// Reads and checks everything that is stored, at most `rate` blocks a second (0: as many as it can), from where a scrub that
    /// was stopped has left off. A scrub under way goes on at that rate.
    pub fn scrub(&self, rate: u32) {
        self.shared.scrubber.ask(rate);
    }

    /// Ends the current scrub where it is.
    pub fn halt_scrub(&self) {
        self.shared.scrubber.halt();
    }

    /// How far a scrub is, and what it, or the last one, has found.
    #[must_use]
    pub fn scrub_report(&self) -> ScrubReport {
        report_of(&self.shared, &self.superblock)
    }

    pub(super) fn spawn(
        &mut self,
        name: &str,
        life: impl FnOnce(&Arc<SharedVolume>) + Send + 'static,
    ) -> Result<(), OpenError> {
        let theirs = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || life(&theirs))
            .map_err(|source| OpenError::System {
                what: "thread",
                source,
            })?;
        self.threads.get_mut().push(thread);
        Ok(())
    }
}
