//! Where the log of the previous lives ended.

use crate::addr::{Life, Seq};

/// The newest chunk when a life began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// Its number.
    pub seq: Seq,
    /// The life that wrote it; 0 if unknown: programs from before 2026-11-26 did not note it.
    pub life: Life,
}

impl LogEnd {
    /// The end of an empty log.
    pub const NONE: Self = Self {
        seq: Seq(0),
        life: Life(0),
    };

    /// Decodes the fields `log_end` and `log_end_life`.
    pub(super) fn of(log_end: u64, life: u64) -> Option<Self> {
        let seq = log_end.checked_sub(1).map(Seq)?;
        let life = Life(life);
        Some(Self { seq, life })
    }

    /// True if a log that ends here can contain such a chunk. Numbers and lives grow together. So a whole chunk with the last number but
    /// another life is not the last chunk: a life wrote it and lost it in a crash, and its number was used again since.
    pub(super) fn can_have(self, seq: Seq, life: Life) -> bool {
        let is_known = self.life > Life(0);
        let fits = match seq == self.seq {
            true => life == self.life,
            false => life <= self.life,
        };
        seq <= self.seq && (fits || !is_known)
    }
}
