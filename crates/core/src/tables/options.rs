//! Options for opening a volume of tables.

use crate::engine::Options as Shared;
use crate::limits;
use crate::policy::zero::Zero;
use crate::seam::Commits;

/// When a write is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    /// When it is in memory; durable after a FLUSH, with FUA, or within a second.
    #[default]
    Weak,
    /// When it is durable.
    Strong,
}

/// Options for opening a volume of tables.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// When a write is answered.
    pub persistence: Persistence,
    /// How long what no answer waits for is held back, to be merged with other changes of the same block.
    pub later_nanos: u64,
    /// How long a commit is held back when more writes are likely to arrive; 0: never.
    pub anticipation_nanos: u64,
    /// Requests after which a commit is due; 0: any number (Dmdedup's flush interval).
    pub commit_requests: u32,
    /// The most links that change in one commit; a single discard, which is one step, may change more.
    pub group_links: usize,
    /// The fewest blocks of a run of free blocks that is discarded on the medium; 0: nothing is discarded.
    pub discard_blocks_min: u32,
    /// Whether blocks of zeros are stored as no link at all.
    pub zero: Zero,
    /// Buffers that clients' writes share.
    pub write_buffers: u32,
}

impl Options {
    /// The options of a volume that is opened with these.
    #[must_use]
    pub fn new(shared: &Shared, persistence: Persistence) -> Self {
        Self {
            persistence,
            later_nanos: limits::LATER_NANOS,
            anticipation_nanos: limits::ANTICIPATION_NANOS,
            commit_requests: 0,
            group_links: limits::LINKS_IN_A_GROUP,
            discard_blocks_min: match shared.discard {
                true => shared.discard_blocks_min,
                false => 0,
            },
            zero: Zero::new(shared.zero),
            write_buffers: shared.write_buffers,
        }
    }

    /// Sets the policy for commits.
    pub fn set_commits(&mut self, policy: Commits) {
        let held = |nanos, is| if is { nanos } else { 0 };
        self.commit_requests = policy.requests;
        self.later_nanos = held(limits::LATER_NANOS, policy.merging);
        self.anticipation_nanos = held(limits::ANTICIPATION_NANOS, policy.anticipation);
    }
}
