//! What a scrub has found.

use serde::{Deserialize, Serialize};
use vellum_core::addr::{Lba, Pba};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// What it says is known from somewhere else, and it is not needed.
    SecondCopy,
    /// It is lost, or a restart would need it.
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The structure.
    pub what: String,
    /// Where it is: a block of the medium.
    pub at: u64,
    /// Which block that clients see cannot be read for it.
    pub lba: Option<u64>,
    /// What is wrong.
    pub why: String,
    /// How bad that is, if it is not mended.
    pub severity: Severity,
    /// How it was mended.
    pub mended: Option<String>,
    /// What that block is to an ext4 on the volume.
    pub files: Vec<String>,
}

impl Finding {
    pub(super) fn new(what: &str, at: Pba, why: impl ToString) -> Self {
        Self {
            what: what.to_owned(),
            at: at.0,
            lba: None,
            why: why.to_string(),
            severity: Severity::Damage,
            mended: None,
            files: Vec::new(),
        }
    }

    pub(super) fn second_copy(mut self) -> Self {
        self.severity = Severity::SecondCopy;
        self
    }

    pub(super) fn of(mut self, lba: Lba) -> Self {
        self.lba = Some(lba.0);
        self
    }

    /// Whether it is still there, and bad.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.mended.is_none() && self.severity == Severity::Damage
    }
}

/// How far a volume's scrub is, and what the last one has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Of one under way, how much is done, in thousandths.
    pub permille: Option<u64>,
    /// Where the next one goes on, if the last was stopped before its end: so much is done.
    pub left_at: Option<u64>,
    /// Whether this one, or the last one, went on where another was stopped.
    pub went_on_at: Option<u64>,
    /// Scrubs that have come to their end since the volume was opened.
    pub ended: u64,
    /// Those that were stopped before.
    pub halted: u64,
    /// Bytes that this one, or the last one, has read.
    pub read_bytes: u64,
    /// What is damaged, and could not be mended.
    pub damaged: u64,
    /// What was mended.
    pub mended: u64,
    /// Second copies that are damaged.
    pub second_copies: u64,
    /// The first of all these.
    pub findings: Vec<Finding>,
}
