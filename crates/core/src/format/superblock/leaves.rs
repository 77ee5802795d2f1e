//! Which leaves a volume has, and which of them tell each other.

use super::Superblock;
use crate::addr::Leaf;

impl Superblock {
    /// Leaves that map LBAs.
    #[must_use]
    pub fn map_leaves(&self) -> u32 {
        self.leaves.map
    }

    /// Leaves that hold shared pages.
    #[must_use]
    pub fn shared_leaves(&self) -> u32 {
        self.leaves.shared
    }

    /// Leaves that hold deltas, behind those. A volume that was made before there were deltas has none.
    #[must_use]
    pub fn delta_leaves(&self) -> u32 {
        self.leaves.deltas
    }

    /// The parities of all these, behind them. A volume that was made before there were any has none.
    #[must_use]
    pub fn parity_leaves(&self) -> u32 {
        self.leaves.parities
    }

    /// The same volume, empty, as programs made it before there were copies of what leads to data.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.leaves.parities = 0;
        self.features.open_summaries = false;
        self.features.names = false;
        self
    }

    /// Whether a chunk's header names the LBAs of the chunk before.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.features.names
    }

    /// All leaves, parities too.
    #[must_use]
    pub fn leaves(&self) -> u32 {
        self.first_parity() + self.leaves.parities
    }

    /// The number of the first parity: those before are leaves of tables.
    #[must_use]
    pub fn first_parity(&self) -> u32 {
        self.leaves.map + self.leaves.shared + self.leaves.deltas
    }

    /// How many stripes there are: without parities each leaf is one.
    #[must_use]
    pub fn stripes(&self) -> u32 {
        match self.leaves.parities {
            0 => self.first_parity(),
            stripes => stripes,
        }
    }

    /// The leaves that share a parity. They lie far apart: of blocks that are lost in a row each is another stripe's.
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
