//! The leaves of a volume, and the stripes that they form.

use super::Superblock;
use crate::addr::Leaf;

impl Superblock {
    /// The number of leaves that map LBAs.
    #[must_use]
    pub fn map_leaves(&self) -> u32 {
        self.leaves.map
    }

    /// The number of leaves that hold shared pages.
    #[must_use]
    pub fn shared_leaves(&self) -> u32 {
        self.leaves.shared
    }

    /// The number of leaves that hold deltas, which follow the shared pages'. A volume from before deltas has none.
    #[must_use]
    pub fn delta_leaves(&self) -> u32 {
        self.leaves.deltas
    }

    /// The number of parities, which follow all other leaves. A volume from before parities has none.
    #[must_use]
    pub fn parity_leaves(&self) -> u32 {
        self.leaves.parities
    }

    /// The same volume, empty, as older programs made it: without copies of metadata.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.leaves.parities = 0;
        self.features.open_summaries = false;
        self.features.names = false;
        self.features.free_segments = false;
        self
    }

    /// True if a chunk's header repeats the LBAs of the previous chunk.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.features.names
    }

    /// The number of all leaves, including parities.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.first_parity() + self.leaves.parities
    }

    /// The number of the first parity; those before it are leaves of tables.
    #[must_use]
    pub fn first_parity(&self) -> u32 {
        self.leaves.map + self.leaves.shared + self.leaves.deltas
    }

    /// The number of stripes; without parities each leaf is a stripe.
    #[must_use]
    pub fn stripes(&self) -> u32 {
        match self.leaves.parities {
            0 => self.first_parity(),
            stripes => stripes,
        }
    }

    /// The leaves that share a parity. They lie far apart, so that adjacent lost blocks belong to different stripes.
    pub fn stripe(&self, stripe: u32) -> impl Iterator<Item = Leaf> + Clone + use<> {
        let leaves = stripe..self.first_parity();
        leaves.step_by(self.stripes() as usize).map(Leaf)
    }

    /// The parity of a stripe.
    #[must_use]
    pub fn parity(&self, stripe: u32) -> Option<Leaf> {
        (stripe < self.leaves.parities).then_some(Leaf(self.first_parity() + stripe))
    }

    /// The stripe of a leaf, or of a parity.
    #[must_use]
    pub fn stripe_of(&self, leaf: Leaf) -> u32 {
        match leaf.0.checked_sub(self.first_parity()) {
            Some(stripe) => stripe,
            None => leaf.0 % self.stripes(),
        }
    }
}
