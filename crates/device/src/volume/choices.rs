//! What users choose while a volume runs.

use super::Volume;
use crate::layouts;
use crate::options::OpenError;
use crate::orders;
use crate::policy::{NoIndex, Policy};
use vellum_watch::JournalError;

impl Volume {
    /// The policies in force.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.shared.choices.policy()
    }

    /// Puts other policies in force, at once.
    ///
    /// # Errors
    /// When there is no memory for the index that they need; then nothing changes.
    pub fn set_policy(&self, policy: Policy) -> Result<(), NoIndex> {
        orders::set_policy(&self.shared, policy)
    }

    /// Checks that the volume can do what a policy says.
    ///
    /// # Errors
    /// When it cannot; the error says what.
    pub fn takes(&self, policy: &Policy) -> Result<(), OpenError> {
        layouts::takes(&self.superblock, policy)
    }

    /// Watches a journal that cannot be found, or whose finding is not trusted, until the volume is stopped.
    ///
    /// # Errors
    /// When it is not made of whole blocks of the volume, or overlaps another one.
    pub fn set_journal(&self, start: u64, bytes: u64) -> Result<(), JournalError> {
        if self.read_only {
            return Err(JournalError::ReadOnly);
        }
        orders::set_journal(&self.shared, start, bytes)
    }

    /// Forgets the journals that were set by hand.
    pub fn clear_journals(&self) {
        orders::clear_journals(&self.shared);
    }
}
