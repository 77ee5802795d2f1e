//! What a scrub has found.

use serde::{Deserialize, Serialize};
use vellum_core::addr::{Lba, Pba};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// What it says is known from somewhere else, and a restart does not need it.
    SecondCopy,
    /// Its contents are lost, or a restart would need it.
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The structure.
    pub what: String,
    /// Where it is: a block of the medium.
    pub at: u64,
    /// The block that clients cannot read because of it.
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

    /// True if it is damage, and not mended.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.mended.is_none() && self.severity == Severity::Damage
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at physical block {}", self.what, self.at)?;
        if let Some(lba) = self.lba {
            write!(f, ", LBA {lba}")?;
        }
        write!(f, ": {}", self.why)?;
        for file in &self.files {
            write!(f, "; {file}")?;
        }
        match &self.mended {
            Some(how) => write!(f, "; mended: {how}"),
            None => Ok(()),
        }
    }
}

/// How far a volume's scrub is, and what the last one has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// How much of the current scrub is done, in thousandths; `None` if there is none.
    pub permille: Option<u64>,
    /// How much was done of the last scrub, if it was stopped before its end: the next one goes on there.
    pub left_at: Option<u64>,
    /// Where this scrub, or the last one, began, if it went on from a stopped one.
    pub went_on_at: Option<u64>,
    /// Scrubs that were completed since the volume was opened.
    pub ended: u64,
    /// Scrubs that were stopped before their end.
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
