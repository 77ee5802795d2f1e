//! What only some layouts have, or volumes that are new enough: refused by the others, for what is taken and does nothing misleads.

use crate::journals::{self, Extent};
use crate::options::OpenError;
use crate::pack::Compression;
use crate::policy::Policy;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::Commits;
use vellum_core::stats::Stats;
use vellum_core::tables::Persistence;

/// Whether a volume can do all of what is chosen.
///
/// # Errors
/// When it cannot; says what.
pub fn check_choice(
    superblock: &Superblock,
    policy: &Policy,
    persistence: Persistence,
    by_hand: &[Extent],
) -> Result<(), OpenError> {
    takes(superblock, policy)?;
    answers(superblock, persistence)?;
    journals::all(by_hand, superblock.logical_blocks())?;
    Ok(())
}

/// Parts of pages are of a log alone: where would the others of a page go that is written in place? What is committed to a
/// journal is pledged in the log; and of tables bytes decide, whatever else is asked for. Commits are of tables alone.
pub(crate) fn takes(superblock: &Superblock, policy: &Policy) -> Result<(), OpenError> {
    let usual = Commits::default();
    let of_a_log = [
        (policy.deltas.are_made(), "deltas (delta=)"),
        (
            policy.compression != Compression::Off,
            "compressed blocks (compress=)",
        ),
        (policy.replay, "replay by the volume (replay=)"),
        (
            policy.fingerprint.is_some(),
            "fingerprints in place of bytes (decide=)",
        ),
    ];
    let of_tables = [
        (
            policy.commits.requests != usual.requests,
            "commits of tables (commit-every=)",
        ),
        (
            policy.commits.merging != usual.merging,
            "writes of tables to hold back (merging=)",
        ),
        (
            policy.commits.anticipation != usual.anticipation,
            "commits of tables to hold back (anticipation=)",
        ),
    ];
    let layout = superblock.layout();
    let (others, instead) = match layout {
        Layout::Log => (&of_tables[..], Layout::Ordered),
        _ => (&of_a_log[..], Layout::Log),
    };
    match others.iter().find(|(is, _)| *is) {
        None if policy.deltas.are_made() && superblock.delta_leaves() == 0 => {
            Err(OpenError::NoDeltas)
        }
        None => Ok(()),
        Some((_, what)) => Err(OpenError::Layout {
            what,
            layout: layout.name(),
            instead: instead.name(),
        }),
    }
}

/// A log answers when a write is in memory.
pub(crate) fn answers(superblock: &Superblock, persistence: Persistence) -> Result<(), OpenError> {
    match (superblock.layout(), persistence) {
        (layout @ Layout::Log, Persistence::Strong) => Err(OpenError::Layout {
            what: "answers when a write is durable (persistence=strong)",
            layout: layout.name(),
            instead: Layout::Ordered.name(),
        }),
        _ => Ok(()),
    }
}

/// What an opening of tables had to do without.
pub(crate) fn damage(found: &Stats) -> Option<String> {
    let (prints, counts) = (found.lost_fingerprint_blocks, found.rebuilt_count_blocks);
    let editions = found.lost_edition_blocks;
    (prints + counts + editions > 0).then(|| {
        format!(
            "{prints} block(s) of fingerprints, {counts} of counts and {editions} of editions are damaged or cannot be read: no data is \
             lost, duplicates of what the first are of are stored again, the others were made anew; they are written again soon, and a drive that cannot do \
             that is to be replaced"
        )
    })
}
