//! Where the log of the lives before ended.

use crate::addr::{Life, Seq};

/// The newest chunk that there was when a life began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Its number.
    pub seq: Seq,
    /// The life that wrote it; 0 if it is not known: programs from before 2026-11-26 did not note it.
    pub life: Life,
}

impl LogEnd {
    /// That of what has no log.
    pub const NONE: Self = Self {
        seq: Seq(0),
        life: Life(0),
    };

    /// From the fields `log_end` and `log_end_life`.
    pub(super) fn of(log_end: u64, life: u64) -> Option<Self> {
        let seq = log_end.checked_sub(1).map(Seq)?;
        let life = Life(life);
        Some(Self { seq, life })
    }

    /// Whether a log that ends like this can have such a chunk. Numbers and lives grow together, so a whole one with the number of the
    /// last is another one if its life is: a life wrote it that lost it in a crash, and its place was written since.
    pub(super) fn can_have(self, seq: Seq, life: Life) -> bool {
        let is_known = self.life > Life(0);
        let fits = match seq == self.seq {
            true => life == self.life,
            false => life <= self.life,
        };
        seq <= self.seq && (fits || !is_known)
    }
}
