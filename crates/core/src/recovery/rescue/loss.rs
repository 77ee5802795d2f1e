//! The result of a rescue: what was read of a damaged log, and what is lost.

use super::lbas::LbaSet;
use crate::recovery::{Recovered, RecoveryError};
use alloc::vec::Vec;

/// The most findings that are kept; further ones are counted.
const FINDINGS: usize = 1000;

/// What to do with an LBA about which nothing is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Treat it as lost.
    Certain,
    /// The same, but if the block where the log may go on cannot be read, the log is taken to end before it. Otherwise one bad block of
    /// free space would cost the whole volume.
    Shown,
    /// Use the newest version that was found.
    Newest,
}

/// A damaged log, as far as it can be read.
pub struct Rescued {
    /// The volume; what it has lost is unmapped.
    pub recovered: Recovered,
    /// What it has lost.
    pub loss: Loss,
}

/// What is missing from a damaged volume.
pub struct Loss {
    /// LBAs about which nothing is known.
    pub lost: LbaSet,
    /// LBAs with the newest version that was found; this need not be the last that was written.
    pub guessed: LbaSet,
    /// The damage found; the list has a limit.
    pub damage: Vec<RecoveryError>,
    /// How many findings did not fit in the list.
    pub more_damage: u64,
    /// The log may go on in a block that cannot be read, so what was written last may be missing ([`Trust::Shown`]).
    pub may_go_on: bool,
}

impl Loss {
    /// No loss, for a volume with so many blocks.
    #[must_use]
    pub fn none(blocks: u64) -> Self {
        Self {
            lost: LbaSet::new(blocks),
            guessed: LbaSet::new(blocks),
            damage: Vec::new(),
            more_damage: 0,
            may_go_on: false,
        }
    }

    /// Notes that something is damaged.
    pub(crate) fn note(&mut self, error: RecoveryError) {
        match self.damage.len() < FINDINGS {
            true => self.damage.push(error),
            false => self.more_damage += 1,
        }
    }
}
