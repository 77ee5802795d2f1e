//! What the walks over a volume's metadata may cost, all together: file systems can lie over each other, a thousand of
//! them, and each may say that its groups are of one block.

use crate::aside::StoodAside;
use crate::limits::{DYNAMIC_READ_BYTES, FREED_GROUPS, METADATA_GROUPS, METADATA_READ_BYTES};

/// What is left to be spent. Whoever walks several file systems of one volume walks them with the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    groups: u64,
    most_groups: u64,
    /// Bytes of group descriptors.
    pub(crate) descriptors: u64,
    /// Bytes of inodes, and of what they lead to.
    pub(crate) inodes: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of_groups(METADATA_GROUPS)
    }
}

impl Allowance {
    /// For file systems whose free space is followed: of each group something is kept.
    #[must_use]
    pub fn to_follow() -> Self {
        Self::of_groups(FREED_GROUPS)
    }

    fn of_groups(groups: u64) -> Self {
        Self {
            groups,
            most_groups: groups,
            descriptors: METADATA_READ_BYTES,
            inodes: DYNAMIC_READ_BYTES,
        }
    }

    /// Pays for a file system's groups, all of them or none.
    pub(crate) fn take_groups(&mut self, groups: u64) -> Result<(), StoodAside> {
        let left = self.groups.checked_sub(groups).ok_or(StoodAside::Limit {
            what: "the number of block groups on the volume",
            limit: self.most_groups,
        })?;
        self.groups = left;
        Ok(())
    }
}
