//! What was written to the medium, and why.

use super::{Ftl, Sim};
use crate::base::{Drive, Folded, Refreshed};
use crate::series::Moment;
use crate::vellum::Backing;
use serde::Serialize;

/// The cause of blocks that a drive below the engine moves.
pub(crate) const BY_DRIVE: &str = "moved by the drive";

/// Blocks written to the medium, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The cause.
    pub name: &'static str,
    /// Blocks of 4 KiB.
    pub blocks: u64,
}

impl Ftl {
    /// The drive with a page map, if there is one.
    #[must_use]
    pub fn drive(&self) -> Option<&Drive> {
        match self {
            Self::Page(drive) => Some(drive),
            Self::Raw(_) => None,
            Self::Vellum(vellum) => match vellum.backing() {
                Backing::Drive(drive) => Some(drive),
                Backing::Flash(_) | Backing::Zones(_) | Backing::Block(_) => None,
            },
        }
    }

    /// The same, to let the drive act by itself.
    pub(super) fn drive_mut(&mut self) -> Option<&mut Drive> {
        match self {
            Self::Page(drive) => Some(drive),
            Self::Raw(_) => None,
            Self::Vellum(vellum) => vellum.drive_below(),
        }
    }

    /// What went through the drive's cache of blocks with one bit a cell, if it has one.
    #[must_use]
    pub fn folded(&self) -> Option<Folded> {
        self.drive()?.map().folded()
    }

    /// Blocks written to the medium by cause, always in the same order.
    #[must_use]
    pub fn written(&self) -> Vec<Cause> {
        let cause = |name, blocks| Cause { name, blocks };
        match self {
            Self::Page(drive) => {
                let counts = drive.map().counts();
                let mut written = vec![cause("data", counts.host), cause("moved", counts.moved)];
                if let Some(cache) = drive.map().folded() {
                    written.push(cause("folded", cache.folded));
                }
                if drive.map().is_levelled() {
                    written.push(cause("moved to level wear", counts.levelled));
                }
                if drive.is_refreshing() {
                    written.push(cause("moved to refresh", counts.refreshed));
                }
                if drive.map().lookups().is_some() {
                    written.push(cause("map", counts.map));
                }
                written
            }
            Self::Raw(raw) => vec![cause("data", raw.written())],
            Self::Vellum(vellum) => {
                let stats = vellum.stats();
                let mut written = match vellum.is_in_place() {
                    true => vec![
                        cause("data", stats.medium_data),
                        cause("map", stats.medium_links),
                        cause("counts", stats.medium_counts),
                        cause("fingerprints", stats.medium_fingerprints),
                        cause("directory", stats.medium_directory),
                        cause("roots", stats.medium_map),
                    ],
                    false => vec![
                        cause("data", stats.medium_data),
                        cause("moved", stats.medium_moved),
                        cause("headers", stats.medium_headers),
                        cause("summaries", stats.medium_summaries),
                        cause("map", stats.medium_map),
                    ],
                };
                let own = vellum.backing().own_moves();
                match vellum.backing() {
                    Backing::Flash(_) => written.push(cause("moved in map area", own)),
                    Backing::Zones(log) => {
                        written.push(cause("map area's own", own));
                        written.push(cause("zeros at ends of zones", log.padded()));
                    }
                    Backing::Drive(_) => written.push(cause(BY_DRIVE, own)),
                    Backing::Block(_) => {}
                }
                written
            }
        }
    }
}

impl Sim {
    /// What was refreshed, or was due and was not refreshed, if the drive limits the reads or the age of its blocks.
    #[must_use]
    pub fn refreshed(&self) -> Option<Refreshed> {
        let past_due = self.flash.past_due(self.time.now())?;
        let nobody = Refreshed {
            past_due,
            ..Refreshed::default()
        };
        Some(
            self.ftl
                .drive()
                .and_then(Drive::refreshed)
                .unwrap_or(nobody),
        )
    }

    /// The counters at this moment.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let written = self.ftl.written();
        let by_cause: Vec<u64> = written.iter().map(|cause| cause.blocks).collect();
        Moment {
            host_written: self.seen.blocks_written,
            medium_written: by_cause.iter().sum(),
            erases: self.flash.counts().erases,
            at: self.time.now(),
            writes: self.seen.writes.count(),
            write_ns: self.seen.writes.sum(),
            reads: self.seen.reads.count(),
            read_ns: self.seen.reads.sum(),
            by_cause,
            engine: match &self.ftl {
                Ftl::Vellum(vellum) => vellum.stats().named().map(|(_, value)| value).collect(),
                Ftl::Page(_) | Ftl::Raw(_) => Vec::new(),
            },
        }
    }
}
