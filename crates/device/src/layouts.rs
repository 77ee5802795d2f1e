//! Features that only some layouts, or only newer volumes, have. Other volumes refuse them: an option that is accepted but does
//! nothing misleads.

use crate::options::OpenError;
use crate::pack::Compression;
use crate::policy::Policy;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::Commits;
use vellum_core::stats::Stats;
use vellum_core::tables::Persistence;
use vellum_watch::{Extent, journals};

/// Checks that a volume can do all that is chosen.
///
/// # Errors
/// When it cannot; the error says what.
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

/// Checks that the layout can do what the policy says. Only a log has parts of pages: if a page is written in place, its other
/// parts have nowhere to go. Only a log has pledges. Tables always compare bytes. Only tables have commits.
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

/// Refuses `persistence=strong` for a log, which answers when a write is in memory.
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

/// Describes what could not be used when tables were opened.
pub(crate) fn damage(found: &Stats) -> Option<String> {
    let (prints, counts) = (found.lost_fingerprint_blocks, found.rebuilt_count_blocks);
    let editions = found.lost_edition_blocks;
    (prints + counts + editions > 0).then(|| {
        format!(
            "{prints} block(s) of fingerprints, {counts} of counts and {editions} of editions are \
             damaged or cannot be read. No data is lost: duplicates of blocks without fingerprints \
             are stored again, and the rest was rebuilt. All will be rewritten soon; replace the \
             drive if it cannot write them"
        )
    })
}
