//! Rescue: reads the intact parts of a damaged log. Where recovery refuses, a rescue goes on, and reports the LBAs whose state is not
//! known.
//!
//! An LBA's state is *certain* if the newest map checkpoint and every chunk since determine it. If a leaf is lost, those of its LBAs
//! become uncertain that no later chunk names. If a durable chunk is lost, the LBAs that it named become uncertain; the next chunk's
//! header repeats them. If that header is lost too, or repeats none, all LBAs become uncertain. Uncertain LBAs are left out, or with
//! [`Trust::Newest`] get the version that the newest header gives them. That version may be older than the last one, or discarded since.
//!
//! The result is for reading only: a volume found in this way must not be written.

mod doubt;
mod ends;
mod evidence;
mod guess;
mod lbas;
mod loss;
mod replay;
mod scan;

pub use lbas::LbaSet;
pub use loss::{Loss, Rescued, Trust};

use super::replay::Replay;
use super::{RecoveryError, Source, find_superblock, recover};
use crate::addr::Seq;
use crate::format::Crc;
use crate::format::areas::Layout;
use doubt::Doubt;
use scan::Scan;

/// Reads a damaged log.
///
/// # Errors
/// When neither superblock is whole, or the layout is not a log.
pub fn rescue(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    trust: Trust,
) -> Result<Rescued, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    if superblock.layout() != Layout::Log {
        return Err(RecoveryError::NotALog(superblock.layout().name()));
    }
    let mut scan = Scan::of(source, &superblock, crc, false);
    // A stale header may hide later headers from the scan. Recovery looks more closely where the log ends, so its result counts too.
    scan.durable = scan.durable.max(match recover(source, medium_blocks, crc) {
        Err(RecoveryError::Hole { seq, .. }) => seq,
        Err(RecoveryError::Missing { durable, .. }) => durable,
        _ => Seq(0),
    });
    let mut doubt = Doubt::new(&superblock);
    let (root, slots) = doubt.find_root(source, &superblock, crc, &scan);
    if !doubt.root_lost && scan.lacks_any(root.seq) {
        scan = scan.closely(source, &superblock, crc);
    }
    let mut replay = Replay::new(source, superblock, crc, root, slots)?;
    replay.replayed.mirror_lost = mirror_lost;
    doubt.load_leaves(&mut replay);
    if !doubt.root_lost {
        replay.walk_open_segments();
    }
    doubt.replay(&mut replay, &scan, trust);
    if trust == Trust::Newest && doubt.is_any() {
        // A header that the quick scan has missed may contradict a guess.
        let scan = scan.closely(replay.source, &replay.superblock, crc);
        guess::guess(&mut replay, &scan, &mut doubt)?;
    }
    doubt.finish(replay, trust)
}
