//! Why a scenario cannot be run.

use super::capacity::TooLarge;
use crate::base::TooSmall;
use crate::flash::NoSpare;
use crate::jobs::JobsError;
use crate::queues::plan::QueueError;
use crate::replay::ReplayError;
use crate::sim::RunError;
use crate::vellum::LayoutError;
use vellum_core::recovery::RecoveryError;

/// The fewest blocks of a journal: jbd2's own limit.
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The drive is too small for the baseline.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// The drive is too large for memory.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// There are more bad blocks than spare ones.
    #[error(transparent)]
    NoSpare(#[from] NoSpare),
    /// The drive is too small for the engine, or has a shape that it cannot use.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The engine did not open a new volume.
    #[error("the engine does not open a new volume")]
    Open(#[from] RecoveryError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The trace touches more than the volume has.
    #[error(
        "the trace touches {needs} blocks and the volume has {has}: give it a --capacity of at least {bytes} \
         bytes"
    )]
    Footprint {
        /// Blocks needed.
        needs: u64,
        /// Blocks of the volume.
        has: u64,
        /// The capacity advised.
        bytes: u64,
    },
    /// Nothing is left to send requests to.
    #[error(
        "requests of {request} blocks on a volume of {volume}, of which {left} are left beside a journal \
         (that has at least {JOURNAL_BLOCKS_MIN})"
    )]
    Request {
        /// Blocks of a request.
        request: u32,
        /// Blocks of the volume.
        volume: u64,
        /// Blocks left to the application.
        left: u64,
    },
    /// Nothing says which blocks are freed.
    #[error(
        "{policy}: which blocks are freed is read from the bitmaps that a file system writes: \
         make one up (--journal) whose file grows (--growing)"
    )]
    Freed {
        /// The policy.
        policy: String,
    },
    /// Nothing says what is compressible.
    #[error(
        "{policy}: in how many bytes a block can be stored is not known: name a model of it (--sizes), or \
         replay a trace that tells it"
    )]
    Sizes {
        /// The policy.
        policy: String,
    },
    /// The caller chooses victims, but nothing would use them.
    #[error(
        "{policy}: victims of your own are of a page map on flash: take a policy that begins with base, and \
         a drive of flash"
    )]
    Chooser {
        /// The policy.
        policy: String,
    },
    /// The caller separates hot and cold, but nothing would use it.
    #[error(
        "{policy}: hot and cold of your own are of a page map on flash that keeps them apart: \
         take base:hot-cold, and a drive of flash"
    )]
    Separator {
        /// The policy.
        policy: String,
    },
    /// The caller decides on admission, but there is nothing to admit to.
    #[error(
        "{policy}: there is nothing that writes could be admitted to: take vellum:dedup, vellum:compress, \
         or base on a drive of flash that has a write buffer (buffer-kib) and no order of its own"
    )]
    Admission {
        /// The policy.
        policy: String,
    },
    /// The policy cannot run on flash.
    #[error(
        "woj and dmdedup are what the write-once paper measured above a real SSD: they run on block devices, \
         like fast-ssd"
    )]
    Raw,
    /// Tables in place, on a medium that cannot be overwritten.
    #[error(
        "flash cannot be overwritten in place: layout=ordered and layout=shadow run above a drive (add \
         on-drive) or on a block device"
    )]
    InPlace,
    /// The load ends at a time, but no time passes.
    #[error("the load lasts for a time, and nothing takes time when it is only counted")]
    Untimed,
    /// The load goes past the end of the volume.
    #[error(
        "the load goes to block {end}, and the volume has {volume}: give it a larger --capacity"
    )]
    Area {
        /// The block after its last.
        end: u64,
        /// The volume's blocks.
        volume: u64,
    },
    /// There is no room for the jobs.
    #[error(transparent)]
    Jobs(#[from] JobsError),
    /// A tenant cannot have the submission queue that is named for it.
    #[error(transparent)]
    Queues(#[from] QueueError),
    /// A page map that refreshes nothing.
    #[error("with [read-disturb] or [retention] only the page map `base` runs here: take it")]
    Refresh,
    /// A page map with an SLC cache has no order and no map on flash.
    #[error(
        "on a drive with an SLC cache the page map keeps no order and no map on flash: take base, \
         or a drive without [slc-cache]"
    )]
    Cache,
    /// The policy names placement handles, and the drive has none.
    #[error(
        "{policy}: this drive has no placement handles: take one whose file has \
         [placement], or a policy without handles"
    )]
    Handles {
        /// The policy.
        policy: String,
    },
    /// The policy needs a page map of the drive, and that has zones instead.
    #[error(
        "{policy}: this drive has zones, and no page map: take a policy that begins with \
         vellum, without on-drive and layout="
    )]
    Zoned {
        /// The policy.
        policy: String,
    },
    /// Each tenant is to have a placement handle, and there are no tenants.
    #[error(
        "{policy}: the load has no tenants: take several (--tenant, or the jobs of a \
         --fio file), or handles=heat"
    )]
    NoTenants {
        /// The policy.
        policy: String,
    },
    /// The policy cannot run on this device.
    #[error(
        "{policy}: the inside of this device is not known, so nothing but `base` (the device itself) and \
         `vellum` runs on it"
    )]
    NoFlash {
        /// The policy.
        policy: String,
    },
}

impl ScenarioError {
    /// True if the drive has too little room besides the volume for the policy.
    #[must_use]
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(
            self,
            Self::TooSmall(_)
                | Self::Layout(
                    LayoutError::Full { .. } | LayoutError::Tables { .. } | LayoutError::Area(_)
                )
        )
    }
}
