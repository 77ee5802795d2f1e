//! Where the engine puts blocks, and when they are durable.

use vellum_core::engine::Options;
use vellum_core::format::areas::Layout;
use vellum_core::seam::Commits;
use vellum_core::tables::{self, Persistence};

/// Placement and durability; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// A log, or tables in place.
    pub layout: Layout,
    /// When a write is answered.
    pub persistence: Persistence,
    /// Tables only: true if writes that no answer waits for are held back and merged (OrderMergeDedup §2.2).
    pub merging: bool,
    /// Tables only: true if a commit is held back when more is likely to arrive (§2.2).
    pub anticipation: bool,
}

impl Default for Placing {
    fn default() -> Self {
        Self {
            layout: Layout::Log,
            persistence: Persistence::Weak,
            merging: true,
            anticipation: true,
        }
    }
}

impl Placing {
    pub(super) fn options(&self, shared: &Options) -> tables::Options {
        let mut options = tables::Options::new(shared, self.persistence);
        options.set_commits(Commits {
            merging: self.merging,
            anticipation: self.anticipation,
            ..Commits::default()
        });
        options
    }
}
