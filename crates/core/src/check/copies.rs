//! Checks roots and leaves on the medium, and their copies: recovery reads a copy only where it has to.

use super::report::{Problem, Report};
use crate::addr::{BLOCK_BYTES, Generation, Leaf, Pba};
use crate::format::leaf::Leaves;
use crate::format::root::{self, RootHeader};
use crate::format::{Crc, FormatError, open_summary};
use crate::recovery::{Recovered, Source, Unreadable};
use alloc::vec;

pub(super) fn check(source: &mut dyn Source, recovered: &Recovered, crc: Crc, report: &mut Report) {
    check_roots(source, recovered, crc, report);
    check_open_summaries(source, recovered, crc, report);
    let superblock = &recovered.superblock;
    let leaves = Leaves {
        superblock,
        slots: &recovered.slots,
        crc,
    };
    for stripe in 0..superblock.parity_leaves() {
        check_stripe(source, leaves, stripe, report);
    }
}

/// A root; `None` if nothing was ever written there.
type Found = Result<Option<RootHeader>, Result<FormatError, Unreadable>>;

/// Checks the copies of the root that recovery used, and those in the other place: of the previous root, or of one that was being
/// written.
fn check_roots(source: &mut dyn Source, recovered: &Recovered, crc: Crc, report: &mut Report) {
    let superblock = &recovered.superblock;
    let generation = recovered.root.generation;
    let mut bytes = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    let mut read = |at: Pba| -> Found {
        source.read(at, &mut bytes).map_err(Err)?;
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let decoded = root::decode(&bytes, &superblock.uuid(), superblock.leaves(), crc);
        decoded.map(|(header, _)| Some(header)).map_err(Ok)
    };
    for at in superblock.root_copies(generation) {
        match read(at) {
            Ok(Some(header)) if header.generation == generation => {}
            Ok(_) => report.add(Problem::RootCopyOld { at }),
            Err(Ok(error)) => report.add(Problem::RootCopy { at, error }),
            Err(Err(error)) => report.add(Problem::RootUnreadable(error)),
        }
    }
    for at in superblock.root_copies(Generation(generation.0 + 1)) {
        match read(at) {
            Ok(_) => {}
            Err(Ok(error)) => report.add(Problem::OtherRoot { at, error }),
            Err(Err(error)) => report.add(Problem::RootUnreadable(error)),
        }
    }
}

/// Checks the open summaries, in which the root repeats the headers of the heads' segments. A segment that already had its own summary
/// has no such copy.
fn check_open_summaries(
    source: &mut dyn Source,
    recovered: &Recovered,
    crc: Crc,
    report: &mut Report,
) {
    let superblock = &recovered.superblock;
    let mut bytes = vec![0; superblock.open_summary_blocks() as usize * BLOCK_BYTES];
    for head in 0..2 {
        let Some(at) = superblock.open_summary(recovered.root.generation, head) else {
            return;
        };
        if let Err(error) = source.read(at, &mut bytes) {
            report.add(Problem::RootUnreadable(error));
        } else if let Err(error) =
            open_summary::decode(superblock, &recovered.root, head, &bytes, crc)
        {
            report.add(Problem::OpenSummary { at, error });
        }
    }
}

/// Checks that each leaf of a stripe is whole, and that its parity matches them.
fn check_stripe(source: &mut dyn Source, leaves: Leaves<'_>, stripe: u32, report: &mut Report) {
    let parity = leaves.superblock.parity(stripe);
    let mut read = |at, block: &mut [u8; BLOCK_BYTES]| source.read(at, block).is_ok();
    let mut lost = 0;
    for leaf in leaves.superblock.stripe(stripe).chain(parity) {
        if let Err(at) = leaves.read(leaf, &mut read) {
            lost += 1;
            report.add(Problem::Leaf { leaf, at });
        }
    }
    let holds = |leaf: Leaf| leaves.slots.get(leaf) != root::LeafSlot::Absent;
    let holds_any = leaves.superblock.stripe(stripe).any(holds);
    if let Some(parity) = parity
        && lost == 0
        && holds_any
        && leaves.rebuild(parity, &mut read).is_none()
    {
        let at = leaves.superblock.leaf_slot(parity, 0);
        report.add(Problem::Parity { at });
    }
}
