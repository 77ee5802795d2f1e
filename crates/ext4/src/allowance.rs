//! The total cost that walks over a volume's metadata may have. File systems can overlap, a thousand of them, and each can claim
//! that its groups have one block.

use crate::aside::StoodAside;
use crate::limits::{
    DYNAMIC_READ_BYTES, FREED_GROUPS, FREED_READ_BYTES, FREED_TRACKED, METADATA_GROUPS,
    METADATA_READ_BYTES,
};

/// The remaining budget. Walks over several file systems of one volume must share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    groups: u64,
    most_groups: u64,
    /// Bytes of group descriptors.
    pub(crate) descriptors: u64,
    /// Bytes of inodes, and of what they lead to.
    pub(crate) inodes: u64,
    /// Bytes of journals.
    pub(crate) logs: u64,
    /// Records of each kind that are kept for one file system whose free space is followed.
    pub(crate) tracked: usize,
    /// How many file systems have an equal part of what is kept about logs, and how many of them have still to be read.
    pub(crate) parts: usize,
    pub(crate) unread: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of_groups(METADATA_GROUPS)
    }
}

impl Allowance {
    /// The budget for following the free space of so many file systems. It is smaller, because something is kept for each group.
    #[must_use]
    pub fn to_follow(file_systems: usize) -> Self {
        Self {
            tracked: FREED_TRACKED / file_systems.max(1),
            parts: file_systems.max(1),
            unread: file_systems,
            ..Self::of_groups(FREED_GROUPS)
        }
    }

    fn of_groups(groups: u64) -> Self {
        Self {
            groups,
            most_groups: groups,
            descriptors: METADATA_READ_BYTES,
            inodes: DYNAMIC_READ_BYTES,
            logs: FREED_READ_BYTES,
            tracked: 0,
            parts: 1,
            unread: 1,
        }
    }

    /// Takes one file system's part of the bytes of journals. What it does not need is returned with `logs`.
    pub(crate) fn part_of_logs(&mut self) -> u64 {
        let part = self.logs / self.unread.max(1) as u64;
        self.unread = self.unread.saturating_sub(1);
        self.logs -= part;
        part
    }

    /// Pays for all of a file system's groups, or for none.
    pub(crate) fn take_groups(&mut self, groups: u64) -> Result<(), StoodAside> {
        let left = self.groups.checked_sub(groups).ok_or(StoodAside::Limit {
            what: "the number of block groups on the volume",
            limit: self.most_groups,
        })?;
        self.groups = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_journal_has_its_part_of_what_is_read() {
        let mut allowance = Allowance::to_follow(4);
        let part = allowance.part_of_logs();
        assert_eq!(part, FREED_READ_BYTES / 4);
        // The second one needs nothing of its part.
        allowance.logs += allowance.part_of_logs();
        let rest = [allowance.part_of_logs(), allowance.part_of_logs()];
        assert_eq!(rest, [FREED_READ_BYTES * 3 / 8; 2]);
        assert_eq!((allowance.logs, allowance.part_of_logs()), (0, 0));
    }
}
