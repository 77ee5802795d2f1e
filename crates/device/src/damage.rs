//! What a damaged volume has lost: which LBAs, and why.

use std::fmt::Write as _;
use vellum_core::addr::Lba;
use vellum_core::recovery::RecoveryError;
use vellum_core::recovery::rescue::{LbaSet, Loss};

/// Findings that are named when a volume is opened; further ones are only counted.
const NAMED: usize = 3;

/// What is missing from a volume that was opened in spite of damage.
#[derive(Clone, Debug)]
pub struct Damage {
    lost: LbaSet,
    guessed: LbaSet,
    findings: Vec<RecoveryError>,
    more: u64,
    may_go_on: bool,
}

impl Damage {
    /// `why`: the reason why the volume could not be opened for writing.
    pub(crate) fn new(why: RecoveryError, loss: Loss) -> Self {
        let mut findings = loss.damage;
        if !findings.contains(&why) {
            findings.insert(0, why);
        }
        Self {
            lost: loss.lost,
            guessed: loss.guessed,
            findings,
            more: loss.more_damage,
            may_go_on: loss.may_go_on,
        }
    }

    /// LBAs that cannot be read, because nothing says where they are.
    #[must_use]
    pub fn lost(&self) -> &LbaSet {
        &self.lost
    }

    /// LBAs that read as the newest version that was found; a newer one may have existed.
    #[must_use]
    pub fn guessed(&self) -> &LbaSet {
        &self.guessed
    }

    /// True if the log may go on in a block that cannot be read. What was written last may be missing then.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.may_go_on
    }

    /// What is damaged.
    pub fn findings(&self) -> impl Iterator<Item = String> + '_ {
        self.findings.iter().map(ToString::to_string)
    }

    /// The first lost LBA of a range.
    pub(crate) fn first_lost(&self, lba: Lba, blocks: u64) -> Option<Lba> {
        let range = lba.0..lba.0.saturating_add(blocks);
        self.lost.next_run(range).map(|(lba, _)| lba)
    }

    /// How many blocks from `lba` on are lost, up to `blocks`.
    pub(crate) fn lost_from(&self, lba: Lba, blocks: u64) -> u64 {
        let range = lba.0..lba.0.saturating_add(blocks);
        let run = self.lost.next_run(range).filter(|(from, _)| *from == lba);
        run.map_or(0, |(_, blocks)| blocks)
    }

    /// Describes the damage in one line, for the server's log.
    pub(crate) fn describe(&self) -> String {
        let missing = match self.may_go_on {
            true => "; what was written last may be missing",
            false => "",
        };
        let mut text = format!(
            "the volume is damaged: {} block(s) are lost and return read errors{missing}; each of the others \
             reads as it was, or as an error",
            self.lost.len()
        );
        for finding in self.findings.iter().take(NAMED) {
            let _ = write!(text, "; {finding}");
        }
        let others = self.findings.len().saturating_sub(NAMED) as u64 + self.more;
        if others > 0 {
            let _ = write!(text, "; and {others} more");
        }
        text
    }
}
